//! Remote disks: what every initiator does with the requests of its disk, whatever protocol it
//! speaks.
//!
//! What lives here: each request from its arrival to its one completion ([`disk`]), cut and joined
//! where it is larger than a command ([`parts`]); deadlines, rests and second tries ([`timers`]);
//! which changes wait for which ([`claims`]); what a break leaves in doubt ([`doubt`]); whether the
//! disk is there, and what people are told about it ([`presence`]). What deliberately does not: the
//! bytes of a protocol, connections and links, and which command goes where and when. An initiator
//! keeps one [`Disk`], and with each job what its own protocol has to know of the command under
//! way. Read [`disk`] first; the reasons are in docs/decisions/0006 and 0008.

mod claims;
mod disk;
mod doubt;
mod job;
mod parts;
mod presence;
#[cfg(test)]
mod tests;
mod timers;

pub use disk::Disk;
pub use job::{Cursor, Job, JobKind, JobState, PayloadPlace, Verdict};
pub use presence::{InitiatorNews, Presence, Reach};
pub use timers::backoff;
