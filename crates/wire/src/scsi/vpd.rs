//! Vital product data: the pages of INQUIRY with EVPD.
//!
//! ```text
//!  0 peripheral | 1 page code | 2 length of what follows (16) | 4 the page
//! ```
//! Pages of a fixed size are tables with the standard's offsets, header included ([`BlockLimits`],
//! [`BlockCharacteristics`], [`BlockProvisioning`], [`ExtendedInquiry`]); the others are made by
//! [`page()`] of their body and read by [`body()`]. Units: blocks are logical blocks unless a field
//! says otherwise. Errors: an input that ends too early, or another page than was asked for. Spec:
//! SPC-4, "Vital product data parameters"; SBC-3, "Vital product data (VPD) parameters".

use super::inquiry::Peripheral;
use super::{be16, put};
use crate::{Expected, ParseError};

mod designator;
mod third_party;

pub use designator::{Association, CodeSet, Designator, DesignatorKind, DesignatorList};
pub use third_party::ThirdPartyCopy;

codes! {
    /// PAGE CODE of vital product data.
    pub struct VpdPage(u8) {
        SUPPORTED_PAGES = 0x00 "supported VPD pages",
        UNIT_SERIAL_NUMBER = 0x80 "unit serial number",
        DEVICE_IDENTIFICATION = 0x83 "device identification",
        EXTENDED_INQUIRY = 0x86 "extended INQUIRY data",
        MODE_PAGE_POLICY = 0x87 "mode page policy",
        SCSI_PORTS = 0x88 "SCSI ports",
        THIRD_PARTY_COPY = 0x8f "third-party copy",
        BLOCK_LIMITS = 0xb0 "block limits",
        BLOCK_CHARACTERISTICS = 0xb1 "block device characteristics",
        BLOCK_PROVISIONING = 0xb2 "logical block provisioning",
    }
}

/// Bytes in front of every page.
pub const HEADER: usize = 4;

