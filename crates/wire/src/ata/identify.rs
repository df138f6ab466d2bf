//! IDENTIFY DEVICE: 256 little-endian words that describe a disk. [`IdentifyDevice`] is what they
//! mean; it is built for a volume and read from a target.
//!
//! Strings are ASCII, padded with spaces, the two characters of each word swapped. Words not named
//! here are 0. The values of words 47 to 93 are those that vblade and ggaoed send, so that no
//! initiator sees anything new. Spec: ATA8-ACS, "IDENTIFY DEVICE"; the words that initiators look
//! at are 60, 83, 86 and 100 (Linux, iPXE), 82 (aoeping).

use core::fmt;

use crate::ParseError;
use crate::aoe::SECTOR;

/// What a disk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifyDevice {
    /// Serial number, padded with spaces.
    pub serial: [u8; 20],
    /// Firmware revision, padded with spaces.
    pub firmware: [u8; 8],
    /// Model, padded with spaces.
    pub model: [u8; 40],
    /// Sectors of 512 bytes: below 2^48 if it has 48-bit addresses, else at most 2^28 - 1.
    pub sectors: u64,
    /// Whether it takes EXT commands.
    pub lba48: bool,
    /// Whether it takes FLUSH CACHE.
    pub flush: bool,
    /// Whether it takes FLUSH CACHE EXT.
    pub flush_ext: bool,
    /// Whether completed writes may be lost with the power: it has a write cache, and it is on.
    pub write_cache: bool,
    /// Whether it takes SMART.
    pub smart: bool,
    /// Whether it takes DATA SET MANAGEMENT with TRIM.
    pub trim: bool,
    /// Sectors of a physical sector, as a power of two: 3 for 4096 bytes; at most 15.
    pub physical_exponent: u8,
}

/// The most sectors that 28 bits can say.
pub const SECTORS_28_MAX: u64 = 0x0fff_ffff;
/// The most sectors that 48 bits can say.
pub const SECTORS_48_MAX: u64 = 0xffff_ffff_ffff;

// Words.
const GENERAL: usize = 0;
const SERIAL: usize = 10;
const FIRMWARE: usize = 23;
const MODEL: usize = 27;
const MULTIPLE: usize = 47;
const CAPABILITIES: usize = 49;
const CAPABILITIES_2: usize = 50;
const SECTORS_28: usize = 60;
const MAJOR_VERSION: usize = 80;
const SUPPORTED_1: usize = 82;
const SUPPORTED_2: usize = 83;
const SUPPORTED_3: usize = 84;
const ENABLED_1: usize = 85;
const ENABLED_2: usize = 86;
const ENABLED_3: usize = 87;
const RESET: usize = 93;
const SECTORS_48: usize = 100;
const TRIM_BLOCKS_MAX: usize = 105;
const PHYSICAL: usize = 106;
const DATA_SET: usize = 169;
const INTEGRITY: usize = 255;

// Bits.
const SMART: u16 = 1 << 0;
const WRITE_CACHE: u16 = 1 << 5;
const LBA48: u16 = 1 << 10;
const FLUSH: u16 = 1 << 12;
const FLUSH_EXT: u16 = 1 << 13;
/// Words that say nothing are told from words that say "nothing" by this one.
const VALID: u16 = 1 << 14;
const PHYSICAL_IS_LARGER: u16 = 1 << 13;

impl IdentifyDevice {
    /// Size in bytes.
    pub const SIZE: usize = SECTOR;

    /// Reads the words; the only error is an input that ends before them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        let word = |at: usize| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let number = |at: usize, words: usize| {
            (0..words).fold(0, |sum, index| sum | u64::from(word(at + index)) << (16 * index))
        };
        // Both say so in targets that exist; some set one of them alone.
        let valid = |at: usize| if word(at) & 0xc000 == VALID { word(at) } else { 0 };
        let features = valid(SUPPORTED_2) | word(ENABLED_2);
        let lba48 = features & LBA48 != 0;
        let sectors = match lba48 {
            true => number(SECTORS_48, 4).min(SECTORS_48_MAX),
            false => number(SECTORS_28, 2).min(SECTORS_28_MAX),
        };
        let physical = valid(PHYSICAL);
        Ok(Self {
            serial: swapped(bytes, SERIAL),
            firmware: swapped(bytes, FIRMWARE),
            model: swapped(bytes, MODEL),
            sectors,
            lba48,
            flush: features & FLUSH != 0,
            flush_ext: features & FLUSH_EXT != 0,
            write_cache: word(ENABLED_1) & WRITE_CACHE != 0,
            smart: word(SUPPORTED_1) & SMART != 0,
            trim: word(DATA_SET) & 1 != 0,
            physical_exponent: if physical & PHYSICAL_IS_LARGER != 0 {
                (physical & 0xf) as u8
            } else {
                0
            },
        })
    }

    /// The words as bytes, with a checksum at their end.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut put = |at: usize, value: u16| {
            bytes[2 * at..2 * at + 2].copy_from_slice(&value.to_le_bytes());
        };
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let features =
            bit(self.lba48, LBA48) | bit(self.flush, FLUSH) | bit(self.flush_ext, FLUSH_EXT);
        let first = bit(self.smart, SMART) | bit(self.write_cache, WRITE_CACHE);
        put(GENERAL, 0x0040);
        put(MULTIPLE, 0x8000);
        // LBA and DMA.
        put(CAPABILITIES, 0x0300);
        put(CAPABILITIES_2, VALID);
        let short = self.sectors.min(SECTORS_28_MAX);
        put(SECTORS_28, short as u16);
        put(SECTORS_28 + 1, (short >> 16) as u16);
        put(MAJOR_VERSION, 0x01f0);
        put(SUPPORTED_1, first);
        put(SUPPORTED_2, VALID | features);
        put(SUPPORTED_3, VALID);
        put(ENABLED_1, first);
        put(ENABLED_2, features);
        put(ENABLED_3, VALID);
        put(RESET, 0x400b);
        if self.lba48 {
            for index in 0..4 {
                put(SECTORS_48 + index, (self.sectors >> (16 * index)) as u16);
            }
        }
        if self.trim {
            put(TRIM_BLOCKS_MAX, 1);
            put(DATA_SET, 1);
        }
        if self.physical_exponent > 0 {
            put(PHYSICAL, VALID | PHYSICAL_IS_LARGER | u16::from(self.physical_exponent & 0xf));
        }
        swap_into(&mut bytes, SERIAL, &self.serial);
        swap_into(&mut bytes, FIRMWARE, &self.firmware);
        swap_into(&mut bytes, MODEL, &self.model);
        bytes[2 * INTEGRITY] = 0xa5;
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[2 * INTEGRITY + 1] = 0u8.wrapping_sub(sum);
        bytes
    }
}

