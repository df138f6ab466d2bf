//! Changes of a reservation, and what becomes of them: the one place that judges, for all
//! protocols.
//!
//! Where SPC-4 and NVMe say the same of a command, there is one change for both; where they differ,
//! the protocol says what it means ([`Guard`]). Choices that they leave: whoever preempts by its own
//! key stays registered; registrants of other protocols stay when a list of AoE is set, and share in
//! what it holds, while force takes their registrations; nobody is registered under the key 0; a
//! change that the hold of RESERVE(6) meets is a conflict, but for force. Errors: a [`Verdict`].
//! Spec: SPC-4, 5.13; NVMe Base 2.0, "Reservations"; SPC-2, 7.21 and 7.22.

use std::sync::Arc;

use block::planted;

use crate::replica::Value;
use crate::state::{Consequences, Hold, Kind, Registrant, Registration, Reservation, Told};

/// Registrants of a volume at most: who comes later finds no room.
pub const REGISTRANTS_MAX: usize = 256;

/// Who is to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applicant {
    /// Who.
    pub id: Registrant,
    /// What it calls itself, where its identity does not say so: without spaces.
    pub name: Option<Arc<str>>,
}

/// A station that a list of AoE names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The host that it is of, where the configuration says so.
    pub host: Option<Applicant>,
}

impl From<[u8; 6]> for Listed {
    fn from(mac: [u8; 6]) -> Listed {
        Listed { mac, host: None }
    }
}

impl From<Registrant> for Applicant {
    fn from(id: Registrant) -> Applicant {
        Applicant { id, name: None }
    }
}

/// On what condition somebody is registered, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// This is its key now; 0: it is not registered. SCSI's.
    Is(u64),
    /// Whatever its key is, and whether it has one or not.
    Any,
    /// It is not registered, or under the same key as is asked. NVMe's, of who registers.
    New,
    /// It is registered, under this key if one is said. NVMe's, of who does not register anew.
    Registered(Option<u64>),
}

/// A change of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Let these, and nobody else, use the volume; none of them releases it. Refused if others hold
    /// it. AoE's.
    SetList {
        /// Who asks.
        by: Registrant,
        /// Whom to list.
        list: Vec<Listed>,
    },
    /// The same, whoever holds it.
    ForceList {
        /// Whom to list.
        list: Vec<Listed>,
    },
    /// Be registered, under another key, or no more.
    Register {
        /// Who asks.
        by: Applicant,
        /// On what condition.
        guard: Guard,
        /// The key from now on; 0: none.
        key: u64,
        /// Who is registered under the same key beside (SPEC_I_PT).
        also: Vec<Applicant>,
        /// The same host by other ports of the target: it is registered there, or no more, whatever it
        /// was (ALL_TG_PT).
        ports: Vec<Applicant>,
        /// Whether all registrants outlive the process, if that is said.
        persists: Option<bool>,
    },
    /// Hold the volume.
    Reserve {
        /// Who asks.
        by: Registrant,
        /// Its key.
        key: u64,
        /// What others may.
        kind: Kind,
    },
    /// Hold it no more.
    Release {
        /// Who asks.
        by: Registrant,
        /// Its key.
        key: u64,
        /// What is held.
        kind: Kind,
    },
    /// End all registrations and what is held.
    Clear {
        /// Who asks.
        by: Registrant,
        /// Its key.
        key: u64,
    },
    /// End the registrations under a key, and take over what one of them held.
    Preempt {
        /// Who asks.
        by: Registrant,
        /// Its key.
        key: u64,
        /// The key of those; 0: all others, where all registrants hold.
        victims: u64,
        /// What others may, if it is taken over.
        kind: Kind,
        /// Whether their commands are ended.
        abort: bool,
    },
    /// Let another hold it, who is registered with that.
    Move {
        /// Who asks, and holds it.
        by: Registrant,
        /// Its key.
        key: u64,
        /// Who is to hold it.
        to: Applicant,
        /// The key of that one.
        to_key: u64,
        /// Whether who asks is registered no more.
        unregister: bool,
        /// Whether all registrants outlive the process.
        persists: bool,
    },
    /// Have the volume for a session (RESERVE(6)).
    Hold(Hold),
    /// Have it no more (RELEASE(6), or the session is gone); what another life holds stays.
    EndHold(Hold),
    /// Nobody has it for a session any more (a reset).
    ResetHold,
    /// From now on all registrants outlive the process, or not. NVMe's, of whoever asks.
    Persist(bool),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as asked.
    Done,
    /// Others hold it, or it is another's key.
    Conflict,
    /// What is held is of another kind.
    OtherKind,
    /// What it names may not be named.
    Invalid,
    /// There are too many registrants.
    Full,
}

