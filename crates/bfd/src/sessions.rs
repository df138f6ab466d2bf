//! All sessions of a machine.
//!
//! ```text
//!   a packet without Your Discriminator --> by its carrier ------+
//!   a packet with Your Discriminator ----> by that discriminator +--> Session
//!                                                                       |
//!   poll_timeout <-- Deadlines <----------------- settle ---------------+
//!   poll_transmit <-- those in line to send <-------+
//!   poll_event <-- those in line to tell <----------+
//! ```
//! Order of calls: `add`, `set`, `remove`, `pause` and `admin_*` at any time. In a turn first `handle_packet`
//! with all that has come, then `handle_timeout`, then `poll_transmit` and `poll_event` until they
//! have nothing; the next turn is when something comes or `poll_timeout` is due. The order counts:
//! what has come in time and was not read is no silence.
//!
//! A machine that did not run hears nothing, and it is nobody's fault but its own. Whoever is called
//! later than the deadline that it asked for, by more than a third of a session's detection time,
//! gives that session one interval more from now, once for each such gap and in one silence no more
//! often than the peer's multiplier; each time is counted. This rule is ours.
//!
//! A packet costs two look-ups and a place in a heap, and no memory. Errors: [`Refused`] of what is
//! added or set, after which nothing is changed, [`DropReason`] of packets; a session that is named
//! and is not there is our own mistake. Spec: RFC 5880, asynchronous mode.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use block::{Instant, Random, Slot, Table, planted};
use wire::bfd::{ControlPacket, Diagnostic};

use crate::counters::{DropReason, Drops, SessionCounters};
use crate::deadlines::Deadlines;
use crate::event::Event;
use crate::limits::SESSIONS_MAX;
use crate::refused::Refused;
use crate::session::{Session, Status};
use crate::settings::Settings;

/// What carries the packets of a session: whoever calls knows which link or pseudowire has which
/// number. A carrier has one session, and the session has no other name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Carrier(pub u64);

/// All sessions of a machine.
#[derive(Debug)]
pub struct Sessions {
    sessions: Table<Session>,
    by_carrier: BTreeMap<Carrier, Slot>,
    by_discriminator: BTreeMap<u32, Slot>,
    /// The discriminators of sessions that are to be there again, and of their peers.
    paused: BTreeMap<Carrier, (u32, u32)>,
    deadlines: Deadlines,
    /// Those with something to send, each once.
    ready: VecDeque<Slot>,
    /// Those with something to tell, each once.
    callers: VecDeque<Slot>,
    random: Random,
    /// How long this machine did not run, as calls since the last `handle_timeout` saw.
    stall: Duration,
    /// Of packets by carriers that have no session.
    strays: Drops,
}