fn swapped<const N: usize>(bytes: &[u8; SECTOR], word: usize) -> [u8; N] {
    core::array::from_fn(|at| bytes[2 * word + (at ^ 1)])
}

fn swap_into(bytes: &mut [u8; SECTOR], word: usize, text: &[u8]) {
    for (at, byte) in text.iter().enumerate() {
        bytes[2 * word + (at ^ 1)] = *byte;
    }
}

impl fmt::Display for IdentifyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.trim_ascii().escape_ascii().to_string();
        write!(
            f,
            "{} {} serial {} sectors {}",
            text(&self.model),
            text(&self.firmware),
            text(&self.serial),
            self.sectors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii_field;

    fn device(sectors: u64) -> IdentifyDevice {
        IdentifyDevice {
            serial: ascii_field("0123456789abcdef"),
            firmware: ascii_field("1.0"),
            model: ascii_field("Plateway"),
            sectors,
            lba48: true,
            flush: true,
            flush_ext: true,
            write_cache: false,
            smart: true,
            trim: true,
            physical_exponent: 3,
        }
    }

    fn word(bytes: &[u8; 512], at: usize) -> u16 {
        u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]])
    }

    #[test]
    fn the_words_that_initiators_look_at() {
        let bytes = device(1 << 21).emit();
        assert_eq!(&bytes[20..40], b"1032547698badcfe    ");
        assert_eq!(&bytes[46..54], b".1 0    ");
        assert_eq!(&bytes[54..62], b"lPtaweya");
        let words = [
            (0, 0x0040),
            (47, 0x8000),
            (49, 0x0300),
            (50, 0x4000),
            (80, 0x01f0),
            (82, 0x0001),
            (83, 0x7400),
            (84, 0x4000),
            (85, 0x0001),
            (86, 0x3400),
            (87, 0x4000),
            (93, 0x400b),
            (105, 1),
            (106, 0x6003),
            (169, 1),
        ];
        for (at, value) in words {
            assert_eq!(word(&bytes, at), value, "word {at}");
        }
        assert_eq!(IdentifyDevice::parse(&bytes), Ok(device(1 << 21)));
        assert_eq!(device(9).to_string(), "Plateway 1.0 serial 0123456789abcdef sectors 9");
    }

    #[test]
    fn sizes_around_28_bits_are_right_in_both_places() {
        for (sectors, short) in [
            ((1 << 28) - 1, 0x0fff_ffff_u32),
            (1 << 28, 0x0fff_ffff),
            ((1 << 28) + 1, 0x0fff_ffff),
            (77, 77),
            (SECTORS_48_MAX, 0x0fff_ffff),
        ] {
            let bytes = device(sectors).emit();
            let seen = u32::from(word(&bytes, 61)) << 16 | u32::from(word(&bytes, 60));
            assert_eq!(seen, short);
            let long: u64 = (0..4).map(|at| u64::from(word(&bytes, 100 + at)) << (16 * at)).sum();
            assert_eq!(long, sectors);
            assert_eq!(IdentifyDevice::parse(&bytes).unwrap().sectors, sectors);
        }
    }

    #[test]
    fn the_checksum_makes_the_sum_zero() {
        let bytes = device(5).emit();
        assert_eq!(bytes[510], 0xa5);
        assert_eq!(bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
    }

    /// vblade 25 as it answers: its words 83 and 86 say LBA48 and FLUSH CACHE, word 106 is 0.
    #[test]
    fn a_target_that_says_less_is_read() {
        let mut bytes = [0; 512];
        for (at, value) in [
            (47, 0x8000_u16),
            (49, 0x0200),
            (50, 0x4000),
            (60, 0x2000),
            (83, 0x5400),
            (84, 0x4000),
            (86, 0x1400),
            (87, 0x4000),
            (93, 0x400b),
            (100, 0x2000),
        ] {
            bytes[2 * at..2 * at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let seen = IdentifyDevice::parse(&bytes).unwrap();
        assert_eq!((seen.sectors, seen.lba48, seen.flush), (0x2000, true, true));
        assert!(!seen.flush_ext && !seen.write_cache && !seen.smart && !seen.trim);
        assert_eq!(seen.physical_exponent, 0);
    }
}
