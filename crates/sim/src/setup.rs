//! A world as it was drawn, before it begins: who is in it, how it behaves, and what goes wrong.
//! [`Setup::draw`] draws what all worlds have; a [`Scenario`](crate::Scenario) changes some of it.

use core::ops::{Index, IndexMut};

use block::Random;

use crate::client::Work;
use crate::disk::{Behaviour, SECTOR};
use crate::ethernet::{HOLD_MAX_MS, LinkFaults};
use crate::world::Timing;

/// A world, drawn.
#[derive(Clone, Debug)]
pub struct Setup {
    pub shards: u16,
    pub clients: usize,
    /// Disks of the target's volume; more than one make a stripe or a concatenation.
    pub disks: u32,
    /// Whether disks are put one after the other, and differ in size.
    pub concat: bool,
    /// Shards of each client: each with an association of its own.
    pub client_shards: u16,
    /// Hosts that look at the discovery log.
    pub watchers: usize,
    /// Bytes of a chunk of the stripe.
    pub chunk: u64,
    /// Bytes of each disk.
    pub disk_size: u64,
    pub block_size: u64,
    /// Pages of each shard's pool on the target.
    pub pages: u32,
    /// How the disks behave until the world heals.
    pub behaviour: Behaviour,
    pub timing: Timing,
    pub work: Work,
    /// I/O queues of each client.
    pub queues: u16,
    pub depth: u16,
    /// Whether the volume is exported twice: in two subsystems, at two addresses. Hosts are dealt
    /// out.
    pub twice: bool,
    /// Whether header and data digests are on.
    pub digests: bool,
    /// KATO of the clients, in milliseconds.
    pub keep_alive_ms: u64,
    /// Hosts that speak NVMe/TCP by themselves.
    pub raw_hosts: usize,
    /// Whether the lives of raw hosts end soon, in resets and losses.
    pub raw_resets: bool,
    /// Whether raw hosts have a KATO, that of the clients, and end in silence now and then.
    pub raw_keep_alive: bool,
    /// Whether raw hosts stop reading for a while now and then, and ask as much as they may.
    pub raw_deaf: bool,
    /// Whether raw hosts fill their queues to the last entry, use no more CIDs than a queue has
    /// entries, and stop reading for ever now and then.
    pub raw_greedy: bool,
    /// Sessions of each shard of a client that reaches the target's volume by iSCSI.
    pub sessions: u16,
    /// Whether clients reach the target's volume by iSCSI.
    pub scsi_clients: bool,
    /// Hosts that speak iSCSI by themselves.
    pub initiators: usize,
    /// Whether their lives end soon, in logouts, losses and logins of the same port.
    pub initiators_return: bool,
    /// Whether they ask as much as they may, and stop reading for ever now and then.
    pub initiators_greedy: bool,
    /// Initiator ports of somebody who changes reservations over iSCSI; none, if nobody does.
    pub fencer_ports: usize,
    /// Hosts of NVMe by which the same one changes them: raw hosts and clients, as far as there are any.
    pub fencer_hosts: usize,
    /// Whether the first of each is one host that the configuration names, and with it the first that
    /// speaks iSCSI by itself.
    pub names_host: bool,
    /// How long what is reserved stays so, at most, in milliseconds.
    pub fence_ms: u64,
    /// The chance, in thousandths, that the control thread cannot store something.
    pub not_stored: u64,
    /// Requests that each client makes, about.
    pub requests: u64,
    pub faults: Faults,
    /// For how long things go wrong, in virtual milliseconds.
    pub trouble_ms: u64,
    /// AoE, if there is any.
    pub lan: Option<Lan>,
}

/// AoE in a world: the target's volume at 7.0.
#[derive(Clone, Debug)]
pub struct Lan {
    /// Whether every second client is on NVMe/TCP all the same.
    pub mixed: bool,
    /// Whether the target answers what lies in a volatile cache, and says that it has one: its
    /// hosts have to flush.
    pub cached: bool,
    /// Whether all live on virtual links over those that are there.
    pub inside: bool,
    /// Whether a network of routers lies between the clients, which are on one LAN, and the target on
    /// another.
    pub routed: bool,
    /// Whether the target knows neither order nor copies, and carries out each frame as it comes.
    pub plain: bool,
    /// Links of each host, each on a LAN of its own.
    pub links: u32,
    /// The longest that a link is down, in milliseconds.
    pub link_down_ms: u64,
    /// MTUs that links may have.
    pub mtus: &'static [u32],
    /// The VLAN in which all is sent.
    pub vlan: Option<u16>,
    /// How the Ethernet behaves until the world heals.
    pub faults: LinkFaults,
    /// Requests that a client of AoE has under way, if not as many as others.
    pub depth: Option<usize>,
    /// Commands that a client has outstanding at most.
    pub window: u16,
    /// Commands that the export holds.
    pub buffers: u16,
    /// Clients that are started again rest until their frames are dead, and use their tags again;
    /// else they start at once, with others.
    pub same_tags: bool,
    /// A target that died is down for so long, in milliseconds.
    pub down_ms: u64,
    /// Whether there is a host whose tags fall together.
    pub plain_host: bool,
    /// Bytes of the config string that the target begins with.
    pub config: usize,
    /// Whether the station that means no good asks more at once than can be answered.
    pub floods: bool,
    /// Whether somebody changes config strings, masks and reservations.
    pub control: bool,
}

