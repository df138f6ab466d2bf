//! Rules of work on files: short transfers go on, errors are told apart, refusals have a way round.

use std::fs::OpenOptions;
use std::path::PathBuf;

use block::random::Random;
use block::{Buffer, Extent, Failure, Memory, Operation, Outcome, Request, Sought, Ticket};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{Call, Work, perform};
use crate::disk::tests::{Directory, ask, memory, open};
use crate::disk::{Access, Disk, OpenSpec, Submitted};
use crate::memory::ShardMemory;

const SIZE: u64 = 4 << 20;

struct Bench {
    memory: ShardMemory,
    disk: Disk,
    path: PathBuf,
    _directory: Directory,
}

fn benches() -> impl Iterator<Item = Bench> {
    Directory::everywhere().into_iter().map(|directory| {
        let memory = memory();
        let path = directory.file("a.img");
        let disk = open(
            &memory,
            &OpenSpec::File {
                path: path.clone(),
                create: Some(SIZE),
                tail: super::super::Tail::Refuse,
            },
        );
        Bench { memory, disk, path, _directory: directory }
    })
}

impl Bench {
    fn buffer(&mut self, extent: Extent, bytes: &[u8]) -> Buffer {
        let phase = (extent.offset.0 % 4096) as u32;
        let mut buffer = Buffer::reserved(extent.length.0 as u32, phase);
        self.memory.write(&mut buffer, 0, bytes);
        buffer
    }

    fn ask(&mut self, operation: Operation) -> (Outcome, Vec<u8>) {
        let done = ask(&self.disk, &mut self.memory, operation);
        self.take(done)
    }

    fn take(&mut self, done: block::Completion) -> (Outcome, Vec<u8>) {
        let mut bytes = vec![0; done.buffer.len() as usize];
        if !done.buffer.is_reserved() {
            self.memory.read(&done.buffer, 0, &mut bytes);
        }
        self.memory.release(done.buffer);
        (done.outcome, bytes)
    }

    fn write(&mut self, extent: Extent, bytes: &[u8], durable: bool) {
        let buffer = self.buffer(extent, bytes);
        let (outcome, _) = self.ask(Operation::Write { extent, buffer, durable });
        assert_eq!(outcome, Outcome::Done);
    }

    fn read(&mut self, extent: Extent) -> Vec<u8> {
        let (outcome, bytes) = self.ask(read(extent));
        assert_eq!(outcome, Outcome::Done);
        bytes
    }

    fn work(&mut self, operation: Operation) -> Work {
        let request = Request { ticket: Ticket::default(), operation };
        match self.disk.submit(&mut self.memory, || block::Instant::ZERO, request) {
            Submitted::Work(work) => *work,
            other => panic!("{other:?} instead of work"),
        }
    }

    fn finish(&mut self, work: Work) -> (Outcome, Vec<u8>) {
        let done = work.finish().completion;
        self.take(done)
    }
}

fn read(extent: Extent) -> Operation {
    let phase = (extent.offset.0 % 4096) as u32;
    Operation::Read { extent, buffer: Buffer::reserved(extent.length.0 as u32, phase) }
}

fn error(errno: Errno) -> i64 {
    -i64::from(errno.raw_os_error())
}

/// Extents aligned for every disk of the tests.
fn extent(random: &mut Random, blocks_max: u64, align: u64) -> Extent {
    let offset = random.below(SIZE / align) * align;
    let length = (1 + random.below(blocks_max)) * align;
    Extent::new(offset, length.min(SIZE - offset))
}

