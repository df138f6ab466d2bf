//! How hosts set units by MODE SELECT, over all shards.

use scsi::ModeState;

use super::*;

#[test]
fn what_a_host_sets_of_a_unit_reaches_the_sessions_of_all_shards() {
    let mut shards = Shards::new(2);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    let mode = ModeState { descriptor_sense: true, software_write_protect: false };
    shards.targets[0].set_mode(mine.1, VolumeId(1), mode);
    shards.carry();
    assert_eq!(shards.events(0), [], "who set it knows");
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
    let mode = |descriptor_sense, software_write_protect| ModeState {
        descriptor_sense,
        software_write_protect,
    };
    let mut shards = Shards::new(3);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (first, second) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    let modes = |shards: &Shards| {
        let units = shards.targets.iter().map(|targets| {
            let (_, entry) = targets.entries.iter().next().expect("a target");
            entry.units.get(5).expect("a unit").mode
        });
        units.collect::<Vec<_>>()
    };
    shards.targets[0].set_mode(first.1, VolumeId(1), mode(true, false));
    shards.targets[1].set_mode(second.1, VolumeId(1), mode(false, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(false, true); 3]);
    // Whose was not the last hears that it is otherwise.
    let told = |(_, event)| matches!(event, SessionEvent::Attention(Some(5), _));
    assert!(shards.events(0).into_iter().any(told));
    // One after the other is no race, whichever shard it is on.
    shards.targets[0].set_mode(first.1, VolumeId(1), mode(true, true));
    shards.carry();
    assert_eq!(modes(&shards), [mode(true, true); 3]);
}
