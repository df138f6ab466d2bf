//! Logs about the controller: errors 01h, health 02h, firmware 03h, changed namespaces 04h and
//! command effects 05h.

use crate::nvme::Status;

layout! {
    /// One entry of the error information log, 64 bytes.
    pub struct ErrorEntry[64] {
        /// Counts errors over the controller's life; 0 marks an unused entry.
        0 => error_count: u64,
        /// SQID.
        8 => queue_id: u16,
        /// CID.
        10 => command_id: u16,
        /// Status word, with its phase bit; see [`ErrorEntry::status`].
        12 => status_word: u16,
        /// Byte (7:0) and bit (10:8) of the command that is wrong; 0xffff when not known.
        14 => parameter_location: u16,
        /// First LBA.
        16 => lba: u64,
        /// NSID.
        24 => nsid: u32,
        /// Transport type.
        29 => transport_type: u8,
    }
}

impl ErrorEntry {
    /// The status the command got.
    pub const fn status(&self) -> Status {
        Status::from_word(self.status_word)
    }
}

layout! {
    /// SMART / health, 512 bytes. Counters are 128 bits.
    pub struct Smart[512] {
        /// Bits: 0 spare, 1 temperature, 2 reliability, 3 read only, 4 backup failed.
        0 => critical_warning: u8,
        /// Kelvin.
        1 => composite_temperature: u16,
        /// Percent.
        3 => available_spare: u8,
        /// Percent.
        4 => available_spare_threshold: u8,
        /// Percent, may pass 100.
        5 => percentage_used: u8,
        /// Thousands of 512 bytes, rounded up.
        32 => data_units_read: u128,
        /// Thousands of 512 bytes, rounded up.
        48 => data_units_written: u128,
        /// Read commands completed.
        64 => host_reads: u128,
        /// Write commands completed.
        80 => host_writes: u128,
        /// Power cycles.
        112 => power_cycles: u128,
        /// Power on hours.
        128 => power_on_hours: u128,
        /// Unrecovered data integrity errors.
        160 => media_errors: u128,
        /// Error information entries ever made.
        176 => error_entries: u128,
    }
}

layout! {
    /// Firmware slots, 512 bytes.
    pub struct FirmwareSlots[512] {
        /// Bits 2:0: slot in use; 6:4: slot after the next reset.
        0 => active: u8,
        /// Revisions of slots 1 to 7, ASCII padded with spaces, zeros for an empty slot.
        8 => revisions: [[u8; 8]; 7],
    }
}

/// The changed namespace list, 4096 bytes: up to 1024 NSIDs, or 0xffffffff alone for "too many".
#[derive(Clone, Copy, Debug)]
pub struct ChangedNamespaces;

impl ChangedNamespaces {
    /// Size in bytes.
    pub const SIZE: usize = 4096;
    /// First entry when more than 1024 namespaces changed.
    pub const OVERFLOW: u32 = 0xffff_ffff;

    /// The list of `nsids`, ascending; an overflow when they are more than 1024.
    pub fn emit(nsids: &[u32]) -> [u8; Self::SIZE] {
        use crate::nvme::identify::ActiveNamespaces;
        if nsids.len() > ActiveNamespaces::COUNT_MAX {
            return ActiveNamespaces::emit([Self::OVERFLOW]);
        }
        ActiveNamespaces::emit(nsids.iter().copied())
    }

    /// The NSIDs of a list, up to the first 0; [`Self::OVERFLOW`] stands for all of them.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
        crate::nvme::identify::ActiveNamespaces::parse(bytes)
    }
}

layout! {
    /// Commands supported and effects, 4096 bytes: one dword for each opcode.
    pub struct CommandEffects[4096] {
        /// Admin commands by opcode.
        0 => admin: [u32; 256],
        /// I/O commands by opcode.
        1024 => io: [u32; 256],
    }
}

impl CommandEffects {
    /// CSUPP: the command is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: the command may change logical block content.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
}
