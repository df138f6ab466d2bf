//! The bare client: keeps queues full and counts, at as little CPU as the protocol allows.
//!
//! One thread, the same ring and outbox as the ceiling: one receive takes what there is, all new
//! commands of a turn leave in one `sendmsg`. With a rate it is an open loop instead: operations
//! leave at fixed times (`client/pace.rs`), woken by a timeout on the ring. After a warm-up a
//! window opens; operations, bytes and latencies count inside it, and so do this thread's CPU and
//! that of the target process, read from `/proc` at both ends. Set-up is in `client/session.rs`,
//! the hot path in `client/queue.rs`, idle and stuck connections in `client/company.rs`.

mod company;
mod pace;
mod queue;
mod session;

use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::memory::Area;
use crate::places::Places;
use crate::report::{Opened, Tally, Window, quiet};
use crate::ring::Ring;
use crate::system::{self, Target};
use crate::{Measure, Pattern};
use company::{Idle, Stuck};
use pace::Pace;
use queue::{Queue, Work};
pub(crate) use session::Peer;
use session::Session;

/// How long commands still outstanding at the end may take.
const DRAIN: Duration = Duration::from_secs(2);
/// How long filling a namespace may take.
const FILL: Duration = Duration::from_secs(300);
/// How long a client waits for a completion before it gives the target up.
const SILENCE: Duration = Duration::from_secs(20);
/// The longest wait on the ring.
const WAIT: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) peer: Peer,
    /// Size of a command's data.
    #[arg(long, default_value = "4k", value_parser = crate::parse_size)]
    pub(crate) bs: usize,
    /// Commands outstanding on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) iodepth: u16,
    /// I/O queues; 0 puts no load on the target.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) connections: u16,
    /// Of a hundred commands of `--rw randrw`, how many read.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) read_share: u8,
    /// An open loop of so many operations a second on all connections together, in place of full
    /// queues. Each leaves at its own time, and its latency counts from then.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// For so long, before anything else, 4 KiB writes at random places.
    #[arg(long, default_value = "0", value_parser = crate::parse_seconds)]
    pub(crate) before_write_seconds: Duration,
    /// Receive buffer of a connection.
    #[arg(long, default_value = "512KiB", value_parser = crate::parse_size)]
    pub(crate) buffer: usize,
    /// Idle connections beside the load.
    #[arg(long, default_value_t = 0)]
    pub(crate) idle_connections: usize,
    /// I/O queues of each controller among the idle connections.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=128))]
    pub(crate) idle_queues: u16,
    /// Connections that ask for data and never receive them.
    #[arg(long, default_value_t = 0)]
    pub(crate) stuck_connections: usize,
    #[command(flatten)]
    pub(crate) measure: Measure,
}

/// Connects, measures one window, and returns what it saw.
pub(crate) fn run(options: &Options) -> Result<Value> {
    system::pin(options.measure.cpu)?;
    system::raise_descriptor_limit();
    write_before(options)?;
    let target = options.measure.target();
    let before = target.as_ref().map(Target::usage).unwrap_or_default();
    let idle = Idle::connect(&options.peer, options.idle_connections, options.idle_queues)?;
    let stuck = (0..options.stuck_connections)
        .map(|number| Stuck::connect(&options.peer, number))
        .collect::<Result<Vec<_>>>()?;
    let window = if options.connections == 0 {
        quiet(&options.measure, target.as_ref(), Some(idle.answered()))
    } else {
        Load::new(options)?.run(options, target.as_ref())?
    };
    drop(stuck);
    let lost = idle.finish();
    let mut value = window.report(options.bs, target.as_ref(), before);
    value["open_loop"] = json!(options.rate);
    value["idle_connections"] = json!(options.idle_connections);
    value["idle_sessions_lost"] = json!(lost);
    Ok(value)
}

/// Carries out `--before-write-seconds`, on a connection of its own.
fn write_before(options: &Options) -> Result<()> {
    if options.before_write_seconds.is_zero() {
        return Ok(());
    }
    let mut writes =
        Options { bs: 4096, iodepth: 32, connections: 1, rate: None, ..options.clone() };
    writes.measure = Measure {
        rw: Pattern::Randwrite,
        fill: false,
        warm_up: Duration::ZERO,
        seconds: options.before_write_seconds,
        ..writes.measure
    };
    Load::new(&writes)?.run(&writes, None)?;
    Ok(())
}

/// The queues and their ring.
struct Load {
    ring: Ring,
    queues: Vec<Queue>,
    tally: Tally,
    start: Instant,
    _session: Session,
}

/// Keys of completions: the queue's number, and this bit for a poll for room.
const ROOM: u64 = 1 << 32;
/// Key of the alarm.
const ALARM: u64 = 1 << 33;

