//! Who sends labelled frames: top labels drawn uniformly, at a rate, as fast as it can, or as fast
//! as they come out at the other end.
//!
//! One thread, a packet socket, a batch of frames that are built once and get a label each before
//! they leave in one `sendmmsg`. By a rate it is an open loop: frames leave at fixed times
//! (`load/pace.rs`), and what could not be sent in time stays due. With `--in-flight` it is a closed
//! one: no more frames are under way than that, which is the load that saturates a router and
//! loses nothing.
//!
//! With `--sequence` they are numbered, for the end of a pseudowire that looks at it; with `--plain`
//! they are a customer's, without labels, for its other side.
//!
//! The sink is an interface of the same network namespace whose `rx_packets` says what came out.
//! It is read when a batch may follow, and again every [`LOOK_AGAIN`] until it may: each read takes
//! the line with the counter away from the CPU that counts. Errors: no frame comes out (it is asked for
//! until one does), or none in a whole window. Times: nanoseconds since the start.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::frame::{self, FIRST_LABEL, HEADERS, LABELS_MAX};
use super::sink::Sink;
use crate::load::Pace;
use crate::memory::Area;
use crate::packet::{self, BATCH, Mac, send_all};
use crate::places::Random;
use crate::report::{Opened, Tally, Window};
use crate::system::{self, Counted, Target};

/// How long the router may take to let a frame through.
const DISCOVERY: Duration = Duration::from_secs(30);
/// Between two frames that look whether it does.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long what is under way may be silent before it counts as lost.
const LOST_NS: u64 = 100_000_000;
/// Between two looks at the sink while it is waited for: some frames' worth.
const LOOK_AGAIN: u64 = 20_000;
/// A frame that is due later than that is slept for.
const SLEEP_NS: u64 = 300_000;
/// Times the load that saturates: what a flood wants to be.
const FLOOD: f64 = 2.0;
/// A quarter of all sequence numbers.
const QUARTER: u16 = 1 << 14;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Interface to send from.
    #[arg(long)]
    out: String,
    /// Station to send to.
    #[arg(long, value_parser = packet::parse_mac)]
    to: Mac,
    /// Bytes of a frame, from its first address on, without check sequence.
    #[arg(long, default_value_t = 1078, value_parser = clap::value_parser!(u32).range(60..=9018))]
    size: u32,
    /// Top labels are drawn from so many, from 16 on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(LABELS_MAX)))]
    labels: u32,
    /// Draws other labels.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number frames in their control words, as the other end of one pseudowire does.
    #[arg(long)]
    sequence: bool,
    /// Send frames without labels, as a customer does.
    #[arg(long, conflicts_with_all = ["labels", "sequence"])]
    plain: bool,
    /// Frames a second, or `max`.
    #[arg(long, default_value = "max", value_parser = parse_rate)]
    rate: Rate,
    /// Send so that no more frames than that are between here and the sink, in place of a rate.
    #[arg(long, requires = "sink", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: Option<u32>,
    /// Interface of this namespace at which the frames come out.
    #[arg(long)]
    sink: Option<String>,
    /// Measure, then send twice as much, or what can be sent, and measure that.
    #[arg(long, requires = "in_flight")]
    overload: bool,
    /// Length of the measured window.
    #[arg(long, default_value = "2", value_parser = crate::parse_seconds)]
    seconds: Duration,
    /// Load before the window.
    #[arg(long, default_value = "0.3", value_parser = crate::parse_seconds)]
    warm_up: Duration,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Process whose CPU time is read at both ends of the window.
    #[arg(long)]
    target_pid: Option<u32>,
    /// CPUs of that process.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    target_cpus: Vec<usize>,
    /// Count everything that those CPUs do, softirqs of sleeping threads and neighbours included.
    #[arg(long)]
    target_core: bool,
    /// Print JSON on one line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Labelled,
    /// Labelled, with this number in the next frame.
    Numbered(u16),
    /// A customer's.
    Plain,
}

