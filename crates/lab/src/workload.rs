//! Which requests a job makes: in order or at random, reads, writes or trims, of which size and
//! where.
//!
//! Units: bytes; offsets are multiples of the block size from the start of the range on. A stream
//! is decided by its seed. A share of reads is drawn for each request, so that a mix has no period.
//! Sequential jobs begin at the start of their part and go round in it. Requests of several sizes in
//! one stream are in [`sizes`], the law of Zipf in [`zipf`], what shuffles blocks in [`scatter`].
//! Nothing is allocated behind a stream's beginning.

mod scatter;
mod sizes;
mod zipf;

use std::sync::Arc;

use block::Random;

use scatter::Scatter;
pub use sizes::{SIZES_MAX, Sizes, Split};
pub use zipf::THETAS;
use zipf::Zipf;

/// What a job does.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Where its requests go.
    pub order: Order,
    /// Of a hundred requests, how many read.
    pub read_percent: u8,
    /// Of a hundred requests, how many trim; the rest writes.
    pub trim_percent: u8,
    /// Bytes of a request: a multiple of 512, at most 1 MiB. With `sizes`, what all of them are
    /// multiples of.
    pub block_bytes: u32,
    /// Where requests are of several sizes, which.
    pub sizes: Option<Arc<Sizes>>,
    /// How the range is shared by the jobs that have this workload.
    pub sharing: Sharing,
    /// Where on the volume the range begins: a multiple of the volume's blocks.
    pub offset_bytes: u64,
    /// Bytes of the volume that are worked on.
    pub range_bytes: u64,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Each behind the one before.
    Sequential,
    /// Anywhere, whether or not a request was there before.
    Random,
    /// Anywhere, but to each block once before any is asked for again.
    Shuffled,
    /// Some blocks more often than others: the block of rank `k` as often as `k` to the power of minus
    /// this. Which block has which rank is shuffled.
    Zipf(f64),
}

impl Order {
    /// In order, or anywhere.
    pub fn of(random: bool) -> Order {
        if random { Order::Random } else { Order::Sequential }
    }
}

/// How jobs share a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Those that go in order have a part each, the others all of it.
    Parts,
    /// Each has all of it, also where they go in order.
    Together,
    /// Each has a range of its own, so many bytes behind the one before: a multiple of the block.
    Steps(u64),
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
        if let Sharing::Steps(step) = self.sharing {
            return Part { first: job * (step / u64::from(self.block_bytes)), count: blocks };
        }
        let share = self.order != Order::Sequential || self.sharing == Sharing::Together;
        if (share && !apart) || blocks < jobs {
            return Part { first: 0, count: blocks };
        }
        let edge = |job: u64| ((u128::from(blocks) * u128::from(job)) / u128::from(jobs)) as u64;
        Part { first: edge(job), count: edge(job + 1) - edge(job) }
    }

    /// Bytes of the largest request.
    pub fn request_bytes_max(&self) -> u32 {
        self.sizes.as_ref().map_or(self.block_bytes, |sizes| sizes.bytes_max(self))
    }

    /// Whether it has requests of a kind.
    pub fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self.read_percent > 0,
            Kind::Write => self.read_percent + self.trim_percent < 100,
            Kind::Trim => self.trim_percent > 0,
            Kind::Flush => false,
        }
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
    /// Its bytes.
    pub bytes: u32,
    /// The block, counted from the start of the part.
    pub block: u64,
}

/// The requests of one job, without end.
#[derive(Clone, Debug)]
pub struct Stream {
    way: Way,
    read_percent: u64,
    trim_percent: u64,
    block_bytes: u32,
    sizes: Option<Arc<Sizes>>,
    blocks: u64,
    next: u64,
    source: Random,
}

/// An [`Order`], with what it remembers.
#[derive(Clone, Debug)]
enum Way {
    Sequential,
    Random,
    /// The order of this round.
    Shuffled(Scatter),
    /// Who is hot, and which block that is.
    Zipf(Zipf, Scatter),
}

