//! A relay: what comes to one of two interfaces leaves by the other one, a fixed time later.
//!
//! ```text
//!   one   --ring-->  [ due at arrival + delay | frame ] ...  --send-->  other
//!   other --ring-->  [ ...                            ] ...  --send-->  one
//! ```
//! It stands for a long line where the kernel has no `tc netem`. A frame's arrival is the kernel's
//! own time of it, so that what this thread is late does not add up; it is sent as soon as its time
//! has come, in order, as it came, with its tag. Frames wait in memory up to a bound of bytes each
//! way. Dropped, and counted: what finds no room, what the ring had none for, what is longer than
//! the MTU, what has no checksum, since it never was on a wire, and what the other side has no room
//! for. One that leaves much later than its time is counted, too. Units: bytes, `Duration`. Errors: an
//! interface that is not there or goes down. It runs on the calling thread, ahead of all ordinary ones
//! if the system lets it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use contract::VlanTag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::ring::{Geometry, Ring};
use super::{interface, packet};

/// Between which interfaces, and how much later.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    pub interfaces: [String; 2],
    pub delay: Duration,
    /// Bytes of frames that may wait each way.
    pub bytes_max: usize,
}

/// What a relay has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    pub sent: u64,
    pub dropped: u64,
    /// Of those that were sent, how many left later than a tenth of the delay beyond their time.
    pub late: u64,
}

/// Frames taken from a ring before the other one has its turn.
const TURN: u32 = 64;
/// How often is told what was done, at most.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// No frame lies in a ring for so long.
const AGE_MAX: Duration = Duration::from_secs(10);
/// What a frame may be late at least before it counts so.
const LATE_MIN: Duration = Duration::from_micros(200);

/// Relays until something is wrong with an interface; what it has done is told first once it takes
/// frames, and then now and again.
pub fn relay(options: &RelayOptions, mut tell: impl FnMut(&RelayCounts)) -> io::Result<Infallible> {
    let [one, other] = &options.interfaces;
    let mut sides = [Side::open(one, options)?, Side::open(other, options)?];
    // Without the right to it frames may be late, which is counted.
    let _ = crate::process::run_first();
    let late_from = options.delay + (options.delay / 10).max(LATE_MIN);
    let mut counts = RelayCounts::default();
    let (mut told, mut told_at) = (counts, Instant::now());
    tell(&counts);
    loop {
        for at in 0..2 {
            let [one, other] = &mut sides;
            let (from, to) = if at == 0 { (one, other) } else { (other, one) };
            counts.dropped += from.take(options.delay, &mut to.waiting);
        }
        for side in &mut sides {
            side.send_due(late_from - options.delay, &mut counts)?;
        }
        if counts != told && told_at.elapsed() >= TOLD_EVERY {
            tell(&counts);
            (told, told_at) = (counts, Instant::now());
        }
        sleep(&sides, (counts != told).then_some(TOLD_EVERY))?;
    }
}

/// One of the two interfaces, with the frames that are to leave by it.
struct Side {
    name: String,
    /// In front of the socket, so that its memory goes first.
    ring: Ring,
    socket: OwnedFd,
    waiting: Waiting,
    is_full: bool,
}

impl Side {
    fn open(name: &str, options: &RelayOptions) -> io::Result<Side> {
        let tell = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let found = interface::find(name).map_err(tell)?;
        let interface = found.ok_or_else(interface::missing).map_err(tell)?;
        let (socket, ring) =
            packet::open_whole(&interface, Geometry::for_relay(interface.mtu)).map_err(tell)?;
        let waiting = Waiting { bytes_max: options.bytes_max, ..Waiting::default() };
        Ok(Side { name: name.to_owned(), ring, socket, waiting, is_full: false })
    }

    /// Takes what has come, for the other side; how much was dropped.
    fn take(&mut self, delay: Duration, other: &mut Waiting) -> u64 {
        let mut dropped = 0;
        // What came before this moment did so by the kernel's clock, which may have been set since.
        let (now, clock) = (Instant::now(), now_ns());
        self.ring.receive_timed(TURN, |came_ns, slot| {
            if slot.is_unsummed || slot.length as usize != slot.bytes.len() {
                dropped += 1;
                return;
            }
            let due = due(now, clock, came_ns, delay);
            dropped += u64::from(!other.push(due, slot.tag, slot.bytes));
        });
        if std::mem::take(&mut self.ring.is_losing) {
            dropped += packet::take_drops(&self.socket);
        }
        dropped
    }

    /// Sends what is due, as much as the kernel takes.
    fn send_due(&mut self, late_after: Duration, counts: &mut RelayCounts) -> io::Result<()> {
        self.is_full = false;
        while let Some((due, frame)) = self.waiting.front() {
            let Some(over) = Instant::now().checked_duration_since(due) else { return Ok(()) };
            match send(&self.socket, frame, SendFlags::DONTWAIT) {
                Ok(_) => {
                    counts.sent += 1;
                    counts.late += u64::from(over > late_after);
                }
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    return Ok(());
                }
                // What is behind the interface has no room, or it is narrower than the way in: as on a
                // wire, the frame is lost. To wait for room would be to ask again and again.
                Err(Errno::NOBUFS | Errno::MSGSIZE) => counts.dropped += 1,
                Err(error) => {
                    let error = io::Error::from(error);
                    return Err(io::Error::new(error.kind(), format!("{}: {error}", self.name)));
                }
            }
            self.waiting.pop();
        }
        Ok(())
    }
}

