//! Changes of reservations that hosts ask for, and who hears of those that were made.
//!
//! ```text
//!  session                     targets                      shard
//!     |---- change() ------------>|-- poll_reservation_change() -->|  all shards agree
//!     |<--- Changed --------------|<- handle_reservation_answer() -|
//!     |     Attention, EndTasks   |<- reservation_changed() -------|  before it is answered, on every shard
//! ```
//! A session has drained only when nothing that it proposed is undecided, so that no older change of
//! its initiator port is made once that has logged in again. What it has by RESERVE(6) is given up
//! with it, and with a reset ([`Part`](super::reset::Part)): on the shard that proposed it, so that
//! giving up comes behind having. What is given up and cannot be is tried again until it is. Spec:
//! SPC-4, 5.13; SPC-2, 7.21; RFC 7143, 4.2.7.1.

use core::fmt::Write as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use block::{Instant, Slot, VolumeId, planted};
use reservation::replica::Answer;
use reservation::{
    Applicant, Change, Consequences, Hold, NamedHosts, PathGroup, Registrant, Reservation, Verdict,
};
use scsi::AT_PORT;
use sha2::{Digest as _, Sha256};
use wire::iscsi::IscsiName;
use wire::scsi::ProtocolId;
use wire::scsi::persistent::TransportId;

use super::decisions::DecisionFor;
use super::{Nexus, SessionEvent, SessionHandle, Targets};
use crate::auth::Required;

/// How soon a hold is given up again that could not be.
const AGAIN: Duration = Duration::from_millis(100);

/// A hold that has to be given up and could not be.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) at: Instant,
    volume: VolumeId,
    change: Change,
}

impl Nexus {
    /// The initiator port as reservations know it: a digest of the names that make it one, since
    /// they have no fixed length.
    pub fn registrant(&self) -> Registrant {
        let mut digest = Sha256::new();
        let names =
            [self.initiator.as_str().as_bytes(), &self.isid, self.target.as_str().as_bytes()];
        for name in names {
            digest.update((name.len() as u32).to_be_bytes());
            digest.update(name);
        }
        // Before there were groups all listeners were the first, and registrants of then are stored.
        if self.group != PathGroup::DEFAULT {
            digest.update(self.group.number().to_be_bytes());
        }
        let mut port = [0; 16];
        port.copy_from_slice(&digest.finalize()[..16]);
        Registrant::ScsiPort(port)
    }

    /// The same with the name of the port, as its TransportID has it, and the target port where it is
    /// not the first.
    pub fn applicant(&self) -> Applicant {
        let TransportId { name, .. } = TransportId::iscsi(self.initiator.as_str(), self.isid);
        let mut name = String::from_utf8(name).expect("names are text");
        if self.group != PathGroup::DEFAULT {
            let _ = write!(name, "{AT_PORT}{:04x}", self.group.number());
        }
        Applicant { id: self.registrant(), name: Some(name.into()) }
    }

    /// Who comes by it where some hosts have a name: such a host, or else the initiator port.
    fn applicant_among(&self, named: &NamedHosts) -> Applicant {
        named.iscsi(self.initiator.as_str()).cloned().unwrap_or_else(|| self.applicant())
    }

    /// The initiator port that a TransportID names, at a port of the same target; `None` if it names
    /// none, or all of an initiator.
    pub fn other(&self, id: &TransportId, group: PathGroup) -> Option<Nexus> {
        if (id.protocol, id.format) != (ProtocolId::ISCSI, 1) {
            return None;
        }
        let (initiator, isid) = core::str::from_utf8(&id.name).ok()?.split_once(",i,0x")?;
        let is_number =
            (1..=12).contains(&isid.len()) && isid.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u64::from_str_radix(isid, 16).ok().filter(|_| is_number)?;
        let [_, _, isid @ ..] = number.to_be_bytes();
        let initiator = IscsiName::new(initiator).ok()?;
        Some(Nexus { initiator, isid, target: self.target.clone(), group })
    }
}

impl Targets {
    /// Who comes by a nexus: a host that the configuration names, or else its initiator port.
    pub fn applicant(&self, nexus: &Nexus) -> Applicant {
        nexus.applicant_among(&self.named)
    }

    /// Whose a session is, as reservations know it.
    pub fn registrant(&self, handle: SessionHandle) -> Option<Registrant> {
        Some(self.sessions.get(handle.0)?.registrant)
    }

