//! Another volume under a number: what was meant for the old one never reaches it. What waited when
//! it came is in `judged_anew`.

use block::VolumeId;
use wire::nvme::identify::Cns;
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::transfer::{ADMIN, IO};
use super::world::{Said, World, namespace, pattern, statuses};
use crate::subsystem::Namespace;

pub(super) const GONE: Status = Status::INVALID_NAMESPACE.with_dnr();

/// Puts the blocks of volume 2 under number 1, where those of volume 0 are.
pub(super) fn swap(world: &mut World) {
    world.put(Some(Namespace { uuid: [0x77; 16], ..namespace(1, 2, false) }));
}

/// The same, as `apply` does it.
pub(super) fn replace(world: &mut World) {
    world.put(None);
    swap(world);
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
            assert_eq!(statuses(&mut world), [(0, GONE), (1, GONE), (2, GONE)]);
            world.command(ADMIN, Command::identify(cns, 1));
            world.said(ADMIN);
        }
        assert!(
            world.ask_with(IO, Command::write(5, 0, 1, 512), &[1; 512]).status().is_success(),
            "other numbers are open"
        );
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
