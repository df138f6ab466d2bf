//! What every queue has under its protocol: its place on the disk, the slots of its commands, and
//! the bytes both ways.
//!
//! In: what is to be done ([`Work`]). Out: where the next command goes ([`Flow::next`]), and what
//! has ended, counted ([`Flow::finish`]). A slot is a command's number in the queue, below the
//! depth. Times: nanoseconds since the run's start. Errors: the memory cannot be mapped, or an
//! answer names a slot that has no command.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::rc::Rc;

use anyhow::{Result, ensure};

use super::Shape;
use crate::inbox::Inbox;
use crate::memory::Area;
use crate::outbox::Outbox;
use crate::places::Places;
use crate::report::Tally;
use crate::zero_copy::Send;

/// What a queue does.
pub(crate) struct Work {
    /// Of a hundred commands, how many read; the others write.
    reads: u8,
    /// Bytes of a command's data.
    pub(crate) size: usize,
    /// Commands outstanding.
    pub(crate) depth: u16,
    /// Bytes of a block.
    pub(crate) block: u64,
    /// First block of the queue's range.
    first: u64,
    /// The range, in commands.
    places: Places,
    /// Disks of this kind, whose turn is next, and whether each place is one of each disk.
    units: u64,
    turn: u64,
    is_fill: bool,
    /// The data of all writes, and how they leave.
    pub(crate) pattern: Rc<Area>,
    send: Send,
}

impl Work {
    /// That of every queue on `units` disks of `blocks` of `block` bytes: each has a range of its
    /// own on all of them.
    pub(crate) fn share(shape: &Shape, units: u64, blocks: u64, block: u64) -> Result<Vec<Self>> {
        let each = shape.bs as u64 / block;
        ensure!(
            each > 0 && (shape.bs as u64).is_multiple_of(block),
            "{} bytes are no whole blocks of {block}",
            shape.bs,
        );
        let count = u64::from(shape.connections);
        let share = blocks / count / each;
        ensure!(share > 0, "the disk is too small for this load");
        let pattern = Rc::new(Area::new(shape.bs.next_multiple_of(4096), true)?);
        let is_fill = shape.measure.fill;
        let places = if is_fill { share * units } else { share };
        let work = |number: u64| Self {
            reads: shape.measure.rw.reads,
            size: shape.bs,
            depth: shape.iodepth,
            block,
            first: number * share * each,
            places: Places::new(places, &shape.measure, number),
            units,
            turn: 0,
            is_fill,
            pattern: Rc::clone(&pattern),
            send: shape.send,
        };
        Ok((0..count).map(work).collect())
    }

    /// Blocks of a command's data.
    pub(crate) fn blocks(&self) -> u64 {
        self.size as u64 / self.block
    }

    /// Where `len` bytes of the data of a write lie, from `at`; the caller has seen that they are
    /// inside.
    #[inline]
    pub(crate) fn data(&self, at: usize, len: usize) -> *mut u8 {
        self.pattern.at(at, len).expect("the pattern is as long as a write")
    }

    /// The next command's disk and its place there: the disks in turn, or to fill them each place
    /// of each.
    #[inline]
    fn place(&mut self) -> Option<(u64, u64)> {
        let place = self.places.next()?;
        if self.is_fill {
            return Some((place % self.units, place / self.units));
        }
        let unit = self.turn;
        self.turn += 1;
        if self.turn == self.units {
            self.turn = 0;
        }
        Some((unit, place))
    }

    /// Whether the next command writes.
    #[inline]
    fn draws_write(&mut self) -> bool {
        match self.reads {
            0 => true,
            100 => false,
            reads => self.places.draw(100) >= u64::from(reads),
        }
    }
}

/// The next command.
pub(crate) struct Next {
    pub(crate) write: bool,
    /// Which of the disks it is for.
    pub(crate) unit: usize,
    /// Its first block.
    pub(crate) block: u64,
}

/// The state of a queue that is the same for all protocols.
pub(crate) struct Flow {
    pub(crate) socket: TcpStream,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) waits_for_room: bool,
    pub(crate) outstanding: u16,
    pub(crate) work: Work,
    /// When the command of each slot began; [`NONE`] of a free one.
    started: Vec<u64>,
    /// Whether it writes.
    writes: Vec<bool>,
    free: Vec<u16>,
}

/// The beginning of a command that is not there.
const NONE: u64 = u64::MAX;

