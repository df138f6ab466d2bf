//! NVMe over Fabrics, over TCP: the target and the initiator as pure machines.
//!
//! What lives here: what is exported (`subsystem`), the control side of the target (`controllers`,
//! and the data that its commands return in `identify`, `log`, `feature`,
//! `discovery` and `fabrics`), and what shards tell each other (`message`); I/O commands as
//! requests to volumes (`io`), as changes of reservations (`reservations`), what a path serves
//! (`paths`), and outcomes as statuses (`status`); the connections themselves (`tcp`). What
//! deliberately does not: sockets, clocks, threads, disks, and the layout of structures (room
//! `wire`). Read `controllers` first, then `tcp::server`.

pub mod controllers;
mod discovery;
mod fabrics;
mod feature;
#[cfg(test)]
mod fixtures;
mod identify;
mod io;
pub mod limits;
mod log;
mod message;
mod paths;
mod reservations;
mod status;
pub mod subsystem;
pub mod tcp;
