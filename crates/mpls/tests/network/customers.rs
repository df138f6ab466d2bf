//! Frames that customers send, of which no two are alike.
//!
//! ```text
//!   destination | source, with its number | tag | EtherType | data | mark | number
//! ```
//! Behind whatever a router puts in front, a frame is known by its last bytes.

use block::Random;
use wire::ethernet::EtherType;

use super::topology::CIRCUIT_MTU;

/// What is in front of a frame's number.
const MARK: [u8; 8] = *b"customer";

/// What ordinary frames are.
pub(super) const ORDINARY: EtherType = EtherType(0x88b5);

#[derive(Default)]
pub(super) struct Customers {
    frames: u64,
}

impl Customers {
    /// An ordinary one.
    pub(super) fn make_any(&mut self, random: &mut Random) -> Vec<u8> {
        let is_tagged = random.chance(1, 4);
        let length = random.below(u64::from(CIRCUIT_MTU) - 100);
        self.make(random, is_tagged, ORDINARY, &vec![0xa5; length as usize])
    }

    pub(super) fn make(
        &mut self,
        random: &mut Random,
        is_tagged: bool,
        ether_type: EtherType,
        data: &[u8],
    ) -> Vec<u8> {
        self.frames += 1;
        let number = self.frames.to_be_bytes();
        // Destinations that look like IPv4 and IPv6, and like control words.
        let first = [0x02, 0x40, 0x60, 0x10, 0x00][random.below(5) as usize];
        let mut frame = vec![first, 0, 0, 0, 0, 1, 2];
        frame.extend_from_slice(&number[3..]);
        if is_tagged {
            frame.extend_from_slice(&[0x81, 0, (self.frames as u8) << 5, 7]);
        }
        frame.extend_from_slice(&ether_type.0.to_be_bytes());
        frame.extend_from_slice(data);
        frame.resize(frame.len().max(60 - 16), 0);
        frame.extend_from_slice(&MARK);
        frame.extend_from_slice(&number);
        frame
    }
}

/// The number of the frame that ends a packet.
pub(super) fn number_in(packet: &[u8]) -> Option<u64> {
    let (before, number) = packet.split_last_chunk()?;
    before.ends_with(&MARK).then(|| u64::from_be_bytes(*number))
}
