//! Hosts that the configuration names: whoever comes by one of the identities of such a host is that
//! host to every reservation, by whatever protocol.
//!
//! In: the names of a host in the words of each protocol, from the configuration, in which no two
//! hosts have one in common. Out: who somebody is, asked when a session begins and again when the
//! configuration changed, for a station when its frame meets a reservation. Somebody who is not
//! here is known by what its protocol says of it. Not here: how somebody proves that a name is its
//! own.

use std::collections::BTreeMap;

use crate::change::{Applicant, Listed};
use crate::state::Registrant;

/// Who is whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedHosts {
    nvme: BTreeMap<Box<str>, Applicant>,
    iscsi: BTreeMap<Box<str>, Applicant>,
    stations: BTreeMap<[u8; 6], Applicant>,
}

impl NamedHosts {
    /// A host is known by this HOSTNQN.
    pub fn add_nvme(&mut self, nqn: &str, host: &Applicant) {
        self.nvme.insert(nqn.into(), host.clone());
    }

    /// A host is known by this initiator name.
    pub fn add_iscsi(&mut self, name: &str, host: &Applicant) {
        self.iscsi.insert(name.into(), host.clone());
    }

    /// A host is known by this MAC address.
    pub fn add_station(&mut self, mac: [u8; 6], host: &Applicant) {
        self.stations.insert(mac, host.clone());
    }

    /// The host of this HOSTNQN.
    pub fn nvme(&self, nqn: &str) -> Option<&Applicant> {
        self.nvme.get(nqn)
    }

    /// The host of this initiator name.
    pub fn iscsi(&self, name: &str) -> Option<&Applicant> {
        self.iscsi.get(name)
    }

    /// Who a station is.
    pub fn station(&self, mac: [u8; 6]) -> Registrant {
        self.stations.get(&mac).map_or(Registrant::Mac(mac), |host| host.id)
    }

    /// A station as a list of AoE names it.
    pub fn listed(&self, mac: [u8; 6]) -> Listed {
        Listed { mac, host: self.stations.get(&mac).cloned() }
    }
}