/// A page with this body. Panics if the body is longer than its length can say.
pub fn page(peripheral: Peripheral, code: VpdPage, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a page is shorter than 64 KiB");
    let mut bytes = vec![0; HEADER];
    (bytes[0], bytes[1]) = (peripheral.0, code.0);
    put(&mut bytes, 2, length.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The body of a page, as much of it as is there.
pub fn body(bytes: &[u8], code: VpdPage) -> Result<&[u8], ParseError> {
    if bytes.len() < HEADER {
        return Err(ParseError::short(HEADER, bytes.len()));
    }
    if bytes[1] != code.0 {
        let expected = Expected::Exactly(code.0.into());
        return Err(ParseError::new("PAGE CODE", 1, expected, bytes[1].into()));
    }
    let body = &bytes[HEADER..];
    Ok(&body[..body.len().min(be16(bytes, 2).into())])
}

/// Reads a page of a fixed size: of an older standard it may be shorter, and the rest is zero.
fn padded<const N: usize>(bytes: &[u8], code: VpdPage) -> Result<[u8; N], ParseError> {
    let body = body(bytes, code)?;
    let there = body.len().min(N - HEADER);
    let mut all = [0; N];
    all[..HEADER].copy_from_slice(&bytes[..HEADER]);
    all[HEADER..HEADER + there].copy_from_slice(&body[..there]);
    Ok(all)
}

macro_rules! fixed_page {
    ($name:ident, $code:ident) => {
        impl $name {
            /// The page without a word, under its code and with its length.
            pub fn new(peripheral: Peripheral) -> Self {
                let length = (Self::SIZE - HEADER) as u16;
                Self { peripheral, page: VpdPage::$code, length, ..Self::default() }
            }

            /// Reads the page as a unit sent it; what is missing of it is zero.
            pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
                Self::parse(&padded::<{ Self::SIZE }>(bytes, VpdPage::$code)?)
            }
        }
    };
}

bits! {
    /// Bytes 4 to 7 of the extended INQUIRY data.
    pub struct ExtendedFlags(u32) {
        fields {}
        flags {
            /// SIMPSUP: simple tasks.
            simple / with_simple: 16;
            /// ORDSUP: ordered tasks.
            ordered / with_ordered: 17;
            /// HEADSUP: head of queue tasks.
            head_of_queue / with_head_of_queue: 18;
            /// GROUP_SUP: group numbers.
            groups / with_groups: 20;
            /// V_SUP: there is a volatile cache.
            volatile_cache / with_volatile_cache: 8;
            /// LUICLR: a unit's tasks are cleared with an I_T nexus.
            clears_with_nexus / with_clears_with_nexus: 0;
        }
    }
}

layout! { big_endian:
    /// Extended INQUIRY data, 86h.
    pub struct ExtendedInquiry[64] {
        /// What the unit is.
        0 => peripheral: Peripheral,
        /// 86h.
        1 => page: VpdPage,
        /// 3Ch.
        2 => length: u16,
        /// What the unit supports.
        4 => flags: ExtendedFlags,
        /// MAXIMUM SUPPORTED SENSE DATA LENGTH, 0 for no word.
        13 => sense_length_max: u8,
    }
}
fixed_page!(ExtendedInquiry, EXTENDED_INQUIRY);

bits! {
    /// Byte 4 of the block limits.
    pub struct LimitFlags(u8) {
        fields {}
        flags {
            /// WSNZ: WRITE SAME of no blocks is refused.
            write_same_non_zero / with_write_same_non_zero: 0;
        }
    }
}

layout! { big_endian:
    /// Block limits, B0h: 0 is "no word" in every field.
    pub struct BlockLimits[64] {
        /// What the unit is.
        0 => peripheral: Peripheral,
        /// B0h.
        1 => page: VpdPage,
        /// 3Ch.
        2 => length: u16,
        /// WSNZ.
        4 => flags: LimitFlags,
        /// MAXIMUM COMPARE AND WRITE LENGTH; 0: the command is not there.
        5 => compare_and_write_max: u8,
        /// OPTIMAL TRANSFER LENGTH GRANULARITY.
        6 => transfer_granularity: u16,
        /// MAXIMUM TRANSFER LENGTH.
        8 => transfer_max: u32,
        /// OPTIMAL TRANSFER LENGTH.
        12 => transfer_optimal: u32,
        /// MAXIMUM PREFETCH LENGTH.
        16 => prefetch_max: u32,
        /// MAXIMUM UNMAP LBA COUNT; FFFFFFFFh: no limit; 0: the command is not there.
        20 => unmap_blocks_max: u32,
        /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT, likewise.
        24 => unmap_descriptors_max: u32,
        /// OPTIMAL UNMAP GRANULARITY.
        28 => unmap_granularity: u32,
        /// UGAVALID in bit 31, UNMAP GRANULARITY ALIGNMENT.
        32 => unmap_alignment: u32,
        /// MAXIMUM WRITE SAME LENGTH.
        36 => write_same_max: u64,
        /// MAXIMUM ATOMIC TRANSFER LENGTH; 0: the commands are not there.
        44 => atomic_max: u32,
        /// ATOMIC ALIGNMENT.
        48 => atomic_alignment: u32,
        /// ATOMIC TRANSFER LENGTH GRANULARITY.
        52 => atomic_granularity: u32,
    }
}
fixed_page!(BlockLimits, BLOCK_LIMITS);

layout! { big_endian:
    /// Block device characteristics, B1h.
    pub struct BlockCharacteristics[64] {
        /// What the unit is.
        0 => peripheral: Peripheral,
        /// B1h.
        1 => page: VpdPage,
        /// 3Ch.
        2 => length: u16,
        /// MEDIUM ROTATION RATE: 0 no word, 1 does not rotate, else a minute.
        4 => rotation_rate: u16,
        /// PRODUCT TYPE.
        6 => product_type: u8,
        /// NOMINAL FORM FACTOR, bits 3:0.
        7 => form_factor: u8,
    }
}
fixed_page!(BlockCharacteristics, BLOCK_CHARACTERISTICS);

bits! {
    /// Byte 5 of the logical block provisioning page.
    pub struct ProvisioningFlags(u8) {
        fields {}
        flags {
            /// LBPU: UNMAP unmaps.
            unmap / with_unmap: 7;
            /// LBPWS: WRITE SAME(16) unmaps.
            write_same_16 / with_write_same_16: 6;
            /// LBPWS10: WRITE SAME(10) unmaps.
            write_same_10 / with_write_same_10: 5;
            /// LBPRZ: what is unmapped reads as zeros.
            reads_zeros / with_reads_zeros: 2;
            /// ANC_SUP: blocks can be anchored.
            anchors / with_anchors: 1;
        }
    }
}

layout! { big_endian:
    /// Logical block provisioning, B2h.
    pub struct BlockProvisioning[8] {
        /// What the unit is.
        0 => peripheral: Peripheral,
        /// B2h.
        1 => page: VpdPage,
        /// 4.
        2 => length: u16,
        /// THRESHOLD EXPONENT.
        4 => threshold_exponent: u8,
        /// What unmaps.
        5 => flags: ProvisioningFlags,
        /// PROVISIONING TYPE, bits 2:0: 0 no word, 1 resource, 2 thin.
        6 => kind: u8,
        /// THRESHOLD PERCENTAGE.
        7 => threshold_percentage: u8,
    }
}
fixed_page!(BlockProvisioning, BLOCK_PROVISIONING);

#[cfg(test)]
mod tests;
