//! SCSI for a disk: what a logical unit makes of commands, whatever transport carries them.
//!
//! What lives here: the facts of a unit (`unit`); commands as work for its volume, or the sense data
//! that refuse them (`judge`, `work`, `commands`); the data that a device says of itself and of its
//! units (`reply`, `inquiry`, `mode`); lists that hosts send (`parameters`); commands that change or tell
//! the reservation (`reserve`); third-party copies (`copy`); which blocks have space below
//! (`lba_status`); what a port answers in which state, and the commands about that (`paths`); outcomes of requests as statuses (`status`); unit attentions (`attention`). What
//! deliberately does not: transports, their sessions and names, task management, who waits for
//! what, and the layout of structures (room `wire`). Read `judge` first.
//!
//! The way of a command: take the unit attention that is due ([`Attentions::take`]), then
//! [`judge()`] it; ask what its path serves ([`check_path()`]) and what is in force of reservations
//! ([`Work::access`]); move its data; then submit what it is, or answer it by [`reply()`],
//! [`parameters()`], [`reserve_in()`], or what becomes of [`reserve_out()`] or [`copy()`].

mod attention;
mod commands;
mod copy;
#[cfg(test)]
mod fixtures;
mod inquiry;
mod judge;
mod lba_status;
pub mod limits;
mod mode;
mod parameters;
mod paths;
mod reply;
mod reserve;
mod status;
mod unit;
mod work;

pub use attention::Attentions;
pub use copy::{
    CopyOrder, CopyState, check_destination, copy, copy_aborted, copy_in_progress, copy_results,
};
pub use inquiry::tells_whose;
pub use judge::{judge, judge_absent};
pub use lba_status::LbaSearch;
pub use parameters::{Ordered, parameters};
pub use paths::{access_changed, check_blocks, check_path, set_paths, status_of_paths};
pub use reply::{Facts, TargetPort, reply};
pub use reserve::{AT_PORT, Asker, Decision, reserve_in, reserve_out, status_of_change, told_as};
pub use status::status_of;
pub use unit::{LogicalUnit, ModeState};
pub use work::{Payload, Work};
