//! Scenarios: what kind of world a seed draws. Each is a small set of ranges; the seed fills in the
//! rest.

use block::Random;

use crate::client::Work;
use crate::disk::{Behaviour, SECTOR};
use crate::ethernet::{HOLD_MAX_MS, Weather};
use crate::world::Timing;

/// A kind of world.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    draw: fn(&mut Random, &mut Setup),
}

/// A world, drawn.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Shards of the target.
    pub shards: u16,
    /// Clients.
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
    /// Block size of the exported volume.
    pub block_size: u64,
    /// Pages of each shard's pool on the target.
    pub pages: u32,
    /// How the disks behave until the world heals.
    pub behaviour: Behaviour,
    /// How time passes.
    pub timing: Timing,
    /// How the clients work.
    pub work: Work,
    /// I/O queues of each client.
    pub queues: u16,
    /// Depth of each queue.
    pub depth: u16,
    /// Whether header and data digests are on.
    pub digests: bool,
    /// KATO of the clients, in milliseconds.
    pub keep_alive_ms: u64,
    /// Hosts that speak NVMe/TCP by themselves, and whether their lives end soon.
    pub raw_hosts: usize,
    /// Whether the lives of raw hosts end soon, in resets and losses.
    pub raw_resets: bool,
    /// Requests that each client makes, about.
    pub requests: u64,
    /// What goes wrong.
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
    /// Whether all live on virtual links over those that are there.
    pub inside: bool,
    /// Whether the target knows neither order nor copies, and carries out each frame as it comes.
    pub plain: bool,
    /// Links of each host, each on a LAN of its own.
    pub links: u32,
    /// MTUs that links may have.
    pub mtus: &'static [u32],
    /// The VLAN in which all is sent.
    pub vlan: Option<u16>,
    /// How the Ethernet behaves until the world heals.
    pub weather: Weather,
    /// Commands that a client has outstanding at most, and that the export holds.
    pub window: u16,
    /// Commands that the export holds.
    pub buffers: u16,
    /// Clients that are started again rest until their frames are dead, and use their tags again;
    /// else they start at once, with others.
    pub same_tags: bool,
    /// A target that died is down for so long, in milliseconds.
    pub down_ms: u64,
    /// Whether somebody changes config strings, masks and reservations.
    pub control: bool,
    /// The chance, in thousandths, that the control thread cannot store something.
    pub not_stored: u64,
}

impl Lan {
    fn draw(random: &mut Random) -> Lan {
        const MTUS: [&[u32]; 4] = [&[1500], &[9000], &[1500, 9000], &[1500, 4200, 9000]];
        let weather = Weather {
            lost: random.below(30),
            repeated: random.below(20),
            held: random.below(40),
            hold_ms: 1 + random.below(HOLD_MAX_MS),
            wire_us: 20 + random.below(500),
            reorders: random.chance(1, 2),
        };
        Lan {
            mixed: false,
            inside: false,
            plain: false,
            links: 1,
            mtus: MTUS[random.below(4) as usize],
            vlan: random.chance(1, 4).then_some(7),
            weather,
            window: 2 << random.below(7),
            buffers: 2 << random.below(7),
            same_tags: false,
            down_ms: 0,
            control: false,
            not_stored: 0,
        }
    }

    /// A target that dies forgets what it carried out. So it stays down until frames to it are
    /// dead, or one writer alone, who knows that, sees no copies but his own.
    fn survives_kills(&mut self, random: &mut Random, is_alone: bool) {
        if is_alone && random.chance(1, 2) {
            self.weather.repeated = 0;
        } else {
            self.down_ms = self.weather.hold_ms + 50 + random.below(1_000);
        }
    }
}

impl Setup {
    /// Whether no request may run into its deadline: nothing is wrong that lasts longer.
    pub fn is_prompt(&self) -> bool {
        let Faults { hush_ms, hostile_ms, .. } = self.faults;
        self.faults == Faults { hush_ms, hostile_ms, ..Faults::default() }
            && !self.is_controlled()
            && self.behaviour.sticks == 0
    }

    /// Whether nothing goes wrong but what hosts do themselves: then no request may fail that was
    /// not asked to.
    pub fn is_strict(&self) -> bool {
        let Faults { garbage_ms, hostile_ms, .. } = self.faults;
        let Behaviour { read_fails, write_fails, flush_fails, sticks, .. } = self.behaviour;
        let disks_are_well = read_fails + write_fails + flush_fails + sticks == 0;
        self.faults == Faults { garbage_ms, hostile_ms, ..Faults::default() }
            && disks_are_well
            && !self.is_controlled()
    }

