//! The program as a process: `serve` and the commands that talk to it.

mod apply;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod follow;
mod overwrite;
mod serve;
