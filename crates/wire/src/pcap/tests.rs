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

fn times(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    Packets::new(file)
        .map(|packet| packet.map(|packet| (packet.time_ns, packet.bytes.to_vec())))
        .collect::<Result<_, _>>()
        .unwrap()
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
fn stream_gives_the_same_packets_however_it_is_cut() {
    for file in [classic(false, 0xa1b2_c3d4), pcapng(true)] {
        for size in 1..=file.len() {
            let mut stream = Stream::new();
            let mut seen = Vec::new();
            for piece in file.chunks(size) {
                stream.feed(piece);
                while let Some(packet) = stream.poll_packet().unwrap() {
                    seen.push((packet.time_ns, packet.bytes.to_vec()));
                }
            }
            assert_eq!(seen, times(&file), "pieces of {size}");
            stream.finish().unwrap();
        }
    }
}

#[test]
fn a_cut_capture_is_an_error_at_its_end() {
    for file in [classic(false, 0xa1b2_c3d4), pcapng(false)] {
        let cut = &file[..file.len() - 1];
        let last = Packets::new(cut).last().unwrap();
        assert_eq!(last.unwrap_err().field, "length");
        let mut stream = Stream::new();
        stream.feed(cut);
        while stream.poll_packet().unwrap().is_some() {}
        assert!(stream.finish().is_err());
    }
    assert_eq!(Packets::new(&[]).count(), 1);
    assert!(Stream::new().finish().is_err());
}

#[test]
fn refusals_name_the_field() {
    let field = |file: &[u8]| Packets::new(file).find_map(Result::err).unwrap().field;
    assert_eq!(field(&[7; 24]), "magic");
    let mut file = classic(false, 0xa1b2_c3d4);
    file[4] = 3;
    assert_eq!(field(&file), "major version");
    let mut file = classic(false, 0xa1b2_c3d4);
    file[35] = 0xff;
    assert_eq!(field(&file), "captured length");
    let good = pcapng(false);
    let with = |at: usize, value: u8| {
        let mut file = good.clone();
        file[at] = value;
        file
    };
    assert_eq!(field(&with(8, 0)), "byte-order magic");
    assert_eq!(field(&with(4, 29)), "block total length");
    assert_eq!(field(&with(24, 0)), "block total length");
    assert_eq!(field(&with(12, 2)), "major version");
    // Section 28, interface 32: its options begin at 28 + 16.
    assert_eq!(field(&with(28 + 16 + 2, 0xff)), "option length");
    assert_eq!(field(&with(28 + 20, 0x7f)), "if_tsresol");
    // Behind them a block of 20, then the packet: interface, time, captured length.
    assert_eq!(field(&with(28 + 32 + 20 + 8, 1)), "interface ID");
    assert_eq!(field(&with(28 + 32 + 20 + 20, 9)), "captured length");
}

#[test]
fn our_own_header_is_read_back() {
    let time = 1_700_000_000_123_456_789;
    let file = [&emit_file_header(LinkType::LINUX_SLL)[..], &emit_record_header(time, 2), &[5, 6]]
        .concat();
    let packet = Packets::new(&file).next().unwrap().unwrap();
    assert_eq!((packet.time_ns, packet.link), (time, LinkType::LINUX_SLL));
    assert_eq!((packet.original_length, packet.bytes), (2, &[5, 6][..]));
}

/// Broken captures and packets are refused or read, never a panic: every file here with a few bytes
/// changed, and whatever packets come out taken down to TCP. The same changes on every run.
#[test]
fn changed_bytes_never_panic() {
    use crate::{ethernet, ip, tcp};
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let files =
        [classic(false, 0xa1b2_c3d4), classic(true, 0xa1b2_3c4d), pcapng(false), pcapng(true)];
    let links = [0, 1, 101, 108, 113, 228, 229, 276].map(LinkType);
    for round in 0..20_000 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..=random() % 3 {
            let at = random() as usize % file.len();
            file[at] = [0, 1, 4, 0x7f, 0xff, random() as u8][random() as usize % 6];
        }
        let whole = Packets::new(&file).filter_map(Result::ok).count();
        let mut stream = Stream::new();
        stream.feed(&file);
        let streamed = core::iter::from_fn(|| stream.poll_packet().ok().flatten().map(|_| ()));
        assert_eq!(streamed.count(), whole, "{file:02x?}");

        let mut packet: Vec<u8> = (0..random() % 120).map(|_| random() as u8).collect();
        if let Some(first) = packet.first_mut() {
            *first = [0x45, 0x46, 0x60, *first][random() as usize % 4];
        }
        for link in links {
            if let Ok((ether_type, rest)) = ethernet::network(link, &packet)
                && let Ok(packet) = ip::Packet::parse(ether_type, rest)
            {
                assert!(packet.payload.len() <= packet.payload_length);
                let _ = tcp::TcpHeader::parse(packet.payload);
            }
        }
    }
}
