//! The initiator over connections to a target that is honest until its bytes are tampered with, or
//! PDUs are put between them.
//!
//! Checked: each request is answered once, with the right bytes while nobody has tampered; all are
//! answered within their deadline once the network is well again; closed, it is gone, and no page
//! is lost.
#![no_main]

#[path = "played/initiator.rs"]
mod played;

use block::limits::POOL_PAGES_MIN;
use libfuzzer_sys::fuzz_target;
use nvme::tcp::initiator::{Initiator, Settings};
use plateway_fuzz::Choices;
use plateway_fuzz::host::{HOST, SUBSYSTEM, nqn};
use plateway_fuzz::peer::invent;
use plateway_fuzz::target::{Target, namespace, subsystem};
use played::Play;
use wire::nvme_tcp::Digests;

const DISK: u32 = 1;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let target = Target::new(POOL_PAGES_MIN, if way & 1 == 0 { 1 << 20 } else { 4096 });
    let address = "127.0.0.1:4420".parse().expect("an address");
    let mut settings = Settings::new(address, nqn(SUBSYSTEM), DISK, nqn(HOST), [7; 16]);
    settings.digests = Digests::from_bits(way >> 1 & 3);
    settings.queues = 1 + u16::from(way >> 3 & 1);
    settings.depth = [8, 2][usize::from(way >> 4 & 1)];
    let initiator = Initiator::new(settings, way & 0x20 != 0, u64::from(way));
    // Most inputs begin with an association that stands; the others play with its making.
    let mut play = Play::new(target, initiator, way & 0x40 == 0);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

/// The namespace has another size.
fn resize(target: &mut Target, size: u64) {
    let now = target.shard.now;
    let subsystem = subsystem().with_namespace(namespace(DISK, size));
    target.shard.shared.set_subsystem(now, subsystem);
    target.shard.shared.announce_exports();
}
