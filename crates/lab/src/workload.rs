//! Which requests a job makes: in order or at random, reads, writes or trims, of which size and
//! where.
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
    /// Of a hundred requests, how many trim; the rest writes.
    pub trim_percent: u8,
    /// Bytes of a request: a multiple of 512, at most 1 MiB.
    pub block_bytes: u32,
    /// Where on the volume the range begins: a multiple of `block_bytes`.
    pub offset_bytes: u64,
    /// Bytes of the volume that are worked on.
    pub range_bytes: u64,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Read,
    Write,
    Trim,
    /// None is drawn: it follows writes.
    Flush,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
            Kind::Flush => "flush",
        }
    }
}

impl Workload {
    /// Whole blocks in the range.
    pub fn blocks(&self) -> u64 {
        self.range_bytes / u64::from(self.block_bytes)
    }

    /// Whether any request changes anything.
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
    /// What for.
    pub kind: Kind,
    /// The block, counted from the start of the part.
    pub block: u64,
}

/// The requests of one job, without end.
#[derive(Clone, Debug)]
pub struct Stream {
    random: bool,
    read_percent: u64,
    trim_percent: u64,
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
            trim_percent: u64::from(workload.trim_percent),
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
        let kind = match (self.read_percent, self.trim_percent) {
            (100, _) => Kind::Read,
            (_, 100) => Kind::Trim,
            (0, 0) => Kind::Write,
            (reads, trims) => match self.source.below(100) {
                drawn if drawn < reads => Kind::Read,
                drawn if drawn < reads + trims => Kind::Trim,
                _ => Kind::Write,
            },
        };
        Draw { kind, block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(random: bool, read_percent: u8, blocks: u64) -> Workload {
        let range_bytes = blocks * 4096 + 512;
        let (trim_percent, block_bytes, offset_bytes) = (0, 4096, 0);
        Workload { random, read_percent, trim_percent, block_bytes, offset_bytes, range_bytes }
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
        let writes = draws.iter().filter(|draw| draw.kind == Kind::Write).count();
        assert!((2_200..2_800).contains(&writes), "{writes} writes of 10000 at 75 percent reads");
        assert!(draws.iter().all(|draw| draw.block < 1000));
        assert_eq!(draws, draw(1));
        assert_ne!(draws, draw(2));
    }

    #[test]
    fn a_mix_has_its_share_of_trims() {
        let workload = Workload { trim_percent: 10, ..workload(true, 60, 1000) };
        let mut stream = Stream::new(&workload, workload.part(0, 1, false), 1);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[stream.draw().kind as usize] += 1;
        }
        let [reads, writes, trims] = counts;
        assert!((5_700..6_300).contains(&reads) && (800..1_200).contains(&trims), "{counts:?}");
        assert_eq!(reads + writes + trims, 10_000);
    }
}
