//! Frames on their way out: Ethernet header, tag and padding written from what is known of the
//! link, payloads from the batch's own bytes and from buffers.
//!
//! ```text
//!   head     | header payload | header payload zeros | header payload | header labels |
//!   frame 0 ---+ head
//!   frame 1 --------------------+ head                                    ^
//!   frame 2 -----------------------------------------+ head, then data of a buffer, or of a frame that came
//!           ---------------------------------------------------------------+ prefix, put in front later
//! ```

use block::{Buffer, Memory};
use wire::ethernet::{EtherType, HEADER_SIZE, PAYLOAD_MIN, VLAN_TAG_SIZE};

use super::{LentFrames, LinkFacts, LinkId, Part, Station, lent::Lent};

const HEADER_MAX: usize = HEADER_SIZE + VLAN_TAG_SIZE;

/// Frames to be sent, with what they carry. Machines keep a few and use their memory over and over.
#[derive(Debug, Default)]
pub struct FrameBatch {
    /// The bytes of headers and small payloads.
    pub head: Vec<u8>,
    /// Payloads, each with the machine's own mark. They come back with the batch.
    pub buffers: Vec<(Buffer, u32)>,
    /// The frames, in order.
    pub frames: Vec<OutFrame>,
    /// They go before all else that waits with their interfaces, as far as those have a place for that.
    pub is_urgent: bool,
}

/// A frame of a [`FrameBatch`]: `prefix_length` bytes of its `head`, then `head_length` others,
/// then `data_length` bytes of one of its buffers, or of a frame that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutFrame {
    /// Where to send it.
    pub link: LinkId,
    /// Where in the batch's `head` the bytes lie that were put in front of it later.
    pub prefix: u32,
    pub prefix_length: u32,
    /// Where in the batch's `head` its own bytes begin.
    pub head: u32,
    /// Bytes from there, at least an Ethernet header unless the data are a frame's.
    pub head_length: u32,
    /// The frame whose bytes follow, lent until the turn ends; `None`: it is a buffer, if `data_length`
    /// is not 0.
    pub lent: Option<Lent>,
    /// The buffer.
    pub buffer: u32,
    /// Where in the buffer or the frame they begin.
    pub data_at: u32,
    pub data_length: u32,
}

