//! Who is heard, and who may do what: hosts, masks, reservations.

use core::time::Duration;

use block::{Failure, Outcome};
use wire::ethernet::MacAddress;

use super::world::*;
use crate::export::Hosts;

fn mask(source: [u8; 6], command: u8, directives: &[(u8, [u8; 6])]) -> Vec<u8> {
    let mut body = vec![0, command, 0, directives.len() as u8];
    for (what, mac) in directives {
        body.extend([0, *what]);
        body.extend(mac);
    }
    frame(OWN, source, 2, 77, &body)
}

/// Sub-command, error, count, and the addresses listed.
fn masked(answer: &[u8]) -> (u8, u8, u8, Vec<[u8; 6]>) {
    assert_eq!((answer[14], answer[19]), (0x18, 2));
    let list = answer[28..].chunks_exact(8).take(answer[27].into());
    let list = list.map(|entry| {
        assert_eq!(entry[..2], [0, 0]);
        entry[2..].try_into().unwrap()
    });
    let list = if answer[26] == 0 { list.collect() } else { Vec::new() };
    (answer[25], answer[26], answer[27], list)
}

fn reserve(source: [u8; 6], command: u8, list: &[[u8; 6]]) -> Vec<u8> {
    let body = [&[command, list.len() as u8][..], &list.concat()].concat();
    frame(OWN, source, 3, 88, &body)
}

fn reserved(answer: &[u8]) -> Vec<[u8; 6]> {
    assert_eq!((answer[14], answer[19]), (0x18, 3));
    answer[26..]
        .chunks_exact(6)
        .take(answer[25].into())
        .map(|mac| mac.try_into().unwrap())
        .collect()
}

