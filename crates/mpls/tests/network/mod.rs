//! The network that tests run: the routers, links and wires of `topology`, what links do with frames
//! (`links`), customers and what they may hear (`customers`, `oracle`).
//!
//! In it are played, each from a seed:
//!
//! - `tables`: routers as tables and verdicts. Links also corrupt, customers forge, and tables change
//!   under traffic.

mod customers;
mod links;
mod oracle;
mod tables;
mod topology;

pub(crate) use tables::run as run_tables;
