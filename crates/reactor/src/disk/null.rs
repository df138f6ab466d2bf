//! The null disk: takes every write and forgets it, reads zeros. It measures what everything above
//! a disk costs.

use block::{ByteCount, Completion, Failure, Operation, Outcome, PageId, Request, Sought};

use super::is_within;
use crate::memory::arena::ZERO_PAGE;
use crate::memory::shard_memory::ShardMemory;

/// A disk that holds nothing, but claims to have so many bytes.
#[derive(Debug)]
pub(super) struct NullDisk(pub(super) ByteCount);

impl NullDisk {
    /// Answers a request at once.
    #[inline]
    pub(super) fn perform(&self, memory: &mut ShardMemory, mut request: Request) -> Completion {
        if !is_within(&request.operation, self.0) {
            return request.complete(Outcome::NotDone(Failure::OutOfRange));
        }
        let outcome = match &mut request.operation {
            Operation::Read { buffer, .. } => {
                memory.strip(buffer);
                for _ in 0..buffer.page_count() {
                    buffer.push_page(PageId(ZERO_PAGE).leased());
                }
                Outcome::Done
            }
            Operation::Compare { buffer, .. } => match memory.first_nonzero(buffer) {
                Some(at) => Outcome::Miscompare(at),
                None => Outcome::Done,
            },
            // All of it reads as zeros, and none of it has space.
            Operation::Seek { sought: Sought::Hole, .. } => Outcome::Found(0),
            Operation::CompareAndWrite { .. } => Outcome::NotDone(Failure::Unsupported),
            Operation::Write { .. }
            | Operation::Flush
            | Operation::Discard { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Verify { .. }
            | Operation::Seek { sought: Sought::Data, .. } => Outcome::Done,
        };
        request.complete(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;
    use block::{Buffer, Extent, Memory, Ticket};
    use std::sync::Arc;

    fn ask(disk: &NullDisk, memory: &mut ShardMemory, operation: Operation) -> Completion {
        disk.perform(memory, Request { ticket: Ticket::default(), operation })
    }

    #[test]
    fn reads_are_zeros_and_writes_are_forgotten() {
        let arena = Arc::new(Arena::new(1).unwrap());
        let mut memory = ShardMemory::new(&arena, 64).unwrap();
        let disk = NullDisk(ByteCount(1 << 40));
        let extent = Extent::new(512, 8192);
        let mut buffer = Buffer::reserved(8192, 512);
        memory.write(&mut buffer, 0, &[9; 8192]);
        let written = ask(&disk, &mut memory, Operation::Write { extent, buffer, durable: true });
        assert!(written.outcome.is_done());
        let buffer = written.buffer;
        let compared = ask(&disk, &mut memory, Operation::Compare { extent, buffer });
        assert_eq!(compared.outcome, Outcome::Miscompare(0));
        let buffer = compared.buffer;
        let read = ask(&disk, &mut memory, Operation::Read { extent, buffer });
        for (sought, outcome) in [(Sought::Data, Outcome::Done), (Sought::Hole, Outcome::Found(0))]
        {
            let sought = ask(&disk, &mut memory, Operation::Seek { extent, sought });
            assert_eq!(sought.outcome, outcome);
        }
        let mut bytes = [1; 8192];
        memory.read(&read.buffer, 0, &mut bytes);
        assert_eq!(bytes, [0; 8192]);
        memory.release(read.buffer);
    }

    #[test]
    fn what_lies_beyond_the_end_is_refused() {
        let arena = Arc::new(Arena::new(1).unwrap());
        let mut memory = ShardMemory::new(&arena, 64).unwrap();
        let disk = NullDisk(ByteCount(4096));
        let extent = Extent::new(4096, 512);
        let done = ask(&disk, &mut memory, Operation::Verify { extent });
        assert_eq!(done.outcome, Outcome::NotDone(Failure::OutOfRange));
    }
}
