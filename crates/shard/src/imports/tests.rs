//! What imports do with connections, orders and time, whichever protocol reaches them: here one
//! over NVMe/TCP.

use core::time::Duration;

use block::ShardId;
use nvme::tcp::initiator::Settings;
use testkit::Pages;
use wire::nvme::Nqn;

use super::*;

const SHARD: crate::Settings =
    crate::Settings { shard: ShardId(0), shards: 1, pages: 4096, seed: 1, secret: [7; 32] };
const DISK: DiskId = DiskId(3);
const START: Instant = Instant(1_000);

fn add(imports: &mut Imports, number: u64) {
    let nqn = |name: &str| Nqn::new(name).expect("a valid name");
    let address = "127.0.0.1:4420".parse().expect("an address");
    let host = nqn("nqn.2014-08.org.nvmexpress:uuid:1");
    let subsystem = nqn("nqn.2026-11.net.plateway:a");
    let settings = Settings::new(address, subsystem, 1, host, [1; 16]);
    imports.add(START, DISK, number, ImportSettings::NvmeTcp(settings), (SHARD, 1));
}

fn asked(imports: &mut Imports) -> Vec<u64> {
    let token = |effect| match effect {
        Effect::Connect { token, .. } => token,
        other => panic!("{other:?}"),
    };
    imports.effects.drain(..).map(token).collect()
}

#[test]
fn an_import_that_cannot_connect_answers_with_address_and_reason_and_is_gone() {
    let mut imports = Imports::default();
    add(&mut imports, 17);
    imports.settle(START, &mut Pages::new());
    let mut now = START;
    loop {
        for token in asked(&mut imports) {
            imports.connect_failed(now, token, 111);
        }
        imports.settle(now, &mut Pages::new());
        if let [(number, disk, Err(why))] = &imports.ready[..] {
            assert_eq!((*number, *disk), (17, DISK));
            assert!(why.contains("127.0.0.1:4420") && why.contains("refused"), "{why}");
            break;
        }
        now = imports.poll_timeout().expect("it tries again").max(now);
        imports.handle_timeout(now);
        imports.settle(now, &mut Pages::new());
    }
    assert_eq!(now.since(START), Duration::from_secs(10));
    while imports.needs_settle() {
        imports.settle(now, &mut Pages::new());
    }
    assert!(imports.is_empty());
}

#[test]
fn a_connection_that_comes_for_a_removed_import_is_closed_and_not_given_to_its_successor() {
    let mut imports = Imports::default();
    add(&mut imports, 1);
    imports.settle(START, &mut Pages::new());
    let old = asked(&mut imports)[0];
    imports.close(DISK);
    assert!(imports.ready[0].2.is_err(), "its order is answered");
    add(&mut imports, 2);
    imports.settle(START, &mut Pages::new());
    let new = asked(&mut imports)[0];
    assert_ne!(old, new);
    let connection = ConnectionId { slot: 5, generation: 0 };
    assert_eq!(imports.connected(START, old, connection), Some(DISK));
    imports.settle(START, &mut Pages::new());
    let close = imports.effects.pop_front();
    assert!(matches!(close, Some(Effect::Close { connection: c, .. }) if c == connection));
    let closed = contract::Event::Closed { connection, direct: None, batch: None };
    imports.stream(DISK, connection).handle_connection(START, closed, &mut Pages::new());
    imports.settle(START, &mut Pages::new());
    assert_eq!(imports.connected(START, old, connection), None, "the old one is gone");
    assert_eq!(imports.connected(START, new, connection), Some(DISK));
}

#[test]
fn a_shard_without_imports_never_asks_to_be_woken_for_them() {
    let mut imports = Imports::default();
    imports.drain();
    assert_eq!(imports.poll_timeout(), None, "a drain with nothing imported");
    imports.connect_failed(START, 1 << 32, 111);
    assert_eq!(imports.poll_timeout(), None, "an answer for an import that is gone");
}

#[test]
fn requests_that_came_after_a_settle_are_not_forgotten() {
    let mut imports = Imports::default();
    add(&mut imports, 1);
    imports.settle(START, &mut Pages::new());
    assert!(!imports.needs_settle());
    let ticket = block::Ticket::default();
    let mut request = Request { ticket, operation: block::Operation::Flush };
    let import = imports.get_mut(DISK).expect("it is there");
    import.handle_request(START, &mut request);
    assert!(imports.needs_settle() && imports.poll_timeout() == Some(Instant::ZERO));
    assert!(!imports.is_quiet());
}
