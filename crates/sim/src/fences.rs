//! Reservations in a run, which hosts of iSCSI and NVMe change: who of those that work on the volume is
//! shut out, what the oracle is told of that, and whether somebody was served or refused who must not
//! have been.
//!
//! From the answer to a change until the next one is asked for, whoever is shut out writes nothing
//! any more: what he has under way happened before that, or never ([`Oracle::fence`]). What PREEMPT
//! AND ABORT ended of a victim, and the target surely had when it was asked, never happens after
//! its answer. Who is refused must have been shut out, maybe, at some time between his question and
//! the answer. Units: virtual nanoseconds.
//!
//! [`Oracle::fence`]: testkit::oracle::Oracle::fence

pub mod fencer;
pub(crate) mod history;
pub(crate) mod model;
pub(crate) mod nodes;
mod who;

use std::collections::BTreeMap;

use reservation::{Applicant, Registrant};
use shard::{NamedHosts, Order};
use testkit::oracle::WriteId;

use crate::clients::client_of;
use crate::run::{MILLISECOND, Run, TARGET};
use crate::writer::{Log, Write};
use crate::{over_iscsi, over_nvme};
use fencer::{Fencer, News};
use history::History;
use model::Who;
use nodes::NAMED_ID;
pub(crate) use who::{Party, fencer_of};

/// A disk of ours that was refused a flush takes no writes until it is reopened, on any shard: so
/// long after it was let in again a client may still be refused.
const REOPENED: u64 = 500 * MILLISECOND;
/// Over AoE it hears of that only when all copies are surely dead.
const REOPENED_OVER_AOE: u64 = 5_000 * MILLISECOND;
/// What was answered before is heard within so long, where nothing goes wrong.
const ON_ITS_WAY: u64 = 1_000 * MILLISECOND;

/// How late data are where another host may end what they belong to: longer than that takes.
pub(crate) const FENCED_LATE: u64 = 500 * MILLISECOND;

/// What a run knows of reservations.
#[derive(Debug)]
pub(crate) struct Fences {
    history: History,
    /// Who changes them.
    pub(crate) fencer: Fencer,
    /// Who surely writes nothing, and since when.
    since: BTreeMap<Party, u64>,
    /// Writes that a PREEMPT AND ABORT ends which is under way.
    there: Vec<Write>,
    /// Those that one ended; and when an answer that was on its way must have come, at most.
    ended: BTreeMap<WriteId, u64>,
}

impl Fences {
    pub(crate) fn new(fencer: Fencer) -> Fences {
        Fences {
            history: History::new(),
            fencer,
            since: BTreeMap::new(),
            there: Vec::new(),
            ended: BTreeMap::new(),
        }
    }
}

impl Run {
    /// Lets whoever changes reservations do what is theirs to do.
    pub(crate) fn drive_fencer(&mut self) -> Result<(), String> {
        let Some(Fences { fencer, history, .. }) = &mut self.fences else { return Ok(()) };
        for news in fencer.drive(&mut self.world, TARGET, history)? {
            match news {
                News::Aborts(victims) => self.victims_are_named(&victims),
                News::Aborted => self.victims_are_ended(),
            }
        }
        self.look_at_fences();
        Ok(())
    }

    fn parties(&self) -> Vec<Party> {
        let clients = (0..self.clients.len()).flat_map(|index| {
            let shards = self.world.hosts[self.clients[index].host].nodes.len();
            (0..shards).map(move |shard| Party::Client(index, shard))
        });
        clients
            .chain((0..self.nvme.raw_hosts.len()).map(Party::RawHost))
            .chain((0..self.iscsi.raw_hosts.len()).map(Party::Initiator))
            .collect()
    }

    fn writes_under_way(&self, party: Party) -> Vec<Write> {
        match party {
            Party::Client(index, shard) => {
                client_of(&self.world, self.clients[index].host, shard).writes_under_way()
            }
            Party::RawHost(index) => self.nvme.raw_hosts[index].writes_under_way(),
            Party::Initiator(index) => self.iscsi.raw_hosts[index].writes_under_way(),
        }
    }

    /// What is in force may be another: fences fall, and others stand.
    fn look_at_fences(&mut self) {
        let Some(fences) = &mut self.fences else { return };
        if !core::mem::take(&mut fences.history.is_new) {
            return;
        }
        let now = self.world.now;
        for party in self.parties() {
            let who = self.setup.who(party);
            let Some(fences) = &mut self.fences else { return };
            let is_out = fences.history.shuts_out(who, true, now, now);
            if is_out == fences.since.contains_key(&party) {
                continue;
            }
            let ids = self.setup.ids(party);
            if !is_out {
                fences.since.remove(&party);
                let ended = &fences.ended;
                self.oracle.lift(|id| ids.contain(id) && !ended.contains_key(&id));
                continue;
            }
            fences.since.insert(party, now);
            self.did.counts.fences += 1;
            for Write { id, first, count } in self.writes_under_way(party) {
                self.oracle.fence(now, id, first, count);
            }
        }
    }

    /// PREEMPT AND ABORT of these is asked for: what the target shows that it has of theirs ends.
    fn victims_are_named(&mut self, victims: &[Who]) {
        let parties = self.parties();
        let is_victim =
            |party: &Party| self.setup.who(*party).is_some_and(|who| victims.contains(&who));
        let there = parties.into_iter().filter(is_victim).flat_map(|party| match party {
            Party::Initiator(index) => self.iscsi.raw_hosts[index].writes_there(),
            Party::RawHost(index) => self.nvme.raw_hosts[index].writes_there(),
            Party::Client(..) => Vec::new(),
        });
        let there = there.collect();
        if let Some(fences) = &mut self.fences {
            fences.there = there;
        }
    }

