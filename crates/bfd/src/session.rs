//! One session: what it thinks of itself and of the peer, what makes it change its mind, and when it
//! sends.
//!
//! Three deadlines: that of the next packet, which is the moment of the last one and an interval that
//! is shortened at random; that of a change of intervals that waits; and that of the peer's silence.
//! They are computed anew whenever they are asked for, so that an interval that changes is honored at
//! once, and none is stored that could be stale.
//! Whoever calls says what time it is, draws random numbers, and looks afterwards whether there is
//! something to send or to tell (`Sessions::settle`).
//! Units: intervals in microseconds. Errors: [`DropReason`]. Spec: RFC 5880 clause 6.8.

use core::time::Duration;

use block::{Instant, Random, planted};
use wire::bfd::{ControlPacket, Diagnostic};

use crate::counters::{DropReason, Drops, SessionCounters};
use crate::event::News;
use crate::intervals::{Intervals, Pair, draw_jitter_ppm, shortened};
use crate::limits::{SLOW_INTERVAL_US, STALL_PARTS};
use crate::sessions::Carrier;
use crate::settings::{Role, Settings};
use crate::state::SessionState;

/// What a session is like at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: SessionState,
    /// Why it was last left; none while it is Up.
    pub diagnostic: Diagnostic,
    pub local_discriminator: u32,
    /// 0: the peer is not known.
    pub remote_discriminator: u32,
    /// What the peer said of itself.
    pub remote_state: SessionState,
    /// How often it sends, before jitter; zero: it does not.
    pub transmit_interval: Duration,
    /// After how long a silence it goes down; zero: nobody was heard.
    pub detection_time: Duration,
    /// Whether it waits for the peer to confirm intervals.
    pub is_polling: bool,
}

/// What the peer said last. All that is here is forgotten with it.
#[derive(Clone, Copy, Debug)]
struct Remote {
    discriminator: u32,
    state: SessionState,
    is_demand: bool,
    detect_mult: u8,
    desired_min_tx_us: u32,
    required_min_rx_us: u32,
    heard: Option<Heard>,
}

/// When something came last.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Instant,
    /// Until when silence is not held against the peer, since it may be our own fault ...
    excused_until: Instant,
    /// ... and how often that was put off.
    excuses: u8,
}

impl Remote {
    /// Nobody: what bfd.RemoteDiscr and its sisters are at the beginning (clause 6.8.1).
    const NOBODY: Self = Self {
        discriminator: 0,
        state: SessionState::Down,
        is_demand: false,
        detect_mult: 0,
        desired_min_tx_us: 0,
        required_min_rx_us: 1,
        heard: None,
    };
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) carrier: Carrier,
    pub(crate) settings: Settings,
    pub(crate) discriminator: u32,
    state: SessionState,
    diagnostic: Diagnostic,
    remote: Remote,
    /// The discriminator that was heard last, also after a silence; 0: none was.
    pub(crate) last_heard: u32,
    intervals: Intervals,
    /// When the present interval began, and by how much it is shortened.
    sent_at: Instant,
    jitter_ppm: u32,
    /// What the last packet said, without P and F.
    last_sent: ControlPacket,
    /// A packet with P came and was not answered.
    owes_final: bool,
    pub(crate) news: News,
    /// Whether it stands in line to send, and to tell.
    pub(crate) is_ready: bool,
    pub(crate) has_called: bool,
    pub(crate) counters: SessionCounters,
    pub(crate) drops: Drops,
}

impl Session {
    /// One that begins now. It first sends within a quarter of an interval, so that sessions which
    /// begin together do not send together.
    pub(crate) fn new(
        now: Instant,
        carrier: Carrier,
        settings: Settings,
        discriminator: u32,
        random: &mut Random,
    ) -> Self {
        let mut session = Self {
            carrier,
            settings,
            discriminator,
            state: SessionState::Down,
            diagnostic: Diagnostic::NONE,
            remote: Remote::NOBODY,
            last_heard: 0,
            intervals: Intervals::new(wanted(&settings, SessionState::Down)),
            sent_at: now,
            jitter_ppm: 1_000_000 - draw_jitter_ppm(random, settings.detect_mult),
            last_sent: ControlPacket::new(
                SessionState::Down.to_wire(),
                Diagnostic::NONE,
                settings.detect_mult,
                discriminator,
                0,
            ),
            owes_final: false,
            news: News::default(),
            is_ready: false,
            has_called: false,
            counters: SessionCounters::default(),
            drops: Drops::default(),
        };
        session.last_sent = session.contents();
        session
    }

    /// It is wanted another way.
    pub(crate) fn set(&mut self, now: Instant, settings: Settings, random: &mut Random) {
        if settings.detect_mult != self.settings.detect_mult {
            // The interval that runs may be too long for the new multiplier.
            self.jitter_ppm = draw_jitter_ppm(random, settings.detect_mult);
        }
        self.settings = settings;
        self.review(now, self.state);
    }

