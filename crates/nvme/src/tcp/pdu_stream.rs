//! The front of a stream as a PDU: which one it is, where its data lie, whether its header digest
//! is right.
//!
//! Stateless: [`peek`] looks at the bytes from the start of a PDU on and consumes nothing. Units:
//! bytes from the start of the PDU. Errors: a [`Violation`], which says what a TermReq has to say.
//! Spec: NVMe/TCP, "PDU definitions", "Header digest", "Error handling model".

use core::fmt;

use block::checksum::crc32c;
use wire::ParseError;
use wire::nvme_tcp::{
    CapsuleCommand, CommonHeader, Digests, FatalErrorStatus, PduFlags, PduType, TermReq,
};

/// Bytes by which the front of a stream can be told: the common header.
pub(crate) const COMMON: u32 = CommonHeader::SIZE as u32;

/// A PDU at the front of the stream, its header whole and its header digest right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PduHead {
    pub(crate) common: CommonHeader,
    /// Where its data begin: behind header, digest and padding.
    pub(crate) data_at: u32,
    /// Bytes of data.
    pub(crate) data_length: u32,
}

/// What the front of the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// A PDU; all up to its data is there.
    Pdu(PduHead),
    /// The beginning of one: look again once so many bytes are there.
    Short(u32),
}

/// How the other side broke the rules so that the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// FES.
    pub(crate) fes: FatalErrorStatus,
    /// FEI: the offset of the bad field for FES 1 and 6, the received digest for FES 3.
    pub(crate) fei: u32,
    /// The rule that was broken, for people.
    pub(crate) rule: &'static str,
}

impl Violation {
    /// A field that no header may have, named by the parser.
    pub(crate) fn field(error: &ParseError) -> Violation {
        Violation {
            fes: FatalErrorStatus::INVALID_HEADER_FIELD,
            fei: error.offset as u32,
            rule: error.field,
        }
    }

    /// A violation of another kind.
    pub(crate) const fn new(fes: FatalErrorStatus, fei: u32, rule: &'static str) -> Violation {
        Violation { fes, fei, rule }
    }

    /// A PDU that may not come now.
    pub(crate) const fn sequence(rule: &'static str) -> Violation {
        Violation::new(FatalErrorStatus::SEQUENCE_ERROR, 0, rule)
    }

    /// The TermReq of `kind` that tells of it. `pdu` holds the offending PDU from its start on, as
    /// much as is there.
    pub(crate) fn term_req(&self, kind: PduType, pdu: &[u8]) -> TermReq {
        let announced = usize::from(pdu.get(2).copied().unwrap_or(0)).max(CommonHeader::SIZE);
        TermReq::new(kind, self.fes, self.fei, &pdu[..pdu.len().min(announced)])
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (byte {} of the PDU)", self.fes, self.rule, self.fei)
    }
}

/// A command capsule without data and digests: most of what hosts send, told by one comparison.
const BARE_HEADER: CommonHeader = CommonHeader {
    kind: PduType::CAPSULE_COMMAND,
    flags: PduFlags::NONE,
    header_length: BARE_LENGTH as u8,
    data_offset: 0,
    length: BARE_LENGTH as u32,
};
const BARE_LENGTH: usize = CapsuleCommand::SIZE;
const BARE_CAPSULE: [u8; CommonHeader::SIZE] =
    [0x04, 0, BARE_LENGTH as u8, 0, BARE_LENGTH as u8, 0, 0, 0];

/// Looks at the front of the stream, which begins with a PDU.
#[inline]
pub(crate) fn peek(bytes: &[u8], digests: Digests) -> Result<Front, Violation> {
    if digests == Digests::NONE && bytes.len() >= BARE_LENGTH && bytes.starts_with(&BARE_CAPSULE) {
        let head = PduHead { common: BARE_HEADER, data_at: BARE_LENGTH as u32, data_length: 0 };
        return Ok(Front::Pdu(head));
    }
    let Ok(common) = CommonHeader::parse(bytes) else {
        return Ok(Front::Short(COMMON));
    };
    let payload = match common.check(digests) {
        Ok(payload) => payload,
        Err(error) => return Err(Violation::field(&error)),
    };
    if bytes.len() < payload.offset as usize {
        return Ok(Front::Short(payload.offset));
    }
    if digests.header && common.kind.carries_digests() {
        check_header_digest(bytes, usize::from(common.header_length))?;
    }
    Ok(Front::Pdu(PduHead { common, data_at: payload.offset, data_length: payload.length }))
}

#[inline]
fn check_header_digest(bytes: &[u8], length: usize) -> Result<(), Violation> {
    let received = digest_at(bytes, length);
    if crc32c(&bytes[..length]) == received {
        return Ok(());
    }
    let fes = FatalErrorStatus::HEADER_DIGEST_ERROR;
    Err(Violation::new(fes, received, "header digest"))
}

/// The digest that is stored at `at`; panics when the bytes end before it does.
#[inline]
pub(crate) fn digest_at(bytes: &[u8], at: usize) -> u32 {
    let digest = bytes[at..].first_chunk().expect("the caller saw that the digest is there");
    u32::from_le_bytes(*digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme::Command;

    const BOTH: Digests = Digests { header: true, data: true };

    fn capsule(digests: Digests) -> Vec<u8> {
        let mut bytes = CapsuleCommand::new(Command::new(2), digests, 0).emit().to_vec();
        if digests.header {
            let digest = crc32c(&bytes);
            bytes.extend(digest.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_pdu_is_told_as_soon_as_its_header_is_whole() {
        for digests in [Digests::NONE, BOTH] {
            let bytes = capsule(digests);
            for cut in 0..bytes.len() {
                let at_least = if cut < 8 { 8 } else { bytes.len() as u32 };
                assert_eq!(peek(&bytes[..cut], digests), Ok(Front::Short(at_least)));
            }
            assert!(matches!(peek(&bytes, digests), Ok(Front::Pdu(head)) if head.data_length == 0));
        }
    }

    #[test]
    fn a_bare_capsule_is_told_as_the_general_way_tells_it() {
        assert_eq!(BARE_HEADER.emit(), BARE_CAPSULE);
        let payload = BARE_HEADER.check(Digests::NONE).expect("it is right");
        let front = peek(&capsule(Digests::NONE), Digests::NONE);
        let head =
            PduHead { common: BARE_HEADER, data_at: payload.offset, data_length: payload.length };
        assert_eq!(front, Ok(Front::Pdu(head)));
        // With digests agreed the same bytes are wrong.
        assert!(peek(&capsule(Digests::NONE), BOTH).is_err());
    }

    #[test]
    fn a_wrong_header_digest_is_fes_3_with_the_digest_received() {
        let mut bytes = capsule(BOTH);
        bytes[40] ^= 1;
        let received = digest_at(&bytes, 72);
        let violation = peek(&bytes, BOTH).expect_err("the digest is wrong");
        assert_eq!(violation.fes, FatalErrorStatus::HEADER_DIGEST_ERROR);
        assert_eq!(violation.fei, received);
    }

    #[test]
    fn a_bad_field_is_fes_1_with_its_offset() {
        let mut bytes = capsule(Digests::NONE);
        bytes[2] = 64;
        let violation = peek(&bytes, Digests::NONE).expect_err("HLEN is wrong");
        assert_eq!((violation.fes.0, violation.fei), (1, 2));
        let term = violation.term_req(PduType::C2H_TERM_REQ, &bytes);
        assert_eq!(term.offending_header().len(), 64);
    }
}
