//! The lab: what measures and copies disks, as machines without I/O.
//!
//! What lives here: [`workload`] (which offsets, in which order), [`stamp`] (data that say where
//! and when they were written), [`load`] (jobs that keep queues full or keep a schedule, and
//! count), [`file_load`] (what servers do with many files), [`copier`] and its [`journal`], [`probe`] (is a disk blank), [`report`] (what is printed
//! and stored), [`statistics`] (rounds in, verdicts out: when to run what, and whether a difference is
//! real), [`plan`] (a plan file in, trials to run and verdicts out), [`kept`] (a result file as it is read), [`recommend`] (which road to take by them),
//! [`watch`] (whether runs of a plan changed), [`papers`] (what five papers found, and what our numbers say of it), [`fio`] (a job file of fio in, loads out), [`following`] (what a client of others says of itself while it runs), [`programs`] (what bonnie++, PostMark and pgbench print, and a merge sort), [`words`] (how people
//! write a load).
//! What deliberately does not: shards, sockets, clocks, terminals. A lab machine is a [`Guest`]: it is
//! carried by a shard, asks for buffers and submits requests at a [`Desk`], and is told the time. Read
//! [`guest`] first, then `load`.

pub mod attached;
pub mod copier;
pub mod file_load;
pub mod fio;
pub mod following;
pub mod guest;
pub mod journal;
pub mod kept;
pub mod load;
mod mistake;
pub mod papers;
pub mod plan;
pub mod probe;
pub mod programs;
pub mod recommend;
pub mod report;
pub mod stamp;
pub mod statistics;
pub mod watch;
pub mod words;
pub mod workload;

#[cfg(test)]
mod fake;

pub use guest::{Desk, Guest, Phase, Place, Progress};