impl Options {
    fn kind(&self) -> Kind {
        match (self.plain, self.sequence) {
            (true, _) => Kind::Plain,
            (false, true) => Kind::Numbered(1),
            (false, false) => Kind::Labelled,
        }
    }
}

/// Frames a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Max,
    PerSecond(u32),
}

fn parse_rate(text: &str) -> Result<Rate> {
    match text {
        "max" => Ok(Rate::Max),
        number => {
            let rate = number.parse().ok().filter(|rate| *rate > 0);
            rate.map(Rate::PerSecond).with_context(|| format!("{text:?} is no rate, nor `max`"))
        }
    }
}

/// When frames leave.
#[derive(Clone, Debug)]
enum Pacing {
    /// As fast as they can.
    Max,
    /// At fixed times.
    Clock(Pace),
    /// As long as no more than that are under way.
    InFlight(u64),
}

/// Sends for one window, or two, and returns what was seen.
pub(crate) fn run(options: &Options) -> Result<Value> {
    system::pin(options.cpu)?;
    let mut target = options.target_pid.map(|pid| Target::new(pid, &options.target_cpus));
    if let Some(target) = &mut target
        && options.target_core
    {
        target.counted = Counted::Core;
    }
    let before = target.as_ref().map(Target::usage).unwrap_or_default();
    let mut generator = Generator::open(options)?;
    generator.find()?;
    let pacing = match (options.in_flight, options.rate) {
        (Some(most), _) => Pacing::InFlight(most.into()),
        (None, Rate::Max) => Pacing::Max,
        (None, Rate::PerSecond(rate)) => Pacing::Clock(Pace::new(rate, generator.now())),
    };
    let seen = generator.measure(options, pacing, target.as_ref())?;
    let mut value = seen.window.report(options.size as usize, target.as_ref(), before);
    seen.describe(&mut value);
    if options.overload {
        generator.overload(options, &seen, target.as_ref(), &mut value)?;
    }
    Ok(value)
}

/// What frames did so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Were handed to the interface.
    offered: u64,
    /// Were not taken by it, or by what is behind it: a queue was full.
    refused: u64,
    /// Came out at the sink.
    arrived: u64,
    /// Left, and were taken to come out no more.
    lost: u64,
    /// Time spent waiting, since enough were under way or none was due.
    waited_ns: u64,
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            offered: self.offered - before.offered,
            refused: self.refused - before.refused,
            arrived: self.arrived - before.arrived,
            // Some that were given up may have come out later.
            lost: self.lost.saturating_sub(before.lost),
            waited_ns: self.waited_ns - before.waited_ns,
        }
    }
}

/// What a window saw.
struct Seen {
    window: Window,
    counts: Counts,
}

impl Seen {
    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.window.time.as_secs_f64()
    }

    /// Adds what only frames have.
    fn describe(&self, value: &mut Value) {
        let Counts { offered, refused, arrived, lost, waited_ns } = self.counts;
        value["offered"] = json!(offered);
        value["offered_per_second"] = json!(self.per_second(offered));
        value["left"] = json!(offered - refused);
        value["arrived"] = json!(arrived);
        value["lost"] = json!(lost);
        // It never sleeps for long, so its CPU time says nothing of what it could do.
        let waited = waited_ns as f64 / self.window.time.as_nanos().max(1) as f64;
        value["client_busy"] = json!((1.0 - waited).max(0.0));
    }
}

struct Generator {
    socket: OwnedFd,
    /// A batch of frames, each at a multiple of `stride`.
    frames: Area,
    stride: usize,
    size: usize,
    kind: Kind,
    /// The messages point here; it is never touched again.
    _vectors: Box<[libc::iovec; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    labels: u32,
    random: Random,
    sink: Option<Sink>,
    counts: Counts,
    start: Instant,
}

impl Generator {
    fn open(options: &Options) -> Result<Self> {
        let (socket, interface) = packet::sender(&options.out)?;
        let size = options.size as usize;
        ensure!(
            (HEADERS..=interface.mtu + 14).contains(&size),
            "a frame of {size} bytes does not fit {} with its MTU of {}",
            options.out,
            interface.mtu
        );
        let sink = options.sink.as_deref().map(Sink::open).transpose()?;
        let frames = (size, options.labels, options.seed);
        Self::with(socket, sink, [options.to, interface.mac], frames, options.kind())
    }

