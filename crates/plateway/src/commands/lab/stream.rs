//! `plateway lab stream`: TCP between two ends of a path, for the network alone, as iperf looks at it.
//!
//! ```text
//!   source, a thread a job, a connection each  -- hello, blocks ->  sink, a thread a connection   (write)
//!                                              -- hello ->  <- blocks --                          (read)
//! ```
//! The *sink* takes what comes and looks at none of it, or sends until nobody takes it any more. The
//! *source* counts blocks: one is done when the kernel has taken all of it, or has given all of it. It
//! measures as `plateway bench --steady` does and prints the same figures. A hello is 16 bytes, big-endian: eight
//! that say what it is, the bytes of a block, which way blocks go, and three zeros. Units: bytes,
//! nanoseconds. Errors: a far end that is not there, that is none of ours, or by which nothing went for
//! ten seconds.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::load::WindowLatencies;
use lab::plan::{Cell, Load};
use lab::report::LastWindows;
use serde_json::json;
use testbed::{Server, process};

use super::far::{Place, START, pause};
use super::trial::tell;
use super::{list, program};
use crate::cli::{LabSinkArgs, LabStreamArgs};
use crate::commands::print_json;
use crate::commands::session::Interrupt;
use crate::commands::settling::Settling;

/// Where the lab has its sink listen.
pub(super) const PORT: u16 = 5201;

const MAGIC: [u8; 8] = *b"PLWYSTRM";
const HELLO_BYTES: usize = 16;
const BLOCK_MIN: u32 = 512;
const BLOCK_MAX: u32 = 16 << 20;
/// Connections at a time: what one plan asks for at most.
const CONNECTIONS_MAX: usize = 128;
/// How long a connection, a hello, and a block may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the sink is called.
pub(super) const SINK: &str = "plateway lab sink";
/// What it says once it listens.
const LISTENS: &str = "listening at";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    block_bytes: u32,
    /// Whether the sink sends.
    is_read: bool,
}

impl Hello {
    fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[12] = if self.is_read { 2 } else { 1 };
        bytes
    }

    fn parse(bytes: [u8; HELLO_BYTES]) -> Result<Hello, String> {
        let (magic, rest) = bytes.split_at(8);
        if magic != MAGIC {
            return Err(format!("expected a hello of plateway lab stream, seen {magic:02x?}"));
        }
        let block_bytes = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        if !(BLOCK_MIN..=BLOCK_MAX).contains(&block_bytes) {
            return Err(format!(
                "expected blocks of {BLOCK_MIN} to {BLOCK_MAX} bytes, seen {block_bytes}"
            ));
        }
        match rest[4..] {
            [1, 0, 0, 0] => Ok(Hello { block_bytes, is_read: false }),
            [2, 0, 0, 0] => Ok(Hello { block_bytes, is_read: true }),
            _ => Err(format!("expected a way of 1 or 2 and zeros, seen {:02x?}", &rest[4..])),
        }
    }
}

