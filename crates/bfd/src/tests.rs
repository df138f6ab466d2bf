//! The rules of sessions, one small test each: [`demultiplexing`] finds whose a packet is,
//! [`states`] goes up and down, [`timers`] sends and waits, [`polls`] changes intervals, [`stalls`]
//! did not run. One end is here, and what the peer says is made up.

use core::time::Duration;

use block::Instant;
use wire::bfd::{ControlPacket, Diagnostic, State};

use crate::{Carrier, DropReason, Event, Role, SessionCounters, SessionState, Sessions, Settings};

mod demultiplexing;
mod polls;
mod stalls;
mod states;
mod timers;

const CARRIER: Carrier = Carrier(7);
/// The peer's discriminator.
const PEER: u32 = 0x5eed_0001;
const SETTINGS: Settings = Settings {
    role: Role::Active,
    desired_min_tx_interval_us: 50_000,
    required_min_rx_interval_us: 40_000,
    detect_mult: 3,
    is_carrier_bound: false,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// One end with a session, and the time.
struct End {
    sessions: Sessions,
    now: Instant,
}

impl End {
    /// A session that has just begun.
    fn new(settings: Settings) -> Self {
        let (mut sessions, now) = (Sessions::new(1), Instant(5_000_000_000));
        sessions.add(now, CARRIER, settings).unwrap();
        Self { sessions, now }
    }

    /// A session that is Up and whose packets all left. The peer wants a packet every 50 ms and
    /// sends one every 60 ms, so that the detection time is 180 ms.
    fn up(settings: Settings) -> Self {
        let mut end = Self::new(settings);
        end.hear(end.packet(State::DOWN));
        end.hear(end.packet(State::INIT));
        assert_eq!(end.state(), SessionState::Up);
        // The intervals of a session that is Up are asked about, and the next change waits.
        end.sent_within(ms(60));
        end.hear(answer(end.packet(State::UP)));
        end.stay_up(ms(1000));
        while end.sessions.poll_event().is_some() {}
        assert_eq!(end.sent(), []);
        end
    }

    /// Lets time pass while the peer is heard, at the end of it, too.
    fn stay_up(&mut self, time: Duration) {
        let begin = self.now;
        while self.now.since(begin) < time {
            self.sent_within(ms(50));
            self.hear(self.packet(State::UP));
        }
    }

    /// What the peer says, if it knows us.
    fn packet(&self, state: State) -> ControlPacket {
        let your = self.discriminator();
        ControlPacket {
            desired_min_tx_interval_us: 60_000,
            required_min_rx_interval_us: 50_000,
            ..ControlPacket::new(state, Diagnostic::NONE, 3, PEER, your)
        }
    }

    #[track_caller]
    fn hear(&mut self, packet: ControlPacket) {
        let taken = self.sessions.handle_packet(self.now, CARRIER, &packet.emit());
        assert_eq!(taken, Ok(CARRIER));
    }

    /// A packet is discarded, and counted once at the carrier's session.
    #[track_caller]
    fn discards(&mut self, bytes: &[u8], reason: DropReason) {
        let count = |end: &Self| end.sessions.iter().next().unwrap().4.of(reason);
        let before = count(self);
        assert_eq!(self.sessions.handle_packet(self.now, CARRIER, bytes), Err(reason));
        assert_eq!(count(self), before + 1);
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<ControlPacket> {
        let next = || self.sessions.poll_transmit(self.now);
        let sent = core::iter::from_fn(next);
        sent.map(|(carrier, bytes)| {
            assert_eq!(carrier, CARRIER);
            ControlPacket::receive(&bytes).unwrap().0
        })
        .collect()
    }

    /// Lets time pass, punctually; what leaves meanwhile, and how long after the beginning.
    fn sent_within(&mut self, time: Duration) -> Vec<(Duration, ControlPacket)> {
        let (begin, end) = (self.now, self.now + time);
        let mut all = Vec::new();
        loop {
            let now = self.now;
            all.extend(self.sent().into_iter().map(|packet| (now.since(begin), packet)));
            let next = self.sessions.poll_timeout().filter(|next| *next <= end);
            self.now = next.unwrap_or(end);
            self.sessions.handle_timeout(self.now);
            if next.is_none() {
                return all;
            }
        }
    }

    fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.sessions.poll_event())
            .map(|(carrier, event)| {
                assert_eq!(carrier, CARRIER);
                event
            })
            .collect()
    }

    fn status(&self) -> crate::Status {
        self.sessions.status(CARRIER).unwrap()
    }

    fn state(&self) -> SessionState {
        self.status().state
    }

    fn discriminator(&self) -> u32 {
        self.status().local_discriminator
    }

    fn counters(&self) -> SessionCounters {
        *self.sessions.iter().next().unwrap().3
    }
}

fn with_flags(
    packet: ControlPacket,
    change: impl FnOnce(wire::bfd::StateFlags) -> wire::bfd::StateFlags,
) -> ControlPacket {
    ControlPacket { state_flags: change(packet.state_flags), ..packet }
}

fn poll(packet: ControlPacket) -> ControlPacket {
    with_flags(packet, |flags| flags.with_poll(true))
}

fn answer(packet: ControlPacket) -> ControlPacket {
    with_flags(packet, |flags| flags.with_final(true))
}
