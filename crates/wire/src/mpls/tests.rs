//! Vectors both ways, limits of each field, and stacks that are not whole. The vectors are
//! put together by hand from the figure of RFC 3032.

use super::*;
use crate::Front;

fn label(number: u32) -> Label {
    Label::new(number).unwrap()
}

fn entry(number: u32, traffic_class: u8, is_bottom: bool, ttl: u8) -> LabelStackEntry {
    LabelStackEntry { label: label(number), traffic_class, is_bottom, ttl }
}

#[test]
fn entries_both_ways() {
    for (bytes, entry, text) in [
        ([0x00, 0x01, 0xd1, 0xff], entry(29, 0, true, 255), "29 tc 0 ttl 255 S"),
        ([0x18, 0x6a, 0x0c, 0x3f], entry(100_000, 6, false, 63), "100000 tc 6 ttl 63"),
        ([0, 0, 0, 0], entry(0, 0, false, 0), "IPv4 explicit null tc 0 ttl 0"),
        ([0xff; 4], entry(0xf_ffff, 7, true, 255), "1048575 tc 7 ttl 255 S"),
        ([0xff, 0xff, 0xf0, 0], entry(0xf_ffff, 0, false, 0), "1048575 tc 0 ttl 0"),
        ([0, 0, 0x0e, 0], entry(0, 7, false, 0), "IPv4 explicit null tc 7 ttl 0"),
        ([0, 0, 0x01, 0], entry(0, 0, true, 0), "IPv4 explicit null tc 0 ttl 0 S"),
    ] {
        assert_eq!(LabelStackEntry::parse(&bytes), Ok(entry));
        assert_eq!(entry.emit(), bytes);
        assert_eq!(entry.to_string(), text);
    }
}

#[test]
fn a_traffic_class_is_cut_to_its_width() {
    assert_eq!(entry(16, 0xff, false, 1).emit(), entry(16, 7, false, 1).emit());
}

#[test]
fn every_entry_survives() {
    for bit in 0..32 {
        for word in [1_u32 << bit, !(1 << bit)] {
            let bytes = word.to_be_bytes();
            assert_eq!(LabelStackEntry::parse(&bytes).unwrap().emit(), bytes);
        }
    }
}

#[test]
fn a_label_has_20_bits() {
    assert_eq!(Label::new(0xf_ffff), Some(Label::MAX));
    assert_eq!(Label::new(0x10_0000), None);
    assert!(label(15).is_special() && !label(16).is_special());
    assert_eq!(label(15), Label::EXTENSION);
    assert_eq!(Label::FIRST_ORDINARY.get(), 16);
}

#[test]
fn pushed_entries_are_popped_in_reverse() {
    let (transport, wire) = (entry(200, 5, false, 64), entry(16, 0, true, 255));
    let mut front = Front::<8>::new();
    front.push(&wire.emit());
    front.push(&transport.emit());
    assert_eq!(*front, [0, 0x0c, 0x8a, 0x40, 0, 1, 1, 0xff]);
    let (top, rest) = LabelStackEntry::pop(&front).unwrap();
    assert_eq!((top, LabelStackEntry::parse(rest)), (transport, Ok(wire)));
    let (bottom, rest) = LabelStackEntry::pop(rest).unwrap();
    assert_eq!((bottom, rest), (wire, &[][..]));
    assert_eq!(LabelStackEntry::pop(rest), Err(ParseError::short(4, 0)));
}

#[test]
fn a_whole_stack_and_its_payload() {
    let bytes = [0, 0x0c, 0x8a, 0x40, 0, 1, 1, 0xff, 0xaa, 0xbb, 0xcc, 0xdd, 0xee];
    for depth_max in [2, 3, 16, usize::MAX] {
        let stack = LabelStack::parse(&bytes, depth_max).unwrap();
        assert_eq!(stack.depth(), 2);
        assert_eq!(stack.entries().next(), Some(entry(200, 5, false, 64)));
        assert_eq!(stack.entries().next_back(), Some(entry(16, 0, true, 255)));
        assert_eq!(stack.payload(), &bytes[8..]);
        assert_eq!(stack.to_string(), "200 tc 5 ttl 64 / 16 tc 0 ttl 255 S");
    }
    // What looks like an entry behind the bottom is payload.
    let stack = LabelStack::parse(&[0xff; 8], 16).unwrap();
    assert_eq!((stack.depth(), stack.payload().len()), (1, 4));
}

#[test]
fn a_stack_without_a_bottom_is_refused() {
    for length in 0..12 {
        let expected = (length / 4 + 1) * 4;
        let seen = LabelStack::parse(&[0; 12][..length], 16);
        assert_eq!(seen, Err(ParseError::short(expected, length)));
    }
    // S in an entry that is not whole is none.
    assert_eq!(LabelStack::parse(&[0, 0, 1], 16), Err(ParseError::short(4, 3)));
}

#[test]
fn a_stack_that_is_too_deep_is_refused() {
    let mut bytes = [0; 17 * 4];
    bytes[16 * 4 + 2] = 1;
    assert_eq!(LabelStack::parse(&bytes, 17).unwrap().depth(), 17);
    assert_eq!(
        LabelStack::parse(&bytes, 16).unwrap_err().to_string(),
        "stack depth at byte 64: expected at most 16, seen 17 (0x11)"
    );
    let seen = LabelStack::parse(&[0xff; 4], 0).unwrap_err().expected;
    assert_eq!(seen, Expected::AtMost(0));
}

#[test]
fn a_hop_takes_one_from_the_ttl() {
    for (ttl, left) in [(0, None), (1, None), (2, Some(1)), (255, Some(254))] {
        assert_eq!(entry(16, 0, true, ttl).outgoing_ttl(), left);
    }
}

#[test]
fn special_labels_stand_where_they_may() {
    let stands = |number, is_bottom| entry(number, 0, is_bottom, 1).check().is_ok();
    for (number, above, at_the_bottom) in [
        (0, true, true),
        (1, true, false),
        (2, true, true),
        (3, false, false),
        (4, false, false),
        (5, false, false),
        (6, false, false),
        (7, true, false),
        (8, false, false),
        (12, false, false),
        (13, true, true),
        (14, true, true),
        (15, true, false),
        (16, true, true),
        (0xf_ffff, true, true),
    ] {
        assert_eq!(
            (stands(number, false), stands(number, true)),
            (above, at_the_bottom),
            "label {number}"
        );
    }
    assert_eq!(
        entry(3, 0, true, 1).check().unwrap_err().to_string(),
        "label at byte 0: expected a label: implicit null is only signalled, seen 3 (0x3)"
    );
}

#[test]
fn source_ports_are_dynamic_and_keep_14_bits() {
    for (hash, port) in [(0, 49_152), (1, 49_153), (0x3fff, 65_535), (0x4000, 49_152)] {
        assert_eq!(udp_source_port(hash), port);
    }
}
