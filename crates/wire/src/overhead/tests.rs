//! Each stack's number, as it was computed from the specifications before there was an encoder; each
//! frame taken apart again, down to its data, as its EtherTypes, protocols and ports say; and the
//! share of the wire against frames that are really cut and counted.

use super::encode::{CONTROL_WORD_LABEL, DATA_MAX, FRAME_LABEL, IPV4_LABEL};
use super::*;
use crate::ethernet::{self, EtherType};
use crate::fibre_channel::{Encapsulation, EndOfFrame, FrameHeader, StartOfFrame};
use crate::ip::{Ipv4Header, Ipv6Header, Protocol};
use crate::l2tp::{DataHeader, SessionFormat};
use crate::mpls::{self, LabelStack};
use crate::nfs::ReadReply;
use crate::pseudowire::Packet;
use crate::rpc::{AcceptedReply, RecordMark};
use crate::{aoe, fibre_channel, gre, iscsi, nfs, nvme_tcp, tcp, udp};

/// The stack of this name.
fn stack(name: &str) -> &'static Stack {
    STACKS.iter().find(|stack| stack.name == name).unwrap_or_else(|| panic!("no stack {name}"))
}

/// Two sectors of data that differ from byte to byte.
fn data() -> Vec<u8> {
    (0..2 * SECTOR).map(|at| (at * 7) as u8).collect()
}

fn parts(name: &str) -> Vec<(&'static str, usize)> {
    stack(name).parts().iter().map(|part| (part.name, part.bytes)).collect()
}

#[test]
fn the_most_data_fit_each_stack() {
    for stack in STACKS {
        let most = stack.pdu.data_max().unwrap_or(DATA_MAX).min(DATA_MAX);
        let frame = stack.encode(&vec![7; most]);
        assert_eq!(frame.bytes.len(), stack.header_bytes() + most, "{}", stack.name);
    }
}

#[test]
#[should_panic(expected = "in a frame that holds 2048")]
fn more_than_an_fc_frame_holds_is_refused() {
    stack("FCIP").encode(&[0; 5 * SECTOR]);
}

#[test]
fn each_stack_has_the_bytes_that_the_specifications_add_up_to() {
    let expected = [
        ("AoE", 36, Some(32)),
        ("AoE/MPLS", 54, Some(50)),
        ("AoE/MPLS, control word", 58, None),
        ("AoE/MPLS, 2 labels", 58, None),
        ("AoE/MPLS, 2 labels, control word", 62, None),
        ("AoE/GRE", 74, Some(80)),
        ("AoE/GRE, key", 78, None),
        ("AoE/GRE, key, sequence", 82, None),
        ("AoE/GRE, key, sequence, checksum", 86, None),
        ("AoE/GRE/MPLS", 92, Some(98)),
        ("AoE/GRE/MPLS, IP in labels", 78, None),
        ("AoE/L2TP", 86, Some(86)),
        ("AoE/L2TP, sublayer", 90, None),
        ("AoE/L2TP, sublayer, cookie", 98, None),
        ("AoE/L2TP, over IP", 74, None),
        ("iSCSI", 102, Some(102)),
        ("iSCSI, TCP timestamps", 114, None),
        ("iSCSI, digests", 110, None),
        ("iSCSI/MPLS", 120, Some(120)),
        ("iSCSI/MPLS, IP in labels", 106, None),
        ("iFCP", 118, Some(82)),
        ("FCIP", 118, Some(82)),
        ("AoE/MPLS/IP", 78, None),
        ("AoE/MPLS/GRE", 82, None),
        ("AoE/MPLS/UDP", 86, None),
        ("AoE/MPLS/UDP, IPv6", 106, None),
        ("NVMe/TCP", 78, None),
        ("NVMe/TCP, write", 78, None),
        ("NFS", 186, None),
    ];
    let row = |stack: &Stack| (stack.name, stack.header_bytes(), stack.paper_bytes);
    assert_eq!(STACKS.iter().map(row).collect::<Vec<_>>(), expected);
    // MTUs are told by a number of its own.
    assert_eq!(stack("AoE").header_bytes(), aoe::ATA_OVERHEAD);
}

