//! The target by hand: frames as an initiator's driver puts them on the wire, and a volume that
//! answers when it is told to.

mod access;
mod commands;
mod config;
mod durability;
mod hostile;
mod order;
mod world;
