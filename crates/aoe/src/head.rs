//! The head of a frame: Ethernet header, VLAN tag, AoE header and ATA registers. That of an answer is made when the request comes and sent when it is done.

use block::{Failure, Outcome};
use contract::LinkFacts;
use wire::aoe::{AtaArgument, ErrorCode, Header};
use wire::ata::{ErrorBits, Status};
use wire::ethernet::{EtherType, MacAddress};

/// Bytes with a VLAN tag.
const HEAD_MAX: usize = 18 + Header::SIZE + AtaArgument::SIZE;

/// A head, in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    /// Where the AoE header begins: 14 or 18.
    at: u8,
    /// Bytes that are meant.
    length: u8,
}

impl Head {
    /// Of a command that nobody is answered.
    pub(crate) const NONE: Head = Head { bytes: [0; HEAD_MAX], at: 14, length: 0 };

    /// The head of a frame to `destination` with this AoE header and nothing behind it yet. Of `tag`, the priority is kept.
    #[inline]
    pub(crate) fn new(
        facts: &LinkFacts,
        destination: MacAddress,
        tag: Option<u16>,
        header: &Header,
    ) -> Head {
        let mut bytes = [0; HEAD_MAX];
        bytes[..6].copy_from_slice(&destination.0);
        bytes[6..12].copy_from_slice(&facts.mac);
        let mut at = 12;
        if let Some(vlan) = facts.vlan {
            let control = tag.unwrap_or(0) & 0xe000 | vlan & 0xfff;
            bytes[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            bytes[14..16].copy_from_slice(&control.to_be_bytes());
            at = 16;
        }
        bytes[at..at + 2].copy_from_slice(&EtherType::AOE.0.to_be_bytes());
        at += 2;
        bytes[at..at + Header::SIZE].copy_from_slice(&header.emit());
        Head { bytes, at: at as u8, length: (at + Header::SIZE) as u8 }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// With ATA registers behind the header.
    #[inline]
    pub(crate) fn with_ata(mut self, argument: &AtaArgument) -> Head {
        let from = usize::from(self.at) + Header::SIZE;
        self.bytes[from..from + AtaArgument::SIZE].copy_from_slice(&argument.emit());
        self.length = (from + AtaArgument::SIZE) as u8;
        self
    }

    /// With the registers of a command that was carried out: nothing left, DRDY.
    #[inline]
    pub(crate) fn done(&mut self) -> &[u8] {
        self.finish(Status::GOOD, ErrorBits(0), Some(0));
        self.bytes()
    }

    /// With these registers; the sector count as it was asked where nothing was transferred.
    #[inline]
    pub(crate) fn finish(&mut self, status: Status, error: ErrorBits, count: Option<u8>) {
        let from = usize::from(self.at) + Header::SIZE;
        self.bytes[from + 1] = error.0;
        if let Some(count) = count {
            self.bytes[from + 2] = count;
        }
        self.bytes[from + 3] = status.0;
    }

    /// As a refusal: the E flag, and no registers.
    pub(crate) fn refused(mut self, code: ErrorCode) -> Head {
        let at = usize::from(self.at);
        self.bytes[at] |= 0x04;
        self.bytes[at + 1] = code.0;
        self.length = (at + Header::SIZE) as u8;
        self
    }
}

/// What the registers say of an outcome that is not *done*. Never the E flag: initiators retry that for minutes, and end at this at once.
pub(crate) fn registers(outcome: Outcome) -> (Status, ErrorBits) {
    let failure = match outcome {
        Outcome::Done => return (Status::GOOD, ErrorBits(0)),
        Outcome::Miscompare(_) => Failure::Internal,
        Outcome::NotDone(failure) | Outcome::Unknown(failure) => failure,
    };
    match failure {
        Failure::OutOfRange => (Status::FAILED, ErrorBits::ID_NOT_FOUND),
        Failure::MediumRead => (Status::FAILED, ErrorBits::UNCORRECTABLE),
        Failure::MediumWrite | Failure::Internal => (Status::FAULT, ErrorBits::ABORT),
        Failure::WriteProtected
        | Failure::NoSpace
        | Failure::Unsupported
        | Failure::Removed
        | Failure::NotReady
        | Failure::Aborted
        | Failure::TimedOut => (Status::FAILED, ErrorBits::ABORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::aoe::{Address, Command};

    const FACTS: LinkFacts =
        LinkFacts { mac: [2, 0, 0, 0, 0, 9], mtu: 1500, vlan: None, ring_frames: 64 };

    #[test]
    fn the_head_of_an_answer() {
        let header = Header::request(Address::new(7, 1), Command::ATA, 0xfeed_f00d);
        let argument = AtaArgument { count: 2, command_status: 0x34, ..AtaArgument::default() };
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let response = header.response(header.address);
        let mut head = Head::new(&FACTS, mac, None, &response).with_ata(&argument);
        let expected = [
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0xa2, 0x18, 0, 0, 7, 1, 0, 0xfe, 0xed, 0xf0,
            0x0d, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(head.done(), expected);
        let refused = head.refused(ErrorCode::RESERVED);
        assert_eq!(refused.bytes().len(), 24);
        assert_eq!(refused.bytes()[14..16], [0x1c, 6]);
        let tagged = LinkFacts { vlan: Some(100), ..FACTS };
        let head = Head::new(&tagged, mac, Some(0xb001), &response).with_ata(&argument);
        assert_eq!(head.bytes()[12..20], [0x81, 0, 0xa0, 100, 0x88, 0xa2, 0x18, 0]);
        assert_eq!(head.bytes().len(), 40);
    }

    #[test]
    fn failures_are_registers() {
        let seen = |failure| {
            let (status, error) = registers(Outcome::NotDone(failure));
            assert!(!status.is_good());
            (status.0, error.0)
        };
        assert_eq!(seen(Failure::OutOfRange), (0x41, 0x10));
        assert_eq!(seen(Failure::MediumRead), (0x41, 0x40));
        assert_eq!(seen(Failure::MediumWrite), (0x61, 0x04));
        assert_eq!(seen(Failure::WriteProtected), (0x41, 0x04));
        assert_eq!(registers(Outcome::Done), (Status::GOOD, ErrorBits(0)));
    }
}
