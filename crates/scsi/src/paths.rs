//! Asymmetric access: what a port answers in the state of its group, and the commands that tell and
//! set the states.
//!
//! In: the state of the group of the port by which a command came; all groups of the target; a list
//! that came with SET TARGET PORT GROUPS. Out: whether the command may go on, the data to return, the
//! change to be agreed on. Errors: the sense data of CHECK CONDITION. A target has one port in each
//! group, and group and port have one number; groups and their states are the server's
//! ([`reservation::paths`]), so that a state which is set through one unit is that of all.
//!
//! Choices that the standard leaves: in standby READ CAPACITY is answered, without which Linux makes
//! no disk of the path; offline and states of some blocks are not there; a transition takes as long as
//! whoever set it likes, so no time is said. Spec: SPC-4, "Asymmetric logical unit access", "REPORT
//! TARGET PORT GROUPS command", "SET TARGET PORT GROUPS command".

use block::record::passed;
use reservation::paths::Path;
use reservation::replica::Answer;
use reservation::{PathGroup, PathState, Paths, SetBy};
use wire::scsi::alua::{
    AccessReason, AccessState, PortGroup, PortGroups, STATES_SUPPORTED, SetPortGroups,
};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, Sense, SenseKey, ServiceAction};

use crate::judge::{illegal, invalid_field, invalid_parameter, refuse};
use crate::limits::GROUP_LIST_MAX;
use crate::reserve::Decision;
use crate::unit::LogicalUnit;
use crate::work::Work;

/// The states as hosts know them.
const STATES: [(PathState, AccessState); 5] = [
    (PathState::Optimized, AccessState::ACTIVE_OPTIMIZED),
    (PathState::NonOptimized, AccessState::ACTIVE_NON_OPTIMIZED),
    (PathState::Standby, AccessState::STANDBY),
    (PathState::Unavailable, AccessState::UNAVAILABLE),
    (PathState::Transitioning, AccessState::TRANSITIONING),
];

/// Whether a port in this state carries a command out; else the sense data that say why not.
#[inline]
pub fn check_path(cdb: &Cdb, state: PathState) -> Result<(), Sense> {
    if state.serves() { Ok(()) } else { check_closed(cdb, state) }
}

#[cold]
fn check_closed(cdb: &Cdb, state: PathState) -> Result<(), Sense> {
    let is_answered = match cdb.opcode() {
        OpCode::INQUIRY | OpCode::REPORT_LUNS | OpCode::REQUEST_SENSE => true,
        OpCode::MODE_SENSE_6
        | OpCode::MODE_SENSE_10
        | OpCode::MODE_SELECT_6
        | OpCode::MODE_SELECT_10
        | OpCode::READ_CAPACITY_10
        | OpCode::PERSISTENT_RESERVE_IN
        | OpCode::PERSISTENT_RESERVE_OUT => state == PathState::Standby,
        _ => match cdb.action() {
            ServiceAction::REPORT_TARGET_PORT_GROUPS => true,
            ServiceAction::SET_TARGET_PORT_GROUPS => state != PathState::Transitioning,
            ServiceAction::READ_CAPACITY_16 | ServiceAction::REPORT_SUPPORTED_OPERATION_CODES => {
                state == PathState::Standby
            }
            _ => false,
        },
    };
    if is_answered { Ok(()) } else { check_blocks(state) }
}

/// Whether blocks are read and written through a port in this state; else the sense data that say why
/// not. Of a command that was begun, for what is left of it.
pub fn check_blocks(state: PathState) -> Result<(), Sense> {
    let code = match state {
        PathState::Optimized | PathState::NonOptimized => return Ok(()),
        PathState::Standby => AdditionalSense::ALUA_STANDBY,
        PathState::Unavailable => AdditionalSense::ALUA_UNAVAILABLE,
        PathState::Transitioning => AdditionalSense::ALUA_TRANSITION,
    };
    Err(refuse(SenseKey::NOT_READY, code))
}

/// TPGS of a unit: implicit asymmetric access, and explicit where hosts may set states.
pub(crate) fn offered(unit: Option<&LogicalUnit>) -> u8 {
    unit.map_or(0, |unit| 1 | u8::from(unit.hosts_set_paths) << 1)
}

/// SET TARGET PORT GROUPS, where hosts may.
pub(crate) fn judge_set(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    if !unit.hosts_set_paths {
        return Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    }
    match cdb.parameter_list_length() {
        0 => Ok(Work::Nothing),
        length @ 4..=GROUP_LIST_MAX => Ok(Work::SetPaths(length)),
        _ => Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)),
    }
}

