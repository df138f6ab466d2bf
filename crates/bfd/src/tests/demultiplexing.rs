//! Whose a packet is, and which are discarded (RFC 5880 clauses 6.3 and 6.8.6).

use std::collections::BTreeSet;

use wire::bfd::{AuthenticationSection, AuthenticationType};

use super::*;
use crate::Refused;
use crate::limits::{INTERVAL_MAX_US, INTERVAL_MIN_US, SESSIONS_MAX};

#[test]
fn discriminators_are_unique_and_not_0_and_another_seed_gives_others() {
    let draw = |seed| {
        let mut sessions = Sessions::new(seed);
        (0..SESSIONS_MAX as u64).for_each(|carrier| {
            sessions.add(Instant::ZERO, Carrier(carrier), SETTINGS).unwrap();
        });
        let drawn: BTreeSet<_> =
            sessions.iter().map(|(_, _, status, ..)| status.local_discriminator).collect();
        assert_eq!(drawn.len(), SESSIONS_MAX);
        assert!(!drawn.contains(&0));
        drawn
    };
    // Random ones of 2^32: of four thousand, a few would be the same by chance at most.
    assert!(draw(1).intersection(&draw(2)).count() < 5);
}

#[test]
fn a_packet_to_nobody_is_for_the_session_of_its_carrier() {
    let mut end = End::new(SETTINGS);
    end.sessions.add(end.now, Carrier(8), SETTINGS).unwrap();
    end.hear(ControlPacket { your_discriminator: 0, ..end.packet(State::DOWN) });
    assert_eq!(end.state(), SessionState::Init);
    assert_eq!(end.sessions.status(Carrier(8)).unwrap().state, SessionState::Down);
}

#[test]
fn a_packet_to_nobody_by_a_carrier_without_a_session_is_discarded() {
    let mut end = End::new(SETTINGS);
    let bytes = ControlPacket { your_discriminator: 0, ..end.packet(State::DOWN) }.emit();
    let taken = end.sessions.handle_packet(end.now, Carrier(8), &bytes);
    assert_eq!(taken, Err(DropReason::NoSession));
    assert_eq!(end.sessions.strays().no_session, 1);
}

#[test]
fn a_packet_with_a_discriminator_is_for_its_session_by_whatever_carrier() {
    let mut end = End::new(SETTINGS);
    end.sessions.add(end.now, Carrier(8), SETTINGS).unwrap();
    for by in [Carrier(8), Carrier(9)] {
        let bytes = end.packet(State::DOWN).emit();
        assert_eq!(end.sessions.handle_packet(end.now, by, &bytes), Ok(CARRIER));
    }
    assert_eq!(end.state(), SessionState::Init);
    assert_eq!(end.sessions.status(Carrier(8)).unwrap().state, SessionState::Down);
}

#[test]
fn a_session_that_is_bound_to_its_carrier_takes_no_packet_by_another() {
    let mut end = End::new(Settings { is_carrier_bound: true, ..SETTINGS });
    let bytes = end.packet(State::DOWN).emit();
    let taken = end.sessions.handle_packet(end.now, Carrier(9), &bytes);
    assert_eq!(taken, Err(DropReason::OtherCarrier));
    assert_eq!((end.state(), end.sessions.strays().other_carrier), (SessionState::Down, 1));
    end.hear(end.packet(State::DOWN));
}

#[test]
fn a_packet_for_a_discriminator_that_is_nobodys_is_discarded() {
    let mut end = End::up(SETTINGS);
    let mut packet = end.packet(State::DOWN);
    packet.your_discriminator ^= 1;
    end.discards(&packet.emit(), DropReason::UnknownDiscriminator);
    assert_eq!(end.state(), SessionState::Up);
}

#[test]
fn a_packet_to_nobody_is_discarded_unless_it_is_down_or_administratively_down() {
    for (state, is_taken) in
        [(State::ADMIN_DOWN, true), (State::DOWN, true), (State::INIT, false), (State::UP, false)]
    {
        let mut end = End::new(SETTINGS);
        let packet = ControlPacket { your_discriminator: 0, ..end.packet(state) };
        if is_taken {
            end.hear(packet);
        } else {
            end.discards(&packet.emit(), DropReason::NotDown);
        }
    }
}

#[test]
fn a_packet_that_breaks_a_rule_of_its_form_is_discarded_and_no_sign_of_life() {
    let mut end = End::up(SETTINGS);
    let good = end.packet(State::UP).emit();
    end.now = end.now + ms(170);
    for (at, byte, reason) in [
        (0, 0x40, DropReason::Version),
        (1, 0xc1, DropReason::Multipoint),
        (2, 0, DropReason::DetectMult),
        (3, 23, DropReason::Length),
        (3, 25, DropReason::Length),
    ] {
        let mut bytes = good;
        bytes[at] = byte;
        end.discards(&bytes, reason);
    }
    end.discards(&good[..23], DropReason::Length);
    let nobody = ControlPacket { my_discriminator: 0, ..end.packet(State::UP) };
    end.discards(&nobody.emit(), DropReason::MyDiscriminator);
    end.sent_within(ms(10));
    assert_eq!(end.state(), SessionState::Down);
}

