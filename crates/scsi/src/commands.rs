//! The commands that a unit takes, as REPORT SUPPORTED OPERATION CODES tells them.
//!
//! One row a command: which bits of it are looked at. Bits that must be zero (protection, NACA) and
//! those that mean nothing here (groups, IMMED) are zero in it. That [`judge`](crate::judge()) takes
//! these and no others is a test's to say. Spec: SPC-4, "REPORT SUPPORTED OPERATION CODES command";
//! SBC-3, "Commands for direct access block devices".

use wire::scsi::{Cdb, OpCode};

use crate::unit::LogicalUnit;

/// A command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// CDB USAGE DATA, as long as the command: the opcode, and which bits are looked at. A service
    /// action stands where it lies.
    usage: &'static [u8],
    /// The service action, where the opcode alone does not say what is asked for.
    pub(crate) action: Option<u16>,
}

impl Known {
    pub(crate) fn opcode(&self) -> OpCode {
        OpCode(self.usage[0])
    }

    /// CDB USAGE DATA of a unit.
    pub(crate) fn usage(&self, unit: &LogicalUnit) -> Vec<u8> {
        let mut usage = self.usage.to_vec();
        let may_unmap = matches!(self.opcode(), OpCode::WRITE_SAME_10 | OpCode::WRITE_SAME_16);
        if may_unmap && !unit.discards {
            usage[1] &= !UNMAP_BIT;
        }
        usage
    }

    fn is_of(&self, unit: &LogicalUnit) -> bool {
        match self.opcode() {
            OpCode::UNMAP => unit.discards,
            OpCode::MAINTENANCE_OUT => unit.hosts_set_paths,
            _ => true,
        }
    }
}

/// The commands of a unit, ascending.
pub(crate) fn all(unit: &LogicalUnit) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(|known| known.is_of(unit))
}

/// Whether there is a command of this opcode and, where it counts, service action.
pub(crate) fn find(unit: &LogicalUnit, opcode: OpCode, action: u16) -> Option<&'static Known> {
    let mut all = all(unit).filter(|known| known.opcode() == opcode);
    all.find(|known| known.action.is_none_or(|of_it| of_it == action))
}

/// Whether the service action of an opcode counts, be there such a command or not.
pub(crate) fn has_action(opcode: OpCode) -> bool {
    Cdb::new(opcode).has_service_action()
}

/// UNMAP in byte 1 of WRITE SAME.
const UNMAP_BIT: u8 = 0x08;

const fn plain(usage: &'static [u8]) -> Known {
    Known { usage, action: None }
}

const fn action(usage: &'static [u8]) -> Known {
    Known { usage, action: Some(usage[1] as u16) }
}

