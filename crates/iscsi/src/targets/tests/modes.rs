//! How hosts set units by MODE SELECT, over all shards.

use scsi::ModeState;
use wire::scsi::ScsiStatus;

use super::*;

/// The unit of LUN 5.
const UUID: [u8; 16] = [2; 16];

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

/// Sessions of two ports, on shards 0 and 1 of so many.
fn two_of(count: u16) -> (Shards, [At; 2]) {
    let mut shards = Shards::new(count);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let sessions = [shards.log_in(0, &port()), shards.log_in(1, &other)];
    (shards, sessions)
}

#[test]
fn what_a_host_sets_of_a_unit_reaches_the_sessions_of_all_shards() {
    let (mut shards, [mine, other]) = two_of(2);
    let mode = ModeState { descriptor_sense: true, software_write_protect: false };
    let number = shards.targets[0].set_mode(mine.2.handle, UUID, mode);
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
    let (mut shards, [first, second]) = two_of(3);
    shards.targets[0].set_mode(first.2.handle, UUID, mode(true, false));
    shards.targets[1].set_mode(second.2.handle, UUID, mode(false, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(false, true); 3]);
    // Whose was not the last hears that it is otherwise.
    let told = |(_, event)| matches!(event, SessionEvent::Attention(Some(5), _));
    assert!(shards.events(0).into_iter().any(told));
    // One after the other is no race, whichever shard it is on.
    shards.targets[0].set_mode(first.2.handle, UUID, mode(true, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(true, true); 3]);
}

/// Nothing was saved, so it is as after a start; and so it is everywhere when the reset is answered.
#[test]
fn a_reset_undoes_what_was_set_of_its_units() {
    for (lun, is_undone) in [(Some(5), true), (None, true), (Some(0), false)] {
        let (mut shards, [mine, other]) = two_of(3);
        shards.targets[0].set_mode(mine.2.handle, UUID, mode(true, true));
        shards.carry();
        shards.targets[1].reset(other.2.handle, 7, lun, false);
        let left = if is_undone { ModeState::default() } else { mode(true, true) };
        ends_reset(&mut shards, [mine, other]);
        assert_eq!(modes(&shards), [left; 3], "{lun:?}");
    }
}

/// Whoever resets may not have heard yet of what it undoes.
#[test]
fn a_reset_undoes_what_is_on_its_way() {
    for (setter, resetter) in [(0, 1), (1, 0)] {
        let (mut shards, sessions) = two_of(3);
        let (set, reset) = (sessions[setter], sessions[resetter]);
        shards.targets[set.0].set_mode(set.2.handle, UUID, mode(true, true));
        shards.targets[reset.0].reset(reset.2.handle, 7, Some(5), false);
        ends_reset(&mut shards, sessions);
        assert_eq!(modes(&shards), [ModeState::default(); 3], "{setter}");
    }
}

/// Carries the mail until a reset is answered, whose sessions have nothing below.
fn ends_reset(shards: &mut Shards, sessions: [At; 2]) {
    let mut is_answered = false;
    for _ in 0..100 {
        for shard in 0..shards.targets.len() {
            for (_, event) in shards.events(shard) {
                is_answered |= matches!(event, SessionEvent::ResetDone { .. });
                if let SessionEvent::Abort { of, lun } = event {
                    shards.targets[shard].aborted(of, lun);
                }
            }
        }
        if is_answered {
            return;
        }
        // Each two shards have a queue of their own; the last is the slowest.
        let queues = (0..3u16).flat_map(|from| (0..3u16).map(move |to| (from, to)));
        if !queues.into_iter().any(|(from, to)| shards.carry_between(from, to)) {
            break;
        }
    }
    panic!("the reset of {sessions:?} is not answered");
}

/// A unit is set, whichever target or LUN shows it, and whenever that begins.
#[test]
fn what_is_exported_later_is_set_as_its_unit_is() {
    let (mut shards, [mine, _]) = two_of(3);
    shards.targets[0].set_mode(mine.2.handle, UUID, mode(true, true));
    shards.carry();
    let unit = target().units[1].unit.clone();
    let again = target().with_unit(crate::target::Unit { lun: 9, hosts: Hosts::Any, unit });
    for targets in &mut shards.targets {
        targets.set_target(again.clone());
        let (_, entry) = targets.entries.iter().next().expect("a target");
        assert_eq!(entry.units.get(9).expect("a unit").mode, mode(true, true));
        assert_eq!(entry.units.get(0).expect("a unit").mode, ModeState::default());
    }
}

/// A session whose host has gone meanwhile drains once it is known everywhere what it has set.
#[test]
fn a_session_that_ends_waits_for_what_it_has_set() {
    let mut shards = Shards::new(2);
    let mine = shards.log_in(0, &port());
    shards.targets[0].set_mode(mine.2.handle, UUID, mode(true, true));
    shards.targets[0].session_ends(mine.2.handle, "it was closed");
    assert!(shards.targets[0].has_undecided(mine.2.handle));
    shards.carry();
    assert!(!shards.targets[0].has_undecided(mine.2.handle));
    let decided = (mine.1, SessionEvent::Decided);
    assert!(shards.events(0).contains(&decided));
}
