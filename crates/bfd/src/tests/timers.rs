//! When a session sends, and what (RFC 5880 clauses 6.1, 6.6, 6.8.3 and 6.8.7).

use super::*;

/// The pauses between packets while the peer says `packet` often enough.
fn pauses(end: &mut End, packet: ControlPacket, time: Duration) -> Vec<Duration> {
    let mut moments = Vec::new();
    let begin = end.now;
    while end.now.since(begin) < time {
        end.hear(packet);
        let before = end.now.since(begin);
        let step = ms(30);
        moments.extend(end.sent_within(step).iter().map(|(after, _)| before + *after));
    }
    moments.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn a_session_that_begins_sends_within_a_quarter_of_a_second_and_not_with_others() {
    let mut first = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (mut sessions, now) = (Sessions::new(seed), Instant(5_000_000_000));
        sessions.add(now, CARRIER, SETTINGS).unwrap();
        let pause = sessions.poll_timeout().unwrap().since(now);
        assert!(pause <= ms(250), "{pause:?}");
        first.insert(pause);
    }
    assert!(first.len() > 90, "{}", first.len());
}

#[test]
fn a_session_that_is_not_up_sends_once_a_second_and_says_so() {
    let mut end = End::new(SETTINGS);
    let sent = end.sent_within(ms(20_000));
    for pair in sent.windows(2) {
        let pause = pair[1].0 - pair[0].0;
        assert!((ms(750)..=ms(1000)).contains(&pause), "{pause:?}");
    }
    assert!(sent.len() >= 20);
    for (_, packet) in sent {
        assert_eq!((packet.state(), packet.your_discriminator), (State::DOWN, 0));
        assert_eq!(packet.my_discriminator, end.discriminator());
        assert_eq!(packet.desired_min_tx_interval_us, 1_000_000);
        assert_eq!(packet.required_min_rx_interval_us, 40_000);
        // No Echo function, no demand, no authentication, and the control plane is ours.
        assert_eq!(packet.required_min_echo_rx_interval_us, 0);
        assert_eq!((packet.detect_mult, packet.state_flags.0 & 0x3f), (3, 0));
    }
}

#[test]
fn a_slow_session_is_as_slow_when_it_is_not_up() {
    let mut end = End::new(Settings { desired_min_tx_interval_us: 3_000_000, ..SETTINGS });
    end.sent_within(ms(750));
    assert_eq!(end.status().transmit_interval, ms(3000));
    assert!(end.sent_within(ms(20_000)).len() <= 9);
}

#[test]
fn the_slower_of_both_ends_sets_the_pace() {
    for (own, peers, expected) in [(50, 50, 50), (50, 80, 80), (80, 50, 80)] {
        let mut end = End::up(Settings { desired_min_tx_interval_us: own * 1000, ..SETTINGS });
        let mut packet = end.packet(State::UP);
        packet.required_min_rx_interval_us = peers * 1000;
        for pause in pauses(&mut end, packet, ms(3000)).into_iter().skip(1) {
            let range = ms(expected) * 3 / 4..=ms(expected);
            assert!(range.contains(&pause), "{own} {peers}: {pause:?}");
        }
    }
}

#[test]
fn pauses_are_random_in_the_last_quarter_and_end_at_nine_tenths_for_a_multiplier_of_one() {
    for (detect_mult, most) in [(3, 50_000), (1, 45_000)] {
        let mut end = End::up(Settings { detect_mult, ..SETTINGS });
        let packet = end.packet(State::UP);
        let mut pauses = pauses(&mut end, packet, ms(20_000));
        // The first began in another state.
        let (least, most) = (Duration::from_micros(37_500), Duration::from_micros(most));
        pauses.remove(0);
        pauses.sort();
        let (first, last) = (pauses[0], pauses[pauses.len() - 1]);
        assert!(least <= first && first < least + ms(1), "{first:?}");
        assert!(most - ms(1) < last && last <= most, "{last:?}");
        pauses.dedup();
        assert!(pauses.len() > 300);
    }
}

#[test]
fn a_new_multiplier_of_one_shortens_the_interval_that_runs() {
    for seed in 0..50 {
        let mut end = End::up(SETTINGS);
        end.sent_within(ms(seed));
        end.hear(end.packet(State::UP));
        end.sent_within(ms(50));
        end.hear(end.packet(State::UP));
        let sent_at = end.now;
        end.sessions.set(end.now, CARRIER, Settings { detect_mult: 1, ..SETTINGS }).unwrap();
        let sent = end.sent_within(ms(45));
        assert!(!sent.is_empty(), "nothing in 45 ms from {sent_at:?}");
        assert_eq!(sent[0].1.detect_mult, 1);
        // It needs no confirmation (clause 6.8.12).
        assert!(!sent[0].1.state_flags.is_poll());
    }
}

#[test]
fn a_peer_that_is_ready_for_more_is_sent_to_at_once() {
    let mut end = End::up(SETTINGS);
    end.hear(ControlPacket { required_min_rx_interval_us: 900_000, ..end.packet(State::UP) });
    assert_eq!(end.sent_within(ms(120)), []);
    // The shorter interval has long passed since the last packet.
    end.hear(end.packet(State::UP));
    assert_eq!(end.sent().len(), 1);
}

