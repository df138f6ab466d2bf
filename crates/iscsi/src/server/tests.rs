//! Dialogues of the serving end with a scripted host, in one process: real targets, volumes in
//! vectors, memory that watches its pages, and a driver that keeps the contract and cuts the stream
//! where a test says. Every PDU is heard by [`testkit::iscsi::host::Host`], which knows the rules of
//! numbers and data, so no test checks them again.
//!
//! Tests are named by the rule they check.

mod world;

mod changes;
mod closing;
mod commands;
mod control;
mod copy;
mod discovery;
mod hostile;
mod landing;
mod login;
mod management;
mod memory;
mod numbers;
mod order;
mod paths;
mod reinstatement;
mod reserve;
mod residuals;
mod steps;
mod transfer;
mod unread;
mod writes;
