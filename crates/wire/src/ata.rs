//! ATA, as far as it travels in AoE frames: commands, the status and error registers, and IDENTIFY
//! DEVICE.
//!
//! Here: what the codes are called and which way a command moves data. Not here: what a target
//! makes of a command. Units: sectors of 512 bytes. Spec: ATA8-ACS; AoEr11, "ATA command".

pub mod identify;

use core::fmt;

pub use identify::IdentifyDevice;

codes! {
    /// An ATA command.
    pub struct Opcode(u8) {
        DATA_SET_MANAGEMENT = 0x06 "DATA SET MANAGEMENT",
        READ_SECTORS = 0x20 "READ SECTORS",
        READ_SECTORS_EXT = 0x24 "READ SECTORS EXT",
        READ_DMA_EXT = 0x25 "READ DMA EXT",
        READ_NATIVE_MAX_EXT = 0x27 "READ NATIVE MAX EXT",
        WRITE_SECTORS = 0x30 "WRITE SECTORS",
        WRITE_SECTORS_EXT = 0x34 "WRITE SECTORS EXT",
        WRITE_DMA_EXT = 0x35 "WRITE DMA EXT",
        READ_VERIFY = 0x40 "READ VERIFY",
        READ_VERIFY_EXT = 0x42 "READ VERIFY EXT",
        WRITE_UNCORRECTABLE_EXT = 0x45 "WRITE UNCORRECTABLE EXT",
        SMART = 0xb0 "SMART",
        READ_DMA = 0xc8 "READ DMA",
        WRITE_DMA = 0xca "WRITE DMA",
        CHECK_POWER_MODE = 0xe5 "CHECK POWER MODE",
        FLUSH_CACHE = 0xe7 "FLUSH CACHE",
        FLUSH_CACHE_EXT = 0xea "FLUSH CACHE EXT",
        IDENTIFY_DEVICE = 0xec "IDENTIFY DEVICE",
        SET_FEATURES = 0xef "SET FEATURES",
        READ_NATIVE_MAX = 0xf8 "READ NATIVE MAX",
    }
}

/// Which way a command moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data, or a command that is not known.
    None,
    /// From the device.
    In,
    /// To the device.
    Out,
}

impl Opcode {
    /// Whether its LBA has 48 bits.
    #[inline]
    pub const fn is_extended(self) -> bool {
        matches!(
            self,
            Self::DATA_SET_MANAGEMENT
                | Self::READ_SECTORS_EXT
                | Self::READ_DMA_EXT
                | Self::READ_NATIVE_MAX_EXT
                | Self::WRITE_SECTORS_EXT
                | Self::WRITE_DMA_EXT
                | Self::READ_VERIFY_EXT
                | Self::WRITE_UNCORRECTABLE_EXT
                | Self::FLUSH_CACHE_EXT
        )
    }

    /// Which way it moves data; SMART, where a feature decides, counts as none.
    #[inline]
    pub const fn direction(self) -> Direction {
        match self {
            Self::READ_SECTORS
            | Self::READ_SECTORS_EXT
            | Self::READ_DMA
            | Self::READ_DMA_EXT
            | Self::IDENTIFY_DEVICE => Direction::In,
            Self::WRITE_SECTORS
            | Self::WRITE_SECTORS_EXT
            | Self::WRITE_DMA
            | Self::WRITE_DMA_EXT
            | Self::DATA_SET_MANAGEMENT => Direction::Out,
            _ => Direction::None,
        }
    }
}

/// The Features register of SMART, with lba1 and lba2 as [`smart::SIGNATURE`].
pub mod smart {
    /// SMART READ DATA.
    pub const READ_DATA: u8 = 0xd0;
    /// SMART ENABLE OPERATIONS.
    pub const ENABLE: u8 = 0xd8;
    /// SMART DISABLE OPERATIONS.
    pub const DISABLE: u8 = 0xd9;
    /// SMART RETURN STATUS.
    pub const RETURN_STATUS: u8 = 0xda;
    /// lba1 and lba2 of every SMART command, and of the answer of a device that is well.
    pub const SIGNATURE: [u8; 2] = [0x4f, 0xc2];
}

/// The Features register of SET FEATURES.
pub mod feature {
    /// Set the transfer mode: means nothing on Ethernet.
    pub const TRANSFER_MODE: u8 = 0x03;
    /// Disable the volatile write cache.
    pub const DISABLE_WRITE_CACHE: u8 = 0x82;
}

/// The Features register of DATA SET MANAGEMENT: TRIM.
pub const TRIM: u8 = 0x01;

/// A range of DATA SET MANAGEMENT: 8 bytes, 48 bits of LBA and 16 of count, little-endian. A count
/// of 0 is an unused entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// The first sector.
    pub lba: u64,
    /// Sectors.
    pub count: u16,
}

impl TrimRange {
    /// Size in bytes.
    pub const SIZE: usize = 8;

    /// Reads the range.
    pub const fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { lba: word & 0xffff_ffff_ffff, count: (word >> 48) as u16 }
    }

    /// The range as bytes; the address is cut to 48 bits.
    pub const fn emit(self) -> [u8; Self::SIZE] {
        (self.lba & 0xffff_ffff_ffff | (self.count as u64) << 48).to_le_bytes()
    }
}

bits! {
    /// The status register.
    pub struct Status(u8) {
        fields {}
        flags {
            /// DF.
            device_fault / with_device_fault: 5;
        }
    }
}

impl Status {
    /// Of a command that was carried out: DRDY.
    pub const GOOD: Self = Self(0x40);
    /// Of one that was not: DRDY and ERR.
    pub const FAILED: Self = Self(0x41);
    /// Of one that failed because the device did: DRDY, DF and ERR.
    pub const FAULT: Self = Self(0x61);

    /// Whether the command was carried out, as the Linux driver sees it: neither BSY nor DF nor DRQ
    /// nor ERR.
    #[inline]
    pub const fn is_good(self) -> bool {
        self.0 & 0xa9 == 0
    }
}

bits! {
    /// The error register.
    pub struct ErrorBits(u8) {
        fields {}
        flags {
            /// UNC: the media cannot be read there.
            uncorrectable / with_uncorrectable: 6;
            /// IDNF: there is no such sector.
            id_not_found / with_id_not_found: 4;
            /// ABRT.
            abort / with_abort: 2;
        }
    }
}

impl ErrorBits {
    /// The command is not known, not supported, or was not carried out.
    pub const ABORT: Self = Self(0x04);
    /// The range reaches beyond the end.
    pub const ID_NOT_FOUND: Self = Self(0x10);
    /// The media cannot be read there.
    pub const UNCORRECTABLE: Self = Self(0x40);
}

fn names(f: &mut fmt::Formatter<'_>, byte: u8, known: &[(u8, &str)]) -> fmt::Result {
    write!(f, "{byte:#04x}")?;
    for (bit, name) in known {
        if byte & bit != 0 {
            write!(f, " {name}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [(0x80, "BSY"), (0x40, "DRDY"), (0x20, "DF"), (0x08, "DRQ"), (0x01, "ERR")];
        f.write_str("status ")?;
        names(f, self.0, &known)
    }
}

impl fmt::Display for ErrorBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [(0x80, "ICRC"), (0x40, "UNC"), (0x10, "IDNF"), (0x04, "ABRT")];
        f.write_str("error ")?;
        names(f, self.0, &known)
    }
}
