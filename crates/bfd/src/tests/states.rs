//! Up and down, and who is told (RFC 5880 clauses 6.2, 6.8.1, 6.8.4, 6.8.6 and 6.8.16).

use super::*;

#[test]
fn a_session_comes_up_by_down_init_and_up_and_tells_it_once() {
    let mut end = End::new(SETTINGS);
    assert_eq!(end.state(), SessionState::Down);
    end.hear(ControlPacket { your_discriminator: 0, ..end.packet(State::DOWN) });
    assert_eq!((end.state(), end.events()), (SessionState::Init, vec![Event::FirstHeard]));
    end.hear(end.packet(State::INIT));
    assert_eq!((end.state(), end.events()), (SessionState::Up, vec![Event::Up]));
    end.hear(end.packet(State::UP));
    assert_eq!((end.events(), end.counters().ups), (vec![], 1));
}

#[test]
fn whoever_is_init_is_up_when_the_peer_is() {
    let mut end = End::new(SETTINGS);
    end.hear(end.packet(State::DOWN));
    end.hear(end.packet(State::UP));
    assert_eq!(end.state(), SessionState::Up);
}

#[test]
fn whoever_is_down_stays_down_when_the_peer_is_up() {
    let mut end = End::new(SETTINGS);
    end.hear(end.packet(State::UP));
    assert_eq!(end.state(), SessionState::Down);
}