impl Lan {
    pub(crate) fn draw(random: &mut Random) -> Lan {
        const MTUS: [&[u32]; 4] = [&[1500], &[9000], &[1500, 9000], &[1500, 4200, 9000]];
        let faults = LinkFaults {
            lost: random.below(30),
            repeated: random.below(20),
            held: random.below(40),
            hold_ms: 1 + random.below(HOLD_MAX_MS),
            wire_us: 20 + random.below(500),
            reorders: random.chance(1, 2),
        };
        Lan {
            mixed: false,
            cached: false,
            inside: false,
            routed: false,
            plain: false,
            links: 1,
            link_down_ms: 3_000,
            mtus: MTUS[random.below(4) as usize],
            vlan: random.chance(1, 4).then_some(7),
            faults,
            depth: None,
            window: 2 << random.below(7),
            buffers: 2 << random.below(7),
            same_tags: false,
            down_ms: 0,
            plain_host: false,
            config: 0,
            floods: false,
            control: false,
        }
    }

    /// A target that dies forgets what it carried out. So it stays down until frames to it are
    /// dead, or one writer alone, who knows that, sees no copies but his own.
    pub(crate) fn survives_kills(&mut self, random: &mut Random, is_alone: bool) {
        if is_alone && random.chance(1, 2) {
            self.faults.repeated = 0;
        } else {
            self.down_ms = self.faults.hold_ms + 50 + random.below(1_000);
        }
    }
}

impl Setup {
    /// What a scenario starts from.
    pub(crate) fn draw(random: &mut Random) -> Setup {
        let disks = if random.chance(1, 2) { 1 } else { 2 + random.below(3) as u32 };
        Setup {
            shards: 1 + random.below(4) as u16,
            clients: if random.chance(1, 3) { 2 } else { 1 },
            disks,
            concat: random.chance(1, 3),
            client_shards: if random.chance(1, 4) { 2 + random.below(3) as u16 } else { 1 },
            watchers: 0,
            chunk: 4096 << random.below(4),
            disk_size: 256 << 10,
            block_size: if random.chance(1, 4) { 4096 } else { 512 },
            pages: 2 * block::limits::POOL_PAGES_MIN,
            behaviour: Behaviour {
                volatile: random.chance(1, 3),
                latency_us: 2_000,
                leases: random.chance(1, 2),
                ..Behaviour::default()
            },
            timing: Timing {
                network_us: 200 + random.below(5_000),
                mail_us: 1 + random.below(3_000),
                turn_us: 1 + random.below(200),
                segment_max: 64 << random.below(11),
                keep_us: 0,
            },
            work: Work {
                blocks: 0,
                unit: 1,
                hot: 8 << random.below(5),
                depth: 1 + random.below(24) as usize,
                request_max: 2 << random.below(8),
                interval_us: 0,
            },
            queues: 1 + random.below(4) as u16,
            depth: 2 << random.below(6),
            twice: false,
            digests: random.chance(1, 2),
            keep_alive_ms: 1_000 + random.below(4_000),
            raw_hosts: 0,
            raw_resets: false,
            raw_keep_alive: false,
            raw_deaf: false,
            raw_greedy: false,
            sessions: 1,
            scsi_clients: false,
            initiators: 0,
            initiators_return: false,
            initiators_greedy: false,
            fencer_ports: 0,
            fencer_hosts: 0,
            names_host: false,
            fence_ms: 0,
            not_stored: 0,
            requests: 40 + random.below(160),
            faults: Faults::default(),
            trouble_ms: 3_000 + random.below(6_000),
            lan: None,
        }
    }

    /// What follows from the rest.
    pub(crate) fn fit(&mut self) {
        // A request of the largest takes hundreds of segments, not thousands, whatever was drawn.
        let least = self.work.request_max * SECTOR as u64 / 256;
        self.timing.segment_max = self.timing.segment_max.max(least);
        // Enough to do for the time of trouble, and not more.
        let shards = u64::from(self.client_shards);
        self.work.interval_us = self.trouble_ms * 1_000 / self.requests * shards;
        self.work.unit = self.block_size / SECTOR as u64;
        if self.behaviour.leases {
            self.behaviour.volatile = false;
        }
    }

