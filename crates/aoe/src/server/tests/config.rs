//! Queries, config strings, wildcards and announcements.

use core::time::Duration;

use block::{MachineId, ShardId};
use contract::LinkFacts;
use wire::aoe::Address;
use wire::ethernet::{EtherType, MacAddress, TagControl, VlanTag};

use super::world::*;
use crate::control::Control;
use crate::export::{ExportId, Hosts};
use crate::limits::ANNOUNCED_AGAIN;
use crate::server::Target;

/// Sub-command, sector count, buffer count and string of an answer to a query.
fn told(frame: &[u8]) -> (u8, u8, u16, &[u8]) {
    assert_eq!((frame[14], frame[19]), (0x18, 1));
    let length = usize::from(u16::from_be_bytes([frame[30], frame[31]]));
    let buffers = u16::from_be_bytes([frame[24], frame[25]]);
    assert_eq!(frame[29] & 0xf0, 0x10);
    (frame[29] & 0xf, frame[28], buffers, &frame[32..32 + length])
}

#[test]
fn wildcards_are_answered_with_the_own_address() {
    let mut world = World::new();
    for (shelf, slot) in [([0xff, 0xff], 0xff), ([0, 7], 0xff), ([0xff, 0xff], 3)] {
        for to in [ALL, OWN] {
            let mut query = config(to, A, 0x0102_0304, 0, &[]);
            (query[16], query[17], query[18]) = (shelf[0], shelf[1], slot);
            let answer = world.answer(&query);
            assert_eq!((&answer[..6], &answer[16..19]), (&A[..], &[0, 7, 3][..]));
            assert_eq!((tag_of(&answer), answer.len()), (0x0102_0304, 60));
            assert_eq!(told(&answer), (0, 17, 64, &[][..]));
        }
    }
    for (shelf, slot) in [([0xff, 0xff], 4), ([0, 8], 0xff), ([0, 8], 3)] {
        let mut query = config(ALL, A, 1, 0, &[]);
        (query[16], query[17], query[18]) = (shelf[0], shelf[1], slot);
        world.silence(&query);
    }
}

#[test]
fn wildcards_are_for_queries_alone() {
    let mut world = World::new();
    world.silence(&wild(write(A, 1, 0, 9, 1)));
    world.silence(&wild(read(A, 1, 0, 1)));
    world.silence(&wild(config(OWN, A, 1, 3, b"x")));
    world.silence(&wild(config(ALL, A, 1, 4, b"x")));
    world.silence(&wild(frame(OWN, A, 2, 1, &[0, 1, 0, 1, 0, 1, 2, 0, 0, 0, 0, 1])));
    world.silence(&wild(frame(OWN, A, 3, 1, &[2, 1, 2, 0, 0, 0, 0, 1])));
    world.silence(&wild(frame(OWN, A, 9, 1, &[])));
    assert_eq!(world.target.drops().wildcard, 7);
    assert_eq!(world.sectors(0, 1), [0; 512]);
    assert!(world.controls.stored.is_empty());
}

#[test]
fn a_read_is_answered_whatever_length_it_says() {
    let mut world = World::new();
    let mut query = config(ALL, A, 1, 0, &[0xed; 1024]);
    assert_eq!(told(&world.answer(&query)).0, 0);
    query[30] = 0xff;
    assert_eq!(told(&world.answer(&query)).0, 0);
}

#[test]
fn test_and_prefix_answer_only_what_matches() {
    let mut world = World::new();
    assert_eq!(told(&world.answer(&config(ALL, A, 1, 3, b"hello"))).3, b"hello");
    assert_eq!(told(&world.answer(&config(ALL, A, 2, 1, b"hello"))), (1, 17, 64, &b"hello"[..]));
    world.silence(&config(ALL, A, 3, 1, b"hell"));
    world.silence(&config(ALL, A, 4, 1, b"hello!"));
    assert_eq!(told(&world.answer(&config(ALL, A, 5, 2, b"hell"))).0, 2);
    assert_eq!(told(&world.answer(&config(ALL, A, 6, 2, b""))).3, b"hello");
    world.silence(&config(ALL, A, 7, 2, b"hallo"));
    world.silence(&config(ALL, A, 8, 2, b"hello, world"));
    assert_eq!(world.target.drops().no_match, 4);
    // The same through a wildcard.
    let mut query = wild(config(ALL, A, 9, 2, b"he"));
    assert_eq!(told(&world.answer(&query)).3, b"hello");
    query[32] = b'x';
    world.silence(&query);
}

