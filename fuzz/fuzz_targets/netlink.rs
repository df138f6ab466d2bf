//! What the kernel tells on a netlink socket: messages, entries of its table of neighbours, and its
//! queueing disciplines. The input is read as messages, and as the body of one of each type.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netlink::neighbour::Message;
use netlink::{HEADER, discipline, kind, neighbour, request, word};

fuzz_target!(|input: &[u8]| {
    let mut disciplines = Vec::new();
    let mut left = input.len();
    for message in netlink::messages(input) {
        let netlink::Message::Of(of, body) = message else { continue };
        // None is longer than what is there, and nothing is told twice.
        left = left.checked_sub(HEADER + body.len()).expect("more was told than came");
        entry(of, body);
        let index = word(body, 4).map_or(0, u32::cast_signed);
        disciplines.extend(discipline::of(body, index));
        assert_eq!(discipline::of(body, index.wrapping_add(1)), None, "of another interface");
    }
    if let Some(name) = discipline::delaying(&disciplines) {
        assert!(disciplines.iter().any(|one| one.kind == name));
    }
    for of in [kind::NEWNEIGH, kind::DELNEIGH, kind::NEWQDISC] {
        entry(of, input);
        // A message says what its body says.
        let whole = request(of, 0, input);
        let seen: Vec<Message> = neighbour::messages(&whole).collect();
        assert_eq!(seen, [neighbour::of(of, input)]);
    }
});

/// What is read of an entry is what was written, by the question that names it.
fn entry(of: u16, body: &[u8]) {
    let Message::Neighbour(entry) = neighbour::of(of, body) else { return };
    assert!(entry.valid().is_none_or(|mac| entry.mac == Some(mac)));
    let asked = neighbour::use_it(entry.index, entry.address);
    let Some(Message::Neighbour(again)) = neighbour::messages(&asked).next() else {
        panic!("reads what it wrote");
    };
    assert_eq!((again.index, again.address), (entry.index, entry.address));
    assert_eq!(neighbour::of(kind::DELNEIGH, body), Message::Gone(entry.index, entry.address));
}
