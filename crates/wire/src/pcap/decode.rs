//! One step through a capture: look at the bytes, say how many are needed, skipped or a packet.

use super::{CapturedPacket, RECORD_MAX};
use crate::ethernet::LinkType;
use crate::{Expected, ParseError};

pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const SECTION: u32 = 0x0a0d_0d0a;
const SECTION_ORDER: u32 = 0x1a2b_3c4d;
/// Interfaces of one section that are remembered; a capture with more is refused.
const INTERFACES_MAX: usize = 4096;

const BLOCK_INTERFACE: u32 = 1;
const BLOCK_OLD_PACKET: u32 = 2;
const BLOCK_SIMPLE_PACKET: u32 = 3;
const BLOCK_PACKET: u32 = 6;

/// What the bytes at hand turned out to be.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// This many bytes must be there before anything can be said.
    Need { bytes: usize },
    /// Nothing but structure.
    Skip { consumed: usize },
    /// A packet.
    Packet { consumed: usize, packet: CapturedPacket<'a> },
}

/// What the file's own headers said so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoder {
    format: Format,
}

#[derive(Clone, Debug, Default)]
enum Format {
    #[default]
    Unknown,
    Classic {
        big_endian: bool,
        nanoseconds: bool,
        link: LinkType,
    },
    Section {
        big_endian: bool,
        interfaces: Vec<Interface>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snap_length: u32,
    resolution: u8,
    /// Seconds to add to every time.
    offset: i64,
}

/// Integers in the byte order of the file. Positions were checked by the caller.
#[derive(Clone, Copy)]
struct Order(bool);

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = [bytes[at], bytes[at + 1]];
        if self.0 { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.0 { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (self.u32(bytes, at), self.u32(bytes, at + 4));
        let (high, low) = if self.0 { (first, second) } else { (second, first) };
        u64::from(high) << 32 | u64::from(low)
    }
}

impl Decoder {
    pub(super) const fn new() -> Self {
        Self { format: Format::Unknown }
    }

    /// True once the file said what it is.
    pub(super) const fn has_begun(&self) -> bool {
        !matches!(self.format, Format::Unknown)
    }

