//! The ranges of Dataset Management: 16 bytes each, up to 256.

layout! {
    /// One range of a Dataset Management command.
    pub struct DsmRange[16] {
        /// Context attributes, hints only.
        0 => attributes: u32,
        /// Logical blocks, a plain count; 0 is an empty range.
        4 => blocks: u32,
        /// First logical block.
        8 => lba: u64,
    }
}

impl DsmRange {
    /// Most ranges of one command.
    pub const COUNT_MAX: usize = 256;

    /// The ranges in `bytes`, as many as are whole.
    pub fn parse_all(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        bytes.as_chunks::<16>().0.iter().map(|range| crate::field::Field::get(range, 0))
    }

    /// NR + 1 of a Dataset Management command: how many ranges its data hold, 1 to 256.
    pub fn count(command: &super::Command) -> usize {
        (command.cdw(10) & 0xff) as usize + 1
    }

    /// AD of a Dataset Management command: the ranges are to be deallocated.
    pub fn is_deallocate(command: &super::Command) -> bool {
        command.cdw(11) & 4 != 0
    }
}