impl OutFrame {
    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> u32 {
        self.prefix_length + self.head_length + self.data_length
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

    /// Appends a frame with this payload, padded to the shortest that there is.
    #[inline]
    pub fn push(&mut self, facts: &LinkFacts, to: &Station, ether_type: EtherType, payload: &[u8]) {
        let begin = self.write(facts, to, ether_type, payload, PAYLOAD_MIN);
        self.end(to.link, begin);
    }

    /// Appends a frame whose payload is in two parts.
    pub fn push_two(
        &mut self,
        facts: &LinkFacts,
        to: &Station,
        ether_type: EtherType,
        [first, second]: [&[u8]; 2],
    ) {
        let begin = self.write(facts, to, ether_type, first, 0);
        self.head.extend_from_slice(second);
        let least = begin + facts.header_length() + PAYLOAD_MIN;
        self.head.resize(self.head.len().max(least), 0);
        self.end(to.link, begin);
    }

    /// Appends a frame with this payload and `zeros` zeros.
    pub fn push_zeros(
        &mut self,
        facts: &LinkFacts,
        to: &Station,
        ether_type: EtherType,
        payload: &[u8],
        zeros: usize,
    ) {
        let length = payload.len() + zeros;
        let begin = self.write(facts, to, ether_type, payload, PAYLOAD_MIN);
        self.head.resize((begin + facts.header_length() + length).max(self.head.len()), 0);
        self.end(to.link, begin);
    }

    /// Appends a frame with this payload and `data_length` bytes of buffer number `buffer` from
    /// `data_at` on; they are not so few that the frame is short.
    #[inline]
    pub fn push_with_data(
        &mut self,
        facts: &LinkFacts,
        to: &Station,
        ether_type: EtherType,
        payload: &[u8],
        (buffer, data_at, data_length): (u32, u32, u32),
    ) {
        let length = payload.len() + data_length as usize;
        assert!(length >= PAYLOAD_MIN, "a payload of {length} bytes is no frame's");
        let begin = self.write(facts, to, ether_type, payload, 0);
        let frame = self.end(to.link, begin);
        (frame.buffer, frame.data_at, frame.data_length) = (buffer, data_at, data_length);
    }

    /// Appends a frame whose bytes from the destination address on are these, whoever made them: in
    /// two parts, so that who changes what stands in front of a frame copies the frame once. Nothing
    /// is padded.
    #[inline]
    pub fn push_whole(&mut self, link: LinkId, [front, rest]: [&[u8]; 2]) {
        let begin = self.head.len();
        self.head.reserve(front.len() + rest.len());
        self.head.extend_from_slice(front);
        self.head.extend_from_slice(rest);
        self.end(link, begin);
    }

    /// Appends a frame that is sent on, whoever made it: `front`, and what is left of the frame that
    /// came. Where that one is lent until the turn ends, the batch must leave before, and the frame's
    /// bytes stay where they are.
    #[inline]
    pub fn push_on(&mut self, link: LinkId, front: &[u8], rest: Part<'_>) {
        match rest.lent {
            Some((lent, at)) if !rest.bytes.is_empty() => {
                let begin = self.head.len();
                self.head.extend_from_slice(front);
                let frame = self.end(link, begin);
                frame.lent = Some(lent);
                (frame.data_at, frame.data_length) = (at, rest.bytes.len() as u32);
            }
            _ => self.push_whole(link, [front, rest.bytes]),
        }
    }

    /// Copies what frame number `index` names of one that is lent, so that it may leave in a later
    /// turn. Nothing happens to one that names none.
    #[cold]
    pub fn own<'f, F: 'f>(
        &mut self,
        index: usize,
        frames: &'f LentFrames<F>,
        bytes: impl FnOnce(&'f F) -> &'f [u8],
    ) {
        let OutFrame { head, head_length, data_at, data_length, lent, .. } = self.frames[index];
        let Some(lent) = lent else { return };
        let begin = self.head.len();
        self.head.extend_from_within(head as usize..(head + head_length) as usize);
        let data = &bytes(frames.get(lent))[data_at as usize..][..data_length as usize];
        self.head.extend_from_slice(data);
        let frame = &mut self.frames[index];
        (frame.head, frame.head_length) = (begin as u32, head_length + data_length);
        (frame.lent, frame.data_at, frame.data_length) = (None, 0, 0);
    }

    /// The same of all frames, for simulated drivers.
    pub fn own_all(&mut self, frames: &mut LentFrames<Vec<u8>>) {
        for index in 0..self.frames.len() {
            if let Some(lent) = self.frames[index].lent {
                self.own(index, frames, Vec::as_slice);
                frames.send(lent);
            }
        }
    }

    /// Puts frame number `index`, from its destination address on, inside another one, which leaves
    /// by `link`, behind these bytes. Nothing of it moves, neither its own bytes nor its data.
    pub fn put_in_front(&mut self, index: usize, link: LinkId, bytes: &[u8]) {
        let begin = self.head.len();
        self.head.extend_from_slice(bytes);
        let OutFrame { prefix, prefix_length, .. } = self.frames[index];
        self.head.extend_from_within(prefix as usize..(prefix + prefix_length) as usize);
        let frame = &mut self.frames[index];
        frame.link = link;
        (frame.prefix, frame.prefix_length) = (begin as u32, (self.head.len() - begin) as u32);
    }

    /// Writes a header and what follows it, that zeros fill up to `least` bytes if it is short.
    /// Returns where it begins.
    #[inline]
    fn write(
        &mut self,
        facts: &LinkFacts,
        to: &Station,
        EtherType(ether_type): EtherType,
        payload: &[u8],
        least: usize,
    ) -> usize {
        let begin = self.head.len();
        let mut bytes = [0; HEADER_MAX + PAYLOAD_MIN];
        bytes[..6].copy_from_slice(&to.mac.0);
        bytes[6..12].copy_from_slice(&facts.mac);
        let mut at = 12;
        if let Some(vlan) = facts.vlan {
            let control = u16::from(to.priority) << 13 | vlan & 0xfff;
            bytes[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            bytes[14..16].copy_from_slice(&control.to_be_bytes());
            at = 16;
        }
        bytes[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
        at += 2;
        if payload.len() <= PAYLOAD_MIN {
            bytes[at..at + payload.len()].copy_from_slice(payload);
            self.head.extend_from_slice(&bytes[..at + payload.len().max(least)]);
        } else {
            self.head.extend_from_slice(&bytes[..at]);
            self.head.extend_from_slice(payload);
        }
        begin
    }

    /// Appends the frame of all bytes from `begin` on.
    #[inline]
    fn end(&mut self, link: LinkId, begin: usize) -> &mut OutFrame {
        let (head, head_length) = (begin as u32, (self.head.len() - begin) as u32);
        self.frames.push(OutFrame { link, head, head_length, ..OutFrame::default() });
        self.frames.last_mut().expect("it was just pushed")
    }

    /// Takes a buffer in, for frames to name, with a mark for the machine itself; returns its
    /// number.
    #[inline]
    pub fn push_buffer(&mut self, buffer: Buffer, mark: u32) -> u32 {
        self.buffers.push((buffer, mark));
        (self.buffers.len() - 1) as u32
    }

    /// The bytes of a frame that lie in the batch itself: what was put in front, and its own.
    #[inline]
    pub fn heads(&self, frame: &OutFrame) -> [&[u8]; 2] {
        let bytes = |at: u32, length: u32| &self.head[at as usize..][..length as usize];
        [bytes(frame.prefix, frame.prefix_length), bytes(frame.head, frame.head_length)]
    }

    /// A copy of a frame's bytes. For tests and simulated wires; a driver sends them from where
    /// they lie.
    pub fn to_bytes(&self, frame: &OutFrame, memory: &dyn Memory) -> Vec<u8> {
        let mut bytes = self.heads(frame).concat();
        assert!(frame.lent.is_none(), "what is lent is copied first ([`own`](Self::own))");
        if frame.data_length > 0 {
            let behind = bytes.len();
            bytes.resize(frame.len() as usize, 0);
            let buffer = &self.buffers[frame.buffer as usize].0;
            memory.read(buffer, frame.data_at, &mut bytes[behind..]);
        }
        bytes
    }

    /// Every frame's link and a copy of its bytes.
    pub fn to_frames(&self, memory: &dyn Memory) -> Vec<(LinkId, Vec<u8>)> {
        self.frames.iter().map(|frame| (frame.link, self.to_bytes(frame, memory))).collect()
    }

    /// Empties it and keeps its memory; the buffers must have been taken out before.
    #[inline]
    pub fn clear(&mut self) {
        assert!(self.buffers.is_empty(), "{} buffers would be lost", self.buffers.len());
        self.head.clear();
        self.frames.clear();
        self.is_urgent = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::InFrame;
    use super::*;
    use testkit::Pages;
    use wire::ethernet::MacAddress;

    const FACTS: LinkFacts = LinkFacts {
        mac: [2, 0, 0, 0, 0, 9],
        mtu: 1500,
        vlan: None,
        ring_frames: 64,
        is_shared: true,
    };
    const TAGGED: LinkFacts = LinkFacts { vlan: Some(100), ..FACTS };
    const TO: Station =
        Station { link: LinkId(3), mac: MacAddress([2, 0, 0, 0, 0, 1]), priority: 5 };

    #[test]
    fn header_tag_and_padding_are_of_the_link() {
        let mut batch = FrameBatch::default();
        let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
        batch.push(&FACTS, &TO, EtherType::AOE, &[7; 10]);
        let plain = [&addresses[..], &[0x88, 0xa2], &[7; 10], &[0; 36]].concat();
        assert_eq!((plain.len(), batch.heads(&batch.frames[0])), (60, [&[][..], &plain]));
        batch.push(&TAGGED, &TO, EtherType::MPLS, &[7; 46]);
        let tagged = [&addresses[..], &[0x81, 0, 0xa0, 100, 0x88, 0x47], &[7; 46]].concat();
        assert_eq!((tagged.len(), batch.heads(&batch.frames[1])), (64, [&[][..], &tagged]));
        assert_eq!(batch.frames[1].link, LinkId(3));
        for facts in [FACTS, TAGGED] {
            for length in [0, 1, 35, 36, 37, 1000] {
                let second = vec![8; length];
                batch.clear();
                batch.push_two(&facts, &TO, EtherType::AOE, [&[7; 10], &second]);
                batch.push(&facts, &TO, EtherType::AOE, &[&[7; 10], &second[..]].concat());
                batch.push_two(&facts, &TO, EtherType::AOE, [&[7; 10], &vec![0; length]]);
                batch.push_zeros(&facts, &TO, EtherType::AOE, &[7; 10], length);
                let heads = [0, 1, 2, 3].map(|at| batch.heads(&batch.frames[at])[1]);
                assert_eq!((heads[0], heads[2]), (heads[1], heads[3]));
                assert_eq!(heads[1].len(), facts.header_length() + (10 + length).max(46));
                assert_eq!(heads[3].len(), heads[1].len());
            }
        }
    }

    #[test]
    fn a_frame_of_others_is_what_its_two_parts_are() {
        let mut batch = FrameBatch::default();
        let bytes: Vec<u8> = (0..70).collect();
        for cut in [0, 22, 70] {
            batch.push_whole(LinkId(3), [&bytes[..cut], &bytes[cut..]]);
            let frame = batch.frames.last().unwrap();
            assert_eq!((frame.link, batch.heads(frame)), (LinkId(3), [&[][..], &bytes]), "{cut}");
        }
        // Short as it is: a padding is its sender's to add.
        batch.push_whole(LinkId(3), [&[7; 14], &[8]]);
        assert_eq!(batch.frames.last().unwrap().len(), 15);
    }

    #[test]
    fn what_is_sent_on_is_named_until_it_is_copied() {
        let came: Vec<u8> = (0..=255).chain(0..100).collect();
        let mut frames = LentFrames::default();
        frames.lend(vec![9; 300]);
        let [shown, other] = [(); 2].map(|()| {
            let lent = Some(frames.lend(came.clone()));
            InFrame { lent, ..InFrame::new(LinkId(1), None, &came) }
        });
        let mut batch = FrameBatch::default();
        batch.push_on(LinkId(3), &[7; 18], shown.part(&came[18..]));
        batch.push_on(LinkId(3), &[], other.part(&came[4..300]));
        let [first, second] = batch.frames[..] else { panic!("{batch:?}") };
        assert_eq!((batch.head.len(), first.lent, second.lent), (18, shown.lent, other.lent));
        assert_eq!((first.len(), second.len(), second.data_at), (356, 296, 4));
        batch.own_all(&mut frames);
        frames.end_turn();
        let expected =
            [(LinkId(3), [&[7; 18], &came[18..]].concat()), (LinkId(3), came[4..300].to_vec())];
        assert_eq!(batch.to_frames(&Pages::new()), expected);
        batch.own_all(&mut frames);
        assert_eq!(batch.to_frames(&Pages::new()), expected, "it is its own already");
        // Those of a frame that is lent for a call alone are copied at once.
        let call = InFrame::new(LinkId(1), None, &came);
        batch.clear();
        batch.push_on(LinkId(3), &[7; 18], call.part(&came));
        batch.push_on(LinkId(3), &[7; 18], shown.part(&came[356..]));
        assert!(batch.frames.iter().all(|frame| frame.lent.is_none()));
        assert_eq!(batch.head, [&[7; 18], &came[..], &[7; 18]].concat());
    }

    #[test]
    fn data_are_sent_from_where_they_lie() {
        let (mut batch, mut memory) = (FrameBatch::default(), Pages::new());
        let mut data = Buffer::reserved(1024, 0);
        memory.write(&mut data, 0, &[[1; 512], [2; 512]].concat());
        let buffer = batch.push_buffer(data, 9);
        batch.push_with_data(&FACTS, &TO, EtherType::AOE, &[7; 22], (buffer, 512, 512));
        let frame = batch.frames[0];
        assert_eq!((frame.head_length, frame.data_at, frame.len()), (36, 512, 548));
        assert_eq!(batch.to_bytes(&frame, &memory)[14..], [&[7; 22][..], &[2; 512]].concat());
        memory.release(batch.buffers.pop().unwrap().0);
    }

    #[test]
    #[should_panic(expected = "45 bytes")]
    fn data_do_not_make_a_short_frame() {
        let mut batch = FrameBatch::default();
        let buffer = batch.push_buffer(Buffer::reserved(512, 0), 0);
        batch.push_with_data(&FACTS, &TO, EtherType::AOE, &[7; 22], (buffer, 0, 23));
    }

    #[test]
    fn what_is_put_in_front_leaves_the_frame_where_it_is() {
        let (mut batch, mut memory) = (FrameBatch::default(), Pages::new());
        let mut data = Buffer::reserved(512, 0);
        memory.write(&mut data, 0, &[3; 512]);
        let buffer = batch.push_buffer(data, 0);
        batch.push_with_data(&FACTS, &TO, EtherType::AOE, &[7; 22], (buffer, 0, 512));
        batch.push(&FACTS, &TO, EtherType::AOE, &[8; 46]);
        let before: Vec<Vec<u8>> =
            batch.frames.iter().map(|frame| batch.to_bytes(frame, &memory)).collect();
        let frames = batch.frames.clone();
        let around = |label| {
            let header = [0x81, 0, 0x20, 100, 0x88, 0x47];
            [&[4; 6][..], &FACTS.mac, &header, &[label; 4]].concat()
        };
        for label in [1, 2] {
            // The second goes around the first.
            batch.put_in_front(0, LinkId(8), &around(label));
        }
        let frame = batch.frames[0];
        assert_eq!(frame.link, LinkId(8));
        let expected = [around(2), around(1), before[0].clone()].concat();
        assert_eq!(batch.to_bytes(&frame, &memory), expected);
        assert_eq!((frame.head, frame.buffer), (frames[0].head, frames[0].buffer));
        assert_eq!(frame.len() as usize, expected.len());
        assert_eq!(
            (batch.frames[1], batch.to_bytes(&frames[1], &memory)),
            (frames[1], before[1].clone())
        );
        memory.release(batch.buffers.pop().unwrap().0);
    }
}