    pub(super) fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ParseError> {
        match self.format {
            Format::Unknown => self.begin(bytes),
            Format::Classic { big_endian, nanoseconds, link } => {
                record(Order(big_endian), nanoseconds, link, bytes)
            }
            Format::Section { big_endian, .. } => self.block(big_endian, bytes),
        }
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ParseError> {
        if bytes.len() < 24 {
            return Ok(Step::Need { bytes: 24 });
        }
        let little = Order(false).u32(bytes, 0);
        if little == SECTION {
            return self.section(bytes);
        }
        let big_endian = matches!(little.swap_bytes(), MAGIC_MICROSECONDS | MAGIC_NANOSECONDS);
        let order = Order(big_endian);
        let magic = order.u32(bytes, 0);
        if !matches!(magic, MAGIC_MICROSECONDS | MAGIC_NANOSECONDS) {
            let expected = Expected::Words("pcap or pcapng");
            return Err(ParseError::new("magic", 0, expected, magic.into()));
        }
        let major = order.u16(bytes, 4);
        if major != 2 {
            let expected = Expected::Exactly(2);
            return Err(ParseError::new("major version", 4, expected, major.into()));
        }
        self.format = Format::Classic {
            big_endian,
            nanoseconds: magic == MAGIC_NANOSECONDS,
            // The upper half holds the length of a frame check sequence, if there is one.
            link: LinkType(order.u32(bytes, 20) as u16),
        };
        Ok(Step::Skip { consumed: 24 })
    }

    /// A Section Header Block: byte order and interfaces begin anew.
    fn section<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ParseError> {
        if bytes.len() < 12 {
            return Ok(Step::Need { bytes: 12 });
        }
        let mark = Order(false).u32(bytes, 8);
        let big_endian = mark.swap_bytes() == SECTION_ORDER;
        if !big_endian && mark != SECTION_ORDER {
            let expected = Expected::Exactly(SECTION_ORDER.into());
            return Err(ParseError::new("byte-order magic", 8, expected, mark.into()));
        }
        let length = match block_length(Order(big_endian), 28, bytes)? {
            Ok(length) => length,
            Err(need) => return Ok(need),
        };
        let major = Order(big_endian).u16(bytes, 12);
        if major != 1 {
            let expected = Expected::Exactly(1);
            return Err(ParseError::new("major version", 12, expected, major.into()));
        }
        self.format = Format::Section { big_endian, interfaces: Vec::new() };
        Ok(Step::Skip { consumed: length })
    }

    fn block<'a>(&mut self, big_endian: bool, bytes: &'a [u8]) -> Result<Step<'a>, ParseError> {
        if bytes.len() < 12 {
            return Ok(Step::Need { bytes: 12 });
        }
        let order = Order(big_endian);
        let kind = order.u32(bytes, 0);
        if kind == SECTION {
            return self.section(bytes);
        }
        let least = match kind {
            BLOCK_INTERFACE => 20,
            BLOCK_PACKET | BLOCK_OLD_PACKET => 32,
            BLOCK_SIMPLE_PACKET => 16,
            _ => 12,
        };
        let consumed = match block_length(order, least, bytes)? {
            Ok(length) => length,
            Err(need) => return Ok(need),
        };
        // The trailing length is no part of the body.
        let body = &bytes[8..consumed - 4];
        let Format::Section { interfaces, .. } = &mut self.format else {
            unreachable!("blocks are read inside a section")
        };
        let packet = match kind {
            BLOCK_INTERFACE => {
                if interfaces.len() == INTERFACES_MAX {
                    let expected = Expected::AtMost(INTERFACES_MAX as u64);
                    let seen = interfaces.len() as u64 + 1;
                    return Err(ParseError::new("interfaces", 0, expected, seen));
                }
                interfaces.push(interface(order, body)?);
                return Ok(Step::Skip { consumed });
            }
            BLOCK_PACKET => {
                let interface = find(interfaces, order.u32(body, 0))?;
                timed_packet(order, interface, body)?
            }
            BLOCK_OLD_PACKET => {
                let interface = find(interfaces, order.u16(body, 0).into())?;
                timed_packet(order, interface, body)?
            }
            BLOCK_SIMPLE_PACKET => {
                let interface = find(interfaces, 0)?;
                let original_length = order.u32(body, 0);
                let limit = match interface.snap_length {
                    0 => u32::MAX,
                    limit => limit,
                };
                let length = original_length.min(limit) as usize;
                CapturedPacket {
                    time_ns: 0,
                    link: interface.link,
                    original_length,
                    bytes: &body[4..body.len().min(4usize.saturating_add(length))],
                }
            }
            _ => return Ok(Step::Skip { consumed }),
        };
        Ok(Step::Packet { consumed, packet })
    }
}

/// A record of a classic capture.
fn record(
    order: Order,
    nanoseconds: bool,
    link: LinkType,
    bytes: &[u8],
) -> Result<Step<'_>, ParseError> {
    if bytes.len() < 16 {
        return Ok(Step::Need { bytes: 16 });
    }
    let captured = order.u32(bytes, 8);
    if captured as usize > RECORD_MAX {
        let expected = Expected::AtMost(RECORD_MAX as u64);
        return Err(ParseError::new("captured length", 8, expected, captured.into()));
    }
    let consumed = 16 + captured as usize;
    if bytes.len() < consumed {
        return Ok(Step::Need { bytes: consumed });
    }
    let unit = if nanoseconds { 1 } else { 1000 };
    let fraction = u64::from(order.u32(bytes, 4)) * unit;
    let packet = CapturedPacket {
        time_ns: u64::from(order.u32(bytes, 0)) * 1_000_000_000 + fraction,
        link,
        original_length: order.u32(bytes, 12),
        bytes: &bytes[16..consumed],
    };
    Ok(Step::Packet { consumed, packet })
}

