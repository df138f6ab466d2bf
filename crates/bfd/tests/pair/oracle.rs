//! What a session may do, judged by the packets that it was shown and those that it sent.
//!
//! The oracle works out for itself which intervals are in force, and from these the least pause
//! between two packets and the detection time. Where a change was wanted and not yet told, the
//! session may already go by it: then there is a least and a most.

use core::time::Duration;

use bfd::{Event, SessionState, Settings};
use block::Instant;
use wire::bfd::{ControlPacket, Diagnostic, State};

/// What there was in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) taken: u64,
    pub(crate) ups: u64,
    pub(crate) expirations: u64,
    pub(crate) signaled: u64,
    pub(crate) begun_anew: u64,
    pub(crate) polls: u64,
    pub(crate) excused: u64,
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self { sent, taken, ups, expirations, signaled, begun_anew, polls, excused } = other;
        self.sent += sent;
        self.taken += taken;
        self.ups += ups;
        self.expirations += expirations;
        self.signaled += signaled;
        self.begun_anew += begun_anew;
        self.polls += polls;
        self.excused += excused;
    }
}

/// What the session was shown last.
#[derive(Clone, Copy)]
struct Heard {
    at: Instant,
    packet: ControlPacket,
    /// Until when its silence must, and may, be excused, and how often that was at least and at most.
    must_until: Instant,
    may_until: Instant,
    excuses: (u8, u8),
}

/// What is known of a session at one end.
pub(super) struct Judge {
    settings: Settings,
    heard: Option<Heard>,
    /// When the last packet left that was due, and the last of any kind.
    due_at: Option<Instant>,
    sent: Option<ControlPacket>,
    tx_in_force_us: u32,
    rx_in_force_us: u32,
    /// The most that was wanted of it since the peer last confirmed any.
    rx_most_us: u32,
    /// The longest interval that it may have gone by since the last packet that was due.
    longest_us: u32,
    /// Since then one packet that is missed ends the session, so that the next comes early.
    is_hurried: bool,
    /// A packet with P left and was not answered.
    has_asked: bool,
    /// Packets with P that came since the last answer.
    owed: u64,
    pub(super) is_up: bool,
    /// The discriminator that came last, whenever that was, and what is to be told of it.
    last_heard: u32,
    untold: Option<Event>,
}

