//! The runtime on both engines: disks of files, delays, limits, listeners that go, buffers that
//! come back.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::ShardId;
use block::limits::PAGES_PER_TRANSFER;
use contract::{ConnectionId, DiskId, ListenerId, Poll};
use reactor::disk::{Disk, Instrument, Model, OpenSpec};
use reactor::memory::Arena;
use reactor::{Config, ConnectionLimits, Handle, ListenOptions, ShardStats};
use tempfile::TempDir;
use testkit::suite::{Command, Note, Part, Report, Step, Then};

use common::{HANG, on_each_engine, two_shards, wait_for_rest};

const FIRST: ListenerId = ListenerId(1);

struct Bench {
    handle: Handle<Note>,
    arena: Arc<Arena>,
}

/// Runs a test on each engine that works here.
fn on_each(config: &Config, test: impl Fn(Bench)) {
    on_each_engine(|driver| {
        let (handle, arena) = common::start(&Config { driver, ..config.clone() });
        test(Bench { handle, arena });
    });
}

impl Bench {
    fn listen(&self, options: ListenOptions) -> SocketAddr {
        self.handle.listen("127.0.0.1:0".parse().unwrap(), FIRST, options).unwrap()
    }

    fn connect(&self, address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    }

    fn accepted(&self) -> (ShardId, ConnectionId) {
        match self.report() {
            (shard, Report::Accepted(id)) => (shard, id),
            other => panic!("expected Accepted, saw {other:?}"),
        }
    }

    /// A peer of a new listener.
    fn peer(&self, options: ListenOptions) -> (TcpStream, ShardId, ConnectionId) {
        let peer = self.connect(self.listen(options));
        let (shard, id) = self.accepted();
        (peer, shard, id)
    }

    /// What a peer sends is shown as it is.
    fn is_shown(&self, peer: &mut TcpStream, at: (ShardId, ConnectionId), bytes: &[u8]) {
        peer.write_all(bytes).unwrap();
        assert_eq!(self.report(), (at.0, Report::Shown(at.1, bytes.to_vec())));
    }

    /// So many peers of a new listener on one shard, of which nothing has come yet: quiet ones.
    fn quiet_peers(&self, count: usize) -> Vec<(TcpStream, (ShardId, ConnectionId))> {
        let address = self.listen(ListenOptions { poll: Poll::Never, ..Default::default() });
        (0..count).map(|_| (self.connect(address), self.accepted())).collect()
    }

    /// System calls with which the shard takes in a byte of each peer, one after the other.
    fn calls_for_a_byte_each(&self, peers: &mut [(TcpStream, (ShardId, ConnectionId))]) -> u64 {
        // What accepting them leaves to do is done.
        self.command(ShardId(0), Command::Ping(0));
        assert_eq!(self.report(), (ShardId(0), Report::Pong(0)));
        let before = self.handle.stats()[0].system_calls;
        for (peer, at) in peers {
            self.is_shown(peer, *at, b"x");
        }
        self.handle.stats()[0].system_calls - before
    }

    fn report(&self) -> (ShardId, Report) {
        common::report(&self.handle)
    }

    fn command(&self, shard: ShardId, command: Command) {
        self.handle.send(shard, Note::Command(command));
    }

    fn open(&self, id: u32, spec: &OpenSpec) -> Arc<Disk> {
        let disk = Arc::new(Disk::open(spec, &self.arena).unwrap());
        self.handle.add_disk(DiskId(id), &disk, Poll::Auto);
        disk
    }

    fn blocks(&self, shard: ShardId, disk: u32, count: u32) {
        self.command(shard, Command::Blocks(DiskId(disk), count));
        assert_eq!(self.report(), (shard, Report::Blocks(count)));
        self.command(shard, Command::CountLent);
        assert_eq!(self.report(), (shard, Report::Lent(0)));
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&[ShardStats]) -> bool) {
        let begin = Instant::now();
        while !condition(&self.handle.stats()) {
            assert!(begin.elapsed() < HANG, "no {what}: {:#?}", self.handle.stats());
            std::thread::yield_now();
        }
    }
}