#[test]
fn set_where_there_is_none_or_the_same_and_force_always() {
    let mut world = World::new();
    assert_eq!(told(&world.answer(&config(OWN, A, 1, 3, b"one"))), (3, 17, 64, &b"one"[..]));
    assert_eq!(told(&world.answer(&config(OWN, A, 2, 3, b"one"))).3, b"one");
    assert_eq!(world.answer(&config(OWN, A, 3, 3, b"two"))[14..16], [0x1c, 4]);
    assert_eq!(told(&world.answer(&config(OWN, B, 4, 4, b"two"))).3, b"two");
    assert_eq!(told(&world.answer(&config(OWN, A, 5, 0, b""))).3, b"two");
    assert_eq!(told(&world.answer(&config(OWN, A, 6, 4, b""))).3, b"");
    assert_eq!(
        world.controls.stored,
        ["config 6f6e65 mask", "config 74776f mask", "config - mask"]
    );
}

#[test]
fn strings_have_at_most_1024_bytes() {
    let mut world = World::with(1500, |_| {});
    let long = [b'x'; 1025];
    assert_eq!(told(&world.answer(&config(OWN, A, 1, 4, &long[..1024]))).3.len(), 1024);
    for command in [1, 2, 3, 4] {
        assert_eq!(world.answer(&config(OWN, A, 2, command, &long))[14..16], [0x1c, 2]);
    }
    // A length that is not there.
    let mut short = config(OWN, A, 3, 4, b"abc");
    (short[30], short[31]) = (0, 200);
    assert_eq!(world.answer(&short)[14..16], [0x1c, 2]);
    for command in 5..16 {
        assert_eq!(world.answer(&config(OWN, A, 4, command, b""))[14..16], [0x1c, 2]);
    }
    assert_eq!(told(&world.answer(&config(OWN, A, 5, 0, &[]))).3.len(), 1024);
}

#[test]
fn a_string_that_cannot_be_stored_is_not_set() {
    let mut world = World::new();
    world.stores = false;
    assert_eq!(world.answer(&config(OWN, A, 1, 3, b"one"))[14..16], [0x1c, 3]);
    assert_eq!(told(&world.answer(&config(OWN, A, 2, 0, b""))).3, b"");
}

#[test]
fn the_sector_count_follows_the_mtu() {
    for (mtu, sectors) in [(1500, 2), (9000, 17), (4200, 8)] {
        let mut world = World::with(mtu, |_| {});
        assert_eq!(told(&world.answer(&config(ALL, A, 1, 0, &[]))).1, sectors);
    }
    // A link that carries no sector carries no AoE.
    let mut world = World::with(500, |_| {});
    world.silence(&config(ALL, A, 1, 0, &[]));
    assert_eq!(world.target.drops().link_down, 1);
}

#[test]
fn the_buffer_count_is_at_least_two() {
    for (asked, told_count) in [(0, 2), (1, 2), (2, 2), (300, 300), (60_000, 1024)] {
        let mut world = World::with(1500, |export| export.buffers = asked);
        assert_eq!(told(&world.answer(&config(ALL, A, 1, 0, &[]))).2, told_count);
    }
}

#[test]
fn exports_are_announced_at_the_start_and_when_something_changes() {
    let mut world = World::empty();
    world.add(EXPORT, |_| {});
    world.run();
    assert_eq!(world.take(), [[0u8; 0]; 0]);
    world.up(LINK, facts(1500));
    world.run();
    let sent = world.take();
    assert_eq!(sent.len(), 1);
    assert_eq!((&sent[0][..6], &sent[0][16..24]), (&ALL[..], &[0, 7, 3, 1, 0, 0, 0, 0][..]));
    assert_eq!((told(&sent[0]), sent[0].len()), ((0, 2, 64, &[][..]), 60));
    // The same again is no news; another MTU and another size are.
    world.up(LINK, facts(1500));
    world.run();
    assert_eq!(world.take().len(), 0);
    world.up(LINK, facts(9000));
    world.run();
    assert_eq!(told(&world.take()[0]).1, 17);
    world.renew(|export| export.sectors = 2000);
    world.run();
    assert_eq!(world.take().len(), 1);
}

#[test]
fn an_announcement_is_made_three_times_in_case_it_was_lost() {
    let mut world = World::new();
    world.renew(|export| export.sectors = 2000);
    world.run();
    let first = world.take();
    assert_eq!(first.len(), 1);
    for rest in ANNOUNCED_AGAIN {
        world.pass(rest - Duration::from_millis(3));
        world.run();
        assert_eq!(world.take(), [[0u8; 0]; 0]);
        world.pass(Duration::from_millis(3));
        world.run();
        assert_eq!(world.take(), first);
    }
    assert_eq!(world.target.poll_timeout(), None, "it is idle");
    // Not where the link is down by then, nor of what is not there any more.
    world.renew(|export| export.sectors = 1000);
    world.run();
    world.target.link_down(LINK);
    world.pass(Duration::from_secs(10));
    world.run();
    assert_eq!(world.take().len(), 1);
    assert_eq!(world.target.poll_timeout(), None);
}

