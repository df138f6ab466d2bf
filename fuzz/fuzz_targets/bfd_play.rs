//! BFD sessions that are added, changed and removed while any packets come by any carrier, on a
//! machine that is punctual or late.
//!
//! Checked: a packet is for the session that it names, or counted once; what is sent is what the
//! session is, to whom it knows, no sooner than it says and only if somebody may be told; an answer
//! follows a question; up and down are told in turn; nobody is up for longer than a detection time
//! after it heard anything, but for what it counts as its own fault; and all that is due is done.
#![no_main]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bfd::{
    Carrier, DropReason, Event, Role, SessionCounters, SessionState, Sessions, Settings, Status,
};
use block::Instant;
use contract::Counters;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{Choices, one_line};
use wire::bfd::{ControlPacket, Diagnostic, State, StateFlags};

const CARRIERS: usize = 4;
const INTERVALS_US: [u32; 7] = [50_000, 10_000, 3_300, 400_000, 2_000_000, 60_000_000, 1];
const PASSES_MS: [u64; 8] = [10, 1, 50, 100, 300, 1000, 3000, 60_000];
/// Calls of a punctual machine in one step.
const CALLS_MAX: usize = 100;

/// What is known of a session beside what it says itself.
#[derive(Default)]
struct Seen {
    is_up: bool,
    /// What it heard last, when, and how often silence had been its own fault by then.
    heard: Option<ControlPacket>,
    heard_at: Instant,
    forgiven: u64,
    /// A question came and was not answered.
    is_owed: bool,
    /// The last packet that was due, and the last of any kind.
    due_at: Option<Instant>,
    sent: Option<ControlPacket>,
}

struct Play {
    sessions: Sessions,
    now: Instant,
    seen: BTreeMap<Carrier, Seen>,
}

fn draw_carrier(choices: &mut Choices<'_>) -> Carrier {
    Carrier(choices.below(CARRIERS) as u64)
}

fn draw_settings(choices: &mut Choices<'_>) -> Settings {
    let how = choices.byte();
    Settings {
        role: if how & 1 == 0 { Role::Active } else { Role::Passive },
        is_carrier_bound: how & 2 != 0,
        detect_mult: choices.of(&[3, 1, 2, 255, 0]),
        desired_min_tx_interval_us: choices.of(&INTERVALS_US),
        required_min_rx_interval_us: choices.of(&INTERVALS_US),
    }
}

impl Play {
    fn status(&self, carrier: Carrier) -> Status {
        self.sessions.status(carrier).expect("it is there")
    }

    fn of(&self, carrier: Carrier) -> (&Settings, &SessionCounters) {
        let found = self.sessions.iter().find(|(other, ..)| *other == carrier);
        found.map(|(_, settings, _, counters, _)| (settings, counters)).expect("it is there")
    }

    fn has(&self, carrier: Carrier) -> bool {
        self.sessions.status(carrier).is_some()
    }

    fn drops(&self) -> u64 {
        let all = self.sessions.iter().map(|(.., drops)| drops).chain([self.sessions.strays()]);
        all.map(|drops| drops.values().sum::<u64>()).sum()
    }

    /// Any packet: the discriminators of sessions that are there and of none, all flags, and bytes
    /// that were altered or are missing.
    fn draw_packet(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        let how = choices.byte();
        let your = match choices.below(CARRIERS + 2) {
            0 => 0,
            at @ 1..=CARRIERS => self
                .sessions
                .status(Carrier(at as u64 - 1))
                .map_or(0xdead, |status| status.local_discriminator),
            _ => choices.word().into(),
        };
        let my = choices.of(&[0x11, 0x22, 0]);
        let mult = choices.of(&[3, 1, 2, 255, 0]);
        let (tx, rx) = (choices.of(&INTERVALS_US), choices.of(&INTERVALS_US) & !1);
        let mut packet = ControlPacket {
            desired_min_tx_interval_us: tx,
            required_min_rx_interval_us: rx,
            ..ControlPacket::new(State(how & 3), Diagnostic::NONE, mult, my, your)
        };
        packet.state_flags = StateFlags(0)
            .with_state(how & 3)
            .with_poll(how & 4 != 0)
            .with_final(how & 8 != 0)
            .with_demand(how & 16 != 0)
            .with_authenticated(how & 32 != 0)
            .with_multipoint(how & 64 != 0);
        let mut bytes = packet.emit().to_vec();
        if how & 0x80 != 0 {
            let at = choices.below(bytes.len());
            bytes[at] = choices.byte();
            bytes.truncate(choices.below(bytes.len() + 1));
        }
        bytes
    }

