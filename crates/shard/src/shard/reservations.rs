//! Reservations: who may use which volume at present, whatever serves it.
//!
//! A volume has its reservation from the order that adds it, as it was stored. A change is
//! [proposed](reservation::replica) by a protocol in a host's name, or ordered; proposals leave as
//! mail for the volume's owner, the value goes to the control thread to be stored ([`News::Store`],
//! [`Mail::Stored`]), then to all shards, and then whoever proposed it is answered.
//!
//! Protocols are handed what is in force with every call, and ask it for each command when it
//! comes, and again when one that waited for data, memory or another starts. So a command that is
//! not below is of no concern when a reservation is installed, but to its protocol if the change
//! ended it: that hears what the change did to whom, before anything else happens. Of those that
//! are below, each is awaited whose protocol names somebody who may not have it any more, or whose
//! commands the change ended. Nothing is asked or counted for a command of a volume that nobody
//! holds.

use block::{Instant, Memory, ShardId, Slot, Ticket, VolumeId, planted};
use contract::Effect;
use reservation::replica::{self, Outbox};
use reservation::{Access, Change, InForce, Registrant, Replicas, Reservation, Verdict};
use volume::Outstanding;

use super::Shard;
use super::proposers::{Proposer, Proposers};
use crate::machine;
use crate::mail::{Answer, Mail, News};
use crate::protocols::{StoreKey, StoredValue};

/// A shard's part of the reservations of all volumes.
#[derive(Debug)]
pub(super) struct Reservations {
    /// What the owner of each volume decides on.
    replicas: Replicas<Reservation>,
    pub(super) in_force: InForce,
    /// Installed while something that they forbid was below.
    draining: Vec<Draining>,
    /// Whose proposals are under way.
    proposers: Proposers,
}

/// A reservation that is installed, and not yet told to be in force.
#[derive(Debug)]
struct Draining {
    volume: VolumeId,
    version: u64,
    /// Commands that come back first, whatever they are: those of which the change said that they
    /// end, and none that the same host began later, or it could keep the change waiting for ever.
    ended: Vec<Ended>,
}

/// A command that a change ended, and that is below.
#[derive(Debug)]
struct Ended {
    ticket: Ticket,
    /// As [`Outstanding`] says.
    number: Option<u64>,
}

impl Ended {
    /// Whether this is it; one that waited is in flight since.
    fn is(&mut self, one: &Outstanding) -> bool {
        let is_it =
            self.ticket == one.ticket && self.number.is_none_or(|it| one.number == Some(it));
        if is_it {
            self.number = one.number;
        }
        is_it
    }
}

impl Reservations {
    pub(super) fn new(shard: ShardId, shards: u16) -> Reservations {
        Reservations {
            replicas: Replicas::new(shard, shards),
            in_force: InForce::default(),
            draining: Vec::new(),
            proposers: Proposers::default(),
        }
    }

    /// A volume is there, with what was stored of it.
    pub(super) fn add(&mut self, volume: VolumeId, stored: Reservation) {
        self.in_force.set(volume, stored.clone());
        self.replicas.add(volume.0, stored);
    }

    /// A volume is gone.
    pub(super) fn remove(&mut self, volume: VolumeId) {
        self.in_force.set(volume, Reservation::default());
        self.replicas.remove(volume.0);
        self.draining.retain(|other| other.volume != volume);
    }

    /// Proposes a change; its answer finds the proposer.
    pub(super) fn propose(&mut self, volume: VolumeId, by: Proposer, change: Change) {
        let number = self.proposers.add(by);
        self.replicas.propose(volume.0, number, change);
    }

    /// Frees a volume, if this shard decides about it. Returns whether it does: then the order is
    /// answered later.
    pub(super) fn clear(&mut self, volume: VolumeId, order: u64) -> bool {
        let decides = self.replicas.value(volume.0).is_some();
        if decides {
            let nobody = Change::ForceList { list: Vec::new() };
            self.propose(volume, Proposer::Order(order), nobody);
        }
        decides
    }

    pub(super) fn handle_mail(&mut self, from: ShardId, message: replica::Message<Reservation>) {
        self.replicas.handle_message(from, message);
    }

    pub(super) fn handle_stored(&mut self, volume: VolumeId, version: u64, stored: bool) {
        self.replicas.handle_stored(volume.0, version, stored);
    }

    /// What is in force, of volumes of which there is something to say.
    pub(super) fn report(&self) -> Vec<(VolumeId, Reservation)> {
        self.in_force.iter().map(|(volume, held)| (volume, held.clone())).collect()
    }

    /// Whether something is to be carried.
    #[inline]
    pub(super) fn needs_settle(&self) -> bool {
        !self.replicas.outbox.is_empty()
    }
}