    /// It was answered: nothing of those reaches the media any more, whoever may write.
    fn victims_are_ended(&mut self) {
        let Some(fences) = &mut self.fences else { return };
        let now = self.world.now;
        for Write { id, first, count } in core::mem::take(&mut fences.there) {
            self.oracle.fence(now, id, first, count);
            // What had not all it needs was not done before.
            let owes = self.iscsi.raw_hosts.iter().any(|raw| raw.owes_data(id))
                || self.nvme.raw_hosts.iter().any(|raw| raw.owes_data(id));
            fences.ended.insert(id, if owes { now } else { now + ON_ITS_WAY });
        }
    }

    /// The target's configuration has a host with a name, in a world where there is one.
    pub(crate) fn name_hosts(&mut self) {
        if !self.setup.names_host {
            return;
        }
        let host = Applicant { id: Registrant::Host(NAMED_ID), name: Some("sim-host".into()) };
        let mut named = reservation::NamedHosts::default();
        named.add_nvme(over_nvme::fencing_identity(&self.setup, 0).0.as_str(), &host);
        over_iscsi::names_of_named().iter().for_each(|name| named.add_iscsi(name, &host));
        let hosts = NamedHosts { named, proofs: Vec::new() };
        self.order_all(|| Order::SetNamedHosts(Box::new(hosts.clone())));
    }

    /// The target is started again, with what was stored.
    pub(crate) fn fences_restart(&mut self) {
        let now = self.world.now;
        if let Some(fences) = &mut self.fences {
            fences.there.clear();
            fences.history.restart(now);
            fences.fencer.target_restarted();
        }
        self.look_at_fences();
    }

    /// Judges what somebody did, and tells the oracle: after this what is shut out is fenced.
    pub(crate) fn tell_of(&mut self, party: Party, log: Log) -> Result<(), String> {
        self.judge(party, &log)?;
        let begun = log.begun();
        log.tell(&mut self.oracle)?;
        let since = self.fences.as_ref().and_then(|fences| fences.since.get(&party));
        if let (Some(since), Some(Write { id, first, count })) = (since, begun) {
            self.oracle.fence(*since, id, first, count);
        }
        Ok(())
    }

    /// All who share a disk with somebody.
    fn shards_of(&self, party: Party) -> Vec<Party> {
        match party {
            Party::Client(index, _) => {
                let shards = 0..usize::from(self.setup.client_shards);
                shards.map(|shard| Party::Client(index, shard)).collect()
            }
            party => vec![party],
        }
    }

    /// Whether tasks of a client may have been ended by now, without a word.
    pub(crate) fn may_be_ended(&self, client: usize) -> bool {
        let Some(fences) = &self.fences else { return false };
        let now = self.world.now;
        let may = |who| fences.history.may_be_ended(who, now);
        let shards = self.shards_of(Party::Client(client, 0)).into_iter();
        shards.filter_map(|party| self.setup.who(party)).any(may)
    }

    /// Whether somebody was served although he was shut out, or refused or told for no reason.
    fn judge(&self, party: Party, log: &Log) -> Result<(), String> {
        let is_strict = self.setup.is_strict();
        let Some(fences) = &self.fences else {
            return match log {
                Log::Refused { .. } | Log::Told { .. } | Log::Vanished { .. } if is_strict => {
                    Err(format!("{party:?}: {log:?}, and nobody reserves"))
                }
                _ => Ok(()),
            };
        };
        let who = self.setup.who(party);
        let history = &fences.history;
        let is_ended = || matches!(party, Party::Client(index, _) if self.may_be_ended(index));
        let is_wrong = match *log {
            Log::Read { start, end, .. } | Log::Swapped { start, end, .. } => {
                history.shuts_out(who, false, start, end)
            }
            Log::Changed { start, end } => history.shuts_out(who, true, start, end),
            Log::End { at, write, done: true, .. } => {
                fences.ended.get(&write.id).is_some_and(|ended| is_strict && at > *ended)
            }
            // Flushes fail for other reasons, too, where more goes wrong.
            Log::Refused { is_after: true, .. } if !is_strict || is_ended() => false,
            Log::Refused { start, end, is_after: true, .. } => {
                let is_aoe = matches!(party, Party::Client(index, _) if self.setup.is_aoe(index));
                let reopened = if is_aoe { REOPENED_OVER_AOE } else { REOPENED };
                let start = start.saturating_sub(reopened);
                let may = |who| history.may_shut_out(who, true, start, end);
                !self.shards_of(party).into_iter().any(|party| may(self.setup.who(party)))
            }
            Log::Refused { start, end, changes, .. } => {
                !history.may_shut_out(who, changes, start, end)
            }
            Log::Told { at, code } => !who.is_some_and(|who| history.may_be_told(who, code, at)),
            Log::Vanished { at } => !who.is_some_and(|who| history.may_be_ended(who, at)),
            _ => false,
        };
        match is_wrong {
            true => Err(format!("{party:?}, of whom {:?} holds: {log:?}", history.worlds())),
            false => Ok(()),
        }
    }
}