    /// It is to be down whatever the peer says, for this reason.
    pub(crate) fn admin_down(&mut self, now: Instant, diagnostic: Diagnostic) {
        self.become_state(now, SessionState::AdminDown, diagnostic);
    }

    /// It is no longer to be down.
    pub(crate) fn admin_up(&mut self, now: Instant) {
        if self.state == SessionState::AdminDown {
            self.become_state(now, SessionState::Down, Diagnostic::NONE);
        }
    }

    /// A packet that is for this session, and broke no rule that needs none; the rest of clause
    /// 6.8.6, in its order.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        packet: &ControlPacket,
    ) -> Result<(), DropReason> {
        let ControlPacket { my_discriminator, state_flags: flags, .. } = *packet;
        if self.last_heard != my_discriminator {
            self.news.peer_changed(self.last_heard == 0);
            self.last_heard = my_discriminator;
        }
        let received = SessionState::of(packet.state());
        // A packet that the next lines discard was still a valid one, from somebody who is there.
        self.remote = Remote {
            discriminator: my_discriminator,
            state: received,
            is_demand: flags.is_demand(),
            detect_mult: packet.detect_mult,
            desired_min_tx_us: packet.desired_min_tx_interval_us,
            required_min_rx_us: packet.required_min_rx_interval_us,
            heard: Some(Heard { at: now, excused_until: now, excuses: 0 }),
        };
        if flags.is_final() {
            self.intervals.handle_final();
        }
        if self.state == SessionState::AdminDown {
            self.review(now, self.state);
            return Err(DropReason::AdminDown);
        }
        match self.state.after(received) {
            state if state == self.state => self.review(now, state),
            SessionState::Down => {
                self.become_state(now, SessionState::Down, Diagnostic::NEIGHBOR_SIGNALED_DOWN);
            }
            SessionState::Up => self.become_state(now, SessionState::Up, Diagnostic::NONE),
            // Until it is Up it says why the one before ended.
            state => self.become_state(now, state, self.diagnostic),
        }
        self.owes_final |= flags.is_poll() && !planted("polls-are-not-answered");
        self.counters.received += 1;
        Ok(())
    }

    /// Time has passed: a change may have waited for long enough, or nobody been heard for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.silence_ends().is_none_or(|end| now < end) {
            return self.review(now, self.state);
        }
        self.counters.expirations += 1;
        let kept = self.remote.discriminator;
        self.remote = Remote::NOBODY;
        if planted("silence-hides-who-began-anew") {
            self.last_heard = 0;
        }
        if planted("discriminator-is-not-forgotten") {
            self.remote.discriminator = kept;
        }
        // Whoever asked is not there any more.
        self.owes_final = false;
        match self.state {
            SessionState::Init | SessionState::Up => {
                self.become_state(now, SessionState::Down, Diagnostic::DETECTION_TIME_EXPIRED);
            }
            SessionState::Down | SessionState::AdminDown => self.review(now, self.state),
        }
    }

    /// This machine did not run for this long until now: whether the peer's silence is excused for
    /// one interval more. Never more often in one silence than there are intervals in a detection
    /// time: a machine that is always late finds out, too.
    pub(crate) fn excuse(&mut self, now: Instant, stall: Duration) -> bool {
        let (Some(silence_ends), true) = (self.silence_ends(), stall > self.stall_least()) else {
            return false;
        };
        let excused_until = now + micros(self.receive_interval_us());
        let mult = self.remote.detect_mult;
        let Some(heard) = &mut self.remote.heard else { return false };
        let is_spent = heard.excuses >= mult && !planted("stalls-excuse-for-ever");
        if is_spent || excused_until <= silence_ends || planted("stalls-are-not-excused") {
            return false;
        }
        heard.excuses = heard.excuses.saturating_add(1);
        heard.excused_until = excused_until;
        self.counters.stalls_forgiven += 1;
        true
    }

    /// The packet to send now, if one is.
    pub(crate) fn transmit(&mut self, now: Instant, random: &mut Random) -> Option<ControlPacket> {
        let mut packet = self.contents();
        let flags = packet.state_flags;
        if core::mem::take(&mut self.owes_final) {
            // It comes beside those that are due, and moves none of them.
            packet.state_flags = flags.with_final(true);
            self.counters.finals_sent += 1;
        } else if self.is_due(now) {
            let is_poll = self.intervals.send(now);
            packet.state_flags = flags.with_poll(is_poll);
            self.counters.polls_sent += u64::from(is_poll);
            self.sent_at = now;
            self.jitter_ppm = draw_jitter_ppm(random, self.settings.detect_mult);
        } else {
            return None;
        }
        self.last_sent = self.contents();
        self.counters.sent += 1;
        Some(packet)
    }

    /// Whether there is something to send now.
    pub(crate) fn wants_to_send(&self, now: Instant) -> bool {
        self.owes_final || self.is_due(now)
    }

    /// When it wants to be called, if nothing comes. What is in line to send has no deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_waiting = self.sends_periodically() && !self.is_ready;
        let change = self.intervals.change_is_due(wanted(&self.settings, self.state));
        let own = Instant::earliest(is_waiting.then(|| self.next_due()), change);
        Instant::earliest(own, self.silence_ends())
    }

    pub(crate) fn status(&self) -> Status {
        let sends = self.sends_periodically();
        Status {
            state: self.state,
            diagnostic: self.diagnostic,
            local_discriminator: self.discriminator,
            remote_discriminator: self.remote.discriminator,
            remote_state: self.remote.state,
            transmit_interval: micros(if sends { self.transmit_interval_us() } else { 0 }),
            detection_time: self.detection_time(),
            is_polling: self.intervals.is_polling(),
        }
    }

    fn become_state(&mut self, now: Instant, state: SessionState, diagnostic: Diagnostic) {
        let before = core::mem::replace(&mut self.state, state);
        self.diagnostic = diagnostic;
        match (before == SessionState::Up, state == SessionState::Up) {
            (false, true) => {
                self.counters.ups += 1;
                self.news.up();
            }
            (true, false) => {
                self.counters.downs += 1;
                self.news.down(diagnostic);
            }
            (true, true) | (false, false) => {}
        }
        self.review(now, before);
    }

    /// What was wanted, heard or became of the state may want other intervals, or the peer told.
    fn review(&mut self, now: Instant, before: SessionState) {
        let is_up = self.state == SessionState::Up;
        let wanted = wanted(&self.settings, self.state);
        self.intervals.want(now, wanted, is_up, before != self.state);
        // A peer that nothing is sent to is asked whether it knows what is new (clause 6.6).
        if self.is_silenced() && self.contents() != self.last_sent {
            self.intervals.ask();
        }
    }

    /// What a packet says, without P and F.
    fn contents(&self) -> ControlPacket {
        let told = self.intervals.told();
        let mut packet = ControlPacket::new(
            self.state.to_wire(),
            self.diagnostic,
            self.settings.detect_mult,
            self.discriminator,
            self.remote.discriminator,
        );
        packet.desired_min_tx_interval_us = told.desired_min_tx_us;
        packet.required_min_rx_interval_us = told.required_min_rx_us;
        packet
    }

    /// Whether the peer has Demand mode active, and so wants nothing while both are Up.
    fn is_silenced(&self) -> bool {
        let is_up = self.state == SessionState::Up && self.remote.state == SessionState::Up;
        self.remote.is_demand && is_up
    }

    fn sends_periodically(&self) -> bool {
        let waits = self.settings.role == Role::Passive && self.remote.discriminator == 0;
        let is_unwanted = self.remote.required_min_rx_us == 0
            || (self.is_silenced() && !self.intervals.is_polling());
        !waits && !is_unwanted
    }

    /// Whether a packet is due, or early since the last one says what is no longer so. Intervals that
    /// change are told by the packets that are due: a Poll Sequence adds none (clause 6.5).
    fn is_due(&self, now: Instant) -> bool {
        let is_told = self.last_sent.state() == self.state.to_wire()
            && self.last_sent.diagnostic() == self.diagnostic;
        self.sends_periodically() && (!is_told || self.next_due() <= now)
    }

    fn next_due(&self) -> Instant {
        self.sent_at + shortened(self.transmit_interval_us(), self.jitter_ppm)
    }

    fn transmit_interval_us(&self) -> u32 {
        let own = self.intervals.in_force().desired_min_tx_us;
        if planted("pace-of-the-peer-is-ignored") {
            return own;
        }
        own.max(self.remote.required_min_rx_us)
    }

    /// How often the peer sends, at least.
    fn receive_interval_us(&self) -> u32 {
        self.intervals.in_force().required_min_rx_us.max(self.remote.desired_min_tx_us)
    }

    fn detection_time(&self) -> Duration {
        micros(self.receive_interval_us()) * u32::from(self.remote.detect_mult)
    }

    /// What is too long for a machine not to have run.
    fn stall_least(&self) -> Duration {
        self.detection_time() / STALL_PARTS
    }

    /// When it has heard nothing for too long.
    fn silence_ends(&self) -> Option<Instant> {
        let Heard { at, excused_until, .. } = self.remote.heard?;
        let patience = if planted("silence-lasts-twice-as-long") { 2 } else { 1 };
        Some((at + self.detection_time() * patience).max(excused_until))
    }
}

/// The intervals that such a session wants in a state: one that is not Up is slow.
fn wanted(settings: &Settings, state: SessionState) -> Pair {
    let least_us = match state {
        SessionState::Up => 0,
        _ if planted("down-is-not-slow") => 0,
        SessionState::AdminDown | SessionState::Down | SessionState::Init => SLOW_INTERVAL_US,
    };
    Pair {
        desired_min_tx_us: settings.desired_min_tx_interval_us.max(least_us),
        required_min_rx_us: settings.required_min_rx_interval_us,
    }
}

fn micros(interval_us: u32) -> Duration {
    Duration::from_micros(interval_us.into())
}