#[test]
fn parts_come_in_the_order_of_the_bytes() {
    assert_eq!(
        parts("AoE/MPLS, control word"),
        [
            ("Ethernet", 14),
            ("label", 4),
            ("control word", 4),
            ("Ethernet", 14),
            ("AoE", 10),
            ("ATA", 12)
        ]
    );
    assert_eq!(
        parts("iSCSI, digests"),
        [
            ("Ethernet", 14),
            ("IPv4", 20),
            ("TCP", 20),
            ("BHS", 48),
            ("header digest", 4),
            ("data digest", 4)
        ]
    );
    assert_eq!(
        parts("FCIP")[3..],
        [("encapsulation", 28), ("SOF", 4), ("FC header", 24), ("CRC", 4), ("EOF", 4)]
    );
    assert_eq!(parts("NFS")[3..], [("record mark", 4), ("RPC reply", 24), ("READ results", 104)]);
}

#[test]
fn a_frame_is_its_parts_and_its_data() {
    for stack in STACKS {
        for length in [0, SECTOR, 2 * SECTOR] {
            let frame = stack.encode(&vec![7; length]);
            assert_eq!(frame.bytes.len(), sum(&frame.parts) + length, "{}", stack.name);
            assert_eq!(frame.parts, stack.parts(), "{}", stack.name);
        }
    }
}

/// What a frame is found to carry.
#[derive(Debug, PartialEq)]
enum Found {
    /// A frame of AoE.
    Frame(Vec<u8>),
    /// A segment of a stream, by its TCP port.
    Segment(u16, Vec<u8>),
}

/// Takes off whatever is around, as EtherTypes, protocols and ports say.
fn open(outer: &[u8], session: Option<SessionFormat>) -> Found {
    let (header, packet) = ethernet::Header::pop(outer).unwrap();
    match header.ether_type {
        EtherType::AOE => Found::Frame(outer.to_vec()),
        EtherType::MPLS => open_labels(packet, session),
        EtherType::IPV4 => open_ipv4(packet, session),
        EtherType::IPV6 => {
            let (header, packet) = Ipv6Header::pop(packet).unwrap();
            let (_, packet) = udp::Header::pop(packet, header.pseudo_header()).unwrap();
            open_labels(packet, session)
        }
        other => panic!("{other}"),
    }
}

fn open_labels(packet: &[u8], session: Option<SessionFormat>) -> Found {
    let stack = LabelStack::parse(packet, 2).unwrap();
    // As a configuration would have it: what each label at the bottom stands for.
    match stack.entries().next_back().unwrap().label.get() {
        FRAME_LABEL => open(stack.payload(), session),
        CONTROL_WORD_LABEL => match Packet::parse(stack.payload()).unwrap() {
            Packet::Data(word, frame) if word.sequence.0 == 1 => open(frame, session),
            other => panic!("{other:?}"),
        },
        IPV4_LABEL => open_ipv4(stack.payload(), session),
        other => panic!("label {other}"),
    }
}

fn open_ipv4(packet: &[u8], session: Option<SessionFormat>) -> Found {
    let (header, packet) = Ipv4Header::pop(packet).unwrap();
    match header.protocol {
        Protocol::GRE => {
            let (header, packet) = gre::Header::pop(packet).unwrap();
            match header.protocol_type {
                EtherType::TRANSPARENT_ETHERNET => open(packet, session),
                EtherType::MPLS => open_labels(packet, session),
                other => panic!("{other}"),
            }
        }
        Protocol::L2TP => open(DataHeader::pop(packet, session.unwrap()).unwrap().1, session),
        Protocol::MPLS => open_labels(packet, session),
        Protocol::TCP => {
            let pseudo_header = header.pseudo_header();
            let (header, _, payload) = tcp::Header::pop(packet, pseudo_header).unwrap();
            Found::Segment(header.source_port, payload.to_vec())
        }
        Protocol::UDP => {
            let (header, packet) = udp::Header::pop(packet, header.pseudo_header()).unwrap();
            match header.destination_port {
                mpls::UDP_PORT => open_labels(packet, session),
                crate::l2tp::UDP_PORT => {
                    open(DataHeader::pop(packet, session.unwrap()).unwrap().1, session)
                }
                other => panic!("port {other}"),
            }
        }
        other => panic!("{other}"),
    }
}

