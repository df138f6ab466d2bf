//! The front of a stream as a PDU: which one it is, where its data lie, whether its header digest
//! is right.
//!
//! Stateless: [`peek`] looks at the bytes from the start of a PDU on and consumes nothing. Units:
//! bytes from the start of the PDU. Errors: a [`Violation`]; at ErrorRecoveryLevel 0 it ends the
//! session, told by a Reject where a target says it. Spec: RFC 7143, 11.2, 7.7, 7.8, 7.12.

use core::fmt;

use block::checksum::crc32c;
use wire::ParseError;
use wire::iscsi::{Bhs, Digests, RejectReason, padding};

/// A PDU at the front of the stream, its headers whole and their digest right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PduHead {
    pub(crate) bhs: Bhs,
    /// Where its data begin: behind headers and digest.
    pub(crate) data_at: u32,
    /// Bytes of data, without padding.
    pub(crate) data_length: u32,
}

impl PduHead {
    /// Bytes behind the data that belong to the PDU: padding and digest.
    #[inline]
    pub(crate) fn trailer(&self, digests: Digests) -> u32 {
        padding(self.data_length) + digests.data_bytes(self.data_length)
    }

    /// Bytes of the whole PDU.
    #[inline]
    pub(crate) fn total(&self, digests: Digests) -> u32 {
        self.data_at + self.data_length + self.trailer(digests)
    }

    /// Its data, of a PDU that is all there.
    #[inline]
    pub(crate) fn data<'a>(&self, pdu: &'a [u8]) -> &'a [u8] {
        &pdu[self.data_at as usize..][..self.data_length as usize]
    }

    /// Whether the digest of its data is right, of a PDU that is all there.
    #[inline]
    pub(crate) fn data_are_right(&self, pdu: &[u8], digests: Digests) -> bool {
        if !digests.data || self.data_length == 0 {
            return true;
        }
        let end = (self.data_at + self.data_length + padding(self.data_length)) as usize;
        crc32c(&pdu[self.data_at as usize..end]) == digest_at(pdu, end)
    }
}

/// What the front of the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// A PDU; all up to its data is there.
    Pdu(PduHead),
    /// The beginning of one: look again once so many bytes are there.
    Short(u32),
}

/// How the other side broke the rules so that the session has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What a Reject says of it.
    pub(crate) reason: RejectReason,
    /// The rule that was broken, for people.
    pub(crate) rule: &'static str,
}

impl Violation {
    pub(crate) const fn new(reason: RejectReason, rule: &'static str) -> Violation {
        Violation { reason, rule }
    }

    /// A PDU that may not come now, or says what it may not.
    pub(crate) const fn protocol(rule: &'static str) -> Violation {
        Violation::new(RejectReason::PROTOCOL_ERROR, rule)
    }

    /// A field that no header may have, named by the parser.
    #[cold]
    pub(crate) fn field(error: &ParseError) -> Violation {
        let reason = match error.field {
            "Opcode" => RejectReason::COMMAND_NOT_SUPPORTED,
            _ => RejectReason::INVALID_PDU_FIELD,
        };
        Violation::new(reason, error.field)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.rule)
    }
}

/// Looks at the front of the stream, which begins with a PDU; `segment_max` is the most data that
/// we said we take in one.
#[inline]
pub(crate) fn peek(bytes: &[u8], digests: Digests, segment_max: u32) -> Result<Front, Violation> {
    let Ok(bhs) = Bhs::parse(bytes) else { return Ok(Front::Short(Bhs::SIZE as u32)) };
    let data_length = bhs.data_segment_length.get();
    if data_length > segment_max {
        let rule = "DataSegmentLength within MaxRecvDataSegmentLength";
        return Err(Violation::protocol(rule));
    }
    let data_at = bhs.header_bytes(digests);
    if bytes.len() < data_at as usize {
        return Ok(Front::Short(data_at));
    }
    if digests.header {
        check_header_digest(bytes, (data_at as usize) - Digests::SIZE)?;
    }
    if let Err(error) = bhs.check() {
        return Err(Violation::field(&error));
    }
    Ok(Front::Pdu(PduHead { bhs, data_at, data_length }))
}

#[inline]
fn check_header_digest(bytes: &[u8], length: usize) -> Result<(), Violation> {
    if crc32c(&bytes[..length]) == digest_at(bytes, length) {
        return Ok(());
    }
    Err(Violation::protocol("header digest"))
}

/// The digest that is stored at `at`; panics when the bytes end before it does.
#[inline]
pub(crate) fn digest_at(bytes: &[u8], at: usize) -> u32 {
    let digest = bytes[at..].first_chunk().expect("the caller saw that the digest is there");
    u32::from_le_bytes(*digest)
}