#[test]
fn a_file_agrees_with_an_array() {
    for mut bench in benches() {
        let align = u64::from(bench.disk.facts().logical_block);
        let mut random = Random::new(11);
        let mut model = vec![0u8; SIZE as usize];
        for step in 0..200u64 {
            let extent = extent(&mut random, 300, align);
            let range = extent.offset.0 as usize..extent.end().0 as usize;
            match random.below(8) {
                0..3 => {
                    let bytes: Vec<u8> =
                        (0..extent.length.0).map(|at| (at / 512 + step * 13) as u8).collect();
                    bench.write(extent, &bytes, step % 16 == 0);
                    model[range].copy_from_slice(&bytes);
                }
                3 => {
                    let deallocate = step % 2 == 0;
                    let durable = step % 3 == 0;
                    let zeroes = Operation::WriteZeroes { extent, deallocate, durable };
                    assert_eq!(bench.ask(zeroes).0, Outcome::Done);
                    model[range].fill(0);
                }
                4 if bench.disk.facts().discards => {
                    assert!(bench.disk.facts().discard_zeroes);
                    let extents = vec![Extent::new(extent.offset.0, 0), extent];
                    let discard = Operation::Discard { extents };
                    assert_eq!(bench.ask(discard).0, Outcome::Done);
                    model[range].fill(0);
                }
                5 => {
                    let mut expected = model[range].to_vec();
                    let buffer = bench.buffer(extent, &expected);
                    let compare = Operation::Compare { extent, buffer };
                    assert_eq!(bench.ask(compare).0, Outcome::Done);
                    let at = random.below(extent.length.0) as usize;
                    expected[at] ^= 1;
                    let buffer = bench.buffer(extent, &expected);
                    let compare = Operation::Compare { extent, buffer };
                    assert_eq!(bench.ask(compare).0, Outcome::Miscompare(at as u32));
                }
                6 => {
                    assert_eq!(bench.ask(Operation::Flush).0, Outcome::Done);
                    assert_eq!(bench.ask(Operation::Verify { extent }).0, Outcome::Done);
                }
                _ => assert_eq!(bench.read(extent), model[range], "{extent}"),
            }
        }
        assert_eq!(bench.read(Extent::new(0, 1 << 20)), model[..1 << 20]);
    }
}

/// A kernel that moves less than asked, at every call.
#[test]
fn short_transfers_go_on_where_they_stopped() {
    for mut bench in benches() {
        let align = u64::from(bench.disk.facts().logical_block);
        let extent = Extent::new(align, 40 * 4096);
        let bytes: Vec<u8> = (0..extent.length.0).map(|at| (at / 7) as u8).collect();
        let buffer = bench.buffer(extent, &bytes);
        let mut random = Random::new(3);
        for operation in [Operation::Write { extent, buffer, durable: true }, read(extent)] {
            let is_read = matches!(operation, Operation::Read { .. });
            let mut work = bench.work(operation);
            let mut calls = 0;
            loop {
                let most = ((1 + random.below(5)) * align) as usize;
                let moved = match work.next() {
                    Call::Finished => break,
                    Call::Read { offset, iovecs } => {
                        let part = [first_bytes(iovecs[0], most)];
                        perform(work.fd(), Call::Read { offset, iovecs: &part })
                    }
                    Call::Write { offset, iovecs, durable } => {
                        assert!(durable);
                        let part = [first_bytes(iovecs[0], most)];
                        perform(work.fd(), Call::Write { offset, iovecs: &part, durable })
                    }
                    other => panic!("{other:?}"),
                };
                // An interruption changes nothing.
                work.done(error(Errno::INTR));
                work.done(moved.unwrap() as i64);
                calls += 1;
            }
            assert!(calls >= 8);
            let (outcome, seen) = bench.finish(work);
            assert_eq!(outcome, Outcome::Done);
            assert!(!is_read || seen == bytes);
        }
        assert_eq!(bench.read(extent), bytes);
    }
}

fn first_bytes(run: libc::iovec, most: usize) -> libc::iovec {
    libc::iovec { iov_len: run.iov_len.min(most), ..run }
}

#[test]
fn error_numbers_say_what_failed() {
    let mut bench = benches().next().unwrap();
    let extent = Extent::new(4096, 4096);
    for (errno, failure) in [
        (Errno::IO, Failure::MediumRead),
        (Errno::NODATA, Failure::MediumRead),
        (Errno::NXIO, Failure::Removed),
        (Errno::NOMEM, Failure::NotReady),
        (Errno::FAULT, Failure::Internal),
    ] {
        let mut work = bench.work(read(extent));
        work.done(error(errno));
        assert_eq!(bench.finish(work).0, Outcome::NotDone(failure), "{errno}");
    }
    for (errno, failure) in [
        (Errno::IO, Failure::MediumWrite),
        (Errno::NOSPC, Failure::NoSpace),
        (Errno::DQUOT, Failure::NoSpace),
        (Errno::ROFS, Failure::WriteProtected),
        (Errno::TIMEDOUT, Failure::TimedOut),
    ] {
        let buffer = bench.buffer(extent, &[1; 4096]);
        let mut work = bench.work(Operation::Write { extent, buffer, durable: false });
        work.done(error(errno));
        assert_eq!(bench.finish(work).0, Outcome::NotDone(failure), "{errno}");
        let mut work = bench.work(Operation::Flush);
        work.done(error(errno));
        assert_eq!(bench.finish(work).0, Outcome::Unknown(failure), "{errno}");
    }
}