/// What the ends of the stack's L2TPv3 session agreed on, if it has one.
fn session(stack: &Stack) -> Option<SessionFormat> {
    stack.layers.iter().find_map(|layer| match *layer {
        Layer::L2tp { transport, cookie, sublayer } => {
            Some(SessionFormat { transport, cookie, has_sublayer: sublayer })
        }
        _ => None,
    })
}

/// The data of what a server sent in its stream.
fn pdu_data(port: u16, pdu: &[u8]) -> Vec<u8> {
    match port {
        iscsi::PORT => {
            let header = iscsi::DataIn::parse(pdu).unwrap();
            let behind = &pdu[iscsi::DataIn::SIZE..];
            let length = header.data_segment_length.get() as usize;
            // Digests are zeros here, and each is as long as the other.
            let digest = (behind.len() - length) / 2;
            behind[digest..digest + length].to_vec()
        }
        nvme_tcp::PORT => {
            let header = nvme_tcp::DataHeader::parse(pdu).unwrap();
            let payload = header.common.check(nvme_tcp::Digests::NONE).unwrap();
            header.check_length(payload).unwrap();
            pdu[payload.offset as usize..].to_vec()
        }
        nfs::PORT => {
            let mark = RecordMark::parse(pdu).unwrap();
            let record = &pdu[RecordMark::SIZE..];
            assert_eq!((mark.is_last(), mark.length() as usize), (true, record.len()));
            let (_, results) = AcceptedReply::pop(record).unwrap();
            ReadReply::pop(results).unwrap().1.to_vec()
        }
        fibre_channel::FCIP_PORT | fibre_channel::IFCP_PORT => {
            let (_, frame) = Encapsulation::pop(pdu).unwrap();
            StartOfFrame::parse(frame).unwrap();
            let (frame, end) = frame[StartOfFrame::SIZE..].split_last_chunk::<4>().unwrap();
            EndOfFrame::parse(end).unwrap();
            FrameHeader::parse(frame).unwrap();
            frame[FrameHeader::SIZE..frame.len() - 4].to_vec()
        }
        other => panic!("port {other}"),
    }
}

#[test]
fn each_frame_comes_apart_again() {
    let plain = stack("AoE").encode(&data()).bytes;
    for stack in STACKS {
        match open(&stack.encode(&data()).bytes, session(stack)) {
            // Of whatever tunnel, it comes out as it went in.
            Found::Frame(frame) => assert_eq!(frame, plain, "{}", stack.name),
            Found::Segment(port, pdu) => {
                assert_eq!(pdu_data(port, &pdu), data(), "{}", stack.name);
            }
        }
    }
    let message = aoe::Message::parse(&plain[ethernet::HEADER_SIZE..]).unwrap();
    assert_eq!(message.data_length(), data().len());
    assert!(plain.ends_with(&data()));
}

/// The share of the paper's block and of a larger one, by hand.
#[test]
fn a_block_costs_its_frames_with_all_that_is_around_them() {
    let share = |name: &str, mtu, block| {
        let share = stack(name).share(mtu, block).unwrap();
        assert_eq!(share.data_bytes, block);
        (share.frames, share.wire_bytes)
    };
    // Two sectors a frame: 36 + 1024 + 24 for each.
    assert_eq!(share("AoE", 1500, 1024), (1, 1084));
    assert_eq!(share("AoE", 1500, 4096), (4, 4 * 1084));
    // Three sectors are a frame of two and one of one.
    assert_eq!(share("AoE", 1500, 1536), (2, 1084 + 36 + 512 + 24));
    // All eight fit a jumbo frame.
    assert_eq!(share("AoE/MPLS", 9000, 4096), (1, 54 + 4096 + 24));
    // 4144 bytes of stream in segments of 1460, each with 54 and 24.
    assert_eq!(share("iSCSI", 1500, 4096), (3, 4144 + 3 * 78));
    assert_eq!(share("iSCSI, digests", 1500, 4096), (3, 4152 + 3 * 78));
    // With timestamps they have 1448, and 66 in front of each.
    assert_eq!(share("iSCSI, TCP timestamps", 1500, 4096), (3, 4144 + 3 * 90));
    assert_eq!(share("iSCSI/MPLS", 1500, 1024), (1, 120 + 1024 + 24));
    // Two FC frames, 64 around each.
    assert_eq!(share("FCIP", 1500, 4096), (3, 4096 + 2 * 64 + 3 * 78));
    assert_eq!(share("FCIP", 1500, 2048), (2, 2048 + 64 + 2 * 78));
}