    /// Whether somebody shuts clients out.
    fn is_controlled(&self) -> bool {
        self.lan.as_ref().is_some_and(|lan| lan.control)
    }
}

/// What goes wrong: the longest time between two of each, in milliseconds; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A connection is reset.
    pub cut_ms: u64,
    /// A connection goes silent.
    pub silence_ms: u64,
    /// One I/O connection of an association goes silent alone; not before half of this time is
    /// over.
    pub hush_ms: u64,
    /// A bit is flipped on the wire.
    pub corrupt_ms: u64,
    /// The target's process is killed and started again.
    pub kill_ms: u64,
    /// The target loses its power.
    pub power_ms: u64,
    /// A client is killed and started again.
    pub kill_client_ms: u64,
    /// The volume grows while hosts are connected.
    pub grow_ms: u64,
    /// The volume is removed and added again while hosts are connected.
    pub replug_ms: u64,
    /// Another volume takes the place of the volume, or gives it back.
    pub swap_ms: u64,
    /// Disks that were failed for writes are reopened.
    pub reopen_ms: u64,
    /// A peer that means no good connects.
    pub garbage_ms: u64,
    /// Hosts are not allowed any more, or again.
    pub hosts_ms: u64,
    /// A subsystem comes or goes.
    pub subsystems_ms: u64,
    /// An Ethernet link goes down for a while, or has another MTU.
    pub link_ms: u64,
    /// A station that means no good sends frames.
    pub hostile_ms: u64,
}

