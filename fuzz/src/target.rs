//! Serving NVMe/TCP connections, with the controllers of one shard ([`Target`]).

use block::{BlockCount, BlockSize, Instant, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, SessionIdentity};
use nvme::controllers::Controllers as Shared;
use nvme::subsystem::{Hosts, Namespace, Subsystem};
use nvme::tcp::server::{Connection, Context, Settings};

use crate::host::{SIZE, SUBSYSTEM, nqn};

#[path = "serving.rs"]
#[allow(clippy::duplicate_mod, reason = "one text for all protocols")]
mod serving;

pub use serving::{Link, Serving as Target};

/// Namespace `nsid` of the play's subsystem, on the volume of its number.
pub fn namespace(nsid: u32, size: u64) -> Namespace {
    Namespace {
        nsid,
        volume: VolumeId(nsid),
        uuid: [nsid as u8; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount(size / 512),
        read_only: false,
        cache_volatile: nsid == 1,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
    }
}

/// The play's subsystem: namespaces 1 and 2.
pub fn subsystem() -> Subsystem {
    Subsystem::new(nqn(SUBSYSTEM), Hosts::Any)
        .with_namespace(namespace(1, SIZE))
        .with_namespace(namespace(2, SIZE))
}

/// The two ends of a connection.
pub fn endpoint() -> Endpoint {
    let address = "127.0.0.1:4420".parse().expect("an address");
    Endpoint { listener: ListenerId(0), peer: address, local: address }
}

impl Target {
    /// The play's subsystem with no connections yet; a budget of `pages`.
    pub fn new(pages: u32, max_h2c_data: u32) -> Target {
        let mut controllers = Shared::new(serving::BEGIN, ShardId(0), 1);
        controllers.set_subsystem(serving::BEGIN, subsystem());
        controllers.configuration_complete();
        Target::with_shared(pages, controllers, Settings { max_h2c_data })
    }
}

fn accepted(now: Instant, identity: SessionIdentity, settings: Settings) -> Connection {
    Connection::new(now, identity, endpoint(), settings)
}

/// Carries what controllers have for connections, and decides what these propose. Returns whether
/// there was something.
fn control(target: &mut Target) -> bool {
    let mut moved = false;
    while let Some((key, event)) = target.shard.shared.poll_event() {
        moved = true;
        let link = key.machine.0 as usize;
        target.with(link, |connection, ctx| connection.handle_event(event, ctx));
    }
    while let Some((volume, number, change)) = target.shard.shared.poll_reservation_change() {
        moved = true;
        let (answer, consequences) = target.shard.decide(volume, &change);
        target.shard.shared.reservation_changed(volume, &consequences);
        target.shard.shared.handle_reservation_answer(number, &answer);
    }
    assert!(target.shard.shared.poll_message().is_none(), "one shard writes to nobody");
    moved
}

fn left(controllers: &Shared) -> usize {
    controllers.queue_count()
}