impl Sessions {
    /// No sessions. The seed decides discriminators and jitter; another start takes another one, so
    /// that its sessions are not taken for those before it.
    pub fn new(seed: u64) -> Self {
        Self {
            sessions: Table::new(),
            by_carrier: BTreeMap::new(),
            by_discriminator: BTreeMap::new(),
            paused: BTreeMap::new(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            callers: VecDeque::new(),
            random: Random::new(seed),
            stall: Duration::ZERO,
            strays: Drops::default(),
        }
    }

    /// Whether a session can be like this.
    pub fn check(settings: &Settings) -> Result<(), Refused> {
        settings.check()
    }

    /// There is a session, which is Down.
    pub fn add(
        &mut self,
        now: Instant,
        carrier: Carrier,
        settings: Settings,
    ) -> Result<(), Refused> {
        settings.check()?;
        if self.by_carrier.contains_key(&carrier) {
            return Err(Refused::Taken(carrier));
        }
        if self.sessions.len() == SESSIONS_MAX {
            return Err(Refused::TooMany);
        }
        let paused = self.paused.remove(&carrier);
        let (discriminator, last_heard) = paused.unwrap_or_else(|| (self.draw_discriminator(), 0));
        let mut session = Session::new(now, carrier, settings, discriminator, &mut self.random);
        session.last_heard = last_heard;
        let slot = self.sessions.insert(session);
        self.by_carrier.insert(carrier, slot);
        self.by_discriminator.insert(discriminator, slot);
        self.deadlines.reserve(slot);
        self.ready.reserve(self.sessions.len() - self.ready.len());
        self.callers.reserve(self.sessions.len() - self.callers.len());
        self.settle(now, slot);
        Ok(())
    }

    /// There is no such session any more. The peer is not told, and finds out by the silence: who
    /// wants it told has the session down administratively first, for a detection time of the peer's.
    pub fn remove(&mut self, now: Instant, carrier: Carrier) {
        self.see(now);
        self.paused.remove(&carrier);
        let Some(slot) = self.by_carrier.remove(&carrier) else { return };
        let session = self.sessions.remove(slot).expect("a carrier's session is there");
        self.by_discriminator.remove(&session.discriminator);
        self.deadlines.set(slot, None);
        self.ready.retain(|ready| *ready != slot);
        self.callers.retain(|caller| *caller != slot);
    }

    /// There is no such session for now. One that is added for the carrier later has the same
    /// discriminator, so that the peer does not take this machine for one that began anew.
    pub fn pause(&mut self, now: Instant, carrier: Carrier) {
        let slot = self.by_carrier.get(&carrier).copied();
        let Some(session) = slot.and_then(|slot| self.sessions.get(slot)) else { return };
        let discriminators = (session.discriminator, session.last_heard);
        self.remove(now, carrier);
        self.paused.insert(carrier, discriminators);
    }

    /// A session is another way now: its state stays what it is, and the peer is asked to confirm
    /// intervals that changed. Panics if there is none.
    pub fn set(
        &mut self,
        now: Instant,
        carrier: Carrier,
        settings: Settings,
    ) -> Result<(), Refused> {
        settings.check()?;
        self.see(now);
        let (slot, session, random) = self.session_mut(carrier);
        session.set(now, settings, random);
        self.settle(now, slot);
        Ok(())
    }

    /// A session is to be down, whatever the peer says, and says why: ADMINISTRATIVELY_DOWN, or
    /// PATH_DOWN where it is known otherwise that its path has failed. It goes on sending, so that the
    /// peer knows. Panics if there is none.
    pub fn admin_down(&mut self, now: Instant, carrier: Carrier, why: Diagnostic) {
        self.see(now);
        let (slot, session, _) = self.session_mut(carrier);
        session.admin_down(now, why);
        self.settle(now, slot);
    }

    /// A session is no longer to be down. Panics if there is none.
    pub fn admin_up(&mut self, now: Instant, carrier: Carrier) {
        self.see(now);
        let (slot, session, _) = self.session_mut(carrier);
        session.admin_up(now);
        self.settle(now, slot);
    }

    /// A packet came by a carrier; says for whose session it was. `bytes` begins with the packet and
    /// may go on behind it. What is discarded is counted at the session of the carrier by which it
    /// came, if that has one.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        carrier: Carrier,
        bytes: &[u8],
    ) -> Result<Carrier, DropReason> {
        self.see(now);
        let taken = self.take_packet(now, carrier, bytes);
        if let Err(reason) = taken {
            let slot = self.by_carrier.get(&carrier);
            let session = slot.and_then(|slot| self.sessions.get_mut(*slot));
            session.map_or(&mut self.strays, |session| &mut session.drops).count(reason);
        }
        taken
    }

