//! What is exported changes while hosts are logged in: what they are told, and that none of them takes
//! another volume's blocks for those that it knew.

use block::BlockCount;
use scsi::LogicalUnit;
use wire::iscsi::LoginStatus;
use wire::scsi::{AdditionalSense, Cdb, Lun, ScsiStatus, SenseKey};

use super::world::{Order, Said, TARGET, VOLUME, World, pattern, read, refused, target, write};
use crate::fixtures::{name, unit};
use crate::server::Reason;
use crate::target::{Hosts, Target, Unit};
use crate::targets::CloseReason;

const ATTENTION: SenseKey = SenseKey::UNIT_ATTENTION;
const NO_UNIT: AdditionalSense = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;

/// Exports this from now on, and every shard has it.
fn put(world: &mut World, target: Target) {
    world.shard.shared.set_target(target);
    world.shard.shared.announce();
    world.run();
}

/// [`target`] with this under LUN 0.
fn with_first(first: LogicalUnit) -> Target {
    target().with_unit(Unit { lun: 0, hosts: Hosts::Any, unit: first })
}

fn without_first() -> Target {
    let mut target = target();
    target.units.remove(0);
    target
}

#[test]
fn a_unit_that_grew_tells_its_hosts() {
    let mut world = World::connected(Default::default());
    let blocks = BlockCount((VOLUME / 512) as u64 + 8);
    world.volumes[0].extend([5; 4096]);
    put(&mut world, with_first(LogicalUnit { blocks, ..unit(0, VOLUME) }));
    refused(&world.ask(read(0, 512), &[]), ATTENTION, AdditionalSense::CAPACITY_DATA_CHANGED);
    assert_eq!(world.ask(read(4096, 512), &[]).status(), ScsiStatus::GOOD, "and takes it");
}

/// Somebody who asks before all shards know it could be told by one what another denies.
#[test]
fn hosts_are_told_once_every_shard_has_the_change() {
    let mut world = World::connected(Default::default());
    let blocks = BlockCount((VOLUME / 512) as u64 - 8);
    world.shard.shared.set_target(with_first(LogicalUnit { blocks, ..unit(0, VOLUME) }));
    world.run();
    assert!(world.lives());
    world.shard.shared.announce();
    world.run();
    refused(&world.ask(read(0, 512), &[]), ATTENTION, AdditionalSense::CAPACITY_DATA_CHANGED);
}

#[test]
fn other_changes_of_a_unit_are_told_as_such() {
    let mut world = World::connected(Default::default());
    put(&mut world, with_first(LogicalUnit { read_only: true, ..unit(0, VOLUME) }));
    refused(&world.ask(read(0, 512), &[]), ATTENTION, AdditionalSense::INQUIRY_DATA_CHANGED);
    refused(
        &world.ask(write(0, 512), &[1; 512]),
        SenseKey::DATA_PROTECT,
        AdditionalSense::WRITE_PROTECTED,
    );
    put(&mut world, with_first(LogicalUnit { read_only: true, ..unit(0, VOLUME) }));
    assert!(world.lives(), "nothing has changed");
}

#[test]
fn a_unit_that_is_gone_is_not_there() {
    let mut world = World::connected(Default::default());
    put(&mut world, without_first());
    refused(&world.ask(read(0, 512), &[]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    // Of the others it is told that the list changed, once, and who reads the list knows.
    let other = Order { lun: Lun::of(1).0, ..read(0, 512) };
    let changed = AdditionalSense::REPORTED_LUNS_DATA_CHANGED;
    refused(&world.ask(other, &[]), ATTENTION, changed);
    assert_eq!(world.ask(other, &[]).status(), ScsiStatus::GOOD);
    put(&mut world, target());
    world.ask(Order::read(1, Cdb::report_luns(64), 64), &[]);
    assert_eq!(world.ask(other, &[]).status(), ScsiStatus::GOOD);
    assert!(world.lives());
}

/// Scanners ask LUN 0, whether or not it is there.
#[test]
fn whoever_reads_the_list_from_a_lun_that_is_not_there_knows_it_too() {
    let mut world = World::connected(Default::default());
    put(&mut world, without_first());
    let list = world.ask(Order::read(0, Cdb::report_luns(64), 64), &[]);
    assert!(matches!(list, Said::Data(..)), "{list:?}");
    let other = Order { lun: Lun::of(1).0, ..read(0, 512) };
    assert_eq!(world.ask(other, &[]).status(), ScsiStatus::GOOD);
}

#[test]
fn what_goes_while_its_requests_are_below_is_awaited() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 512), &[1; 512]);
    let r2t = {
        world.command(0, write(8, 65_536), &[]);
        world.said_one(0).r2t()
    };
    put(&mut world, without_first());
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    let said = world.granted(&r2t, &pattern(65_536, 1), 8192);
    refused(&said, SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    assert_eq!(world.log, ["write"]);
}

