//! What the scenarios of AoE draw: LANs, frames that are lost, repeated and late, targets of other
//! kinds, and stations that reserve. Units: those of [`Setup`].

use block::Random;

use crate::ethernet::LinkFaults;
use crate::over_mpls::LAN_HOLD_MAX_MS;
use crate::setup::{Fault, Lan, Setup};

/// See `aoe` in the list.
pub(super) fn alone(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 3;
    setup.clients = 1 + random.below(3) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.faults[Fault::Hostile] = if random.chance(1, 3) { 20 + random.below(500) } else { 0 };
    setup.lan = Some(Lan::draw(random));
}

/// See `aoe-calm` in the list.
pub(super) fn calm(random: &mut Random, setup: &mut Setup) {
    setup.behaviour.latency_us = 500;
    setup.timing.mail_us = 50;
    setup.lan = Some(Lan { faults: LinkFaults::NONE, ..Lan::draw(random) });
}

/// See `aoe-crash` in the list.
pub(super) fn crash(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 5;
    setup.clients = 1 + random.below(2) as usize;
    setup.behaviour.volatile = random.chance(3, 4);
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    if random.chance(1, 4) {
        setup.behaviour.write_fails = 10;
        setup.behaviour.flush_fails = 20;
        setup.faults[Fault::Reopen] = 1_000;
    }
    setup.faults[Fault::Kill] = if random.chance(1, 2) { 8_000 } else { 0 };
    setup.faults[Fault::Stop] = if random.chance(1, 2) { 8_000 } else { 0 };
    setup.faults[Fault::Power] = 3_000 + random.below(8_000);
    let mut lan = Lan::draw(random);
    lan.survives_kills(random, setup.clients == 1 && setup.client_shards == 1);
    setup.lan = Some(lan);
}

/// See `aoe-restart` in the list.
pub(super) fn restart(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 4;
    setup.clients = 1 + random.below(2) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(7);
    setup.faults[Fault::KillClient] = 500 + random.below(5_000);
    let mut lan = Lan::draw(random);
    lan.faults.held += 20;
    lan.same_tags = random.chance(1, 2);
    setup.lan = Some(lan);
}

/// See `aoe-links` in the list.
pub(super) fn links(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 4;
    setup.behaviour.latency_us = 2_000 << random.below(5);
    setup.faults[Fault::Link] = 200 + random.below(3_000);
    setup.faults[Fault::Grow] = if random.chance(1, 3) { 2_000 } else { 0 };
    let mut lan = Lan::draw(random);
    lan.links = 1 + random.below(3) as u32;
    lan.mtus = &[1500, 4200, 9000];
    // Few sectors, so that what is held back on a link that went down meets newer writes.
    if random.chance(1, 2) {
        setup.trouble_ms /= 4;
        setup.requests *= 10;
        (setup.work.hot, setup.work.request_max) = (4 + random.below(8), 8);
        setup.faults[Fault::Link] = 50 + random.below(200);
        lan.links = 2 + random.below(2) as u32;
        lan.link_down_ms = 200;
        lan.faults.held += 200;
        lan.faults.hold_ms = 200 + random.below(300);
    }
    setup.lan = Some(lan);
}

/// See `aoe-short` in the list.
pub(super) fn short(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 60_000;
    (setup.shards, setup.clients) = (1 + random.below(2) as u16, 3);
    setup.pages = 150 + random.below(250) as u32;
    setup.requests *= 4;
    setup.work.depth = 24;
    setup.work.request_max = 128;
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 2_000_000 << random.below(3);
    // Somebody may wait longer than he likes.
    setup.faults[Fault::Reopen] = 30_000;
    let mut lan = Lan::draw(random);
    (lan.window, lan.buffers) = (128, 512);
    setup.lan = Some(lan);
}

/// See `aoe-flood` in the list.
pub(super) fn flood(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 8_000;
    setup.shards = 1 + random.below(2) as u16;
    setup.behaviour.latency_us = 2_000 << random.below(5);
    setup.timing.turn_us = 200;
    setup.timing.keep_us = 250_000 << random.below(3);
    setup.faults[Fault::Hostile] = 2_000;
    setup.faults[Fault::Link] = 1_000;
    let mut lan = Lan::draw(random);
    lan.floods = true;
    lan.faults.wire_us = 5_000;
    // Of two links one may be too narrow for the config string, which says where the disk is.
    lan.links = 2;
    lan.mtus = &[900, 1500, 9000];
    lan.config = 1_000;
    setup.lan = Some(lan);
}

