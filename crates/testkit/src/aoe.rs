//! A station on an Ethernet that asks over AoE: frames made from the specification's tables, and
//! the answers that it may hear.
//!
//! It asks one thing at a time. An answer comes from the target that was asked, says that it is
//! one, and bears the tag of what was asked; whatever else comes is none. Not here: when to ask
//! again, and what an answer must say. A host and a disk that work together are `customer`.

mod customer;

pub use customer::Customer;

use wire::aoe::{Address, Command, Header};
use wire::ethernet::{EtherType, MacAddress};

/// Bytes of the shortest frame, without its check sequence (IEEE 802.3).
const FRAME_MIN: usize = 60;

/// A frame of AoE from one station to another: `message` stands behind the EtherType.
pub fn frame(to: MacAddress, from: MacAddress, vlan: Option<u16>, message: &[u8]) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    if let Some(vlan) = vlan {
        bytes.extend([0x81, 0x00]);
        bytes.extend(vlan.to_be_bytes());
    }
    bytes.extend([0x88, 0xa2]);
    bytes.extend(message);
    bytes.resize(bytes.len().max(FRAME_MIN), 0);
    bytes
}

/// A request: header and body.
pub fn request(address: Address, command: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let [high, low] = address.shelf.to_be_bytes();
    [&[0x10, 0, high, low, address.slot, command][..], &tag.to_be_bytes(), body].concat()
}

/// The body of an EXT command with 48 bits of address.
pub fn ata(op: u8, lba: u64, count: u8, data: &[u8]) -> Vec<u8> {
    let flags = 0x40 | u8::from(matches!(op, 0x34 | 0x35 | 0x06));
    [&[flags, 0, count, op][..], &lba.to_le_bytes()[..6], &[0, 0], data].concat()
}

/// Who sent a frame of AoE, tagged or not, and what stands behind the EtherType.
pub fn open(frame: &[u8]) -> Option<(MacAddress, &[u8])> {
    let from = MacAddress(*frame.get(6..)?.first_chunk()?);
    let is = |at: usize, kind: EtherType| frame.get(at..at + 2) == Some(&kind.0.to_be_bytes()[..]);
    let at = if is(12, EtherType::VLAN) { 16 } else { 12 };
    is(at, EtherType::AOE).then(|| (from, &frame[at + 2..]))
}

/// A station and the target that it asks.
#[derive(Debug)]
pub struct Station {
    pub mac: MacAddress,
    pub target: MacAddress,
    pub vlan: Option<u16>,
    next_tag: u32,
    /// The tag of what is not answered.
    asked: Option<u32>,
}

impl Station {
    pub fn new(mac: MacAddress, target: MacAddress, vlan: Option<u16>) -> Station {
        Station { mac, target, vlan, next_tag: 1, asked: None }
    }

    /// The frame of a question, which may be sent as often as need be until it is answered.
    pub fn ask(&mut self, address: Address, command: Command, body: &[u8]) -> Vec<u8> {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.asked = Some(tag);
        let message = request(address, command.0, tag, body);
        frame(self.target, self.mac, self.vlan, &message)
    }

    /// Hears a frame: the header of the answer and what follows it, once; `None` if it is none.
    pub fn hear(&mut self, frame: &[u8]) -> Result<Option<(Header, Vec<u8>)>, String> {
        let Some((from, message)) = open(frame) else { return Ok(None) };
        if from != self.target {
            return Ok(None);
        }
        let header = Header::parse(message).map_err(|why| format!("an answer of AoE: {why}"))?;
        if !header.flags.is_response() || self.asked != Some(header.tag) {
            return Ok(None);
        }
        self.asked = None;
        Ok(Some((header, message[Header::SIZE..].to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn answer(from: MacAddress, tag: u32) -> Vec<u8> {
        let header = Header::request(Address::new(7, 0), Command::CONFIG, tag);
        frame(OWN, from, None, &header.response(Address::new(7, 0)).emit())
    }

    #[test]
    fn only_the_targets_answer_to_what_was_asked_is_heard_and_once() {
        for vlan in [None, Some(100)] {
            let mut station = Station::new(OWN, TARGET, vlan);
            let asked = station.ask(Address::new(7, 0), Command::CONFIG, &[1, 2]);
            let (from, message) = open(&asked).expect("it is AoE");
            let header = Header::request(Address::new(7, 0), Command::CONFIG, 1);
            assert_eq!((from, &message[..Header::SIZE]), (OWN, &header.emit()[..]));
            assert_eq!(station.hear(&asked), Ok(None), "its own");
            assert_eq!(station.hear(&answer(OWN, 1)), Ok(None), "somebody else's");
            assert_eq!(station.hear(&answer(TARGET, 2)), Ok(None), "another tag");
            assert!(matches!(station.hear(&answer(TARGET, 1)), Ok(Some(_))));
            assert_eq!(station.hear(&answer(TARGET, 1)), Ok(None), "a copy");
        }
    }
}