impl Flow {
    pub(crate) fn new(socket: TcpStream, work: Work, buffer: usize) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let mut outbox = Outbox::new()?;
        if work.send == Send::ZeroCopy {
            // The pattern is never written again.
            outbox.send_without_copies(socket.as_fd())?;
        }
        Ok(Self {
            socket,
            inbox: Inbox::new(buffer)?,
            outbox,
            waits_for_room: false,
            outstanding: 0,
            started: vec![NONE; usize::from(work.depth)],
            writes: vec![false; usize::from(work.depth)],
            free: (0..work.depth).rev().collect(),
            work,
        })
    }

    /// Sends what is queued; false if the socket is full.
    pub(crate) fn flush(&mut self) -> std::io::Result<bool> {
        self.outbox.flush(self.socket.as_fd())
    }

    /// A slot without a command; the caller fills it, or gives it back by [`Flow::release`].
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Gives a slot back that has no command.
    #[inline]
    pub(crate) fn release(&mut self, slot: u16) {
        self.free.push(slot);
    }

    /// Draws the next command for a slot, whose latency counts from `since`; none if the disk has
    /// been filled.
    #[inline]
    pub(crate) fn next(&mut self, slot: u16, since: u64) -> Option<Next> {
        let (unit, place) = self.work.place()?;
        let write = self.work.draws_write();
        self.outstanding += 1;
        self.started[usize::from(slot)] = since;
        self.writes[usize::from(slot)] = write;
        let block = self.work.first + place * self.work.blocks();
        Some(Next { write, unit: unit as usize, block })
    }

    /// Counts the end of a slot's command.
    #[inline]
    pub(crate) fn finish(&mut self, slot: u16, now: u64, tally: &mut Tally) -> Result<()> {
        let started = self.started.get_mut(usize::from(slot));
        let since = started.map_or(NONE, |started| std::mem::replace(started, NONE));
        ensure!(since != NONE, "an answer to command {slot}, which is not outstanding");
        self.outstanding -= 1;
        tally.record(now.saturating_sub(since), self.writes[usize::from(slot)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    fn works(words: &[&str], blocks: u64) -> Result<Vec<Work>> {
        let line = Line::parse_from(std::iter::once(&"load").chain(words));
        Work::share(&line.shape, 3, blocks, 512)
    }

    #[test]
    fn each_queue_has_a_range_of_its_own_and_none_reaches_beyond_the_disk() {
        let works = works(&["--bs=4k", "--connections=3"], 100).expect("room for it");
        let firsts: Vec<u64> = works.iter().map(|work| work.first).collect();
        assert_eq!(firsts, [0, 32, 64]);
        assert_eq!(works[0].blocks(), 8);
    }

    #[test]
    fn disks_have_their_turn_and_a_fill_leaves_out_no_place_of_any() {
        let of = |words: &[&str]| {
            let mut work = works(words, 32).expect("room for it").remove(0);
            std::iter::from_fn(move || work.place()).take(15).collect::<Vec<_>>()
        };
        let mixed: Vec<u64> = of(&["--rw=randread"]).into_iter().map(|(unit, _)| unit).collect();
        assert_eq!(mixed, [0, 1, 2].repeat(5));
        let mut filled = of(&["--rw=randwrite", "--fill"]);
        filled.sort_unstable();
        let all = (0..3).flat_map(|unit| (0..4).map(move |place| (unit, place)));
        assert!(filled.into_iter().eq(all));
    }

    #[test]
    fn torn_blocks_and_disks_that_are_too_small_are_refused() {
        assert!(works(&["--bs=700"], 100).is_err());
        assert!(works(&["--bs=4k", "--connections=13"], 100).is_err());
    }

    #[test]
    fn a_slot_ends_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a socket");
        let work = works(&["--iodepth=2"], 1000).expect("room for it").remove(0);
        let (mut flow, mut tally) = (Flow::new(socket, work, 4096).expect("memory"), Tally::new());
        let slot = flow.take_slot().expect("one of two");
        assert!(flow.next(slot, 5).is_some());
        assert!(flow.finish(slot, 7, &mut tally).is_ok() && flow.outstanding == 0);
        assert!(flow.finish(slot, 7, &mut tally).is_err());
        assert!(flow.finish(2, 7, &mut tally).is_err(), "beyond the depth");
    }
}
