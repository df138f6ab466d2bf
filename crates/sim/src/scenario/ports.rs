//! What the scenarios of iSCSI draw: raw hosts that do what our initiator never does, and clients
//! whose disk is the target's volume over iSCSI. Units: those of [`Setup`].

use block::Random;

use crate::setup::{Fault, Setup};

/// See `iscsi` in the list.
pub(super) fn alone(random: &mut Random, setup: &mut Setup) {
    setup.clients = 1;
    setup.initiators = 1 + random.below(3) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(4);
}

/// See `iscsi-returns` in the list.
pub(super) fn returns(random: &mut Random, setup: &mut Setup) {
    setup.clients = 1;
    setup.shards = 1 + random.below(4) as u16;
    setup.trouble_ms *= 2;
    setup.initiators = 1 + random.below(3) as usize;
    setup.initiators_return = true;
    setup.behaviour.latency_us = 8_000 << random.below(7);
}

/// See `iscsi-cuts` in the list.
pub(super) fn cuts(random: &mut Random, setup: &mut Setup) {
    setup.clients = 1;
    setup.trouble_ms *= 3;
    setup.initiators = 1 + random.below(3) as usize;
    setup.initiators_return = random.chance(1, 2);
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.behaviour.volatile = random.chance(1, 2);
    setup.behaviour.leases = false;
    setup.faults[Fault::Cut] = 300 + random.below(3_000);
    setup.faults[Fault::Silence] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
    setup.faults[Fault::Stop] = if random.chance(1, 4) { 8_000 } else { 0 };
    setup.faults[Fault::Power] = if random.chance(1, 4) { 8_000 } else { 0 };
    setup.faults[Fault::Grow] = if random.chance(1, 4) { 2_000 } else { 0 };
    setup.faults[Fault::Corrupt] = if setup.digests { 50 + random.below(1_000) } else { 0 };
}

/// See `iscsi-greedy` in the list.
pub(super) fn greedy(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 150_000;
    setup.clients = 1;
    setup.requests *= 4;
    setup.initiators = 1 + random.below(2) as usize;
    setup.initiators_greedy = true;
    // What is asked at once is more than the network holds.
    setup.block_size = 4096;
    setup.pages = block::limits::POOL_PAGES_MIN;
    setup.behaviour.latency_us = 2_000 << random.below(6);
}

/// See `iscsi-clients` in the list.
pub(super) fn clients(random: &mut Random, setup: &mut Setup) {
    setup.scsi_clients = true;
    setup.sessions = 1 + random.below(3) as u16;
    setup.initiators = random.below(3) as usize;
    setup.client_shards = 1 + random.below(3) as u16;
    setup.behaviour.latency_us = 2_000 << random.below(5);
}

/// See `iscsi-imports` in the list.
pub(super) fn imports(random: &mut Random, setup: &mut Setup) {
    setup.scsi_clients = true;
    setup.sessions = 1 + random.below(3) as u16;
    setup.faults[Fault::Hush] = if random.chance(1, 2) { 5_000 } else { 0 };
    setup.trouble_ms *= 4;
    setup.clients = 1 + random.below(2) as usize;
    setup.client_shards = 1 + random.below(3) as u16;
    setup.initiators = random.below(2) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.behaviour.volatile = random.chance(1, 2);
    setup.behaviour.leases = false;
    setup.faults[Fault::Cut] = 500 + random.below(4_000);
    setup.faults[Fault::Silence] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::Corrupt] = if setup.digests { 200 + random.below(2_000) } else { 0 };
    setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
    setup.faults[Fault::Stop] = if random.chance(1, 4) { 8_000 } else { 0 };
    setup.faults[Fault::Power] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::KillClient] = if random.chance(1, 4) { 8_000 } else { 0 };
    setup.faults[Fault::Unimport] = if random.chance(1, 3) { 5_000 } else { 0 };
    setup.faults[Fault::Grow] = if random.chance(1, 4) { 3_000 } else { 0 };
}

/// See `iscsi-sessions` in the list.
pub(super) fn sessions(random: &mut Random, setup: &mut Setup) {
    setup.scsi_clients = true;
    setup.sessions = 2 + random.below(2) as u16;
    setup.clients = 1;
    setup.client_shards = 1 + random.below(2) as u16;
    setup.requests *= 2;
    setup.work.hot = 8;
    setup.work.request_max = 2;
    // What a session left below is there for long enough that another one's login comes meanwhile.
    setup.behaviour.latency_us = 128_000 << random.below(5);
    setup.faults[Fault::Cut] = 50 + random.below(200);
    setup.faults[Fault::Hush] = if random.chance(1, 2) { 5_000 } else { 0 };
    setup.faults[Fault::Kill] = if random.chance(1, 4) { 8_000 } else { 0 };
}

/// See `iscsi-fence` in the list.
pub(super) fn fence(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 15_000;
    setup.scsi_clients = random.chance(1, 3);
    setup.clients = 1 + random.below(2) as usize;
    setup.client_shards = 1 + random.below(2) as u16;
    setup.raw_hosts = random.below(2) as usize;
    setup.initiators = 1 + random.below(2) as usize;
    setup.fencer_ports = 2 + random.below(3) as usize;
    setup.fence_ms = 100 << random.below(4);
    // At any moment much of the fenced is below and on its way, at few places.
    setup.requests *= 8;
    setup.work.depth = 2 + random.below(8) as usize;
    setup.work.hot = 16;
    setup.work.request_max = 2 << random.below(3);
    setup.timing.segment_max = setup.timing.segment_max.max(1_024);
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 4_000 << random.below(6);
    if random.chance(1, 3) {
        setup.timing.network_us = 10_000 + random.below(40_000);
    }
}

/// See `iscsi-fence-crash` in the list.
pub(super) fn fence_crash(random: &mut Random, setup: &mut Setup) {
    fence(random, setup);
    setup.trouble_ms = 30_000;
    setup.behaviour.volatile = random.chance(1, 2);
    setup.initiators_return = random.chance(1, 2);
    setup.faults[Fault::Cut] = 500 + random.below(3_000);
    setup.faults[Fault::Kill] = if random.chance(2, 3) { 6_000 } else { 0 };
    setup.faults[Fault::Power] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::Stop] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::Grow] = if random.chance(1, 4) { 3_000 } else { 0 };
}