/// An initiator that has not noticed would mix two volumes.
#[test]
fn a_unit_that_is_another_volume_s_is_neither_read_nor_written_before_its_host_asks_whose_it_is() {
    let mut world = World::connected(Default::default());
    put(&mut world, with_first(unit(2, VOLUME)));
    let changed = AdditionalSense::REPORTED_LUNS_DATA_CHANGED;
    refused(&world.ask(write(0, 512), &[1; 512]), ATTENTION, changed);
    for (order, data) in
        [(read(0, 512), vec![]), (write(0, 512), vec![1; 512]), (write(0, 65_536), vec![])]
    {
        refused(&world.ask(order, &data), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    }
    let ready = world.ask(Order::new(0, Cdb::test_unit_ready()), &[]);
    refused(&ready, SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    // Nor is it by a question whose answer does not say whose it is.
    for cdb in
        [Cdb::inquiry(96), Cdb::vital_product_data(0xb0, 64), Cdb::vital_product_data(0x42, 64)]
    {
        world.ask(Order::read(0, cdb, 96), &[]);
        refused(&world.ask(write(0, 512), &[1; 512]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    }
    assert!(world.log.is_empty());
    let page = Order::read(0, Cdb::vital_product_data(0x83, 255), 255);
    assert_eq!(world.ask(page, &[]).status(), ScsiStatus::GOOD);
    assert_eq!(world.ask(write(0, 512), &[7; 512]).status(), ScsiStatus::GOOD);
    assert_eq!(world.volumes[2][..512], [7; 512]);
    // Who comes later knows it as nothing else.
    let other = world.join(&[]);
    world.command(other, read(0, 512), &[]);
    assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
}

#[test]
fn what_waits_for_a_volume_is_not_done_to_another() {
    let mut world = World::connected(Default::default());
    let r2t = world.ask(write(0, 65_536), &[]).r2t();
    world.hold_requests = true;
    world.command(0, read(0, 512), &[]);
    put(&mut world, with_first(unit(2, VOLUME)));
    let said = world.granted(&r2t, &pattern(65_536, 1), 8192);
    refused(&said, SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD, "it is below, and the old volume's");
    assert!(world.volumes[2].iter().all(|byte| *byte == 0));
}

/// A removal that is undone gives a volume another number, and the same identity.
#[test]
fn a_volume_that_comes_back_under_another_number_is_the_same() {
    let mut world = World::connected(Default::default());
    let back = LogicalUnit { volume: block::VolumeId(1), ..unit(0, VOLUME) };
    put(&mut world, with_first(back));
    let said = world.ask(read(0, 512), &[]);
    refused(&said, ATTENTION, AdditionalSense::INQUIRY_DATA_CHANGED);
    assert_eq!(world.ask(write(0, 512), &[3; 512]).status(), ScsiStatus::GOOD);
    assert_eq!(world.volumes[1][..512], [3; 512]);
}

#[test]
fn a_target_that_is_not_exported_any_more_drops_its_sessions() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 512), &[1; 512]);
    world.shard.shared.remove_target(&name(TARGET));
    world.run();
    assert!(matches!(world.said(0)[..], [Said::Async(_)]));
    let reason = world.links[0].connection.reason();
    assert_eq!(reason, Some(&Reason::Asked(CloseReason::TargetRemoved)));
    world.hold_requests = false;
    world.run();
    assert_eq!(world.shard.shared.session_count(), 0);
    let link = world.accept();
    assert_eq!(world.log_in(link, Some(TARGET), &[]).login(), LoginStatus::NOT_FOUND);
}

#[test]
fn a_host_that_no_unit_names_any_more_is_dropped() {
    let mut world = World::connected(Default::default());
    let mut closed = target();
    closed.units[1].hosts = Hosts::List(Vec::new());
    put(&mut world, closed.clone());
    refused(&world.ask(read(0, 512), &[]), ATTENTION, AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
    let masked = Order { lun: Lun::of(1).0, ..read(0, 512) };
    refused(&world.ask(masked, &[]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    closed.units.iter_mut().for_each(|unit| unit.hosts = Hosts::List(Vec::new()));
    put(&mut world, closed);
    assert!(matches!(world.said(0)[..], [Said::Async(_)]));
    let reason = world.links[0].connection.reason();
    assert_eq!(reason, Some(&Reason::Asked(CloseReason::HostRemoved)));
}

#[test]
fn what_hosts_have_set_stays_when_a_unit_changes() {
    let mut world = World::connected(Default::default());
    let data = [0, 0, 0, 0, 0x0a, 0x0a, 0x20, 0x10, 8, 0, 0, 0, 0, 0, 0, 0];
    let order = Order::write(0, Cdb::mode_select_6(16), 16);
    assert_eq!(world.ask(order, &data).status(), ScsiStatus::GOOD);
    let blocks = BlockCount(8);
    put(&mut world, with_first(LogicalUnit { blocks, ..unit(0, VOLUME) }));
    refused(&world.ask(read(0, 512), &[]), ATTENTION, AdditionalSense::CAPACITY_DATA_CHANGED);
    let said = world.ask(write(0, 512), &[1; 512]);
    refused(&said, SenseKey::DATA_PROTECT, AdditionalSense::SOFTWARE_WRITE_PROTECTED);
}

#[test]
fn a_disk_that_is_stuck_drops_the_sessions_that_use_it() {
    let mut world = World::connected(Default::default());
    world.shard.shared.volume_stuck(block::VolumeId(7));
    world.run();
    assert!(world.lives());
    world.shard.shared.volume_stuck(block::VolumeId(2));
    world.run();
    assert!(matches!(world.said(0)[..], [Said::Async(_)]));
    let reason = world.links[0].connection.reason();
    assert_eq!(reason, Some(&Reason::Asked(CloseReason::DiskStuck)));
}

#[test]
fn an_administrator_closes_the_sessions_of_one_host() {
    let mut world = World::connected(Default::default());
    assert_eq!(world.shard.shared.close_sessions(&name("iqn.2026-11.net.plateway:nobody")), 0);
    assert_eq!(world.shard.shared.close_sessions(&name(super::world::HOST)), 1);
    world.run();
    assert!(matches!(world.said(0)[..], [Said::Async(_)]));
    assert_eq!(world.links[0].pipe.close, Some(true));
    let link = world.accept();
    world.links[link].host.isid = world.links[0].host.isid;
    assert!(world.log_in(link, Some(TARGET), &[]).login().is_success(), "it may come again");
}

/// As a configuration is applied: what was there goes, and then something else comes.
#[test]
fn what_a_host_knew_under_a_number_is_remembered_while_nothing_is_there() {
    let gone = |world: &mut World| {
        put(world, without_first());
        world.ask(Order::read(1, Cdb::report_luns(64), 64), &[]);
    };
    let mut world = World::connected(Default::default());
    gone(&mut world);
    put(&mut world, with_first(unit(2, VOLUME)));
    let changed = AdditionalSense::REPORTED_LUNS_DATA_CHANGED;
    refused(&world.ask(write(0, 512), &[1; 512]), ATTENTION, changed);
    refused(&world.ask(write(0, 512), &[1; 512]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    assert!(world.log.is_empty());
    // The old one comes back, and again another.
    gone(&mut world);
    put(&mut world, target());
    world.ask(Order::read(1, Cdb::report_luns(64), 64), &[]);
    assert!(world.lives());
    gone(&mut world);
    // That there is nothing is no word of what comes then.
    world.ask(Order::read(0, Cdb::vital_product_data(0x83, 255), 255), &[]);
    put(&mut world, with_first(unit(2, VOLUME)));
    world.ask(write(0, 512), &[1; 512]);
    refused(&world.ask(write(0, 512), &[1; 512]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    let page = Order::read(0, Cdb::vital_product_data(0x80, 255), 255);
    assert_eq!(world.ask(page, &[]).status(), ScsiStatus::GOOD);
    assert_eq!(world.ask(write(0, 512), &[7; 512]).status(), ScsiStatus::GOOD);
    assert_eq!(world.volumes[2][..512], [7; 512]);
}

#[test]
fn who_is_not_named_for_a_while_remembers_what_it_knew() {
    let masked = |first: LogicalUnit| {
        let other = Hosts::List(vec![name("iqn.2026-11.net.plateway:other")]);
        target().with_unit(Unit { lun: 0, hosts: other, unit: first })
    };
    let mut world = World::connected(Default::default());
    put(&mut world, masked(unit(0, VOLUME)));
    put(&mut world, masked(unit(2, VOLUME)));
    put(&mut world, with_first(unit(2, VOLUME)));
    world.ask(Order::read(1, Cdb::report_luns(64), 64), &[]);
    world.ask(write(0, 512), &[1; 512]);
    refused(&world.ask(write(0, 512), &[1; 512]), SenseKey::ILLEGAL_REQUEST, NO_UNIT);
    assert!(world.log.is_empty());
}