/// A file of a test's own, in its directory.
fn file(directory: &TempDir) -> OpenSpec {
    OpenSpec::File {
        path: directory.path().join("disk"),
        create: Some(1 << 20),
        tail: reactor::disk::Tail::Refuse,
    }
}

#[test]
fn files_answer_each_request_once() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&two_shards(), |bench| {
        let _disk = bench.open(1, &file(&directory));
        bench.blocks(ShardId(0), 1, 500);
        bench.blocks(ShardId(1), 1, 100);
        let stats = bench.handle.stats();
        assert_eq!(stats[0].disk_works, 1000, "a write and a read for each block");
    });
}

#[test]
fn a_delay_is_not_cut_short() {
    on_each(&two_shards(), |bench| {
        let inner = Box::new(OpenSpec::Ram { bytes: 1 << 20 });
        let _disk = bench.open(
            1,
            &OpenSpec::Instrumented { instrument: Instrument::Delay { us: 2_000 }, inner },
        );
        let begin = Instant::now();
        bench.blocks(ShardId(1), 1, 10);
        // Writes, then reads: twice the delay.
        assert!(begin.elapsed() >= Duration::from_millis(4), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_modelled_disk_never_answers_before_its_model_and_all_shards_share_it() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Model { service_us: 1_000, ..Model::PLAIN };
    on_each(&two_shards(), |bench| {
        let ram = || OpenSpec::Ram { bytes: 1 << 20 };
        for (id, inner) in [(1, ram()), (2, file(&directory))] {
            let instrument = Instrument::Model(slow);
            let inner = Box::new(inner);
            let _disk = bench.open(id, &OpenSpec::Instrumented { instrument, inner });
            let begin = Instant::now();
            for shard in [0, 1] {
                bench.command(ShardId(shard), Command::Blocks(DiskId(id), 10));
            }
            let both = [bench.report(), bench.report()].map(|(_, report)| report);
            assert_eq!(both, [Report::Blocks(10), Report::Blocks(10)]);
            // Of each shard ten writes and ten reads, one at a time for both.
            assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
        }
    });
}

#[test]
fn memory_is_cleared_over_many_turns() {
    const SIZE: u64 = 64 << 20;
    // Each page once, whatever the ranges, and no more of them in a turn than a transfer has.
    let turns_min = SIZE / 4096 / u64::from(PAGES_PER_TRANSFER);
    on_each(&two_shards(), |bench| {
        let ram = || OpenSpec::Ram { bytes: SIZE };
        let _disk = bench.open(1, &ram());
        let _delayed = bench.open(
            2,
            &OpenSpec::Instrumented {
                instrument: Instrument::Delay { us: 1 },
                inner: Box::new(ram()),
            },
        );
        for disk in [1, 2] {
            bench.blocks(ShardId(0), disk, 500);
            let turns = || bench.handle.stats()[0].turns;
            let before = turns();
            bench.command(ShardId(0), Command::Discard(DiskId(disk), SIZE));
            assert_eq!(bench.report(), (ShardId(0), Report::Discarded(DiskId(disk), true)));
            let took = turns() - before;
            assert!(took >= turns_min, "{took} turns of at least {turns_min}");
        }
        // It is forgotten behind what it has to clear.
        bench.command(ShardId(0), Command::Discard(DiskId(1), SIZE));
        bench.command(ShardId(0), Command::Ping(1));
        let first = bench.report();
        assert!(bench.handle.remove_disk(DiskId(1), HANG));
        for report in [first, bench.report()] {
            let expected = [Report::Pong(1), Report::Discarded(DiskId(1), true)];
            assert!(expected.contains(&report.1), "{report:?}");
        }
        // What is left to clear keeps nobody from stopping.
        bench.command(ShardId(0), Command::Discard(DiskId(2), SIZE));
        bench.handle.stop();
    });
}

#[test]
fn a_disk_is_looked_for_as_was_said_last_and_one_that_is_gone_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&two_shards(), |bench| {
        let _disk = bench.open(1, &file(&directory));
        let looks = || bench.handle.stats()[0].looks;
        for disk in [1, 1, 99] {
            bench.handle.poll_disk(DiskId(disk), Poll::Never);
        }
        bench.blocks(ShardId(0), 1, 50);
        assert_eq!(looks(), 0);
        bench.handle.poll_disk(DiskId(1), Poll::Fixed(10_000));
        let begin = Instant::now();
        // What the page cache has may be there before anybody looks.
        while looks() == 0 {
            bench.blocks(ShardId(0), 1, 50);
            assert!(begin.elapsed() < HANG, "a disk is not looked for");
        }
        assert!(bench.handle.remove_disk(DiskId(1), HANG));
        bench.handle.poll_disk(DiskId(1), Poll::Fixed(10_000));
        bench.command(ShardId(0), Command::Blocks(DiskId(1), 1));
        assert_eq!(bench.report(), (ShardId(0), Report::Blocks(0)));
    });
}

#[test]
fn a_removed_disk_is_closed_and_refuses() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&two_shards(), |bench| {
        let disk = bench.open(1, &file(&directory));
        bench.blocks(ShardId(0), 1, 50);
        assert!(bench.handle.remove_disk(DiskId(1), HANG));
        assert_eq!(Arc::strong_count(&disk), 1, "no shard holds it any more");
        bench.command(ShardId(0), Command::Blocks(DiskId(1), 1));
        assert_eq!(bench.report(), (ShardId(0), Report::Blocks(0)));
        drop(disk);
        // Its lock is gone with it.
        let _again = bench.open(2, &file(&directory));
    });
}