/// All scenarios; a seed picks one by its number.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "calm", about: "nothing goes wrong", draw: |_, _| {} },
    Scenario {
        name: "cuts",
        about: "connections are reset or go silent",
        draw: |random, setup| {
            setup.trouble_ms *= 3;
            setup.faults.cut_ms = 300 + random.below(3_000);
            setup.faults.silence_ms = if random.chance(1, 2) { 8_000 } else { 0 };
        },
    },
    Scenario {
        name: "silence",
        about: "one I/O connection goes silent while the others live, and no request waits for its deadline",
        draw: |random, setup| {
            setup.trouble_ms = 60_000;
            setup.requests += 100;
            setup.timing.segment_max = setup.timing.segment_max.max(1_024);
            setup.queues = 1 + random.below(4) as u16;
            setup.faults.hush_ms = 20_000 + random.below(40_000);
            setup.behaviour.latency_us = 2_000 << random.below(12);
        },
    },
    Scenario {
        name: "kills",
        about: "the target's process dies and comes back",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.faults.kill_ms = 2_000 + random.below(8_000);
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults.cut_ms = if random.chance(1, 2) { 4_000 } else { 0 };
            setup.raw_hosts = random.below(2) as usize;
        },
    },
    Scenario {
        name: "power",
        about: "the target loses its power: what was not flushed may be gone",
        draw: |random, setup| {
            setup.behaviour.volatile = true;
            setup.behaviour.leases = false;
            setup.trouble_ms *= 5;
            setup.faults.power_ms = 4_000 + random.below(10_000);
            setup.raw_hosts = random.below(2) as usize;
        },
    },
    Scenario {
        name: "clients",
        about: "clients die in mid-write and come back",
        draw: |random, setup| {
            setup.trouble_ms *= 2;
            setup.faults.kill_client_ms = 1_000 + random.below(5_000);
            setup.clients = 2;
        },
    },
    Scenario {
        name: "corruption",
        about: "bits flip on the wire, and digests notice",
        draw: |random, setup| {
            setup.digests = true;
            setup.trouble_ms *= 2;
            setup.faults.corrupt_ms = 50 + random.below(1_000);
        },
    },
    Scenario {
        name: "disks",
        about: "disks are slow and fail",
        draw: |random, setup| {
            setup.behaviour.volatile = random.chance(1, 2);
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 50_000;
            setup.behaviour.read_fails = 30;
            setup.behaviour.write_fails = 30;
            setup.behaviour.flush_fails = 100;
            setup.faults.reopen_ms = 1_000;
        },
    },
    Scenario {
        name: "flushes",
        about: "flushes and durable writes fail, and the power does: what a flush vouched for is there",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 2;
            setup.behaviour.volatile = true;
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 20_000 << random.below(4);
            setup.behaviour.write_fails = random.below(30);
            setup.behaviour.flush_fails = 100;
            setup.faults.power_ms = 2_000 + random.below(4_000);
            setup.faults.reopen_ms = 2_000 + random.below(4_000);
        },
    },
    Scenario {
        name: "lies",
        about: "disks lie about flushes, and lose power",
        draw: |random, setup| {
            setup.behaviour.volatile = true;
            setup.behaviour.lies = true;
            setup.behaviour.leases = false;
            setup.trouble_ms *= 4;
            setup.faults.power_ms = 4_000 + random.below(8_000);
        },
    },
    Scenario {
        name: "stuck",
        about: "disks never answer some requests",
        draw: |random, setup| {
            setup.behaviour.leases = false;
            setup.behaviour.sticks = 1 + random.below(5);
            setup.trouble_ms = 90_000;
        },
    },
    Scenario {
        name: "memory",
        about: "the memory budget is as small as it may be, and the work as large",
        draw: |random, setup| {
            setup.clients = 2;
            setup.pages = block::limits::POOL_PAGES_MIN;
            setup.disk_size = 4 << 20;
            setup.work.request_max = 2_048;
            setup.work.depth = 24;
            setup.queues = 1 + random.below(4) as u16;
            setup.timing.segment_max = 64 << 10;
            setup.requests = 10 + random.below(40);
        },
    },
    Scenario {
        name: "change",
        about: "the volume grows, goes, comes back, and has another one in its place, while hosts are connected",
        draw: |random, setup| {
            setup.faults.grow_ms = 300 + random.below(1_000);
            setup.faults.replug_ms = if random.chance(1, 2) { 3_000 } else { 0 };
            if random.chance(1, 2) {
                setup.trouble_ms *= 2;
                setup.raw_hosts = 1 + random.below(2) as usize;
                setup.faults.swap_ms = 500 + random.below(3_000);
            }
        },
    },
    Scenario {
        name: "fused",
        about: "raw hosts send compare-and-write pairs, halves of them and aborts, beside the clients",
        draw: |random, setup| {
            setup.clients = 1;
            setup.raw_hosts = 1 + random.below(3) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(4);
        },
    },
    Scenario {
        name: "resets",
        about: "raw hosts reset and shut down their controllers, and lose queues, with commands under way",
        draw: |random, setup| {
            setup.trouble_ms *= 2;
            setup.raw_hosts = 1 + random.below(2) as usize;
            setup.raw_resets = true;
            setup.behaviour.latency_us = 2_000 << random.below(6);
        },
    },
    Scenario {
        name: "garbage",
        about: "peers that mean no good connect beside the good ones",
        draw: |random, setup| {
            setup.raw_hosts = random.below(2) as usize;
            setup.faults.garbage_ms = 20 + random.below(300);
        },
    },
    Scenario {
        name: "everything",
        about: "all of it at once",
        draw: |random, setup| {
            setup.behaviour.volatile = random.chance(2, 3);
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 20_000;
            setup.behaviour.read_fails = 5;
            setup.behaviour.write_fails = 5;
            setup.behaviour.flush_fails = 20;
            setup.trouble_ms = 60_000;
            setup.raw_hosts = random.below(2) as usize;
            setup.raw_resets = random.chance(1, 2);
            setup.faults = Faults {
                cut_ms: 8_000,
                silence_ms: 20_000,
                hush_ms: 40_000,
                corrupt_ms: if setup.digests { 8_000 } else { 0 },
                kill_ms: 30_000,
                power_ms: 30_000,
                kill_client_ms: 30_000,
                grow_ms: 10_000,
                replug_ms: if random.chance(1, 3) { 30_000 } else { 0 },
                reopen_ms: 1_000,
                garbage_ms: if random.chance(1, 2) { 5_000 } else { 0 },
                hosts_ms: if random.chance(1, 4) { 20_000 } else { 0 },
                subsystems_ms: if random.chance(1, 4) { 20_000 } else { 0 },
                ..Faults::default()
            };
            setup.watchers = random.below(2) as usize;
        },
    },
    Scenario {
        name: "concat",
        about: "disks of different sizes one after the other, which grow, die and lose power",
        draw: |random, setup| {
            setup.disks = 2 + random.below(3) as u32;
            setup.concat = true;
            setup.disk_size = 64 << 10;
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults.grow_ms = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults.cut_ms = if random.chance(1, 3) { 4_000 } else { 0 };
            if random.chance(1, 2) {
                setup.behaviour.volatile = random.chance(1, 2);
                setup.behaviour.leases = false;
                setup.trouble_ms *= 3;
                setup.faults.power_ms = 4_000 + random.below(8_000);
            }
        },
    },
    Scenario {
        name: "shards",
        about: "clients of several shards, each with its own association: cuts, kills and power cuts below them",
        draw: |random, setup| {
            setup.client_shards = 2 + random.below(3) as u16;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.behaviour.volatile = random.chance(1, 2);
            setup.behaviour.leases = false;
            setup.trouble_ms *= 3;
            setup.faults.cut_ms = 500 + random.below(4_000);
            setup.faults.kill_ms = if random.chance(1, 2) { 8_000 } else { 0 };
            setup.faults.power_ms = if random.chance(1, 3) { 10_000 } else { 0 };
            setup.faults.kill_client_ms = if random.chance(1, 3) { 10_000 } else { 0 };
        },
    },
    Scenario {
        name: "discovery",
        about: "hosts look at the discovery log and wait for its events, while what is exported changes",
        draw: |random, setup| {
            setup.clients = 1;
            setup.watchers = 1 + random.below(3) as usize;
            setup.trouble_ms *= 2;
            setup.faults.subsystems_ms = 100 + random.below(1_000);
            setup.faults.hosts_ms = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults.cut_ms = if random.chance(1, 3) { 1_000 } else { 0 };
            setup.faults.kill_ms = if random.chance(1, 3) { 6_000 } else { 0 };
        },
    },
    Scenario {
        name: "access",
        about: "hosts are denied and allowed, subsystems go and come back, with requests under way",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 1 + random.below(3) as usize;
            setup.raw_hosts = random.below(2) as usize;
            setup.watchers = random.below(2) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults.hosts_ms = 1_000 + random.below(8_000);
            setup.faults.subsystems_ms = if random.chance(1, 2) { 10_000 } else { 0 };
            setup.faults.replug_ms = if random.chance(1, 4) { 10_000 } else { 0 };
        },
    },
    Scenario {
        name: "aoe",
        about: "disks over AoE: frames are lost, repeated, late and out of order, and no request fails",
        draw: |random, setup| {
            setup.trouble_ms *= 3;
            setup.clients = 1 + random.below(3) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults.hostile_ms = if random.chance(1, 3) { 20 + random.below(500) } else { 0 };
            setup.lan = Some(Lan::draw(random));
        },
    },
    Scenario {
        name: "aoe-calm",
        about: "disks over AoE where nothing goes wrong: nothing is sent twice",
        draw: |random, setup| {
            setup.behaviour.latency_us = 500;
            setup.timing.mail_us = 50;
            setup.lan = Some(Lan { weather: Weather::CALM, ..Lan::draw(random) });
        },
    },
    Scenario {
        name: "aoe-crash",
        about: "the target of AoE dies or loses its power while clients write: what was answered is there",
        draw: |random, setup| {
            setup.trouble_ms *= 5;
            setup.clients = 1 + random.below(2) as usize;
            setup.behaviour.volatile = random.chance(3, 4);
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            if random.chance(1, 4) {
                setup.behaviour.write_fails = 10;
                setup.behaviour.flush_fails = 20;
                setup.faults.reopen_ms = 1_000;
            }
            setup.faults.kill_ms = if random.chance(1, 2) { 8_000 } else { 0 };
            setup.faults.power_ms = 3_000 + random.below(8_000);
            let mut lan = Lan::draw(random);
            lan.survives_kills(random, setup.clients == 1 && setup.client_shards == 1);
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-restart",
        about: "clients of AoE die and come back with the same addresses, at once, or later with the same tags",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 1 + random.below(2) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(7);
            setup.faults.kill_client_ms = 500 + random.below(5_000);
            let mut lan = Lan::draw(random);
            lan.weather.held += 20;
            lan.same_tags = random.chance(1, 2);
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-links",
        about: "two links of AoE, which go down, come back, and have other MTUs; the volume grows",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults.link_ms = 200 + random.below(3_000);
            setup.faults.grow_ms = if random.chance(1, 3) { 2_000 } else { 0 };
            let mut lan = Lan::draw(random);
            lan.links = 1 + random.below(3) as u32;
            lan.mtus = &[1500, 4200, 9000];
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-plain",
        about: "a target of AoE that knows neither order nor copies: an initiator keeps its writes apart by itself",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            (setup.clients, setup.client_shards) = (1, 1);
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults.link_ms = if random.chance(1, 2) { 500 + random.below(3_000) } else { 0 };
            // Few sectors, which are written over and over.
            setup.requests *= 8;
            (setup.work.hot, setup.work.request_max) = (4 + random.below(8), 8);
            let mut lan = Lan::draw(random);
            lan.plain = true;
            lan.links = 1 + random.below(2) as u32;
            lan.weather.lost += 40;
            lan.weather.held += 60;
            // What the network repeats of its own accord is more than an initiator can know.
            lan.weather.repeated = 0;
            // A copy is dead, and carried out, within a second.
            lan.weather.hold_ms = 200 + random.below(300);
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-inside",
        about: "AoE over virtual links, whose frames are carried inside those of real ones, which go down and come back",
        draw: |random, setup| {
            setup.trouble_ms *= 3;
            setup.clients = 1 + random.below(3) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults.link_ms = if random.chance(1, 2) { 500 + random.below(3_000) } else { 0 };
            let mut lan = Lan::draw(random);
            lan.inside = true;
            lan.links = 1 + random.below(2) as u32;
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-both",
        about: "one volume over NVMe/TCP and AoE at once, with cuts, kills and power cuts",
        draw: |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 2 + random.below(2) as usize;
            setup.behaviour.volatile = random.chance(1, 2);
            setup.behaviour.leases = random.chance(1, 4);
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults.cut_ms = if random.chance(1, 2) { 4_000 } else { 0 };
            let mut lan = Lan::draw(random);
            lan.mixed = true;
            if random.chance(1, 2) {
                setup.faults.kill_ms = if random.chance(1, 2) { 8_000 } else { 0 };
                setup.faults.power_ms = if random.chance(1, 2) { 8_000 } else { 0 };
                lan.survives_kills(random, false);
            }
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-fence",
        about: "a station reserves a volume over AoE while hosts work on it over NVMe/TCP, with cuts and kills: who is fenced reads and writes nothing",
        draw: |random, setup| {
            setup.trouble_ms = 20_000;
            setup.clients = 2 + random.below(2) as usize;
            // At any moment something is below and something on its way, at few places.
            setup.requests *= 30;
            setup.work.depth = 8 + random.below(16) as usize;
            setup.work.hot = 8;
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 32_000 << random.below(5);
            setup.timing.network_us = match random.chance(1, 2) {
                true => 200 + random.below(1_000),
                false => 10_000 + random.below(100_000),
            };
            setup.faults.cut_ms = if random.chance(1, 2) { 6_000 } else { 0 };
            setup.faults.kill_ms = if random.chance(1, 3) { 12_000 } else { 0 };
            let mut lan = Lan::draw(random);
            lan.mixed = true;
            lan.control = true;
            lan.not_stored = if random.chance(1, 4) { 200 } else { 0 };
            lan.survives_kills(random, false);
            setup.lan = Some(lan);
        },
    },
    Scenario {
        name: "aoe-control",
        about: "config strings, masks and reservations change over AoE while clients work: who is shut out is refused, also after kills",
        draw: |random, setup| {
            setup.trouble_ms = 60_000;
            setup.clients = 1 + random.below(3) as usize;
            setup.client_shards = 1 + random.below(2) as u16;
            setup.requests *= 2;
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults.kill_ms = if random.chance(2, 3) { 12_000 } else { 0 };
            setup.faults.hostile_ms =
                if random.chance(1, 3) { 200 + random.below(2_000) } else { 0 };
            let mut lan = Lan::draw(random);
            lan.control = true;
            lan.not_stored = if random.chance(1, 2) { 200 } else { 0 };
            lan.survives_kills(random, false);
            setup.lan = Some(lan);
        },
    },
];

impl Scenario {
    /// The scenario of this name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// A world of this kind.
    pub fn setup(&self, random: &mut Random) -> Setup {
        let disks = if random.chance(1, 2) { 1 } else { 2 + random.below(3) as u32 };
        let mut setup = Setup {
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
                read_fails: 0,
                write_fails: 0,
                flush_fails: 0,
                sticks: 0,
                lies: false,
                leases: random.chance(1, 2),
            },
            timing: Timing {
                network_us: 200 + random.below(5_000),
                mail_us: 1 + random.below(3_000),
                turn_us: 1 + random.below(200),
                segment_max: 64 << random.below(11),
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
            digests: random.chance(1, 2),
            keep_alive_ms: 1_000 + random.below(4_000),
            raw_hosts: 0,
            raw_resets: false,
            requests: 40 + random.below(160),
            faults: Faults::default(),
            trouble_ms: 3_000 + random.below(6_000),
            lan: None,
        };
        (self.draw)(random, &mut setup);
        // A request of the largest takes hundreds of segments, not thousands, whatever was drawn.
        let least = setup.work.request_max * SECTOR as u64 / 256;
        setup.timing.segment_max = setup.timing.segment_max.max(least);
        // Enough to do for the time of trouble, and not more.
        let shards = u64::from(setup.client_shards);
        setup.work.interval_us = setup.trouble_ms * 1_000 / setup.requests * shards;
        setup.work.unit = setup.block_size / SECTOR as u64;
        if setup.behaviour.leases {
            setup.behaviour.volatile = false;
        }
        setup
    }
}