    /// Whether no request may run into its deadline: nothing is wrong that lasts longer.
    pub fn is_prompt(&self) -> bool {
        self.faults.are_only(&[Fault::Hush, Fault::Hostile])
            && !self.is_controlled()
            && self.behaviour.sticks == 0
    }

    /// Whether nothing goes wrong but what hosts do themselves: then no request may fail that was
    /// not asked to.
    pub fn is_strict(&self) -> bool {
        let Behaviour { read_fails, write_fails, flush_fails, sticks, .. } = self.behaviour;
        let disks_are_well = read_fails + write_fails + flush_fails + sticks == 0;
        self.faults.are_only(&[Fault::Garbage, Fault::Hostile])
            && disks_are_well
            && !self.is_controlled()
    }

    /// Whether a client is one of those that use the second export.
    pub(crate) fn uses_second(&self, client: usize) -> bool {
        let own = if self.lan.as_ref().is_some_and(|lan| lan.mixed) { client / 2 } else { client };
        self.twice && own % 2 == 1
    }

    /// How many write: their writes are numbered in turn. First the shards of clients, then raw
    /// hosts, then those of iSCSI, then the one of AoE.
    pub(crate) fn writers(&self) -> u64 {
        let clients = self.clients as u64 * u64::from(self.client_shards);
        let plain_host = self.lan.as_ref().is_some_and(|lan| lan.plain_host);
        clients + (self.raw_hosts + self.initiators) as u64 + u64::from(plain_host)
    }

    /// Whether anybody changes reservations of SCSI or NVMe.
    pub(crate) fn has_fencers(&self) -> bool {
        self.fencer_ports + self.fencer_hosts > 0
    }

    /// Whether not everything can be stored.
    pub(crate) fn may_not_store(&self) -> bool {
        self.not_stored > 0
    }

    /// Whether anybody speaks iSCSI.
    pub(crate) fn has_initiators(&self) -> bool {
        self.scsi_clients || self.initiators > 0 || self.fencer_ports > 0
    }

    /// Whether somebody shuts clients out.
    fn is_controlled(&self) -> bool {
        self.lan.as_ref().is_some_and(|lan| lan.control)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A connection is reset.
    Cut,
    /// A connection goes silent.
    Silence,
    /// A bit is flipped on the wire.
    Corrupt,
    /// The target's process is killed and started again.
    Kill,
    /// The target loses its power.
    Power,
    /// A client is killed and started again.
    KillClient,
    /// The volume grows while hosts are connected.
    Grow,
    /// The volume is removed and added again while hosts are connected.
    Replug,
    /// Disks that were failed for writes are reopened.
    Reopen,
    /// A peer that means no good connects.
    Garbage,
    /// One I/O connection of an association goes silent alone; not before half of this time is
    /// over.
    Hush,
    /// Hosts are not allowed any more, or again.
    Hosts,
    /// A subsystem comes or goes.
    Subsystems,
    /// An Ethernet link goes down for a while, or has another MTU.
    Link,
    /// A station that means no good sends frames.
    Hostile,
    /// Another volume takes the place of the volume, or gives it back.
    Swap,
    /// The target is stopped as a service is: it drains, and is started again.
    Stop,
    /// An export over AoE goes, and comes back after a while.
    Unexport,
    /// A client lets go of its remote disk, and asks for it again.
    Unimport,
    /// The listeners are in another state.
    Path,
}

impl Fault {
    /// All of them, in the order in which those that are due at once happen.
    #[rustfmt::skip]
    pub const ALL: [Fault; 20] = [
        Fault::Cut, Fault::Silence, Fault::Corrupt, Fault::Kill, Fault::Power, Fault::KillClient,
        Fault::Grow, Fault::Replug, Fault::Reopen, Fault::Garbage, Fault::Hush, Fault::Hosts,
        Fault::Subsystems, Fault::Link, Fault::Hostile, Fault::Swap,
        Fault::Stop, Fault::Unexport, Fault::Unimport, Fault::Path,
    ];
}

/// The longest time between two of each fault, in milliseconds; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults([u64; Fault::ALL.len()]);

impl Faults {
    /// Whether nothing goes wrong but these.
    pub fn are_only(&self, these: &[Fault]) -> bool {
        Fault::ALL.iter().all(|fault| self[*fault] == 0 || these.contains(fault))
    }
}

impl Index<Fault> for Faults {
    type Output = u64;

    fn index(&self, fault: Fault) -> &u64 {
        &self.0[fault as usize]
    }
}

impl IndexMut<Fault> for Faults {
    fn index_mut(&mut self, fault: Fault) -> &mut u64 {
        &mut self.0[fault as usize]
    }
}
