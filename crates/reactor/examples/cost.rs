//! What an operation costs: system calls, bytes copied, allocations and processor time of a shard
//! that answers requests of 72 bytes with 4 KiB from a RAM disk, as an NVMe/TCP target would, to a
//! client in the same process.
//!
//! `cargo run --release -p reactor --example cost -- [auto|io_uring|epoll] [DEPTH] [read|write] [CONNECTIONS]`
//!
//! Printed: operations a second, and per operation the shard's system calls, receives, sends, bytes
//! moved between receive buffers, allocations of the shard's thread, and its processor time in
//! nanoseconds. The client shares the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use block::{Buffer, Extent, MachineId, Memory, Operation, Request, ShardId, Ticket};
use contract::{
    Ask, ConnectionId, Counters, DiskId, Effect, Event, ListenerId, Machine, Next, Receive,
    SendBatch,
};
use reactor::disk::{Disk, OpenSpec};
use reactor::memory::Arena;
use reactor::{Config, ListenOptions, Reactor};

/// Counts the allocations of threads that ask for it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: usize = 4096;
const REQUEST: usize = 72;
const REPLY: usize = 24;
const DISK_BYTES: u64 = 256 << 20;

/// A connection of the machine: two batches that take turns.
#[derive(Default)]
struct Served {
    filling: SendBatch,
    spare: Option<SendBatch>,
    out: bool,
}

/// Reads and writes blocks; nothing else.
#[derive(Default)]
struct Blocks {
    served: Vec<Option<(ConnectionId, Served)>>,
    touched: Vec<u32>,
    asks: Vec<Ask>,
    effects: VecDeque<Effect<()>>,
}

impl Blocks {
    fn served(&mut self, slot: u32) -> &mut Served {
        &mut self.served[slot as usize].as_mut().expect("it was accepted").1
    }
}

impl Machine for Blocks {
    type Mail = ();

    fn handle_event(&mut self, _: block::Instant, event: Event<()>, memory: &mut dyn Memory) {
        match event {
            Event::Accepted { connection, .. } => {
                let at = connection.slot as usize;
                if self.served.len() <= at {
                    self.served.resize_with(at + 1, || None);
                }
                self.served[at] = Some((connection, Served::default()));
            }
            Event::Completed(done) => {
                let slot = done.ticket.machine.0;
                let read = done.ticket.generation == 0;
                let served = self.served(slot);
                if read {
                    let length = done.buffer.len();
                    served.filling.push_head(&[0; REPLY]);
                    let index = served.filling.push_buffer(done.buffer);
                    served.filling.push_data(index, 0, length);
                } else {
                    memory.release(done.buffer);
                }
                served.filling.push_head(&[1; REPLY]);
                if self.touched.last() != Some(&slot) {
                    self.touched.push(slot);
                }
            }
            Event::Sent { connection, mut batch } => {
                for buffer in batch.buffers.drain(..) {
                    memory.release(buffer);
                }
                batch.clear();
                let served = self.served(connection.slot);
                served.spare = Some(batch);
                served.out = false;
                self.touched.push(connection.slot);
            }
            Event::Lost { connection, .. } => {
                self.effects.push_back(Effect::Close { connection, after_send: false });
            }
            _ => {}
        }
    }

    fn handle_received(
        &mut self,
        _: block::Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        COUNTED.set(true);
        let mut at = 0;
        while bytes.len() - at >= REQUEST {
            let write = bytes[at] == 1;
            let length = if write { REQUEST + BLOCK } else { REQUEST };
            if bytes.len() - at < length {
                break;
            }
            let number = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("eight"));
            let extent = Extent::new(number % (DISK_BYTES / BLOCK as u64) * BLOCK as u64, 4096);
            let mut buffer = Buffer::reserved(BLOCK as u32, 0);
            let operation = if write {
                memory.write(&mut buffer, 0, &bytes[at + REQUEST..at + length]);
                Operation::Write { extent, buffer, durable: false }
            } else {
                Operation::Read { extent, buffer }
            };
            let machine = MachineId(connection.slot);
            let generation = u32::from(write);
            let ticket = Ticket { machine, generation, slot: 0, shard: ShardId(0) };
            let request = Request { ticket, operation };
            self.asks.push((DiskId(0), request));
            at += length;
        }
        Receive { consumed: at, next: Next::Stream { at_least: 1, at_most: u32::MAX } }
            .with_least(bytes.len() - at)
    }

    fn settle(&mut self, _: block::Instant, _: &mut dyn Memory) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let (connection, served) = self.served[slot as usize].as_mut().expect("accepted");
            if !served.out && !served.filling.is_empty() {
                let next = served.spare.take().unwrap_or_default();
                let batch = std::mem::replace(&mut served.filling, next);
                served.out = true;
                let connection = *connection;
                self.effects.push_back(Effect::Send { connection, batch });
            }
        }
        self.touched = touched;
    }

    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        asks.append(&mut self.asks);
    }

    fn poll_effect(&mut self) -> Option<Effect<()>> {
        self.effects.pop_front()
    }
}