impl Judge {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            heard: None,
            due_at: None,
            sent: None,
            tx_in_force_us: settings.desired_min_tx_interval_us.max(1_000_000),
            rx_in_force_us: settings.required_min_rx_interval_us,
            rx_most_us: settings.required_min_rx_interval_us,
            longest_us: 0,
            is_hurried: false,
            has_asked: false,
            owed: 0,
            is_up: false,
            last_heard: 0,
            untold: None,
        }
    }

    pub(super) fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.rx_most_us = self.rx_most_us.max(settings.required_min_rx_interval_us);
        self.is_hurried &= settings.detect_mult == 1;
    }

    /// It was shown a packet and took it, or learned from it at least.
    pub(super) fn took(&mut self, now: Instant, packet: ControlPacket, is_answered: bool) {
        if packet.state_flags.is_final() && core::mem::take(&mut self.has_asked) {
            let told = self.sent.expect("it asked");
            self.tx_in_force_us = told.desired_min_tx_interval_us;
            self.rx_in_force_us = told.required_min_rx_interval_us;
            self.rx_most_us = self.rx_in_force_us.max(self.settings.required_min_rx_interval_us);
        }
        self.owed += u64::from(packet.state_flags.is_poll() && is_answered);
        let before = core::mem::replace(&mut self.last_heard, packet.my_discriminator);
        if before == 0 {
            self.untold = Some(Event::FirstHeard);
        } else if before != packet.my_discriminator {
            self.untold = Some(Event::DiscriminatorChanged);
        }
        self.heard =
            Some(Heard { at: now, packet, must_until: now, may_until: now, excuses: (0, 0) });
        self.longest_us = self.longest_us.max(self.interval_us());
    }

    /// It is in this state, if only until the next packet: one that is not up goes by what is wanted,
    /// whatever is answered.
    pub(super) fn passed(&mut self, state: SessionState) {
        if state != SessionState::Up {
            self.tx_in_force_us = self.settings.desired_min_tx_interval_us.max(1_000_000);
            self.rx_in_force_us = self.settings.required_min_rx_interval_us;
            self.rx_most_us = self.rx_in_force_us;
            self.has_asked = false;
        }
    }

    /// It is called, so long after it wanted to be.
    pub(super) fn called(&mut self, now: Instant, gap: Duration) {
        let Some(((least, most), (interval_least, interval_most))) = self.patience() else {
            return;
        };
        let Some(heard) = &mut self.heard else { return };
        let mult = heard.packet.detect_mult;
        let must = gap * 3 > most && heard.excuses.1 < mult;
        let may = gap * 3 > least && heard.excuses.0 < mult;
        if must && now + interval_least > (heard.at + most).max(heard.must_until) {
            heard.excuses.0 += 1;
            heard.must_until = now + interval_least;
        }
        if may && now + interval_most > (heard.at + least).max(heard.may_until) {
            heard.excuses.1 += 1;
            heard.may_until = now + interval_most;
        }
    }

    /// It told something.
    pub(super) fn told(&mut self, now: Instant, event: Event) -> Result<(), String> {
        match event {
            Event::Up if self.is_up => return Err("is up twice".into()),
            Event::Up => self.is_up = true,
            Event::Down(_) if !self.is_up => return Err("is down twice".into()),
            Event::Down(why) => {
                self.is_up = false;
                if why == Diagnostic::DETECTION_TIME_EXPIRED {
                    self.expired(now)?;
                }
            }
            Event::FirstHeard | Event::DiscriminatorChanged => {
                let expected = self.untold.take();
                if expected != Some(event) {
                    return Err(format!("tells {event:?}, expected {expected:?}"));
                }
            }
        }
        Ok(())
    }

    fn expired(&mut self, now: Instant) -> Result<(), String> {
        let patience = self.patience();
        let (Some(Heard { at, must_until, packet, .. }), Some(((least, _), _))) =
            (self.heard.take(), patience)
        else {
            return Err("nobody was heard, and expires".into());
        };
        if now < at + least {
            return Err(format!("expires {:?} after {packet}, not {least:?}", now.since(at)));
        }
        if now < must_until {
            return Err(format!("is excused for {:?} more", must_until.since(now)));
        }
        Ok(())
    }

    /// It was called, and is in this state.
    pub(super) fn is(&mut self, now: Instant, state: SessionState) -> Result<(), String> {
        if let Some(event) = self.untold {
            return Err(format!("did not tell {event:?}"));
        }
        let Some(((_, most), _)) = self.patience() else { return Ok(()) };
        let Some(Heard { at, may_until, .. }) = self.heard else { return Ok(()) };
        if state == SessionState::Up && now >= (at + most).max(may_until) {
            return Err(format!("is up, {:?} after it heard anything: {most:?}", now.since(at)));
        }
        Ok(())
    }

    /// It sent a packet. `is_punctual`: it is called when it wants to be.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        packet: ControlPacket,
        is_punctual: bool,
    ) -> Result<(), String> {
        let flags = packet.state_flags;
        let before = self.sent.replace(packet);
        let is_up = packet.state() == State::UP;
        let desired_us = packet.desired_min_tx_interval_us;
        if !is_up && desired_us < 1_000_000 {
            return Err(format!("is fast and not up: {packet}"));
        }
        if desired_us < self.tx_in_force_us {
            self.tx_in_force_us = desired_us;
        }
        let required_us = packet.required_min_rx_interval_us;
        if required_us > self.rx_in_force_us {
            self.rx_in_force_us = required_us;
        }
        if flags.is_final() {
            let owed = core::mem::take(&mut self.owed);
            return match (owed, flags.is_poll()) {
                (0, _) => Err("answers what nobody asked".into()),
                (_, true) => Err("asks with an answer".into()),
                _ => Ok(()),
            };
        }
        self.has_asked |= flags.is_poll();
        // Whoever has no discriminator for the peer has forgotten what it wants.
        self.heard = self.heard.filter(|_| packet.your_discriminator != 0);
        let interval_us = self.interval_us();
        let longest_us = core::mem::replace(&mut self.longest_us, interval_us).max(interval_us);
        let is_news = before.is_none_or(|before| {
            (before.state(), before.diagnostic()) != (packet.state(), packet.diagnostic())
        });
        let is_hurried = core::mem::replace(&mut self.is_hurried, packet.detect_mult == 1);
        let Some(at) = self.due_at.replace(now) else { return Ok(()) };
        let pause = now.since(at);
        if !is_news && pause + Duration::from_nanos(1) < micros(interval_us) * 3 / 4 {
            return Err(format!("sends after {pause:?}, not {interval_us} us: {packet}"));
        }
        let most = micros(longest_us) * if is_hurried { 90 } else { 100 } / 100;
        if is_punctual && pause > most {
            return Err(format!("sends after {pause:?}, later than {most:?}: {packet}"));
        }
        Ok(())
    }

    /// The interval between packets, as far as it is known.
    fn interval_us(&self) -> u32 {
        let peers_us = self.heard.map_or(1, |heard| heard.packet.required_min_rx_interval_us);
        self.tx_in_force_us.max(peers_us)
    }

    /// The least and the most of its detection time, and of the peer's interval.
    fn patience(&self) -> Option<((Duration, Duration), (Duration, Duration))> {
        let packet = self.heard?.packet;
        let interval = |own_us: u32| micros(own_us.max(packet.desired_min_tx_interval_us));
        let least = interval(self.rx_in_force_us);
        let most = interval(self.rx_in_force_us.max(self.rx_most_us));
        let mult = u32::from(packet.detect_mult);
        Some(((least * mult, most * mult), (least, most)))
    }
}

fn micros(interval_us: u32) -> Duration {
    Duration::from_micros(interval_us.into())
}
