//! The reservation of a volume. One state for all protocols, so that an initiator that comes by one
//! wire is refused what was reserved by another.
//!
//! The model is that of SPC-4 and NVMe: *registrants* with keys, and at most one *reservation* of
//! one of six kinds, which one registrant or all of them hold. The reserve list of AoE is the kind
//! in which all registrants hold exclusive access; being on the list is being registered. Beside
//! them there is the *hold* of RESERVE(6), which one session has and loses with its end. Which
//! commands count as reading or writing is the protocol's to say; how it changes is
//! [`Change`](crate::Change)'s.
//!
//! A reservation is a [replica](crate::replica) on all shards. What of it outlives the process is
//! [`Reservation::lasting`], stored as a line of text ([`Display`](core::fmt::Display),
//! [`FromStr`](core::str::FromStr)). It is no lease: it stands until it is released. Units: keys
//! are numbers that hosts choose, never 0. Spec: AoEr11, "Reserve / Release command"; SPC-4, 5.13;
//! NVMe Base 2.0, "Reservations"; SPC-2, "RESERVE(6) command".

use std::sync::Arc;

use block::planted;

use crate::change::key_of_station;

mod text;

pub use text::TextError;

/// An initiator as its protocol names it: the only place here that knows protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registrant {
    /// A station, by its MAC address.
    Mac([u8; 6]),
    /// An NVMe host, by its host identifier.
    NvmeHost([u8; 16]),
    /// A SCSI initiator port as it is known to one target, by a digest of their names.
    ScsiPort([u8; 16]),
    /// A host that the configuration names, by whatever protocol it comes: a digest of its name.
    Host([u8; 16]),
}

/// What a hold lets whom do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The holder writes, all read.
    WriteExclusive,
    /// The holder reads and writes.
    ExclusiveAccess,
    /// Registrants write, all read; one of them holds.
    WriteExclusiveRegistrants,
    /// Registrants read and write; one of them holds.
    ExclusiveAccessRegistrants,
    /// Registrants write, all read; all of them hold.
    WriteExclusiveAll,
    /// Registrants read and write; all of them hold. AoE's.
    ExclusiveAccessAll,
}

impl Kind {
    const ALL: [(Kind, &'static str); 6] = [
        (Kind::WriteExclusive, "write-exclusive"),
        (Kind::ExclusiveAccess, "exclusive-access"),
        (Kind::WriteExclusiveRegistrants, "write-exclusive-registrants"),
        (Kind::ExclusiveAccessRegistrants, "exclusive-access-registrants"),
        (Kind::WriteExclusiveAll, "write-exclusive-all"),
        (Kind::ExclusiveAccessAll, "exclusive-access-all"),
    ];

    /// What it is called in text.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether all registrants hold it.
    pub fn is_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// Whether others than its holder have something of it.
    pub(crate) fn is_shared(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads data.
    Read,
    /// It changes data, or how the volume is set.
    Write,
    /// Neither: only the hold of RESERVE(6) forbids it.
    Other,
}

impl Access {
    /// That of a request for data, which it changes or not.
    #[inline]
    pub fn to_data(changes: bool) -> Access {
        if changes { Access::Write } else { Access::Read }
    }
}

/// Who is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who.
    pub id: Registrant,
    /// What it calls itself, where its identity does not say so: without spaces.
    pub name: Option<Arc<str>>,
    /// Its key, not 0.
    pub key: u64,
    /// The stations under which a list of AoE has it, where its identity is not a station's.
    pub stations: Vec<[u8; 6]>,
}

impl Registration {
    /// The stations under which a list of AoE has it.
    pub fn listed(&self) -> impl Iterator<Item = [u8; 6]> {
        let own = match self.id {
            Registrant::Mac(mac) => Some(mac),
            _ => None,
        };
        own.into_iter().chain(self.stations.iter().copied())
    }

    /// Whether nothing but a list of AoE made it a registrant: its key is a station's.
    pub(crate) fn is_by_list(&self) -> bool {
        matches!(self.id, Registrant::Mac(_))
            || self.listed().any(|mac| key_of_station(mac) == self.key)
    }
}

/// A session that has a volume by RESERVE(6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Whose it is.
    pub by: Registrant,
    /// Which life of its nexus: a hold ends with it, and not with the one before.
    pub life: u64,
}

/// What an initiator has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Somebody took its registration from it.
    RegistrationPreempted,
    /// Somebody ended the reservation, of which it had something, or made it another.
    ReservationReleased,
    /// Somebody ended all registrations and the reservation.
    ReservationPreempted,
}

