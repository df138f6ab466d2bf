//! Captures: classic pcap and pcapng, from a slice ([`Packets`]) or fed in pieces ([`Stream`]).
//!
//! Both formats say their byte order first; both are read in either. Time is nanoseconds since
//! 1970-01-01 UTC whatever the file's resolution. Blocks of pcapng that carry no packet are
//! skipped by their length. Errors: [`ParseError`] with offsets inside the record or block; after
//! one the reader has lost its place and says so again. Spec: the IETF drafts
//! draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use crate::ethernet::LinkType;
use crate::{Expected, ParseError};

mod decode;

use decode::{Decoder, Step};

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// When, nanoseconds since 1970-01-01 UTC; 0 where the file does not say.
    pub time_ns: u64,
    /// What the bytes begin with.
    pub link: LinkType,
    /// Bytes on the wire.
    pub original_length: u32,
    /// Bytes captured, perhaps fewer.
    pub bytes: &'a [u8],
}

/// Largest record or block that is believed, in bytes. A snap length is 256 KiB by default;
/// decryption secrets and name tables of pcapng can be larger.
pub const RECORD_MAX: usize = 16 << 20;

/// The packets of a whole capture in memory.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    decoder: Decoder,
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Packets<'a> {
    /// The packets of `capture`. What is wrong with it shows when they are asked for: a capture
    /// cut in the middle of a packet ends with an error, as does one that is no capture at all.
    #[must_use]
    pub const fn new(capture: &'a [u8]) -> Self {
        Self { decoder: Decoder::new(), rest: capture, failed: false }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<CapturedPacket<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed && (!self.rest.is_empty() || !self.decoder.has_begun()) {
            match self.decoder.step(self.rest) {
                Ok(Step::Skip { consumed }) => self.rest = &self.rest[consumed..],
                Ok(Step::Packet { consumed, packet }) => {
                    self.rest = &self.rest[consumed..];
                    return Some(Ok(packet));
                }
                Ok(Step::Need { bytes }) => {
                    self.failed = true;
                    return Some(Err(ParseError::short(bytes, self.rest.len())));
                }
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// A capture that arrives in pieces: [`Stream::feed`] any number of bytes, then take packets with
/// [`Stream::poll_packet`] until there is none, and so on; [`Stream::finish`] at the end.
///
/// It keeps the bytes of one unfinished record, at most [`RECORD_MAX`], and what was fed last.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already read.
    done: usize,
}

impl Stream {
    /// A stream before its first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole packet, or `None` until more is fed.
    pub fn poll_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, ParseError> {
        while self.done < self.buffer.len() {
            match self.decoder.step(&self.buffer[self.done..])? {
                Step::Skip { consumed } => self.done += consumed,
                Step::Need { .. } => return Ok(None),
                Step::Packet { .. } => break,
            }
        }
        // The borrow of a packet cannot leave the loop above, so the step that found it is taken
        // again; a step that finds a packet changes nothing in the decoder.
        if self.done == self.buffer.len() {
            return Ok(None);
        }
        let start = self.done;
        match self.decoder.step(&self.buffer[start..])? {
            Step::Packet { consumed, packet } => {
                self.done += consumed;
                Ok(Some(packet))
            }
            Step::Skip { .. } | Step::Need { .. } => Ok(None),
        }
    }

    /// Ends the stream; an error if a record is unfinished or nothing ever came.
    pub fn finish(self) -> Result<(), ParseError> {
        let left = self.buffer.len() - self.done;
        if left == 0 && self.decoder.has_begun() {
            return Ok(());
        }
        let expected = Expected::Words("the rest of a record");
        Err(ParseError::new("length", left, expected, left as u64))
    }
}

/// The 24 bytes in front of a classic capture with nanosecond times, little-endian.
#[must_use]
pub fn emit_file_header(link: LinkType) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&decode::MAGIC_NANOSECONDS.to_le_bytes());
    bytes[4] = 2;
    bytes[6] = 4;
    bytes[16..20].copy_from_slice(&(256u32 << 10).to_le_bytes());
    bytes[20..24].copy_from_slice(&u32::from(link.0).to_le_bytes());
    bytes
}

/// The 16 bytes in front of a packet of such a capture, whole packets only. Times pass 2106 as
/// modulo 2^32 seconds: the format has no more.
#[must_use]
pub fn emit_record_header(time_ns: u64, length: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    bytes[..4].copy_from_slice(&(seconds as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(nanoseconds as u32).to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests;
