//! Mode parameters: how a unit behaves, as MODE SENSE returns and MODE SELECT sends them.
//!
//! ```text
//!  6    0 length | 1 medium | 2 device specific | 3 descriptor length | descriptor | pages
//! 10    0 length (16) | 2 medium | 3 device specific | 4 LONGLBA | 6 descriptor length (16) | ...
//! ```
//! [`ModeData`] is the whole in either format; pages are tables of their own ([`Caching`],
//! [`Control`], [`ErrorRecovery`], [`InformationalExceptions`]), and [`ModeData::pages`] finds them.
//! MODE DATA LENGTH does not bind what is parsed, since MODE SELECT reserves it: who reads MODE
//! SENSE cuts by [`ModeFormat::said`] first. Errors: an input that ends too early, a descriptor
//! length that is none. Spec: SPC-4, "Mode parameters"; SBC-3, "Mode parameters for direct access
//! block devices".

use super::{be16, be24, be32, be64, put};
use crate::{Expected, ParseError};

codes! {
    /// PAGE CODE of mode pages.
    pub struct ModePageCode(u8) {
        ERROR_RECOVERY = 0x01 "read-write error recovery",
        DISCONNECT_RECONNECT = 0x02 "disconnect-reconnect",
        CACHING = 0x08 "caching",
        CONTROL = 0x0a "control",
        PROTOCOL_UNIT = 0x18 "protocol specific logical unit",
        PROTOCOL_PORT = 0x19 "protocol specific port",
        POWER_CONDITION = 0x1a "power condition",
        INFORMATIONAL_EXCEPTIONS = 0x1c "informational exceptions control",
        ALL = 0x3f "all pages",
    }
}

/// Which of the two headers mode parameters have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeFormat {
    /// Of the commands with 6 bytes.
    Six,
    /// Of the commands with 10 bytes.
    Ten,
}

impl ModeFormat {
    /// Bytes of the header.
    pub const fn header(self) -> usize {
        match self {
            ModeFormat::Six => 4,
            ModeFormat::Ten => 8,
        }
    }

    /// As much of what MODE SENSE returned as MODE DATA LENGTH says.
    pub fn said(self, bytes: &[u8]) -> &[u8] {
        let said = match self {
            ModeFormat::Six => bytes.first().map_or(0, |length| usize::from(*length) + 1),
            ModeFormat::Ten if bytes.len() >= 2 => usize::from(be16(bytes, 0)) + 2,
            ModeFormat::Ten => 0,
        };
        &bytes[..bytes.len().min(said)]
    }
}

bits! {
    /// DEVICE-SPECIFIC PARAMETER of a disk.
    pub struct DeviceSpecific(u8) {
        fields {}
        flags {
            /// WP: it takes no writes.
            write_protected / with_write_protected: 7;
            /// DPOFUA: DPO and FUA may be set.
            dpo_fua / with_dpo_fua: 4;
        }
    }
}

/// A block descriptor: how many blocks of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// NUMBER OF LOGICAL BLOCKS; a short descriptor says FFFFFFFFh where it is more.
    pub blocks: u64,
    /// LOGICAL BLOCK LENGTH in bytes; a short descriptor has 24 bits of it.
    pub block_length: u32,
    /// Whether it is a long one, of 16 bytes.
    pub is_long: bool,
}

/// Mode parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeData {
    /// MEDIUM TYPE: 0 of a disk.
    pub medium_type: u8,
    /// What the medium allows.
    pub device: DeviceSpecific,
    /// The block descriptor, if there is one.
    pub descriptor: Option<BlockDescriptor>,
    /// The pages, one after the other.
    pub pages: Vec<u8>,
}

impl ModeData {
    /// The parameters as bytes. MODE DATA LENGTH of the 6-byte format is cut to a byte, and a long
    /// descriptor to a short one, since that format has no other.
    pub fn emit(&self, format: ModeFormat) -> Vec<u8> {
        let descriptor = match self.descriptor {
            Some(descriptor) if descriptor.is_long && format == ModeFormat::Ten => {
                descriptor.emit_long().to_vec()
            }
            Some(descriptor) => descriptor.emit_short().to_vec(),
            None => Vec::new(),
        };
        let mut bytes = vec![0; format.header()];
        let length = bytes.len() + descriptor.len() + self.pages.len();
        match format {
            ModeFormat::Six => {
                bytes[0] = (length - 1).min(255) as u8;
                (bytes[1], bytes[2]) = (self.medium_type, self.device.0);
                bytes[3] = descriptor.len() as u8;
            }
            ModeFormat::Ten => {
                put(&mut bytes, 0, ((length - 2).min(0xffff) as u16).to_be_bytes());
                (bytes[2], bytes[3]) = (self.medium_type, self.device.0);
                bytes[4] = u8::from(descriptor.len() == BlockDescriptor::LONG);
                put(&mut bytes, 6, (descriptor.len() as u16).to_be_bytes());
            }
        }
        bytes.extend(descriptor);
        bytes.extend(&self.pages);
        bytes
    }

