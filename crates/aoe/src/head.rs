//! The head of a message: AoE header and ATA registers. That of an answer is made when the request
//! comes and sent when it is done.

use block::{Failure, Outcome};
use contract::Station;
use wire::aoe::{AtaArgument, ErrorCode, Header};
use wire::ata::{ErrorBits, Status};

const HEAD_MAX: usize = Header::SIZE + AtaArgument::SIZE;

/// A head, in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    /// Bytes that are meant.
    length: u8,
}

/// An answer without its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) to: Station,
    pub(crate) head: Head,
}

impl Head {
    /// A head with nothing behind the header yet.
    #[inline]
    pub(crate) fn new(header: &Header) -> Head {
        let mut bytes = [0; HEAD_MAX];
        bytes[..Header::SIZE].copy_from_slice(&header.emit());
        Head { bytes, length: Header::SIZE as u8 }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// With ATA registers behind the header.
    #[inline]
    pub(crate) fn with_ata(mut self, argument: &AtaArgument) -> Head {
        self.bytes[Header::SIZE..].copy_from_slice(&argument.emit());
        self.length = HEAD_MAX as u8;
        self
    }

    /// With the registers of a command that was carried out: nothing left, DRDY.
    #[inline]
    pub(crate) fn done(&mut self) {
        self.finish(Status::GOOD, ErrorBits(0), Some(0));
    }

    /// With these registers; the sector count as it was asked where nothing was transferred.
    #[inline]
    pub(crate) fn finish(&mut self, status: Status, error: ErrorBits, count: Option<u8>) {
        let registers = &mut self.bytes[Header::SIZE..];
        registers[1] = error.0;
        if let Some(count) = count {
            registers[2] = count;
        }
        registers[3] = status.0;
    }

    /// As a refusal: the E flag, and no registers.
    pub(crate) fn refused(mut self, code: ErrorCode) -> Head {
        self.bytes[0] |= 0x04;
        self.bytes[1] = code.0;
        self.length = Header::SIZE as u8;
        self
    }
}

/// What the registers say of an outcome that is not *done*. Never the E flag: initiators retry that
/// for minutes, and end at this at once.
pub(crate) fn registers(outcome: Outcome) -> (Status, ErrorBits) {
    let failure = match outcome {
        Outcome::Done => return (Status::GOOD, ErrorBits(0)),
        // Nothing is compared or sought over AoE.
        other => other.failure().unwrap_or(Failure::Internal),
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

    #[test]
    fn the_head_of_an_answer() {
        let header = Header::request(Address::new(7, 1), Command::ATA, 0xfeed_f00d);
        let argument = AtaArgument { count: 2, command_status: 0x34, ..AtaArgument::default() };
        let response = header.response(header.address);
        let mut head = Head::new(&response).with_ata(&argument);
        let expected =
            [0x18, 0, 0, 7, 1, 0, 0xfe, 0xed, 0xf0, 0x0d, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0];
        head.done();
        assert_eq!(head.bytes(), expected);
        let refused = head.refused(ErrorCode::RESERVED);
        assert_eq!((refused.bytes().len(), &refused.bytes()[..2]), (10, &[0x1c, 6][..]));
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
