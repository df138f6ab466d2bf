//! Asymmetric namespace access: what a listener's state is to the hosts that came by it.
//!
//! Each listener is of a group, and the namespaces of a controller are in the ANA group of the
//! listener by which its host connected; group and ANA group have one number, and a controller knows
//! of no other. Standby and unavailable are both *inaccessible* here, since *persistent loss* could
//! not be left again. While a path does not serve, I/O commands are refused with a status of the
//! path, without DNR, so that hosts repeat them by another. Spec: NVMe base, "Asymmetric Namespace
//! Access Reporting", "Path Related Status".

use reservation::{PathGroup, PathState, Paths};
use wire::nvme::Status;
use wire::nvme::log::{AnaGroup, AnaLog, AnaState};

/// The longest transition that hosts wait for, in seconds: as long as the field can say, since
/// administrators end them.
pub(crate) const ANATT_S: u8 = 255;
/// ANACAP: the states that there are (optimized, non-optimized, inaccessible, change), and that a
/// namespace stays in its group while it is attached.
pub(crate) const ANACAP: u8 = 1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 6;
/// NANAGRPID: groups of a controller.
pub(crate) const GROUPS_OF_CONTROLLER: u32 = 1;

/// Whether a path in this state carries I/O commands; else the status to refuse them with.
#[inline]
pub(crate) fn check_path(state: PathState) -> Result<(), Status> {
    if state.serves() { Ok(()) } else { Err(refused(state)) }
}

#[cold]
fn refused(state: PathState) -> Status {
    match state {
        PathState::Transitioning => Status::ANA_TRANSITION,
        _ => Status::ANA_INACCESSIBLE,
    }
}

/// The log of a controller whose host came by `group`; without NSIDs if it wants none.
pub(crate) fn log(paths: &Paths, group: PathGroup, nsids: Vec<u32>) -> AnaLog {
    let path = paths.get(group);
    let state = match path.state {
        PathState::Optimized => AnaState::OPTIMIZED,
        PathState::NonOptimized => AnaState::NON_OPTIMIZED,
        PathState::Standby | PathState::Unavailable => AnaState::INACCESSIBLE,
        PathState::Transitioning => AnaState::CHANGE,
    };
    let change_count = path.changes;
    let group = AnaGroup { id: group.number().into(), change_count, state, nsids };
    AnaLog { change_count, groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use reservation::{PathChange, SetBy, Value};

    use super::*;

    #[test]
    fn a_path_that_does_not_serve_is_refused_so_that_another_is_taken() {
        for (state, expected, told) in [
            (PathState::Optimized, Ok(()), AnaState::OPTIMIZED),
            (PathState::NonOptimized, Ok(()), AnaState::NON_OPTIMIZED),
            (PathState::Standby, Err(Status::ANA_INACCESSIBLE), AnaState::INACCESSIBLE),
            (PathState::Unavailable, Err(Status::ANA_INACCESSIBLE), AnaState::INACCESSIBLE),
            (PathState::Transitioning, Err(Status::ANA_TRANSITION), AnaState::CHANGE),
        ] {
            assert_eq!(check_path(state), expected);
            assert!(expected.is_ok() || !expected.unwrap_err().dnr());
            let group = PathGroup::new(2).unwrap();
            let change = PathChange { states: vec![(group, state)], by: SetBy::Administrator };
            let paths = Paths::default().apply(&change).0.unwrap_or_default();
            let AnaLog { change_count, groups } = log(&paths, group, vec![1, 3]);
            assert_eq!(change_count, u64::from(state != PathState::Optimized));
            assert_eq!(groups, [AnaGroup { id: 2, change_count, state: told, nsids: vec![1, 3] }]);
            let other = log(&paths, PathGroup::DEFAULT, Vec::new());
            assert_eq!(other.groups[0].state, AnaState::OPTIMIZED, "it knows of its own alone");
        }
    }
}