trait WithLeast {
    fn with_least(self, left: usize) -> Self;
}

impl WithLeast for Receive {
    fn with_least(self, left: usize) -> Receive {
        let next = Next::Stream { at_least: left as u32 + 1, at_most: u32::MAX };
        Receive { next, ..self }
    }
}

/// One connection at a fixed depth; returns when the time is over, with its operations.
fn client(address: std::net::SocketAddr, depth: usize, write: bool, end: Instant) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the reactor listens");
    stream.set_nodelay(true).expect("a socket option");
    let length = if write { REQUEST + BLOCK } else { REQUEST };
    let answer = if write { REPLY } else { REPLY + BLOCK + REPLY };
    let mut requests = vec![0; depth * length];
    let mut answers = vec![0; depth * answer];
    let (mut number, mut done, mut there) = (1u64, 0u64, 0);
    let mut free = depth;
    while Instant::now() < end {
        for request in requests[..free * length].chunks_mut(length) {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            request[0] = u8::from(write);
            request[8..16].copy_from_slice(&(number >> 16).to_le_bytes());
        }
        stream.write_all(&requests[..free * length]).expect("the reactor receives");
        there += stream.read(&mut answers[there..]).expect("the reactor answers");
        free = there / answer;
        there %= answer;
        done += free as u64;
    }
    done
}

fn thread_time(name: &str) -> u64 {
    std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|n| n.trim() == name)
        })
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or(default.into());
    let driver = word(0, "auto").parse().expect("auto, io_uring or epoll");
    let depth: usize = word(1, "32").parse().expect("a depth");
    let write = word(2, "read") == "write";
    let connections: usize = word(3, "1").parse().expect("a number of connections");
    let arena = Arc::new(Arena::new(1).expect("address space"));
    let cpu = reactor::allowed_cpus()[0];
    let config = Config { cpus: vec![Some(cpu)], driver, ..Config::default() };
    let handle = Reactor::start(&config, &arena, |_| Blocks::default()).expect("a reactor");
    println!("{}; socket buffers bounded to {:?}", handle.choice().reason, reactor::buffer_bound());
    let disk = Arc::new(Disk::open(&OpenSpec::Ram { bytes: DISK_BYTES }, &arena).expect("a disk"));
    handle.add_disk(DiskId(0), &disk);
    let any = "127.0.0.1:0".parse().expect("an address");
    let address = handle.listen(any, ListenerId(0), ListenOptions::default()).expect("a port");
    let run = |time: Duration| -> u64 {
        let end = Instant::now() + time;
        let threads: Vec<_> = (0..connections)
            .map(|_| std::thread::spawn(move || client(address, depth, write, end)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).sum()
    };
    run(Duration::from_millis(500));
    let before = (handle.stats()[0], ALLOCATIONS.load(Relaxed), thread_time("shard-0"));
    let begin = Instant::now();
    let operations = run(Duration::from_secs(2));
    let seconds = begin.elapsed().as_secs_f64();
    let after = (handle.stats()[0], ALLOCATIONS.load(Relaxed), thread_time("shard-0"));
    let did = after.0.since(&before.0);
    let each = |count: u64| count as f64 / operations as f64;
    println!(
        "{:.0} op/s; per op: {:.3} system calls, {:.3} turns, {:.3} receives, {:.3} sends, {:.0} bytes moved, \
         {:.3} allocations, {:.0} ns",
        operations as f64 / seconds,
        each(did.system_calls),
        each(did.turns),
        each(did.receives),
        each(did.sends),
        each(did.moved_bytes),
        each(after.1 - before.1),
        each(after.2 - before.2),
    );
}