#[test]
fn connections_beyond_a_limit_are_closed_and_counted() {
    let connections = ConnectionLimits { total: 100, per_host: 3 };
    let config = Config { connections, ..two_shards() };
    on_each(&config, |bench| {
        let address = bench.listen(ListenOptions::default());
        let mut kept: Vec<_> = (0..3).map(|_| bench.connect(address)).collect();
        let ids: Vec<_> = (0..3).map(|_| bench.accepted()).collect();
        let mut refused = bench.connect(address);
        // Closed at once: the end of the stream, or a reset.
        assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
        bench.wait_for("refusal", |stats| stats[0].refused == 1);
        // A place that is given up is given again.
        let (shard, connection) = ids[1];
        bench.command(shard, Command::Close { connection, after_send: false });
        assert_eq!(bench.report(), (shard, Report::Closed(connection, false, false)));
        kept.push(bench.connect(address));
        bench.accepted();
    });
}

#[test]
fn connections_are_dealt_out_to_all_shards() {
    on_each(&two_shards(), |bench| {
        let address = bench.listen(ListenOptions::default());
        let _kept: Vec<_> = (0..6).map(|_| bench.connect(address)).collect();
        let shards: Vec<_> = (0..6).map(|_| bench.accepted().0).collect();
        assert_eq!(shards.iter().filter(|shard| shard.0 == 0).count(), 3, "{shards:?}");
    });
}

#[test]
fn a_listener_that_went_accepts_no_more_and_keeps_its_connections() {
    on_each(&two_shards(), |bench| {
        // An address that no other test uses, so that nobody takes the port in between.
        let any = "127.77.0.1:0".parse().unwrap();
        let address = bench.handle.listen(any, FIRST, ListenOptions::default()).unwrap();
        let mut kept = bench.connect(address);
        let (shard, id) = bench.accepted();
        bench.handle.unlisten(FIRST);
        let again = bench.handle.listen(address, FIRST, ListenOptions::default());
        assert!(again.is_ok(), "the port is free again: {again:?}");
        bench.command(shard, Command::Send(id, vec![Part::Head(b"still".to_vec())]));
        let mut bytes = [0; 5];
        kept.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"still");
    });
}