#[test]
fn a_durable_write_without_dsync_is_followed_by_a_sync() {
    for mut bench in benches() {
        let extent = Extent::new(8192, 8192);
        let buffer = bench.buffer(extent, &[7; 8192]);
        let mut work = bench.work(Operation::Write { extent, buffer, durable: true });
        assert!(matches!(work.next(), Call::Write { durable: true, .. }));
        work.done(error(Errno::OPNOTSUPP));
        assert!(matches!(work.next(), Call::Write { durable: false, .. }));
        let moved = perform(work.fd(), work.next()).unwrap();
        work.done(moved as i64);
        assert!(matches!(work.next(), Call::Sync), "{:?}", work.next());
        work.run();
        assert_eq!(bench.finish(work).0, Outcome::Done);
        assert_eq!(bench.read(extent), [7; 8192]);
    }
}

#[test]
fn a_sync_that_failed_is_told_from_a_write_that_did() {
    for mut bench in benches() {
        let extent = Extent::new(8192, 8192);
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::TIMEDOUT, Errno::IO] {
            let (failure, mut write) = (super::failure_of(true, errno), || {
                let buffer = bench.buffer(extent, &[7; 8192]);
                bench.work(Operation::Write { extent, buffer, durable: true })
            });
            let [mut synced, mut written, mut after] = [write(), write(), write()];
            // Either the write or its sync.
            synced.done(error(errno));
            assert!(matches!(synced.next(), Call::Write { durable: false, .. }));
            synced.run();
            assert_eq!(bench.finish(synced).0, Outcome::Unknown(failure), "{errno}");
            written.done(error(errno));
            written.done(error(errno));
            assert_eq!(bench.finish(written).0, Outcome::NotDone(failure), "{errno}");
            // Where RWF_DSYNC is refused, and for zeros, the sync has a call of its own.
            after.done(error(Errno::OPNOTSUPP));
            after.done(8192);
            after.done(error(errno));
            assert_eq!(bench.finish(after).0, Outcome::Unknown(failure), "{errno}");
            let zeroes = Operation::WriteZeroes { extent, deallocate: false, durable: true };
            let mut zeroes = bench.work(zeroes);
            zeroes.done(0);
            zeroes.done(error(errno));
            assert_eq!(bench.finish(zeroes).0, Outcome::Unknown(failure), "{errno}");
        }
    }
}

#[test]
fn a_flush_has_an_open_file_of_its_own_and_so_sees_every_error_of_writing_back() {
    for mut bench in benches() {
        let flush = bench.work(Operation::Flush);
        let verify = bench.work(Operation::Verify { extent: Extent::new(0, 4096) });
        // Two descriptors of one open file would share its position.
        rustix::fs::seek(verify.fd(), SeekFrom::Start(7)).unwrap();
        assert_eq!(rustix::fs::tell(flush.fd()), Ok(0));
        for mut work in [flush, verify] {
            work.run();
            assert_eq!(bench.finish(work).0, Outcome::Done);
        }
    }
}

#[test]
fn where_ranges_cannot_be_cleared_zeros_are_written_in_bounded_pieces() {
    for mut bench in benches() {
        let extent = Extent::new(4096, (2 << 20) + 4096);
        bench.write(Extent::new(0, 1 << 20), &[9; 1 << 20], false);
        let mut work =
            bench.work(Operation::WriteZeroes { extent, deallocate: true, durable: true });
        assert!(matches!(work.next(), Call::Allocate { offset: 4096, .. }));
        work.done(error(Errno::OPNOTSUPP));
        let mut pieces = 0;
        while let Call::Write { iovecs, .. } = work.next() {
            let bytes: usize = iovecs.iter().map(|run| run.iov_len).sum();
            assert!(bytes <= 1 << 20);
            let moved = perform(work.fd(), work.next()).unwrap();
            work.done(moved as i64);
            pieces += 1;
        }
        assert!(pieces >= 3 && matches!(work.next(), Call::Sync));
        work.run();
        assert_eq!(bench.finish(work).0, Outcome::Done);
        assert_eq!(bench.read(Extent::new(4096, 1 << 20)), [0; 1 << 20]);
        assert_eq!(bench.read(Extent::new(0, 4096)), [9; 4096]);
    }
}