/// Takes what comes, or sends what is asked for, until it is ended.
pub(super) fn sink(args: &LabSinkArgs) -> miette::Result<()> {
    let told = |error: std::io::Error| miette::miette!("cannot listen at {}: {error}", args.listen);
    let listener = TcpListener::bind(args.listen).map_err(told)?;
    eprintln!("{LISTENS} {}", listener.local_addr().map_err(told)?);
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            // One that has gone again, or too many files: others may come.
            Err(error) => {
                eprintln!("cannot accept a connection: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if connections.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Relaxed);
            eprintln!("{from}: refused, since there are {CONNECTIONS_MAX} connections already");
            continue;
        }
        let count = connections.clone();
        let serve = move || {
            if let Err(why) = serve_one(stream) {
                eprintln!("{from}: {why}");
            }
            count.fetch_sub(1, Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().spawn(serve) {
            connections.fetch_sub(1, Relaxed);
            eprintln!("{from}: cannot start a thread: {error}");
        }
    }
}

/// Serves a connection until its other end closes it.
fn serve_one(mut stream: TcpStream) -> Result<(), String> {
    let tell = |error: std::io::Error| format!("{error}");
    stream.set_read_timeout(Some(PATIENCE)).map_err(tell)?;
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).map_err(|error| format!("expected a hello, seen {error}"))?;
    let hello = Hello::parse(hello)?;
    // From here on it ends with its other end, however long that is silent.
    stream.set_read_timeout(None).map_err(tell)?;
    let mut block = vec![0x5a; hello.block_bytes as usize];
    loop {
        let moved = match hello.is_read {
            true => stream.write(&block),
            false => stream.read(&mut block),
        };
        match moved {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It has what it wanted.
            Err(error) if is_closed(&error) => return Ok(()),
            Err(error) => return Err(tell(error)),
        }
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// What a job has moved.
#[derive(Default)]
struct Moved {
    blocks: AtomicU64,
    latencies: Mutex<WindowLatencies>,
    /// Why it goes on no more.
    trouble: Mutex<Option<String>>,
}

/// Sends or takes blocks until that is steady, and prints what it came to.
pub(super) fn source(args: &LabStreamArgs) -> miette::Result<()> {
    let is_read = match args.rw.as_str() {
        "read" => true,
        "write" => false,
        other => return Err(miette::miette!("--rw: expected read or write, seen {other:?}")),
    };
    let hello = Hello { block_bytes: args.bs, is_read };
    let mut jobs = Vec::new();
    for _ in 0..args.numjobs {
        let stream =
            connect(args.to, hello).map_err(|why| miette::miette!("{}: {why}", args.to))?;
        let moved = Arc::new(Moved::default());
        jobs.push(moved.clone());
        std::thread::Builder::new()
            .spawn(move || {
                let why = moved.go_on(stream, hello);
                *moved.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            })
            .map_err(|error| miette::miette!("cannot start a thread: {error}"))?;
    }
    let settling = watch(&jobs, args.warmup, args.steady)?;
    let mut latencies = WindowLatencies::default();
    for job in &jobs {
        latencies.add(&job.latencies());
    }
    let last = LastWindows::of_one_kind(&latencies.last(), is_read);
    print_json(&json!({
        "client": "plateway lab stream",
        "disk": format!("tcp://{}", args.to),
        "pattern": args.rw,
        "block_bytes": args.bs,
        "queue_depth": 1,
        "jobs": args.numjobs,
        "closed_or_open_loop": "closed",
        "steady": settling.report(last),
    }))
}

/// Looks at each window until they are steady, or there were enough.
fn watch(jobs: &[Arc<Moved>], warm_up: Duration, window: Duration) -> miette::Result<Settling> {
    /// So soon somebody who does not go on is seen.
    const LOOK: Duration = Duration::from_millis(5);
    let (start, mut settling) = (Instant::now(), Settling::new(window));
    let mut heard = (start, 0);
    loop {
        let trouble = jobs.iter().find_map(|job| job.trouble());
        trouble.map_or(Ok(()), |why| Err(miette::miette!("{why}")))?;
        let now = Instant::now();
        let blocks = jobs.iter().map(|job| job.blocks.load(Relaxed)).sum();
        if blocks > heard.1 {
            heard = (now, blocks);
        } else if now - heard.0 > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(miette::miette!("no block went over for {seconds} s"));
        }
        let begun = settling.windows();
        if now - start >= warm_up {
            settling.begin(now, blocks);
        }
        let is_over = settling.is_over(now, blocks);
        if settling.windows() > begun {
            jobs.iter().for_each(|job| job.latencies().begin(settling.windows() as u64));
        }
        if is_over {
            return Ok(settling);
        }
        std::thread::sleep(LOOK);
    }
}

fn connect(to: SocketAddr, hello: Hello) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.write_all(&hello.encode())?;
    Ok(stream)
}

impl Moved {
    fn latencies(&self) -> std::sync::MutexGuard<'_, WindowLatencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves block after block; why it did not go on.
    fn go_on(&self, mut stream: TcpStream, hello: Hello) -> String {
        let mut block = vec![0xa5; hello.block_bytes as usize];
        loop {
            let begin = Instant::now();
            let moved = match hello.is_read {
                true => stream.read_exact(&mut block),
                false => stream.write_all(&block),
            };
            if let Err(error) = moved {
                return format!("the stream broke: {error}");
            }
            let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.latencies().count(nanoseconds);
            self.blocks.fetch_add(1, Relaxed);
        }
    }
}

/// Starts a sink at the far end, and waits until it listens.
pub(super) fn start(
    place: &Place<'_>,
    home: &std::path::Path,
    interrupt: &Interrupt,
) -> miette::Result<Server> {
    let mut command = process::command(place.at, &list(place.cpus), &program()?);
    command.args(["lab", "sink", &address(place.address).to_string()]);
    let server = Server::start(command, &home.join("sink.log")).map_err(tell)?;
    let end = Instant::now() + START;
    while !server.words().contains(LISTENS) {
        server.is_up(SINK).map_err(tell)?;
        if Instant::now() > end {
            return Err(miette::miette!("{SINK} does not listen: {}", server.words()));
        }
        pause(interrupt)?;
    }
    Ok(server)
}

/// Where the sink is, at an address of the far end's.
pub(super) fn address(far: IpAddr) -> SocketAddr {
    SocketAddr::from((far, PORT))
}

/// The load of a cell, as the source is asked for it.
pub(super) fn asked(cell: &Cell, to: &str) -> Vec<String> {
    let Load { block_bytes, pattern, jobs, .. } = cell.load;
    let words = ["lab", "stream", to, "--bs"].map(str::to_owned);
    let rest = [block_bytes.to_string(), "--rw".to_owned(), pattern.to_string()];
    let jobs = ["--numjobs".to_owned(), jobs.to_string()];
    words.into_iter().chain(rest).chain(jobs).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HELLO: Hello = Hello { block_bytes: 4096, is_read: false };

    #[test]
    fn a_hello_is_read_as_it_is_written_and_anything_else_is_told() {
        for hello in [HELLO, Hello { block_bytes: BLOCK_MAX, is_read: true }] {
            assert_eq!(Hello::parse(hello.encode()), Ok(hello));
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = HELLO.encode();
            bytes[at] = byte;
            Hello::parse(bytes).unwrap_err()
        };
        assert!(with(0, b'G').contains("expected a hello"));
        assert!(
            with(8, 0xff).contains("expected blocks of 512 to 16777216 bytes, seen 4278194176")
        );
        assert!(with(12, 3).contains("expected a way of 1 or 2"));
        assert!(with(15, 1).contains("expected a way of 1 or 2"));
    }

    /// A sink for one connection, and what became of it.
    fn serve() -> (SocketAddr, std::thread::JoinHandle<Result<(), String>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        (at, std::thread::spawn(move || serve_one(listener.accept().unwrap().0)))
    }

    #[test]
    fn blocks_are_counted_both_ways_until_the_windows_are_steady_or_over() {
        for is_read in [false, true] {
            let (at, sink) = serve();
            let hello = Hello { is_read, ..HELLO };
            let stream = connect(at, hello).unwrap();
            let closes = stream.try_clone().unwrap();
            let moved = Arc::new(Moved::default());
            let of_thread = moved.clone();
            let thread = std::thread::spawn(move || of_thread.go_on(stream, hello));
            let (warm_up, window) = (Duration::from_millis(20), Duration::from_millis(20));
            let settling = watch(std::slice::from_ref(&moved), warm_up, window).unwrap();
            let last = moved.latencies().last();
            let counted = last.len();
            let report = settling.report(LastWindows::of_one_kind(&last, is_read));
            assert!(report.windows.len() >= 5 && report.iops > 0.0, "{report:?}");
            assert!(counted > 0 && counted <= moved.blocks.load(Relaxed));
            closes.shutdown(std::net::Shutdown::Both).unwrap();
            assert!(thread.join().unwrap().contains("the stream broke"));
            sink.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_stranger_and_a_far_end_that_goes_are_told() {
        let (at, sink) = serve();
        let mut stranger = TcpStream::connect(at).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(sink.join().unwrap().unwrap_err().contains("expected a hello"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let stream = connect(at, Hello { is_read: true, ..HELLO }).unwrap();
        drop(listener.accept().unwrap());
        drop(listener);
        let moved = Moved::default();
        *moved.trouble.lock().unwrap() =
            Some(moved.go_on(stream, Hello { is_read: true, ..HELLO }));
        let (none, window) = (Duration::ZERO, Duration::from_secs(1));
        let why = watch(&[Arc::new(moved)], none, window).err().unwrap().to_string();
        assert!(why.contains("the stream broke"), "{why}");
    }
}
