//! A copy of blocks within the server: from volumes to volumes, a part at a time.
//!
//! A value that a session drives: [`go_on`](Copying::go_on) says what is asked for next, the read of
//! a part or the write of what was read, and is called again with what came back. So one request is
//! below at any time, and in between the session may ask whether the copy may still go on: aborts,
//! reservations and paths need nothing from whoever is below. Units: bytes. Segments are copied in
//! order, each as if as a whole: one that overlaps its own source ends with what the source held, as
//! `memmove` does. Parts begin and end where the destination has multiples of [`COPY_PART`], so that
//! no page and no stripe is written twice; of half of it where source and destination do not lie
//! alike in their pages, since both then need memory. Copies: one in that case, else none. Errors are
//! the session's: it stops driving, and [`segments_done`](Copying::segments_done) says how far it
//! came.

use crate::buffer::{Buffer, PAGE_SIZE};
use crate::limits::COPY_PART;
use crate::memory::Memory;
use crate::request::Operation;
use crate::ticket::VolumeId;
use crate::units::{ByteOffset, Extent};

/// A run of bytes that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// Where they are.
    pub source: (VolumeId, Extent),
    /// Where they go.
    pub destination: (VolumeId, ByteOffset),
}

/// A copy that is being carried out.
#[derive(Debug)]
pub struct Copying {
    segments: Vec<CopySegment>,
    /// Segments that are copied.
    done: usize,
    /// Bytes of the next one that are copied.
    done_of_next: u64,
    durable: bool,
    stage: Stage,
}

/// What is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Read { length: u64 },
    Write { length: u64 },
}

impl Copying {
    /// A copy of these segments; each write is durable before the next part, if told so.
    pub fn new(segments: Vec<CopySegment>, durable: bool) -> Copying {
        let mut copying =
            Copying { segments, done: 0, done_of_next: 0, durable, stage: Stage::Nothing };
        copying.pass_empty();
        copying
    }

    /// What is asked for next, of which volume; `came` is the payload of what was asked for before
    /// and is done, which is given back if it is not needed. `None`: all is copied. The requests'
    /// payloads are reserved and never more than [`COPY_PAGES`](crate::limits::COPY_PAGES) at once:
    /// the caller has as many of a pool, and gives back to the memory alone what comes of one that
    /// is not done.
    pub fn go_on(
        &mut self,
        came: Buffer,
        memory: &mut dyn Memory,
    ) -> Option<(VolumeId, Operation)> {
        match self.stage {
            Stage::Nothing => memory.release(came),
            Stage::Read { length } => return Some(self.write(came, length, memory)),
            Stage::Write { length } => {
                memory.release(came);
                self.done_of_next += length;
                self.pass_empty();
            }
        }
        let segment = self.segments.get(self.done)?;
        let (source, _, length) = self.next_part(segment);
        self.stage = Stage::Read { length };
        let extent = Extent::new(source, length);
        let buffer = Buffer::reserved(length as u32, phase(source));
        Some((segment.source.0, Operation::Read { extent, buffer }))
    }

    /// Gives back the payload of what it asked for and may not be asked any more.
    pub fn give_up(operation: Operation, memory: &mut dyn Memory) {
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = operation {
            memory.release(buffer);
        }
    }

    /// Segments that are copied, all bytes of them.
    pub fn segments_done(&self) -> usize {
        self.done
    }

    /// Bytes that are copied.
    pub fn bytes_done(&self) -> u64 {
        let whole = &self.segments[..self.done];
        whole.iter().map(|segment| segment.source.1.length.0).sum::<u64>() + self.done_of_next
    }

    /// Ends segments of which nothing is left.
    fn pass_empty(&mut self) {
        while let Some(segment) = self.segments.get(self.done)
            && segment.source.1.length.0 == self.done_of_next
        {
            (self.done, self.done_of_next) = (self.done + 1, 0);
        }
        self.stage = Stage::Nothing;
    }

    /// Where the next part of a segment begins, here and there, and its length. One whose source
    /// would be overwritten before it is read is copied from its end.
    fn next_part(&self, segment: &CopySegment) -> (u64, u64, u64) {
        let ((from, source), (to, destination)) = (segment.source, segment.destination);
        let (source, destination, whole) = (source.offset.0, destination.0, source.length.0);
        let part = match phase(source) == phase(destination) {
            true => u64::from(COPY_PART),
            false => u64::from(COPY_PART / 2),
        };
        let left = whole - self.done_of_next;
        if from == to && (source + 1..source + whole).contains(&destination) {
            let beyond = match (destination + left) % part {
                0 => part,
                beyond => beyond,
            };
            let length = left.min(beyond);
            return (source + left - length, destination + left - length, length);
        }
        let at = destination + self.done_of_next;
        (source + self.done_of_next, at, left.min(part - at % part))
    }

    fn write(
        &mut self,
        came: Buffer,
        length: u64,
        memory: &mut dyn Memory,
    ) -> (VolumeId, Operation) {
        let segment = &self.segments[self.done];
        let (_, destination, _) = self.next_part(segment);
        let buffer = match came.phase() == phase(destination) {
            true => came,
            false => {
                let mut moved = Buffer::reserved(came.len(), phase(destination));
                copy_bytes(&came, &mut moved, memory);
                memory.release(came);
                moved
            }
        };
        self.stage = Stage::Write { length };
        let extent = Extent::new(destination, length);
        (segment.destination.0, Operation::Write { extent, buffer, durable: self.durable })
    }
}

/// Puts the bytes of one buffer into another one, as many as the shorter has.
pub fn copy_bytes(from: &Buffer, to: &mut Buffer, memory: &mut dyn Memory) {
    let mut bytes = [0; PAGE_SIZE as usize];
    let length = from.len().min(to.len());
    for at in (0..length).step_by(PAGE_SIZE as usize) {
        let part = &mut bytes[..(length - at).min(PAGE_SIZE) as usize];
        memory.read(from, at, part);
        memory.write(to, at, part);
    }
}

/// Where in its page a byte lies.
fn phase(offset: u64) -> u32 {
    (offset % u64::from(PAGE_SIZE)) as u32
}
