//! Reservation notifications: who is told what, how often, and what is kept for a host that does not
//! look; and the features that concern reservations.

use reservation::replica::Answer as Decision;
use reservation::{Change, Consequences, Registrant, Reservation, Told, Value, Verdict};
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::log::LogId;
use wire::nvme::reservation::{NotificationType, ReservationNotification};

use super::*;
use crate::limits::NOTIFICATIONS_MAX;

const VOLUME: VolumeId = VolumeId(1);
const PREEMPTED: NotificationType = NotificationType::REGISTRATION_PREEMPTED;
const RELEASED: NotificationType = NotificationType::RESERVATION_RELEASED;

fn nvme(number: u8) -> Registrant {
    Registrant::NvmeHost([number; 16])
}

impl World {
    /// A change is in force on all shards.
    fn changed(&mut self, volume: VolumeId, told: &[(Registrant, Told)], ended: &[Registrant]) {
        let consequences = Consequences { told: told.to_vec(), ended: ended.to_vec() };
        for controllers in &mut self.shards {
            controllers.reservation_changed(volume, &consequences);
        }
        self.collect();
    }

    /// The first host is told this of [`VOLUME`].
    fn tell(&mut self, told: Told) {
        self.changed(VOLUME, &[(nvme(1), told)], &[]);
    }

    fn wait_for_event(&mut self, line: Line, command_id: u16) -> Answer {
        let command = Command::async_event_request().with_command_id(command_id);
        self.start_command(line, &command, &[])
    }

    /// The oldest notification: its number, type, NSID, and how many more there are.
    fn read(&mut self, line: Line, retain: bool) -> (u64, NotificationType, u32, u8) {
        let command = Command::get_log(LogId::RESERVATION_NOTIFICATION, 0, 0, 64, retain);
        let data = self.admin(line, &command).data.bytes;
        let log = ReservationNotification::parse(&data).expect("a notification");
        (log.count, log.kind, log.nsid, log.more)
    }
}

fn event() -> u64 {
    AsyncEvent::RESERVATION_NOTIFICATION.to_result().into()
}

#[test]
fn a_host_is_told_once_until_it_reads_the_log() {
    let (mut world, line, _) = World::ready_on(1);
    world.wait_for_event(line, 10);
    world.wait_for_event(line, 11);
    assert_eq!(world.read(line, false), (0, NotificationType::EMPTY, 0, 0));
    world.tell(Told::RegistrationPreempted);
    let reply = world.take_reply(line).expect("an event");
    assert_eq!((reply.command_id, reply.result), (10, event()));
    world.tell(Told::ReservationReleased);
    world.tell(Told::ReservationPreempted);
    assert_eq!(world.take_reply(line), None, "it was told");
    assert_eq!(world.read(line, true), (1, PREEMPTED, 1, 2));
    assert_eq!(world.take_reply(line), None, "RAE 1 takes nothing");
    assert_eq!(world.read(line, false), (1, PREEMPTED, 1, 2));
    // There are more: it is told again.
    assert_eq!(world.take_reply(line).map(|reply| reply.command_id), Some(11));
    assert_eq!(world.read(line, false), (2, RELEASED, 1, 1));
    assert_eq!(world.read(line, false), (3, NotificationType::RESERVATION_PREEMPTED, 1, 0));
    assert_eq!(world.wait_for_event(line, 12), Answer::Later, "it has read all there was");
    assert_eq!(world.read(line, false).0, 0);
    world.tell(Told::ReservationReleased);
    assert_eq!(world.take_reply(line).map(|reply| reply.command_id), Some(12));
    assert_eq!(world.read(line, false).0, 4);
}

#[test]
fn an_event_waits_for_a_request_and_for_nothing_else() {
    let (mut world, line, _) = World::ready_on(1);
    // The configuration of asynchronous events has no bit for it.
    world.admin(line, &Command::set_features(0x0b, 0, 0, 0));
    world.tell(Told::ReservationReleased);
    let Answer::Now(reply) = world.wait_for_event(line, 3) else { panic!("there is an event") };
    assert_eq!(reply.result, event());
    // The other kind of event has its own.
    world.admin(line, &Command::set_features(0x0b, 0, 1 << 8, 0));
    world.wait_for_event(line, 4);
    world.put([Namespace { blocks: BlockCount(4096), ..namespace(1) }]);
    let reply = world.take_reply(line).expect("another event");
    assert_eq!(reply.result, u64::from(AsyncEvent::NAMESPACE_CHANGED.to_result()));
}