#[test]
fn a_listener_that_changes_keeps_its_socket_and_grants_what_is_new() {
    let few = ListenOptions { max_connections: 2, poll: Poll::Never };
    on_each(&two_shards(), |bench| {
        let address = bench.listen(few);
        let mut peers = vec![bench.connect(address), bench.connect(address)];
        let mut ids = vec![bench.accepted(), bench.accepted()];
        let mut refused = bench.connect(address);
        assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
        let more = ListenOptions { max_connections: 3, poll: Poll::Fixed(100_000) };
        bench.handle.change_listener(FIRST, more);
        peers.push(bench.connect(address));
        ids.push(bench.accepted());
        bench.handle.change_listener(ListenerId(77), few);
        // Those that were there before spin as well, on either shard: seen by the looks of the one
        // engine that counts them.
        if bench.handle.choice().kind != reactor::EngineKind::Epoll {
            return;
        }
        for (peer, (shard, id)) in peers.iter_mut().zip(ids) {
            let calls = || bench.handle.stats()[shard.index()].system_calls;
            let (begin, before) = (Instant::now(), calls());
            for messages in 1.. {
                bench.is_shown(peer, (shard, id), b"x");
                // Not to wait for something, but to give it the time in which it may spin.
                std::thread::sleep(Duration::from_millis(2));
                if calls() - before > 100 * messages {
                    break;
                }
                assert!(begin.elapsed() < HANG, "a connection does not spin");
            }
        }
    });
}

#[test]
fn looking_is_counted_and_never_is_never() {
    for poll in [Poll::Fixed(5_000), Poll::Never] {
        on_each(&two_shards(), |bench| {
            let (mut peer, shard, id) =
                bench.peer(ListenOptions { poll, ..ListenOptions::default() });
            let begin = Instant::now();
            for round in 0.. {
                bench.is_shown(&mut peer, (shard, id), b"x");
                let stats = bench.handle.stats()[shard.index()];
                if poll == Poll::Never {
                    assert_eq!((stats.looks, stats.looked_ns), (0, 0));
                    if round > 500 {
                        break;
                    }
                } else if stats.looks_paid > 20 {
                    assert!(stats.looks >= stats.looks_paid && stats.looked_ns > 0, "{stats:?}");
                    // Whoever asked for a fixed time gets it.
                    assert_eq!(stats.looks_stopped, 0);
                    break;
                }
                assert!(begin.elapsed() < HANG, "{stats:?}");
            }
        });
    }
}

#[test]
fn a_silent_connection_gives_its_receive_buffer_back() {
    on_each(&two_shards(), |bench| {
        let (mut peer, shard, id) = bench.peer(ListenOptions::default());
        for message in [b"1", b"2"] {
            bench.is_shown(&mut peer, (shard, id), message);
            bench.wait_for("free buffer", |stats| stats[shard.index()].receive_buffers == 0);
        }
    });
}

#[test]
fn what_a_quiet_connection_says_is_taken_in_by_the_system_call_that_waited_for_it() {
    const PEERS: usize = 200;
    on_each(&Config::default(), |bench| {
        let mut peers = bench.quiet_peers(PEERS);
        let calls = bench.calls_for_a_byte_each(&mut peers);
        if bench.handle.choice().kind == reactor::EngineKind::Uring {
            // More than are lent at once, so none is forgotten. The margin is for turns in which
            // memory is given back.
            assert!(calls < PEERS as u64 * 5 / 4, "{calls} for {PEERS}");
        }
    });
}

/// Held while shards are to be held up.
static GATE: Mutex<()> = Mutex::new(());

