//! Whatever comes, nothing panics, and all memory is back in the end.

use block::random::Random;
use wire::iscsi::{
    DataOut, Digests, LogoutReason, NopIn, R2t, RESERVED_TAG, TaskAttribute, TaskFunction,
};
use wire::scsi::Cdb;

use super::world::{ALL_DIGESTS, Order, TARGET, World, pattern, seal};

#[test]
fn garbage_of_many_kinds_never_does_harm() {
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let digests = ALL_DIGESTS[random.below(4) as usize];
        let mut world = some_world(&mut random, digests);
        world.links[0].host.lenient = true;
        world.links[0].cut = 1 + random.below(3000) as usize;
        for _ in 0..30 {
            if world.links[0].pipe.close.is_some() {
                break;
            }
            world.hold_requests = random.below(2) == 0;
            let mut bytes = some_pdu(&mut world, &mut random, digests);
            if random.below(12) == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            world.send(0, &bytes);
            if random.below(4) == 0 {
                world.links[0].hold_sends ^= true;
                if !world.links[0].hold_sends {
                    world.release_sends(0);
                }
            }
            if random.below(20) == 0 {
                let reset = [TaskFunction::LOGICAL_UNIT_RESET, TaskFunction::TARGET_WARM_RESET];
                let reset = reset[random.below(2) as usize];
                let (_, bytes) = world.links[1].host.manage(reset, [0; 8], None, ());
                world.send(1, &bytes);
            }
            if !world.hold_requests {
                world.release_requests();
                world.run();
            }
            let asked: Vec<u32> = world.links[0].host.asked.keys().copied().collect();
            if asked.len() > 100 {
                world.links[0].host.asked.clear();
            }
        }
        // Numbers are right whatever was asked.
        world.release_sends(0);
        world.said(0);
    }
}

/// Link 0 with some keys, and another session.
fn some_world(random: &mut Random, digests: Digests) -> World {
    let on = |is_on| if is_on { "CRC32C" } else { "None" };
    let yes = |random: &mut Random| if random.below(2) == 0 { "Yes" } else { "No" };
    let first = ["512", "8192", "65536"][random.below(3) as usize];
    let mut world = World::connected_with(&[
        ("HeaderDigest", on(digests.header)),
        ("DataDigest", on(digests.data)),
        ("InitialR2T", yes(random)),
        ("ImmediateData", yes(random)),
        ("FirstBurstLength", first),
        ("MaxBurstLength", "16384"),
    ]);
    world.join(&[]);
    if random.below(2) == 0 {
        world.shard.memory.lends = vec![vec![0; super::world::VOLUME]; 1];
        world.shard.below.lands = random.below(2) == 0;
    }
    world
}

fn some_cdb(random: &mut Random) -> Cdb {
    let blocks = 1 + random.below(40) as u32;
    let lba = random.below(5000);
    match random.below(12) {
        0 | 1 => Cdb::read_16(lba, blocks),
        2 | 3 => Cdb::write_16(lba, blocks, random.below(4) == 0),
        4 => Cdb::compare_and_write(lba, 1 + (blocks % 3) as u8, false),
        5 => Cdb::orwrite_16(lba, blocks, false),
        6 => Cdb::write_same_16(lba, blocks * 20, false, random.below(2) == 0),
        7 => Cdb::verify_16(lba, blocks, wire::scsi::ByteCheck(random.below(4) as u8)),
        8 => Cdb::unmap_list(8 + 16 * random.below(3) as u16),
        9 => Cdb::inquiry(random.below(300) as u16),
        10 => Cdb::synchronize_cache_10(),
        _ => Cdb(core::array::from_fn(|_| random.next_u64() as u8)),
    }
}

fn some_pdu(world: &mut World, random: &mut Random, digests: Digests) -> Vec<u8> {
    let bytes = (random.below(40) * 512) as u32;
    let lun = [0, 0, 0, 1, 300, 9][random.below(6) as usize];
    let host = &mut world.links[0].host;
    let asked: Vec<u32> = host.asked.keys().copied().collect();
    let task = asked.get(random.below(asked.len().max(1) as u64) as usize).copied();
    match random.below(14) {
        0..6 => {
            let cdb = some_cdb(random);
            let order = match random.below(4) {
                0 => Order::read(lun, cdb, bytes),
                1 => Order::new(lun, cdb),
                _ => Order::write(lun, cdb, bytes),
            };
            let attribute = TaskAttribute([1, 1, 1, 2, 3, 0][random.below(6) as usize]);
            let order = order.with_attribute(attribute);
            let order = if random.below(4) == 0 { order.unfinished() } else { order };
            let with = [0, bytes, bytes.min(512), bytes.min(8192)][random.below(4) as usize];
            let fits = with <= host.agreed.first_burst;
            host.command(order, &pattern(if fits { with as usize } else { 0 }, 1), ()).1
        }
        6..9 => {
            let transfer = match random.below(3) {
                0 => RESERVED_TAG,
                _ => (random.below(20) << 16 | random.below(4)) as u32,
            };
            let tag = task.unwrap_or(5);
            let r2t = R2t::new([0; 8], tag, transfer, 0, 0, bytes.max(1), Default::default());
            let sn = random.below(2) as u32;
            let header = DataOut::solicited(&r2t, sn, 0, bytes, random.below(2) == 0, 0);
            seal(&header.emit(), &pattern(bytes as usize, 2), digests)
        }
        9 => host.nop(&pattern(bytes as usize % 3000, 3), ()).1,
        10 => host.text(b"SendTargets=\0MaxRecvDataSegmentLength=600\0", None, ()).1,
        11 => {
            let function = TaskFunction(1 + random.below(12) as u8);
            let function = match function {
                // The session would be over.
                TaskFunction::TARGET_COLD_RESET => TaskFunction::ABORT_TASK,
                other => other,
            };
            host.manage(function, wire::scsi::Lun::of(lun).0, task, ()).1
        }
        12 if random.below(10) == 0 => host.logout(LogoutReason::CLOSE_SESSION, ()).1,
        12 => host.pong(&NopIn::ping([0; 8], 9, Default::default())),
        _ => match random.below(6) {
            0 => (0..random.below(200) + 1).map(|_| random.next_u64() as u8).collect(),
            1 => host.log_in(super::world::HOST, Some(TARGET), &[], ()),
            _ => host.nop(&[], ()).1,
        },
    }
}