    /// From now on these are the hosts that have a name, and what some of them prove that by: who a
    /// session's is is to be asked again.
    pub fn set_named_hosts(
        &mut self,
        named: Arc<NamedHosts>,
        proofs: BTreeMap<IscsiName, Required>,
    ) {
        (self.named, self.proofs) = (named, proofs);
        for (_, session) in self.sessions.iter_mut() {
            session.registrant = session.nexus.applicant_among(&self.named).id;
        }
    }

    /// A task of a session asks for a change; answered by [`SessionEvent::Changed`] with the number
    /// that is returned.
    pub fn change(&mut self, handle: SessionHandle, volume: VolumeId, change: Change) -> u64 {
        if let Some(session) = self.sessions.get_mut(handle.0)
            && let Change::Hold(_) = change
            && !session.holds.contains(&volume)
        {
            session.holds.push(volume);
        }
        self.propose(DecisionFor::Session { session: handle.0, is_task: true }, volume, change)
    }

    /// What the session has, or is to have, by RESERVE(6).
    pub fn hold(&self, handle: SessionHandle) -> Option<Hold> {
        let session = self.sessions.get(handle.0)?;
        Some(Hold { by: session.registrant, life: session.life })
    }

    pub(super) fn propose(&mut self, asker: DecisionFor, volume: VolumeId, change: Change) -> u64 {
        let is_owed = matches!(change, Change::EndHold(_) | Change::ResetHold)
            && !matches!(asker, DecisionFor::Session { is_task: true, .. });
        let owed = is_owed.then(|| (volume, change.clone()));
        let number = self.await_decision(asker, owed);
        self.changes.push_back((volume, number, change));
        number
    }

    /// A change that is to be agreed on: of this volume, by this number.
    #[inline]
    pub fn poll_reservation_change(&mut self) -> Option<(VolumeId, u64, Change)> {
        self.changes.pop_front()
    }

    /// A change was agreed on, or not.
    pub fn handle_reservation_answer(&mut self, number: u64, answer: Answer<Verdict, Reservation>) {
        let owed = self.decided(number, || scsi::status_of_change(&answer));
        if let Some((volume, change)) = owed
            && matches!(answer, Answer::Busy | Answer::NotStored)
        {
            self.owed.push(Owed { at: self.now + AGAIN, volume, change });
        }
    }

    /// A session ends: what it may have by RESERVE(6) it has no more.
    pub(super) fn give_up_holds(&mut self, slot: Slot) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let hold = Hold { by: session.registrant, life: session.life };
        for volume in core::mem::take(&mut session.holds) {
            let waiter = DecisionFor::Session { session: slot, is_task: false };
            self.propose(waiter, volume, Change::EndHold(hold));
        }
    }

    /// What could not be given up is tried again.
    pub(super) fn try_owed(&mut self, now: Instant) {
        let due: Vec<Owed> = self.owed.extract_if(.., |owed| owed.at <= now).collect();
        for Owed { volume, change, .. } in due {
            self.propose(DecisionFor::Nobody, volume, change);
        }
    }

    /// A reservation is another from now on: hosts are told, and tasks end that may not go on.
    pub fn reservation_changed(&mut self, volume: VolumeId, consequences: &Consequences) {
        let Consequences { told, ended } = consequences;
        for (_, session) in self.sessions.iter().filter(|(_, session)| !session.ends) {
            let mine = |who: &Registrant| *who == session.registrant;
            let told = told.iter().filter(|(who, _)| mine(who) && !planted("attention-is-lost"));
            let told = told.map(|(_, told)| *told);
            let senses: Vec<_> = told.map(scsi::told_as).collect();
            let is_ended = ended.iter().any(mine);
            if senses.is_empty() && !is_ended {
                continue;
            }
            let Some(entry) = self.entries.get(session.target) else { continue };
            let units = entry.units.iter().filter(|(_, unit)| unit.volume == volume);
            for lun in units.map(|(lun, _)| lun as u16) {
                if is_ended {
                    self.events.push_back((session.place, SessionEvent::EndTasks { lun }));
                }
                let told = senses.iter().filter(|_| !session.masked.contains(&lun));
                let told = told.map(|sense| SessionEvent::Attention(Some(lun), *sense));
                self.events.extend(told.map(|event| (session.place, event)));
            }
        }
    }
}