#[test]
fn a_peer_that_is_down_takes_the_session_down_with_diagnostic_3() {
    for state in [State::DOWN, State::ADMIN_DOWN] {
        let mut end = End::up(SETTINGS);
        end.hear(end.packet(state));
        assert_eq!(end.events(), [Event::Down(Diagnostic::NEIGHBOR_SIGNALED_DOWN)]);
        let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
        assert_eq!(packet.state(), State::DOWN);
        assert_eq!(packet.diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
        assert_eq!((end.counters().downs, end.counters().expirations), (1, 0));
    }
}

#[test]
fn a_peer_that_is_administratively_down_keeps_the_session_down() {
    let mut end = End::new(SETTINGS);
    end.hear(end.packet(State::ADMIN_DOWN));
    assert_eq!(end.state(), SessionState::Down);
    end.hear(end.packet(State::DOWN));
    end.hear(end.packet(State::ADMIN_DOWN));
    assert_eq!(end.state(), SessionState::Down);
    // It never was up, so nobody is told that it is not.
    assert_eq!((end.events(), end.counters().downs), (vec![Event::FirstHeard], 0));
}

#[test]
fn silence_for_a_detection_time_takes_the_session_down_with_diagnostic_1() {
    let mut end = End::up(SETTINGS);
    end.hear(end.packet(State::UP));
    // Three times the peer's 60 ms.
    end.sent_within(ms(180) - Duration::from_nanos(1));
    assert_eq!(end.state(), SessionState::Up);
    end.sent_within(Duration::from_nanos(1));
    assert_eq!(end.state(), SessionState::Down);
    assert_eq!(end.events(), [Event::Down(Diagnostic::DETECTION_TIME_EXPIRED)]);
    assert_eq!((end.counters().downs, end.counters().expirations), (1, 1));
}

#[test]
fn a_detection_time_is_the_peers_multiplier_and_the_slower_of_both_intervals() {
    for (mult, peers_tx, own_rx, expected) in [
        (3, 60, 40, 180),
        (3, 60, 100, 300),
        (1, 200, 40, 200),
        (255, 10, 40, 10_200),
        (2, 0, 40, 80),
    ] {
        let settings = Settings { required_min_rx_interval_us: own_rx * 1000, ..SETTINGS };
        let mut end = End::up(settings);
        end.hear(ControlPacket {
            detect_mult: mult,
            desired_min_tx_interval_us: peers_tx * 1000,
            ..end.packet(State::UP)
        });
        assert_eq!(end.status().detection_time, ms(expected), "{mult} {peers_tx} {own_rx}");
        end.sent_within(ms(expected - 1));
        assert_eq!(end.state(), SessionState::Up);
        end.sent_within(ms(1));
        assert_eq!(end.state(), SessionState::Down);
    }
}

#[test]
fn silence_takes_a_session_down_that_is_init() {
    let mut end = End::new(SETTINGS);
    end.hear(end.packet(State::DOWN));
    end.sent_within(ms(180));
    assert_eq!(end.state(), SessionState::Down);
    assert_eq!(end.status().diagnostic, Diagnostic::DETECTION_TIME_EXPIRED);
}

#[test]
fn what_the_peer_said_is_forgotten_after_a_detection_time_in_every_state() {
    let heard = |end: &mut End| {
        let packet = end.packet(State::DOWN);
        let slow = ControlPacket { required_min_rx_interval_us: 9_000_000, ..packet };
        let _ = end.sessions.handle_packet(end.now, CARRIER, &slow.emit());
        assert_eq!(end.status().remote_discriminator, PEER);
        assert_eq!(end.status().transmit_interval, ms(9000));
    };
    let mut init = End::new(SETTINGS);
    heard(&mut init);
    let mut down = End::up(SETTINGS);
    heard(&mut down);
    let mut admin_down = End::up(SETTINGS);
    admin_down.sessions.admin_down(admin_down.now, CARRIER, Diagnostic::ADMINISTRATIVELY_DOWN);
    heard(&mut admin_down);
    for mut end in [init, down, admin_down] {
        end.sent_within(ms(179));
        assert_eq!(end.status().remote_discriminator, PEER);
        end.sent_within(ms(1));
        assert_eq!(end.status().remote_discriminator, 0);
        // And with it how rarely it wanted to be sent to (clause 6.8.18).
        assert_eq!(end.status().transmit_interval, ms(1000));
        let sent = end.sent_within(ms(1000));
        assert_eq!(sent.last().unwrap().1.your_discriminator, 0);
    }
}

#[test]
fn a_peer_that_began_anew_is_told_and_takes_the_session_down() {
    let mut end = End::up(SETTINGS);
    let anew = ControlPacket {
        my_discriminator: PEER + 1,
        your_discriminator: 0,
        ..end.packet(State::DOWN)
    };
    end.hear(anew);
    let down = Event::Down(Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    assert_eq!(end.events(), [Event::DiscriminatorChanged, down]);
    assert_eq!(end.sent()[0].your_discriminator, PEER + 1);
    end.hear(anew);
    assert_eq!((end.events(), end.state()), (vec![], SessionState::Init));
}

#[test]
fn a_peer_that_began_anew_in_silence_is_told_when_it_is_heard() {
    let mut end = End::up(SETTINGS);
    end.sent_within(ms(10_000));
    assert_eq!(end.events(), [Event::Down(Diagnostic::DETECTION_TIME_EXPIRED)]);
    end.hear(end.packet(State::DOWN));
    assert_eq!(end.events(), [], "the same one is back");
    end.sent_within(ms(10_000));
    end.hear(ControlPacket { my_discriminator: PEER + 1, ..end.packet(State::DOWN) });
    assert_eq!(end.events(), [Event::DiscriminatorChanged]);
}

#[test]
fn a_peer_may_change_its_discriminator_without_going_down() {
    let mut end = End::up(SETTINGS);
    end.hear(ControlPacket { my_discriminator: PEER + 1, ..end.packet(State::UP) });
    assert_eq!((end.state(), end.events()), (SessionState::Up, vec![Event::DiscriminatorChanged]));
    assert_eq!(end.sent_within(ms(60))[0].1.your_discriminator, PEER + 1);
}

#[test]
fn a_diagnostic_stays_until_the_session_is_up_again() {
    let mut end = End::up(SETTINGS);
    end.sent_within(ms(180));
    end.hear(end.packet(State::DOWN));
    assert_eq!(end.sent()[0].diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    end.hear(end.packet(State::INIT));
    assert_eq!(end.sent()[0].diagnostic(), Diagnostic::NONE);
}

#[test]
fn a_session_that_is_administratively_down_says_so_and_takes_nothing() {
    let mut end = End::up(SETTINGS);
    end.sessions.admin_down(end.now, CARRIER, Diagnostic::ADMINISTRATIVELY_DOWN);
    assert_eq!(end.events(), [Event::Down(Diagnostic::ADMINISTRATIVELY_DOWN)]);
    let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
    assert_eq!(packet.state(), State::ADMIN_DOWN);
    assert_eq!(packet.diagnostic(), Diagnostic::ADMINISTRATIVELY_DOWN);
    for state in [State::DOWN, State::INIT, State::UP, State::ADMIN_DOWN] {
        end.discards(&poll(end.packet(state)).emit(), DropReason::AdminDown);
        assert_eq!((end.state(), end.sent()), (SessionState::AdminDown, vec![]));
    }
    // It goes on saying so.
    assert!(end.sent_within(ms(5000)).len() >= 5);
    assert_eq!(end.state(), SessionState::AdminDown);
}

#[test]
fn a_session_that_is_no_longer_administratively_down_begins_at_down() {
    let mut end = End::up(SETTINGS);
    end.sessions.admin_down(end.now, CARRIER, Diagnostic::PATH_DOWN);
    assert_eq!(end.sent()[0].diagnostic(), Diagnostic::PATH_DOWN);
    end.sessions.admin_up(end.now, CARRIER);
    let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
    assert_eq!((packet.state(), packet.diagnostic()), (State::DOWN, Diagnostic::NONE));
    end.hear(end.packet(State::DOWN));
    end.hear(end.packet(State::INIT));
    assert_eq!(end.state(), SessionState::Up);
    // Whoever is up stays so.
    end.sessions.admin_up(end.now, CARRIER);
    assert_eq!(end.state(), SessionState::Up);
}

#[test]
fn another_reason_to_be_administratively_down_is_told_at_once() {
    let mut end = End::up(SETTINGS);
    for why in [Diagnostic::PATH_DOWN, Diagnostic::ADMINISTRATIVELY_DOWN] {
        end.sessions.admin_down(end.now, CARRIER, why);
        let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
        assert_eq!((packet.state(), packet.diagnostic()), (State::ADMIN_DOWN, why));
    }
}
