//! Vectors both ways, the rules of reception one by one, and authentication sections of each type.

use super::*;

/// What a router sends first: Down, once a second, to somebody whom it does not know.
const FIRST: [u8; 24] = [
    0x20, 0x40, 3, 24, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0x0f, 0x42,
    0x40, 0, 0, 0xc3, 0x50,
];

fn first() -> ControlPacket {
    ControlPacket {
        desired_min_tx_interval_us: 1_000_000,
        required_min_rx_interval_us: 1_000_000,
        required_min_echo_rx_interval_us: 50_000,
        ..ControlPacket::new(State::DOWN, Diagnostic::NONE, 3, 0x1234_5678, 0)
    }
}

/// What is wrong with [`FIRST`] after these bytes were changed.
fn refusal(changes: &[(usize, u8)]) -> String {
    let mut bytes = FIRST;
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    ControlPacket::receive(&bytes).unwrap_err().to_string()
}

#[test]
fn the_first_packet_both_ways() {
    assert_eq!(ControlPacket::receive(&FIRST), Ok((first(), None)));
    assert_eq!(first().emit(), FIRST);
    assert_eq!(
        first().to_string(),
        "Down mult 3 my 0x12345678 your 0x00000000 tx 1000000 us rx 1000000 us echo 50000 us"
    );
}

