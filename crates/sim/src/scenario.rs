//! Scenarios: what kind of world a seed draws. Each is a small set of ranges; the seed fills in the
//! rest. The list is here, and what is drawn for hosts of AoE and of iSCSI in rooms of their own.

use block::Random;

use crate::setup::{Fault, Setup};

mod fences;
mod lans;
mod ports;

/// A kind of world.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    draw: fn(&mut Random, &mut Setup),
}

/// All scenarios; a seed picks one by its number.
pub const SCENARIOS: &[Scenario] = &[
    scenario("calm", "nothing goes wrong", |_, _| {}),
    scenario("cuts", "connections are reset or go silent", |random, setup| {
        setup.trouble_ms *= 3;
        setup.faults[Fault::Cut] = 300 + random.below(3_000);
        setup.faults[Fault::Silence] = if random.chance(1, 2) { 8_000 } else { 0 };
    }),
    scenario(
        "silence",
        "one I/O connection goes silent while the others live, and no request waits for its deadline",
        |random, setup| {
            setup.trouble_ms = 60_000;
            setup.requests += 100;
            setup.timing.segment_max = setup.timing.segment_max.max(1_024);
            setup.queues = 1 + random.below(4) as u16;
            setup.faults[Fault::Hush] = 20_000 + random.below(40_000);
            setup.behaviour.latency_us = 2_000 << random.below(12);
        },
    ),
    scenario("kills", "the target's process dies and comes back", |random, setup| {
        setup.trouble_ms *= 4;
        setup.faults[Fault::Kill] = 2_000 + random.below(8_000);
        setup.faults[Fault::Stop] = if random.chance(1, 2) { 8_000 } else { 0 };
        setup.behaviour.latency_us = 2_000 << random.below(5);
        setup.faults[Fault::Cut] = if random.chance(1, 2) { 4_000 } else { 0 };
        setup.raw_hosts = random.below(2) as usize;
    }),
    scenario(
        "power",
        "the target loses its power: what was not flushed may be gone",
        |random, setup| {
            setup.behaviour.volatile = true;
            setup.behaviour.leases = false;
            setup.trouble_ms *= 5;
            setup.faults[Fault::Power] = 4_000 + random.below(10_000);
            setup.raw_hosts = random.below(2) as usize;
        },
    ),
    scenario("clients", "clients die in mid-write and come back", |random, setup| {
        setup.trouble_ms *= 2;
        setup.faults[Fault::KillClient] = 1_000 + random.below(5_000);
        setup.clients = 2;
    }),
    scenario("corruption", "bits flip on the wire, and digests notice", |random, setup| {
        setup.digests = true;
        setup.trouble_ms *= 2;
        setup.faults[Fault::Corrupt] = 50 + random.below(1_000);
    }),
    scenario("disks", "disks are slow and fail", |random, setup| {
        setup.behaviour.volatile = random.chance(1, 2);
        setup.behaviour.leases = false;
        setup.behaviour.latency_us = 50_000;
        setup.behaviour.read_fails = 30;
        setup.behaviour.write_fails = 30;
        setup.behaviour.flush_fails = 100;
        setup.faults[Fault::Reopen] = 1_000;
    }),
    scenario(
        "flushes",
        "flushes and durable writes fail, and the power does: what a flush vouched for is there",
        |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 2;
            setup.behaviour.volatile = true;
            setup.behaviour.leases = false;
            setup.behaviour.latency_us = 20_000 << random.below(4);
            setup.behaviour.write_fails = random.below(30);
            setup.behaviour.flush_fails = 100;
            setup.faults[Fault::Power] = 2_000 + random.below(4_000);
            setup.faults[Fault::Reopen] = 2_000 + random.below(4_000);
        },
    ),
    scenario("lies", "disks lie about flushes, and lose power", |random, setup| {
        setup.behaviour.volatile = true;
        setup.behaviour.lies = true;
        setup.behaviour.leases = false;
        setup.trouble_ms *= 4;
        setup.faults[Fault::Power] = 4_000 + random.below(8_000);
    }),
    scenario("stuck", "disks never answer some requests", |random, setup| {
        setup.behaviour.leases = false;
        setup.behaviour.sticks = 1 + random.below(5);
        setup.trouble_ms = 90_000;
    }),
    scenario(
        "memory",
        "the memory budget is as small as it may be, and the work as large",
        |random, setup| {
            setup.clients = 2;
            setup.pages = block::limits::POOL_PAGES_MIN;
            setup.disk_size = 4 << 20;
            setup.work.request_max = 2_048;
            setup.work.depth = 24;
            setup.queues = 1 + random.below(4) as u16;
            setup.timing.segment_max = 64 << 10;
            setup.requests = 10 + random.below(40);
        },
    ),
    scenario(
        "line",
        "a pool that holds one large transfer, and hosts that always want more, large and small",
        |random, setup| {
            setup.shards = 1 + random.below(2) as u16;
            setup.clients = 4;
            setup.client_shards = 1;
            setup.raw_hosts = random.below(5) as usize;
            setup.pages = 300 + random.below(300) as u32;
            setup.disk_size = 4 << 20;
            // Each wait is long, so that many others come meanwhile.
            setup.behaviour.latency_us = 1_000 << random.below(7);
            setup.behaviour.leases = false;
            setup.timing.network_us = 200;
            setup.work.request_max = 2_048;
            setup.work.depth = 24;
            setup.queues = 1 + random.below(4) as u16;
            setup.timing.segment_max = 64 << 10;
            setup.requests = 40 + random.below(40);
            setup.trouble_ms = 400;
        },
    ),
    scenario(
        "patience",
        "disks that take seconds, small writes that fill the pool, and a short Keep Alive: nobody is taken for silent",
        |random, setup| {
            setup.shards = 1 + random.below(2) as u16;
            setup.clients = 2;
            setup.raw_hosts = random.below(3) as usize;
            setup.pages = 24 + random.below(100) as u32;
            setup.block_size = 512;
            setup.behaviour.latency_us = 1_000_000 << random.below(4);
            setup.behaviour.leases = false;
            setup.timing.network_us = 200;
            // All of it in capsules.
            setup.work.request_max = 16;
            setup.work.depth = 24;
            setup.queues = 1 + random.below(2) as u16;
            setup.depth = 64;
            setup.keep_alive_ms = 1_000;
            setup.raw_keep_alive = true;
            setup.requests = 300;
            setup.trouble_ms = 60_000;
        },
    ),
    scenario(
        "change",
        "the volume grows, goes, comes back, and has another one in its place, while hosts are connected",
        |random, setup| {
            setup.faults[Fault::Grow] = 300 + random.below(1_000);
            setup.faults[Fault::Replug] = if random.chance(1, 2) { 3_000 } else { 0 };
            if random.chance(1, 2) {
                setup.trouble_ms *= 2;
                setup.raw_hosts = 1 + random.below(2) as usize;
                setup.faults[Fault::Swap] = 500 + random.below(3_000);
            }
        },
    ),
    scenario(
        "twice",
        "one volume in two subsystems: hosts of both write, others take its place, it grows, and connections are cut",
        |random, setup| {
            setup.trouble_ms *= 3;
            setup.twice = true;
            setup.clients = 2 + random.below(2) as usize;
            setup.raw_hosts = random.below(2) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults[Fault::Cut] = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults[Fault::Swap] = if random.chance(1, 2) { 3_000 } else { 0 };
            setup.faults[Fault::Grow] = if random.chance(1, 3) { 3_000 } else { 0 };
            setup.faults[Fault::Hosts] = if random.chance(1, 3) { 5_000 } else { 0 };
        },
    ),
    scenario(
        "imports",
        "clients let go of their remote disks, with requests under way, and ask for them again; targets die, lose power and are stopped",
        |random, setup| {
            setup.trouble_ms *= 3;
            setup.clients = 1 + random.below(2) as usize;
            setup.client_shards = 1 + random.below(3) as u16;
            setup.behaviour.latency_us = 2_000 << random.below(7);
            setup.behaviour.volatile = random.chance(1, 2);
            setup.behaviour.leases = false;
            setup.faults[Fault::Unimport] = 2_000 + random.below(4_000);
            setup.faults[Fault::Cut] = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
            setup.faults[Fault::Stop] = if random.chance(1, 3) { 6_000 } else { 0 };
            setup.faults[Fault::Power] = if random.chance(1, 3) { 8_000 } else { 0 };
            setup.faults[Fault::Grow] = if random.chance(1, 4) { 3_000 } else { 0 };
        },
    ),
    scenario(
        "fused",
        "raw hosts send compare-and-write pairs, halves of them and aborts, beside the clients",
        |random, setup| {
            setup.clients = 1;
            setup.raw_hosts = 1 + random.below(3) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(4);
        },
    ),
    scenario(
        "resets",
        "raw hosts reset and shut down their controllers, and lose queues, with commands under way",
        |random, setup| {
            setup.trouble_ms *= 2;
            setup.raw_hosts = 1 + random.below(2) as usize;
            setup.raw_resets = true;
            setup.behaviour.latency_us = 8_000 << random.below(6);
        },
    ),
    scenario(
        "driver",
        "a driver that keeps what it was given as long as it may: batches come back late, writes land in parts, and hosts stop reading",
        |random, setup| {
            setup.trouble_ms *= 2;
            setup.raw_hosts = 1 + random.below(2) as usize;
            setup.raw_resets = random.chance(1, 2);
            setup.raw_keep_alive = random.chance(1, 2);
            setup.raw_deaf = true;
            setup.timing.keep_us = 2_000 << random.below(8);
            setup.behaviour.parts = 300;
            setup.behaviour.leases = random.chance(1, 3);
            setup.behaviour.latency_us = 2_000 << random.below(6);
            if random.chance(1, 2) {
                setup.faults[Fault::Cut] = 1_000 + random.below(4_000);
                setup.faults[Fault::Kill] = if random.chance(1, 2) { 6_000 } else { 0 };
            }
        },
    ),
    scenario(
        "greedy",
        "raw hosts fill their queues to the last entry, and some never read again",
        |random, setup| {
            setup.trouble_ms = 150_000;
            setup.clients = 1;
            setup.requests *= 4;
            setup.raw_hosts = 1 + random.below(2) as usize;
            setup.raw_greedy = true;
            setup.raw_keep_alive = random.chance(1, 2);
            // What is asked at once is more than the network holds.
            setup.block_size = 4096;
            setup.pages *= 2;
            setup.behaviour.latency_us = 2_000 << random.below(6);
        },
    ),
    scenario("garbage", "peers that mean no good connect beside the good ones", |random, setup| {
        setup.raw_hosts = random.below(2) as usize;
        setup.faults[Fault::Garbage] = 20 + random.below(300);
    }),
    scenario("everything", "all of it at once", |random, setup| {
        setup.behaviour.volatile = random.chance(2, 3);
        setup.behaviour.leases = false;
        setup.behaviour.latency_us = 20_000;
        setup.behaviour.read_fails = 5;
        setup.behaviour.write_fails = 5;
        setup.behaviour.flush_fails = 20;
        setup.trouble_ms = 60_000;
        setup.raw_hosts = random.below(2) as usize;
        setup.raw_resets = random.chance(1, 2);
        setup.faults[Fault::Cut] = 8_000;
        setup.faults[Fault::Silence] = 20_000;
        setup.faults[Fault::Hush] = 40_000;
        setup.faults[Fault::Corrupt] = if setup.digests { 8_000 } else { 0 };
        setup.faults[Fault::Kill] = 30_000;
        setup.faults[Fault::Power] = 30_000;
        setup.faults[Fault::KillClient] = 30_000;
        setup.faults[Fault::Grow] = 10_000;
        setup.faults[Fault::Replug] = if random.chance(1, 3) { 30_000 } else { 0 };
        setup.faults[Fault::Reopen] = 1_000;
        setup.faults[Fault::Garbage] = if random.chance(1, 2) { 5_000 } else { 0 };
        setup.faults[Fault::Hosts] = if random.chance(1, 4) { 20_000 } else { 0 };
        setup.faults[Fault::Subsystems] = if random.chance(1, 4) { 20_000 } else { 0 };
        setup.watchers = random.below(2) as usize;
    }),
    scenario(
        "paths",
        "the listeners are closed and opened while hosts of NVMe or iSCSI work, and targets die: nothing goes by a closed path",
        |random, setup| {
            setup.scsi_clients = random.chance(1, 2);
            setup.trouble_ms *= 4;
            setup.clients = 1 + random.below(2) as usize;
            setup.shards = 1 + random.below(4) as u16;
            setup.behaviour.latency_us = 2_000 << random.below(7);
            setup.behaviour.leases = random.chance(1, 2);
            setup.faults[Fault::Path] = 100 + random.below(3_000);
            setup.faults[Fault::Cut] = if random.chance(1, 3) { 2_000 } else { 0 };
            setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
            setup.faults[Fault::Grow] = if random.chance(1, 4) { 3_000 } else { 0 };
            setup.raw_hosts = random.below(3) as usize;
        },
    ),
    scenario(
        "iscsi",
        "initiators of iSCSI beside a client: compare-and-write, aborts, data out of their order, and logouts",
        ports::alone,
    ),
    scenario(
        "iscsi-returns",
        "initiator ports log in again, on other shards, with tasks under way: nothing older reaches the media",
        ports::returns,
    ),
    scenario(
        "iscsi-cuts",
        "initiators of iSCSI whose connections are cut and corrupted, and whose target dies, loses power and grows",
        ports::cuts,
    ),
    scenario(
        "iscsi-greedy",
        "initiators of iSCSI fill their window with the least memory there may be, and some never read again",
        ports::greedy,
    ),
    scenario(
        "iscsi-clients",
        "clients whose disk is the target's volume over iSCSI, beside initiators that do what ours never does",
        ports::clients,
    ),
    scenario(
        "iscsi-imports",
        "disks over iSCSI, by one to three sessions: cuts, silence, flipped bits, targets that die, are stopped and lose power, and a volume that grows",
        ports::imports,
    ),
    scenario(
        "iscsi-fence",
        "ports of iSCSI register, reserve, preempt and abort while hosts of NVMe and iSCSI work: who is shut out does nothing, and all see the same",
        ports::fence,
    ),
    scenario(
        "iscsi-fence-crash",
        "reservations of iSCSI while connections are cut and the target dies, loses power and grows: what APTPL says is there again",
        ports::fence_crash,
    ),
    scenario(
        "nvme-fence",
        "hosts of NVMe and ports of iSCSI fence each other, some of them one host with a name; connections are cut, the target dies, and not each change can be stored: who is shut out does nothing, and all see the same",
        fences::nvme,
    ),
    scenario(
        "iscsi-sessions",
        "disks over iSCSI by several sessions, which break one by one and often, with slow disks below",
        ports::sessions,
    ),
    scenario(
        "concat",
        "disks of different sizes one after the other, which grow, die and lose power",
        |random, setup| {
            setup.disks = 2 + random.below(3) as u32;
            setup.concat = true;
            setup.disk_size = 64 << 10;
            setup.behaviour.latency_us = 2_000 << random.below(5);
            setup.faults[Fault::Grow] = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults[Fault::Cut] = if random.chance(1, 3) { 4_000 } else { 0 };
            if random.chance(1, 2) {
                setup.behaviour.volatile = random.chance(1, 2);
                setup.behaviour.leases = false;
                setup.trouble_ms *= 3;
                setup.faults[Fault::Power] = 4_000 + random.below(8_000);
            }
        },
    ),
    scenario(
        "shards",
        "clients of several shards, each with its own association: cuts, kills and power cuts below them",
        |random, setup| {
            setup.client_shards = 2 + random.below(3) as u16;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.behaviour.volatile = random.chance(1, 2);
            setup.behaviour.leases = false;
            setup.trouble_ms *= 3;
            setup.faults[Fault::Cut] = 500 + random.below(4_000);
            setup.faults[Fault::Kill] = if random.chance(1, 2) { 8_000 } else { 0 };
            setup.faults[Fault::Power] = if random.chance(1, 3) { 10_000 } else { 0 };
            setup.faults[Fault::KillClient] = if random.chance(1, 3) { 10_000 } else { 0 };
        },
    ),
    scenario(
        "discovery",
        "hosts look at the discovery log and wait for its events, while what is exported changes",
        |random, setup| {
            setup.clients = 1;
            setup.watchers = 1 + random.below(3) as usize;
            setup.trouble_ms *= 2;
            setup.faults[Fault::Subsystems] = 100 + random.below(1_000);
            setup.faults[Fault::Hosts] = if random.chance(1, 2) { 2_000 } else { 0 };
            // That the volume grows is announced to others than watchers.
            setup.faults[Fault::Grow] = if random.chance(1, 2) { 2_000 } else { 0 };
            setup.faults[Fault::Cut] = if random.chance(1, 3) { 1_000 } else { 0 };
            setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
        },
    ),
    scenario(
        "access",
        "hosts are denied and allowed, subsystems go and come back, with requests under way",
        |random, setup| {
            setup.trouble_ms *= 4;
            setup.clients = 1 + random.below(3) as usize;
            setup.raw_hosts = random.below(2) as usize;
            setup.watchers = random.below(2) as usize;
            setup.behaviour.latency_us = 2_000 << random.below(6);
            setup.faults[Fault::Hosts] = 1_000 + random.below(8_000);
            setup.faults[Fault::Subsystems] = if random.chance(1, 2) { 10_000 } else { 0 };
            setup.faults[Fault::Replug] = if random.chance(1, 4) { 10_000 } else { 0 };
        },
    ),
    scenario(
        "aoe",
        "disks over AoE: frames are lost, repeated, late and out of order, and no request fails",
        lans::alone,
    ),
    scenario(
        "aoe-calm",
        "disks over AoE where nothing goes wrong: nothing is sent twice",
        lans::calm,
    ),
    scenario(
        "aoe-crash",
        "the target of AoE dies or loses its power while clients write: what was answered is there",
        lans::crash,
    ),
    scenario(
        "aoe-restart",
        "clients of AoE die and come back with the same addresses, at once, or later with the same tags",
        lans::restart,
    ),
    scenario(
        "aoe-links",
        "two links of AoE, which go down, come back, and have other MTUs; the volume grows",
        lans::links,
    ),
    scenario(
        "aoe-short",
        "a target of AoE with the least memory, and disks that are slower than commands wait: what is dropped is asked again",
        lans::short,
    ),
    scenario(
        "aoe-flood",
        "more is asked over AoE than rings hold, links carry and a driver takes: what is dropped is asked again",
        lans::flood,
    ),
    scenario(
        "aoe-tags",
        "a host of AoE whose tags fall together and are those of others, beside clients: writes are forgotten before their time, and that is counted",
        lans::tags,
    ),
    scenario(
        "aoe-admin",
        "exports over AoE go and come back, the volume grows and is replugged, its disks err and are reopened, hosts let go of it; the power goes at any step",
        lans::admin,
    ),
    scenario(
        "aoe-cached",
        "a target of AoE that answers what lies in its cache, as others do: hosts flush it, and it loses power",
        lans::cached,
    ),
    scenario(
        "aoe-plain",
        "a target of AoE that knows neither order nor copies: an initiator keeps its writes apart by itself",
        lans::plain,
    ),
    scenario(
        "aoe-inside",
        "AoE over virtual links, whose frames are carried inside those of real ones, which go down and come back",
        lans::inside,
    ),
    scenario(
        "aoe-routed",
        "AoE across a network of routers, between two customers with the same addresses: links are cut, routers stand still, edges begin anew, frames come again seconds later, labels change hands, and the target loses its power",
        lans::routed,
    ),
    scenario(
        "aoe-both",
        "one volume over NVMe/TCP and AoE at once, with cuts, kills and power cuts",
        lans::both,
    ),
    scenario(
        "aoe-fence",
        "a station reserves a volume over AoE while hosts work on it over NVMe/TCP, with cuts and kills: who is fenced reads and writes nothing",
        lans::fence,
    ),
    scenario(
        "aoe-fence-scsi",
        "ports of iSCSI reserve a volume that hosts of AoE and NVMe work on, and not each change can be stored: who is shut out does nothing",
        lans::fence_scsi,
    ),
    scenario(
        "aoe-control",
        "config strings, masks and reservations change over AoE while clients work: who is shut out is refused, also after kills",
        lans::control,
    ),
];

const fn scenario(
    name: &'static str,
    about: &'static str,
    draw: fn(&mut Random, &mut Setup),
) -> Scenario {
    Scenario { name, about, draw }
}

impl Scenario {
    /// The scenario of this name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// A world of this kind.
    pub(crate) fn setup(&self, random: &mut Random) -> Setup {
        let mut setup = Setup::draw(random);
        (self.draw)(random, &mut setup);
        setup.fit();
        setup
    }
}