#[test]
fn more_quiet_connections_speak_at_once_than_buffers_are_lent() {
    on_each(&Config::default(), |bench| {
        let mut peers = bench.quiet_peers(300);
        // All has come before the shard looks.
        let gate = GATE.lock().unwrap();
        bench.command(ShardId(0), Command::Call(|| drop(GATE.lock().unwrap())));
        for (number, (peer, _)) in peers.iter_mut().enumerate() {
            peer.write_all(format!("{number:03}").as_bytes()).unwrap();
        }
        drop(gate);
        let mut shown: Vec<_> = peers.iter().map(|_| bench.report()).collect();
        let mut sent: Vec<_> = (0..)
            .zip(&peers)
            .map(|(number, (_, (shard, id)))| {
                (*shard, Report::Shown(*id, format!("{number:03}").into_bytes()))
            })
            .collect();
        let slot = |report: &(ShardId, Report)| match report.1 {
            Report::Shown(id, _) => id.slot,
            _ => panic!("expected Shown, saw {report:?}"),
        };
        shown.sort_by_key(slot);
        sent.sort_by_key(slot);
        assert_eq!(shown, sent);
    });
}

#[test]
fn what_does_not_fit_into_a_lent_buffer_follows_what_did() {
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    // In one piece, or cut where a message ends within the buffer, at its end and behind it.
    for first in [0, 1, 2047, 2048, 2049, 30_000] {
        on_each(&Config::default(), |bench| {
            let (mut peer, (shard, id)) = bench.quiet_peers(1).remove(0);
            let whole = Then::Stream(bytes.len() as u32 - first as u32, u32::MAX);
            let begin =
                Step { consume: Some(0), then: Then::Stream(first.max(1) as u32, u32::MAX) };
            let rest = Step { consume: Some(first), then: whole };
            bench.command(shard, Command::Script(id, vec![begin, rest]));
            bench.command(shard, Command::Ping(1));
            assert_eq!(bench.report(), (shard, Report::Pong(1)));
            peer.write_all(&bytes).unwrap();
            let shown = || match bench.report() {
                (at, Report::Shown(whose, shown)) if (at, whose) == (shard, id) => shown,
                other => panic!("expected Shown, saw {other:?}"),
            };
            let begun = shown();
            assert!(bytes.starts_with(&begun));
            let begun = shown();
            assert!(begun.len() >= first && bytes.starts_with(&begun));
            assert!(shown() == bytes[first..]);
        });
    }
}

#[test]
fn a_quiet_connection_is_closed_while_something_comes() {
    const PEERS: usize = 100;
    on_each(&Config::default(), |bench| {
        for after_send in [false, true] {
            let mut peers = bench.quiet_peers(PEERS);
            let gate = GATE.lock().unwrap();
            bench.command(ShardId(0), Command::Call(|| drop(GATE.lock().unwrap())));
            for (peer, (shard, connection)) in &mut peers {
                bench.command(*shard, Command::Close { connection: *connection, after_send });
                peer.write_all(b"too late").unwrap();
                peer.shutdown(std::net::Shutdown::Write).unwrap();
            }
            drop(gate);
            let closed = |report: &(ShardId, Report)| matches!(report.1, Report::Closed(..));
            let mut left = PEERS;
            while left > 0 {
                // What came before the close may be shown, and its end be told.
                left -= usize::from(closed(&bench.report()));
            }
            bench.handle.unlisten(FIRST);
        }
        // Nothing of what was lent is missing: as above.
        let mut peers = bench.quiet_peers(PEERS);
        let calls = bench.calls_for_a_byte_each(&mut peers);
        if bench.handle.choice().kind == reactor::EngineKind::Uring {
            assert!(calls < PEERS as u64 * 5 / 4, "{calls} for {PEERS}");
        }
    });
}

