//! Captures built by hand after the drafts, in both formats and both byte orders.

use super::*;

fn classic(big: bool, magic: u32) -> Vec<u8> {
    let u32 = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let u16 = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = Vec::new();
    file.extend(u32(magic));
    file.extend(u16(2));
    file.extend(u16(4));
    for word in [0, 0, 65535, 1, 10, 500, 3, 60] {
        file.extend(u32(word));
    }
    file.extend([1, 2, 3]);
    file
}

fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let u32 = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = u32((12 + body.len() + padding.len()) as u32);
    [&u32(kind)[..], &length, body, &padding, &length].concat()
}

fn pcapng(big: bool) -> Vec<u8> {
    let u32 = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let u16 = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let section = [&u32(0x1a2b_3c4d)[..], &u16(1), &u16(0), &[0xff; 8]].concat();
    let resolution = [&u16(9)[..], &u16(1), &[9, 0, 0, 0]].concat();
    let interface = [&u16(1)[..], &u16(0), &u32(0), &resolution, &u32(0)].concat();
    let packet = [u32(0), u32(1), u32(2), u32(3), u32(60)].concat();
    let simple = [&u32(2)[..], &[8, 9]].concat();
    [
        block(big, 0x0a0d_0d0a, &section),
        block(big, 1, &interface),
        block(big, 0xbad, &[0; 8]),
        block(big, 6, &[&packet[..], &[1, 2, 3]].concat()),
        block(big, 3, &simple),
    ]
    .concat()
}

/// The packets that come of a capture in pieces of this size, and how it ends.
fn in_pieces(file: &[u8], size: usize) -> (Vec<(u64, Vec<u8>)>, Result<()>) {
    let (mut decoder, mut buffer, mut seen) = (Decoder::default(), Vec::new(), Vec::new());
    for piece in file.chunks(size) {
        buffer.extend_from_slice(piece);
        let mut rest = &buffer[..];
        loop {
            match decoder.next(&mut rest) {
                Ok(Some(packet)) => seen.push((packet.time_ns, packet.bytes.into_owned())),
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            }
        }
        buffer = rest.to_vec();
    }
    (seen, decoder.finish(&buffer))
}

fn whole(file: &[u8]) -> (Vec<(u64, Vec<u8>)>, Result<()>) {
    in_pieces(file, file.len().max(1))
}

fn times(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (packets, ended) = whole(file);
    ended.unwrap();
    packets
}

fn refusal(file: &[u8]) -> String {
    format!("{:#}", whole(file).1.unwrap_err())
}

#[test]
fn classic_in_both_orders_and_resolutions() {
    for big in [false, true] {
        let micro = times(&classic(big, 0xa1b2_c3d4));
        assert_eq!(micro, [(10_000_500_000, vec![1, 2, 3])]);
        let nano = times(&classic(big, 0xa1b2_3c4d));
        assert_eq!(nano, [(10_000_000_500, vec![1, 2, 3])]);
    }
}

#[test]
fn pcapng_in_both_orders() {
    for big in [false, true] {
        let expected = [((1 << 32) + 2, vec![1, 2, 3]), (0, vec![8, 9])];
        assert_eq!(times(&pcapng(big)), expected);
    }
}

#[test]
fn a_second_section_begins_anew() {
    let file = [pcapng(false), pcapng(true)].concat();
    assert_eq!(times(&file).len(), 4);
}

#[test]
fn packets_are_the_same_however_the_capture_is_cut() {
    for file in [classic(false, 0xa1b2_c3d4), pcapng(true)] {
        for size in 1..=file.len() {
            let (packets, ended) = in_pieces(&file, size);
            assert_eq!(packets, times(&file), "pieces of {size}");
            ended.unwrap();
        }
    }
}

#[test]
fn a_cut_capture_is_an_error_at_its_end() {
    for (file, packets) in [(classic(false, 0xa1b2_c3d4), 0), (pcapng(false), 1)] {
        let cut = &file[..file.len() - 1];
        assert!(
            refusal(cut).starts_with("expected the rest of a record, seen "),
            "{}",
            refusal(cut)
        );
        assert_eq!(whole(cut).0.len(), packets);
    }
    assert_eq!(refusal(&[]), "expected the rest of a record, seen 0 bytes of it");
}

#[test]
fn refusals_say_what_was_seen() {
    let good = classic(false, 0xa1b2_c3d4);
    let better = pcapng(false);
    let with = |file: &[u8], at: usize, value: u8| {
        let mut file = file.to_vec();
        file[at] = value;
        refusal(&file)
    };
    // Section 28, interface 32: its options begin at 28 + 16. Behind them a block of 20, then the
    // packet: interface, time, captured length.
    for (seen, part) in [
        (refusal(&[7; 24]), "expected a capture, pcap or pcapng: Invalid magic number: 0x7070707"),
        (with(&good, 4, 3), "expected version 2 of pcap, seen 3"),
        (with(&good, 35, 0xff), "expected a record of at most 16777216 bytes, seen one of"),
        (with(&better, 7, 0x7f), "expected a record of at most 16777216 bytes, seen one of"),
        (with(&better, 8, 0), "Invalid magic number: 0x3C2B1A"),
        (with(&better, 4, 29), "not a multiple of 4: 29B"),
        (with(&better, 24, 0), "initial 28B, trailing 0B"),
        (with(&better, 12, 2), "expected version 1 of pcapng, seen 2"),
        (with(&better, 28 + 16 + 2, 0xff), "need 256B, got 8B"),
        (with(&better, 28 + 20, 0x7f), "Invalid timestamp resolution: 0x7F"),
        (with(&better, 28 + 32 + 20 + 8, 1), "Invalid interface ID: 1"),
        (with(&better, 28 + 32 + 20 + 20, 9), "need 12B, got 4B"),
    ] {
        assert!(seen.contains(part), "expected {part}, seen {seen}");
    }
}

/// Broken captures are refused or read, never a panic, and the same in pieces: every file here with
/// a few bytes changed. The same changes on every run.
#[test]
fn changed_bytes_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let files =
        [classic(false, 0xa1b2_c3d4), classic(true, 0xa1b2_3c4d), pcapng(false), pcapng(true)];
    for round in 0..20_000 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..=random() % 3 {
            let at = random() as usize % file.len();
            file[at] = [0, 1, 4, 0x7f, 0xff, random() as u8][random() as usize % 6];
        }
        let (packets, ended) = whole(&file);
        let (again, ended_again) = in_pieces(&file, 1 + random() as usize % 40);
        assert_eq!((packets, ended.is_ok()), (again, ended_again.is_ok()), "{file:02x?}");
    }
}

#[test]
fn what_an_interface_says_of_itself_is_bounded() {
    let comment = |length: usize| {
        let option = [&1u16.to_le_bytes()[..], &(length as u16).to_le_bytes(), &vec![b'a'; length]];
        let body = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &option.concat().repeat(2), &[0; 4]].concat();
        let good = pcapng(false);
        [&good[..28], &block(false, 1, &body), &good[28..]].concat()
    };
    assert_eq!(times(&comment(1 << 14)).len(), 2);
    assert_eq!(
        refusal(&comment(1 << 15)),
        "expected at most 65536 bytes of an interface, seen 65556"
    );
}