#[test]
fn all_flags_and_the_diagnostic_both_ways() {
    let mut packet = ControlPacket::new(State::UP, Diagnostic::PATH_DOWN, 255, 1, u32::MAX);
    packet.state_flags =
        packet.state_flags.with_poll(true).with_control_plane_independent(true).with_demand(true);
    let bytes = packet.emit();
    assert_eq!(bytes[..12], [0x25, 0xea, 255, 24, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(ControlPacket::receive(&bytes), Ok((packet, None)));
    assert_eq!(
        packet.to_string(),
        "Up mult 255 my 0x00000001 your 0xffffffff tx 0 us rx 0 us echo 0 us P C D: path down"
    );
    packet.state_flags = StateFlags(0).with_state(State::INIT.0).with_final(true);
    assert_eq!(packet.emit()[1], 0x90);
    packet.version_diagnostic = packet.version_diagnostic.with_diagnostic(31);
    assert_eq!(packet.diagnostic().to_string(), "0x1f");
}

#[test]
fn another_version_is_refused() {
    assert_eq!(refusal(&[(0, 0)]), "version at byte 0: expected 1, seen 0 (0x0)");
    assert_eq!(refusal(&[(0, 0x40)]), "version at byte 0: expected 1, seen 2 (0x2)");
}

#[test]
fn a_length_below_the_mandatory_section_is_refused() {
    assert_eq!(refusal(&[(3, 23)]), "length at byte 3: expected at least 24, seen 23 (0x17)");
}

#[test]
fn a_length_beyond_the_payload_is_refused() {
    assert_eq!(refusal(&[(3, 25)]), "length at byte 3: expected at most 24, seen 25 (0x19)");
    // More bytes than its length are none of it.
    let padded = [&FIRST[..], &[0; 22]].concat();
    assert_eq!(ControlPacket::receive(&padded), Ok((first(), None)));
}

#[test]
fn a_detect_mult_of_0_is_refused() {
    assert_eq!(refusal(&[(2, 0)]), "detect mult at byte 2: expected at least 1, seen 0 (0x0)");
}

#[test]
fn the_multipoint_bit_is_refused() {
    assert_eq!(refusal(&[(1, 0x41)]), "flags at byte 1: expected no M, seen 65 (0x41)");
}

#[test]
fn a_packet_without_my_discriminator_is_refused() {
    assert_eq!(
        refusal(&[(4, 0), (5, 0), (6, 0), (7, 0)]),
        "my discriminator at byte 4: expected at least 1, seen 0 (0x0)"
    );
}

#[test]
fn who_is_not_down_knows_your_discriminator() {
    let words = "expected Down or AdminDown without your discriminator";
    assert_eq!(refusal(&[(1, 0x80)]), format!("state at byte 1: {words}, seen 2 (0x2)"));
    assert_eq!(refusal(&[(1, 0xc0)]), format!("state at byte 1: {words}, seen 3 (0x3)"));
    for (state, your) in [(0, 0), (0x40, 0), (0x80, 1), (0xc0, 1)] {
        let mut bytes = FIRST;
        (bytes[1], bytes[11]) = (state, your);
        assert!(ControlPacket::receive(&bytes).is_ok(), "{state:#x} {your}");
    }
}

#[test]
fn the_first_rule_that_is_broken_is_told() {
    // Each change breaks a rule before the ones so far.
    let mut changes = vec![(1, 0x80)];
    for (change, field) in [
        ((4, 0), "state"),
        ((1, 0x81), "my discriminator"),
        ((2, 0), "flags"),
        ((3, 25), "detect mult"),
        ((3, 23), "length"),
        ((0, 0), "length"),
    ] {
        let field_of = |changes: &[(usize, u8)]| {
            let mut all = vec![(5, 0), (6, 0), (7, 0)];
            all.extend_from_slice(changes);
            refusal(&all).split(" at ").next().unwrap().to_owned()
        };
        assert_eq!(field_of(&changes), field);
        changes.push(change);
    }
    assert!(refusal(&changes).starts_with("version"));
}

#[test]
fn a_payload_that_ends_too_early_is_refused() {
    for length in 0..24 {
        let seen = ControlPacket::receive(&FIRST[..length]);
        assert_eq!(seen, Err(ParseError::short(24, length)));
    }
}

/// [`FIRST`] with the A bit, a length and this section.
fn authenticated(length: u8, section: &[u8]) -> Vec<u8> {
    let mut bytes = [&FIRST[..], section].concat();
    (bytes[1], bytes[3]) = (0x44, length);
    bytes
}

#[test]
fn a_keyed_section_both_ways() {
    // The section of a packet in tcpdump's collection.
    let hash = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15,
        0x16, 0x17, 0x18, 0x19, 0x1a,
    ];
    let bytes = authenticated(52, &[&[5, 28, 2, 0, 0, 0, 0, 5], &hash[..]].concat());
    let (packet, section) = ControlPacket::receive(&bytes).unwrap();
    let section = section.unwrap();
    assert_eq!(section.kind, AuthenticationType::METICULOUS_KEYED_SHA1);
    assert_eq!((section.key_id(), section.digest()), (Some(2), Some((5, &hash[..]))));
    assert_eq!(section.password(), None);
    assert_eq!(section.to_string(), "meticulous keyed SHA1 key 2 sequence 5");
    assert!(packet.to_string().ends_with(" A"));
    assert_eq!(*packet.emit_with(&section), bytes);
    // A and length are set, whatever they were.
    assert_eq!(*first().emit_with(&section), bytes);
}

#[test]
fn a_password_both_ways_and_never_shown() {
    let bytes = authenticated(33, b"\x01\x09\x07secret");
    let (packet, section) = ControlPacket::receive(&bytes).unwrap();
    let section = section.unwrap();
    assert_eq!((section.key_id(), section.password()), (Some(7), Some(&b"secret"[..])));
    assert_eq!(section.digest(), None);
    assert_eq!(section.to_string(), "simple password key 7");
    assert_eq!(*packet.emit_with(&section), bytes);
}

#[test]
fn a_section_of_an_unknown_type_survives() {
    let bytes = authenticated(28, &[9, 4, 0xaa, 0xbb]);
    let (packet, section) = ControlPacket::receive(&bytes).unwrap();
    let section = section.unwrap();
    assert_eq!((section.key_id(), section.digest()), (None, None));
    assert_eq!((section.body, section.to_string()), (&[0xaa, 0xbb][..], "0x09".into()));
    assert_eq!(*packet.emit_with(&section), bytes);
}

#[test]
fn the_longest_section_fits() {
    let section = AuthenticationSection { kind: AuthenticationType(200), body: &[7; 229] };
    let bytes = first().emit_with(&section);
    assert_eq!((bytes.len(), bytes[3], bytes[25]), (255, 255, 231));
    assert_eq!(ControlPacket::receive(&bytes).unwrap().1, Some(section));
}

#[test]
fn an_auth_len_follows_its_type() {
    for (kind, length, right) in [
        (1, 3, false),
        (1, 4, true),
        (1, 19, true),
        (1, 20, false),
        (2, 23, false),
        (2, 24, true),
        (3, 24, true),
        (3, 25, false),
        (4, 27, false),
        (4, 28, true),
        (5, 28, true),
        (5, 29, false),
        (0, 1, false),
        (0, 2, true),
        (9, 40, true),
        (9, 41, false),
    ] {
        let mut section = [0; 40];
        (section[0], section[1]) = (kind, length);
        let bytes = authenticated(64, &section);
        let seen = ControlPacket::receive(&bytes);
        assert_eq!(seen.is_ok(), right, "type {kind}, {length} bytes: {seen:?}");
        if let Err(error) = seen {
            assert_eq!((error.field, error.offset, error.seen), ("auth len", 25, length.into()));
        }
    }
}

#[test]
fn a_section_beyond_the_packet_s_length_is_refused() {
    let sha1 = [&[4, 28][..], &[0; 26]].concat();
    for length in 26..52 {
        let error = ControlPacket::receive(&authenticated(length, &sha1)).unwrap_err();
        assert_eq!(
            (error.field, error.expected),
            ("auth len", Expected::AtMost(length as u64 - 24))
        );
    }
    assert!(ControlPacket::receive(&authenticated(52, &sha1)).is_ok());
    assert_eq!(
        ControlPacket::receive(&authenticated(25, &sha1)).unwrap_err().to_string(),
        "length at byte 3: expected at least 26, seen 25 (0x19)"
    );
}