/// See `aoe-tags` in the list.
pub(super) fn tags(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 2;
    setup.behaviour.latency_us = 2_000 << random.below(5);
    let mut lan = Lan::draw(random);
    lan.plain_host = true;
    // A copy of what was forgotten is carried out again.
    lan.faults.repeated = 0;
    setup.lan = Some(lan);
}

/// See `aoe-admin` in the list.
pub(super) fn admin(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 5;
    setup.clients = 1 + random.below(3) as usize;
    setup.twice = random.chance(1, 2);
    setup.behaviour.volatile = random.chance(1, 2);
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    if random.chance(1, 3) {
        setup.behaviour.read_fails = 5;
        setup.behaviour.write_fails = 5;
        setup.behaviour.flush_fails = 20;
        setup.faults[Fault::Reopen] = 1_000;
    }
    setup.faults[Fault::Unexport] = 1_000 + random.below(4_000);
    setup.faults[Fault::Unimport] = if random.chance(1, 2) { 5_000 } else { 0 };
    setup.faults[Fault::Grow] = if random.chance(1, 3) { 4_000 } else { 0 };
    setup.faults[Fault::Replug] = if random.chance(1, 3) { 6_000 } else { 0 };
    setup.faults[Fault::Stop] = if random.chance(1, 3) { 8_000 } else { 0 };
    setup.faults[Fault::Power] = if random.chance(1, 2) { 8_000 } else { 0 };
    let mut lan = Lan::draw(random);
    lan.mixed = random.chance(1, 3);
    lan.survives_kills(random, false);
    setup.lan = Some(lan);
}

/// See `aoe-cached` in the list.
pub(super) fn cached(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 150_000;
    setup.clients = 1 + random.below(2) as usize;
    setup.requests *= 10;
    setup.behaviour.volatile = true;
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.faults[Fault::Power] = 20_000 + random.below(20_000);
    let mut lan = Lan::draw(random);
    lan.cached = true;
    // So long that whoever asks meanwhile notices, and is told when it is back.
    lan.down_ms = 30_000;
    lan.faults.lost = 0;
    setup.lan = Some(lan);
}

/// See `aoe-plain` in the list.
pub(super) fn plain(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 4;
    (setup.clients, setup.client_shards) = (1, 1);
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.faults[Fault::Link] = if random.chance(1, 2) { 500 + random.below(3_000) } else { 0 };
    // Few sectors, which are written over and over.
    setup.requests *= 8;
    (setup.work.hot, setup.work.request_max) = (4 + random.below(8), 8);
    let mut lan = Lan::draw(random);
    lan.plain = true;
    lan.links = 1 + random.below(2) as u32;
    lan.faults.lost += 40;
    lan.faults.held += 60;
    // What the network repeats of its own accord is more than an initiator can know.
    lan.faults.repeated = 0;
    // A copy is dead, and carried out, within a second.
    lan.faults.hold_ms = 200 + random.below(300);
    setup.lan = Some(lan);
}

/// See `aoe-inside` in the list.
pub(super) fn inside(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 3;
    setup.clients = 1 + random.below(3) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(6);
    setup.faults[Fault::Link] = if random.chance(1, 2) { 500 + random.below(3_000) } else { 0 };
    let mut lan = Lan::draw(random);
    lan.inside = true;
    lan.links = 1 + random.below(2) as u32;
    setup.lan = Some(lan);
}

