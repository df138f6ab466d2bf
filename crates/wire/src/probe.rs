//! Probes of how large a frame a pseudowire's path takes: messages of its associated channel, as long
//! as the frame that they stand for, and the answers to them.
//!
//! ```text
//!   0  identifier "PMTU"   4  version   5  kind   6  reserved   8  length u32
//!  12  sequence number u32   16  nonce u64   24  a request: zeros, up to its length
//! ```
//! A channel header is as long as a control word, so a request of so many bytes is on every link as
//! long as a packet with such a frame. An answer has no padding: it says that the request came whole,
//! and gives back what no one off the path knows.
//! Units: bytes behind the channel header, which are those of a frame from its destination address on.
//! Errors: what ends early, another identifier, version or kind, and a request that is not as long as
//! it says; what a link put behind it is padding. Big-endian. Spec: none; the channel type is one that
//! RFC 5586 clause 10 leaves to experiments, whose identifier tells this one from others (RFC 3692).
//! LSP ping (RFC 8029) with a Pad TLV asks the same by way of IP and UDP, which an edge for Ethernet
//! need not speak.

use core::fmt;

use crate::{Expected, ParseError};

/// What tells these messages from those of other experiments.
const IDENTIFIER: u32 = u32::from_be_bytes(*b"PMTU");
/// The version that there is.
pub const VERSION: u8 = 1;

codes! {
    /// What a message is.
    pub struct ProbeKind(u8) {
        REQUEST = 1 "request",
        ANSWER = 2 "answer",
    }
}

layout! {
    big_endian:
    /// A message without its padding.
    pub struct Probe[24] {
        /// [`Probe::request`] and [`Probe::answer`] fill it in.
        0 => identifier: u32,
        /// [`VERSION`].
        4 => version: u8,
        /// What it is.
        5 => kind: ProbeKind,
        /// Bytes of the request, with this header.
        8 => length: u32,
        /// Which request of its sender's it is.
        12 => sequence: u32,
        /// What the sender drew for it.
        16 => nonce: u64,
    }
}

impl Probe {
    /// A request of so many bytes, which its sender pads.
    pub const fn request(length: u32, sequence: u32, nonce: u64) -> Self {
        let (identifier, version, kind) = (IDENTIFIER, VERSION, ProbeKind::REQUEST);
        Self { identifier, version, kind, length, sequence, nonce }
    }

    /// The answer to this request.
    #[must_use]
    pub const fn answer(self) -> Self {
        Self { kind: ProbeKind::ANSWER, ..self }
    }

    /// Reads a message that came, by all that makes it one. A request has all of its bytes.
    pub fn receive(bytes: &[u8]) -> Result<Self, ParseError> {
        let it = Self::parse(bytes)?;
        let wrong = |field, at, expected: u32, seen: u32| {
            Err(ParseError::new(field, at, Expected::Exactly(expected.into()), seen.into()))
        };
        if it.identifier != IDENTIFIER {
            return wrong("identifier", 0, IDENTIFIER, it.identifier);
        }
        if it.version != VERSION {
            return wrong("version", 4, VERSION.into(), it.version.into());
        }
        match it.kind {
            ProbeKind::REQUEST if bytes.len() < it.length as usize => {
                Err(ParseError::short(it.length as usize, bytes.len()))
            }
            ProbeKind::REQUEST if (it.length as usize) < Self::SIZE => {
                let expected = Expected::AtLeast(Self::SIZE as u64);
                Err(ParseError::new("length", 8, expected, it.length.into()))
            }
            ProbeKind::REQUEST | ProbeKind::ANSWER => Ok(it),
            kind => {
                let expected = Expected::Words("1 (request) or 2 (answer)");
                Err(ParseError::new("kind", 5, expected, kind.0.into()))
            }
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, length, sequence, nonce, .. } = self;
        write!(f, "MTU probe {kind} of {length} bytes sequence {sequence} nonce {nonce:#018x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: [u8; 24] =
        [0x50, 0x4d, 0x54, 0x55, 1, 1, 0, 0, 0, 0, 5, 0xea, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];

    fn padded(length: usize) -> Vec<u8> {
        let mut bytes = REQUEST.to_vec();
        bytes.resize(length, 0);
        bytes
    }

    #[test]
    fn requests_and_answers_both_ways() {
        let request = Probe::request(1514, 7, 0x0102_0304_0506_0708);
        assert_eq!(request.emit(), REQUEST);
        assert_eq!(Probe::receive(&padded(1514)), Ok(request));
        assert_eq!(
            request.to_string(),
            "MTU probe request of 1514 bytes sequence 7 nonce 0x0102030405060708"
        );
        let answer = request.answer();
        let mut bytes = REQUEST;
        bytes[5] = 2;
        assert_eq!(answer.emit(), bytes);
        // Of what it tells there is nothing in it; a link pads it.
        assert_eq!(Probe::receive(&bytes), Ok(answer));
        assert_eq!(Probe::receive(&[&bytes[..], &[0; 30]].concat()), Ok(answer));
    }

    #[test]
    fn a_request_that_is_not_whole_is_refused() {
        for length in 0..1514 {
            let least = if length < Probe::SIZE { Probe::SIZE } else { 1514 };
            let seen = Probe::receive(&padded(1514)[..length]);
            assert_eq!(seen, Err(ParseError::short(least, length)));
        }
        assert!(Probe::receive(&padded(1515)).is_ok());
        let mut short = REQUEST;
        short[8..12].copy_from_slice(&23_u32.to_be_bytes());
        assert_eq!(
            Probe::receive(&short).unwrap_err().to_string(),
            "length at byte 8: expected at least 24, seen 23 (0x17)"
        );
    }

    #[test]
    fn what_is_of_another_experiment_version_or_kind_is_refused() {
        for (at, value, text) in [
            (0, 0x51, "identifier at byte 0: expected 1347245141, seen 1364022357 (0x514d5455)"),
            (4, 2, "version at byte 4: expected 1, seen 2 (0x2)"),
            (5, 3, "kind at byte 5: expected 1 (request) or 2 (answer), seen 3 (0x3)"),
        ] {
            let mut bytes = padded(1514);
            bytes[at] = value;
            assert_eq!(Probe::receive(&bytes).unwrap_err().to_string(), text);
        }
        // What is reserved is ignored.
        let mut bytes = padded(1514);
        bytes[6] = 9;
        assert!(Probe::receive(&bytes).is_ok());
    }
}
