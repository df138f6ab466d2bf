//! Questions and answers, and changes of intervals (RFC 5880 clauses 6.5, 6.8.3, 6.8.10 and 6.8.11).

use super::*;

/// Wants other intervals, in milliseconds.
fn set(end: &mut End, tx: u32, rx: u32) {
    let settings = Settings {
        desired_min_tx_interval_us: tx * 1000,
        required_min_rx_interval_us: rx * 1000,
        ..SETTINGS
    };
    end.sessions.set(end.now, CARRIER, settings).unwrap();
}

#[test]
fn a_question_is_answered_at_once_and_moves_no_packet_that_is_due() {
    let mut end = End::up(SETTINGS);
    let due = end.sessions.poll_timeout();
    end.hear(poll(end.packet(State::UP)));
    let [packet] = end.sent()[..] else { panic!("an answer") };
    assert!(packet.state_flags.is_final() && !packet.state_flags.is_poll());
    assert_eq!(end.sessions.poll_timeout(), due);
    assert_eq!(end.counters().finals_sent, 1);
}

#[test]
fn a_question_is_answered_in_every_state_but_administratively_down() {
    let mut end = End::new(SETTINGS);
    for state in [State::UP, State::DOWN, State::INIT] {
        end.hear(poll(end.packet(state)));
        let sent = end.sent();
        assert!(sent[0].state_flags.is_final(), "{sent:?}");
    }
}

#[test]
fn an_answer_never_asks_even_if_there_is_something_to_ask() {
    let mut end = End::up(SETTINGS);
    set(&mut end, 90, 40);
    end.hear(poll(end.packet(State::UP)));
    let [packet] = end.sent()[..] else { panic!("an answer") };
    assert_eq!(packet.state_flags.0 & 0x30, 0x10);
    // The new value may be told with it.
    assert_eq!(packet.desired_min_tx_interval_us, 90_000);
    // It was not the question, so an answer now is to nothing.
    end.hear(answer(end.packet(State::UP)));
    assert!(end.status().is_polling);
}

#[test]
fn a_change_is_asked_about_with_packets_that_are_due_until_it_is_answered() {
    let mut end = End::up(SETTINGS);
    set(&mut end, 50, 45);
    assert_eq!(end.sent(), []);
    let asked = end.sent_within(ms(170));
    assert!((3..=5).contains(&asked.len()), "{asked:?}");
    for (_, packet) in asked {
        assert!(packet.state_flags.is_poll());
        assert_eq!(packet.required_min_rx_interval_us, 45_000);
    }
    end.hear(answer(end.packet(State::UP)));
    let sent = end.sent_within(ms(100));
    assert!(sent.len() >= 2 && sent.iter().all(|(_, packet)| !packet.state_flags.is_poll()));
}

#[test]
fn whoever_slows_down_goes_on_as_before_until_the_answer() {
    let mut end = End::up(SETTINGS);
    set(&mut end, 500, 40);
    let asked = end.sent_within(ms(170));
    assert!((3..=5).contains(&asked.len()), "{asked:?}");
    end.hear(answer(end.packet(State::UP)));
    assert_eq!(end.status().transmit_interval, ms(500));
    assert_eq!(end.sent_within(ms(179)), []);
}

#[test]
fn whoever_hastens_does_so_at_once() {
    let mut end = End::up(Settings { desired_min_tx_interval_us: 500_000, ..SETTINGS });
    end.sent_within(ms(100));
    set(&mut end, 20, 40);
    end.hear(end.packet(State::UP));
    // The peer is ready for one every 50 ms, and that has passed.
    assert_eq!(end.sent().len(), 1);
    assert_eq!(end.status().transmit_interval, ms(50));
}

#[test]
fn a_shorter_detection_time_waits_for_the_answer_and_a_longer_one_does_not() {
    let fast =
        |end: &End| ControlPacket { desired_min_tx_interval_us: 10_000, ..end.packet(State::UP) };
    let mut end = End::up(SETTINGS);
    end.hear(fast(&end));
    assert_eq!(end.status().detection_time, ms(120));
    set(&mut end, 50, 20);
    assert_eq!(end.status().detection_time, ms(120));
    end.sent_within(ms(50));
    end.hear(answer(fast(&end)));
    assert_eq!(end.status().detection_time, ms(60));
    for _ in 0..40 {
        end.sent_within(ms(25));
        end.hear(fast(&end));
    }
    set(&mut end, 50, 100);
    assert_eq!(end.status().detection_time, ms(300));
}

#[test]
fn a_second_change_waits_until_answers_to_the_first_no_longer_come() {
    let mut end = End::up(SETTINGS);
    set(&mut end, 60, 40);
    let asked = end.sent_within(ms(60))[0].1;
    assert_eq!((asked.desired_min_tx_interval_us, asked.state_flags.is_poll()), (60_000, true));
    set(&mut end, 70, 40);
    end.hear(answer(end.packet(State::UP)));
    // A second answer to the same question would not confirm what is not asked yet.
    end.hear(answer(end.packet(State::UP)));
    for _ in 0..18 {
        let sent = end.sent_within(ms(50));
        assert!(sent.iter().all(|(_, packet)| packet.desired_min_tx_interval_us == 60_000));
        end.hear(end.packet(State::UP));
    }
    assert_eq!(end.status().transmit_interval, ms(60));
    end.sent_within(ms(50));
    end.hear(end.packet(State::UP));
    let (_, packet) = *end.sent_within(ms(120)).last().unwrap();
    assert_eq!((packet.desired_min_tx_interval_us, packet.state_flags.is_poll()), (70_000, true));
    end.hear(answer(end.packet(State::UP)));
    assert_eq!(end.status().transmit_interval, ms(70));
}

#[test]
fn who_comes_up_asks_about_the_interval_of_a_session_that_is_up() {
    let mut end = End::new(SETTINGS);
    end.hear(end.packet(State::DOWN));
    end.hear(end.packet(State::INIT));
    let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
    assert_eq!((packet.state(), packet.state_flags.is_poll()), (State::UP, true));
    assert_eq!(packet.desired_min_tx_interval_us, 50_000);
    assert_eq!(end.status().transmit_interval, ms(50));
}

#[test]
fn who_goes_down_is_slow_at_once_and_asks() {
    let mut end = End::up(SETTINGS);
    // Even if it waited for an answer before it would slow down.
    set(&mut end, 2000, 40);
    end.hear(end.packet(State::DOWN));
    let [packet] = end.sent()[..] else { panic!("it says so at once, and once") };
    assert!(packet.state_flags.is_poll());
    assert_eq!(packet.desired_min_tx_interval_us, 2_000_000);
    assert_eq!(end.status().transmit_interval, ms(2000));
}

#[test]
fn an_answer_to_somebody_who_is_forgotten_is_not_sent() {
    let mut end = End::new(Settings { role: Role::Passive, ..SETTINGS });
    end.hear(poll(end.packet(State::DOWN)));
    // Nobody took what there was to send.
    end.now = end.now + ms(180);
    end.sessions.handle_timeout(end.now);
    assert_eq!((end.status().remote_discriminator, end.sent()), (0, vec![]));
}
