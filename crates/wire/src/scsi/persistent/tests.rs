//! Vectors of what PERSISTENT RESERVE IN returns and OUT takes, both ways and cut.

use super::*;
use crate::scsi::ProtocolId;

fn port() -> TransportId {
    TransportId::iscsi("iqn.2026-11.net.plateway:a", [0x80, 1, 2, 3, 4, 5])
}

#[test]
fn keys_both_ways_and_cut() {
    let keys = ReservationKeys { generation: 7, keys: vec![1, 0xdead_beef] };
    let bytes = keys.emit();
    assert_eq!(bytes[..8], [0, 0, 0, 7, 0, 0, 0, 16]);
    assert_eq!(bytes[16..], [0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(ReservationKeys::parse(&bytes), Ok(keys));
    let one = ReservationKeys { generation: 7, keys: vec![1] };
    assert_eq!(ReservationKeys::parse(&bytes[..23]), Ok(one));
    assert!(ReservationKeys::parse(&bytes[..7]).is_err());
}

#[test]
fn a_held_reservation_both_ways() {
    let kind = ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS;
    let held = HeldReservation { generation: 2, held: Some((0x0102, kind)) };
    let bytes = held.emit();
    assert_eq!(bytes[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
    assert_eq!(bytes[8..], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 6, 0, 0]);
    assert_eq!(HeldReservation::parse(&bytes), Ok(held));
    assert!(HeldReservation::parse(&bytes[..23]).is_err());
    let free = HeldReservation { generation: 2, held: None };
    assert_eq!(free.emit(), [0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(HeldReservation::parse(&free.emit()), Ok(free));
    assert!(HeldReservation::parse(&bytes[..8]).is_err(), "cut, and somebody holds");
}

#[test]
fn capabilities_name_every_type() {
    let flags = ReservationFlags(0).with_persistence_capable(true).with_types_valid(true);
    let flags = flags.with_persistence_active(true);
    let types = ReservationCapabilities::ALL_TYPES;
    let bytes = ReservationCapabilities { length: 8, flags, types }.emit();
    assert_eq!(bytes, [0, 8, 0x01, 0x81, 0xea, 0x01, 0, 0]);
}

#[test]
fn full_status_both_ways_and_cut() {
    let status = FullStatus {
        key: 5,
        all_ports: false,
        held: Some(ReservationType::WRITE_EXCLUSIVE),
        relative_port: 1,
        transport: port(),
    };
    let other = FullStatus { held: None, all_ports: true, ..status.clone() };
    let list = FullStatusList { generation: 1, registrants: vec![status, other] };
    let bytes = list.emit();
    assert_eq!(bytes[20..28], [1, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bytes[28..36], [0, 0, 0, 48, 0x45, 0, 0, 44]);
    assert_eq!(FullStatusList::parse(&bytes), Ok(list.clone()));
    let first = FullStatusList { registrants: list.registrants[..1].to_vec(), ..list };
    assert_eq!(FullStatusList::parse(&bytes[..bytes.len() - 1]), Ok(first));
}

#[test]
fn a_reserve_out_list_both_ways() {
    let list = ReserveOut { key: 1, action_key: 2, persist: true, ..ReserveOut::default() };
    let bytes = list.emit();
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(ReserveOut::parse(&bytes), Ok(list.clone()));
    let more = ReserveOut { also: Some(vec![port(), port()]), all_ports: true, ..list };
    let bytes = more.emit();
    assert_eq!(bytes[20], 0x0d);
    assert_eq!(ReserveOut::parse(&bytes), Ok(more));
    for end in [23, 24, 27, 30, bytes.len() - 1] {
        assert!(ReserveOut::parse(&bytes[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn a_move_both_ways() {
    let to = port();
    let (key, action_key, relative_port) = (1, 2, 3);
    let list =
        RegisterAndMove { key, action_key, unregister: true, persist: false, relative_port, to };
    let bytes = list.emit();
    assert_eq!(bytes[16..24], [0, 2, 0, 3, 0, 0, 0, 48]);
    assert_eq!(RegisterAndMove::parse(&bytes), Ok(list));
    assert!(RegisterAndMove::parse(&bytes[..71]).is_err());
}

#[test]
fn a_transport_id_is_padded_and_says_who_it_is() {
    let id = port();
    let bytes = id.emit();
    assert_eq!(bytes[..4], [0x45, 0, 0, 44]);
    assert_eq!(&bytes[4..48], b"iqn.2026-11.net.plateway:a,i,0x800102030405\0");
    assert_eq!(id.to_string(), "iqn.2026-11.net.plateway:a,i,0x800102030405");
    let short = TransportId { protocol: ProtocolId::ISCSI, format: 0, name: b"iqn.a".to_vec() };
    assert_eq!(short.emit().len(), 24);
    assert_eq!(TransportId::parse(&short.emit()), Ok(short));
    let other = TransportId { protocol: ProtocolId::SAS, format: 0, name: vec![7; 23] };
    assert_eq!(TransportId::parse(&other.emit()), Ok(other));
    let mut endless = bytes.clone();
    endless[47] = b'x';
    assert_eq!(TransportId::parse(&endless).expect_err("no NUL").field, "ISCSI NAME");
    assert!(TransportId::parse(&bytes[..47]).is_err() && TransportId::parse(&[6; 23]).is_err());
}
