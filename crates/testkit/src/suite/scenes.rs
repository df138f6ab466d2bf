//! The scenes of the driver contract: each is one rule, named in [`SCENES`](super::SCENES).
//!
//! A scene knows nothing of speed: where it must show that something does not happen, it lets other
//! things happen on the same shard meanwhile, in which a wrong driver would do it.

use std::collections::BTreeMap;
use std::time::Duration;

use block::ShardId;

use super::{Command, Harness, Part, Peer, PeerEnd, Report, Step, Then};
use contract::{ConnectionId, DiskId, Loss};

/// A connection as both sides know it.
#[derive(Clone, Copy)]
struct Link {
    peer: Peer,
    shard: ShardId,
    id: ConnectionId,
}

fn connect_to(harness: &mut dyn Harness) -> Link {
    let peer = harness.connect();
    match harness.report() {
        (shard, Report::Accepted(id)) => Link { peer, shard, id },
        other => panic!("expected Accepted, saw {other:?}"),
    }
}

fn two_on_one_shard(harness: &mut dyn Harness) -> (Link, Link) {
    let first = connect_to(harness);
    // Whatever way connections are dealt out, a second one of the same shard comes at some time.
    for _ in 0..64 {
        let second = connect_to(harness);
        if second.shard == first.shard {
            return (first, second);
        }
    }
    panic!("65 connections and no two on one shard");
}

fn step(consume: Option<usize>, then: Then) -> Step {
    Step { consume, then }
}

/// Sends a command and waits until the machine has it.
fn command(harness: &mut dyn Harness, to: ShardId, command: Command) {
    harness.command(to, command);
    harness.command(to, Command::Ping(1));
    expect(harness, to, &Report::Pong(1));
}

fn expect(harness: &mut dyn Harness, shard: ShardId, expected: &Report) {
    let seen = harness.report();
    assert_eq!(seen, (shard, expected.clone()));
}

fn shown(harness: &mut dyn Harness, link: Link) -> Vec<u8> {
    match harness.report() {
        (shard, Report::Shown(id, bytes)) if (shard, id) == (link.shard, link.id) => bytes,
        other => panic!("expected bytes of {}, saw {other:?}", link.id),
    }
}

/// All bytes shown until there are `count`, where each showing consumes all.
fn shown_in_all(harness: &mut dyn Harness, link: Link, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(shown(harness, link));
    }
    all
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Closes a connection and checks that all buffers are back.
fn close(harness: &mut dyn Harness, link: Link, direct: bool, batch: bool) {
    let connection = link.id;
    harness.command(link.shard, Command::Close { connection, after_send: false });
    expect(harness, link.shard, &Report::Closed(connection, direct, batch));
    nothing_lent(harness, link.shard);
}

fn nothing_lent(harness: &mut dyn Harness, shard: ShardId) {
    harness.command(shard, Command::CountLent);
    expect(harness, shard, &Report::Lent(0));
}

pub(super) fn any_cut(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let bytes = pattern(100_000);
    let mut rest = &bytes[..];
    for size in [1, 2, 3, 24, 72, 8191, 40_000, usize::MAX] {
        let (piece, tail) = rest.split_at(size.min(rest.len()));
        harness.send(link.peer, piece);
        rest = tail;
    }
    assert!(shown_in_all(harness, link, bytes.len()) == bytes);
    close(harness, link, false, false);
}

pub(super) fn shown_again(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let steps = vec![step(Some(0), Then::Stream(10, u32::MAX)); 1];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"abc");
    let first = shown(harness, link);
    assert!(b"abcdefghij".starts_with(&first) && first.len() <= 3);
    harness.send(link.peer, b"defghij");
    assert_eq!(shown(harness, link), b"abcdefghij");
    // What is left counts towards what is waited for.
    let half =
        vec![step(Some(0), Then::Stream(8, u32::MAX)), step(Some(4), Then::Stream(9, u32::MAX))];
    command(harness, link.shard, Command::Script(link.id, half));
    harness.send(link.peer, b"0");
    assert_eq!(shown(harness, link), b"0");
    harness.send(link.peer, b"1234567");
    assert_eq!(shown(harness, link), b"01234567");
    harness.send(link.peer, b"89abc");
    assert_eq!(shown(harness, link), b"456789abc");
    close(harness, link, false, false);
}