/// The data of REPORT TARGET PORT GROUPS, all of them.
pub(crate) fn report(cdb: &Cdb, groups: &[(PathGroup, Path)]) -> Result<Vec<u8>, Sense> {
    let group = |(group, path): &(PathGroup, Path)| PortGroup {
        id: group.number(),
        preferred: false,
        state: known(path.state),
        supported: STATES_SUPPORTED,
        reason: match path.set_by {
            SetBy::Nobody => AccessReason::NONE,
            SetBy::Administrator => AccessReason::IMPLICIT,
            SetBy::Host(_) => AccessReason::SET,
        },
        ports: vec![group.number()],
    };
    let groups = PortGroups(groups.iter().map(group).collect());
    match cdb.parameter_data_format() {
        0 => Ok(groups.emit()),
        1 => Ok(groups.emit_extended(0)),
        _ => Err(invalid_field(1, 7)),
    }
}

fn known(state: PathState) -> AccessState {
    let found = STATES.iter().find(|(of, _)| *of == state);
    found.expect("every state has a code").1
}

/// The states that the list of SET TARGET PORT GROUPS asks for, of which [`judge`](crate::judge())
/// says that it is [`Work::SetPaths`]; `groups` are those of the target. No host sets a transition,
/// which only its end would end.
#[cold]
pub fn set_paths(
    data: &[u8],
    groups: &[(PathGroup, Path)],
) -> Result<Vec<(PathGroup, PathState)>, Sense> {
    let list = SetPortGroups::parse(data);
    let list = list.map_err(|_| illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))?;
    let mut states: Vec<(PathGroup, PathState)> = Vec::new();
    for (at, (number, state)) in (4..).step_by(4).zip(list.0) {
        let settable = STATES.iter().filter(|(state, _)| *state != PathState::Transitioning);
        let state = settable.clone().find(|(_, code)| *code == state);
        let state = state.ok_or_else(|| invalid_parameter(at))?.0;
        let group = groups.iter().find(|(group, _)| group.number() == number);
        let group = group.ok_or_else(|| invalid_parameter(at + 2))?.0;
        if states.iter().any(|(other, _)| *other == group) {
            return Err(invalid_parameter(at + 2));
        }
        states.push((group, state));
    }
    Ok(states)
}

/// What a decision is to the host that asked for other states.
#[cold]
pub fn status_of_paths(answer: &Answer<(), Paths>) -> Decision {
    match answer {
        Answer::Decided((), _) => (ScsiStatus::GOOD, None),
        Answer::Busy => (ScsiStatus::BUSY, None),
        Answer::NotStored | Answer::Gone => {
            let failed = AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED;
            (ScsiStatus::CHECK_CONDITION, Some(refuse(SenseKey::HARDWARE_ERROR, failed)))
        }
    }
}

