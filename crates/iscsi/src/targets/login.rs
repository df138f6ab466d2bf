//! The end of a login: whether there is such a target, whether its host may use it, and that what
//! its initiator port had before has ended.
//!
//! Every shard is asked ([`Message::NexusAsk`]) and answers once nothing of the nexus is below
//! there, so a login that is answered with success promises that no older command of its initiator
//! port will still reach the media. Where two shards log the same nexus in at once, the one with
//! the lower number wins. Errors: a [`LoginStatus`]. Spec: RFC 7143, 6.3.1, 6.3.4 to 6.3.5, 11.13.5.

use std::net::SocketAddr;

use block::{Instant, ShardId, Slot, planted};
use contract::{HostEvent, HostNews, Peer, Refused, Traffic};
use wire::iscsi::{IscsiName, LoginStatus};

use super::{
    CloseReason, Nexus, Opened, Opening, Session, SessionEvent, SessionHandle, Targets, Wanted,
    masked,
};
use crate::limits::{REINSTATEMENT_HOLD, SESSIONS_MAX};
use crate::message::{Found, Message};

/// A login that waits for other shards, or for this one's sessions.
#[derive(Debug)]
pub(super) struct Pending {
    wanted: Wanted,
    place: Slot,
    peer: SocketAddr,
    /// Answers that have not come.
    left: u16,
    /// The most that was found.
    found: Found,
    /// Whether its connection is gone, or it lost against another: then it becomes no session.
    is_off: bool,
}

/// A shard that wants to know when nothing of a nexus is below here any more.
#[derive(Debug)]
pub(super) struct Waiter {
    from: ShardId,
    ask: Slot,
    nexus: Nexus,
    pub(super) until: Instant,
}

impl Targets {
    /// The login of the connection at a place is over but for this.
    pub fn open(&mut self, now: Instant, place: Slot, peer: SocketAddr, wanted: Wanted) -> Opening {
        self.now = now;
        if let Err(status) = self.may_open(&wanted.nexus, peer) {
            return Opening::Now(Err(status));
        }
        if self.pending.iter().any(|(_, other)| !other.is_off && other.wanted.nexus == wanted.nexus)
        {
            return Opening::Now(Err(LoginStatus::SERVICE_UNAVAILABLE));
        }
        let left = self.shards;
        let ask = self.pending.insert(Pending {
            wanted: wanted.clone(),
            place,
            peer,
            left,
            found: Found::Nothing,
            is_off: false,
        });
        for shard in (0..self.shards).map(ShardId).filter(|shard| *shard != self.shard) {
            let message = Message::NexusAsk { ask, wanted: Box::new(wanted.clone()) };
            self.messages.push_back((shard, message));
        }
        match self.look_for(now, self.shard, ask, &wanted) {
            Some(found) => match self.count_answer(ask, found) {
                Some(opened) => Opening::Now(opened),
                None => Opening::Later,
            },
            None => Opening::Later,
        }
    }

    /// The connection of a login that was answered [`Opening::Later`] is gone.
    pub fn abandon(&mut self, place: Slot) {
        let mine = self.pending.iter_mut().find(|(_, pending)| pending.place == place);
        if let Some((_, pending)) = mine {
            pending.is_off = true;
        }
    }

    fn may_open(&mut self, nexus: &Nexus, peer: SocketAddr) -> Result<(), LoginStatus> {
        if !self.configured {
            // It may come with the rest of the configuration, and so may what its units lie on.
            return Err(LoginStatus::SERVICE_UNAVAILABLE);
        }
        let Some(slot) = self.by_name.get(&nexus.target) else {
            self.refused(nexus, peer, Refused::NotExported);
            return Err(LoginStatus::NOT_FOUND);
        };
        let target = &self.entries.get(*slot).expect("names lead to targets").target;
        if target.luns_of(&nexus.initiator).next().is_none() {
            self.refused(nexus, peer, Refused::NotNamed);
            return Err(LoginStatus::AUTHORIZATION_FAILURE);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(LoginStatus::OUT_OF_RESOURCES);
        }
        Ok(())
    }