    fn packet(&mut self, choices: &mut Choices<'_>) {
        let by = draw_carrier(choices);
        let bytes = self.draw_packet(choices);
        let before = self.drops();
        let taken = self.sessions.handle_packet(self.now, by, &bytes);
        assert_eq!(self.drops() - before, u64::from(taken.is_err()), "{taken:?}");
        let parsed = ControlPacket::receive(&bytes);
        let Ok((packet, section)) = parsed else { return assert!(taken.is_err()) };
        let home = match packet.your_discriminator {
            0 => Some(by).filter(|by| self.has(*by)),
            your => self
                .sessions
                .iter()
                .find(|(_, _, status, ..)| status.local_discriminator == your)
                .map(|(carrier, ..)| carrier),
        };
        match taken {
            Ok(carrier) => {
                assert_eq!(Some(carrier), home);
                assert!(section.is_none());
                assert!(carrier == by || !self.of(carrier).0.is_carrier_bound);
                self.seen.get_mut(&carrier).expect("it is there").is_owed |=
                    packet.state_flags.is_poll();
            }
            Err(DropReason::AdminDown) => {
                let home = home.expect("somebody is down");
                assert_eq!(self.status(home).state, SessionState::AdminDown);
            }
            Err(_) => return,
        }
        let home = home.expect("it was taken");
        let status = self.status(home);
        assert_eq!(status.remote_discriminator, packet.my_discriminator);
        assert_eq!(status.remote_state as u8, packet.state().0);
        let is_down = packet.state() <= State::DOWN;
        assert!(!is_down || status.state != SessionState::Up);
        let forgiven = self.of(home).1.stalls_forgiven;
        let seen = self.seen.get_mut(&home).expect("it is there");
        seen.heard = Some(packet);
        (seen.heard_at, seen.forgiven) = (self.now, forgiven);
    }

    /// The machine runs, and does all that is due.
    fn turn(&mut self) {
        let now = self.now;
        self.sessions.handle_timeout(now);
        while let Some((carrier, event)) = self.sessions.poll_event() {
            let seen = self.seen.get_mut(&carrier).expect("it is there");
            match event {
                Event::Up => assert!(!core::mem::replace(&mut seen.is_up, true)),
                Event::Down(_) => assert!(core::mem::replace(&mut seen.is_up, false)),
                Event::FirstHeard | Event::DiscriminatorChanged => {}
            }
        }
        while let Some((carrier, bytes)) = self.sessions.poll_transmit(now) {
            let (packet, section) = ControlPacket::receive(&bytes).expect("it is well-formed");
            assert!(section.is_none());
            one_line(&packet);
            self.sent(carrier, packet);
        }
        for (carrier, _, status, counters, _) in self.sessions.iter() {
            let seen = self.seen.get_mut(&carrier).expect("it is there");
            assert_eq!(status.state == SessionState::Up, seen.is_up);
            if status.remote_discriminator == 0 {
                (seen.heard, seen.is_owed) = (None, false);
            }
            assert!(!seen.is_owed, "it is answered at once");
            let Some(heard) = seen.heard else { continue };
            let excuses = counters.stalls_forgiven - seen.forgiven;
            assert!(excuses <= heard.detect_mult.into());
            let silence = now.since(seen.heard_at);
            assert!(silence < status.detection_time || excuses > 0, "{status:?}");
        }
        assert!(self.sessions.poll_timeout().is_none_or(|next| next > now));
    }

