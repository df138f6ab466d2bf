//! A load over TCP: keeps queues full and counts, at as little CPU as their protocol allows.
//!
//! One thread, the same ring and outbox as the bare responder: one receive takes what there is, all
//! new commands of a turn leave in one `sendmsg`. With a rate it is an open loop instead: operations
//! leave at fixed times (`load/pace.rs`), woken by a timeout on the ring. After a warm-up a window
//! opens; operations, bytes and latencies count inside it, and so do this thread's CPU and that of
//! the target process, read from `/proc` at both ends. What a command looks like is for the
//! [`Queue`] of a [`Protocol`] (`nvme/`, `iscsi/`); what queues have in common is in `load/flow.rs`,
//! idle connections in `load/company.rs`.

mod company;
mod flow;
mod pace;
mod status;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::report::{Opened, Tally, Window, quiet};
use crate::ring::Ring;
use crate::system::{self, Target};
use crate::zero_copy::{Counts, Send};
use crate::{Measure, Pattern};
pub(crate) use company::{Idle, KeepAlive};
pub(crate) use flow::{Flow, Work};
pub(crate) use pace::Pace;
pub(crate) use status::{Status, Told};

/// How long commands still outstanding at the end may take.
const DRAIN: Duration = Duration::from_secs(2);
/// How long filling a disk may take.
const FILL: Duration = Duration::from_secs(300);
/// How long a client waits for a completion before it gives the target up.
const SILENCE: Duration = Duration::from_secs(20);
/// The longest wait on the ring.
const WAIT: Duration = Duration::from_secs(1);

/// What a load is, whatever it speaks.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shape {
    /// Size of a command's data.
    #[arg(long, default_value = "4k", value_parser = crate::parse_size)]
    pub(crate) bs: usize,
    /// Commands outstanding on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) iodepth: u16,
    /// Connections that put load on the target, each a session of its own or, of NVMe/TCP, an I/O
    /// queue; 0 puts none on it.
    #[arg(long, visible_alias = "numjobs", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) connections: u16,
    /// An open loop of so many operations a second on all connections together, in place of full
    /// queues. Each leaves at its own time, and its latency counts from then.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// For so long, before anything else, 4 KiB writes at random places.
    #[arg(long, default_value = "0", value_parser = crate::parse_seconds)]
    pub(crate) before_write_seconds: Duration,
    /// How the data of writes leave: copied into the socket, or taken by the kernel from where they lie.
    #[arg(long, value_enum, default_value = "copied")]
    pub(crate) send: Send,
    /// Receive buffer of a connection.
    #[arg(long, default_value = "512KiB", value_parser = crate::parse_size)]
    pub(crate) buffer: usize,
    /// Idle connections beside the load.
    #[arg(long, default_value_t = 0)]
    pub(crate) idle_connections: usize,
    /// Connections that ask for data and never receive them.
    #[arg(long, default_value_t = 0)]
    pub(crate) stuck_connections: usize,
    #[command(flatten)]
    pub(crate) told: Told,
    #[command(flatten)]
    pub(crate) measure: Measure,
}

/// Who is asked, in the words of a protocol.
pub(crate) trait Protocol {
    type Queue: Queue;
    /// A connection that is stuck, as long as it is kept.
    type Stuck;

    /// Connects the queues of a load.
    fn queues(&self, shape: &Shape) -> Result<Vec<Self::Queue>>;

    /// Connects `count` connections that do nothing but be there.
    fn idle(&self, count: usize) -> Result<Idle>;

    /// Connects, asks for more than it will ever take, and receives nothing.
    fn stuck(&self, number: usize) -> Result<Self::Stuck>;
}

/// A connection that works.
pub(crate) trait Queue {
    fn flow(&self) -> &Flow;
    fn flow_mut(&mut self) -> &mut Flow;

    /// Queues one command, whose latency counts from `since`; false if none may be outstanding
    /// beside those that are, or the disk has been filled.
    fn issue(&mut self, since: u64) -> bool;

    /// Where the next bytes are to go.
    fn room(&mut self) -> Room<'_> {
        let (into, len) = self.flow().inbox.room(usize::MAX);
        Room::One(into, len)
    }

    /// So many bytes have been written there.
    fn fill(&mut self, got: usize) {
        self.flow_mut().inbox.fill(got);
    }

    /// Handles new bytes in the inbox; `refill` starts a new command for each that has ended.
    fn consume(&mut self, now: u64, refill: bool, tally: &mut Tally) -> Result<()>;
}

/// Where bytes that are received go, until they have come.
pub(crate) enum Room<'a> {
    One(*mut u8, usize),
    /// What the first has no room for goes to the second.
    Two(&'a [libc::iovec; 2]),
}

