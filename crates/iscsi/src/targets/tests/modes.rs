//! How hosts set units by MODE SELECT, over all shards.

use scsi::ModeState;
use wire::scsi::ScsiStatus;

use super::*;

fn mode(descriptor_sense: bool, software_write_protect: bool) -> ModeState {
    ModeState { descriptor_sense, software_write_protect }
}

/// How LUN 5 is on each shard.
fn modes(shards: &Shards) -> Vec<ModeState> {
    let units = shards.targets.iter().map(|targets| {
        let (_, entry) = targets.entries.iter().next().expect("a target");
        entry.units.get(5).expect("a unit").mode
    });
    units.collect()
}

#[test]
fn what_a_host_sets_of_a_unit_reaches_the_sessions_of_all_shards() {
    let mut shards = Shards::new(2);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    let mode = ModeState { descriptor_sense: true, software_write_protect: false };
    let number = shards.targets[0].set_mode(mine.2.handle, VolumeId(1), mode);
    shards.carry_between(0, 1);
    assert_eq!(shards.events(0), [], "the other shard has not answered");
    assert!(shards.targets[0].has_undecided(mine.2.handle));
    shards.carry();
    let answer = SessionEvent::Changed { number, status: ScsiStatus::GOOD, sense: None };
    assert_eq!(shards.events(0), [(mine.1, answer)], "and who set it knows");
    let told = shards.events(1);
    let is_told =
        matches!(told[..], [(place, SessionEvent::Attention(Some(5), _))] if place == other.1);
    assert!(is_told, "{told:?}");
    for (shard, _, opened) in [mine, other] {
        assert_eq!(shards.targets[shard].unit(opened.handle, 5).map(|unit| unit.mode), Some(mode));
        assert_ne!(shards.targets[shard].unit(opened.handle, 0).map(|unit| unit.mode), Some(mode));
    }
}

/// Whoever is told last, and by whom: what a unit is, is the same everywhere in the end.
#[test]
fn of_two_that_set_a_unit_at_once_the_same_one_is_the_last_everywhere() {
    let mut shards = Shards::new(3);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (first, second) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    shards.targets[0].set_mode(first.2.handle, VolumeId(1), mode(true, false));
    shards.targets[1].set_mode(second.2.handle, VolumeId(1), mode(false, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(false, true); 3]);
    // Whose was not the last hears that it is otherwise.
    let told = |(_, event)| matches!(event, SessionEvent::Attention(Some(5), _));
    assert!(shards.events(0).into_iter().any(told));
    // One after the other is no race, whichever shard it is on.
    shards.targets[0].set_mode(first.2.handle, VolumeId(1), mode(true, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(true, true); 3]);
}

/// Nothing was saved, so it is as after a start; and so it is where the reset is answered.
#[test]
fn a_reset_undoes_what_was_set_of_its_units() {
    for (lun, is_undone) in [(Some(5), true), (None, true), (Some(0), false)] {
        let mut shards = Shards::new(2);
        let mut other = port();
        other.nexus.isid = [2; 6];
        let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
        shards.targets[0].set_mode(mine.2.handle, VolumeId(1), mode(true, true));
        shards.carry();
        shards.events(0);
        shards.targets[1].reset(other.2.handle, 7, lun, false);
        shards.carry_between(1, 0);
        let left = if is_undone { ModeState::default() } else { mode(true, true) };
        assert_eq!(modes(&shards), [left; 2], "{lun:?}");
    }
}

/// A session whose host has gone meanwhile drains once it is known everywhere what it has set.
#[test]
fn a_session_that_ends_waits_for_what_it_has_set() {
    let mut shards = Shards::new(2);
    let mine = shards.log_in(0, &port());
    shards.targets[0].set_mode(mine.2.handle, VolumeId(1), mode(true, true));
    shards.targets[0].session_ends(mine.2.handle, "it was closed");
    assert!(shards.targets[0].has_undecided(mine.2.handle));
    shards.carry();
    assert!(!shards.targets[0].has_undecided(mine.2.handle));
    let decided = (mine.1, SessionEvent::Decided);
    assert!(shards.events(0).contains(&decided));
}
