//! NVMe commands, completions and the structures they carry; base specification 2.x and the NVM
//! command set, as NVMe over Fabrics uses them.
//!
//! [`command`] is the submission queue entry, [`completion`] and [`status`] the answer; what they
//! carry is in [`identify`], [`log`], [`feature`], [`async_event`], [`reservation`] and [`fabrics`]. Little-endian,
//! no state: which command is allowed when is the business of the machines above.

pub mod async_event;
pub mod command;
pub mod completion;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod reservation;
pub mod status;

pub use command::Command;
pub use completion::Completion;
pub use nqn::Nqn;
pub use status::Status;