/// The unit attention by which every other host is told.
pub fn access_changed() -> Sense {
    let code = AdditionalSense::ASYMMETRIC_ACCESS_CHANGED;
    passed("status", code.name().unwrap_or_default());
    Sense::attention(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{facts, unit};
    use crate::{judge, reply};

    fn group(number: u16) -> PathGroup {
        PathGroup::new(number).unwrap()
    }

    fn groups() -> [(PathGroup, Path); 2] {
        let standby = Path { state: PathState::Standby, set_by: SetBy::Administrator, changes: 1 };
        [(group(1), Path::default()), (group(2), standby)]
    }

    fn not_ready(code: AdditionalSense) -> Result<(), Sense> {
        Err(Sense::new(SenseKey::NOT_READY, code))
    }

    fn setting(length: u32) -> Cdb {
        let mut cdb = Cdb::new(OpCode::MAINTENANCE_OUT);
        cdb.0[1] = ServiceAction::SET_TARGET_PORT_GROUPS.action();
        cdb.0[6..10].copy_from_slice(&length.to_be_bytes());
        cdb
    }

    fn reporting(format: u8) -> Cdb {
        let mut cdb = Cdb::new(OpCode::MAINTENANCE_IN);
        cdb.0[1] = ServiceAction::REPORT_TARGET_PORT_GROUPS.action() | format << 5;
        cdb.0[9] = 255;
        cdb
    }

    #[test]
    fn blocks_go_by_paths_that_serve_and_by_no_other() {
        let read = Cdb::new(OpCode::READ_16);
        for (state, expected) in [
            (PathState::Optimized, Ok(())),
            (PathState::NonOptimized, Ok(())),
            (PathState::Standby, not_ready(AdditionalSense::ALUA_STANDBY)),
            (PathState::Unavailable, not_ready(AdditionalSense::ALUA_UNAVAILABLE)),
            (PathState::Transitioning, not_ready(AdditionalSense::ALUA_TRANSITION)),
        ] {
            assert_eq!(check_path(&read, state), expected);
            assert_eq!(check_path(&Cdb::new(OpCode::TEST_UNIT_READY), state), expected);
            let asked = [Cdb::new(OpCode::INQUIRY), Cdb::new(OpCode::REQUEST_SENSE), reporting(0)];
            assert!(asked.iter().all(|cdb| check_path(cdb, state).is_ok()), "{state}");
        }
    }

    #[test]
    fn a_path_in_standby_answers_what_keeps_it() {
        let kept = [OpCode::PERSISTENT_RESERVE_OUT, OpCode::MODE_SENSE_6, OpCode::READ_CAPACITY_10];
        for opcode in kept {
            let cdb = Cdb::new(opcode);
            assert_eq!(check_path(&cdb, PathState::Standby), Ok(()));
            assert!(check_path(&cdb, PathState::Unavailable).is_err());
        }
        assert!(check_path(&setting(8), PathState::Unavailable).is_ok());
        assert!(check_path(&setting(8), PathState::Transitioning).is_err());
        // RESERVE(6) is no persistent one.
        assert!(check_path(&Cdb::new(OpCode::RESERVE_6), PathState::Standby).is_err());
    }

    #[test]
    fn all_groups_are_reported_with_one_port_each() {
        let groups = groups();
        let facts = facts(&[0]);
        let facts = crate::Facts { groups: &groups, ..facts };
        for (format, behind) in [(0, 4), (1, 8)] {
            assert_eq!(judge(&reporting(format), &unit()), Ok(Work::Reply));
            let data = reply(&reporting(format), Some(&unit()), &facts).unwrap();
            assert_eq!(data[behind..][..12], [0, 0x8f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
            assert_eq!(data[behind + 12..], [2, 0x8f, 0, 2, 0, 2, 0, 1, 0, 0, 0, 2]);
            assert_eq!(data[3], data.len() as u8 - 4);
        }
        let inquiry = reply(&Cdb::inquiry(96), Some(&unit()), &facts).unwrap();
        assert_eq!(inquiry[6] & 0x10, 0x10, "MULTIP");
        let refused = reply(&reporting(2), Some(&unit()), &facts);
        assert_eq!(refused, Err(Sense::invalid_field(1, 7)));
    }

    #[test]
    fn hosts_set_states_where_the_configuration_lets_them() {
        let unknown = Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
        assert_eq!(judge(&setting(8), &unit()), Err(unknown));
        let unit = LogicalUnit { hosts_set_paths: true, ..unit() };
        assert_eq!(judge(&setting(8), &unit), Ok(Work::SetPaths(8)));
        assert_eq!(judge(&setting(0), &unit), Ok(Work::Nothing));
        let length = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        assert_eq!(judge(&setting(3), &unit), Err(length));
        assert_eq!(judge(&setting(GROUP_LIST_MAX + 4), &unit), Err(length));
        let list =
            |list: &[(u16, AccessState)]| set_paths(&SetPortGroups(list.into()).emit(), &groups());
        let both = [(2, AccessState::ACTIVE_OPTIMIZED), (1, AccessState::STANDBY)];
        assert_eq!(
            list(&both),
            Ok(vec![(group(2), PathState::Optimized), (group(1), PathState::Standby)])
        );
        assert_eq!(list(&[]), Ok(vec![]));
        for (wrong, byte) in [
            (vec![(3, AccessState::STANDBY)], 6),
            (vec![(1, AccessState::TRANSITIONING)], 4),
            (vec![both[0], (1, AccessState::OFFLINE)], 8),
            (vec![both[0], both[0]], 10),
        ] {
            assert_eq!(list(&wrong), Err(Sense::invalid_parameter(byte)), "{wrong:?}");
        }
        assert_eq!(set_paths(&[0; 7], &groups()), Err(length));
    }

    #[test]
    fn what_was_not_decided_is_tried_again_and_what_could_not_be_kept_has_failed() {
        let decided = Answer::Decided((), Paths::default());
        assert_eq!(status_of_paths(&decided), (ScsiStatus::GOOD, None));
        assert_eq!(status_of_paths(&Answer::Busy), (ScsiStatus::BUSY, None));
        let failed = AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED;
        let failed = Some(Sense::new(SenseKey::HARDWARE_ERROR, failed));
        for answer in [Answer::NotStored, Answer::Gone] {
            assert_eq!(status_of_paths(&answer), (ScsiStatus::CHECK_CONDITION, failed));
        }
    }
}
