//! A machine that did not run: whose silence it was. The rule is ours.

use super::*;

/// What is late is called once, as a driver does that did not run.
fn stall(end: &mut End, time: Duration) {
    let asked = end.sessions.poll_timeout().unwrap();
    end.now = asked + time;
    end.sessions.handle_timeout(end.now);
    while end.sessions.poll_transmit(end.now).is_some() {}
}

#[test]
fn a_gap_of_more_than_a_third_of_a_detection_time_is_no_silence_of_the_peers() {
    for (gap, is_up) in [(ms(60), false), (ms(60) + Duration::from_nanos(1), true)] {
        let mut end = End::up(SETTINGS);
        end.sessions
            .set(end.now, CARRIER, Settings { desired_min_tx_interval_us: 9_000_000, ..SETTINGS })
            .unwrap();
        end.sent_within(ms(50));
        end.hear(answer(end.packet(State::UP)));
        // All that is awaited is a packet of the peer's.
        let begin = end.now;
        assert_eq!(end.sessions.poll_timeout(), Some(begin + ms(180)));
        stall(&mut end, gap);
        assert_eq!(
            (end.state() == SessionState::Up, end.counters().stalls_forgiven == 1),
            (is_up, is_up)
        );
    }
}

#[test]
fn one_interval_more_from_now_is_given() {
    let mut end = End::up(SETTINGS);
    stall(&mut end, ms(300));
    end.sent_within(ms(60) - Duration::from_nanos(1));
    assert_eq!((end.state(), end.counters().stalls_forgiven), (SessionState::Up, 1));
    end.sent_within(Duration::from_nanos(1));
    assert_eq!(end.state(), SessionState::Down);
}

#[test]
fn a_packet_after_the_gap_ends_what_was_given() {
    let mut end = End::up(SETTINGS);
    stall(&mut end, ms(300));
    end.sent_within(ms(50));
    end.hear(end.packet(State::UP));
    end.sent_within(ms(179));
    assert_eq!(end.state(), SessionState::Up);
    end.sent_within(ms(1));
    assert_eq!(end.state(), SessionState::Down);
}

#[test]
fn what_came_meanwhile_is_read_first_and_leaves_nothing_to_forgive() {
    let mut end = End::up(SETTINGS);
    end.now = end.sessions.poll_timeout().unwrap() + ms(300);
    end.hear(end.packet(State::UP));
    end.sessions.handle_timeout(end.now);
    assert_eq!((end.state(), end.counters().stalls_forgiven), (SessionState::Up, 0));
}

#[test]
fn a_gap_is_seen_by_whatever_is_called_first_behind_it() {
    type Call = fn(&mut End);
    const OTHER: Carrier = Carrier(8);
    // Each moves or removes the deadline that was missed.
    let calls: [(&str, Call); 5] = [
        ("set", |end| {
            let slow = Settings { desired_min_tx_interval_us: 60_000_000, ..SETTINGS };
            end.sessions.set(end.now, OTHER, slow).unwrap();
        }),
        ("remove", |end| end.sessions.remove(end.now, OTHER)),
        ("admin_down", |end| end.sessions.admin_down(end.now, OTHER, Diagnostic::PATH_DOWN)),
        ("admin_up", |end| end.sessions.admin_up(end.now, OTHER)),
        ("handle_packet", |end| {
            let your_discriminator = end.sessions.status(OTHER).unwrap().local_discriminator;
            let packet = ControlPacket { your_discriminator, ..end.packet(State::DOWN) };
            end.sessions.handle_packet(end.now, OTHER, &packet.emit()).unwrap();
        }),
    ];
    for (name, call) in calls {
        let mut end = End::up(SETTINGS);
        // This session awaits a packet of the peer's alone, and that deadline is hardly missed; the
        // other one was to send long before.
        end.hear(ControlPacket {
            desired_min_tx_interval_us: 1_000_000,
            required_min_rx_interval_us: 0,
            ..end.packet(State::UP)
        });
        let silence_ends = end.now + ms(3000);
        assert_eq!(end.sessions.poll_timeout(), Some(silence_ends));
        end.sessions.add(end.now, OTHER, SETTINGS).unwrap();
        if name == "admin_up" {
            end.sessions.admin_down(end.now, OTHER, Diagnostic::PATH_DOWN);
            end.sessions.poll_transmit(end.now).unwrap();
        }
        let asked = end.sessions.poll_timeout().unwrap();
        assert!(silence_ends.since(asked) > ms(1900), "{asked:?}");
        end.now = silence_ends + ms(1);
        call(&mut end);
        end.sessions.handle_timeout(end.now);
        assert_eq!((end.state(), end.counters().stalls_forgiven), (SessionState::Up, 1), "{name}");
    }
}

#[test]
fn a_gap_is_forgiven_to_each_session_by_its_own_detection_time() {
    let mut end = End::up(SETTINGS);
    let slow = Carrier(8);
    end.sessions.add(end.now, slow, SETTINGS).unwrap();
    let your = end.sessions.status(slow).unwrap().local_discriminator;
    let packet = ControlPacket {
        your_discriminator: your,
        desired_min_tx_interval_us: 1_000_000,
        ..end.packet(State::DOWN)
    };
    end.sessions.handle_packet(end.now, slow, &packet.emit()).unwrap();
    stall(&mut end, ms(300));
    let forgiven: Vec<_> =
        end.sessions.iter().map(|(.., counters, _)| counters.stalls_forgiven).collect();
    assert_eq!(forgiven, [1, 0]);
}

#[test]
fn whoever_is_always_late_finds_out_all_the_same() {
    let mut end = End::up(SETTINGS);
    let begin = end.now;
    while end.state() == SessionState::Up {
        stall(&mut end, ms(70));
        assert!(
            end.now.since(begin) < ms(180 + 3 * (60 + 50 + 70) + 120),
            "{:?}",
            end.now.since(begin)
        );
    }
    // As often as the peer's multiplier says.
    assert_eq!((end.counters().stalls_forgiven, end.counters().expirations), (3, 1));
}

#[test]
fn a_deadline_that_a_change_moves_into_the_past_is_no_gap() {
    let mut end = End::up(SETTINGS);
    // Another session's silence ends 2.9 s ago, by what is wanted of it now.
    let other = Carrier(8);
    let slow = Settings { required_min_rx_interval_us: 2_000_000, ..SETTINGS };
    end.sessions.add(end.now, other, slow).unwrap();
    let your_discriminator = end.sessions.status(other).unwrap().local_discriminator;
    let packet = ControlPacket { your_discriminator, ..end.packet(State::DOWN) };
    end.sessions.handle_packet(end.now, other, &packet.emit()).unwrap();
    for _ in 0..62 {
        end.now = end.now + ms(50);
        end.hear(end.packet(State::UP));
        end.sessions.handle_timeout(end.now);
        while end.sessions.poll_transmit(end.now).is_some() {}
    }
    end.now = end.now + ms(10);
    end.sessions.set(end.now, other, SETTINGS).unwrap();
    end.sessions.handle_timeout(end.now);
    assert_eq!(end.sessions.status(other).unwrap().state, SessionState::Down);
    let forgiven: Vec<_> =
        end.sessions.iter().map(|(.., counters, _)| counters.stalls_forgiven).collect();
    assert_eq!(forgiven, [0, 0]);
}