#[test]
fn connections_that_stall_do_not_stop_others() {
    // One large and 21 small buffers for 60 connections that stop in the middle of a message.
    let config = Config { receive_buffers: 1, ..Config::default() };
    on_each(&config, |bench| {
        let address = bench.listen(ListenOptions::default());
        let mut stalled = Vec::new();
        for _ in 0..60 {
            let mut peer = bench.connect(address);
            let (shard, id) = bench.accepted();
            let wait = Step { consume: Some(0), then: Then::Stream(1000, u32::MAX) };
            bench.command(shard, Command::Script(id, vec![wait]));
            bench.command(shard, Command::Ping(1));
            assert_eq!(bench.report(), (shard, Report::Pong(1)));
            peer.write_all(b"begun").unwrap();
            stalled.push((peer, id));
            // Shown, maybe after the wait for a buffer.
            assert!(matches!(bench.report(), (_, Report::Shown(_, _))));
        }
        let mut lively = bench.connect(address);
        let (shard, id) = bench.accepted();
        for _ in 0..20 {
            bench.is_shown(&mut lively, (shard, id), b"x");
        }
        // What was begun goes on where it stopped.
        for (peer, id) in &mut stalled {
            peer.write_all(&[b'y'; 995]).unwrap();
            let mut whole = b"begun".to_vec();
            whole.extend([b'y'; 995]);
            assert_eq!(bench.report(), (shard, Report::Shown(*id, whole)));
        }
    });
}

#[test]
fn payloads_that_stall_keep_no_receive_buffer_from_others() {
    // One large and 21 small buffers for 60 connections whose payloads stop in the middle or have not
    // begun, some of which are received together with what is to follow them.
    let config = Config { receive_buffers: 1, ..Config::default() };
    on_each(&config, |bench| {
        let address = bench.listen(ListenOptions::default());
        let payload = Step { consume: Some(1), then: Then::Payload { length: 20_000, phase: 0 } };
        let mut stalled = Vec::new();
        for number in 0..60 {
            let mut peer = bench.connect(address);
            let (shard, id) = bench.accepted();
            bench.command(shard, Command::Script(id, vec![payload.clone()]));
            bench.command(shard, Command::Ping(1));
            assert_eq!(bench.report(), (shard, Report::Pong(1)));
            peer.write_all(b"h").unwrap();
            // Shown, maybe after the wait for a buffer.
            assert!(matches!(bench.report(), (_, Report::Shown(_, _))));
            let begun = if number % 2 == 0 { 10_000 } else { 0 };
            peer.write_all(&vec![b'y'; begun]).unwrap();
            stalled.push((peer, id, 20_001 - begun));
        }
        let mut lively = bench.connect(address);
        let (shard, id) = bench.accepted();
        for _ in 0..20 {
            bench.is_shown(&mut lively, (shard, id), b"x");
        }
        bench.wait_for("free buffers", |stats| stats[shard.index()].receive_buffers == 0);
        for (peer, id, left) in &mut stalled {
            peer.write_all(&vec![b'y'; *left]).unwrap();
            let whole = vec![b'y'; 20_000];
            assert_eq!(bench.report(), (shard, Report::Payload(*id, whole)));
            assert_eq!(bench.report(), (shard, Report::Shown(*id, b"y".to_vec())));
        }
    });
}

#[test]
fn an_idle_reactor_sleeps_without_turns() {
    on_each(&two_shards(), |bench| {
        let options = ListenOptions { poll: Poll::Fixed(100), ..ListenOptions::default() };
        let (mut peer, shard, id) = bench.peer(options);
        bench.is_shown(&mut peer, (shard, id), b"x");
        // After some seconds of giving memory back.
        wait_for_rest(&bench.handle);
    });
}

#[test]
fn stopping_closes_what_is_open_and_out() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&two_shards(), |bench| {
        let _disk = bench.open(1, &file(&directory));
        let (mut peer, shard, id) = bench.peer(ListenOptions::default());
        let endless = vec![Part::Data(vec![7; 1 << 20], 64)];
        bench.command(shard, Command::Send(id, endless));
        bench.command(shard, Command::Blocks(DiskId(1), 100));
        peer.read_exact(&mut [0; 10]).unwrap();
        bench.handle.stop();
        let mut rest = Vec::new();
        // What had left arrives, then the end or a reset: the socket is closed.
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.len() < 64 << 20);
    });
}
