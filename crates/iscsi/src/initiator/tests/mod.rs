//! The initiator against the real target, in one process and on one clock turned by hand: see
//! [`pair`], the driver of both; and against a target that a test plays, where a real one would not
//! do what is to be tested: see [`played`].

mod breaks;
mod chaos;
mod commands;
mod discovering;
mod fixtures;
mod liveness;
mod logins;
mod pair;
mod played;
mod scripted;
mod several;
mod transfers;