    fn refused(&mut self, nexus: &Nexus, peer: SocketAddr, why: Refused) {
        self.news.push_back(HostNews {
            host: nexus.initiator.to_string(),
            export: nexus.target.to_string(),
            peer: Peer::Address(peer),
            event: HostEvent::Refused(why),
        });
    }

    /// A host that wanted to log in to a target, or to discover where there is none, has not proved
    /// who it is, and why.
    pub fn not_proved(
        &mut self,
        host: &IscsiName,
        target: Option<&IscsiName>,
        peer: SocketAddr,
        why: &'static str,
    ) {
        self.news.push_back(HostNews {
            host: host.to_string(),
            export: target.map_or_else(|| "discovery".to_owned(), IscsiName::to_string),
            peer: Peer::Address(peer),
            event: HostEvent::Refused(Refused::NotProved(why)),
        });
    }

    /// Ends what there is of a nexus here. `None`: it is answered once that has drained.
    fn look_for(
        &mut self,
        now: Instant,
        from: ShardId,
        ask: Slot,
        wanted: &Wanted,
    ) -> Option<Found> {
        if !self.configured {
            // Volumes that this shard has a part in may not be here yet.
            return Some(Found::Busy);
        }
        if let Some((_, other)) = self.pending.iter_mut().find(|(slot, other)| {
            let is_asker = from == self.shard && *slot == ask;
            !is_asker && !other.is_off && other.wanted.nexus == wanted.nexus
        }) {
            if from > self.shard {
                return Some(Found::Busy);
            }
            other.is_off = true;
            let place = other.place;
            let lost = SessionEvent::Opened(Err(LoginStatus::SERVICE_UNAVAILABLE));
            self.events.push_back((place, lost));
        }
        let sessions = self.by_nexus.get(&wanted.nexus).cloned().unwrap_or_default();
        if sessions.is_empty() {
            return Some(Found::Nothing);
        }
        let joins = |session: &Session| session.tsih == wanted.tsih && session.cid != wanted.cid;
        let is_another = |slot: &Slot| {
            let session = self.sessions.get(*slot).expect("a nexus leads to sessions");
            !session.ends && joins(session)
        };
        if wanted.tsih != 0 && sessions.iter().any(is_another) {
            return Some(Found::Another);
        }
        if wanted.tsih != 0 && !sessions.iter().any(|slot| self.has_tsih(*slot, wanted.tsih)) {
            return Some(Found::Nothing);
        }
        sessions.iter().for_each(|slot| self.close(*slot, CloseReason::Reinstated));
        if planted("reinstated-before-it-drained") {
            return Some(Found::Ended);
        }
        let until = now + REINSTATEMENT_HOLD;
        self.waiters.push(Waiter { from, ask, nexus: wanted.nexus.clone(), until });
        None
    }

    fn has_tsih(&self, slot: Slot, tsih: u16) -> bool {
        self.sessions.get(slot).is_some_and(|session| session.tsih == tsih)
    }

    /// A session drained: who waits for its nexus is answered.
    pub(super) fn answer_waiters(&mut self) {
        for waiter in core::mem::take(&mut self.waiters) {
            match self.by_nexus.contains_key(&waiter.nexus) {
                true => self.waiters.push(waiter),
                false => self.answer(&waiter, Found::Ended),
            }
        }
    }

    /// Logins of other shards that waited too long are answered.
    pub(super) fn answer_late(&mut self, now: Instant) {
        for waiter in core::mem::take(&mut self.waiters) {
            match waiter.until <= now {
                true => self.answer(&waiter, Found::Busy),
                false => self.waiters.push(waiter),
            }
        }
    }