    /// Reads parameters. Of several descriptors the first counts: a disk has one.
    pub fn parse(bytes: &[u8], format: ModeFormat) -> Result<Self, ParseError> {
        let header = format.header();
        if bytes.len() < header {
            return Err(ParseError::short(header, bytes.len()));
        }
        let (medium_type, device, is_long, length, at) = match format {
            ModeFormat::Six => (bytes[1], bytes[2], false, usize::from(bytes[3]), 3),
            ModeFormat::Ten => {
                (bytes[2], bytes[3], bytes[4] & 1 != 0, usize::from(be16(bytes, 6)), 6)
            }
        };
        let size = if is_long { BlockDescriptor::LONG } else { BlockDescriptor::SHORT };
        if length % size != 0 {
            let expected = Expected::Words("whole descriptors");
            let field = "BLOCK DESCRIPTOR LENGTH";
            return Err(ParseError::new(field, at, expected, length as u64));
        }
        let Some((descriptors, pages)) = bytes[header..].split_at_checked(length) else {
            return Err(ParseError::short(header + length, bytes.len()));
        };
        let descriptor = (length > 0).then(|| BlockDescriptor::parse(descriptors, is_long));
        let device = DeviceSpecific(device);
        Ok(Self { medium_type, device, descriptor, pages: pages.to_vec() })
    }

    /// The pages one after the other, until one is cut.
    pub fn pages(&self) -> ModePages<'_> {
        ModePages { bytes: &self.pages, at: 0 }
    }

    /// The page of this code, without its subpages.
    pub fn page(&self, code: ModePageCode) -> Option<&[u8]> {
        let found = self.pages().map_while(Result::ok);
        let mut found = found.filter(|page| page.code == code && page.subpage.is_none());
        found.next().map(|page| page.bytes)
    }
}

impl BlockDescriptor {
    /// Bytes of a short descriptor.
    pub const SHORT: usize = 8;
    /// Bytes of a long one.
    pub const LONG: usize = 16;

    fn emit_short(self) -> [u8; Self::SHORT] {
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        let mut bytes = [0; Self::SHORT];
        put(&mut bytes, 4, self.block_length.to_be_bytes());
        bytes[4] = 0;
        put(&mut bytes, 0, blocks.to_be_bytes());
        bytes
    }

    fn emit_long(self) -> [u8; Self::LONG] {
        let mut bytes = [0; Self::LONG];
        put(&mut bytes, 0, self.blocks.to_be_bytes());
        put(&mut bytes, 12, self.block_length.to_be_bytes());
        bytes
    }

    /// Reads one that is there.
    fn parse(bytes: &[u8], is_long: bool) -> Self {
        match is_long {
            true => Self { blocks: be64(bytes, 0), block_length: be32(bytes, 12), is_long },
            false => Self { blocks: be32(bytes, 0).into(), block_length: be24(bytes, 5), is_long },
        }
    }
}

/// A page as it lies in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePage<'a> {
    /// PAGE CODE.
    pub code: ModePageCode,
    /// SUBPAGE CODE, of a page in the subpage format (SPF).
    pub subpage: Option<u8>,
    /// All of the page, its header included.
    pub bytes: &'a [u8],
    /// Where in the list it begins.
    pub at: usize,
}

/// The pages of a list; see [`ModeData::pages`].
#[derive(Clone, Debug)]
pub struct ModePages<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for ModePages<'a> {
    type Item = Result<ModePage<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, left) = (self.at, self.bytes.get(self.at..).filter(|left| !left.is_empty())?);
        let has_subpage = left[0] & 0x40 != 0;
        let length = match (has_subpage, left) {
            (false, [_, length, ..]) => Some(2 + usize::from(*length)),
            (true, [_, _, a, b, ..]) => Some(4 + usize::from(u16::from_be_bytes([*a, *b]))),
            _ => None,
        };
        let Some(page) = length.and_then(|length| left.get(..length)) else {
            self.at = self.bytes.len();
            return Some(Err(ParseError::short(at + length.unwrap_or(4), self.bytes.len())));
        };
        self.at += page.len();
        let subpage = has_subpage.then(|| page[1]);
        Some(Ok(ModePage { code: ModePageCode(left[0] & 0x3f), subpage, bytes: page, at }))
    }
}