    /// Frames of this size go to the first station from the second one, by labels that are drawn.
    fn with(
        socket: OwnedFd,
        sink: Option<Sink>,
        [to, from]: [Mac; 2],
        (size, labels, seed): (usize, u32, u64),
        kind: Kind,
    ) -> Result<Self> {
        let stride = size.next_multiple_of(64);
        let mut frames = Area::new(BATCH * stride, true).context("cannot map the frames")?;
        let (mut vectors, mut messages) = packet::messages();
        for at in 0..BATCH {
            let place = at * stride;
            let bytes = frames.bytes_mut(place, place + size);
            match kind {
                Kind::Plain => frame::build_plain(bytes, to, from),
                Kind::Labelled | Kind::Numbered(_) => frame::build(bytes, to, from),
            }
            let base = frames.at(place, size).context("a frame of the area")?;
            vectors[at] = libc::iovec { iov_base: base.cast(), iov_len: size };
            messages[at].msg_hdr.msg_iov = &mut vectors[at];
        }
        Ok(Self {
            socket,
            frames,
            stride,
            size,
            kind,
            _vectors: vectors,
            messages,
            labels,
            random: Random::new(seed),
            sink,
            counts: Counts::default(),
            start: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends so many frames, a batch at most.
    #[inline]
    fn send(&mut self, count: usize, label: impl Fn(&mut Random, u32) -> u32) -> Result<()> {
        for at in 0..count {
            if self.kind == Kind::Plain {
                break;
            }
            let label = label(&mut self.random, self.labels);
            let place = at * self.stride;
            let frame = self.frames.bytes_mut(place, place + self.size);
            frame::set_label(frame, label);
            if let Kind::Numbered(next) = &mut self.kind {
                frame::set_sequence(frame, *next);
                *next = frame::next_sequence(*next);
            }
        }
        // SAFETY: the messages name vectors in a box and these frames of the area, both of which
        // live as long as `self`.
        let refused = unsafe { send_all(&self.socket, &mut self.messages[..count]) };
        self.counts.refused += refused.context("sendmmsg")?;
        self.counts.offered += count as u64;
        Ok(())
    }

    /// Sends a frame now and then until one comes out: then the router is ready. It has the last of
    /// all labels, so that a table that is filled one after the other is full.
    fn find(&mut self) -> Result<()> {
        let end = Instant::now() + DISCOVERY;
        while self.look()?.is_some_and(|arrived| arrived == 0) {
            ensure!(Instant::now() < end, "no frame comes out at the sink");
            if let Kind::Numbered(next) = &mut self.kind {
                // Who numbered frames before may have got anywhere, and what is behind that counts
                // as late: of four numbers a quarter of the circle apart one is ahead of it.
                *next = next.wrapping_add(QUARTER).max(1);
            }
            self.send(1, |_, labels| FIRST_LABEL + labels - 1)?;
            std::thread::sleep(ASK_AGAIN);
        }
        self.settle()
    }

    /// Lets what is under way come out, and counts anew: what came later would make room for more
    /// frames than may be under way.
    fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + DISCOVERY;
        while let Some(seen) = self.look()? {
            ensure!(Instant::now() < end, "frames come out at the sink though none is sent");
            std::thread::sleep(Duration::from_nanos(LOST_NS));
            if self.look()? == Some(seen) {
                break;
            }
        }
        if let Some(sink) = &mut self.sink {
            sink.before += self.counts.arrived;
        }
        self.counts = Counts::default();
        Ok(())
    }

    /// How many have come out so far, if anybody knows.
    fn look(&mut self) -> Result<Option<u64>> {
        let Some(sink) = &self.sink else { return Ok(None) };
        self.counts.arrived = sink.count()?;
        Ok(Some(self.counts.arrived))
    }

    /// Warm-up and window.
    fn measure(
        &mut self,
        options: &Options,
        mut pacing: Pacing,
        target: Option<&Target>,
    ) -> Result<Seen> {
        self.send_for(options.warm_up, &mut pacing)?;
        self.look()?;
        let before = self.counts;
        let mut tally = Tally::new();
        let opened = Opened::now(&mut tally, target);
        self.send_for(options.seconds, &mut pacing)?;
        let mut window = opened.close(&mut tally);
        self.look()?;
        let counts = self.counts.since(before);
        let is_silent = self.sink.is_some() && counts.arrived == 0;
        ensure!(!is_silent || options.seconds.is_zero(), "no frame comes out at the sink any more");
        window.tally.ops = match self.sink {
            Some(_) => counts.arrived,
            None => counts.offered - counts.refused,
        };
        if let Pacing::Clock(pace) = &pacing {
            window.behind = pace.behind(self.now());
        }
        Ok(Seen { window, counts })
    }

    /// Measures under twice the load that was just seen, or as much as it can send.
    fn overload(
        &mut self,
        options: &Options,
        peak: &Seen,
        target: Option<&Target>,
        value: &mut Value,
    ) -> Result<()> {
        let peak = peak.per_second(peak.counts.arrived);
        let wanted = (peak * FLOOD).clamp(1.0, f64::from(u32::MAX)) as u32;
        let pacing = Pacing::Clock(Pace::new(wanted, self.now()));
        let seen = self.measure(options, pacing, target)?;
        let (offered, arrived) =
            (seen.per_second(seen.counts.offered), seen.per_second(seen.counts.arrived));
        value["peak_iops"] = json!(peak);
        value["flood_wanted_per_second"] = json!(wanted);
        value["flood_per_second"] = json!(offered);
        value["flood_by_peak"] = json!(offered / peak);
        value["overload_iops"] = json!(arrived);
        value["overload_share"] = json!(arrived / peak);
        value["forwarded_share"] = json!(arrived / offered);
        Ok(())
    }

    /// Sends for `time`.
    fn send_for(&mut self, time: Duration, pacing: &mut Pacing) -> Result<()> {
        let end = self.now() + time.as_nanos() as u64;
        // When something came out, or what was under way was given up; how much had then.
        let (mut moved, mut seen) = (self.now(), self.counts.arrived);
        loop {
            let now = self.now();
            if now >= end {
                return Ok(());
            }
            match pacing {
                Pacing::Max => self.send_drawn(BATCH)?,
                Pacing::Clock(pace) => {
                    let due = pace.behind(now).min(BATCH as u64);
                    self.send_drawn(due as usize)?;
                    pace.advance_by(due);
                    if due == 0 {
                        self.wait_until(pace.next().min(end), now);
                    }
                }
                Pacing::InFlight(most) => {
                    // Whole batches, so that each makes the router's CPU look up once.
                    let (most, batch) = (*most, BATCH.min(*most as usize));
                    if self.room(most) < batch {
                        self.look()?;
                    }
                    if self.counts.arrived != seen {
                        (moved, seen) = (now, self.counts.arrived);
                    }
                    if self.room(most) >= batch {
                        self.send_drawn(batch)?;
                    } else if now.saturating_sub(moved) > LOST_NS {
                        self.forget();
                        moved = now;
                    } else {
                        self.wait_until((now + LOOK_AGAIN).min(end), now);
                    }
                }
            }
        }
    }

    fn send_drawn(&mut self, count: usize) -> Result<()> {
        self.send(count, draw)
    }

    /// How many frames may follow those that are under way.
    fn room(&self, most: u64) -> usize {
        let Counts { offered, refused, arrived, lost, .. } = self.counts;
        let gone = refused + arrived + lost;
        most.saturating_sub(offered.saturating_sub(gone)) as usize
    }

    /// Waits no more for what is under way.
    fn forget(&mut self) {
        let Counts { offered, refused, arrived, .. } = self.counts;
        self.counts.lost = offered.saturating_sub(refused + arrived);
    }

    fn wait_until(&mut self, time: u64, now: u64) {
        let left = time.saturating_sub(now);
        if left > SLEEP_NS {
            std::thread::sleep(Duration::from_nanos(left - SLEEP_NS / 2));
        }
        while self.now() < time {
            std::hint::spin_loop();
        }
        self.counts.waited_ns += left;
    }
}

/// A label, each as likely as every other.
#[inline]
fn draw(random: &mut Random, labels: u32) -> u32 {
    FIRST_LABEL + random.below(labels.into()) as u32
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// What takes its frames loses them; at its sink so many have come, and no more do.
    fn generator(arrived: u64) -> (Generator, UnixDatagram) {
        let (socket, other) = UnixDatagram::pair().expect("two sockets");
        let path = std::env::temp_dir().join(format!("yardstick-{}-{arrived}", std::process::id()));
        std::fs::write(&path, format!("{arrived}\n")).expect("a file");
        let file = File::open(&path).expect("the same");
        std::fs::remove_file(&path).expect("nobody needs its name");
        let sink = Some(Sink::of(file));
        let generator =
            Generator::with(socket.into(), sink, [[0; 6]; 2], (HEADERS, 1, 0), Kind::Labelled);
        (generator.expect("memory for frames"), other)
    }

    fn options(words: &str) -> Options {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let line = format!("it --out any --to 02:00:00:00:00:01 --sink any {words}");
        <Line as clap::Parser>::parse_from(line.split(' ')).options
    }

    #[test]
    fn what_came_out_before_is_not_counted() {
        let (mut generator, _other) = generator(7);
        generator.find().expect("some have come");
        assert_eq!(generator.look().ok(), Some(Some(0)));
        assert_eq!((generator.counts.offered, generator.counts.lost), (0, 0));
    }

    #[test]
    fn a_window_in_which_nothing_comes_out_is_refused() {
        let (mut generator, _other) = generator(0);
        let options = |seconds| options(&format!("--warm-up 0 --seconds {seconds}"));
        for pacing in [Pacing::Max, Pacing::InFlight(1)] {
            let seen = generator.measure(&options("0.01"), pacing.clone(), None);
            let error = seen.err().expect("nothing came out").to_string();
            assert_eq!(error, "no frame comes out at the sink any more");
            assert!(generator.measure(&options("0"), pacing, None).is_ok());
        }
    }

    #[test]
    fn labels_are_drawn_uniformly_from_16_on_and_the_same_ones_for_a_seed() {
        let drawn = |seed: u64, labels: u32| {
            let mut random = Random::new(seed);
            (0..100_000).map(|_| draw(&mut random, labels)).collect::<Vec<_>>()
        };
        let mut counts = [0_u32; 10];
        for label in drawn(1, 10) {
            counts[(label - 16) as usize] += 1;
        }
        // The deviation of each count is 95: five of them.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 475), "{counts:?}");
        let many = drawn(1, 100_000);
        assert!(many.iter().all(|label| (16..100_016).contains(label)));
        let different: std::collections::BTreeSet<u32> = many.iter().copied().collect();
        // Of so many draws 1 - 1/e are the first of their label.
        assert!(different.len().abs_diff(63_212) < 1_000, "{}", different.len());
        assert_eq!(many, drawn(1, 100_000));
        assert_ne!(many, drawn(2, 100_000));
        assert!(drawn(1, LABELS_MAX).iter().all(|label| *label < 1 << 20));
    }

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!(parse_rate("max").ok(), Some(Rate::Max));
        assert_eq!(parse_rate("337000").ok(), Some(Rate::PerSecond(337_000)));
        for wrong in ["", "0", "-1", "fast"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_clock_has_due_is_sent_once_and_what_was_missed_stays_due() {
        let mut pace = Pace::new(1_000_000, 0);
        let mut take = |now: u64| {
            let due = pace.behind(now).min(BATCH as u64);
            pace.advance_by(due);
            due
        };
        assert_eq!([take(0), take(0), take(999)], [1, 0, 0]);
        assert_eq!(take(10_999), 10);
        assert_eq!([take(100_000), take(100_000), take(100_000)], [64, 26, 0]);
    }
}
