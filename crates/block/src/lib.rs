//! The words that everything which stores blocks speaks: a [`Request`] goes down and exactly one
//! [`Completion`] comes up, and the bytes travel with them in a [`Buffer`] that has one owner.
//!
//! What lives here: units, requests, outcomes, buffers and the pool that bounds them, time,
//! tickets, tables by slot and by number, how parts are joined and blocks copied, a seeded random
//! source, CRC32C, and the bounds that hold for every protocol (`limits`), errors that tests plant
//! (`planted`) and what they passed through (`record`). What deliberately does not: protocol names,
//! I/O, threads, clocks, unsafe code. Read `request` first, then `buffer` and `memory`.

pub mod buffer;
pub mod checksum;
pub mod copying;
pub mod id_map;
pub mod join;
pub mod limits;
pub mod memory;
pub mod planted;
pub mod pool;
pub mod random;
pub mod record;
pub mod request;
pub mod table;
pub mod ticket;
pub mod time;
pub mod units;

pub use buffer::{Buffer, PAGE_SIZE, PageId, Segment};
pub use copying::{CopySegment, Copying};
pub use id_map::IdMap;
pub use join::Join;
pub use memory::{Landing, Loan, Memory};
pub use planted::planted;
pub use pool::{Account, Class, Pool};
pub use random::Random;
pub use request::{Completion, Failure, Operation, Outcome, Request, Sought, Submit};
pub use table::{Slot, Table};
pub use ticket::{DiskId, MachineId, ShardId, Ticket, VolumeId};
pub use time::Instant;
pub use units::{BlockCount, BlockSize, ByteCount, ByteOffset, Extent, Lba};
