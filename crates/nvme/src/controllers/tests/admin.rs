//! Checklist 19, 23 and the rest of the admin commands: features, logs with offsets, abort, and
//! what is refused.

use wire::nvme::log::{CommandEffects, ErrorEntry, LogId, Smart};

use super::*;

fn get(world: &mut World, line: Line, feature: u8, select: u32, cdw11: u32) -> Reply {
    let command = Command::get_features(feature, 0, 4096)
        .with_cdw(10, u32::from(feature) | select << 8)
        .with_cdw(11, cdw11);
    world.admin(line, &command)
}

fn set(world: &mut World, line: Line, feature: u8, value: u32) -> Reply {
    world.admin(line, &Command::set_features(feature, 0, value, 0))
}

#[test]
fn the_number_of_queues_is_the_least_of_what_is_asked_and_there_is() {
    let (mut world, line, view) = World::ready_on(1);
    let both = |count: u64| (count - 1) << 16 | (count - 1);
    assert_eq!(get(&mut world, line, 7, 0, 0).result, both(128));
    for (value, granted) in [(3 << 16 | 7, 4), (7 << 16 | 3, 4), (0, 1), (0xfffe_fffe, 128)] {
        assert_eq!(set(&mut world, line, 7, value).result, both(granted));
        assert_eq!(get(&mut world, line, 7, 0, 0).result, both(granted));
    }
    for value in [0xffff_0000, 0x0000_ffff] {
        let reply = set(&mut world, line, 7, value);
        assert_eq!(reply.status, Status::INVALID_FIELD.with_dnr());
    }
    world.join(&Ask::io(0, view.controller, 1));
    let late = set(&mut world, line, 7, 0);
    assert_eq!(late.status, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
}

#[test]
fn features_return_what_was_set_and_their_defaults() {
    let (mut world, line, _) = World::ready_as(1, &Ask { keep_alive_ms: 5000, ..Ask::default() });
    for (feature, value, default) in [
        (0x01, 0x0102_0303, 7),
        (0x02, 0x20, 0),
        (0x04, 0x0150, 0xffff),
        (0x05, 10, 0),
        (0x0a, 1, 0),
        (0x0b, 1 << 8, 0),
        (0x0f, 9000, 0),
    ] {
        assert_eq!(set(&mut world, line, feature, value).status, Status::SUCCESS, "{feature:#x}");
        let current = get(&mut world, line, feature, 0, 0);
        assert_eq!((current.status, current.result), (Status::SUCCESS, value.into()));
        assert_eq!(get(&mut world, line, feature, 1, 0).result, default, "{feature:#x}");
        assert_eq!(get(&mut world, line, feature, 2, 0).result, default, "{feature:#x}");
        let per_namespace = u64::from(feature == 0x05) << 1;
        let capabilities = get(&mut world, line, feature, 3, 0).result;
        assert_eq!(capabilities, 4 | per_namespace, "changeable, not saveable");
    }
    assert_eq!(get(&mut world, line, 6, 0, 0).result, 1, "the cache is on");
    assert_eq!(get(&mut world, line, 0x0f, 4, 0).status, Status::INVALID_FIELD.with_dnr());
    let off = set(&mut world, line, 6, 0);
    assert_eq!(off.status, Status::FEATURE_NOT_CHANGEABLE.with_dnr());
    assert_eq!(get(&mut world, line, 0x81, 0, 1).data.bytes, [1; 16]);
    assert_eq!(get(&mut world, line, 0x81, 0, 0).status, Status::INVALID_FIELD.with_dnr());
    for feature in [0x00, 0x03, 0x08, 0x0c, 0x10, 0x16, 0x80, 0x84, 0xc0] {
        let unknown = Status::INVALID_FIELD.with_dnr();
        assert_eq!(get(&mut world, line, feature, 0, 0).status, unknown, "{feature:#x}");
        assert_eq!(set(&mut world, line, feature, 0).status, unknown, "{feature:#x}");
    }
}

#[test]
fn nothing_is_saved_and_error_recovery_is_per_namespace() {
    let (mut world, line, _) = World::ready_on(1);
    let save = Command::set_features(0x0b, 0, 0, 0).with_cdw(10, 0x8000_000b);
    world.refuses(line, &save, Status::FEATURE_NOT_SAVEABLE);
    let one = Command::set_features(0x0b, 1, 0, 0);
    world.refuses(line, &one, Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
    let all = Command::set_features(0x0b, u32::MAX, 0, 0);
    assert_eq!(world.admin(line, &all).status, Status::SUCCESS);
    let mut set = |nsid, value| world.admin(line, &Command::set_features(5, nsid, value, 0)).status;
    assert_eq!(set(u32::MAX, 3), Status::SUCCESS);
    assert_eq!(set(1, 9), Status::SUCCESS);
    assert_eq!(set(77, 9), Status::INVALID_NAMESPACE.with_dnr());
    let mut get = |nsid| world.admin(line, &Command::get_features(5, nsid, 0)).result;
    assert_eq!((get(1), get(0)), (9, 3));
    let _ = world.admin(line, &Command::set_features(5, u32::MAX, 4, 0));
    assert_eq!(world.admin(line, &Command::get_features(5, 1, 0)).result, 4, "all means all");
}

#[test]
fn the_timestamp_goes_on_from_what_was_set() {
    let (mut world, line, _) = World::ready_on(1);
    let command = Command::set_features(0x0e, 0, 0, 8);
    let time = wire::nvme::feature::Timestamp::new(1_700_000_000_000, true);
    assert_eq!(world.admin_with(line, &command, &time.emit()).status, Status::SUCCESS);
    world.pass(Duration::from_millis(1500));
    let data = get(&mut world, line, 0x0e, 0, 0).data.bytes;
    let seen = wire::nvme::feature::Timestamp::parse(&data).expect("a timestamp");
    assert_eq!(seen, wire::nvme::feature::Timestamp::new(1_700_000_001_500, true));
    let short = world.admin_with(line, &command, &[0; 7]);
    assert_eq!(short.status, Status::INVALID_SGL_LENGTH.with_dnr());
}

#[test]
fn a_log_can_be_read_in_pieces() {
    let (mut world, line, _) = World::ready_on(1);
    let read = |world: &mut World, offset, bytes| {
        world.admin(line, &Command::get_log(LogId::COMMAND_EFFECTS, 0, offset, bytes, true))
    };
    let whole = read(&mut world, 0, 4096).data.bytes;
    let effects = CommandEffects::parse(&whole).expect("effects");
    assert_eq!((effects.admin[6], effects.io[1], effects.io[2]), (1, 3, 1));
    assert_eq!((effects.admin[0], effects.io[4], effects.io[0x19]), (0, 0, 3));
    for offset in (0..4096).step_by(1020) {
        assert_eq!(read(&mut world, offset, 1020).data.bytes[..16], whole[offset as usize..][..16]);
    }
    let behind = read(&mut world, 4092, 16);
    assert_eq!((behind.data.bytes.len(), behind.data.zeros), (4, 12), "zeros behind the end");
    let refused = Status::INVALID_FIELD.with_dnr();
    assert_eq!(read(&mut world, 4100, 4).status, refused);
    assert_eq!(read(&mut world, 2, 4).status, refused);
    assert_eq!(read(&mut world, 0, (1 << 20) + 4).status, refused, "more than MDTS");
    let index = Command::get_log(LogId::ERROR, 0, 0, 4, true).with_cdw(14, 1 << 23);
    assert_eq!(world.admin(line, &index).status, refused);
}

#[test]
fn the_logs_that_hosts_ask_for_are_there() {
    let (mut world, line, _) = World::ready_on(1);
    for id in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c, 0x12, 0x80] {
        let reply = world.admin(line, &Command::get_log(LogId(id), u32::MAX, 0, 512, true));
        assert_eq!((reply.status, reply.data.len()), (Status::SUCCESS, 512), "{id:#x}");
    }
    for id in [0x06, 0x07, 0x08, 0x09, 0x0d, 0x13, 0x70, 0x81, 0xc0] {
        let command = Command::get_log(LogId(id), 0, 0, 512, true);
        world.refuses(line, &command, Status::INVALID_LOG_PAGE);
    }
    let smart = world.admin(line, &Command::get_log(LogId::SMART, u32::MAX, 0, 512, true));
    let smart = Smart::parse(&smart.data.bytes).expect("health");
    assert_eq!((smart.critical_warning, smart.available_spare), (0, 100));
    assert_eq!(smart.available_spare_threshold, 10);
}

#[test]
fn errors_are_logged_newest_first_and_bounded() {
    let (mut world, line, _) = World::ready_on(1);
    for command_id in 1..=20 {
        let unknown = Command::new(0x42).with_command_id(command_id);
        world.refuses(line, &unknown, Status::INVALID_OPCODE);
    }
    let data = world.admin(line, &Command::get_log(LogId::ERROR, 0, 0, 16 * 64, true)).data.bytes;
    let entry = |index: usize| ErrorEntry::parse(&data[64 * index..]).expect("an entry");
    let (first, last) = (entry(0), entry(15));
    assert_eq!((first.error_count, first.command_id), (20, 20));
    assert_eq!((last.error_count, last.command_id), (5, 5));
    assert_eq!(first.status(), Status::INVALID_OPCODE.with_dnr());
    assert_eq!(world.shards[0].report()[0].errors, 20);
}

#[test]
fn commands_that_there_are_not_are_refused() {
    let (mut world, line, _) = World::ready_on(1);
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x11, 0x14, 0x15, 0x80, 0x81, 0x84, 0xff] {
        world.refuses(line, &Command::new(opcode), Status::INVALID_OPCODE);
    }
    let mut with_prp = Command::keep_alive();
    with_prp.0[1] = 0;
    world.refuses(line, &with_prp, Status::INVALID_FIELD);
    // The formats of Fabrics commands reserve those bits.
    let mut property = Command::property_get(0x08, false);
    property.0[1] = 0;
    assert_eq!(world.admin(line, &property).status, Status::SUCCESS);
    let mut fused = Command::keep_alive();
    fused.0[1] |= 1;
    world.refuses(line, &fused, Status::INVALID_FIELD);
}

#[test]
fn abort_says_that_it_did_not() {
    let (mut world, line, _) = World::ready_on(1);
    let reply = world.admin(line, &Command::abort(1, 2));
    assert_eq!((reply.status, reply.result), (Status::SUCCESS, 1));
}

#[test]
fn the_report_names_hosts_queues_and_shards() {
    let (mut world, _, view) = World::ready_as(2, &Ask { keep_alive_ms: 5000, ..Ask::default() });
    world.join(&Ask::io(1, view.controller, 1));
    world.join(&Ask::io(0, view.controller, 2));
    let report = world.shards[0].report();
    assert_eq!(report.len(), 1);
    assert_eq!((report[0].controller, report[0].keep_alive_ms), (view.controller, 5000));
    assert_eq!(report[0].queues, [(1, ShardId(1)), (2, ShardId(0))]);
    assert_eq!((&report[0].host, report[0].state), (&host(1), ControllerState::Ready));
    assert!(world.shards[1].report().is_empty());
}
