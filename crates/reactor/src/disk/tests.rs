//! Rules of opening, locking, facts and instruments.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{
    Buffer, ByteCount, Completion, DiskId, Extent, Failure, Memory, Operation, Outcome, Request,
    Ticket,
};
use contract::Cache;
use rustix::fs::{FileType, Mode};
use tempfile::TempDir;

mod cut;

use super::burn::thread_time;
use super::probe::Probe;
use super::*;
use crate::memory::{Arena, ShardMemory};

/// A directory of a test's own, removed with it.
pub(super) struct Directory(TempDir);

impl Directory {
    /// One on the file system of the build, which mostly allows direct access, and one in memory,
    /// which does not, where there are such.
    pub(super) fn everywhere() -> Vec<Directory> {
        let build = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
        let parents = [Some(std::env::temp_dir()), build, Some("/dev/shm".into())];
        let parents = parents.into_iter().flatten();
        let directories: Vec<_> =
            parents.filter_map(|path| TempDir::new_in(path).ok()).map(Directory).collect();
        assert!(!directories.is_empty(), "there is no directory to write to");
        directories
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

pub(super) fn memory() -> ShardMemory {
    ShardMemory::new(&Arc::new(Arena::new(1).unwrap()), 4096).unwrap()
}

fn file_spec(path: &Path, create: Option<u64>) -> OpenSpec {
    OpenSpec::File { path: path.into(), create, tail: Tail::Refuse }
}

/// A clock that stands.
fn at_the_origin() -> Instant {
    Instant::ZERO
}

/// Submits a request and makes its calls.
pub(super) fn ask(disk: &Disk, memory: &mut ShardMemory, operation: Operation) -> Completion {
    let request = Request { ticket: Ticket::default(), operation };
    match disk.submit(memory, at_the_origin, request) {
        Submitted::Done(completion) | Submitted::Later { completion, .. } => completion,
        Submitted::Clearing(mut clearing) => {
            while !disk.clear_some(memory, &mut clearing) {}
            clearing.finish().0
        }
        Submitted::Work(mut work) => {
            work.run();
            work.finish().completion
        }
    }
}

pub(super) fn open(memory: &ShardMemory, spec: &OpenSpec) -> Disk {
    Disk::open(spec, memory.arena()).unwrap()
}

/// Runs a test on each file system, with a path where nothing is.
fn everywhere(test: impl Fn(&ShardMemory, &Path)) {
    let memory = memory();
    for directory in Directory::everywhere() {
        test(&memory, &directory.file("a.img"));
    }
}

/// Why a disk cannot be opened.
fn refusal_of(memory: &ShardMemory, spec: &OpenSpec) -> OpenError {
    Disk::open(spec, memory.arena()).unwrap_err()
}

#[test]
fn a_created_file_is_sparse_and_found_again() {
    everywhere(|memory, path| {
        let size = 1 << 30;
        let disk = open(memory, &file_spec(path, Some(size)));
        let facts = disk.facts();
        assert_eq!(facts.size, ByteCount(size));
        assert_eq!(facts.cache, Cache::Volatile);
        assert!(!facts.read_only && facts.physical_block >= facts.logical_block);
        assert!([512, 4096].contains(&facts.logical_block), "{facts:?}");
        assert_eq!(disk.fd().is_some(), disk.access().is_some());
        drop(disk);
        assert_eq!(open(memory, &file_spec(path, Some(size))).facts(), facts);
        assert_eq!(open(memory, &file_spec(path, None)).facts(), facts);
    });
}

#[test]
fn create_makes_a_file_and_changes_none() {
    everywhere(|memory, path| {
        drop(open(memory, &file_spec(path, Some(1 << 20))));
        for (other, advice) in [(1 << 19, "leave create out"), (1 << 21, "truncate -s 2097152 /")] {
            let error = refusal_of(memory, &file_spec(path, Some(other)));
            assert!(
                matches!(error, OpenError::OtherSize { expected, seen: 0x10_0000, .. } if expected == other),
                "{error}"
            );
            assert!(error.to_string().contains(advice), "{error}");
            assert_eq!(fs::metadata(path).unwrap().len(), 1 << 20);
        }
        // Not even one of which nothing is left.
        fs::write(path, []).unwrap();
        let error = refusal_of(memory, &file_spec(path, Some(1 << 20)));
        assert!(matches!(error, OpenError::BadSize { bytes: 0, .. }), "{error}");
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
    });
}

#[test]
fn a_disk_as_it_is_makes_nothing() {
    let memory = memory();
    let directory = Directory::everywhere().remove(0);
    let path = directory.file("a.img");
    let inner = Box::new(file_spec(&path, Some(1 << 20)));
    let spec = OpenSpec::Instrumented {
        instrument: Instrument::Delay { us: 1 },
        inner: Box::new(OpenSpec::Instrumented {
            instrument: Instrument::Faulty { seed: 1 },
            inner,
        }),
    };
    assert!(Disk::open(&spec.clone().as_it_is(), memory.arena()).is_err());
    assert!(!path.exists());
    drop(open(&memory, &spec));
    open(&memory, &spec.as_it_is());
}

#[test]
fn a_file_that_cannot_have_its_size_is_not_left_behind() {
    everywhere(|memory, path| {
        let huge = file_spec(path, Some(i64::MAX as u64 / 512 * 512 + 512));
        let error = refusal_of(memory, &huge);
        assert!(error.to_string().contains("make it as large as asked"), "{error}");
        assert!(!path.exists());
    });
}

#[test]
fn a_file_that_may_not_be_made_is_told_so_and_not_that_it_is_missing() {
    // Nobody makes files there, not even root.
    let path = Path::new("/sys/plateway-test.img");
    if !Path::new("/sys/dev").is_dir() {
        eprintln!("skipped: there is no /sys");
        return;
    }
    let memory = memory();
    match refusal_of(&memory, &file_spec(path, Some(1 << 20))) {
        OpenError::System { source, .. } => {
            assert_ne!(source.kind(), std::io::ErrorKind::NotFound, "{source}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn two_servers_never_share_a_file() {
    everywhere(|memory, path| {
        let first = open(memory, &file_spec(path, Some(1 << 20)));
        let error = refusal_of(memory, &file_spec(path, None));
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        // Nor does the second one change it before it notices.
        let error = refusal_of(memory, &file_spec(path, Some(1 << 21)));
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        assert_eq!(first.refresh().unwrap().size, ByteCount(1 << 20));
        drop(first);
        open(memory, &file_spec(path, None));
    });
}

#[test]
fn what_is_no_disk_is_refused_with_what_was_seen() {
    let memory = memory();
    for directory in Directory::everywhere() {
        let refused = |spec: OpenSpec| refusal_of(&memory, &spec);
        let absent = refused(file_spec(&directory.file("absent"), None));
        assert!(matches!(absent, OpenError::System { .. }), "{absent}");
        let itself = refused(file_spec(&directory.file(""), None));
        assert!(matches!(itself, OpenError::Kind { seen: "a directory", .. }), "{itself}");
        let device = refused(file_spec(Path::new("/dev/null"), None));
        assert!(matches!(device, OpenError::Kind { .. }), "{device}");
        // It has no writer, for whom nobody waits.
        let pipe = directory.file("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let probed = Probe::file(&pipe, Tail::Refuse).expect_err("a pipe is no disk");
        assert!(matches!(probed, OpenError::Kind { .. }), "{probed}");
        let plain = directory.file("plain");
        fs::write(&plain, [1; 4096]).unwrap();
        let plain = refused(OpenSpec::BlockDevice { path: plain });
        assert!(matches!(plain, OpenError::Kind { expected: "a block device", .. }), "{plain}");
        let empty = directory.file("empty");
        fs::write(&empty, []).unwrap();
        let empty = refused(file_spec(&empty, None));
        assert!(matches!(empty, OpenError::BadSize { bytes: 0, .. }), "{empty}");
        let odd = refused(file_spec(&directory.file("odd"), Some(1000)));
        assert!(matches!(odd, OpenError::BadSize { bytes: 1000, .. }), "{odd}");
        assert!(!directory.file("odd").exists(), "made before its size was checked");
    }
}

#[test]
fn a_file_that_ends_within_a_block_is_refused() {
    everywhere(|memory, path| {
        for size in [100, 3 * 4096 + 100, 3 * 4096 - 1] {
            fs::write(path, vec![1; size]).unwrap();
            let error = refusal_of(memory, &file_spec(path, None));
            assert!(
                matches!(error, OpenError::Ragged { seen, .. } if seen == size as u64),
                "{error}"
            );
            let told = error.to_string();
            assert!(told.contains(&format!("seen {size}")) && told.contains("truncate"), "{told}");
            assert_eq!(fs::metadata(path).unwrap().len(), size as u64);
        }
        fs::write(path, vec![1; 3 * 4096 + 100]).unwrap();
        assert_eq!(Probe::file(path, Tail::Ignore).unwrap().tail(), 100);
    });
}

#[test]
fn a_size_that_changes_is_seen_on_refresh_in_whole_blocks() {
    everywhere(|memory, path| {
        fs::write(path, vec![1; 3 * 4096]).unwrap();
        let disk = open(memory, &file_spec(path, None));
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(disk.size_now().unwrap(), ByteCount(1 << 20));
        assert_eq!(disk.facts().size, ByteCount(3 * 4096), "a look is no refresh");
        assert_eq!(disk.refresh().unwrap().size, ByteCount(1 << 20));
        file.set_len((1 << 21) + 100).unwrap();
        assert_eq!(disk.refresh().unwrap().size, ByteCount(1 << 21));
    });
}

#[test]
fn memory_lends_what_it_has_and_instruments_and_other_disks_have_to_be_asked() {
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut memory = ShardMemory::new(&arena, 64).unwrap();
    let ram = OpenSpec::Ram { bytes: 8192 };
    let delayed = OpenSpec::Instrumented {
        instrument: Instrument::Delay { us: 1 },
        inner: Box::new(ram.clone()),
    };
    for (number, spec) in [ram, delayed, OpenSpec::Null { bytes: 8192 }].iter().enumerate() {
        let disk = Arc::new(Disk::open(spec, &arena).unwrap());
        assert_eq!(disk.as_ram().is_some(), number == 0);
        memory.add_lender(DiskId(number as u32), disk);
    }
    let whole = Extent::new(0, 8192);
    assert!(memory.can_lend(DiskId(0), whole));
    assert!(!memory.can_lend(DiskId(0), Extent::new(4096, 8192)), "beyond the end");
    assert!(!memory.can_lend(DiskId(1), whole) && !memory.can_lend(DiskId(2), whole));
    assert!(!memory.can_lend(DiskId(3), whole), "nobody's number");
    let mut buffer = Buffer::reserved(8192, 0);
    memory.lend(DiskId(0), whole, &mut buffer);
    assert!(buffer.pages().len() == 2 && buffer.pages().iter().all(|page| page.is_leased()));
    memory.remove_lender(DiskId(0));
    assert!(!memory.can_lend(DiskId(0), whole));
    memory.release(buffer);
}

#[test]
fn memory_answers_at_once_and_refuses_odd_sizes() {
    let mut memory = memory();
    for spec in [OpenSpec::Ram { bytes: 1 << 20 }, OpenSpec::Null { bytes: 1 << 20 }] {
        let disk = open(&memory, &spec);
        assert!(disk.access().is_none() && disk.fd().is_none());
        assert_eq!((disk.facts().size, disk.facts().cache), (ByteCount(1 << 20), Cache::None));
        assert!(ask(&disk, &mut memory, Operation::Flush).outcome.is_done());
    }
    for spec in [OpenSpec::Ram { bytes: 1000 }, OpenSpec::Null { bytes: 0 }] {
        assert!(matches!(Disk::open(&spec, memory.arena()), Err(OpenError::BadSize { .. })));
    }
    let huge = OpenSpec::Ram { bytes: 1 << 60 };
    assert!(matches!(Disk::open(&huge, memory.arena()), Err(OpenError::Memory(_))));
}

#[test]
fn facts_refuse_before_the_kernel_is_asked() {
    let facts = |read_only, discards| DiskFacts {
        read_only,
        discards,
        discard_zeroes: false,
        ..DiskFacts::of_memory(ByteCount(8192))
    };
    let extent = Extent::new(4096, 4096);
    let write = || Operation::Write { extent, buffer: Buffer::empty(), durable: false };
    let discard = || Operation::Discard { extents: vec![extent] };
    assert_eq!(refusal(&facts(false, true), &write()), None);
    assert_eq!(refusal(&facts(true, true), &write()), Some(Failure::WriteProtected));
    assert_eq!(refusal(&facts(true, true), &Operation::Verify { extent }), None);
    assert_eq!(refusal(&facts(true, true), &Operation::Flush), None);
    assert_eq!(refusal(&facts(false, false), &discard()), Some(Failure::Unsupported));
    let beyond = Operation::Verify { extent: Extent::new(8192, 512) };
    assert_eq!(refusal(&facts(false, true), &beyond), Some(Failure::OutOfRange));
}

#[test]
fn a_delay_holds_every_answer_back() {
    let mut memory = memory();
    let inner = Box::new(OpenSpec::Null { bytes: 1 << 20 });
    let disk =
        open(&memory, &OpenSpec::Instrumented { instrument: Instrument::Delay { us: 250 }, inner });
    let request = Request { ticket: Ticket::default(), operation: Operation::Flush };
    let Submitted::Later { completion, hold } = disk.submit(&mut memory, at_the_origin, request)
    else {
        panic!("answered at once")
    };
    let after = Duration::from_micros(250);
    assert_eq!((completion.outcome, hold), (Outcome::Done, Hold { after, ..Hold::default() }));
}

#[test]
fn a_burn_keeps_its_thread_busy_for_each_request() {
    let mut memory = memory();
    let inner = Box::new(OpenSpec::Null { bytes: 1 << 20 });
    let instrument = Instrument::Burn { us: 500 };
    let disk = open(&memory, &OpenSpec::Instrumented { instrument, inner });
    let before = thread_time();
    for _ in 0..4 {
        let request = Request { ticket: Ticket::default(), operation: Operation::Flush };
        let Submitted::Done(completion) = disk.submit(&mut memory, at_the_origin, request) else {
            panic!("it is answered at once")
        };
        assert_eq!(completion.outcome, Outcome::Done);
    }
    assert!(thread_time() - before >= 2_000_000, "two milliseconds in all");
}

#[test]
fn a_delay_around_a_file_counts_from_its_answer() {
    let mut memory = memory();
    let directory = Directory::everywhere().remove(0);
    let inner = Box::new(file_spec(&directory.file("a.img"), Some(1 << 20)));
    let disk =
        open(&memory, &OpenSpec::Instrumented { instrument: Instrument::Delay { us: 250 }, inner });
    let request = Request { ticket: Ticket::default(), operation: Operation::Flush };
    let Submitted::Work(mut work) = disk.submit(&mut memory, at_the_origin, request) else {
        panic!("a file was answered without work")
    };
    work.run();
    let finished = work.finish();
    assert_eq!(finished.completion.outcome, Outcome::Done);
    assert_eq!(finished.hold.after, Duration::from_micros(250));
}

/// A disk of one channel that takes a millisecond for each read and two for each write.
fn modelled(inner: OpenSpec) -> OpenSpec {
    let times = Model { service_us: 1_000, service_write_us: Some(2_000), ..Model::PLAIN };
    OpenSpec::Instrumented { instrument: Instrument::Model(times), inner: Box::new(inner) }
}

/// What is submitted at this moment, in microseconds, and is not answered at once.
fn held(disk: &Disk, memory: &mut ShardMemory, at_us: u64, operation: Operation) -> Hold {
    let request = Request { ticket: Ticket::default(), operation };
    match disk.submit(memory, || Instant(at_us * 1_000), request) {
        Submitted::Later { hold, completion } => {
            memory.release(completion.buffer);
            hold
        }
        Submitted::Work(mut work) => {
            work.run();
            let finished = work.finish();
            memory.release(finished.completion.buffer);
            finished.hold
        }
        other => panic!("{other:?}"),
    }
}

fn read_at(offset: u64) -> Operation {
    Operation::Read { extent: Extent::new(offset, 4096), buffer: Buffer::reserved(4096, 0) }
}

fn until_us(us: u64) -> Hold {
    Hold { after: Duration::ZERO, until: Instant(us * 1_000) }
}

#[test]
fn a_model_counts_from_when_it_was_asked_and_its_channel_is_shared() {
    let mut memory = memory();
    let directory = Directory::everywhere().remove(0);
    let file = file_spec(&directory.file("a.img"), Some(1 << 20));
    for inner in [OpenSpec::Null { bytes: 1 << 20 }, OpenSpec::Ram { bytes: 1 << 20 }, file] {
        let disk = open(&memory, &modelled(inner));
        assert!(disk.as_ram().is_none(), "memory would be lent at once");
        assert_eq!(held(&disk, &mut memory, 100, read_at(0)), until_us(1_100));
        // The next one waits for the channel.
        assert_eq!(held(&disk, &mut memory, 200, read_at(8192)), until_us(2_100));
        assert_eq!(held(&disk, &mut memory, 300, Operation::Flush), until_us(2_100));
        assert_eq!(held(&disk, &mut memory, 9_000, Operation::Flush), until_us(9_000));
    }
}

#[test]
fn what_a_model_cannot_have_on_its_medium_it_is_not_asked_for() {
    let mut memory = memory();
    let disk = open(&memory, &modelled(OpenSpec::Null { bytes: 1 << 20 }));
    assert_eq!(held(&disk, &mut memory, 7, read_at(1 << 20)), until_us(7));
    assert_eq!(held(&disk, &mut memory, 8, read_at(0)), until_us(1_008));
}

#[test]
fn instruments_hold_back_what_they_get_from_those_inside() {
    let mut memory = memory();
    let us = Duration::from_micros;
    let late = |inner| OpenSpec::Instrumented {
        instrument: Instrument::Delay { us: 50 },
        inner: Box::new(inner),
    };
    let null = || OpenSpec::Null { bytes: 1 << 20 };
    // A delay begins when the model is done, or the disk if it is later.
    let disk = open(&memory, &late(modelled(null())));
    let hold = held(&disk, &mut memory, 100, read_at(0));
    assert_eq!(hold.due(Instant(100_000)), Instant(1_150_000));
    assert_eq!(hold.due(Instant(1_200_000)), Instant(1_250_000));
    // A model around a slow disk waits for the later one.
    let disk = open(&memory, &modelled(late(null())));
    let hold = held(&disk, &mut memory, 100, read_at(0));
    assert_eq!(hold.due(Instant(100_000)), Instant(1_100_000));
    assert_eq!(hold.due(Instant(1_080_000)), Instant(1_130_000));
    // Two models: the slower one.
    let disk = open(&memory, &modelled(late(modelled(null()))));
    let hold = held(&disk, &mut memory, 100, read_at(0));
    assert_eq!((hold.after, hold.due(Instant(0))), (us(50), Instant(1_150_000)));
}

#[test]
fn pages_that_are_cleared_by_and_by_are_held_back_by_a_model_too() {
    let mut memory = memory();
    let disk = open(&memory, &modelled(OpenSpec::Ram { bytes: 64 << 20 }));
    for page in 0..(64 << 20) / 4096 {
        let mut buffer = Buffer::reserved(4096, 0);
        memory.write(&mut buffer, 0, &[1; 4096]);
        let extent = Extent::new(page * 4096, 4096);
        let done = ask(&disk, &mut memory, Operation::Write { extent, buffer, durable: false });
        memory.release(done.buffer);
    }
    let extent = Extent::new(0, 64 << 20);
    let operation = Operation::WriteZeroes { extent, deallocate: false, durable: false };
    let request = Request { ticket: Ticket::default(), operation };
    let hour = Instant(3_600_000_000_000);
    let Submitted::Clearing(mut clearing) = disk.submit(&mut memory, || hour, request) else {
        panic!("so many pages are cleared in turns")
    };
    while !disk.clear_some(&mut memory, &mut clearing) {}
    assert_eq!(clearing.finish().1.until, hour + Duration::from_millis(2));
}

/// Failures come, and what a read returns as done is always what was written as done, or as denied
/// after it was carried out.
#[test]
fn a_faulty_disk_fails_but_never_lies() {
    let mut memory = memory();
    let inner = Box::new(OpenSpec::Ram { bytes: 1 << 16 });
    let disk = open(
        &memory,
        &OpenSpec::Instrumented { instrument: Instrument::Faulty { seed: 5 }, inner },
    );
    let mut possible = vec![vec![0u8]; 16];
    let (mut failed_reads, mut failed_writes) = (0, 0);
    for turn in 0..4000u64 {
        let page = (turn * 7 % 16) as usize;
        let extent = Extent::new(page as u64 * 4096, 4096);
        let mut buffer = Buffer::reserved(4096, 0);
        if turn % 2 == 0 {
            let value = (turn / 2) as u8;
            memory.write(&mut buffer, 0, &[value; 4096]);
            let done = ask(&disk, &mut memory, Operation::Write { extent, buffer, durable: true });
            if done.outcome.is_done() {
                possible[page].clear();
            } else {
                assert_eq!(done.outcome, Outcome::NotDone(Failure::MediumWrite));
                failed_writes += 1;
            }
            possible[page].push(value);
            memory.release(done.buffer);
        } else {
            let done = ask(&disk, &mut memory, Operation::Read { extent, buffer });
            if done.outcome.is_done() {
                let mut bytes = [0; 4096];
                memory.read(&done.buffer, 0, &mut bytes);
                assert!(possible[page].contains(&bytes[0]) && bytes == [bytes[0]; 4096]);
            } else {
                failed_reads += 1;
            }
            memory.release(done.buffer);
        }
    }
    assert!(failed_reads > 0 && failed_writes > 0);
}

#[test]
fn what_is_opened_to_be_read_is_not_changed_and_takes_no_writes() {
    everywhere(|memory, path| {
        fs::write(path, [7; 8192]).unwrap();
        let then = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
        let open = |rights| Disk::open_for(rights, &file_spec(path, None), memory.arena()).unwrap();
        let read = open(Rights::Read);
        let flags = rustix::fs::fcntl_getfl(read.fd().unwrap()).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
        let facts = read.facts();
        drop(read);
        assert!(facts.read_only && !facts.discards, "{facts:?}");
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), then);
        assert!(!open(Rights::Write).facts().read_only);
        // What is made has to be written.
        fs::remove_file(path).unwrap();
        let made = Disk::open_for(Rights::Read, &file_spec(path, Some(4096)), memory.arena());
        assert_eq!(made.unwrap().facts().size.0, 4096);
    });
}
