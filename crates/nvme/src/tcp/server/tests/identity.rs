//! Another volume under a number: what was meant for the old one never reaches it, wherever it
//! waited.

use block::{BlockSize, Class, VolumeId};
use wire::nvme::identify::Cns;
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::memory::{give, hog};
use super::transfer::{ADMIN, IO};
use super::world::{Said, World, namespace, pattern};
use crate::subsystem::Namespace;

fn gone() -> Status {
    Status::INVALID_NAMESPACE.with_dnr()
}

/// Puts the blocks of volume 2 under number 1, where those of volume 0 are.
fn swap(world: &mut World) {
    world.put(Some(Namespace { uuid: [0x77; 16], ..namespace(1, 2, false) }));
}

/// The same, as `apply` does it.
fn replace(world: &mut World) {
    world.put(None);
    swap(world);
}

fn statuses(world: &mut World) -> Vec<(u16, Status)> {
    let said = world.said(IO);
    said.iter().map(|said| (said.response().command_id, said.status())).collect()
}

#[test]
fn a_granted_write_is_not_for_another_volume() {
    for change in [swap, replace] {
        let mut world = World::connected(Digests::NONE);
        let r2t = world.ask(IO, Command::write(1, 0, 32, 16_384)).r2t();
        change(&mut world);
        assert_eq!(world.granted(IO, &r2t, &pattern(16_384, 1), 16_384).status(), gone());
        assert!(world.log.is_empty());
    }
}

#[test]
fn a_granted_deallocation_is_not_for_blocks_of_another_size() {
    let mut world = World::connected(Digests::NONE);
    let r2t = world.ask(IO, Command::dataset_management(1, 1, true)).r2t();
    let larger = Namespace { block_size: BlockSize::B4096, ..namespace(1, 0, false) };
    world.put(Some(larger));
    let data = vec![0; r2t.length as usize];
    assert_eq!(world.granted(IO, &r2t, &data, data.len()).status(), gone());
}

#[test]
fn what_waits_for_memory_is_not_for_another_volume() {
    let mut world = World::connected(Digests::NONE);
    let held = hog(&mut world, Class::Transfer, 4096);
    world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
    world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(2));
    swap(&mut world);
    give(&mut world, held);
    world.wake(IO);
    assert_eq!(statuses(&mut world), [(1, gone()), (2, gone())]);
    assert!(world.log.is_empty());
}

#[test]
fn a_capsule_that_stopped_the_stream_is_not_for_another_volume() {
    let mut world = World::connected(Digests::NONE);
    let held = hog(&mut world, Class::Immediate, 4096);
    world.command_with(IO, Command::write(1, 0, 8, 4096), &pattern(4096, 1));
    assert!(world.links[IO].pipe.is_paused());
    swap(&mut world);
    give(&mut world, held);
    world.wake(IO);
    assert_eq!(world.said_one(IO).status(), gone());
    assert!(world.log.is_empty());
}

#[test]
fn a_fused_pair_is_not_for_another_volume() {
    use wire::nvme::command::Fuse;
    let compare = Command::compare(1, 1, 1, 512).with_fuse(Fuse::FIRST).with_command_id(1);
    let write = Command::write(1, 1, 1, 512).with_fuse(Fuse::SECOND).with_command_id(2);
    for change in [swap, replace] {
        // What it expects is what the other volume holds, too.
        let expected = [0; 512];
        let mut world = World::connected(Digests::NONE);
        world.command_with(IO, compare, &expected);
        change(&mut world);
        world.command_with(IO, write, &pattern(512, 1));
        assert_eq!(statuses(&mut world), [(1, gone()), (2, Status::FUSED_FAILED)]);
        assert!(world.log.is_empty());
        // Or both are there, and the data of the second are on their way.
        let mut world = World::connected(Digests::NONE);
        world.command_with(IO, compare, &expected);
        let r2t = world.ask(IO, write).r2t();
        change(&mut world);
        world.grant(IO, &r2t, &pattern(512, 1), 512);
        assert_eq!(statuses(&mut world), [(1, gone()), (2, Status::FUSED_FAILED)]);
        assert!(world.log.is_empty());
    }
}

#[test]
fn a_controller_uses_another_volume_once_it_has_identified_it() {
    for change in [swap, replace] {
        let mut world = World::connected(Digests::NONE);
        change(&mut world);
        let write = Command::write(1, 0, 1, 512);
        let others = [Cns::NAMESPACE_DESCRIPTORS, Cns::NAMESPACE_INDEPENDENT, Cns::CONTROLLER];
        for cns in others {
            world.command_with(IO, write, &[7; 512]);
            world.command(IO, Command::read(1, 0, 1, 512).with_command_id(1));
            world.command(IO, Command::flush(1).with_command_id(2));
            assert_eq!(statuses(&mut world), [(0, gone()), (1, gone()), (2, gone())]);
            world.command(ADMIN, Command::identify(cns, 1));
            world.said(ADMIN);
        }
        world.command_with(IO, Command::write(5, 0, 1, 512), &[1; 512]);
        assert!(world.said_one(IO).status().is_success(), "other numbers are open");
        world.log.clear();
        world.command(ADMIN, Command::identify(Cns::NAMESPACE, 1));
        assert!(matches!(world.said(ADMIN)[..], [Said::Data(..), Said::Response(_)]));
        assert!(world.ask_with(IO, write, &[7; 512]).status().is_success());
        assert_eq!(world.volumes[2][..512], [7; 512]);
    }
}

#[test]
fn a_volume_that_comes_back_under_a_new_number_is_the_same() {
    let mut world = World::connected(Digests::NONE);
    let r2t = world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(1)).r2t();
    // A removal that is undone, and a swap that is.
    replace(&mut world);
    world.put(Some(Namespace { volume: VolumeId(2), ..namespace(1, 0, false) }));
    let data = pattern(16_384, 1);
    world.grant(IO, &r2t, &data, 16_384);
    world.command_with(IO, Command::write(1, 40, 1, 512).with_command_id(2), &[9; 512]);
    assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
    assert_eq!(world.volumes[2][..16_384], data);
}