#[test]
fn what_is_short_is_padded() {
    // A BHS and 1024 bytes in segments of 1068: the last one has 4 bytes of 46.
    let share = stack("iSCSI").share(1108, 1024).unwrap();
    assert_eq!((share.frames, share.wire_bytes), (2, 54 + 1068 + 24 + 14 + 46 + 24));
    // In a pseudowire it is the frame inside that was padded.
    let share = stack("iSCSI/MPLS").share(1126, 1024).unwrap();
    assert_eq!((share.frames, share.wire_bytes), (2, 72 + 1068 + 24 + 32 + 46 + 24));
}

#[test]
fn a_tunnel_leaves_less_of_the_mtu() {
    let frames = |name: &str, mtu| Some(stack(name).share(mtu, 1024)?.frames);
    // Two sectors with the 36 that our targets compare with an MTU, and one.
    for (name, around) in [
        ("AoE", 0),
        ("AoE/MPLS", 18),
        ("AoE/MPLS, 2 labels, control word", 26),
        ("AoE/GRE", 38),
        ("AoE/L2TP", 50),
        ("AoE/MPLS/UDP, IPv6", 70),
    ] {
        let full = around + 36 + 1024;
        assert_eq!(frames(name, full), Some(1), "{name}");
        assert_eq!(frames(name, full - 1), Some(2), "{name}");
        assert_eq!(frames(name, full - 512), Some(2), "{name}");
        assert_eq!(frames(name, full - 513), None, "{name}");
        assert_eq!(frames(name, 0), None, "{name}");
    }
}

#[test]
fn a_stream_goes_on_as_long_as_a_segment_has_a_byte() {
    let iscsi = stack("iSCSI");
    assert_eq!(iscsi.share(41, 512).map(|share| share.frames), Some(512 + 48));
    for mtu in [0, 39, 40] {
        assert_eq!(iscsi.share(mtu, 512), None, "{mtu}");
    }
}

#[test]
fn frames_that_are_really_cut_take_as_much() {
    // With these MTUs it does not matter that targets count the Ethernet header of AoE, too.
    for (mtu, block) in [(1500, 512), (1500, 4096), (1700, 8192), (9000, 32_768)] {
        for stack in STACKS {
            let share = stack.share(mtu, block).unwrap();
            let (frames, wire_bytes) = cut(stack, mtu, block);
            assert_eq!((share.frames, share.wire_bytes), (frames, wire_bytes), "{}", stack.name);
            assert!(share.data_percent() < 100.0);
        }
    }
}

/// Makes the frames of a block, as many as it takes, and counts them and their bytes on the wire:
/// whole frames where a PDU fills one; else the headers of segments, and between them the stream.
fn cut(stack: &Stack, mtu: usize, block: usize) -> (usize, usize) {
    let block = vec![7; block];
    let fits = |frame: &Frame| frame.bytes.len() <= mtu + ethernet::HEADER_SIZE;
    let (mut frames, mut wire) = (0, 0);
    let Some(data_max) = stack.pdu.data_max() else {
        // The largest that fits, found by trying.
        let mut rest = &block[..];
        while !rest.is_empty() {
            let sizes = (1..=rest.len() / SECTOR).rev().map(|sectors| sectors * SECTOR);
            let mut tried = sizes.map(|size| (size, stack.encode(&rest[..size])));
            let (size, frame) = tried.find(|(_, frame)| fits(frame)).unwrap();
            rest = &rest[size..];
            frames += 1;
            wire += frame.bytes.len() + AROUND_FRAME;
        }
        return (frames, wire);
    };
    let mut stream = Vec::new();
    let mut head = 0;
    for data in block.chunks(data_max) {
        let frame = stack.encode(data);
        head = sum(&frame.parts[..stack.layers.len()]);
        stream.extend_from_slice(&frame.bytes[head..]);
    }
    for segment in stream.chunks(mtu + ethernet::HEADER_SIZE - head) {
        frames += 1;
        wire += head + segment.len() + AROUND_FRAME;
    }
    (frames, wire)
}

#[test]
#[should_panic(expected = "a block of 1000 bytes")]
fn a_block_of_no_whole_sectors_is_our_mistake() {
    let _ = stack("AoE").share(1500, 1000);
}
