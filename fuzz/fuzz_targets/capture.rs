//! Captures, and the way down through each packet: link, VLAN, then AoE or IP, TCP, NVMe/TCP, as
//! `plateway dissect` goes.
//!
//! The first byte is the size of the pieces in which the rest is fed to the reader that takes
//! pieces; it must find the same packets as the one that sees the whole capture.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::aoe::Message;
use wire::ethernet::{self, EtherType, EthernetHeader, VlanTag};
use wire::ip::{Ipv4Header, Ipv6Header, Packet, Protocol};
use wire::nvme_tcp::CommonHeader;
use wire::pcap::{CapturedPacket, Packets, Stream};
use wire::tcp::TcpHeader;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, capture)) = input.split_first() else { return };
    let mut whole = Vec::new();
    for packet in Packets::new(capture) {
        match packet {
            Ok(packet) => whole.push(packet),
            Err(error) => drop(error.to_string()),
        }
    }
    in_pieces(capture, piece.max(1).into(), &whole);
    for packet in whole {
        assert!(packet.bytes.len() <= capture.len());
        descend(packet);
    }
});

/// Reads the capture in pieces and compares.
fn in_pieces(capture: &[u8], size: usize, whole: &[CapturedPacket<'_>]) {
    let mut expected = whole.iter();
    let mut stream = Stream::new();
    for piece in capture.chunks(size) {
        stream.feed(piece);
        loop {
            match stream.poll_packet() {
                Ok(Some(packet)) => assert_eq!(Some(&packet), expected.next()),
                Ok(None) => break,
                Err(_) => {
                    assert_eq!(expected.next(), None, "the reader in pieces stopped before");
                    return;
                }
            }
        }
    }
    assert_eq!(expected.next(), None, "the reader in pieces missed packets");
    let _ = stream.finish();
}

/// Link to NVMe/TCP, as far as it goes.
fn descend(packet: CapturedPacket<'_>) {
    contract!(EthernetHeader, packet.bytes);
    contract!(VlanTag, packet.bytes);
    if let Ok(header) = Ipv4Header::parse(packet.bytes) {
        drop(format!("{header:?}"));
    }
    if let Ok(header) = Ipv6Header::parse(packet.bytes) {
        drop(format!("{header:?}"));
    }
    let Ok((kind, bytes)) = ethernet::network(packet.link, packet.bytes) else { return };
    one_line(&kind);
    if let (EtherType::AOE, Ok(message)) = (kind, Message::parse(bytes)) {
        one_line(&message);
    }
    let Ok(packet) = Packet::parse(kind, bytes) else { return };
    assert!(packet.payload.len() <= packet.payload_length, "more payload than announced");
    if packet.protocol != Protocol::TCP {
        return;
    }
    if let Ok((header, payload)) = TcpHeader::parse(packet.payload) {
        drop(format!("{header:?}"));
        contract!(CommonHeader, payload);
    }
}