    /// Time has passed. Comes behind the packets that came until then.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.see(now);
        let stall = core::mem::take(&mut self.stall);
        if stall > Duration::ZERO {
            self.excuse(now, stall);
        }
        while let Some((deadline, slot)) = self.deadlines.first() {
            if now < deadline {
                break;
            }
            let session = self.sessions.get_mut(slot).expect("who has a deadline is there");
            session.handle_timeout(now);
            self.settle(now, slot);
        }
    }

    /// The next packet to send, and by which carrier.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Carrier, [u8; ControlPacket::SIZE])> {
        while let Some(slot) = self.ready.pop_front() {
            let session = self.sessions.get_mut(slot).expect("who is in line is there");
            session.is_ready = false;
            let carrier = session.carrier;
            let packet = session.transmit(now, &mut self.random);
            self.settle(now, slot);
            if let Some(packet) = packet {
                return Some((carrier, packet.emit()));
            }
        }
        None
    }

    /// The next thing that became of a session.
    pub fn poll_event(&mut self) -> Option<(Carrier, Event)> {
        while let Some(slot) = self.callers.front() {
            let session = self.sessions.get_mut(*slot).expect("who calls is there");
            if let Some(event) = session.news.pop() {
                return Some((session.carrier, event));
            }
            session.has_called = false;
            self.callers.pop_front();
        }
        None
    }

    /// When `handle_timeout` is to be called, if nothing comes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| deadline)
    }

    /// What a session is like at present.
    pub fn status(&self, carrier: Carrier) -> Option<Status> {
        let slot = self.by_carrier.get(&carrier)?;
        self.sessions.get(*slot).map(Session::status)
    }

    /// What a session did, and what was discarded.
    pub fn counted(&self, carrier: Carrier) -> Option<(&SessionCounters, &Drops)> {
        let session = self.sessions.get(*self.by_carrier.get(&carrier)?)?;
        Some((&session.counters, &session.drops))
    }

    /// The sessions: what each is like, what it did, and what was discarded.
    pub fn iter(
        &self,
    ) -> impl Iterator<Item = (Carrier, &Settings, Status, &SessionCounters, &Drops)> {
        self.by_carrier.iter().map(|(carrier, slot)| {
            let session = self.sessions.get(*slot).expect("a carrier's session is there");
            let Session { settings, counters, drops, .. } = session;
            (*carrier, settings, session.status(), counters, drops)
        })
    }

    /// What came by carriers that have no session.
    pub fn strays(&self) -> &Drops {
        &self.strays
    }

    /// Finds whose a packet is, in the order of RFC 5880 clause 6.8.6, and gives it to them.
    fn take_packet(
        &mut self,
        now: Instant,
        carrier: Carrier,
        bytes: &[u8],
    ) -> Result<Carrier, DropReason> {
        let (packet, authentication) =
            ControlPacket::receive(bytes).map_err(|error| DropReason::of(&error))?;
        let found = match packet.your_discriminator {
            0 => self.by_carrier.get(&carrier).ok_or(DropReason::NoSession),
            your => match self.by_discriminator.get(&your) {
                None if planted("stranger-is-taken-by-its-carrier") => {
                    self.by_carrier.get(&carrier)
                }
                found => found,
            }
            .ok_or(DropReason::UnknownDiscriminator),
        };
        let slot = *found?;
        let session = self.sessions.get_mut(slot).expect("who is found is there");
        let is_strange = session.settings.is_carrier_bound && session.carrier != carrier;
        if is_strange && !planted("astray-is-at-home") {
            return Err(DropReason::OtherCarrier);
        }
        if authentication.is_some() {
            return Err(DropReason::Authenticated);
        }
        let taken = session.receive(now, &packet).map(|()| session.carrier);
        self.settle(now, slot);
        taken
    }

    /// Whoever is called now may be late.
    fn see(&mut self, now: Instant) {
        if let Some(deadline) = self.poll_timeout() {
            self.stall = self.stall.max(now.since(deadline));
        }
    }

    /// This machine did not run for this long: sessions that are short of patience get some more.
    /// All are looked at, which is why it is done after a stall alone and not for each packet.
    fn excuse(&mut self, now: Instant, stall: Duration) {
        for (slot, session) in self.sessions.iter_mut() {
            if session.excuse(now, stall) {
                self.deadlines.set(slot, session.deadline());
            }
        }
    }

    /// After whatever happened to a session: it gets in line, and its deadline is what it is now. One
    /// that a change moved into the past is due now, and nobody was late for it.
    fn settle(&mut self, now: Instant, slot: Slot) {
        let session = self.sessions.get_mut(slot).expect("it was just called");
        if !session.is_ready && session.wants_to_send(now) {
            session.is_ready = true;
            self.ready.push_back(slot);
        }
        if !session.has_called && !session.news.is_empty() {
            session.has_called = true;
            self.callers.push_back(slot);
        }
        let deadline = session.deadline().map(|deadline| deadline.max(now));
        self.deadlines.set(slot, deadline);
    }

    fn session_mut(&mut self, carrier: Carrier) -> (Slot, &mut Session, &mut Random) {
        let slot = self.by_carrier.get(&carrier).copied();
        let session = slot.and_then(|slot| Some((slot, self.sessions.get_mut(slot)?)));
        let (slot, session) =
            session.unwrap_or_else(|| panic!("{carrier:?} is named and has no session"));
        (slot, session, &mut self.random)
    }

    /// One that is not 0 and nobody's. At random, so that whoever is not on the path does not know it,
    /// and that a start does not take those of the start before. Not a secret: whoever is on the path
    /// reads it.
    fn draw_discriminator(&mut self) -> u32 {
        loop {
            let drawn = self.random.next_u64() as u32;
            let is_taken = self.by_discriminator.contains_key(&drawn)
                || self.paused.values().any(|(paused, _)| *paused == drawn);
            if drawn != 0 && !is_taken {
                return drawn;
            }
        }
    }
}