impl Shard {
    /// The control thread stored a value, or could not.
    pub(super) fn handle_stored(&mut self, key: StoreKey, version: u64, stored: bool) {
        match key {
            StoreKey::Reservation(volume) => {
                self.reservations.handle_stored(volume, version, stored);
            }
            StoreKey::Paths => self.paths.handle_stored(version, stored),
            key => self.protocols.handle_stored(key, version, stored),
        }
    }

    /// Carries proposals, messages, values and answers, until nothing follows from it but that
    /// something is awaited.
    #[inline]
    pub(super) fn settle_reservations(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.reservations.draining.is_empty() {
            self.drain_reservations();
        }
        while self.reservations.needs_settle() {
            self.carry_reservations(now, memory);
        }
    }

    #[cold]
    fn carry_reservations(&mut self, now: Instant, memory: &mut dyn Memory) {
        let Outbox { messages, store, install, answers } =
            core::mem::take(&mut self.reservations.replicas.outbox);
        let mail = |(to, message)| Effect::Mail { to, mail: Mail::Reservation(message) };
        self.effects.extend(messages.into_iter().map(mail));
        for (volume, version, value) in store {
            let key = StoreKey::Reservation(VolumeId(volume));
            self.tell(News::Store { key, version, value: StoredValue::Reservation(value) });
        }
        for (volume, version, mut value) in install {
            // What was read before is told before.
            self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_reservation(context);
            });
            let volume = VolumeId(volume);
            let consequences = value.take_consequences();
            self.reservations.in_force.set(volume, value);
            self.protocols.reservation_changed(volume, &consequences);
            let ended = self.below_of(volume, &consequences.ended);
            self.reservations.draining.push(Draining { volume, version, ended });
        }
        for (number, answer) in answers {
            match self.reservations.proposers.take(number) {
                Proposer::Protocol(proposal) => {
                    self.protocols.handle_reservation_answer(proposal, answer);
                }
                Proposer::Order(number) => self.answer(number, order_answer(answer)),
            }
        }
        self.drain_reservations();
    }

    /// Tells owners that a reservation is in force here, once nothing is below that it forbids.
    fn drain_reservations(&mut self) {
        for mut draining in core::mem::take(&mut self.reservations.draining) {
            let Draining { volume, version, .. } = draining;
            match self.is_clear(&mut draining) || planted("reservation-in-force-early") {
                true => self.reservations.replicas.installed(volume.0, version),
                false => self.reservations.draining.push(draining),
            }
        }
    }

    /// What is outstanding of a volume in the name of these.
    fn below_of(&self, volume: VolumeId, ended: &[Registrant]) -> Vec<Ended> {
        if ended.is_empty() {
            return Vec::new();
        }
        let is_ended =
            |one: &Outstanding| self.registrant(one.ticket).is_some_and(|who| ended.contains(&who));
        let below = self.volumes.outstanding(volume).filter(is_ended);
        below.map(|Outstanding { ticket, number, .. }| Ended { ticket, number }).collect()
    }

    /// Whether all that is outstanding of a volume is what its reservation allows, and nothing of
    /// it was ended.
    fn is_clear(&self, draining: &mut Draining) -> bool {
        let Draining { volume, ended, .. } = draining;
        ended.retain_mut(|ended| self.volumes.outstanding(*volume).any(|one| ended.is(&one)));
        let is_allowed = |one: Outstanding| {
            let access = Access::to_data(one.changes_data);
            // What the process itself does is nobody's.
            let who = self.registrant(one.ticket);
            who.is_none_or(|_| self.reservations.in_force.allows(*volume, who, access))
        };
        ended.is_empty() && self.volumes.outstanding(*volume).all(is_allowed)
    }

    /// In whose name a volume was asked.
    fn registrant(&self, ticket: Ticket) -> Option<Registrant> {
        let Ticket { machine, generation, .. } = ticket;
        match machine::kind(machine) {
            machine::SESSION => {
                let place = self.places.get(Slot { index: machine.0, generation })?;
                place.session.registrant()
            }
            machine::TARGET => self.protocols.registrant(ticket),
            _ => None,
        }
    }
}

/// What an order is answered that asked for a change.
fn order_answer(answer: replica::Answer<Verdict, Reservation>) -> Answer {
    let why = match answer {
        replica::Answer::Decided(Verdict::Done, _) => return Answer::Done,
        replica::Answer::Decided(..) => "others hold it",
        replica::Answer::NotStored => "the change could not be stored, and was not made",
        replica::Answer::Busy => "too many changes of it wait",
        replica::Answer::Gone => "the volume is gone",
    };
    Answer::Refused(why.to_owned())
}