/// Length of the block at the start of `bytes`, checked at both its ends, or what is still needed.
fn block_length(
    order: Order,
    least: usize,
    bytes: &[u8],
) -> Result<Result<usize, Step<'static>>, ParseError> {
    let field = order.u32(bytes, 4);
    let length = field as usize;
    let error =
        |expected, at| Err(ParseError::new("block total length", at, expected, field.into()));
    if length < least || !length.is_multiple_of(4) {
        return error(Expected::Words("a multiple of 4 that holds the block"), 4);
    }
    if length > RECORD_MAX {
        return error(Expected::AtMost(RECORD_MAX as u64), 4);
    }
    if bytes.len() < length {
        return Ok(Err(Step::Need { bytes: length }));
    }
    let trailing = order.u32(bytes, length - 4);
    if trailing != field {
        return error(Expected::Exactly(trailing.into()), length - 4);
    }
    Ok(Ok(length))
}

fn find(interfaces: &[Interface], index: u32) -> Result<&Interface, ParseError> {
    interfaces.get(index as usize).ok_or_else(|| {
        let expected = Expected::Words("an interface described before");
        ParseError::new("interface ID", 8, expected, index.into())
    })
}

/// The body of an Interface Description Block.
fn interface(order: Order, body: &[u8]) -> Result<Interface, ParseError> {
    const OPTION_RESOLUTION: u16 = 9;
    const OPTION_OFFSET: u16 = 14;
    let mut interface = Interface {
        link: LinkType(order.u16(body, 0)),
        snap_length: order.u32(body, 4),
        resolution: 6,
        offset: 0,
    };
    let mut at = 8;
    while body.len() >= at + 4 {
        let (code, length) = (order.u16(body, at), usize::from(order.u16(body, at + 2)));
        let value = at + 4;
        if code == 0 {
            break;
        }
        if body.len() < value + length {
            let expected = Expected::AtMost((body.len() - value) as u64);
            return Err(ParseError::new("option length", 8 + at + 2, expected, length as u64));
        }
        match (code, length) {
            (OPTION_RESOLUTION, 1) => {
                let resolution = body[value];
                // 10^-19 and 2^-63 seconds are as fine as 64 bits can count.
                let limit = if resolution & 0x80 == 0 { 19 } else { 63 };
                if resolution & 0x7f > limit {
                    let expected = Expected::AtMost(limit.into());
                    let seen = u64::from(resolution & 0x7f);
                    return Err(ParseError::new("if_tsresol", 8 + value, expected, seen));
                }
                interface.resolution = resolution;
            }
            (OPTION_OFFSET, 8) => interface.offset = order.u64(body, value).cast_signed(),
            _ => {}
        }
        at = value + length.next_multiple_of(4);
    }
    Ok(interface)
}

/// The body of an Enhanced Packet Block, or of the older Packet Block: they differ in how the
/// interface is numbered alone.
fn timed_packet<'a>(
    order: Order,
    interface: &Interface,
    body: &'a [u8],
) -> Result<CapturedPacket<'a>, ParseError> {
    let ticks = u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8));
    let captured = order.u32(body, 12);
    let Some(bytes) = body.get(20..).and_then(|rest| rest.get(..captured as usize)) else {
        let expected = Expected::AtMost(body.len().saturating_sub(20) as u64);
        return Err(ParseError::new("captured length", 20, expected, captured.into()));
    };
    Ok(CapturedPacket {
        time_ns: interface.nanoseconds(ticks),
        link: interface.link,
        original_length: order.u32(body, 16),
        bytes,
    })
}

impl Interface {
    /// Ticks of this interface as nanoseconds, saturating where 64 bits end.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7f);
        let scaled = u128::from(ticks) * 1_000_000_000;
        let nanoseconds = if self.resolution & 0x80 == 0 {
            scaled / 10u128.pow(exponent)
        } else {
            scaled >> exponent
        };
        let offset = i128::from(self.offset) * 1_000_000_000;
        let total = (nanoseconds as i128).saturating_add(offset);
        u64::try_from(total.max(0)).unwrap_or(u64::MAX)
    }
}