#[test]
fn a_station_that_is_no_host_gets_silence() {
    let mut world = World::with(1500, |export| export.hosts = Hosts::List(vec![MacAddress(A)]));
    assert_eq!(world.answer(&read(A, 1, 0, 1)).len(), 548);
    for bytes in [
        read(B, 1, 0, 1),
        write(B, 1, 0, 9, 1),
        config(ALL, B, 1, 0, &[]),
        mask(B, 0, &[]),
        reserve(B, 0, &[]),
        frame(OWN, B, 9, 1, &[]),
    ] {
        world.silence(&bytes);
        let mut wrong_version = bytes;
        wrong_version[14] = 0x20;
        world.silence(&wrong_version);
    }
    world.silence(&wild(config(ALL, B, 1, 0, &[])));
    assert_eq!(world.target.drops().not_allowed, 12);
    // People hear of it once, and of no more than so many that may be made up.
    let news = world.target.poll_host_news().unwrap();
    let mac = MacAddress(B);
    assert!(news.to_string().starts_with(&format!("host {mac} at link ")), "{news}");
    assert!(
        news.to_string().ends_with(&format!("7.3; to let it in, add \"{mac}\" to them")),
        "{news}"
    );
    assert_eq!(world.target.poll_host_news(), None);
    for last in 0..100 {
        world.silence(&read([2, 0, 0, 9, 9, last], 1, 0, 1));
    }
    let told = core::iter::from_fn(|| world.target.poll_host_news()).count();
    assert_eq!(told, crate::limits::REFUSED_MAX - 1);
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn the_mask_never_widens_hosts() {
    let mut world = World::with(1500, |export| export.hosts = Hosts::List(vec![MacAddress(A)]));
    let answer = world.answer(&mask(A, 1, &[(1, A), (1, B)]));
    assert_eq!(masked(&answer), (1, 0, 2, vec![A, B]));
    world.silence(&read(B, 1, 0, 1));
    assert_eq!(world.answer(&read(A, 1, 0, 1)).len(), 548);
    // And a host that is not in it is not heard.
    assert_eq!(masked(&world.answer(&mask(A, 1, &[(2, A)]))).3, [B]);
    world.silence(&read(A, 1, 0, 1));
    world.silence(&mask(A, 0, &[]));
}

#[test]
fn a_mask_is_read_edited_and_obeyed_by_all_commands() {
    let mut world = World::new();
    assert_eq!(masked(&world.answer(&mask(A, 0, &[]))), (0, 0, 0, vec![]));
    assert_eq!(masked(&world.answer(&mask(A, 1, &[(0, B), (1, A)]))), (1, 0, 1, vec![A]));
    world.silence(&read(B, 1, 0, 1));
    world.silence(&config(ALL, B, 1, 0, &[]));
    world.silence(&reserve(B, 0, &[]));
    // Adding twice and deleting who is not there succeed.
    assert_eq!(masked(&world.answer(&mask(A, 1, &[(1, A), (2, B)]))).3, [A]);
    assert_eq!(masked(&world.answer(&mask(A, 1, &[(2, A)]))).3, [[0u8; 6]; 0]);
    assert_eq!(world.answer(&read(B, 1, 0, 1)).len(), 548);
    assert_eq!(world.controls.stored, ["config - mask 02:00:00:00:00:01", "config - mask"]);
    let queries = world.target.counters().queries;
    world.answer(&mask(A, 0, &[]));
    assert_eq!(world.target.counters().queries, queries + 1, "to read it is a query");
}

#[test]
fn a_mask_edit_stops_at_a_bad_directive_and_at_its_end() {
    let mut world = World::with(9000, |_| {});
    let answer = world.answer(&mask(A, 1, &[(1, A), (1, B), (7, B), (2, A)]));
    assert_eq!(masked(&answer), (1, 2, 2, vec![]));
    assert_eq!(masked(&world.answer(&mask(A, 0, &[]))).3, [A, B]);
    let many: Vec<_> = (0..200).map(|last| (1, [4, 0, 0, 0, 0, last])).collect();
    let answer = world.answer(&mask(A, 1, &many));
    assert_eq!(masked(&answer), (1, 3, 126, vec![]));
    let all = masked(&world.answer(&mask(A, 0, &[])));
    assert_eq!((all.2, all.3.len()), (128, 128));
    // The longest list fits a frame of MTU 1500.
    assert!(world.answer(&mask(A, 0, &[])).len() <= 1514);
    assert_eq!(world.answer(&mask(A, 2, &[]))[14..16], [0x1c, 2]);
    let mut short = mask(A, 1, &[(1, A)]);
    short[27] = 200;
    assert_eq!(world.answer(&short)[14..16], [0x1c, 2]);
}

#[test]
fn reservations_set_force_read_release() {
    let mut world = World::new();
    assert_eq!(reserved(&world.answer(&reserve(B, 0, &[]))), [[0u8; 6]; 0]);
    assert_eq!(reserved(&world.answer(&reserve(A, 1, &[A]))), [A]);
    assert_eq!(reserved(&world.answer(&reserve(B, 0, &[]))), [A]);
    assert_eq!(world.answer(&reserve(B, 1, &[B]))[14..16], [0x1c, 6]);
    assert_eq!(reserved(&world.answer(&reserve(A, 1, &[A, B]))), [A, B]);
    assert_eq!(reserved(&world.answer(&reserve(B, 1, &[B]))), [B]);
    assert_eq!(reserved(&world.answer(&reserve(A, 2, &[A]))), [A]);
    assert_eq!(reserved(&world.answer(&reserve(A, 1, &[]))), [[0u8; 6]; 0]);
    // Who lost the answer is answered again.
    assert_eq!(reserved(&world.answer(&reserve(A, 1, &[]))), [[0u8; 6]; 0]);
    assert_eq!(world.answer(&reserve(A, 3, &[]))[14..16], [0x1c, 2]);
    let mut short = reserve(A, 1, &[A]);
    short[25] = 20;
    assert_eq!(world.answer(&short)[14..16], [0x1c, 2]);
    assert_eq!(world.answer(&reserve(A, 2, &[B; 241]))[14..16], [0x1c, 2]);
}

#[test]
fn a_stranger_to_a_reservation_may_identify_and_query_alone() {
    let mut world = World::new();
    world.answer(&reserve(A, 1, &[A]));
    assert_eq!(world.answer(&read(A, 1, 0, 1)).len(), 548);
    for bytes in [read(B, 1, 0, 1), write(B, 2, 0, 9, 1), ata(B, 3, 0xea, 0, 0, &[])] {
        let answer = world.answer(&bytes);
        assert_eq!((&answer[14..16], answer.len()), (&[0x1c, 6][..], 60));
    }
    assert_eq!(world.answer(&ata(B, 4, 0xec, 0, 1, &[])).len(), 548);
    assert_eq!(world.answer(&config(OWN, B, 5, 0, &[]))[14], 0x18);
    assert_eq!(world.answer(&config(OWN, B, 6, 4, b"b"))[14], 0x18);
    assert_eq!(masked(&world.answer(&mask(B, 0, &[]))).0, 0);
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn a_reservation_is_answered_once_nothing_of_a_stranger_is_below() {
    let mut world = World::slow(|_| {});
    world.come_all([write(B, 1, 0, 1, 1), write(B, 2, 0, 2, 1), write(A, 3, 5, 3, 1)]);
    assert_eq!(world.below.len(), 2);
    // The one below is awaited; the own one is no matter.
    world.silence(&reserve(A, 2, &[A]));
    assert_eq!(world.answer(&write(B, 4, 9, 4, 1))[14..16], [0x1c, 6]);
    // Asked again meanwhile: it is under way.
    world.silence(&reserve(A, 2, &[A]));
    world.answer_below(0, Outcome::NotDone(Failure::MediumWrite));
    // What waited behind it is refused where it would have started.
    assert_eq!(world.flags(), [(1, 0x18), (2, 0x1c), (88, 0x18)]);
    assert_eq!(world.below.len(), 1);
    world.answer_below(0, Outcome::Done);
    assert_eq!(world.take().len(), 1);
    world.is_clean();
}

#[test]
fn a_copy_of_a_refused_write_undoes_nothing_once_the_volume_is_free() {
    let mut world = World::new();
    world.answer(&reserve(A, 1, &[A]));
    let refused = write(B, 1, 0, 1, 1);
    assert_eq!(world.answer(&refused)[14..16], [0x1c, 6]);
    world.pass(Duration::from_millis(1900));
    // Asked again, it is refused again, and for as long.
    assert_eq!(world.answer(&refused)[14..16], [0x1c, 6]);
    world.answer(&reserve(A, 1, &[]));
    world.pass(Duration::from_millis(1900));
    world.silence(&refused);
    world.answer(&write(B, 2, 0, 2, 1));
    world.silence(&refused);
    assert_eq!(world.sectors(0, 1), [2; 512]);
    let drops = world.target.drops();
    assert_eq!((drops.repeated_refused, drops.repeated_superseded), (1, 1));
    // If it is meant, it is heard when no copy can be on its way.
    world.pass(Duration::from_millis(100));
    world.answer(&refused);
    assert_eq!(world.sectors(0, 1), [1; 512]);
}

#[test]
fn a_copy_of_a_write_that_was_refused_when_it_would_have_started_undoes_nothing() {
    let mut world = World::new();
    world.mood = Mood::Slow;
    let waits = write(B, 2, 0, 2, 1);
    world.come_all([write(B, 1, 0, 1, 1), waits.clone()]);
    world.silence(&reserve(A, 2, &[A]));
    world.answer_below(0, Outcome::Done);
    assert_eq!(world.flags(), [(1, 0x18), (2, 0x1c), (88, 0x18)]);
    world.mood = Mood::Honest;
    world.answer(&reserve(A, 1, &[]));
    world.silence(&waits);
    assert_eq!(world.target.drops().repeated_refused, 1);
    assert_eq!(world.sectors(0, 1), [1; 512]);
    world.is_clean();
}

#[test]
fn a_copy_that_comes_when_the_volume_is_reserved_is_answered_as_the_first() {
    let mut world = World::new();
    let done = write(B, 1, 0, 1, 1);
    let answer = world.answer(&done);
    world.mood = Mood::Slow;
    let below = write(B, 2, 5, 2, 1);
    world.silence(&below);
    world.silence(&reserve(A, 2, &[A]));
    assert_eq!(world.answer(&done), answer);
    world.silence(&below);
    assert_eq!(world.target.drops().repeated_in_flight, 1);
    world.answer_below(0, Outcome::Done);
    assert_eq!(world.flags(), [(2, 0x18), (88, 0x18)]);
    assert_eq!(world.answer(&below)[14], 0x18);
    assert_eq!(world.answer(&read(B, 3, 0, 1))[14..16], [0x1c, 6]);
    world.is_clean();
}

#[test]
fn a_stored_reservation_holds_from_the_start() {
    let mut world = World::empty();
    world.up(LINK, facts(1500));
    let size = block::ByteCount(SECTORS * 512);
    let export = crate::Export::new(ADDRESS, &[LINK], block::VolumeId(0), size);
    let control = "config 61 mask".parse().unwrap();
    world.target.add_export(EXPORT, export.clone(), control).unwrap();
    world.shard.reservations.set(export.volume, by_mac(&[A]));
    world.run();
    world.sent.clear();
    assert_eq!(world.answer(&read(B, 1, 0, 1))[14..16], [0x1c, 6]);
    assert_eq!(world.answer(&config(OWN, B, 1, 0, &[]))[30..33], [0, 1, b'a']);
    // The address is taken.
    let again = world.target.add_export(crate::ExportId(1), export, Default::default());
    assert_eq!(again, Err(LINK));
}

#[test]
fn what_each_listed_station_did_is_counted_and_kept_while_it_is_listed() {
    let list =
        |stations: &[[u8; 6]]| Hosts::List(stations.iter().copied().map(MacAddress).collect());
    let mut world = World::with(1500, |export| export.hosts = list(&[A, B]));
    world.answer(&read(A, 1, 0, 2));
    world.answer(&write(A, 2, 0, 1, 1));
    world.answer(&write(B, 3, 0, 2, 1));
    let of = |world: &World, source| {
        let all = world.target.host_traffic(EXPORT);
        let mut mine = all.filter(|(mac, _)| *mac == MacAddress(source));
        mine.next().map(|(_, traffic)| (traffic.read_bytes, traffic.write_bytes))
    };
    assert_eq!((of(&world, A), of(&world, B)), (Some((1024, 512)), Some((0, 512))));
    world.renew(|export| export.hosts = list(&[A]));
    assert_eq!((of(&world, A), of(&world, B)), (Some((1024, 512)), None));
    world.renew(|export| export.hosts = Hosts::Any);
    world.answer(&read(B, 4, 0, 1));
    assert_eq!(of(&world, B), None);
    assert_eq!(world.target.traffic(EXPORT).map(|all| all.read_bytes), Some(1536));
}

#[test]
fn stations_of_a_named_host_are_one_registrant_and_are_listed_as_they_were_set() {
    const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
    let mut world = World::new();
    let id = reservation::Registrant::Host([7; 16]);
    let web = reservation::Applicant { id, name: Some("web1".into()) };
    let mut named = reservation::NamedHosts::default();
    [A, C].iter().for_each(|mac| named.add_station(*mac, &web));
    world.target.set_named_hosts(named.into());
    assert_eq!(reserved(&world.answer(&reserve(A, 1, &[A]))), [A]);
    assert_eq!(world.answer(&read(C, 1, 0, 1)).len(), 548, "it is the same host");
    assert_eq!(world.answer(&read(B, 1, 0, 1))[14..16], [0x1c, 6]);
    assert_eq!(reserved(&world.answer(&reserve(C, 1, &[A, C]))), [A, C], "by either");
    assert_eq!(reserved(&world.answer(&reserve(B, 0, &[]))), [A, C]);
    // Nameless they are strangers: the list is the name's.
    world.target.set_named_hosts(Default::default());
    assert_eq!(world.answer(&read(A, 2, 0, 1))[14..16], [0x1c, 6]);
    assert_eq!(world.answer(&reserve(A, 1, &[A]))[14..16], [0x1c, 6]);
    assert_eq!(reserved(&world.answer(&reserve(A, 2, &[A]))), [A], "force takes it");
    assert_eq!(world.answer(&read(A, 3, 0, 1)).len(), 548);
}
