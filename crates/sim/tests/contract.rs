//! The driver contract, kept by the simulator: the scenes that io_uring and epoll are held to, in
//! virtual time.

use std::net::SocketAddr;

use block::{Random, ShardId};
use contract::{
    DiskId, EtherType, Instruction, Intake, LinkFacts, LinkId, ListenerId, Loss, Spread, Takes,
};
use sim::disk::{Behaviour, SimDisk};
use sim::ethernet::LinkFaults;
use sim::trace::Trace;
use sim::world::{Timing, World};
use testkit::suite::{self, Cable, Command, End, Harness, Note, Peer, PeerEnd, Report, Scripted};

const HOST: usize = 0;

struct Virtual {
    world: World<Scripted>,
    accepted: usize,
}

impl Virtual {
    fn new(seed: u64) -> Virtual {
        // Segments are as long as they may be: scenes count what is shown.
        let timing =
            Timing { network_us: 50, mail_us: 20, turn_us: 10, segment_max: 1 << 20, keep_us: 0 };
        let mut world = World::new(Random::new(seed), timing, Trace::new(false));
        world.cuts = false;
        world.add_host();
        world.start(HOST, vec![Scripted::new(), Scripted::new()]);
        let address: SocketAddr = ([10, 0, 0, 1], 4420).into();
        world.hosts[HOST].listeners = vec![(address, ListenerId(0))];
        world.raw_listener = Some(([10, 8, 8, 8], 1).into());
        let leases = seed.is_multiple_of(2);
        let behaviour = Behaviour { latency_us: 300, leases, ..Behaviour::default() };
        world.hosts[HOST].disks.insert(DiskId(0), SimDisk::new(2 << 20, behaviour));
        Virtual { world, accepted: 0 }
    }

    fn until<R>(&mut self, check: impl FnMut(&mut World<Scripted>) -> Option<R>) -> R {
        until(&mut self.world, check)
    }
}

fn until<R>(
    world: &mut World<Scripted>,
    mut check: impl FnMut(&mut World<Scripted>) -> Option<R>,
) -> R {
    loop {
        if let Some(found) = check(world) {
            return found;
        }
        assert!(world.step().is_some(), "nothing happens any more");
    }
}

fn next_report(world: &mut World<Scripted>) -> (ShardId, Report) {
    until(world, |world| match world.hosts[HOST].control.pop_front() {
        Some((from, Note::Report(report))) => Some((from, report)),
        Some((_, other)) => panic!("a machine wrote {other:?}"),
        None => None,
    })
}

impl Harness for Virtual {
    fn connect(&mut self) -> Peer {
        Peer(self.world.connect_raw(HOST))
    }

    fn refusing_address(&mut self) -> SocketAddr {
        ([10, 7, 7, 7], 9).into()
    }

    fn listening_address(&mut self) -> SocketAddr {
        self.accepted = self.world.raw_peers();
        self.world.raw_listener.expect("set at the start")
    }

    fn accept(&mut self) -> Peer {
        let before = self.accepted;
        self.until(|world| (world.raw_peers() > before).then_some(()));
        self.accepted += 1;
        Peer(before)
    }

    fn send(&mut self, peer: Peer, bytes: &[u8]) {
        self.world.send_raw(peer.0, bytes);
    }

    fn receive(&mut self, peer: Peer, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            let missing = count - all.len();
            all.extend(self.until(|world| world.receive_raw(peer.0, missing)));
        }
        all
    }

    fn receive_end(&mut self, peer: Peer) -> PeerEnd {
        let (left, loss) = self.until(|world| world.raw_end(peer.0));
        assert!(left == 0 || loss != Loss::EndOfStream, "{left} bytes come before the end");
        self.drain(peer)
    }

    fn drain(&mut self, peer: Peer) -> PeerEnd {
        match self.until(|world| world.raw_end(peer.0)).1 {
            Loss::EndOfStream => PeerEnd::EndOfStream,
            Loss::Error(_) => PeerEnd::Reset,
        }
    }

    fn finish(&mut self, peer: Peer) {
        self.world.end_raw(peer.0, false);
    }

    fn reset(&mut self, peer: Peer) {
        self.world.end_raw(peer.0, true);
    }

    fn disk(&mut self) -> DiskId {
        DiskId(0)
    }

    fn command(&mut self, to: ShardId, command: Command) {
        self.world.order(HOST, to.index(), Note::Command(command));
    }

    fn report(&mut self) -> (ShardId, Report) {
        next_report(&mut self.world)
    }
}

#[test]
fn the_simulator_keeps_the_contract() {
    for seed in 0..20 {
        suite::run(|| Virtual::new(seed));
    }
}

/// Two links of one host, on an Ethernet that loses, repeats and reorders.
struct Wire(World<Scripted>);

impl Wire {
    const MTUS: [u32; 2] = [1500, 9000];

    fn facts(link: u32) -> LinkFacts {
        let mtu = Wire::MTUS[link as usize];
        LinkFacts {
            mac: [2, 0, 0, 0, 0, link as u8],
            mtu,
            vlan: None,
            ring_frames: 64,
            is_shared: true,
        }
    }

    fn new(seed: u64) -> Wire {
        let timing =
            Timing { network_us: 50, mail_us: 20, turn_us: 10, segment_max: 1 << 20, keep_us: 0 };
        let mut world = World::new(Random::new(seed), timing, Trace::new(false));
        world.ethernet.faults = LinkFaults {
            lost: 100,
            repeated: 100,
            held: 100,
            hold_ms: 20,
            wire_us: 100,
            reorders: seed.is_multiple_of(2),
        };
        world.add_host();
        for link in 0..2 {
            let all = vec![Instruction::ret(u32::MAX)];
            let spread = Spread::One(ShardId(link as u16), all);
            let intake = Intake { takes: Takes::Type(EtherType(0x88b5)), spread };
            world.plug(HOST, LinkId(link), 0, Wire::facts(link), intake);
        }
        world.start(HOST, vec![Scripted::new(), Scripted::new()]);
        Wire(world)
    }
}

impl Cable for Wire {
    fn ends(&mut self) -> [End; 2] {
        for _ in 0..2 {
            let (shard, report) = self.report();
            let link = u32::from(shard.0);
            assert_eq!(report, Report::LinkUp(LinkId(link), Wire::facts(link)));
        }
        [0, 1].map(|link| End {
            shard: ShardId(link as u16),
            link: LinkId(link),
            facts: Wire::facts(link),
        })
    }

    fn command(&mut self, to: ShardId, command: Command) {
        self.0.order(HOST, to.index(), Note::Command(command));
    }

    fn report(&mut self) -> (ShardId, Report) {
        next_report(&mut self.0)
    }
}

#[test]
fn the_simulator_keeps_the_contract_of_links() {
    for seed in 0..20 {
        suite::run_cable(|| Wire::new(seed));
    }
}
