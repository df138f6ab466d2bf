//! Discovery of iSCSI over a connection to a target that is honest until its bytes are tampered with, or
//! PDUs are put between them: answers to logins, texts in pieces, challenges, rejects.
//!
//! Checked: it ends with one result within its time limit, closes, and is gone; an untouched one
//! finds what is there, with CHAP of either end or without.
#![no_main]

#[path = "played/discovery.rs"]
mod played;

use core::time::Duration;

use block::Instant;
use block::limits::POOL_PAGES_MIN;
use contract::{ListenerId, Receive};
use iscsi::auth::{Challenge, Login};
use iscsi::initiator::Discovery;
use iscsi::target::Portal;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::iscsi_host::{HOST, name};
use plateway_fuzz::iscsi_target::{Serving as Target, credentials, invent, required, target};
use played::Play;
use wire::iscsi::Digests;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let mut serving = Target::new(POOL_PAGES_MIN);
    let (proves, asks_back) = (way & 4 != 0, way & 8 != 0);
    let portal = Portal { required: proves.then(required), ..Portal::default() };
    serving.shard.shared.set_portal(ListenerId(0), portal);
    let auth = proves.then(|| {
        let other = asks_back.then(|| credentials("target"));
        let challenge = Challenge { identifier: way, bytes: [way; 32] };
        (Login { own: credentials("host"), target: other }, challenge)
    });
    let address = "127.0.0.1:3260".parse().expect("an address");
    let who = (name(HOST), [0x80, 0, 0, 0, 0, 1]);
    let digests = Digests { header: way & 1 != 0, data: way & 2 != 0 };
    let now = serving.shard.now;
    let discovery = Discovery::new(now, address, who, auth, digests, Duration::from_secs(5));
    let mut play = Play::new(serving, discovery, way >> 4);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

/// One more target.
fn export(serving: &mut Target, number: u8) {
    let mut more = target();
    more.name = name(&format!("iqn.2026-11.net.plateway:more-{number}"));
    serving.shard.shared.set_target(more);
    serving.shard.shared.announce();
}

fn hear(discovery: &mut Discovery, _: Instant, bytes: &[u8]) -> Receive {
    discovery.handle_received(bytes)
}
