//! Reservations of SCSI in a run: who of those that work on the volume is shut out, what the oracle
//! is told of that, and whether somebody was served or refused who must not have been.
//!
//! From the answer to a change until the next one is asked for, whoever is shut out writes nothing
//! any more: what he has under way happened before that, or never ([`Oracle::fence`]). What PREEMPT
//! AND ABORT ended of a victim, and the target surely had when it was asked, never happens after
//! its answer. Who is refused must have been shut out, maybe, at some time between his question and
//! the answer. Units: virtual nanoseconds.
//!
//! [`Oracle::fence`]: testkit::oracle::Oracle::fence

pub(crate) mod history;
pub(crate) mod model;

use std::collections::BTreeMap;

use testkit::oracle::WriteId;

use crate::clients::client_of;
use crate::run::{MILLISECOND, Run};
use crate::setup::Setup;
use crate::writer::{Ids, Log, Write};
use history::History;
use model::Who;

/// A disk of ours that was refused a flush takes no writes until it is reopened, on any shard: so
/// long after it was let in again a client may still be refused.
const REOPENED: u64 = 500 * MILLISECOND;
/// Over AoE it hears of that only when all copies are surely dead.
const REOPENED_OVER_AOE: u64 = 5_000 * MILLISECOND;
/// What was answered before is heard within so long, where nothing goes wrong.
const ON_ITS_WAY: u64 = 1_000 * MILLISECOND;

/// Somebody who works on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// A shard of a client.
    Client(usize, usize),
    /// A raw host of NVMe.
    RawHost(usize),
    /// One of iSCSI.
    Initiator(usize),
}

/// What a run knows of reservations.
#[derive(Debug)]
pub(crate) struct Fences {
    pub(crate) history: History,
    /// Who surely writes nothing, and since when.
    since: BTreeMap<Party, u64>,
    /// Writes that a PREEMPT AND ABORT ends which is under way.
    there: Vec<Write>,
    /// Those that one ended; and when an answer that was on its way must have come, at most.
    ended: BTreeMap<WriteId, u64>,
}

impl Fences {
    pub(crate) fn new() -> Fences {
        let history = History::new();
        Fences { history, since: BTreeMap::new(), there: Vec::new(), ended: BTreeMap::new() }
    }
}

impl Setup {
    /// The initiator ports that may be registered: first those of who changes reservations, then
    /// the raw hosts', then those of clients.
    pub(crate) fn who(&self, party: Party) -> Option<Who> {
        let number = match party {
            Party::RawHost(_) => return None,
            Party::Initiator(index) => index,
            Party::Client(index, _) if !self.scsi_clients || self.is_aoe(index) => return None,
            Party::Client(index, shard) => {
                self.initiators + index * usize::from(self.client_shards) + shard
            }
        };
        Some(Who((self.fencer_ports + number) as u16))
    }

    /// The numbers of somebody's writes.
    fn ids(&self, party: Party) -> Ids {
        let shards = usize::from(self.client_shards);
        let visitors = self.clients * shards;
        let number = match party {
            Party::Client(index, shard) => index * shards + shard,
            Party::RawHost(index) => visitors + index,
            Party::Initiator(index) => visitors + self.raw_hosts + index,
        };
        Ids { first: number as u64 + 1, count: 1, step: self.writers() }
    }
}

impl Run {
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
    pub(crate) fn look_at_fences(&mut self) {
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
    pub(crate) fn victims_are_named(&mut self, victims: &[Who]) {
        let parties = self.parties();
        let is_victim =
            |party: &Party| self.setup.who(*party).is_some_and(|who| victims.contains(&who));
        let there = parties.into_iter().filter(is_victim).flat_map(|party| match party {
            Party::Initiator(index) => self.iscsi.raw_hosts[index].writes_there(),
            _ => Vec::new(),
        });
        let there = there.collect();
        if let Some(fences) = &mut self.fences {
            fences.there = there;
        }
    }

    /// It was answered: nothing of those reaches the media any more, whoever may write.
    pub(crate) fn victims_are_ended(&mut self) {
        let Some(fences) = &mut self.fences else { return };
        let now = self.world.now;
        for Write { id, first, count } in core::mem::take(&mut fences.there) {
            self.oracle.fence(now, id, first, count);
            // What had not all it needs was not done before.
            let owes = self.iscsi.raw_hosts.iter().any(|raw| raw.owes_data(id));
            fences.ended.insert(id, if owes { now } else { now + ON_ITS_WAY });
        }
    }

    /// The target is started again, with what was stored.
    pub(crate) fn fences_restart(&mut self) {
        let now = self.world.now;
        if let Some(fences) = &mut self.fences {
            fences.there.clear();
            fences.history.restart(now);
        }
        if let Some(fencer) = &mut self.iscsi.fencer {
            fencer.target_restarted();
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
                Log::Refused { .. } | Log::Told { .. } if is_strict => {
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
