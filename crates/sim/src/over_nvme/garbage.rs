//! Peers that mean no good, beside the good clients: noise, half a PDU and then silence, PDUs with
//! wrong fields in every state, peers that never read, and peers that ask for much that is answered
//! at once and do not read that. Nothing of theirs may reach a block, crash a shard, or keep memory
//! from others. None of them connects an I/O queue, so none may write.

use std::collections::VecDeque;

use block::Random;
use testkit::nvme;
use wire::nvme::fabrics::{Connect, ConnectData, Register};
use wire::nvme::identify::Cns;
use wire::nvme::log::LogId;
use wire::nvme::{Command, Nqn};
use wire::nvme_tcp::{CapsuleResponse, Digests, ICReq, ICResp};

use crate::client::SimWorld;

/// A peer that is still connected.
#[derive(Debug)]
struct Peer {
    raw: usize,
    /// When it goes, if it does.
    until: u64,
    reads: bool,
    /// What it says once it has taken so many bytes.
    script: VecDeque<(usize, Vec<u8>)>,
}

/// The bad peers of a world.
#[derive(Debug, Default)]
pub struct Garbage {
    peers: Vec<Peer>,
}

impl Garbage {
    /// Lets another one come.
    pub fn send(
        &mut self,
        world: &mut SimWorld,
        target: usize,
        subsystem: &Nqn,
        random: &mut Random,
    ) {
        let raw = world.connect_raw(target);
        let until = world.now + random.below(20_000_000_000);
        if random.chance(1, 4) {
            let mut script = flood(subsystem, random);
            let (_, greeting) = script.pop_front().expect("it greets first");
            world.send_raw(raw, &greeting);
            return self.peers.push(Peer { raw, until, reads: false, script });
        }
        for part in words(subsystem, random) {
            world.send_raw(raw, &part);
        }
        match random.below(4) {
            0 => world.end_raw(raw, random.chance(1, 2)),
            _ => {
                let reads = random.chance(1, 2);
                self.peers.push(Peer { raw, until, reads, script: VecDeque::new() });
            }
        }
    }

    /// Some of them read, and some go.
    pub fn drive(&mut self, world: &mut SimWorld, everybody_goes: bool) {
        let now = world.now;
        self.peers.retain_mut(|peer| {
            if peer.reads {
                world.take_raw(peer.raw, usize::MAX);
            }
            while let Some((answer, _)) = peer.script.front()
                && world.receive_raw(peer.raw, *answer).is_some()
            {
                let (_, words) = peer.script.pop_front().expect("just seen");
                world.send_raw(peer.raw, &words);
            }
            let goes = everybody_goes || peer.until <= now;
            if goes && world.raw_end(peer.raw).is_none() {
                world.end_raw(peer.raw, false);
            }
            !goes
        });
    }
}

/// What such a peer says.
fn words(subsystem: &Nqn, random: &mut Random) -> Vec<Vec<u8>> {
    let digests = Digests { header: random.chance(1, 2), data: random.chance(1, 2) };
    let greeting = ICReq::new(digests, 0).emit().to_vec();
    match random.below(6) {
        0 => vec![noise(random)],
        1 => vec![damaged(greeting, random)],
        2 => vec![greeting, noise(random)],
        3 => vec![greeting, damaged(connect(subsystem, digests, 0, random), random)],
        4 => {
            // An I/O queue of a controller that is not there.
            let id = 0xf000 + random.below(0xf00) as u16;
            vec![greeting, connect(subsystem, digests, id, random)]
        }
        _ => {
            let mut all = vec![greeting, connect(subsystem, digests, 0, random)];
            for id in 0..1 + random.below(40) as u16 {
                let pdu = admin_command(id + 2, digests, random);
                all.push(if random.chance(1, 8) { damaged(pdu, random) } else { pdu });
            }
            all
        }
    }
}