/// See `aoe-routed` in the list.
pub(super) fn routed(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 20_000 + random.below(20_000);
    setup.clients = 1 + random.below(3) as usize;
    setup.behaviour.latency_us = 2_000 << random.below(5);
    // Few sectors, so that what comes late meets newer writes.
    if random.chance(1, 2) {
        setup.requests *= 4;
        (setup.work.hot, setup.work.request_max) = (4 + random.below(8), 8);
    }
    let mut lan = Lan::draw(random);
    lan.routed = true;
    match random.chance(1, 2) {
        true => lan.faults.hold_ms = lan.faults.hold_ms.min(LAN_HOLD_MAX_MS),
        false => (lan.faults.held, lan.faults.repeated, lan.faults.reorders) = (0, 0, false),
    }
    if random.chance(1, 2) {
        setup.behaviour.volatile = random.chance(3, 4);
        setup.behaviour.leases = false;
        setup.faults[Fault::Power] = 4_000 + random.below(16_000);
        lan.survives_kills(random, false);
        // Two LANs hold what is on its way, and the routers between.
        lan.down_ms = lan.down_ms.max(1_000);
    }
    setup.lan = Some(lan);
}

/// See `aoe-both` in the list.
pub(super) fn both(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms *= 4;
    setup.clients = 2 + random.below(2) as usize;
    setup.behaviour.volatile = random.chance(1, 2);
    setup.behaviour.leases = random.chance(1, 4);
    setup.behaviour.latency_us = 2_000 << random.below(5);
    setup.faults[Fault::Cut] = if random.chance(1, 2) { 4_000 } else { 0 };
    setup.twice = random.chance(1, 3);
    let mut lan = Lan::draw(random);
    lan.mixed = true;
    if random.chance(1, 2) {
        setup.faults[Fault::Kill] = if random.chance(1, 2) { 8_000 } else { 0 };
        setup.faults[Fault::Power] = if random.chance(1, 2) { 8_000 } else { 0 };
        lan.survives_kills(random, false);
    }
    setup.lan = Some(lan);
}

/// See `aoe-fence` in the list.
pub(super) fn fence(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 20_000;
    setup.clients = 2 + random.below(2) as usize;
    // At any moment much of the fenced is below and on its way, at few places; and who looks
    // at those and writes there does not wait for himself.
    setup.requests *= 30;
    setup.work.depth = 8 + random.below(16) as usize;
    setup.work.hot = 16;
    setup.work.request_max = 2 << random.below(3);
    setup.timing.segment_max = setup.timing.segment_max.max(1_024);
    setup.behaviour.leases = false;
    setup.behaviour.latency_us = 64_000 << random.below(4);
    setup.timing.network_us = match random.chance(1, 2) {
        true => 200 + random.below(1_000),
        false => 10_000 + random.below(100_000),
    };
    setup.faults[Fault::Cut] = if random.chance(1, 2) { 6_000 } else { 0 };
    setup.faults[Fault::Kill] = if random.chance(1, 3) { 12_000 } else { 0 };
    let mut lan = Lan::draw(random);
    lan.mixed = true;
    lan.control = true;
    setup.twice = random.chance(1, 3);
    lan.depth = Some(2);
    setup.not_stored = if random.chance(1, 4) { 200 } else { 0 };
    lan.survives_kills(random, false);
    setup.lan = Some(lan);
}

/// See `aoe-fence-scsi` in the list.
pub(super) fn fence_scsi(random: &mut Random, setup: &mut Setup) {
    super::ports::fence(random, setup);
    setup.clients = 2 + random.below(2) as usize;
    setup.faults[Fault::Kill] = if random.chance(1, 3) { 6_000 } else { 0 };
    let mut lan = Lan::draw(random);
    lan.mixed = true;
    lan.depth = Some(2);
    setup.not_stored = if random.chance(1, 2) { 100 } else { 0 };
    lan.survives_kills(random, false);
    setup.lan = Some(lan);
}

/// See `aoe-control` in the list.
pub(super) fn control(random: &mut Random, setup: &mut Setup) {
    setup.trouble_ms = 60_000;
    setup.clients = 1 + random.below(3) as usize;
    setup.client_shards = 1 + random.below(2) as u16;
    setup.requests *= 2;
    setup.behaviour.latency_us = 2_000 << random.below(5);
    setup.faults[Fault::Kill] = if random.chance(2, 3) { 12_000 } else { 0 };
    setup.faults[Fault::Hostile] = if random.chance(1, 3) { 200 + random.below(2_000) } else { 0 };
    let mut lan = Lan::draw(random);
    lan.control = true;
    setup.not_stored = if random.chance(1, 2) { 200 } else { 0 };
    lan.survives_kills(random, false);
    setup.lan = Some(lan);
}