#[test]
fn a_misaligned_access_goes_through_aligned_memory() {
    for mut bench in benches() {
        let extent = Extent::new(4096, 200 << 10);
        let bytes: Vec<u8> = (0..extent.length.0).map(|at| (at / 11) as u8).collect();
        let buffer = bench.buffer(extent, &bytes);
        for operation in [Operation::Write { extent, buffer, durable: true }, read(extent)] {
            let is_read = matches!(operation, Operation::Read { .. });
            let mut work = bench.work(operation);
            work.done(error(Errno::INVAL));
            if bench.disk.access() == Some(Access::Cached) {
                if !is_read {
                    work.done(error(Errno::INVAL));
                }
                assert!(matches!(work.next(), Call::Finished));
                assert_eq!(bench.finish(work).0, Outcome::NotDone(Failure::Internal));
                continue;
            }
            assert!(matches!(work.next(), Call::Blocking));
            work.run();
            let (outcome, seen) = bench.finish(work);
            assert_eq!(outcome, Outcome::Done);
            assert!(!is_read || seen == bytes);
        }
    }
}

#[test]
fn a_file_that_was_cut_fails_reads_instead_of_inventing_zeros() {
    for mut bench in benches() {
        OpenOptions::new().write(true).open(&bench.path).unwrap().set_len(SIZE / 2).unwrap();
        let extent = Extent::new(SIZE / 2 - 4096, 8192);
        assert_eq!(bench.ask(read(extent)).0, Outcome::NotDone(Failure::MediumRead));
        let verify = Operation::Verify { extent };
        assert_eq!(bench.ask(verify).0, Outcome::NotDone(Failure::MediumRead));
        bench.disk.refresh().unwrap();
        assert_eq!(bench.ask(read(extent)).0, Outcome::NotDone(Failure::OutOfRange));
    }
}

#[test]
fn requests_of_no_bytes_are_done() {
    let mut bench = benches().next().unwrap();
    let extent = Extent::new(4096, 0);
    for operation in [
        read(extent),
        Operation::Write { extent, buffer: Buffer::empty(), durable: true },
        Operation::WriteZeroes { extent, deallocate: false, durable: false },
        Operation::Discard { extents: vec![extent] },
        Operation::Discard { extents: Vec::new() },
        Operation::Verify { extent },
    ] {
        assert_eq!(bench.ask(operation).0, Outcome::Done);
    }
}

#[test]
fn pages_that_lie_together_make_one_run() {
    let mut bench = benches().next().unwrap();
    let mut work = bench.work(read(Extent::new(0, 1 << 20)));
    let Call::Read { iovecs, .. } = work.next() else { panic!("{:?}", work.next()) };
    assert_eq!(iovecs.iter().map(|run| run.iov_len).sum::<usize>(), 1 << 20);
    assert!(iovecs.len() <= 256);
    work.run();
    assert_eq!(bench.finish(work).0, Outcome::Done);
}

/// What lies in no data is a hole; a file system that keeps none may say that all is data.
#[test]
fn what_is_found_in_a_file_is_what_it_holds() {
    let mut knows = 0;
    for mut bench in benches() {
        let seek = |bench: &mut Bench, offset, length, sought| {
            let extent = Extent::new(offset, length);
            bench.ask(Operation::Seek { extent, sought }).0
        };
        bench.write(Extent::new(65_536, 65_536), &[1; 65_536], false);
        let first = seek(&mut bench, 0, 1 << 20, Sought::Data);
        let is_known = first == Outcome::Found(65_536);
        assert!(is_known || first == Outcome::Found(0), "{first}");
        knows += u32::from(is_known);
        if is_known {
            assert_eq!(seek(&mut bench, 0, 65_536, Sought::Data), Outcome::Done);
            assert_eq!(seek(&mut bench, 131_072, 65_536, Sought::Data), Outcome::Done);
            let end = seek(&mut bench, 69_632, 1 << 20, Sought::Hole);
            assert_eq!(end, Outcome::Found(61_440));
        }
        assert_eq!(seek(&mut bench, 65_536, 65_536, Sought::Hole), Outcome::Done);
        assert_eq!(seek(&mut bench, 65_536, 4096, Sought::Data), Outcome::Found(0));
    }
    assert!(knows > 0, "no file system here keeps holes");
}