/// Connects, measures one window, and returns what it saw.
pub(crate) fn run<P: Protocol>(protocol: &P, shape: &Shape) -> Result<Value> {
    system::pin(shape.measure.cpu)?;
    system::raise_descriptor_limit();
    write_before(protocol, shape)?;
    let target = shape.measure.target();
    let before = target.as_ref().map(Target::usage).unwrap_or_default();
    let idle = protocol.idle(shape.idle_connections)?;
    let stuck = (0..shape.stuck_connections)
        .map(|number| protocol.stuck(number))
        .collect::<Result<Vec<_>>>()?;
    let window = if shape.connections == 0 {
        quiet(&shape.measure, target.as_ref(), Some(idle.answered()))
    } else {
        Load::new(protocol.queues(shape)?)?.run(shape, target.as_ref())?
    };
    drop(stuck);
    let lost = idle.finish();
    let mut value = window.report(shape.bs, target.as_ref(), before);
    value["open_loop"] = json!(shape.rate);
    value["idle_connections"] = json!(shape.idle_connections);
    value["idle_sessions_lost"] = json!(lost);
    Ok(value)
}

/// Carries out `--before-write-seconds`, on a connection of its own.
fn write_before<P: Protocol>(protocol: &P, shape: &Shape) -> Result<()> {
    if shape.before_write_seconds.is_zero() {
        return Ok(());
    }
    let told = Told::default();
    let mut writes =
        Shape { bs: 4096, iodepth: 32, connections: 1, rate: None, told, ..shape.clone() };
    writes.measure = Measure {
        rw: Pattern::RANDWRITE,
        fill: false,
        warm_up: Duration::ZERO,
        seconds: shape.before_write_seconds,
        ..writes.measure
    };
    Load::new(protocol.queues(&writes)?)?.run(&writes, None)?;
    Ok(())
}

/// The queues and their ring.
struct Load<Q> {
    ring: Ring,
    queues: Vec<Q>,
    tally: Tally,
    start: Instant,
}

/// Keys of completions: the queue's number, and this bit for a poll for room.
const ROOM: u64 = 1 << 32;
/// Key of the alarm.
const ALARM: u64 = 1 << 33;

impl<Q: Queue> Load<Q> {
    fn new(queues: Vec<Q>) -> Result<Self> {
        let mut ring = Ring::new(Duration::ZERO).context("cannot set up an io_uring")?;
        for (number, queue) in queues.iter().enumerate() {
            ring.register(number as u32, queue.flow().socket.as_raw_fd())?;
        }
        Ok(Self { ring, queues, tally: Tally::new(), start: Instant::now() })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(mut self, shape: &Shape, target: Option<&Target>) -> Result<Window> {
        self.start = Instant::now();
        let now = self.now();
        let mut pace = shape.rate.map(|rate| Pace::new(rate, now));
        for number in 0..self.queues.len() {
            if pace.is_none() {
                while self.queues[number].issue(now) {}
                self.flush(number)?;
            }
            self.receive(number)?;
        }
        if let Some(mut status) = shape.told.begin()? {
            let opened = Opened::now(&mut self.tally, target);
            while !status.is_over() {
                self.load_until(self.start.elapsed() + status.every(), &mut pace)?;
                status.tell(&self.tally, self.without_copies())?;
            }
            return Ok(opened.close(&mut self.tally));
        }
        let warm_up = if shape.measure.fill { FILL } else { shape.measure.warm_up };
        self.load_until(warm_up, &mut pace)?;
        let opened = Opened::now(&mut self.tally, target);
        self.load_until(self.start.elapsed() + shape.measure.seconds, &mut pace)?;
        let mut window = opened.close(&mut self.tally);
        window.behind = pace.map_or(0, |pace| pace.behind(self.now()));
        window.without_copies = self.without_copies();
        self.until(self.start.elapsed() + DRAIN, false)?;
        Ok(window)
    }

    /// What became of all sends without a copy so far, if there are any.
    fn without_copies(&self) -> Option<Counts> {
        let mut each = self.queues.iter().filter_map(|queue| queue.flow().outbox.without_copies());
        let mut all = each.next()?;
        each.for_each(|one| all += one);
        Some(all)
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
            let is_idle = self.queues.iter().all(|queue| queue.flow().outstanding == 0);
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
            if !self.queues[number].flow().waits_for_room {
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
            if self.queues.iter().all(|queue| queue.flow().outstanding == 0) {
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
                self.queues[number].flow_mut().waits_for_room = false;
                self.flush(number)?;
                continue;
            }
            if result <= 0 {
                bail!("the target closed connection {number} ({result})");
            }
            let queue = &mut self.queues[number];
            queue.fill(result as usize);
            queue.consume(now, refill, &mut self.tally)?;
            if !queue.flow().waits_for_room {
                self.flush(number)?;
            }
            self.receive(number)?;
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> Result<()> {
        let flow = self.queues[number].flow_mut();
        if !flow.outbox.is_empty() && !flow.flush()? {
            flow.waits_for_room = true;
            self.ring.poll(number as u32, libc::POLLOUT, number as u64 | ROOM)?;
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> Result<()> {
        let (slot, key) = (number as u32, number as u64);
        match self.queues[number].room() {
            // SAFETY: the room belongs to the queue, which outlives the ring's requests: both are
            // dropped together, and the ring first.
            Room::One(into, len) => unsafe { self.ring.receive(slot, into, len, key) }?,
            // SAFETY: as above; so does the list of it, which the queue keeps in a box.
            Room::Two(into) => unsafe { self.ring.receive_in_two(slot, into, key) }?,
        }
        Ok(())
    }
}