/// As a link over AF_XDP is: the others never hear that it is up.
#[test]
fn a_link_that_one_shard_has_alone_is_announced_by_it_whosever_the_export_is() {
    for (is_shared, announced) in [(true, 0), (false, 1)] {
        let mut world = World::empty();
        world.target = Target::new(MachineId(5), ShardId(1)).among(2);
        world.up(LINK, LinkFacts { is_shared, ..facts(1500) });
        world.add(EXPORT, |_| {});
        world.run();
        assert_eq!(world.take().len(), announced);
    }
}

#[test]
fn announcements_go_only_to_those_who_are_heard() {
    let mut world = World::empty();
    world.up(LINK, facts(1500));
    world.add(ExportId(0), |export| {
        export.hosts = Hosts::List(vec![MacAddress(A), MacAddress(B)]);
    });
    world.add(ExportId(1), |export| export.hosts = Hosts::List(vec![]));
    world.run();
    let to: Vec<[u8; 6]> =
        world.take().iter().map(|frame| frame[..6].try_into().unwrap()).collect();
    assert_eq!(to, [A, B]);
    world.target.install_control(ExportId(0), Control::with(b"", &[MacAddress(B)]).unwrap());
    world.up(LINK, facts(9000));
    world.run();
    assert_eq!(world.take().len(), 1);
}

#[test]
fn answers_to_a_wildcard_come_in_bursts_and_each_once() {
    let mut world = World::empty();
    world.up(LINK, facts(1500));
    for number in 0..200 {
        world.add(ExportId(number), |export| {
            export.address = Address::new(number as u16, 1);
            export.volume = block::VolumeId(0);
        });
    }
    world.run();
    world.sent.clear();
    let query = wild(config(ALL, A, 1, 0, &[]));
    world.come(&query);
    // A copy of it is the same query.
    world.come(&query);
    assert_eq!(world.target.drops().busy, 1);
    world.come(&wild(config(ALL, B, 1, 0, &[])));
    world.pass(core::time::Duration::from_millis(1));
    world.turn();
    assert_eq!(world.sent.len(), 64);
    world.run();
    let mut shelves: Vec<_> = world.take().iter().map(|f| (f[5], f[16], f[17])).collect();
    assert_eq!(shelves.len(), 400);
    shelves.sort();
    shelves.dedup();
    assert_eq!(shelves.len(), 400);
}

#[test]
fn an_address_that_another_station_announces_is_noticed_once() {
    let mut world = World::new();
    let mut heard = config(ALL, B, 0, 0, &[]);
    heard[14] = 0x18;
    world.silence(&heard);
    world.silence(&heard);
    let notices = world.notices();
    assert_eq!(notices.len(), 1);
    // Our own announcements, heard on another link, are ours.
    let mut world = World::new();
    heard[6..12].copy_from_slice(&OWN);
    world.silence(&heard);
    assert_eq!(world.notices(), []);
}

#[test]
fn a_vlan_is_heard_and_answered_with_its_tag() {
    let mut world = World::empty();
    world.up(LINK, LinkFacts { vlan: Some(100), ..facts(1500) });
    world.add(EXPORT, |_| {});
    world.run();
    let sent = world.take();
    assert_eq!(sent[0][12..18], [0x81, 0, 0, 100, 0x88, 0xa2]);
    assert_eq!(sent[0].len(), 64);
    let plain = read(A, 7, 0, 1);
    let tagged = |id: u16| {
        let mut bytes = plain[..12].to_vec();
        bytes.extend([0x81, 0]);
        bytes.extend(id.to_be_bytes());
        bytes.extend(&plain[12..]);
        bytes
    };
    // In the frame, and taken off by the kernel.
    let answer = world.answer(&tagged(0xa000 | 100));
    assert_eq!(answer[12..20], [0x81, 0, 0xa0, 100, 0x88, 0xa2, 0x18, 0]);
    assert_eq!(answer.len(), 552);
    let tag = VlanTag { ether_type: EtherType::VLAN, control: TagControl(100) };
    world.come_on(LINK, Some(tag), &plain);
    world.run();
    assert_eq!(world.take().len(), 1);
    world.silence(&tagged(101));
    world.silence(&plain);
    assert_eq!(world.links.misfits.other_vlan, 2);
    // A link without VLAN takes frames that only have a priority.
    let mut world = World::new();
    assert_eq!(world.answer(&tagged(0x6000)).len(), 548);
    world.silence(&tagged(100));
}