/// When a frame is to leave that came at `came_ns` by the clock, which says `clock` now: in the past, if
/// it lay in the ring for longer than the delay. A clock that was set meanwhile is not believed.
fn due(now: Instant, clock: u64, came_ns: u64, delay: Duration) -> Instant {
    let age = Duration::from_nanos(clock.saturating_sub(came_ns));
    let age = if age < AGE_MAX { age } else { Duration::ZERO };
    (now + delay).checked_sub(age).unwrap_or(now)
}

/// Sleeps until a frame comes, one is due, there is room to send, or for so long.
fn sleep(sides: &[Side; 2], longest: Option<Duration>) -> io::Result<()> {
    if sides.iter().any(|side| side.ring.has_frame()) {
        return Ok(());
    }
    let now = Instant::now();
    let due = sides.iter().filter(|side| !side.is_full).filter_map(|side| side.waiting.front());
    let due = due.map(|(due, _)| due.saturating_duration_since(now));
    let limit = due.chain(longest).min();
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let flags = |side: &Side| match side.is_full {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let mut watched = sides.each_ref().map(|side| PollFd::new(&side.socket, flags(side)));
    match poll(&mut watched, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let failed = watched.iter().position(|one| one.revents().contains(PollFlags::ERR));
    let Some(side) = failed.map(|at| &sides[at]) else { return Ok(()) };
    let error = io::Error::from_raw_os_error(crate::sockets::error_of(side.socket.as_raw_fd()));
    Err(io::Error::new(error.kind(), format!("{}: {error}", side.name)))
}

/// Nanoseconds since 1970, as the kernel stamps frames.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// Frames that wait for their time, in the order in which they came.
#[derive(Default)]
struct Waiting {
    frames: VecDeque<(Instant, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Waiting {
    /// Takes a frame with the tag that was taken off it; whether there was room.
    fn push(&mut self, due: Instant, tag: Option<VlanTag>, bytes: &[u8]) -> bool {
        let frame: Box<[u8]> = match tag {
            None => bytes.into(),
            Some(VlanTag { ether_type, control }) => {
                let tag = [ether_type.0.to_be_bytes(), control.0.to_be_bytes()].concat();
                let (stations, rest) = bytes.split_at(STATIONS.min(bytes.len()));
                [stations, &tag, rest].concat().into()
            }
        };
        if self.bytes + frame.len() > self.bytes_max {
            return false;
        }
        self.bytes += frame.len();
        // One that came later leaves later, whatever the kernel's clock said in between.
        let due = self.frames.back().map_or(due, |(last, _)| due.max(*last));
        self.frames.push_back((due, frame));
        true
    }

    fn front(&self) -> Option<(Instant, &[u8])> {
        self.frames.front().map(|(due, frame)| (*due, &**frame))
    }

    fn pop(&mut self) {
        if let Some((_, frame)) = self.frames.pop_front() {
            self.bytes -= frame.len();
        }
    }
}

/// Bytes of both stations' addresses, behind which a tag stands.
const STATIONS: usize = 12;

#[cfg(test)]
mod tests {
    use contract::{EtherType, TagControl};

    use super::*;

    fn waiting(bytes_max: usize) -> Waiting {
        Waiting { bytes_max, ..Waiting::default() }
    }

    #[test]
    fn frames_leave_in_the_order_in_which_they_came() {
        let (now, ms) = (Instant::now(), Duration::from_millis(1));
        let mut waiting = waiting(100);
        assert!(waiting.push(now + ms * 2, None, b"one"));
        // The kernel's clock was set back between the two.
        assert!(waiting.push(now + ms, None, b"other"));
        assert_eq!(waiting.front(), Some((now + ms * 2, &b"one"[..])));
        waiting.pop();
        assert_eq!(waiting.front(), Some((now + ms * 2, &b"other"[..])));
    }

    #[test]
    fn a_frame_that_lay_in_the_ring_too_long_was_due_before() {
        let (now, ms) = (Instant::now(), Duration::from_millis(1));
        let clock = 1_000_000_000_000;
        let due_of = |age: Duration| due(now, clock, clock - age.as_nanos() as u64, ms * 20);
        assert_eq!(due_of(ms * 5), now + ms * 15);
        assert_eq!(due_of(ms * 300), now - ms * 280, "so late it is already");
        assert_eq!(due(now, clock, clock + 5, ms), now + ms, "the clock was set back");
        assert_eq!(due(now, clock, 0, ms), now + ms, "or far ahead");
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_room_comes_back() {
        let now = Instant::now();
        let mut waiting = waiting(10);
        assert!(waiting.push(now, None, &[1; 6]) && !waiting.push(now, None, &[2; 5]));
        assert!(waiting.push(now, None, &[3; 4]) && !waiting.push(now, None, &[4]));
        waiting.pop();
        assert!(waiting.push(now, None, &[5; 6]));
        let frames: Vec<u8> = waiting.frames.iter().map(|(_, frame)| frame[0]).collect();
        assert_eq!((frames, waiting.bytes), (vec![3, 5], 10));
    }

    #[test]
    fn a_tag_is_put_back_where_it_was() {
        let mut waiting = waiting(100);
        let tag = VlanTag { ether_type: EtherType::VLAN, control: TagControl(0xa005) };
        assert!(waiting.push(Instant::now(), Some(tag), b"sixsixsixsix\x88\xa2data"));
        let (_, frame) = waiting.front().unwrap();
        assert_eq!(frame, b"sixsixsixsix\x81\x00\xa0\x05\x88\xa2data");
    }
}
