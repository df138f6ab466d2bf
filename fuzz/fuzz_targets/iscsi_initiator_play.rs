//! The iSCSI initiator over connections to a target that is honest until its bytes are tampered with,
//! or PDUs are put between them: wrong tags, numbers, lengths, R2Ts, statuses, answers to logins.
//!
//! Checked: each request is answered once, with the right bytes while nobody has tampered; all are
//! answered within their deadline once the network is well again; closed, it is gone, and no page
//! is lost.
#![no_main]

#[path = "played/initiator.rs"]
mod played;

use block::limits::POOL_PAGES_MIN;
use iscsi::initiator::{Initiator, Settings};
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::iscsi_host::{HOST, TARGET, name};
use plateway_fuzz::iscsi_target::{Serving as Target, invent, target, unit};
use played::Play;
use wire::iscsi::Digests;

/// The volume, and its LUN.
const DISK: u32 = 1;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let target = Target::new(POOL_PAGES_MIN);
    let address = "127.0.0.1:3260".parse().expect("an address");
    let isid = [0x80, 0, 0, 0, 0, 1];
    let mut settings = Settings::new(address, name(TARGET), DISK as u16, name(HOST), isid);
    settings.digests = Digests { header: way & 2 != 0, data: way & 4 != 0 };
    settings.sessions = 1 + u16::from(way >> 3 & 1);
    settings.depth = [8, 2][usize::from(way >> 4 & 1)];
    let initiator = Initiator::new(settings, way & 0x20 != 0, u64::from(way));
    // Most inputs begin with a session that stands; the others play with its making.
    let mut play = Play::new(target, initiator, way & 0x40 == 0);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

/// The logical unit has another size.
fn resize(serving: &mut Target, size: u64) {
    serving.shard.shared.set_target(target().with_unit(unit(DISK as u16, size)));
    serving.shard.shared.announce();
}
