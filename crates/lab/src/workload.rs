//! Which requests a job makes: in order or at random, reads or writes, of which size and where.
//!
//! Units: bytes; offsets are multiples of the block size from the start of the range on. A stream
//! is decided by its seed. A share of reads is drawn for each request, so that a mix has no period.
//! Sequential jobs begin at the start of their part and go round in it.

use block::Random;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Whether offsets are drawn at random.
    pub random: bool,
    /// Of a hundred requests, how many read.
    pub read_percent: u8,
    /// Bytes of a request: a multiple of 512, at most 1 MiB.
    pub block_bytes: u32,
    /// Bytes of the volume that are worked on, from its start.
    pub range_bytes: u64,
}

impl Workload {
    /// Whole blocks in the range.
    pub fn blocks(&self) -> u64 {
        self.range_bytes / u64::from(self.block_bytes)
    }

    /// Whether any request writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// The blocks of job `job` of `jobs`: a part of its own where `apart` or where jobs go in
    /// order, else all of them. Parts are never empty.
    pub fn part(&self, job: u32, jobs: u32, apart: bool) -> Part {
        let blocks = self.blocks();
        let (job, jobs) = (u64::from(job), u64::from(jobs));
        if (self.random && !apart) || blocks < jobs {
            return Part { first: 0, count: blocks };
        }
        let edge = |job: u64| ((u128::from(blocks) * u128::from(job)) / u128::from(jobs)) as u64;
        Part { first: edge(job), count: edge(job + 1) - edge(job) }
    }
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first block.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// A request to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Whether it writes.
    pub write: bool,
    /// The block, counted from the start of the part.
    pub block: u64,
}

/// The requests of one job, without end.
#[derive(Clone, Debug)]
pub struct Stream {
    random: bool,
    read_percent: u64,
    blocks: u64,
    next: u64,
    source: Random,
}

impl Stream {
    /// The requests of a job that works on `part`, which must not be empty.
    pub fn new(workload: &Workload, part: Part, seed: u64) -> Stream {
        assert!(part.count > 0, "a job without a block to work on");
        Stream {
            random: workload.random,
            read_percent: u64::from(workload.read_percent),
            blocks: part.count,
            next: 0,
            source: Random::new(seed),
        }
    }

    /// Whether its blocks are drawn at random.
    pub fn is_random(&self) -> bool {
        self.random
    }

    /// The next request.
    #[inline]
    pub fn draw(&mut self) -> Draw {
        let block = if self.random {
            self.source.below(self.blocks)
        } else {
            let block = self.next;
            self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
            block
        };
        let write = match self.read_percent {
            100 => false,
            0 => true,
            percent => self.source.below(100) >= percent,
        };
        Draw { write, block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(random: bool, read_percent: u8, blocks: u64) -> Workload {
        Workload { random, read_percent, block_bytes: 4096, range_bytes: blocks * 4096 + 512 }
    }

    #[test]
    fn jobs_in_order_share_the_range_without_overlap() {
        let workload = workload(false, 100, 10);
        let parts: Vec<_> = (0..3).map(|job| workload.part(job, 3, false)).collect();
        assert_eq!(parts[0], Part { first: 0, count: 3 });
        assert_eq!(parts[1], Part { first: 3, count: 3 });
        assert_eq!(parts[2], Part { first: 6, count: 4 });
        assert_eq!(workload.part(5, 20, true), Part { first: 0, count: 10 });
    }

    #[test]
    fn in_order_goes_round() {
        let workload = workload(false, 0, 3);
        let mut stream = Stream::new(&workload, workload.part(0, 1, false), 1);
        let blocks: Vec<_> = (0..5).map(|_| stream.draw().block).collect();
        assert_eq!(blocks, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_mix_keeps_its_share_and_its_seed() {
        let workload = workload(true, 75, 1000);
        let part = workload.part(0, 1, false);
        let draw = |seed| {
            let mut stream = Stream::new(&workload, part, seed);
            (0..10_000).map(|_| stream.draw()).collect::<Vec<_>>()
        };
        let draws = draw(1);
        let writes = draws.iter().filter(|draw| draw.write).count();
        assert!((2_200..2_800).contains(&writes), "{writes} writes of 10000 at 75 percent reads");
        assert!(draws.iter().all(|draw| draw.block < 1000));
        assert_eq!(draws, draw(1));
        assert_ne!(draws, draw(2));
    }
}