    fn sent(&mut self, carrier: Carrier, packet: ControlPacket) {
        let (now, status, role) = (self.now, self.status(carrier), self.of(carrier).0.role);
        let seen = self.seen.get_mut(&carrier).expect("it is there");
        let before = seen.sent.replace(packet);
        let flags = packet.state_flags;
        assert_eq!(packet.state().0, status.state as u8);
        assert_eq!(packet.my_discriminator, status.local_discriminator);
        assert_eq!(packet.your_discriminator, status.remote_discriminator);
        assert!(role == Role::Active || packet.your_discriminator != 0);
        assert_eq!(packet.required_min_echo_rx_interval_us, 0);
        assert!(flags.0 & 0x0f == 0, "no C, A, D or M: {packet}");
        assert!(packet.state() == State::UP || packet.desired_min_tx_interval_us >= 1_000_000);
        if flags.is_final() {
            assert!(!flags.is_poll() && core::mem::take(&mut seen.is_owed));
            return;
        }
        // An interval of zero: nobody wants any.
        assert!(!status.transmit_interval.is_zero());
        let is_news = before.is_none_or(|before| {
            (before.state(), before.diagnostic()) != (packet.state(), packet.diagnostic())
        });
        if let Some(at) = seen.due_at.replace(now).filter(|_| !is_news) {
            let heard = seen.heard.filter(|_| packet.your_discriminator != 0);
            let peers_us = heard.map_or(1, |heard| heard.required_min_rx_interval_us);
            let interval = status.transmit_interval.max(Duration::from_micros(peers_us.into()));
            let least = interval * 3 / 4;
            assert!(now.since(at) + Duration::from_nanos(1) >= least, "{packet}");
        }
    }

    /// Time passes, and the machine is called when it wants to be.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..CALLS_MAX {
            let Some(next) = self.sessions.poll_timeout().filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = next;
            self.turn();
        }
    }

    fn add(&mut self, carrier: Carrier, settings: Settings) {
        let added = self.sessions.add(self.now, carrier, settings);
        match added {
            Ok(()) => assert!(self.seen.insert(carrier, Seen::default()).is_none()),
            Err(refused) => one_line(&refused),
        }
        assert_eq!(self.has(carrier), self.seen.contains_key(&carrier));
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..6 => self.packet(choices),
            6..9 => {
                let time = choices.of(&PASSES_MS);
                self.pass(Duration::from_millis(time));
            }
            9 => self.now = self.now + Duration::from_millis(choices.of(&PASSES_MS)),
            10 => {
                let carrier = draw_carrier(choices);
                self.add(carrier, draw_settings(choices));
            }
            11 => {
                let carrier = draw_carrier(choices);
                self.sessions.remove(self.now, carrier);
                self.seen.remove(&carrier);
            }
            12 | 13 => {
                let (carrier, settings) = (draw_carrier(choices), draw_settings(choices));
                if self.has(carrier) {
                    let before = *self.of(carrier).0;
                    let set = self.sessions.set(self.now, carrier, settings);
                    let expected = if set.is_ok() { settings } else { before };
                    assert_eq!(*self.of(carrier).0, expected);
                }
            }
            14 => {
                let carrier = draw_carrier(choices);
                if self.has(carrier) {
                    let why =
                        choices.of(&[Diagnostic::ADMINISTRATIVELY_DOWN, Diagnostic::PATH_DOWN]);
                    self.sessions.admin_down(self.now, carrier, why);
                    assert_eq!(self.status(carrier).state, SessionState::AdminDown);
                }
            }
            _ => {
                let carrier = draw_carrier(choices);
                if self.has(carrier) {
                    self.sessions.admin_up(self.now, carrier);
                    assert_ne!(self.status(carrier).state, SessionState::AdminDown);
                }
            }
        }
        self.turn();
    }
}

/// Carriers 0 to 2 have a session, of which that of 1 is passive and that of 2 bound.
fn start() -> Play {
    let (sessions, now) = (Sessions::new(1), Instant(1_000_000_000));
    let mut play = Play { sessions, now, seen: BTreeMap::new() };
    for (carrier, role) in [(0, Role::Active), (1, Role::Passive), (2, Role::Active)] {
        let settings = Settings {
            role,
            desired_min_tx_interval_us: 50_000,
            required_min_rx_interval_us: 50_000,
            detect_mult: 3,
            is_carrier_bound: carrier == 2,
        };
        play.add(Carrier(carrier), settings);
    }
    play
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = start();
    while !choices.is_empty() {
        play.step(&mut choices);
    }
    let discriminators: BTreeSet<_> =
        play.sessions.iter().map(|(_, _, status, ..)| status.local_discriminator).collect();
    assert!(!discriminators.contains(&0));
    assert_eq!(discriminators.len(), play.seen.len());
});