/// The value after a change, or `None` if it stays; or why not.
type Judged = Result<Option<Reservation>, Verdict>;

impl Value for Reservation {
    type Change = Change;
    type Answer = Verdict;

    fn apply(&self, change: &Change) -> (Option<Reservation>, Verdict) {
        match self.judge(change) {
            Ok(next) => (next, Verdict::Done),
            Err(verdict) => (None, verdict),
        }
    }
}

/// The key of a station: its MAC address behind two zero bytes.
pub fn key_of_station(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Reservation {
    fn judge(&self, change: &Change) -> Judged {
        match change {
            Change::ForceList { list } => self.listed(list, true),
            Change::Hold(hold) => self.have(*hold),
            Change::EndHold(hold) => self.give_up(*hold),
            Change::ResetHold => Ok(self.hold.map(|_| self.without_hold())),
            _ if self.hold.is_some() => Err(Verdict::Conflict),
            Change::Persist(persists) => Ok((*persists != self.persists)
                .then(|| Reservation { persists: *persists, ..self.next() })),
            Change::SetList { by, list } => self.set_list(*by, list),
            Change::Register { by, guard, key, also, ports, persists } => {
                self.register(by, *guard, *key, (also, ports), *persists)
            }
            Change::Reserve { by, key, kind } => self.reserve(*by, *key, *kind),
            Change::Release { by, key, kind } => self.release(*by, *key, *kind),
            Change::Clear { by, key } => self.clear(*by, *key),
            Change::Preempt { by, key, victims, kind, abort } => {
                self.preempt((*by, *key), *victims, *kind, *abort)
            }
            Change::Move { by, key, to, to_key, unregister, persists } => {
                self.hand_over((*by, *key), (to, *to_key), *unregister, *persists)
            }
        }
    }

    /// What follows, before anything of it is another.
    fn next(&self) -> Reservation {
        Reservation { consequences: Consequences::default(), ..self.clone() }
    }

    /// The same with one more change of who is registered.
    fn counted(&self) -> Reservation {
        Reservation { generation: self.generation + 1, ..self.next() }
    }

    fn check_key(&self, who: Registrant, key: u64) -> Result<(), Verdict> {
        match self.key_of(who) == Some(key) {
            true => Ok(()),
            false => Err(Verdict::Conflict),
        }
    }

    fn set_list(&self, by: Registrant, list: &[Listed]) -> Judged {
        let next = self.listed(list, false)?;
        let is_listed = self.kind() == Some(Kind::ExclusiveAccessAll) && self.is_registered(by);
        // Who asks again after its answer was lost is answered as before.
        match next.is_none() || self.is_free() || is_listed {
            true => Ok(next),
            false => Err(Verdict::Conflict),
        }
    }

    /// What it is after a list was set, or `None` if it is that already.
    fn listed(&self, list: &[Listed], by_force: bool) -> Judged {
        let mut next = self.counted();
        next.hold = None;
        next.registrants.retain(|one| !by_force && !one.is_by_list());
        next.registrants.iter_mut().for_each(|one| one.stations.clear());
        list.iter().for_each(|one| next.list(one));
        next.held = (!list.is_empty()).then_some((Kind::ExclusiveAccessAll, None));
        if next.registrants.len() > REGISTRANTS_MAX {
            return Err(Verdict::Full);
        }
        let is_same =
            (&next.registrants, next.held, next.hold) == (&self.registrants, self.held, self.hold);
        if is_same {
            return Ok(None);
        }
        let is_released = self.held.is_some() && next.held.is_none();
        for one in &self.registrants {
            if !next.is_registered(one.id) {
                next.consequences.told.push((one.id, Told::RegistrationPreempted));
            } else if is_released {
                next.consequences.told.push((one.id, Told::ReservationReleased));
            }
        }
        Ok(Some(next))
    }

    /// A list of AoE names a station.
    fn list(&mut self, Listed { mac, host }: &Listed) {
        let Applicant { id, name } =
            host.clone().unwrap_or_else(|| Applicant::from(Registrant::Mac(*mac)));
        let at = self.registrants.iter().position(|one| one.id == id).unwrap_or_else(|| {
            let (key, stations) = (key_of_station(*mac), Vec::new());
            self.registrants.push(Registration { id, name, key, stations });
            self.registrants.len() - 1
        });
        let one = &mut self.registrants[at];
        if !one.listed().any(|listed| listed == *mac) {
            one.stations.push(*mac);
        }
    }

    fn register(
        &self,
        by: &Applicant,
        guard: Guard,
        key: u64,
        (also, ports): (&[Applicant], &[Applicant]),
        persists: Option<bool>,
    ) -> Judged {
        let present = self.key_of(by.id);
        // A host that has a name comes by several ports, and its software registers through each.
        let is_again = matches!(by.id, Registrant::Host(_)) && key != 0 && present == Some(key);
        let may = match guard {
            Guard::Is(said) => present.unwrap_or(0) == said || is_again,
            Guard::Any => true,
            Guard::New => present.is_none_or(|present| present == key),
            Guard::Registered(said) => {
                present.is_some_and(|present| said.is_none_or(|said| said == present))
            }
        };
        if !may {
            return Err(Verdict::Conflict);
        }
        if !also.is_empty() && (present.is_some() || key == 0) {
            return Err(Verdict::Invalid);
        }
        if also.iter().any(|one| self.is_registered(one.id)) {
            return Err(Verdict::Conflict);
        }
        let is_elsewhere = ports.iter().any(|one| self.is_registered(one.id));
        if key == 0 && present.is_none() && !is_elsewhere {
            return Ok(None);
        }
        let mut next = self.counted();
        next.persists = persists.unwrap_or(self.persists);
        match key {
            0 => [by].into_iter().chain(ports).for_each(|one| next.unregister(one.id)),
            _ => [by].into_iter().chain(ports).chain(also).for_each(|one| next.put(one, key)),
        }
        match next.registrants.len() > REGISTRANTS_MAX {
            true => Err(Verdict::Full),
            false => Ok(Some(next)),
        }
    }

    /// Registers somebody, or gives it another key.
    fn put(&mut self, applicant: &Applicant, key: u64) {
        let Applicant { id, name } = applicant.clone();
        match self.registrants.iter_mut().find(|one| one.id == id) {
            Some(one) => one.key = key,
            None => self.registrants.push(Registration { id, name, key, stations: Vec::new() }),
        }
    }

    /// Somebody leaves, and with it what it held alone, or as the last of all.
    fn unregister(&mut self, who: Registrant) {
        if !self.is_registered(who) {
            return;
        }
        self.registrants.retain(|one| one.id != who);
        let Some((kind, holder)) = self.held else { return };
        let is_over = match holder {
            Some(holder) => holder == who,
            None => self.registrants.is_empty(),
        };
        if is_over {
            self.held = None;
            if kind.is_shared() {
                self.tell_registrants(who, Told::ReservationReleased);
            }
        }
    }

    /// All registrants but one are told.
    fn tell_registrants(&mut self, but: Registrant, told: Told) {
        let others = self.registrants.iter().filter(|one| one.id != but);
        self.consequences.told.extend(others.map(|one| (one.id, told)));
    }

    fn reserve(&self, by: Registrant, key: u64, kind: Kind) -> Judged {
        self.check_key(by, key)?;
        match self.kind() {
            None => {
                let holder = (!kind.is_all()).then_some(by);
                Ok(Some(Reservation { held: Some((kind, holder)), ..self.next() }))
            }
            Some(held) if held == kind && self.is_holder(by) => Ok(None),
            Some(_) => Err(Verdict::Conflict),
        }
    }

    fn release(&self, by: Registrant, key: u64, kind: Kind) -> Judged {
        self.check_key(by, key)?;
        let Some(held) = self.kind().filter(|_| self.is_holder(by)) else { return Ok(None) };
        if held != kind {
            return Err(Verdict::OtherKind);
        }
        let mut next = Reservation { held: None, ..self.next() };
        if kind.is_shared() {
            next.tell_registrants(by, Told::ReservationReleased);
        }
        Ok(Some(next))
    }

    fn clear(&self, by: Registrant, key: u64) -> Judged {
        self.check_key(by, key)?;
        let mut next = self.counted();
        next.tell_registrants(by, Told::ReservationPreempted);
        (next.registrants, next.held) = (Vec::new(), None);
        Ok(Some(next))
    }

    fn preempt(
        &self,
        (by, key): (Registrant, u64),
        victims: u64,
        kind: Kind,
        abort: bool,
    ) -> Judged {
        self.check_key(by, key)?;
        let takes_over = match self.held {
            None => false,
            Some((_, Some(holder))) => self.key_of(holder) == Some(victims),
            Some((_, None)) => victims == 0,
        };
        if victims == 0 && !takes_over {
            return Err(Verdict::Invalid);
        }
        let is_meant = |one: &Registration| victims == 0 || one.key == victims;
        if !self.registrants.iter().any(is_meant) {
            return Err(Verdict::Conflict);
        }
        let mut next = self.counted();
        let is_victim = |one: &Registration| one.id != by && is_meant(one);
        let (gone, left) = next.registrants.into_iter().partition(is_victim);
        let mut gone: Vec<Registration> = gone;
        next.registrants = left;
        if planted("preempt-ends-one-of-several") {
            next.registrants.extend(gone.drain(1.min(gone.len())..));
        }
        if takes_over {
            next.held = Some((kind, (!kind.is_all()).then_some(by)));
            if self.kind() != Some(kind) {
                next.tell_registrants(by, Told::ReservationReleased);
            }
        }
        let told = gone.iter().map(|one| (one.id, Told::RegistrationPreempted));
        next.consequences.told.extend(told);
        if abort && !planted("preempt-leaves-commands") {
            next.consequences.ended.extend(gone.iter().map(|one| one.id));
        }
        Ok(Some(next))
    }

    fn hand_over(
        &self,
        (by, key): (Registrant, u64),
        (to, to_key): (&Applicant, u64),
        unregister: bool,
        persists: bool,
    ) -> Judged {
        self.check_key(by, key)?;
        let Some((kind, Some(holder))) = self.held else { return Err(Verdict::Conflict) };
        if holder != by {
            return Err(Verdict::Conflict);
        }
        if to_key == 0 || to.id == by {
            return Err(Verdict::Invalid);
        }
        let mut next = self.counted();
        next.put(to, to_key);
        next.held = Some((kind, Some(to.id)));
        next.persists = persists;
        if unregister {
            next.registrants.retain(|one| one.id != by);
        }
        match next.registrants.len() > REGISTRANTS_MAX {
            true => Err(Verdict::Full),
            false => Ok(Some(next)),
        }
    }

    fn have(&self, hold: Hold) -> Judged {
        if !self.registrants.is_empty() {
            return Err(Verdict::Conflict);
        }
        match self.hold {
            Some(other) if other.by != hold.by => Err(Verdict::Conflict),
            Some(other) if other == hold => Ok(None),
            _ => Ok(Some(Reservation { hold: Some(hold), ..self.next() })),
        }
    }

    fn give_up(&self, hold: Hold) -> Judged {
        match self.hold {
            // Whose session it is may have got a name meanwhile.
            Some(other) if other.life == hold.life => Ok(Some(self.without_hold())),
            None if !self.registrants.is_empty() => Err(Verdict::Conflict),
            _ => Ok(None),
        }
    }

    fn without_hold(&self) -> Reservation {
        Reservation { hold: None, ..self.next() }
    }
}

#[cfg(test)]
mod tests;