#[test]
fn each_controller_of_a_host_is_told_on_whatever_shard_and_nobody_else() {
    let mut world = World::new(2);
    world.put([namespace(1), namespace(2)]);
    let (first, _) = world.ready(&Ask::default());
    let (second, _) = world.ready(&Ask { shard: 1, ..Ask::default() });
    let (other, _) = world.ready(&Ask { host: host(2), ..Ask::default() });
    world.changed(
        VOLUME,
        &[
            (nvme(1), Told::RegistrationPreempted),
            (Registrant::Mac([1; 6]), Told::ReservationReleased),
        ],
        &[],
    );
    world.changed(VolumeId(9), &[(nvme(2), Told::ReservationReleased)], &[]);
    for line in [first, second] {
        assert_eq!(world.read(line, false), (1, PREEMPTED, 1, 0));
        assert_eq!(world.read(line, false).0, 0);
    }
    assert_eq!(world.read(other, false).0, 0);
}

#[test]
fn a_volume_under_two_numbers_is_told_of_under_both() {
    let mut world = World::new(1);
    world.put([Namespace { volume: VOLUME, ..namespace(4) }]);
    let (line, _) = world.ready(&Ask::default());
    world.tell(Told::RegistrationPreempted);
    assert_eq!(world.read(line, false), (1, PREEMPTED, 1, 1));
    assert_eq!(world.read(line, false), (2, PREEMPTED, 4, 0));
}

#[test]
fn what_a_host_masks_for_a_namespace_it_is_not_told() {
    let mut world = World::new(1);
    world.put([namespace(1), namespace(2)]);
    let (line, _) = world.ready(&Ask::default());
    let mask = |nsid, value| Command::set_features(0x82, nsid, value, 0);
    assert_eq!(world.admin(line, &mask(1, 0b0111)).status, Status::SUCCESS);
    world.refuses(line, &mask(77, 0b0010), Status::INVALID_NAMESPACE);
    let current =
        |world: &mut World, nsid| world.admin(line, &Command::get_features(0x82, nsid, 0)).result;
    assert_eq!((current(&mut world, 1), current(&mut world, 2)), (0b0110, 0), "bit 0 is reserved");
    world.tell(Told::RegistrationPreempted);
    world.tell(Told::ReservationReleased);
    assert_eq!(world.read(line, false).0, 0);
    world.tell(Told::ReservationPreempted);
    assert_eq!(world.read(line, false), (1, NotificationType::RESERVATION_PREEMPTED, 1, 0));
    world.changed(VolumeId(2), &[(nvme(1), Told::ReservationReleased)], &[]);
    assert_eq!(world.read(line, false), (2, RELEASED, 2, 0));
    // All means all.
    assert_eq!(world.admin(line, &mask(u32::MAX, 0)).status, Status::SUCCESS);
    assert_eq!(current(&mut world, 1), 0);
    world.tell(Told::ReservationReleased);
    assert_eq!(world.read(line, false).0, 3);
    let capabilities = Command::get_features(0x82, 1, 0).with_cdw(10, 3 << 8 | 0x82);
    assert_eq!(world.admin(line, &capabilities).result, 0b110, "per namespace, changeable");
}

#[test]
fn the_oldest_are_lost_where_nobody_reads() {
    let (mut world, line, _) = World::ready_on(1);
    for _ in 0..NOTIFICATIONS_MAX + 2 {
        world.tell(Told::ReservationReleased);
    }
    let left = NOTIFICATIONS_MAX as u8 - 1;
    assert_eq!(world.read(line, false), (3, RELEASED, 1, left), "the numbers show it");
}

#[test]
fn a_reset_forgets_notifications_and_masks() {
    let (mut world, line, _) = World::ready_on(1);
    world.admin(line, &Command::set_features(0x82, 1, 0b0100, 0));
    world.tell(Told::RegistrationPreempted);
    assert_eq!(world.set_cc(line, ENABLE & !1).status, Status::SUCCESS);
    world.tell(Told::RegistrationPreempted);
    assert_eq!(world.set_cc(line, ENABLE).status, Status::SUCCESS);
    assert_eq!(world.read(line, false).0, 0, "nor is one kept that is not enabled");
    world.tell(Told::ReservationReleased);
    assert_eq!(world.read(line, false), (1, RELEASED, 1, 0));
}