/// An admin queue that is brought up as it should be, then a log that fills the network, and then
/// questions and questions.
fn flood(subsystem: &Nqn, random: &mut Random) -> VecDeque<(usize, Vec<u8>)> {
    let digests = Digests { header: random.chance(1, 2), data: random.chance(1, 2) };
    let subsystem = if random.chance(1, 2) { subsystem.clone() } else { Nqn::discovery() };
    let log = |bytes| Command::get_log(LogId::SUPPORTED, 0, 0, bytes, true);
    let asked = match random.below(4) {
        0 => Command::identify(Cns(1), 0),
        // Every shard is asked for its part of it.
        2 => Command::get_log(LogId::SMART, 0, 0, 512, true),
        1 => log(4 << random.below(19)),
        _ => Command::keep_alive(),
    };
    let answer = CapsuleResponse::SIZE + if digests.header { Digests::SIZE } else { 0 };
    let mut script = VecDeque::from([
        (0, ICReq::new(digests, 0).emit().to_vec()),
        (ICResp::SIZE, connect(&subsystem, digests, 0, random)),
        (answer, nvme::capsule(nvme::configure(true, 0), &[], digests)),
        (answer, nvme::capsule(log(1 << 20), &[], digests)),
    ]);
    for _ in 0..random.below(100) {
        let count = 1 + random.below(40);
        script.push_back((0, nvme::capsule(asked, &[], digests).repeat(count as usize)));
    }
    script
}

fn noise(random: &mut Random) -> Vec<u8> {
    let length = 1 + random.below(4096);
    (0..length).map(|_| random.next_u64() as u8).collect()
}

/// With some bytes changed, or cut short.
fn damaged(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    if random.chance(1, 3) {
        bytes.truncate(1 + random.below(bytes.len() as u64 - 1) as usize);
        return bytes;
    }
    for _ in 0..1 + random.below(4) {
        // Mostly in the headers.
        let most = if random.chance(3, 4) { bytes.len().min(72) } else { bytes.len() };
        let at = random.below(most as u64) as usize;
        bytes[at] = random.next_u64() as u8;
    }
    bytes
}

/// Connect of an admin queue, or (`controller` not 0) of an I/O queue.
fn connect(subsystem: &Nqn, digests: Digests, controller: u16, random: &mut Random) -> Vec<u8> {
    let sq_size = if random.chance(1, 2) { 31 } else { 127 };
    let keep_alive_ms = if random.chance(1, 2) { 1_000 } else { 0 };
    let connect = nvme::connect(u16::from(controller != 0), keep_alive_ms);
    let connect = Connect { sq_size, ..connect };
    let data = ConnectData {
        host_id: [0x66; 16],
        controller_id: if controller == 0 { ConnectData::CONTROLLER_ANY } else { controller },
        subsystem: subsystem.clone(),
        host: Some(Nqn::new("nqn.2026-11.net.plateway:nobody").expect("a valid name")),
    };
    nvme::capsule(Command::connect(&connect).with_command_id(1), &data.emit(), digests)
}

/// Any command of an admin queue: some that exist, and some that do not.
fn admin_command(id: u16, digests: Digests, random: &mut Random) -> Vec<u8> {
    let (a, b) = (random.next_u64(), random.next_u64());
    let command = match random.below(7) {
        0 => Command::identify(Cns(a as u8), b as u32 % 4),
        1 => Command::property_set(Register::CC.0, a as u32),
        2 => Command::property_get(a as u32 % 128, b.is_multiple_of(2)),
        3 => Command::abort(a as u16 % 4, b as u16 % 64),
        4 => Command::get_features(a as u8, b as u32 % 3, 4096),
        5 => Command::async_event_request(),
        _ => {
            let mut bytes = [0; 64];
            bytes.fill_with(|| random.next_u64() as u8);
            Command(bytes)
        }
    };
    nvme::capsule(command.with_command_id(id), &[], digests)
}
