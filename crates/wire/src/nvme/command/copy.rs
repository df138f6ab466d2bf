//! Copy: CDW12, and its source ranges in descriptor format 0, 32 bytes each, up to 256.
//!
//! The ranges are read one after the other and written one behind the other, from SDLBA (CDW10-11,
//! [`Command::lba`]) on. Tags of protection information have no row here: nothing below stores them.
//! Spec: NVM command set 1.0, "Copy command".

use super::Command;

layout! {
    /// One source range of a Copy command.
    pub struct CopyRange[32] {
        /// SLBA: first logical block.
        8 => lba: u64,
        /// NLB: logical blocks, less one.
        16 => nlb: u16,
    }
}

bits! {
    /// CDW12 of a Copy command.
    pub struct CopyDword(u32) {
        fields {
            /// NR: source ranges, less one.
            nr / with_nr: 0, 8;
            /// Descriptor format of the ranges.
            format / with_format: 8, 4;
            /// PRINFOR: protection information of what is read.
            prinfor / with_prinfor: 12, 4;
            /// DTYPE: what kind of directive applies.
            directive_type / with_directive_type: 20, 4;
            /// PRINFOW: protection information of what is written.
            prinfow / with_prinfow: 26, 4;
        }
        flags {
            /// STCW: the storage tag is checked where it is written.
            checks_tag_written / with_checks_tag_written: 24;
            /// STCR: the storage tag is checked where it is read.
            checks_tag_read / with_checks_tag_read: 25;
            /// FUA: on stable media before completion.
            force_unit_access / with_force_unit_access: 30;
            /// LR: limited retry.
            limited_retry / with_limited_retry: 31;
        }
    }
}

impl CopyRange {
    /// Most ranges that NR can say.
    pub const COUNT_MAX: usize = 256;

    /// `blocks` (1 to 65536) logical blocks from `lba` on.
    pub fn new(lba: u64, blocks: u32) -> Self {
        debug_assert!((1..=65536).contains(&blocks), "{blocks} blocks");
        Self { lba, nlb: blocks.wrapping_sub(1) as u16 }
    }

    /// NLB + 1: number of logical blocks, 1 to 65536.
    pub fn blocks(&self) -> u32 {
        u32::from(self.nlb) + 1
    }

    /// The ranges in `bytes`, as many as are whole.
    pub fn parse_all(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        bytes.as_chunks::<32>().0.iter().map(|range| crate::field::Field::get(range, 0))
    }
}

impl CopyDword {
    /// CDW12 of a Copy command.
    pub fn of(command: &Command) -> Self {
        Self(command.cdw(12))
    }

    /// NR + 1: how many source ranges the command's data hold, 1 to 256.
    pub fn count(self) -> usize {
        self.nr() as usize + 1
    }
}
