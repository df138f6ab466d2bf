//! Who is who to reservations: the parties that work on the volume and the nodes of the fencer, as
//! registrants.
//!
//! ```text
//!   0 ports of the fencer | its hosts of NVMe | raw hosts of iSCSI | shards of clients over iSCSI
//! ```
//! A host of NVMe is a registrant through all its controllers, so raw hosts and clients of NVMe are who
//! they are by a node of the fencer that has their HOSTID. A host that the configuration names is one,
//! whichever protocol it comes by.

use std::rc::Rc;

use block::Random;

use super::fencer::Fencer;
use super::model::Who;
use super::nodes::{Names, Node};
use crate::run::MILLISECOND;
use crate::setup::Setup;
use crate::writer::Ids;
use crate::{over_iscsi, over_nvme};

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

impl Setup {
    /// Who somebody is; nobody, if he can never be registered.
    pub(crate) fn who(&self, party: Party) -> Option<Who> {
        match party {
            Party::RawHost(index) => self.who_of_host(index),
            Party::Initiator(0) if self.names_host => Some(Who::NAMED),
            Party::Initiator(index) => Some(self.behind_fencers(index)),
            Party::Client(index, _) if self.is_aoe(index) => None,
            Party::Client(index, shard) if self.scsi_clients => {
                let shards = usize::from(self.client_shards);
                Some(self.behind_fencers(self.initiators + index * shards + shard))
            }
            Party::Client(index, _) => self.who_of_host(self.raw_hosts + index),
        }
    }

    /// The port of a fencer, of this number. Two are one initiator, which may have a name.
    pub(crate) fn who_of_port(&self, index: usize) -> Who {
        if self.names_host && index < 2 { Who::NAMED } else { Who(index as u16) }
    }

    /// The host of NVMe of this number, if a fencer asks by it, too: raw hosts come first, then clients,
    /// then hosts that do nothing else.
    pub(crate) fn who_of_host(&self, index: usize) -> Option<Who> {
        let who = match index {
            0 if self.names_host => Who::NAMED,
            _ => Who((self.fencer_ports + index) as u16),
        };
        (index < self.fencer_hosts).then_some(who)
    }

    fn behind_fencers(&self, number: usize) -> Who {
        Who((self.fencer_ports + self.fencer_hosts + number) as u16)
    }

    /// The numbers of somebody's writes.
    pub(super) fn ids(&self, party: Party) -> Ids {
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

/// Who changes reservations, if anybody does.
pub(crate) fn fencer_of(random: &mut Random, setup: &Setup) -> Option<Fencer> {
    if !setup.has_fencers() {
        return None;
    }
    let mut random = random.fork();
    let hosts = over_nvme::identities(setup).into_iter();
    let names: Names = Rc::new(hosts.chain(over_iscsi::identities(setup)).collect());
    let mut nodes: Vec<(Who, Box<dyn Node>)> = Vec::new();
    for index in 0..setup.fencer_ports {
        let node = over_iscsi::fencing_port(&mut random, setup, &names, index);
        nodes.push((setup.who_of_port(index), node));
    }
    for index in 0..setup.fencer_hosts {
        let node = over_nvme::fencing_host(&mut random, setup, &names, index);
        nodes.extend(setup.who_of_host(index).map(|who| (who, node)));
    }
    Some(Fencer::new(random, setup.fence_ms * MILLISECOND, &names, nodes))
}