#[test]
fn a_packet_with_authentication_is_discarded_since_no_session_has_a_key() {
    let mut end = End::new(SETTINGS);
    let section =
        AuthenticationSection { kind: AuthenticationType::SIMPLE_PASSWORD, body: b"\x01secret" };
    let bytes = end.packet(State::DOWN).emit_with(&section).to_vec();
    end.discards(&bytes, DropReason::Authenticated);
    let mut cut = bytes.clone();
    cut[25] = 200;
    end.discards(&cut, DropReason::Authenticated);
    assert_eq!(end.state(), SessionState::Down);
}

#[test]
fn bytes_behind_a_packet_are_none_of_it() {
    let mut end = End::new(SETTINGS);
    let padded = [&end.packet(State::DOWN).emit()[..], &[0xff; 22]].concat();
    assert_eq!(end.sessions.handle_packet(end.now, CARRIER, &padded), Ok(CARRIER));
    assert_eq!(end.state(), SessionState::Init);
}

#[test]
fn a_session_that_was_removed_is_found_by_nothing_and_says_nothing() {
    let mut end = End::up(SETTINGS);
    let known = end.packet(State::DOWN).emit();
    end.hear(poll(end.packet(State::DOWN)));
    end.sessions.remove(end.now, CARRIER);
    end.sessions.remove(end.now, CARRIER);
    assert_eq!((end.sent(), end.events()), (vec![], vec![]));
    assert_eq!((end.sessions.poll_timeout(), end.sessions.status(CARRIER)), (None, None));
    let taken = end.sessions.handle_packet(end.now, CARRIER, &known);
    assert_eq!(taken, Err(DropReason::UnknownDiscriminator));
    // Its place is another's, whose discriminator is another one.
    end.sessions.add(end.now, CARRIER, SETTINGS).unwrap();
    assert_ne!(known[8..12], end.discriminator().to_be_bytes());
}

#[test]
fn a_session_that_was_paused_comes_again_with_its_discriminator() {
    let mut end = End::up(SETTINGS);
    let before = end.discriminator();
    for _ in 0..2 {
        end.sessions.pause(end.now, CARRIER);
        assert_eq!((end.sessions.poll_timeout(), end.sessions.status(CARRIER)), (None, None));
    }
    end.sessions.add(end.now, CARRIER, SETTINGS).unwrap();
    assert_eq!((end.discriminator(), end.state()), (before, SessionState::Down));
    // It knows its peer from another one.
    end.events();
    end.hear(end.packet(State::DOWN));
    assert_eq!(end.events(), []);
    end.sessions.pause(end.now, CARRIER);
    end.sessions.add(end.now, CARRIER, SETTINGS).unwrap();
    end.hear(ControlPacket { my_discriminator: PEER + 1, ..end.packet(State::DOWN) });
    assert_eq!(end.events(), [Event::DiscriminatorChanged]);
    // One that is removed while it is not there is forgotten.
    end.sessions.pause(end.now, CARRIER);
    end.sessions.remove(end.now, CARRIER);
    end.sessions.add(end.now, CARRIER, SETTINGS).unwrap();
    assert_ne!(end.discriminator(), before);
}

#[test]
fn a_carrier_has_one_session_and_a_machine_as_many_as_there_may_be() {
    let mut sessions = Sessions::new(1);
    for carrier in 0..SESSIONS_MAX as u64 {
        sessions.add(Instant::ZERO, Carrier(carrier), SETTINGS).unwrap();
    }
    let mut add = |carrier| sessions.add(Instant::ZERO, Carrier(carrier), SETTINGS);
    assert_eq!(add(5), Err(Refused::Taken(Carrier(5))));
    assert_eq!(add(5).unwrap_err().to_string(), "carrier 5 has a session");
    let refused = add(u64::MAX).unwrap_err();
    assert_eq!(refused.to_string(), "expected at most 4096 sessions, seen one more");
}

#[test]
fn settings_beyond_the_bounds_are_refused_and_change_nothing() {
    let mut end = End::new(SETTINGS);
    for (least, most) in
        [(INTERVAL_MIN_US - 1, INTERVAL_MIN_US), (INTERVAL_MAX_US + 1, INTERVAL_MAX_US)]
    {
        let mut set = |tx, rx| {
            let settings = Settings {
                desired_min_tx_interval_us: tx,
                required_min_rx_interval_us: rx,
                ..SETTINGS
            };
            end.sessions.set(end.now, CARRIER, settings)
        };
        assert_eq!(set(most, most), Ok(()));
        assert_eq!(set(least, most), Err(Refused::Interval(least)));
        let said = set(most, least).unwrap_err().to_string();
        assert_eq!(said, format!("expected an interval of 3300 to 60000000 us, seen {least} us"));
    }
    let none = Settings { detect_mult: 0, ..SETTINGS };
    let refused = end.sessions.set(end.now, CARRIER, none).unwrap_err();
    assert_eq!(refused.to_string(), "expected a detect mult of 1 to 255, seen 0");
    assert_eq!(end.sessions.add(end.now, Carrier(8), none), Err(Refused::DetectMult));
    let (_, settings, ..) = end.sessions.iter().next().unwrap();
    assert_eq!((settings.detect_mult, settings.desired_min_tx_interval_us), (3, INTERVAL_MAX_US));
}

#[test]
#[should_panic(expected = "Carrier(8) is named and has no session")]
fn who_names_a_session_that_is_not_there_is_wrong() {
    End::new(SETTINGS).sessions.admin_up(Instant::ZERO, Carrier(8));
}