pub(super) fn at_least(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let steps = vec![step(None, Then::Stream(50_000, u32::MAX))];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"x");
    assert_eq!(shown(harness, link), b"x");
    let bytes = pattern(60_000);
    for piece in bytes.chunks(7_000) {
        harness.send(link.peer, piece);
    }
    let first = shown(harness, link);
    assert!(first.len() >= 50_000 && bytes.starts_with(&first), "{}", first.len());
    let rest = shown_in_all(harness, link, bytes.len() - first.len());
    assert!(bytes[first.len()..] == rest);
    close(harness, link, false, false);
}

pub(super) fn at_most(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let steps = vec![step(None, Then::Stream(1, 10)); 11];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"x");
    assert_eq!(shown(harness, link), b"x");
    let bytes = pattern(100);
    harness.send(link.peer, &bytes);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let piece = shown(harness, link);
        assert!(piece.len() <= 10, "{} bytes at once", piece.len());
        seen.extend(piece);
    }
    let rest = bytes.len() - seen.len();
    seen.extend(shown_in_all(harness, link, rest));
    assert_eq!(seen, bytes);
    close(harness, link, false, false);
}

pub(super) fn idle(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let steps = vec![step(None, Then::Idle); 3];
    command(harness, link.shard, Command::Script(link.id, steps));
    for message in [b"1", b"2", b"3", b"4"] {
        harness.send(link.peer, message);
        assert_eq!(shown(harness, link), message);
    }
    close(harness, link, false, false);
}

pub(super) fn direct(harness: &mut dyn Harness) {
    let lengths = [(1, 0), (4096, 512), (100_000, 3584), (1 << 20, 512)];
    for (length, phase) in lengths {
        let link = connect_to(harness);
        let steps = vec![step(Some(1), Then::Payload { length, phase })];
        command(harness, link.shard, Command::Script(link.id, steps));
        let payload = pattern(length as usize);
        let mut bytes = vec![b'h'];
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(b"the next header");
        harness.send(link.peer, &bytes);
        let first = shown(harness, link);
        assert_eq!(first[0], b'h');
        // The payload is told before what comes behind it.
        match harness.report() {
            (_, Report::Payload(id, seen)) => assert!(id == link.id && seen == payload),
            other => panic!("expected the payload, saw {other:?}"),
        }
        // What was shown with the header beyond the payload is shown again, as not consumed.
        assert_eq!(shown_in_all(harness, link, 15), b"the next header");
        close(harness, link, false, false);
    }
}

/// Of payloads in a row some are there whole when they are asked for, and some come in pieces.
pub(super) fn payloads(harness: &mut dyn Harness) {
    const PAYLOADS: usize = 60;
    const LENGTH: u32 = 20_000;
    let link = connect_to(harness);
    let payload = Step { consume: Some(1), then: Then::Payload { length: LENGTH, phase: 512 } };
    command(harness, link.shard, Command::Script(link.id, vec![payload; PAYLOADS]));
    let payloads: Vec<Vec<u8>> = (0..PAYLOADS).map(|number| vec![number as u8; 20_000]).collect();
    let stream: Vec<u8> = payloads.iter().flat_map(|bytes| [&b"h"[..], bytes].concat()).collect();
    let (together, in_pieces) = stream.split_at(stream.len() / 2);
    let mut next = 0;
    for pieces in [together.chunks(4 * LENGTH as usize), in_pieces.chunks(7_000)] {
        for piece in pieces {
            harness.send(link.peer, piece);
            // What has come by now is taken in: the driver is not told everything at once.
            harness.command(link.shard, Command::Ping(2));
            loop {
                match harness.report() {
                    (_, Report::Pong(_)) => break,
                    (_, Report::Shown(id, bytes)) => assert!(id == link.id && bytes[0] == b'h'),
                    (_, Report::Payload(_, bytes)) => {
                        assert!(bytes == payloads[next], "payload {next} is another");
                        next += 1;
                    }
                    other => panic!("expected a payload, saw {other:?}"),
                }
            }
        }
    }
    while next < PAYLOADS {
        if let (_, Report::Payload(_, bytes)) = harness.report() {
            assert!(bytes == payloads[next], "payload {next} is another");
            next += 1;
        }
    }
    close(harness, link, false, false);
}

pub(super) fn yielding(harness: &mut dyn Harness) {
    let (a, b) = two_on_one_shard(harness);
    for link in [a, b] {
        let mut steps = vec![step(Some(0), Then::Stream(20, u32::MAX))];
        steps.push(step(Some(0), Then::Pause));
        steps.extend(vec![step(Some(1), Then::Yield); 19]);
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"a");
        assert_eq!(shown(harness, link), b"a");
        harness.send(link.peer, &[b'a'; 19]);
        assert_eq!(shown(harness, link).len(), 20);
    }
    harness.command(a.shard, Command::Resume(vec![a.id, b.id]));
    let mut order = Vec::new();
    for _ in 0..40 {
        match harness.report() {
            (_, Report::Shown(id, _)) => order.push(id),
            other => panic!("expected bytes, saw {other:?}"),
        }
    }
    for pair in order.chunks(2) {
        assert!(pair.contains(&a.id) && pair.contains(&b.id), "{order:?}");
    }
    close(harness, a, false, false);
    close(harness, b, false, false);
}