impl Load {
    fn new(options: &Options) -> Result<Self> {
        let session = Session::connect(&options.peer, true, options.connections)?;
        let count = u64::from(options.connections);
        let blocks = options.bs as u64 / session.block;
        ensure!(
            blocks > 0 && (options.bs as u64).is_multiple_of(session.block),
            "{} bytes are no whole blocks of {}",
            options.bs,
            session.block
        );
        let share = session.blocks / count / blocks;
        ensure!(share > 0, "the namespace is too small for this load");
        let reads = match options.measure.rw {
            Pattern::Randrw => options.read_share,
            pattern if pattern.writes() => 0,
            _ => 100,
        };
        let pattern = Rc::new(Area::new(options.bs.next_multiple_of(4096), true)?);
        let mut ring = Ring::new(Duration::ZERO).context("cannot set up an io_uring")?;
        let mut queues = Vec::new();
        for number in 0..options.connections {
            let wire = session.queue(number + 1, options.iodepth)?;
            let work = Work {
                reads,
                size: options.bs,
                depth: options.iodepth,
                nsid: options.peer.nsid,
                block: session.block,
                first: u64::from(number) * share * blocks,
                places: Places::new(share, &options.measure, number.into()),
                in_capsule: options.bs <= session.in_capsule.min(8192),
                pattern: Rc::clone(&pattern),
            };
            ring.register(u32::from(number), wire.socket.as_raw_fd())?;
            queues.push(Queue::new(wire, work, options.buffer)?);
        }
        Ok(Self { ring, queues, tally: Tally::new(), start: Instant::now(), _session: session })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(mut self, options: &Options, target: Option<&Target>) -> Result<Window> {
        self.start = Instant::now();
        let now = self.now();
        let mut pace = options.rate.map(|rate| Pace::new(rate, now));
        for number in 0..self.queues.len() {
            if pace.is_none() {
                self.queues[number].start(now);
                self.flush(number)?;
            }
            self.receive(number)?;
        }
        let warm_up = if options.measure.fill { FILL } else { options.measure.warm_up };
        self.load_until(warm_up, &mut pace)?;
        let opened = Opened::now(&mut self.tally, target);
        self.load_until(self.start.elapsed() + options.measure.seconds, &mut pace)?;
        let mut window = opened.close(&mut self.tally);
        window.behind = pace.map_or(0, |pace| pace.behind(self.now()));
        self.until(self.start.elapsed() + DRAIN, false)?;
        Ok(window)
    }

    fn load_until(&mut self, end: Duration, pace: &mut Option<Pace>) -> Result<()> {
        match pace {
            Some(pace) => self.paced(end, pace),
            None => self.until(end, true),
        }
    }

    /// Sends each operation at its time, until `end` after the start.
    fn paced(&mut self, end: Duration, pace: &mut Pace) -> Result<()> {
        let mut done = Vec::with_capacity(64);
        let mut heard = self.now();
        loop {
            let now = self.now();
            if u128::from(now) >= end.as_nanos() {
                return Ok(());
            }
            self.send_due(now, pace)?;
            let is_idle = self.queues.iter().all(|queue| queue.outstanding == 0);
            let silence = Duration::from_nanos(now.saturating_sub(heard));
            ensure!(is_idle || silence < SILENCE, "the target has stopped answering");
            // With every slot taken an operation that is due waits for an answer, not for time.
            let left = match pace.due(now) {
                Some(_) => WAIT,
                None => Duration::from_nanos(pace.next() - now).min(WAIT),
            };
            if self.ring.wait_at_most(&mut done, ALARM, left)? {
                heard = self.now();
                self.handle(&mut done, heard, false)?;
            } else if is_idle {
                heard = self.now();
            }
        }
    }

    /// Sends what is due, on the connections in turn, as far as they have command slots.
    fn send_due(&mut self, now: u64, pace: &mut Pace) -> Result<()> {
        while let Some(time) = pace.due(now) {
            let count = self.queues.len();
            let start = pace.sent() as usize % count;
            let mut turn = (start..start + count).map(|number| number % count);
            let Some(number) = turn.find(|number| self.queues[*number].issue(time)) else {
                return Ok(());
            };
            pace.advance();
            if !self.queues[number].waits_for_room {
                self.flush(number)?;
            }
        }
        Ok(())
    }

    /// Turns until `end` after the start, or until nothing is outstanding.
    fn until(&mut self, end: Duration, refill: bool) -> Result<()> {
        let mut done = Vec::with_capacity(64);
        let mut silent = Duration::ZERO;
        loop {
            let now = self.now();
            if u128::from(now) >= end.as_nanos() {
                return Ok(());
            }
            if self.queues.iter().all(|queue| queue.outstanding == 0) {
                return Ok(());
            }
            if !self.ring.wait_at_most(&mut done, ALARM, WAIT)? {
                silent += WAIT;
                ensure!(silent < SILENCE, "the target has stopped answering");
                continue;
            }
            silent = Duration::ZERO;
            let now = self.now();
            self.handle(&mut done, now, refill)?;
        }
    }

    /// Takes what has completed on the ring.
    fn handle(&mut self, done: &mut Vec<(u64, i32)>, now: u64, refill: bool) -> Result<()> {
        for (key, result) in done.drain(..) {
            let number = (key & 0xffff) as usize;
            if key & ROOM != 0 {
                self.queues[number].waits_for_room = false;
                self.flush(number)?;
                continue;
            }
            if result <= 0 {
                bail!("the target closed connection {number} ({result})");
            }
            let queue = &mut self.queues[number];
            queue.consume(result as usize, now, refill, &mut self.tally)?;
            if !queue.waits_for_room {
                self.flush(number)?;
            }
            self.receive(number)?;
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> Result<()> {
        let queue = &mut self.queues[number];
        if !queue.outbox.is_empty() && !queue.flush()? {
            queue.waits_for_room = true;
            self.ring.poll(number as u32, libc::POLLOUT, number as u64 | ROOM)?;
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> Result<()> {
        let queue = &mut self.queues[number];
        let room = queue.buffer.len() - queue.filled;
        let into = queue.buffer.at(queue.filled, room);
        let into = into.expect("the room of the buffer lies inside it");
        // SAFETY: the buffer belongs to the queue, which outlives the ring's requests: both are
        // dropped together, and the ring first.
        unsafe { self.ring.receive(number as u32, into, room, number as u64) }?;
        Ok(())
    }
}
