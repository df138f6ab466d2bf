//! The program as a process: `serve` and the commands that talk to it.

mod apply;
#[path = "../common/mod.rs"]
mod common;
mod serve;