/// What the last change did to others than the one who asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consequences {
    /// Whom to tell what.
    pub told: Vec<(Registrant, Told)>,
    /// Whose commands are ended: none of them reaches the media once the change is answered.
    pub ended: Vec<Registrant>,
}

/// The reservation of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Counts up as PRGENERATION and GEN do.
    pub(crate) generation: u64,
    /// In the order in which they came.
    pub(crate) registrants: Vec<Registration>,
    /// The reservation; its holder is a registrant, and is named where one alone holds.
    pub(crate) held: Option<(Kind, Option<Registrant>)>,
    /// Whether all registrants outlive the process (APTPL, PTPL).
    pub(crate) persists: bool,
    pub(crate) hold: Option<Hold>,
    pub(crate) consequences: Consequences,
}

impl Reservation {
    /// Whether nothing is held, so that everybody may do everything: the usual case.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.held.is_none() && self.hold.is_none()
    }

    /// Whether it says nothing that has to outlive the process.
    pub fn is_empty(&self) -> bool {
        self.registrants.is_empty() && self.is_free() && !self.persists
    }

    /// Counts up with every change of who is registered.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What it lets whom do, if it is held.
    pub fn kind(&self) -> Option<Kind> {
        self.held.map(|(kind, _)| kind)
    }

    /// Who has it by RESERVE(6).
    pub fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Whether all registrants outlive the process (APTPL, PTPL).
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// Who is registered.
    pub fn registrants(&self) -> &[Registration] {
        &self.registrants
    }

    /// Who holds it: one registrant, or all.
    pub fn holders(&self) -> impl Iterator<Item = &Registration> {
        self.registrants.iter().filter(|one| self.is_holder(one.id))
    }

    /// What the last change did to others than the one who asked for it.
    pub fn consequences(&self) -> &Consequences {
        &self.consequences
    }

    /// The same for whoever carries it out: it is told once, and kept nowhere.
    #[must_use]
    pub fn take_consequences(&mut self) -> Consequences {
        core::mem::take(&mut self.consequences)
    }

    /// Whether it holds the reservation, alone or with all registrants.
    pub fn is_holder(&self, who: Registrant) -> bool {
        match self.held {
            Some((_, Some(holder))) => holder == who,
            Some((_, None)) => self.is_registered(who),
            None => false,
        }
    }

    /// Whether it is registered.
    pub fn is_registered(&self, who: Registrant) -> bool {
        self.key_of(who).is_some()
    }

    /// The key under which it is registered.
    pub fn key_of(&self, who: Registrant) -> Option<u64> {
        self.registrants.iter().find(|one| one.id == who).map(|one| one.key)
    }

    /// The rule for a stranger, and for everybody else: whether the initiator may do this now.
    pub fn allows(&self, who: Option<Registrant>, access: Access) -> bool {
        if let Some(Hold { by, .. }) = self.hold {
            return who == Some(by);
        }
        let Some((kind, holder)) = self.held else { return true };
        let registered = || who.is_some_and(|who| self.is_registered(who));
        let holds = || who.is_some() && who == holder;
        let reads = match access {
            Access::Other => return true,
            access => access == Access::Read,
        };
        match kind {
            Kind::WriteExclusive => reads || holds(),
            Kind::ExclusiveAccess if planted("registrants-pass-as-holder") => registered(),
            Kind::ExclusiveAccess => holds(),
            Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll => reads || registered(),
            Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll => registered(),
        }
    }

    /// What of it is there again after a restart: AoE's registrants, all others if the last that
    /// registered said so, and what those hold.
    #[must_use]
    pub fn lasting(&self) -> Reservation {
        // AoE has no word for it, and its lists last.
        let persists = self.persists && !planted("aptpl-is-forgotten");
        let lasts = |one: &&Registration| persists || one.listed().next().is_some();
        let registrants: Vec<_> = self.registrants.iter().filter(lasts).cloned().collect();
        let is_there = |id| registrants.iter().any(|one| one.id == id);
        let held = self.held.filter(|(_, holder)| match holder {
            Some(holder) => is_there(*holder),
            None => !registrants.is_empty(),
        });
        Reservation {
            generation: self.generation,
            registrants,
            held,
            persists: self.persists,
            hold: None,
            consequences: Consequences::default(),
        }
    }
}

#[cfg(test)]
mod tests;
