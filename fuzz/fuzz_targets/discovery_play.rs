//! Discovery of NVMe/TCP over a connection to a target that is honest until its bytes are tampered
//! with, or PDUs are put between them.
//!
//! Checked: it ends with one result within its time limit, closes, and is gone; an untouched one
//! finds what is there.
#![no_main]

#[path = "played/discovery.rs"]
mod played;

use core::time::Duration;

use block::Instant;
use block::limits::POOL_PAGES_MIN;
use contract::Receive;
use libfuzzer_sys::fuzz_target;
use nvme::subsystem::{Hosts, Subsystem};
use nvme::tcp::initiator::Discovery;
use plateway_fuzz::Choices;
use plateway_fuzz::host::{HOST, nqn};
use plateway_fuzz::peer::invent;
use plateway_fuzz::target::Target;
use played::Play;
use wire::nvme_tcp::Digests;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let target = Target::new(POOL_PAGES_MIN, 1 << 20);
    let address = "127.0.0.1:4420".parse().expect("an address");
    let digests = Digests::from_bits(way & 3);
    let limit = Duration::from_secs(5);
    let discovery = Discovery::new(target.shard.now, address, nqn(HOST), [7; 16], digests, limit);
    let mut play = Play::new(target, discovery, way >> 4);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

/// One more subsystem: the log changes.
fn export(target: &mut Target, number: u8) {
    let name = format!("nqn.2026-11.net.plateway:more-{number}");
    let subsystem = Subsystem::new(nqn(&name), Hosts::Any);
    target.shard.shared.set_subsystem(target.shard.now, subsystem);
    target.shard.shared.announce_exports();
}

fn hear(discovery: &mut Discovery, now: Instant, bytes: &[u8]) -> Receive {
    discovery.handle_received(now, bytes)
}