    fn answer(&mut self, waiter: &Waiter, found: Found) {
        let Waiter { from, ask, .. } = *waiter;
        if from == self.shard {
            self.conclude(ask, found);
        } else {
            self.messages.push_back((from, Message::NexusAnswer { ask, found }));
        }
    }

    /// Another shard wants to log a nexus in.
    pub(super) fn nexus_asked(&mut self, from: ShardId, ask: Slot, wanted: &Wanted) {
        if let Some(found) = self.look_for(self.now, from, ask, wanted) {
            self.messages.push_back((from, Message::NexusAnswer { ask, found }));
        }
    }

    /// A shard has answered a login that waits; the last one decides, and its connection hears it.
    pub(super) fn conclude(&mut self, ask: Slot, found: Found) {
        let Some(place) = self.pending.get(ask).map(|pending| pending.place) else { return };
        let is_off = self.pending.get(ask).is_some_and(|pending| pending.is_off);
        if let Some(opened) = self.count_answer(ask, found)
            && !is_off
        {
            self.events.push_back((place, SessionEvent::Opened(opened)));
        }
    }

    /// Counts an answer; with the last one, what becomes of the login.
    fn count_answer(&mut self, ask: Slot, found: Found) -> Option<Result<Opened, LoginStatus>> {
        let pending = self.pending.get_mut(ask).expect("a login waits for its answers");
        pending.left -= 1;
        pending.found = pending.found.max(found);
        if pending.left > 0 {
            return None;
        }
        let Pending { wanted, place, peer, found, is_off, .. } =
            self.pending.remove(ask).expect("it was just there");
        if is_off {
            return Some(Err(LoginStatus::SERVICE_UNAVAILABLE));
        }
        Some(match found {
            Found::Busy => Err(LoginStatus::SERVICE_UNAVAILABLE),
            Found::Another => Err(LoginStatus::TOO_MANY_CONNECTIONS),
            Found::Nothing if wanted.tsih != 0 => Err(LoginStatus::NO_SUCH_SESSION),
            Found::Nothing | Found::Ended => self.begin(wanted, place, peer),
        })
    }

    fn begin(
        &mut self,
        wanted: Wanted,
        place: Slot,
        peer: SocketAddr,
    ) -> Result<Opened, LoginStatus> {
        // It may have changed while it waited.
        self.may_open(&wanted.nexus, peer)?;
        let target = self.by_name[&wanted.nexus.target];
        let entry = self.entries.get(target).expect("names lead to targets");
        let masked = masked(&entry.target, &wanted.nexus.initiator);
        let tsih = match wanted.tsih {
            0 => self.next_tsih(),
            known => known,
        };
        let Wanted { nexus, cid, .. } = wanted;
        let registrant = self.applicant(&nexus).id;
        self.news.push_back(HostNews {
            host: nexus.initiator.to_string(),
            export: nexus.target.to_string(),
            peer: Peer::Address(peer),
            event: HostEvent::Connected,
        });
        self.lives += 1;
        let slot = self.sessions.insert(Session {
            registrant,
            life: u64::from(self.shard.0) << 48 | self.lives,
            holds: Vec::new(),
            undecided: 0,
            nexus: nexus.clone(),
            tsih,
            cid,
            peer,
            place,
            target,
            masked,
            mistaken: Vec::new(),
            ends: false,
            traffic: Traffic::default(),
        });
        self.by_nexus.entry(nexus).or_default().push(slot);
        Ok(Opened { handle: SessionHandle(slot), tsih })
    }

    /// A TSIH that no session of this shard's had for long; never 0.
    fn next_tsih(&mut self) -> u16 {
        let shards = u32::from(self.shards);
        let each = u32::from(u16::MAX) / shards;
        let number = self.sessions_made % each;
        self.sessions_made = self.sessions_made.wrapping_add(1);
        (number * shards + u32::from(self.shard.0) + 1) as u16
    }
}
