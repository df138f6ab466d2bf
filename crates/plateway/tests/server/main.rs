//! The program as a process: `serve` and the commands that talk to it.

mod across;
mod api;
mod apply;
mod broken;
mod chap;
mod check;
#[path = "../common/client.rs"]
mod client;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod connect;
mod copies;
mod errors;
mod failed;
mod files;
mod follow;
mod groups;
mod hosts;
mod iscsi;
mod log;
mod machine;
mod messages;
mod overwrite;
mod reopen;
mod reservations;
mod route;
mod serve;
mod service;
#[path = "../common/session.rs"]
mod session;
mod sessions;
mod watch;
