//! READ CAPACITY: how many blocks of which size.
//!
//! The last LBA is said, not the number of blocks; READ CAPACITY(10) says FFFFFFFFh where it does
//! not fit 32 bits. Errors: an input that ends too early. Spec: SBC-3, "READ CAPACITY (10) command",
//! "READ CAPACITY (16) command".

use core::fmt;

use crate::ParseError;

layout! { big_endian:
    /// The data of READ CAPACITY(10).
    pub struct Capacity10[8] {
        /// RETURNED LOGICAL BLOCK ADDRESS: the last one, or FFFFFFFFh.
        0 => last_lba: u32,
        /// LOGICAL BLOCK LENGTH IN BYTES.
        4 => block_length: u32,
    }
}

bits! {
    /// Byte 12: protection information.
    pub struct CapacityProtection(u8) {
        fields {
            /// P_TYPE.
            protection_type / with_protection_type: 1, 3;
        }
        flags {
            /// PROT_EN.
            enabled / with_enabled: 0;
        }
    }
}

bits! {
    /// Bytes 14 and 15.
    pub struct CapacityProvisioning(u16) {
        fields {
            /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS.
            lowest_aligned / with_lowest_aligned: 0, 14;
        }
        flags {
            /// LBPME: blocks can be unmapped.
            managed / with_managed: 15;
            /// LBPRZ: what is unmapped reads as zeros.
            reads_zeros / with_reads_zeros: 14;
        }
    }
}

layout! { big_endian:
    /// The data of READ CAPACITY(16).
    pub struct Capacity16[32] {
        /// RETURNED LOGICAL BLOCK ADDRESS: the last one.
        0 => last_lba: u64,
        /// LOGICAL BLOCK LENGTH IN BYTES.
        8 => block_length: u32,
        /// Protection information.
        12 => protection: CapacityProtection,
        /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, bits 3:0.
        13 => physical_exponent: u8,
        /// Whether and how blocks can be unmapped, and where physical blocks begin.
        14 => provisioning: CapacityProvisioning,
    }
}

impl Capacity10 {
    /// Of so many blocks, which are 1 or more.
    pub fn of(blocks: u64, block_length: u32) -> Self {
        let last_lba = u32::try_from(blocks.saturating_sub(1)).unwrap_or(u32::MAX);
        Self { last_lba, block_length }
    }

    /// The number of blocks, unless READ CAPACITY(16) has to be asked.
    pub fn blocks(&self) -> Option<u64> {
        (self.last_lba != u32::MAX).then(|| u64::from(self.last_lba) + 1)
    }
}

impl Capacity16 {
    /// Bytes that tell the size: what a unit of SBC-2 sends.
    pub const SIZE_MIN: usize = 12;

    /// Reads what is there, 12 bytes or more; the rest is zero.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::SIZE_MIN {
            return Err(ParseError::short(Self::SIZE_MIN, bytes.len()));
        }
        let there = bytes.len().min(Self::SIZE);
        let mut all = [0; Self::SIZE];
        all[..there].copy_from_slice(&bytes[..there]);
        Self::parse(&all)
    }

    /// The number of blocks, unless it does not fit 64 bits.
    pub fn blocks(&self) -> Option<u64> {
        self.last_lba.checked_add(1)
    }
}

impl fmt::Display for Capacity10 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "last lba {} block length {}", self.last_lba, self.block_length)
    }
}

impl fmt::Display for Capacity16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "last lba {} block length {}", self.last_lba, self.block_length)?;
        if self.provisioning.managed() {
            f.write_str(" can be unmapped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_unit_both_ways() {
        let capacity = Capacity10::of(2048, 512);
        assert_eq!(capacity.emit(), [0, 0, 7, 0xff, 0, 0, 2, 0]);
        assert_eq!(Capacity10::parse(&capacity.emit()), Ok(capacity));
        assert_eq!(capacity.blocks(), Some(2048));
    }

    #[test]
    fn what_does_not_fit_32_bits_is_left_to_the_other_command() {
        assert_eq!(Capacity10::of(1 << 32, 512).last_lba, u32::MAX);
        assert_eq!(Capacity10::of((1 << 32) - 1, 512).last_lba, u32::MAX - 1);
        assert_eq!(Capacity10::of(1 << 40, 512).blocks(), None);
    }

    #[test]
    fn a_thin_unit_both_ways() {
        let provisioning = CapacityProvisioning(0).with_managed(true).with_reads_zeros(true);
        let capacity = Capacity16 {
            last_lba: (1 << 40) - 1,
            block_length: 512,
            physical_exponent: 3,
            provisioning,
            ..Capacity16::default()
        };
        let bytes = capacity.emit();
        assert_eq!(bytes[..8], [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[8..16], [0, 0, 2, 0, 0, 3, 0xc0, 0]);
        assert_eq!(Capacity16::parse(&bytes), Ok(capacity));
        assert_eq!(capacity.blocks(), Some(1 << 40));
        let short = Capacity16::read(&bytes[..12]).expect("12 bytes");
        assert_eq!((short.last_lba, short.physical_exponent), (capacity.last_lba, 0));
        assert!(Capacity16::read(&bytes[..11]).is_err());
    }
}