pub(super) fn pause(harness: &mut dyn Harness) {
    let (a, b) = two_on_one_shard(harness);
    let steps = vec![step(Some(1), Then::Pause)];
    command(harness, a.shard, Command::Script(a.id, steps));
    harness.send(a.peer, b"12");
    assert!(b"12".starts_with(&shown(harness, a)));
    harness.send(a.peer, b"345");
    for _ in 0..50 {
        // Each is a turn or more of the same shard, in which a driver that is wrong would show `a`.
        harness.send(b.peer, b"b");
        assert_eq!(shown(harness, b), b"b");
        harness.command(a.shard, Command::Ping(2));
        expect(harness, a.shard, &Report::Pong(2));
    }
    harness.command(a.shard, Command::Resume(vec![a.id]));
    assert_eq!(shown_in_all(harness, a, 4), b"2345");
    close(harness, a, false, false);
    close(harness, b, false, false);
}

pub(super) fn loss_while_paused(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let steps = vec![step(None, Then::Pause)];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"x");
    assert_eq!(shown(harness, link), b"x");
    harness.finish(link.peer);
    expect(harness, link.shard, &Report::Lost(link.id, Loss::EndOfStream));
    close(harness, link, false, false);
}

pub(super) fn batches(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    for round in 0..5 {
        let data = pattern(20_000 + round);
        let parts = vec![
            Part::Head(b"head".to_vec()),
            Part::Data(data.clone(), 3),
            Part::Head(vec![round as u8]),
        ];
        harness.command(link.shard, Command::Send(link.id, parts));
        let mut expected = b"head".to_vec();
        for _ in 0..3 {
            expected.extend_from_slice(&data);
        }
        expected.push(round as u8);
        assert!(harness.receive(link.peer, expected.len()) == expected);
        expect(harness, link.shard, &Report::Sent(link.id, expected.len() as u64));
        nothing_lent(harness, link.shard);
    }
    close(harness, link, false, false);
}

pub(super) fn many_segments(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    let data = pattern(5_000);
    // Zeros that take more vectors than one call does, too.
    let zeros = (5 << 20) + 1;
    let parts = vec![Part::Crumbs(data.clone()), Part::Zeros(zeros), Part::Head(b"end".to_vec())];
    harness.command(link.shard, Command::Send(link.id, parts));
    let mut expected: Vec<u8> = data.iter().flat_map(|byte| [0xff, *byte]).collect();
    expected.resize(expected.len() + zeros as usize, 0);
    expected.extend(b"end");
    assert!(harness.receive(link.peer, expected.len()) == expected);
    expect(harness, link.shard, &Report::Sent(link.id, expected.len() as u64));
    close(harness, link, false, false);
}

/// More than any transport holds: 64 MiB.
fn endless() -> Vec<Part> {
    vec![Part::Data(pattern(1 << 20), 64)]
}

/// Puts a batch out that cannot leave, since the peer does not read.
fn stuff(harness: &mut dyn Harness, link: Link) {
    command(harness, link.shard, Command::Send(link.id, endless()));
    // Some of it has left, so it is out.
    assert_eq!(harness.receive(link.peer, 5), pattern(5));
}

pub(super) fn close_with_batch(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    stuff(harness, link);
    close(harness, link, false, true);
    // What was cut off in the middle does not end as if it were whole, and nobody keeps the rest
    // for a peer that never reads.
    assert_eq!(harness.drain(link.peer), PeerEnd::Reset);
}

fn begin_direct(harness: &mut dyn Harness, link: Link) {
    let steps = vec![step(Some(1), Then::Payload { length: 8192, phase: 0 })];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"h12345");
    assert_eq!(shown(harness, link)[0], b'h');
}

pub(super) fn close_with_direct(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    begin_direct(harness, link);
    close(harness, link, true, false);
}

pub(super) fn close_with_both(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    begin_direct(harness, link);
    stuff(harness, link);
    close(harness, link, true, true);
}