impl Stream {
    /// The requests of a job that works on `part`, which must not be empty. `shared` is the same for
    /// all jobs that are to find the same blocks hot.
    pub fn new(workload: &Workload, part: Part, seed: u64, shared: u64) -> Stream {
        assert!(part.count > 0, "a job without a block to work on");
        let mut source = Random::new(seed);
        let way = match workload.order {
            Order::Sequential => Way::Sequential,
            Order::Random => Way::Random,
            Order::Shuffled => Way::Shuffled(Scatter::new(part.count, &mut source)),
            Order::Zipf(theta) => {
                let cells = workload
                    .sizes
                    .as_ref()
                    .map_or(part.count, |sizes| sizes.cells(workload.block_bytes, part.count));
                let scatter = Scatter::new(cells, &mut Random::new(shared));
                Way::Zipf(Zipf::new(cells, theta), scatter)
            }
        };
        Stream {
            way,
            read_percent: u64::from(workload.read_percent),
            trim_percent: u64::from(workload.trim_percent),
            block_bytes: workload.block_bytes,
            sizes: workload.sizes.clone(),
            blocks: part.count,
            next: 0,
            source,
        }
    }

    /// Whether a request may be left out for another: where the next one does not depend on it.
    pub fn is_random(&self) -> bool {
        matches!(self.way, Way::Random | Way::Zipf(..))
    }

    /// The next request.
    #[inline]
    pub fn draw(&mut self) -> Draw {
        if self.sizes.is_some() {
            return self.draw_sized();
        }
        let block = match &mut self.way {
            Way::Random => self.source.below(self.blocks),
            Way::Sequential => advance(&mut self.next, self.blocks, 1),
            Way::Shuffled(_) => self.shuffled(),
            Way::Zipf(zipf, scatter) => scatter.at(zipf.draw(&mut self.source) - 1),
        };
        Draw { kind: self.kind(), bytes: self.block_bytes, block }
    }

    #[inline]
    fn kind(&mut self) -> Kind {
        match (self.read_percent, self.trim_percent) {
            (100, _) => Kind::Read,
            (_, 100) => Kind::Trim,
            (0, 0) => Kind::Write,
            (reads, trims) => match self.source.below(100) {
                drawn if drawn < reads => Kind::Read,
                drawn if drawn < reads + trims => Kind::Trim,
                _ => Kind::Write,
            },
        }
    }

    /// The next block of a round, in which each comes once.
    fn shuffled(&mut self) -> u64 {
        let index = advance(&mut self.next, self.blocks, 1);
        let Way::Shuffled(scatter) = &mut self.way else { unreachable!("asked for in order") };
        if index == 0 {
            *scatter = Scatter::new(self.blocks, &mut self.source);
        }
        scatter.at(index)
    }

    /// One of a size that is drawn as well: kind, size, place. It lies within the part.
    fn draw_sized(&mut self) -> Draw {
        let kind = self.kind();
        let Stream { way, sizes, source, next, block_bytes, .. } = self;
        let (unit, blocks) = (*block_bytes, self.blocks);
        let split = sizes.as_ref().expect("the caller saw sizes").of(kind);
        let mut bytes = split.draw(source);
        let step = u64::from(split.bytes_min() / unit);
        let block = match way {
            Way::Sequential => advance(next, blocks, u64::from(bytes / unit)),
            Way::Random | Way::Shuffled(_) => {
                let starts = (blocks - u64::from(bytes / unit)) / step + 1;
                source.below(starts) * step
            }
            Way::Zipf(zipf, scatter) => {
                let block = scatter.at(zipf.draw(source) - 1) * step;
                // The smallest fits everywhere; larger ones are drawn again near the end.
                let fits = |bytes: u32| block + u64::from(bytes / unit) <= blocks;
                for _ in 0..DRAWS {
                    if fits(bytes) {
                        break;
                    }
                    bytes = split.draw(source);
                }
                bytes = if fits(bytes) { bytes } else { split.bytes_min() };
                block
            }
        };
        Draw { kind, bytes, block }
    }
}

/// Where so many blocks begin that follow the last ones, which is at the start again where they do
/// not fit any more.
#[inline]
fn advance(next: &mut u64, blocks: u64, count: u64) -> u64 {
    let begin = if *next + count > blocks { 0 } else { *next };
    *next = begin + count;
    begin
}

/// Tries to find a size that fits.
const DRAWS: u32 = 16;

#[cfg(test)]
mod tests;