/// By opcode, then by service action. `F` is a byte of which all bits are looked at.
const KNOWN: &[Known] = &[
    // TEST UNIT READY, REQUEST SENSE, READ(6), WRITE(6), INQUIRY
    plain(&[0x00, 0, 0, 0, 0, 0]),
    plain(&[0x03, 0x01, 0, 0, F, 0]),
    plain(&[0x08, 0x1f, F, F, F, 0]),
    plain(&[0x0a, 0x1f, F, F, F, 0]),
    plain(&[0x12, 0x01, F, F, F, 0]),
    // MODE SELECT(6), RESERVE(6), RELEASE(6), MODE SENSE(6), START STOP UNIT
    plain(&[0x15, 0x10, 0, 0, F, 0]),
    plain(&[0x16, 0, 0, 0, 0, 0]),
    plain(&[0x17, 0, 0, 0, 0, 0]),
    plain(&[0x1a, 0x08, F, F, F, 0]),
    plain(&[0x1b, 0, 0, 0, 0x05, 0]),
    // READ CAPACITY(10), READ(10), WRITE(10), WRITE AND VERIFY(10), VERIFY(10)
    plain(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(&[0x28, 0x18, F, F, F, F, 0, F, F, 0]),
    plain(&[0x2a, 0x18, F, F, F, F, 0, F, F, 0]),
    plain(&[0x2e, 0x12, F, F, F, F, 0, F, F, 0]),
    plain(&[0x2f, 0x12, F, F, F, F, 0, F, F, 0]),
    // PRE-FETCH(10), SYNCHRONIZE CACHE(10), WRITE SAME(10), UNMAP
    plain(&[0x34, 0, F, F, F, F, 0, F, F, 0]),
    plain(&[0x35, 0, F, F, F, F, 0, F, F, 0]),
    plain(&[0x41, UNMAP_BIT, F, F, F, F, 0, F, F, 0]),
    plain(&[0x42, 0, 0, 0, 0, 0, 0, F, F, 0]),
    // MODE SELECT(10), RESERVE(10), RELEASE(10), MODE SENSE(10)
    plain(&[0x55, 0x10, 0, 0, 0, 0, 0, F, F, 0]),
    plain(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(&[0x5a, 0x18, F, F, 0, 0, 0, F, F, 0]),
    // PERSISTENT RESERVE IN: READ KEYS, READ RESERVATION, REPORT CAPABILITIES, READ FULL STATUS
    action(&[0x5e, 0x00, 0, 0, 0, 0, 0, F, F, 0]),
    action(&[0x5e, 0x01, 0, 0, 0, 0, 0, F, F, 0]),
    action(&[0x5e, 0x02, 0, 0, 0, 0, 0, F, F, 0]),
    action(&[0x5e, 0x03, 0, 0, 0, 0, 0, F, F, 0]),
    // PERSISTENT RESERVE OUT: REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT AND ABORT,
    // REGISTER AND IGNORE EXISTING KEY, REGISTER AND MOVE
    action(&[0x5f, 0x00, 0, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x01, F, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x02, F, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x03, 0, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x04, F, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x05, F, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x06, 0, 0, 0, F, F, F, F, 0]),
    action(&[0x5f, 0x07, 0, 0, 0, F, F, F, F, 0]),
    // EXTENDED COPY(LID1), RECEIVE COPY STATUS(LID1), RECEIVE COPY OPERATING PARAMETERS,
    // RECEIVE COPY FAILURE DETAILS(LID1)
    action(&[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(&[0x84, 0x00, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(&[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(&[0x84, 0x04, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    // READ(16), COMPARE AND WRITE, WRITE(16), ORWRITE(16)
    plain(&[0x88, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x89, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0, 0]),
    plain(&[0x8a, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x8b, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    // WRITE AND VERIFY(16), VERIFY(16), PRE-FETCH(16), SYNCHRONIZE CACHE(16), WRITE SAME(16)
    plain(&[0x8e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x8f, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x90, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x91, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0x93, UNMAP_BIT | 0x01, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    // READ CAPACITY(16), GET LBA STATUS
    action(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(&[0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    // REPORT LUNS, REPORT TARGET PORT GROUPS, REPORT SUPPORTED OPERATION CODES, SET TARGET PORT GROUPS
    plain(&[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]),
    Known { usage: &[0xa3, 0xea, 0, 0, 0, 0, F, F, F, F, 0, 0], action: Some(0x0a) },
    action(&[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, 0]),
    action(&[0xa4, 0x0a, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    // READ(12), WRITE(12), WRITE AND VERIFY(12), VERIFY(12)
    plain(&[0xa8, 0x18, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0xaa, 0x18, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0xae, 0x12, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0xaf, 0x12, F, F, F, F, F, F, F, F, 0, 0]),
];

const F: u8 = 0xff;

#[cfg(test)]
mod tests {
    use wire::scsi::{AdditionalSense, Sense};

    use super::*;
    use crate::fixtures::unit;
    use crate::judge;

    /// Whether a command of this opcode and service action is there, whatever else is wrong with
    /// it.
    fn is_taken(unit: &LogicalUnit, opcode: u8, action: u8) -> bool {
        let mut cdb = Cdb([0; 16]);
        (cdb.0[0], cdb.0[1]) = (opcode, action);
        let unknown = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
        let reserves = [OpCode::PERSISTENT_RESERVE_IN, OpCode::PERSISTENT_RESERVE_OUT];
        let no_action = Sense::invalid_field(1, 4);
        !judge(&cdb, unit).is_err_and(|sense| {
            sense.code == unknown || (reserves.contains(&cdb.opcode()) && sense == no_action)
        })
    }

    #[test]
    fn what_is_reported_is_what_is_taken() {
        for discards in [true, false] {
            let unit = LogicalUnit { discards, hosts_set_paths: discards, ..unit() };
            for opcode in 0..=255 {
                let known = OpCode(opcode);
                for action in 0..32 {
                    let reported = find(&unit, known, action.into()).is_some();
                    let action = if has_action(known) { action } else { 0 };
                    assert_eq!(is_taken(&unit, opcode, action), reported, "{known} {action}");
                }
            }
        }
    }

    #[test]
    fn every_row_is_as_long_as_its_command_and_they_ascend() {
        for known in KNOWN {
            let cdb = Cdb::new(known.opcode());
            assert_eq!(known.usage.len(), cdb.length(), "{}", known.opcode());
            assert_eq!(known.action.is_some(), has_action(known.opcode()), "{}", known.opcode());
            assert!(known.opcode().name().is_some(), "{}", known.opcode());
        }
        assert!(KNOWN.is_sorted_by_key(|known| (known.opcode(), known.action)));
    }

    /// Each bit that is said to be looked at changes what becomes of some command, or is a hint.
    #[test]
    fn flags_that_are_reported_are_taken() {
        for discards in [true, false] {
            let unit = LogicalUnit { discards, ..unit() };
            for known in all(&unit).filter(|known| known.action.is_none()) {
                let usage = known.usage(&unit);
                let mut cdb = Cdb::new(known.opcode());
                // One block, or one page that is there; flags alone are asked about.
                if cdb.length() > 6 && known.opcode() != OpCode::MODE_SENSE_10 {
                    let at = if known.opcode() == OpCode::COMPARE_AND_WRITE { 13 } else { 0 };
                    let last = match cdb.length() {
                        _ if at != 0 => at,
                        10 => 8,
                        12 => 9,
                        _ => 13,
                    };
                    cdb.0[last] = if known.opcode() == OpCode::UNMAP { 8 } else { 1 };
                }
                let plain = judge(&cdb, &unit);
                for bit in 0..8 {
                    let mut flagged = cdb;
                    flagged.0[1] |= 1 << bit;
                    let judged = judge(&flagged, &unit);
                    if usage[1] >> bit & 1 == 1 {
                        assert!(judged.is_ok(), "{flagged:?}: {judged:?}");
                    } else {
                        // It is refused, or it is not looked at.
                        assert!(judged.is_err() || judged == plain, "{flagged:?}: {judged:?}");
                    }
                }
            }
        }
    }
}