pub(super) fn last_words(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    // Bytes that nobody reads any more: closing over them would send a reset.
    let steps = vec![step(None, Then::Pause)];
    command(harness, link.shard, Command::Script(link.id, steps));
    harness.send(link.peer, b"x");
    assert_eq!(shown(harness, link), b"x");
    harness.send(link.peer, &pattern(5_000));
    let words = pattern(200_000);
    harness.command(link.shard, Command::Send(link.id, vec![Part::Data(words.clone(), 1)]));
    let connection = link.id;
    harness.command(link.shard, Command::Close { connection, after_send: true });
    assert!(harness.receive(link.peer, words.len()) == words);
    assert_eq!(harness.receive_end(link.peer), PeerEnd::EndOfStream);
    expect(harness, link.shard, &Report::Sent(link.id, words.len() as u64));
    harness.finish(link.peer);
    expect(harness, link.shard, &Report::Closed(link.id, false, false));
    nothing_lent(harness, link.shard);
}

pub(super) fn end_of_stream(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    harness.send(link.peer, b"bye");
    assert_eq!(shown_in_all(harness, link, 3), b"bye");
    harness.finish(link.peer);
    expect(harness, link.shard, &Report::Lost(link.id, Loss::EndOfStream));
    // Told once: what follows is the answer to a ping, then the close.
    harness.command(link.shard, Command::Ping(3));
    expect(harness, link.shard, &Report::Pong(3));
    close(harness, link, false, false);
}

pub(super) fn reset(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    harness.send(link.peer, b"x");
    assert_eq!(shown(harness, link), b"x");
    harness.reset(link.peer);
    match harness.report() {
        (_, Report::Lost(id, Loss::Error(error))) => assert!(id == link.id && error > 0),
        other => panic!("expected a loss with an error, saw {other:?}"),
    }
    close(harness, link, false, false);
}

pub(super) fn loss_with_batch(harness: &mut dyn Harness) {
    let link = connect_to(harness);
    stuff(harness, link);
    harness.reset(link.peer);
    match harness.report() {
        (_, Report::Lost(id, _)) => assert_eq!(id, link.id),
        other => panic!("expected a loss, saw {other:?}"),
    }
    close(harness, link, false, true);
}

pub(super) fn connect(harness: &mut dyn Harness) {
    let address = harness.listening_address();
    let shard = ShardId(0);
    harness.command(shard, Command::Connect(address, 77));
    let peer = harness.accept();
    let id = match harness.report() {
        (_, Report::Connected(77, id)) => id,
        other => panic!("expected Connected, saw {other:?}"),
    };
    let link = Link { peer, shard, id };
    harness.send(peer, b"hello");
    assert_eq!(shown_in_all(harness, link, 5), b"hello");
    harness.command(shard, Command::Send(id, vec![Part::Head(b"hi".to_vec())]));
    assert_eq!(harness.receive(peer, 2), b"hi");
    expect(harness, shard, &Report::Sent(id, 2));
    close(harness, link, false, false);
}

pub(super) fn connect_refused(harness: &mut dyn Harness) {
    let address = harness.refusing_address();
    harness.command(ShardId(0), Command::Connect(address, 5));
    expect(harness, ShardId(0), &Report::ConnectFailed(5));
}

pub(super) fn timeout(harness: &mut dyn Harness) {
    for micros in [0, 1, 150, 3_000, 20_000] {
        harness.command(ShardId(1), Command::Timer(Duration::from_micros(micros)));
        expect(harness, ShardId(1), &Report::TimedOut(false));
    }
}

pub(super) fn blocks(harness: &mut dyn Harness) {
    let disk = harness.disk();
    harness.command(ShardId(0), Command::Blocks(disk, 1000));
    expect(harness, ShardId(0), &Report::Blocks(1000));
    nothing_lent(harness, ShardId(0));
}

pub(super) fn no_disk(harness: &mut dyn Harness) {
    harness.command(ShardId(0), Command::Blocks(DiskId(999), 3));
    expect(harness, ShardId(0), &Report::Blocks(0));
    nothing_lent(harness, ShardId(0));
}

pub(super) fn mail(harness: &mut dyn Harness) {
    harness.command(ShardId(0), Command::Numbers(ShardId(1), 1000));
    harness.command(ShardId(1), Command::Numbers(ShardId(0), 1000));
    harness.command(ShardId(1), Command::Numbers(ShardId(1), 10));
    let mut next = BTreeMap::new();
    for _ in 0..2010 {
        match harness.report() {
            (to, Report::Number(from, number)) => {
                let expected = next.entry((from, to)).or_insert(0);
                assert_eq!(number, *expected, "from {} to {}", from.0, to.0);
                *expected += 1;
            }
            other => panic!("expected a number, saw {other:?}"),
        }
    }
    assert_eq!(next.len(), 3);
}
