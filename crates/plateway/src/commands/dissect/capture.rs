//! Captures, classic pcap and pcapng, as their bytes arrive: [`Decoder::next`] takes one packet off
//! the front of what is there. `pcap-file` knows the formats; here is which of the two it is, how
//! much must be there before anything can be said, and what of a block `dissect` wants.
//!
//! Time is nanoseconds since 1970-01-01 UTC; a resolution finer than that is refused, and so is
//! text of a section, an interface or a packet that is not UTF-8. Other blocks that carry no packet
//! are passed over, even where what they say of names or statistics is nonsense. Errors say what
//! was expected and what was seen; after one the decoder has lost its place. Spec: the IETF drafts
//! draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapParseError, PcapParser, PcapTsResolution};
use pcap_file::pcapng::blocks::{
    ENHANCED_PACKET_BLOCK, INTERFACE_DESCRIPTION_BLOCK, PACKET_BLOCK, SECTION_HEADER_BLOCK,
    SIMPLE_PACKET_BLOCK,
};
use pcap_file::pcapng::{Block, PcapNgParseError, PcapNgParser};

/// Largest record or block that is believed, in bytes. A snap length is 256 KiB by default;
/// decryption secrets and name tables of pcapng can be larger.
const RECORD_MAX: usize = 16 << 20;
/// Interfaces of one section that are remembered, and bytes of what one may say of itself, which
/// are remembered with it; a capture with more is refused.
const INTERFACES_MAX: usize = 4096;
const INTERFACE_BYTES_MAX: usize = 64 << 10;

/// One captured packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CapturedPacket<'a> {
    /// When, nanoseconds since 1970-01-01 UTC; 0 where the file does not say.
    pub(super) time_ns: u64,
    /// What the bytes begin with.
    pub(super) link: DataLink,
    /// Bytes captured, perhaps fewer than were sent.
    pub(super) bytes: Cow<'a, [u8]>,
}

/// What the file's own headers said so far.
#[derive(Debug, Default)]
pub(super) enum Decoder {
    #[default]
    Unknown,
    Classic(PcapParser),
    Blocks(PcapNgParser),
}

/// What the bytes at hand turned out to be.
enum Step<'a> {
    /// This many bytes must be there before anything can be said.
    Need(usize),
    /// Nothing but structure; what follows it.
    Skip(&'a [u8]),
    /// A packet, and what follows it.
    Packet(&'a [u8], CapturedPacket<'a>),
}

impl Decoder {
    /// Takes the next packet off the front of `rest`, and whatever comes before it; `None` until
    /// more is there.
    pub(super) fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Option<CapturedPacket<'a>>> {
        loop {
            match self.step(rest)? {
                Step::Need(bytes) => {
                    ensure!(
                        bytes <= RECORD_MAX,
                        "expected a record of at most {RECORD_MAX} bytes, seen one of {bytes}"
                    );
                    return Ok(None);
                }
                Step::Skip(behind) => *rest = behind,
                Step::Packet(behind, packet) => {
                    *rest = behind;
                    return Ok(Some(packet));
                }
            }
        }
    }

    /// Ends the capture, of which these bytes were not taken; an error if they are the beginning of
    /// something, or nothing ever came.
    pub(super) fn finish(self, rest: &[u8]) -> Result<()> {
        let is_over = rest.is_empty() && !matches!(self, Self::Unknown);
        ensure!(is_over, "expected the rest of a record, seen {} bytes of it", rest.len());
        Ok(())
    }

    fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>> {
        match self {
            Self::Unknown if bytes.starts_with(&SECTION_HEADER_BLOCK.to_be_bytes()) => {
                match PcapNgParser::new(bytes) {
                    Ok((behind, parser)) => {
                        *self = Self::Blocks(parser);
                        Ok(Step::Skip(behind))
                    }
                    Err(PcapNgParseError::IncompleteBuffer(bytes, _)) => Ok(Step::Need(bytes)),
                    Err(error) => Err(error.into()),
                }
            }
            Self::Unknown => match PcapParser::new(bytes) {
                Ok((behind, parser)) => {
                    let version = parser.header().version_major;
                    ensure!(version == 2, "expected version 2 of pcap, seen {version}");
                    *self = Self::Classic(parser);
                    Ok(Step::Skip(behind))
                }
                Err(PcapParseError::IncompleteBuffer(bytes, _)) => Ok(Step::Need(bytes)),
                Err(error) => Err(error).context("expected a capture, pcap or pcapng"),
            },
            Self::Classic(parser) => record(parser, bytes),
            Self::Blocks(parser) => block(parser, bytes),
        }
    }
}

/// A record of a classic capture.
fn record<'a>(parser: &PcapParser, bytes: &'a [u8]) -> Result<Step<'a>> {
    // The library's stricter reading refuses records that are longer than the snap length, which
    // some writers leave 0.
    let (behind, raw) = match parser.next_raw_packet(bytes) {
        Ok(read) => read,
        Err(PcapParseError::IncompleteBuffer(bytes, _)) => return Ok(Step::Need(bytes)),
        Err(error) => return Err(error.into()),
    };
    let header = parser.header();
    let unit = if header.ts_resolution == PcapTsResolution::NanoSecond { 1 } else { 1000 };
    // The upper half holds the length of a frame check sequence, if there is one.
    let link = u32::from(header.datalink) & 0xffff;
    let packet = CapturedPacket {
        time_ns: u64::from(raw.ts_sec) * 1_000_000_000 + u64::from(raw.ts_frac) * unit,
        link: link.into(),
        bytes: raw.data,
    };
    Ok(Step::Packet(behind, packet))
}

/// A block of pcapng.
fn block<'a>(parser: &mut PcapNgParser, bytes: &'a [u8]) -> Result<Step<'a>> {
    let (behind, raw) = match parser.next_raw_block(bytes) {
        Ok(read) => read,
        Err(PcapNgParseError::IncompleteBuffer(bytes, _)) => return Ok(Step::Need(bytes)),
        Err(error) => return Err(error.into()),
    };
    let version = parser.section().major_version;
    ensure!(version == 1, "expected version 1 of pcapng, seen {version}");
    let seen = parser.interfaces().len();
    ensure!(seen <= INTERFACES_MAX, "expected at most {INTERFACES_MAX} interfaces, seen {seen}");
    if raw.type_ == INTERFACE_DESCRIPTION_BLOCK {
        let seen = raw.body.len();
        ensure!(
            seen <= INTERFACE_BYTES_MAX,
            "expected at most {INTERFACE_BYTES_MAX} bytes of an interface, seen {seen}"
        );
    }
    if !matches!(raw.type_, PACKET_BLOCK | SIMPLE_PACKET_BLOCK | ENHANCED_PACKET_BLOCK) {
        return Ok(Step::Skip(behind));
    }
    let (time, interface, data) = match raw.try_into_block(parser.state())? {
        Block::EnhancedPacket(packet) => (packet.timestamp, packet.interface_id, packet.data),
        Block::Packet(packet) => (packet.timestamp, packet.interface_id.into(), packet.data),
        Block::SimplePacket(packet) => (Duration::ZERO, 0, packet.data),
        _ => return Ok(Step::Skip(behind)),
    };
    let packet = CapturedPacket {
        time_ns: time.as_nanos().try_into().unwrap_or(u64::MAX),
        link: parser.interfaces()[interface as usize].linktype,
        bytes: data,
    };
    Ok(Step::Packet(behind, packet))
}

#[cfg(test)]
mod tests;