#[test]
fn a_peer_that_wants_nothing_is_sent_nothing_but_answers() {
    let mut end = End::up(SETTINGS);
    let unwanted = ControlPacket {
        required_min_rx_interval_us: 0,
        desired_min_tx_interval_us: 9_000_000,
        ..end.packet(State::UP)
    };
    end.hear(unwanted);
    assert_eq!(end.sent_within(ms(10_000)), []);
    assert_eq!(end.status().transmit_interval, Duration::ZERO);
    end.hear(poll(unwanted));
    let [packet] = end.sent()[..] else { panic!("an answer") };
    assert!(packet.state_flags.is_final() && !packet.state_flags.is_poll());
    // Not even that the session went down, which is told when it wants something again.
    end.hear(ControlPacket { your_discriminator: 0, ..unwanted_down(unwanted) });
    assert_eq!((end.state(), end.sent()), (SessionState::Down, vec![]));
    end.hear(end.packet(State::ADMIN_DOWN));
    assert_eq!(end.sent()[0].state(), State::DOWN);
}

fn unwanted_down(packet: ControlPacket) -> ControlPacket {
    with_flags(packet, |flags| flags.with_state(State::DOWN.0))
}

#[test]
fn whoever_is_passive_sends_nothing_to_whom_it_has_not_heard() {
    let mut end = End::new(Settings { role: Role::Passive, ..SETTINGS });
    assert_eq!((end.sent_within(ms(10_000)), end.sessions.poll_timeout()), (vec![], None));
    end.hear(ControlPacket { your_discriminator: 0, ..end.packet(State::DOWN) });
    assert_eq!(end.sent()[0].state(), State::INIT);
    // Nor when it has forgotten them again.
    end.sent_within(ms(180));
    assert_eq!(end.status().remote_discriminator, 0);
    assert_eq!(end.sent_within(ms(10_000)), []);
}

#[test]
fn a_change_of_state_is_told_at_once_and_the_next_packet_is_an_interval_later() {
    let mut end = End::new(SETTINGS);
    end.sent_within(ms(300));
    end.hear(ControlPacket { desired_min_tx_interval_us: 9_000_000, ..end.packet(State::DOWN) });
    assert_eq!(end.sent()[0].state(), State::INIT);
    assert_eq!(end.sent_within(ms(749)), []);
    assert_eq!(end.sent_within(ms(251)).len(), 1);
}

#[test]
fn a_peer_that_demands_silence_is_obeyed_while_both_are_up() {
    let demand = |packet| with_flags(packet, |flags| flags.with_demand(true));
    let mut end = End::up(SETTINGS);
    let demanding =
        demand(ControlPacket { desired_min_tx_interval_us: 9_000_000, ..end.packet(State::UP) });
    end.hear(demanding);
    assert_eq!(end.sent_within(ms(5_000)), []);
    // Its question is answered, and we never demand.
    end.hear(poll(demanding));
    let [packet] = end.sent()[..] else { panic!("an answer") };
    assert!(packet.state_flags.is_final() && !packet.state_flags.is_demand());
    assert_eq!(end.sent_within(ms(5_000)), []);
    // What is new is asked about, until it is confirmed (clause 6.6).
    end.sessions.set(end.now, CARRIER, Settings { detect_mult: 4, ..SETTINGS }).unwrap();
    let asked = end.sent_within(ms(500));
    assert!(asked.len() >= 10);
    assert!(
        asked.iter().all(|(_, packet)| packet.state_flags.is_poll() && packet.detect_mult == 4)
    );
    end.hear(answer(demanding));
    assert_eq!(end.sent_within(ms(5_000)), []);
    // It ends with the bit, and with the state.
    end.hear(end.packet(State::UP));
    assert_eq!(end.sent().len(), 1);
    end.hear(demanding);
    end.hear(demand(end.packet(State::DOWN)));
    assert_eq!(end.sent()[0].state(), State::DOWN);
    assert!(!end.sent_within(ms(1000)).is_empty());
}

#[test]
fn many_sessions_send_as_they_would_alone() {
    let (mut sessions, mut now) = (Sessions::new(3), Instant(5_000_000_000));
    for carrier in 0..500 {
        sessions.add(now, Carrier(carrier), SETTINGS).unwrap();
    }
    let begin = now;
    let mut last = std::collections::BTreeMap::<Carrier, (u64, Instant)>::new();
    while now.since(begin) < ms(10_000) {
        now = sessions.poll_timeout().unwrap();
        sessions.handle_timeout(now);
        while let Some((carrier, _)) = sessions.poll_transmit(now) {
            let (count, sent_at) = last.entry(carrier).or_default();
            assert!(*count == 0 || (ms(750)..=ms(1000)).contains(&now.since(*sent_at)));
            (*count, *sent_at) = (*count + 1, now);
        }
    }
    assert_eq!(last.len(), 500);
    assert!(last.values().all(|(count, _)| (10..=14).contains(count)));
}
