//! Memory under many peers: every legal size and depth completes within the budget, and peers that
//! keep what they hold do not keep the others from theirs. Judged by what is answered and in which
//! order, never by how long it takes.

#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::thread;

use client::{BLOCK, Batch, Controller, ENTRIES, Kind, Queue};
use common::Server;
use serde_json::Value;

/// Most commands outstanding on a queue.
const FULL: u16 = ENTRIES - 1;
/// The largest transfer (MDTS).
const LARGEST: usize = 1 << 20;
/// The most that a capsule carries.
const IN_CAPSULE: usize = 8 << 10;

/// The default budget, on one shard: the first processor that this process may use.
fn serve(directory: &std::path::Path, disk: &str) -> (Server, SocketAddr) {
    let status = fs::read_to_string("/proc/self/status").expect("of Linux");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = allowed.expect("of Linux").trim();
    let first = list.split([',', '-']).next().expect("at least one");
    let server = Server::start(
        directory,
        "server",
        &[disk, "--memory", "256MiB", "--nvme", "127.0.0.1:0", "--hosts", "any", "--shards", first],
    );
    let address = server.address.parse().expect("an address");
    (server, address)
}

/// `length` bytes whose blocks all differ, from each other and from those with another stamp.
fn pattern(length: usize, stamp: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
        block.fill(number as u8 ^ stamp as u8);
        block[..8].copy_from_slice(&stamp.to_le_bytes());
        block[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

fn number(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer}"))
}

/// Waits until nothing is lent out; checks that the budget was kept and nothing was refused or
/// closed.
fn settle(server: &Server) -> Value {
    let idle = |status: &Value| number(status, "/memory/pool_used_bytes") == 0;
    let status = server.wait_for("an empty pool", idle);
    let budget = number(&status, "/memory/budget_bytes");
    assert_eq!(budget, 256 << 20);
    assert!(number(&status, "/memory/pool_bytes") <= budget, "{status:#}");
    assert!(number(&status, "/memory/pool_used_max_bytes") <= budget, "{status:#}");
    status
}

#[test]
fn every_size_and_depth_on_64_connections_fits_the_budget() {
    let directory = tempfile::tempdir().expect("a directory");
    let (server, address) = serve(directory.path(), "ram:64MiB");
    let controllers: Vec<_> = (0..4).map(|host| Controller::connect(address, host, 16)).collect();
    let mut queues: Vec<Queue> = (0..64_u16)
        .map(|one| controllers[usize::from(one % 4)].queue(one / 4 + 1, one % 8 < 4))
        .collect();

    // Depth 1 with each size, and as deep as a queue goes where the data stay few enough for a
    // test.
    let rounds = [
        (BLOCK, 1),
        (LARGEST, 1),
        (BLOCK, FULL),
        (4096, FULL),
        (IN_CAPSULE, FULL),
        (64 << 10, 128),
        (LARGEST, 8),
    ];
    for (round, (size, depth)) in rounds.into_iter().enumerate() {
        thread::scope(|scope| {
            for (place, queue) in queues.iter_mut().enumerate() {
                scope.spawn(move || {
                    // Each connection writes a mebibyte of its own, half of them by R2T what would
                    // fit into capsules.
                    let first = place * LARGEST / BLOCK;
                    let pattern = pattern(LARGEST, (round << 8 | place) as u64);
                    let asked = size > IN_CAPSULE || place % 2 == 0;
                    let kind = if asked { Kind::Asked } else { Kind::Capsule };
                    // One queue is full of the largest beside the others.
                    let depth = if depth > 1 && place == 0 { FULL } else { depth };
                    let written = (size * usize::from(depth)).min(LARGEST) / size * size;
                    let pattern = &pattern[..written];
                    queue.run(Batch { kind, size, depth }, first, pattern);
                    queue.run(Batch { kind: Kind::Read, size, depth }, first, pattern);
                });
            }
        });
    }

    let status = settle(&server);
    assert_eq!(status["connections"].as_array().map(Vec::len), Some(68), "{status:#}");
    for counter in ["/misbehaved", "/refused", "/memory/waiting"] {
        assert_eq!(number(&status, counter), 0, "{counter}: {status:#}");
    }
    for controller in status["controllers"].as_array().expect("a list") {
        assert_eq!(number(controller, "/errors"), 0, "{status:#}");
    }
    // The process itself: the budget, the disk and 32 MiB beside them.
    let process = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let process = fs::read_to_string(process).expect("of Linux");
    if let Some(most) = process.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        let most: u64 = most.trim_end_matches("kB").trim().parse().expect("a number");
        assert!(most <= (256 + 64 + 32) << 10, "{most} KiB resident");
    }
    drop((controllers, queues));
}

#[test]
fn sixty_four_peers_that_never_send_or_read_leave_room_for_the_next() {
    // Data of a file pass through the pool; those of memory do not on their way out.
    for disk in ["ram:64MiB", "file:disk?create=64MiB"] {
        let directory = tempfile::tempdir().expect("a directory");
        let (server, address) = serve(directory.path(), disk);
        // The target closes a peer that takes nothing for a while. A try that lasted so long shows
        // nothing, and is repeated.
        let shown = (0..5).any(|_| room_beside_hogs(&server, address));
        assert!(shown, "with {disk} the 65th was never done before the others were closed");
    }
}

/// Whether all peers that never read were still connected when the one that reads and writes was
/// done.
fn room_beside_hogs(server: &Server, address: SocketAddr) -> bool {
    let region = vec![0; 16 * LARGEST];
    let hogs: Vec<_> = (0..32).map(|host| Controller::connect(address, host, 1)).collect();
    let mut queues: Vec<Queue> = hogs.iter().map(|hog| hog.queue(1, false)).collect();
    for queue in &mut queues {
        // 128 MiB: far more than both sockets hold.
        queue.submit(Batch { kind: Kind::Read, size: 128 << 10, depth: FULL }, 0, &region);
    }
    let connect = |_| TcpStream::connect(address).expect("the server listens");
    let silent: Vec<TcpStream> = (0..32).map(connect).collect();
    // All have what they can get, and wait for more; or one is closed already, which ends this try
    // below.
    let waits = |status: &Value| {
        number(status, "/memory/waiting") == 32 || !queues.iter().all(|hog| connected(status, hog))
    };
    server.wait_for("hogs that wait", waits);

    let next = Controller::connect(address, 64, 1);
    let mut queue = next.queue(1, false);
    let first = 32 * LARGEST / BLOCK;
    for (stamp, size) in [4096, LARGEST].into_iter().enumerate() {
        let pattern = pattern(4 * size, stamp as u64);
        for kind in [Kind::Capsule, Kind::Asked] {
            if kind == Kind::Capsule && size > IN_CAPSULE {
                continue;
            }
            queue.run(Batch { kind, size, depth: 4 }, first, &pattern);
            queue.run(Batch { kind: Kind::Read, size, depth: 4 }, first, &pattern);
        }
    }

    let status = server.status();
    assert!(connected(&status, &queue), "the 65th is not in {status:#}");
    let all = queues.iter().all(|hog| connected(&status, hog));
    drop((queues, hogs, silent, queue, next));
    settle(server);
    all
}

/// Whether the server still holds a queue's connection.
fn connected(status: &Value, queue: &Queue) -> bool {
    let connections = status["connections"].as_array().expect("a list");
    connections.iter().any(|one| one["peer"] == queue.name().as_str())
}
