//! Links: how raw Ethernet frames come in and go out.
//!
//! A *link* is an interface, or one VLAN of it, from which a shard takes frames of one EtherType.
//!
//! **Receiving.** The driver lends each frame for the length of one call, straight from its ring: whoever needs the bytes longer copies
//! them, so that the ring slot is given back at once. A frame begins with its destination address; the tag that the kernel took off a frame (it does, without a VLAN
//! device) is told beside it. Many frames are shown in a turn, and the turn ends with one `settle`.
//!
//! **Sending.** A machine hands out a [`FrameBatch`] at `settle`: headers in the batch's own bytes, data where they lie, so one
//! `sendmmsg` with iovecs sends it without a copy. A frame that the interface does not take, or whose link is down, may be dropped (Ethernet promises nothing) and is counted by the driver; the
//! batch comes back, whole, once none of its bytes is looked at any more. More than one may be out.

use core::fmt;

use block::{Buffer, Memory, ShardId};

/// A link of the process, named by whoever configured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// What is known about a link that is up; told again when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// The interface's own address.
    pub mac: [u8; 6],
    /// Bytes behind the Ethernet header that a frame may have.
    pub mtu: u32,
    /// The VLAN whose frames the link takes and sends; `None` takes frames without a tag.
    pub vlan: Option<u16>,
    /// Frames of this MTU that the receive ring holds.
    pub ring_frames: u32,
}

/// An instruction of a classic BPF program, as the kernel has it (`struct sock_filter`): which frames a link takes, or which shard takes a frame.
///
/// Programs look at frames from their destination address on, without a tag, which the kernel has taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Which shards take the frames of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One of them, those frames that the program takes (it returns how many bytes; 0 is none).
    One(ShardId, Vec<Instruction>),
    /// Each frame that the first program takes goes to one shard: the one whose number the second returns, modulo the shards.
    Steered(Vec<Instruction>, Vec<Instruction>),
    /// Each shard takes what its own program takes.
    Each(Vec<Vec<Instruction>>),
}

/// A received frame, lent for one call.
#[derive(Clone, Copy, Debug)]
pub struct InFrame<'a> {
    /// Where it came from.
    pub link: LinkId,
    /// The 802.1Q tag control information that the kernel took off, if it did.
    pub tag: Option<u16>,
    /// The frame from its destination address on, without check sequence.
    pub bytes: &'a [u8],
}

/// Frames to be sent, with what they carry. Machines keep a few and use their memory over and over.
#[derive(Debug, Default)]
pub struct FrameBatch {
    /// The bytes of headers and small payloads.
    pub head: Vec<u8>,
    /// Payloads, each with the machine's own mark. They come back with the batch.
    pub buffers: Vec<(Buffer, u32)>,
    /// The frames, in order.
    pub frames: Vec<OutFrame>,
}

/// A frame of a [`FrameBatch`]: `head_length` bytes of its `head`, then `data_length` bytes of one of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutFrame {
    /// Where to send it.
    pub link: LinkId,
    /// Where in the batch's `head` it begins.
    pub head: u32,
    /// Bytes from there, at least an Ethernet header.
    pub head_length: u32,
    /// The buffer whose bytes follow, if `data_length` is not 0.
    pub buffer: u32,
    /// Where in the buffer they begin.
    pub data_at: u32,
    /// How many they are.
    pub data_length: u32,
}

impl OutFrame {
    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> u32 {
        self.head_length + self.data_length
    }

    /// Whether it has no bytes, which no frame has.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FrameBatch {
    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Appends a frame of these bytes.
    #[inline]
    pub fn push(&mut self, link: LinkId, bytes: &[u8]) {
        let (head, head_length) = (self.head.len() as u32, bytes.len() as u32);
        self.head.extend_from_slice(bytes);
        self.frames.push(OutFrame {
            link,
            head,
            head_length,
            buffer: 0,
            data_at: 0,
            data_length: 0,
        });
    }

    /// Appends a frame of these bytes and `data_length` bytes of buffer number `buffer` from `data_at` on.
    #[inline]
    pub fn push_with_data(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        buffer: u32,
        data_at: u32,
        data_length: u32,
    ) {
        self.push(link, bytes);
        if let Some(frame) = self.frames.last_mut() {
            (frame.buffer, frame.data_at, frame.data_length) = (buffer, data_at, data_length);
        }
    }

    /// Appends zeros to the last frame's own bytes, until it has `length`; one that is longer, or has data, stays as it is.
    #[inline]
    pub fn pad(&mut self, length: u32) {
        let Some(frame) = self.frames.last_mut() else { return };
        if frame.data_length == 0 && frame.head_length < length {
            frame.head_length = length;
            self.head.resize((frame.head + length) as usize, 0);
        }
    }

    /// Takes a buffer in, for frames to name, with a mark for the machine itself; returns its number.
    #[inline]
    pub fn push_buffer(&mut self, buffer: Buffer, mark: u32) -> u32 {
        self.buffers.push((buffer, mark));
        (self.buffers.len() - 1) as u32
    }

    /// Every frame's link and a copy of its bytes. For tests and simulated wires; a driver sends them from where they lie.
    pub fn to_frames(&self, memory: &dyn Memory) -> Vec<(LinkId, Vec<u8>)> {
        let copy = |frame: &OutFrame| {
            let mut bytes = self.head[frame.head as usize..][..frame.head_length as usize].to_vec();
            if frame.data_length > 0 {
                bytes.resize(frame.len() as usize, 0);
                let data = &mut bytes[frame.head_length as usize..];
                memory.read(&self.buffers[frame.buffer as usize].0, frame.data_at, data);
            }
            (frame.link, bytes)
        };
        self.frames.iter().map(copy).collect()
    }

    /// Empties it and keeps its memory; the buffers must have been taken out before.
    #[inline]
    pub fn clear(&mut self) {
        assert!(self.buffers.is_empty(), "{} buffers would be lost", self.buffers.len());
        self.head.clear();
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_stand_one_behind_the_other_and_short_ones_are_padded() {
        let mut batch = FrameBatch::default();
        batch.push(LinkId(3), &[1; 24]);
        batch.pad(60);
        let buffer = batch.push_buffer(Buffer::reserved(1024, 0), 9);
        batch.push_with_data(LinkId(4), &[2; 36], buffer, 512, 512);
        batch.pad(60);
        assert_eq!(batch.head.len(), 96);
        assert_eq!(batch.head[24..60], [0; 36]);
        assert_eq!((batch.frames[0].len(), batch.frames[0].link), (60, LinkId(3)));
        let second = batch.frames[1];
        assert_eq!((second.head, second.head_length, second.len()), (60, 36, 548));
        assert_eq!((second.buffer, second.data_at), (buffer, 512));
    }
}
