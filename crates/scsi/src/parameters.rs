//! Lists that hosts send with a command: UNMAP and MODE SELECT.
//!
//! In: the command, the list and the facts of its unit. Out: what it orders, which the caller
//! carries out. Errors: the sense data of CHECK CONDITION, which name the field of the list. How
//! long a list may be was judged with its command. Spec: SBC-3, "UNMAP command"; SPC-4, "MODE SELECT
//! (6) command".

use block::Extent;
use wire::scsi::provisioning::UnmapList;
use wire::scsi::{AdditionalSense, Cdb, OpCode, Sense};

use crate::judge::{check_writable, illegal, within};
use crate::mode;
use crate::unit::{LogicalUnit, ModeState};

/// What a list orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// Nothing: GOOD at once.
    Nothing,
    /// These extents are of no interest any more; there is at least one, none is empty.
    Discard(Vec<Extent>),
    /// The unit is to be so from now on. Every other nexus is told
    /// [`MODE_PARAMETERS_CHANGED`](wire::scsi::AdditionalSense::MODE_PARAMETERS_CHANGED).
    Mode(ModeState),
}

/// Says what the list of a command orders, which [`judge`](crate::judge()) calls
/// [`Work::Parameters`](crate::Work::Parameters). `data` may be shorter than the command says if
/// the host sent less: then the list is cut.
pub fn parameters(cdb: &Cdb, data: &[u8], unit: &LogicalUnit) -> Result<Ordered, Sense> {
    let data = &data[..data.len().min(cdb.parameter_list_length() as usize)];
    match cdb.opcode() {
        OpCode::UNMAP => unmap(data, unit),
        OpCode::MODE_SELECT_6 | OpCode::MODE_SELECT_10 if data.is_empty() => Ok(Ordered::Nothing),
        OpCode::MODE_SELECT_6 | OpCode::MODE_SELECT_10 => {
            // Also what it is already here: elsewhere it may be on its way.
            mode::select(cdb, data, unit).map(Ordered::Mode)
        }
        _ => Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
    }
}

fn unmap(data: &[u8], unit: &LogicalUnit) -> Result<Ordered, Sense> {
    check_writable(unit)?;
    if !unit.discards {
        return Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    }
    if data.is_empty() {
        return Ok(Ordered::Nothing);
    }
    let list = UnmapList::parse(data);
    let list = list.map_err(|_| illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))?;
    let mut extents = Vec::with_capacity(list.0.len());
    for range in &list.0 {
        let extent = within(unit, range.lba, range.blocks)?;
        if range.blocks != 0 {
            extents.push(extent);
        }
    }
    Ok(if extents.is_empty() { Ordered::Nothing } else { Ordered::Discard(extents) })
}

#[cfg(test)]
mod tests {
    use block::limits::DISCARD_RANGES_MAX;
    use wire::scsi::SenseKey;
    use wire::scsi::provisioning::UnmapRange;

    use super::*;
    use crate::fixtures::unit;
    use crate::limits::UNMAP_LIST_MAX;
    use crate::{Work, judge};

    fn ask(ranges: &[(u64, u32)], unit: &LogicalUnit) -> Result<Ordered, Sense> {
        let ranges = ranges.iter().map(|&(lba, blocks)| UnmapRange { lba, blocks });
        let data = UnmapList(ranges.collect()).emit();
        parameters(&Cdb::unmap_list(data.len() as u16), &data, unit)
    }

    #[test]
    fn ranges_are_extents_of_the_volume() {
        let extents = vec![Extent::new(4096, 8192), Extent::new((1 << 30) - 512, 512)];
        let last = (1 << 21) - 1;
        assert_eq!(ask(&[(8, 16), (3, 0), (last, 1)], &unit()), Ok(Ordered::Discard(extents)));
    }

    #[test]
    fn ranges_of_no_blocks_order_nothing_even_at_the_end() {
        assert_eq!(ask(&[], &unit()), Ok(Ordered::Nothing));
        assert_eq!(ask(&[(0, 0), (1 << 21, 0)], &unit()), Ok(Ordered::Nothing));
        let cdb = Cdb::unmap_list(0);
        assert_eq!(parameters(&cdb, &[1; 24], &unit()), Ok(Ordered::Nothing));
    }

    #[test]
    fn a_range_beyond_the_end_is_refused_and_none_is_unmapped() {
        for range in [((1 << 21) - 1, 2), ((1 << 21) + 1, 0), (u64::MAX, 1), (1 << 31, 1)] {
            let sense = ask(&[(0, 1), range], &unit()).expect_err("beyond the end");
            assert_eq!(sense.code, AdditionalSense::LBA_OUT_OF_RANGE, "{range:?}");
        }
    }

    #[test]
    fn a_write_protected_unit_unmaps_nothing() {
        let unit = LogicalUnit { read_only: true, ..unit() };
        let sense = ask(&[(0, 1)], &unit).expect_err("protected");
        assert_eq!((sense.key, sense.code.0), (SenseKey::DATA_PROTECT, 0x2700));
    }

    #[test]
    fn a_unit_that_unmaps_nothing_does_not_know_the_command() {
        let unit = LogicalUnit { discards: false, ..unit() };
        let sense = ask(&[(0, 1)], &unit).expect_err("no such command");
        assert_eq!(sense.code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    }

    #[test]
    fn a_list_that_is_shorter_than_it_says_is_refused() {
        let data = UnmapList(vec![UnmapRange { lba: 0, blocks: 1 }]).emit();
        for sent in [7, 8, 23] {
            let sense = parameters(&Cdb::unmap_list(24), &data[..sent], &unit());
            let sense = sense.expect_err("cut");
            assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, "{sent} bytes");
        }
    }

    #[test]
    fn as_many_ranges_as_are_promised_are_taken() {
        let ranges = vec![(0, 1); DISCARD_RANGES_MAX];
        let ordered = ask(&ranges, &unit()).expect("as many as are promised");
        assert!(matches!(ordered, Ordered::Discard(extents) if extents.len() == ranges.len()));
        let longest = Cdb::unmap_list(UNMAP_LIST_MAX as u16);
        assert_eq!(judge(&longest, &unit()), Ok(Work::Parameters(UNMAP_LIST_MAX)));
        let longer = Cdb::unmap_list(UNMAP_LIST_MAX as u16 + 1);
        let sense = judge(&longer, &unit()).expect_err("more");
        assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    }
}