macro_rules! mode_page {
    ($name:ident, $code:ident) => {
        impl $name {
            /// The page without a word, under its code and with its length.
            pub fn new() -> Self {
                let length = (Self::SIZE - 2) as u8;
                Self { page: ModePageCode::$code, length, ..Self::default() }
            }
        }
    };
}

layout! { big_endian:
    /// Read-write error recovery, 01h.
    pub struct ErrorRecovery[12] {
        /// PS in bit 7, 01h.
        0 => page: ModePageCode,
        /// 0Ah.
        1 => length: u8,
        /// AWRE, ARRE, TB, RC, EER, PER, DTE, DCR.
        2 => flags: u8,
        /// READ RETRY COUNT.
        3 => read_retries: u8,
        /// WRITE RETRY COUNT.
        8 => write_retries: u8,
        /// RECOVERY TIME LIMIT, milliseconds.
        10 => recovery_limit_ms: u16,
    }
}
mode_page!(ErrorRecovery, ERROR_RECOVERY);

bits! {
    /// Byte 2 of the caching page.
    pub struct CachingFlags(u8) {
        fields {}
        flags {
            /// WCE: writes end in a volatile cache.
            write_cache / with_write_cache: 2;
            /// RCD: reads are not answered from a cache.
            read_cache_disabled / with_read_cache_disabled: 0;
        }
    }
}

layout! { big_endian:
    /// Caching, 08h.
    pub struct Caching[20] {
        /// PS in bit 7, 08h.
        0 => page: ModePageCode,
        /// 12h.
        1 => length: u8,
        /// Which caches are on.
        2 => flags: CachingFlags,
    }
}
mode_page!(Caching, CACHING);

bits! {
    /// Bytes 2 to 5 of the control page.
    pub struct ControlFlags(u32) {
        fields {
            /// TST: 1 for a task set of each nexus.
            task_set_type / with_task_set_type: 29, 3;
            /// QUEUE ALGORITHM MODIFIER: 1 lets simple tasks be done in any order.
            queue_algorithm / with_queue_algorithm: 20, 4;
            /// QERR: what CHECK CONDITION does to the other tasks.
            queue_error / with_queue_error: 17, 2;
            /// UA_INTLCK_CTRL.
            attention_interlock / with_attention_interlock: 12, 2;
        }
        flags {
            /// D_SENSE: sense data come with descriptors.
            descriptor_sense / with_descriptor_sense: 26;
            /// SWP: writes are refused.
            software_write_protect / with_software_write_protect: 11;
            /// TAS: tasks that another nexus aborts end with TASK ABORTED.
            task_aborted_status / with_task_aborted_status: 6;
        }
    }
}

layout! { big_endian:
    /// Control, 0Ah.
    pub struct Control[12] {
        /// PS in bit 7, 0Ah.
        0 => page: ModePageCode,
        /// 0Ah.
        1 => length: u8,
        /// How it behaves.
        2 => flags: ControlFlags,
        /// BUSY TIMEOUT PERIOD, 100 milliseconds, FFFFh without a limit.
        8 => busy_timeout: u16,
    }
}
mode_page!(Control, CONTROL);

layout! { big_endian:
    /// Informational exceptions control, 1Ch.
    pub struct InformationalExceptions[12] {
        /// PS in bit 7, 1Ch.
        0 => page: ModePageCode,
        /// 0Ah.
        1 => length: u8,
        /// PERF, EBF, EWASC, DEXCPT (bit 3), TEST, EBACKERR, LOGERR.
        2 => flags: u8,
        /// MRIE, bits 3:0: 0 reports none.
        3 => method: u8,
        /// INTERVAL TIMER, 100 milliseconds.
        4 => interval: u32,
        /// REPORT COUNT.
        8 => report_count: u32,
    }
}
mode_page!(InformationalExceptions, INFORMATIONAL_EXCEPTIONS);

#[cfg(test)]
mod tests;
