//! Sessions of a shard: which connections are served, and which are turned away.

use block::{Instant, ShardId};
use contract::{ConnectionId, Effect, Endpoint, Event, ListenerId, Machine};
use shard::report::ShardCounters;
use shard::{Mail, Order, Protocol, Settings, Shard};
use testkit::Pages;

const LISTENER: ListenerId = ListenerId(3);
const NOW: Instant = Instant(1_000_000);

struct World {
    shard: Shard,
    memory: Pages,
}

impl World {
    fn new() -> World {
        let settings = Settings { shard: ShardId(0), shards: 1, pages: 64, seed: 5 };
        World { shard: Shard::new(Instant::ZERO, settings), memory: Pages::default() }
    }

    /// Tells the shard something; what it wants of its driver's connections then, and whether the
    /// peer is to be heard before they close.
    fn tell(&mut self, event: Event<Mail>) -> Vec<(ConnectionId, bool)> {
        self.shard.handle_event(NOW, event, &mut self.memory);
        self.shard.settle(NOW, &mut self.memory);
        let effects = core::iter::from_fn(|| self.shard.poll_effect());
        let closes = effects.filter_map(|effect| match effect {
            Effect::Close { connection, after_send } => Some((connection, after_send)),
            Effect::Mail { to: ShardId::CONTROL, .. } => None,
            other => panic!("{other:?}"),
        });
        closes.collect()
    }

    fn order(&mut self, order: Order) -> Vec<(ConnectionId, bool)> {
        let mail = Mail::Order { number: 7, order: Box::new(order) };
        self.tell(Event::Mail { from: ShardId::CONTROL, mail })
    }

    fn accept(&mut self, slot: u32) -> Vec<(ConnectionId, bool)> {
        let address = "127.0.0.1:4420".parse().expect("an address");
        let endpoint = Endpoint { listener: LISTENER, peer: address, local: address };
        self.tell(Event::Accepted { connection: id(slot), endpoint })
    }
}

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 9 }
}

#[test]
fn a_listener_says_what_its_connections_speak_before_it_listens() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, protocol: Protocol::NvmeTcp });
    assert_eq!(world.accept(0), []);
    assert_eq!(world.shard.report().connections.len(), 1);
}

#[test]
fn a_connection_of_a_listener_that_is_gone_is_turned_away_whatever_it_says() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, protocol: Protocol::NvmeTcp });
    assert_eq!(world.accept(0), []);
    assert_eq!(world.order(Order::RemoveListener(LISTENER)), [(id(0), true)]);
    assert_eq!(world.accept(1), [(id(1), false)]);
    // The driver may have had something for it before it was asked to close.
    let receive = world.shard.handle_received(NOW, id(1), b"late", &mut world.memory);
    assert_eq!(receive.consumed, 0);
    for slot in 0..2 {
        let closed = Event::Closed { connection: id(slot), direct: None, batch: None };
        assert_eq!(world.tell(closed), []);
    }
    let report = world.shard.report();
    assert_eq!(
        (report.connections.len(), report.counters),
        (0, ShardCounters { accepted: 2, misbehaved: 0 })
    );
}

#[test]
fn a_connection_that_comes_while_the_shard_drains_is_closed() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, protocol: Protocol::NvmeTcp });
    assert_eq!(world.order(Order::Drain), []);
    assert_eq!(world.accept(0), [(id(0), true)]);
}