#[test]
fn a_discovery_controller_has_no_such_log() {
    let ask = Ask { subsystem: Nqn::DISCOVERY.into(), ..Ask::default() };
    let (mut world, line, _) = World::ready_as(1, &ask);
    let command = Command::get_log(LogId::RESERVATION_NOTIFICATION, 0, 0, 64, true);
    world.refuses(line, &command, Status::INVALID_LOG_PAGE);
    for command in [Command::get_features(0x82, 1, 0), Command::set_features(0x83, 1, 1, 0)] {
        world.refuses(line, &command, Status::INVALID_FIELD);
    }
}

#[test]
fn queues_of_a_host_hear_that_their_commands_are_ended() {
    let (mut world, _, view) = World::ready_on(2);
    let (here, _) = world.join(&Ask::io(0, view.controller, 1));
    let (there, _) = world.join(&Ask::io(1, view.controller, 2));
    let (_, other) = world.ready(&Ask { host: host(2), ..Ask::default() });
    world.join(&Ask { host: host(2), ..Ask::io(0, other.controller, 1) });
    world.changed(VOLUME, &[], &[nvme(1), Registrant::Mac([1; 6])]);
    assert_eq!(world.preempted, [(here.key, VOLUME), (there.key, VOLUME)]);
    world.cut(here);
    world.changed(VOLUME, &[], &[nvme(1)]);
    assert_eq!(world.preempted[2..], [(there.key, VOLUME)], "the other drains");
}

#[test]
fn whether_registrants_outlive_the_process_is_a_feature_of_the_namespace() {
    let (mut world, line, _) = World::ready_on(1);
    let get = |world: &mut World| {
        let reply = world.admin(line, &Command::get_features(0x83, 1, 0));
        (reply.status, reply.result)
    };
    assert_eq!(get(&mut world), (Status::SUCCESS, 0));
    let set = Command::set_features(0x83, 1, 1, 0).with_command_id(40);
    world.admin_later(line, &set);
    let (volume, number, change) = world.of(line).poll_reservation_change().expect("a change");
    assert_eq!((volume, &change), (VOLUME, &Change::Persist(true)));
    let (next, verdict) = Reservation::default().apply(&change);
    let next = next.expect("it is another");
    world.reservations.set(volume, next.clone());
    world.of(line).handle_reservation_answer(number, &Decision::Decided(verdict, next));
    world.collect();
    assert_eq!(
        (verdict, world.take_reply(line)),
        (Verdict::Done, Some(Reply::new(40, Status::SUCCESS)))
    );
    assert_eq!(get(&mut world), (Status::SUCCESS, 1));
    for select in [1, 2] {
        let default = Command::get_features(0x83, 1, 0).with_cdw(10, select << 8 | 0x83);
        assert_eq!(world.admin(line, &default).result, 0);
    }
    for nsid in [0, 2, u32::MAX] {
        world.refuses(line, &Command::get_features(0x83, nsid, 0), Status::INVALID_NAMESPACE);
        world.refuses(line, &Command::set_features(0x83, nsid, 1, 0), Status::INVALID_NAMESPACE);
    }
    let save = set.with_cdw(10, 0x8000_0083);
    world.refuses(line, &save, Status::FEATURE_NOT_SAVEABLE);
}

#[test]
fn a_change_is_answered_to_the_command_that_asked_for_it() {
    let (mut world, line, view) = World::ready_on(1);
    let (io, _) = world.join(&Ask::io(0, view.controller, 1));
    for slot in [3, 4] {
        world.of(line).propose(io.key, slot, VOLUME, Change::Persist(true));
    }
    let mut numbers = Vec::new();
    while let Some((_, number, _)) = world.of(line).poll_reservation_change() {
        numbers.push(number);
    }
    world.of(line).handle_reservation_answer(numbers[1], &Decision::Busy);
    world.of(line).handle_reservation_answer(numbers[0], &Decision::NotStored);
    world.collect();
    let decided = [(4, Status::COMMAND_INTERRUPTED), (3, Status::INTERNAL_ERROR)];
    assert_eq!(world.decided, decided.map(|(slot, status)| (io.key, slot, status)));
}
