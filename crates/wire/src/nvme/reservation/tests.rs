//! Vectors and round trips of the reservation commands, their data, and the notifications.

use super::*;
use crate::nvme::async_event::AsyncEvent;

#[test]
fn commands_both_ways() {
    let register = Command::reservation_register(7, RegisterAction::REPLACE, ChangePersist::SET)
        .with_ignored_key();
    assert_eq!((register.opcode(), register.nsid()), (0x0d, 7));
    assert_eq!(register.cdw(10), 0xc000_000a);
    assert_eq!(register.sgl(), SglDescriptor::transport(16));
    let dword = ReservationDword::of(&register);
    assert_eq!(dword.register_action(), RegisterAction::REPLACE);
    assert_eq!(dword.change_persist(), ChangePersist::SET);
    assert!(dword.ignores_key());

    let kind = ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS;
    let acquire = Command::reservation_acquire(1, AcquireAction::PREEMPT_AND_ABORT, kind);
    assert_eq!((acquire.opcode(), acquire.cdw(10), acquire.sgl().length), (0x11, 0x402, 16));
    let dword = ReservationDword::of(&acquire);
    assert_eq!(dword.acquire_action(), AcquireAction::PREEMPT_AND_ABORT);
    assert_eq!((dword.reservation_type(), dword.ignores_key()), (kind, false));

    let release = Command::reservation_release(1, ReleaseAction::CLEAR, ReservationType::NONE);
    assert_eq!((release.opcode(), release.cdw(10), release.sgl().length), (0x15, 1, 8));
    assert_eq!(ReservationDword::of(&release).release_action(), ReleaseAction::CLEAR);

    let report = Command::reservation_report(1, 4096);
    assert_eq!((report.opcode(), report.cdw(10), report.cdw(11)), (0x0e, 1023, 1));
    assert_eq!(ReportRequest::of(&report), ReportRequest { bytes: 4096, extended: true });
    let all = report.with_cdw(10, u32::MAX).with_cdw(11, 0);
    assert_eq!(ReportRequest::of(&all), ReportRequest { bytes: 16 << 30, extended: false });
}

#[test]
fn commands_are_described() {
    let line = |command: Command| command.describe(false).to_string();
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert_eq!(
        line(
            Command::reservation_register(1, RegisterAction::UNREGISTER, ChangePersist::CLEAR)
                .with_ignored_key()
        ),
        "Reservation Register cid 0 nsid 1 unregister iekey cptpl 2, 16 bytes"
    );
    assert_eq!(
        line(Command::reservation_acquire(1, AcquireAction::PREEMPT, kind)),
        "Reservation Acquire cid 0 nsid 1 preempt write exclusive, 16 bytes"
    );
    assert_eq!(
        line(Command::reservation_release(1, ReleaseAction::RELEASE, kind)),
        "Reservation Release cid 0 nsid 1 release write exclusive, 8 bytes"
    );
    assert_eq!(
        line(Command::reservation_report(1, 64)),
        "Reservation Report cid 0 nsid 1 bytes 64 extended, 64 bytes"
    );
}

#[test]
fn keys_both_ways() {
    let keys = ReservationKeys { current: 0x0102_0304_0506_0708, other: 0xff };
    let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0xff, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(keys.emit(), bytes);
    assert_eq!(ReservationKeys::parse(&bytes), Ok(keys));
    assert_eq!(ReservationKeys::parse(&bytes[..15]), Err(ParseError::short(16, 15)));
    let key = ReleaseKey { current: keys.current };
    assert_eq!(key.emit(), bytes[..8]);
    // Linux sends both keys with Release, too.
    assert_eq!(ReleaseKey::parse(&bytes), Ok(key));
    assert!(ReleaseKey::parse(&bytes[..7]).is_err());
}

#[test]
fn a_report_both_ways() {
    let registrant = ReportRegistrant {
        controller_id: ReportRegistrant::DYNAMIC,
        status: 1,
        key: 0x0102,
        host_id: [7; 16],
    };
    let other = ReportRegistrant { status: 0, key: 3, host_id: [8; 16], ..registrant };
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    let header = ReportHeader { generation: 0x0a0b, kind, registrants: 2, persists: 1 };
    let report = Report { header, registrants: vec![registrant, other] };
    let bytes = report.emit();
    assert_eq!(bytes.len(), 64 + 2 * 64);
    assert_eq!(bytes[..10], [0x0b, 0x0a, 0, 0, 2, 2, 0, 0, 0, 1]);
    assert_eq!(bytes[64..80], [0xff, 0xff, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!((bytes[80..96].to_vec(), bytes[96..128].to_vec()), (vec![7; 16], vec![0; 32]));
    assert_eq!(Report::parse(&bytes), Ok(report.clone()));
    assert!(registrant.holds() && !other.holds());
    assert_eq!(Report::parse(&bytes[..191]), Err(ParseError::short(192, 191)));
    assert_eq!(Report::parse(&bytes[..63]), Err(ParseError::short(64, 63)));
    assert_eq!(report.to_string(), "exclusive access, generation 2571, 2 registered");
    // The count in the header is that of the list.
    let header = ReportHeader { registrants: 9, ..header };
    assert_eq!(Report { header, ..report }.emit(), bytes);
}

#[test]
fn notifications_both_ways() {
    let kind = NotificationType::RESERVATION_RELEASED;
    let notification = ReservationNotification { count: 0x0102, kind, more: 3, nsid: 5 };
    let bytes = notification.emit();
    assert_eq!(bytes[..16], [2, 1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 5, 0, 0, 0]);
    assert_eq!(bytes[16..], [0; 48]);
    assert_eq!(ReservationNotification::parse(&bytes), Ok(notification));
    assert_eq!(notification.to_string(), "reservation released count 258 nsid 5, 3 more");
    // Type 6, information 0, log 80h.
    assert_eq!(AsyncEvent::RESERVATION_NOTIFICATION.to_result(), 0x80_00_06);
}

#[test]
fn masks_and_capabilities_lie_where_the_specification_has_them() {
    let mask =
        NotificationMask(0).with_registration_preempted(true).with_reservation_preempted(true);
    assert_eq!(mask.0, 0b1010);
    assert!(mask.masks(NotificationType::REGISTRATION_PREEMPTED));
    assert!(!mask.masks(NotificationType::RESERVATION_RELEASED));
    assert!(mask.masks(NotificationType::RESERVATION_PREEMPTED));
    let all = NotificationMask(u32::MAX);
    assert!(!all.masks(NotificationType::EMPTY) && !all.masks(NotificationType(40)));
    assert_eq!(ReservationPersistence(0).with_persists(true).0, 1);
    let all = ReservationCapabilities::ALL;
    assert_eq!(
        all,
        ReservationCapabilities(0).with_persist(true).with_ignores_key(true).with_types(63)
    );
}
