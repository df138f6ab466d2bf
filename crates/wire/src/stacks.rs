//! An AoE frame in each kind of tunnel: headers pushed from the inside out, counted up to the AoE
//! data, and popped again down to the frame that went in.
//!
//! The sizes are the bytes in front of the data of an ATA frame, computed from the specifications; the
//! inner frame has 36 of them: Ethernet 14, AoE 10, ATA 12.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;

use crate::checksum::Checksum;
use crate::ethernet::{self, EtherType, MacAddress};
use crate::ip::{Ipv4Header, Ipv6Header, Protocol};
use crate::l2tp::{Cookie, DataHeader, L2SpecificSublayer, SessionFormat, Transport};
use crate::mpls::{self, Label, LabelStack, LabelStackEntry};
use crate::pseudowire::{ControlWord, Packet};
use crate::sequence::PseudowireSequence;
use crate::{Front, aoe, gre, udp};

type Stack = Front<128>;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// An AoE write of two sectors.
fn frame() -> Vec<u8> {
    let header = aoe::Header::request(aoe::Address::new(7, 3), aoe::Command::ATA, 9);
    let argument =
        aoe::AtaArgument::request(crate::ata::Opcode::WRITE_SECTORS_EXT, 1 << 33, 2, true);
    let mut stack = Stack::new();
    stack.push(&argument.emit());
    stack.push(&header.emit());
    push_ethernet(&mut stack, EtherType::AOE);
    assert_eq!(stack.len(), aoe::ATA_OVERHEAD);
    [&stack[..], &[0x5a; 1024]].concat()
}

fn push_ethernet(stack: &mut Stack, ether_type: EtherType) {
    let (destination, source) = (MacAddress([2; 6]), MacAddress([4; 6]));
    stack.push(&ethernet::Header { destination, source, ether_type }.emit());
}

fn push_label(stack: &mut Stack, number: u32, is_bottom: bool) {
    let label = Label::new(number).unwrap();
    stack.push(&LabelStackEntry { label, traffic_class: 0, is_bottom, ttl: 255 }.emit());
}

fn push_control_word(stack: &mut Stack) {
    stack.push(&ControlWord::ethernet(PseudowireSequence(7)).emit());
}

fn push_ipv4(stack: &mut Stack, protocol: Protocol) {
    let length = stack.len() + frame().len();
    stack.push(&Ipv4Header::new(protocol, HERE, THERE, 64, 0, length).emit());
}

fn push_gre(stack: &mut Stack, header: gre::Header) {
    let sum = Checksum::default().with(stack).with(&frame());
    stack.push(&header.emit(sum));
}

fn push_udp(stack: &mut Stack, source_port: u16, destination_port: u16) {
    let length = stack.len() + frame().len();
    stack.push(&udp::Header::new(source_port, destination_port, length).emit());
}

/// Takes the frame out of whatever is around it, as its EtherType, protocol and port say.
fn open(outer: &[u8], session: Option<SessionFormat>) -> Vec<u8> {
    let (header, packet) = ethernet::Header::pop(outer).unwrap();
    match header.ether_type {
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

fn open_labels(packet: &[u8], session: Option<SessionFormat>) -> Vec<u8> {
    let stack = LabelStack::parse(packet, 2).unwrap();
    // As a configuration would have it: what each label at the bottom stands for.
    match stack.entries().next_back().unwrap().label.get() {
        100 => stack.payload().to_vec(),
        101 => match Packet::parse(stack.payload()).unwrap() {
            Packet::Data(word, frame) if word.sequence.0 == 7 => frame.to_vec(),
            other => panic!("{other:?}"),
        },
        102 => open_ipv4(stack.payload(), session),
        103 => open(stack.payload(), session),
        other => panic!("label {other}"),
    }
}

fn open_ipv4(packet: &[u8], session: Option<SessionFormat>) -> Vec<u8> {
    let (header, packet) = Ipv4Header::pop(packet).unwrap();
    match header.protocol {
        Protocol::GRE => {
            let (header, packet) = gre::Header::pop(packet).unwrap();
            match header.protocol_type {
                EtherType::TRANSPARENT_ETHERNET => packet.to_vec(),
                EtherType::MPLS => open_labels(packet, session),
                other => panic!("{other}"),
            }
        }
        Protocol::L2TP => DataHeader::pop(packet, session.unwrap()).unwrap().1.to_vec(),
        Protocol::MPLS => open_labels(packet, session),
        Protocol::UDP => {
            let (header, packet) = udp::Header::pop(packet, header.pseudo_header()).unwrap();
            match header.destination_port {
                mpls::UDP_PORT => open_labels(packet, session),
                crate::l2tp::UDP_PORT => {
                    DataHeader::pop(packet, session.unwrap()).unwrap().1.to_vec()
                }
                other => panic!("port {other}"),
            }
        }
        other => panic!("{other}"),
    }
}

/// What is around the frame has so many bytes with the frame's own headers, and comes off again.
fn check(stack: &Stack, session: Option<SessionFormat>, size: usize) {
    assert_eq!(stack.len() + aoe::ATA_OVERHEAD, size);
    let outer = [&stack[..], &frame()].concat();
    assert_eq!(open(&outer, session), frame());
}

#[test]
fn a_pseudowire_over_mpls() {
    for (transport_labels, control_word, size) in
        [(0, false, 54), (0, true, 58), (1, false, 58), (1, true, 62)]
    {
        let mut stack = Stack::new();
        if control_word {
            push_control_word(&mut stack);
        }
        push_label(&mut stack, 100 + u32::from(control_word), true);
        for _ in 0..transport_labels {
            push_label(&mut stack, 200, false);
        }
        push_ethernet(&mut stack, EtherType::MPLS);
        check(&stack, None, size);
    }
}

#[test]
fn gre_over_ip() {
    let plain = gre::Header::new(EtherType::TRANSPARENT_ETHERNET);
    let keyed = gre::Header { key: Some(42), ..plain };
    let numbered = gre::Header { sequence: Some(0), ..keyed };
    let checked = gre::Header { has_checksum: true, ..numbered };
    for (header, size) in [(plain, 74), (keyed, 78), (numbered, 82), (checked, 86)] {
        let mut stack = Stack::new();
        push_gre(&mut stack, header);
        push_ipv4(&mut stack, Protocol::GRE);
        push_ethernet(&mut stack, EtherType::IPV4);
        check(&stack, None, size);
    }
}

#[test]
fn gre_over_ip_over_mpls_routed_and_as_a_pseudowire() {
    for (is_pseudowire, label, size) in [(false, 102, 78), (true, 103, 92)] {
        let mut stack = Stack::new();
        push_gre(&mut stack, gre::Header::new(EtherType::TRANSPARENT_ETHERNET));
        push_ipv4(&mut stack, Protocol::GRE);
        if is_pseudowire {
            push_ethernet(&mut stack, EtherType::IPV4);
        }
        push_label(&mut stack, label, true);
        push_ethernet(&mut stack, EtherType::MPLS);
        check(&stack, None, size);
    }
}

#[test]
fn l2tp_over_udp_and_over_ip() {
    let numbered = Some(L2SpecificSublayer::sequenced(0));
    for (transport, cookie, sublayer, size) in [
        (Transport::Udp, Cookie::None, None, 86),
        (Transport::Udp, Cookie::None, numbered, 90),
        (Transport::Udp, Cookie::Long([7; 8]), numbered, 98),
        (Transport::Ip, Cookie::None, None, 74),
    ] {
        let header = DataHeader { session_id: NonZeroU32::MIN, cookie, sublayer };
        let mut stack = Stack::new();
        stack.push(&header.emit(transport));
        match transport {
            Transport::Udp => {
                push_udp(&mut stack, crate::l2tp::UDP_PORT, crate::l2tp::UDP_PORT);
                push_ipv4(&mut stack, Protocol::UDP);
            }
            Transport::Ip => push_ipv4(&mut stack, Protocol::L2TP),
        }
        push_ethernet(&mut stack, EtherType::IPV4);
        let format = SessionFormat { transport, cookie, has_sublayer: sublayer.is_some() };
        check(&stack, Some(format), size);
    }
}

#[test]
fn mpls_over_ip_gre_and_udp() {
    for (protocol, size) in [(Protocol::MPLS, 78), (Protocol::GRE, 82), (Protocol::UDP, 86)] {
        let mut stack = Stack::new();
        push_control_word(&mut stack);
        push_label(&mut stack, 101, true);
        match protocol {
            Protocol::GRE => push_gre(&mut stack, gre::Header::new(EtherType::MPLS)),
            Protocol::UDP => push_udp(&mut stack, mpls::udp_source_port(0x1234), mpls::UDP_PORT),
            _ => {}
        }
        push_ipv4(&mut stack, protocol);
        push_ethernet(&mut stack, EtherType::IPV4);
        check(&stack, None, size);
    }
}

#[test]
fn mpls_over_udp_and_ipv6_with_a_checksum() {
    let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let mut stack = Stack::new();
    push_control_word(&mut stack);
    push_label(&mut stack, 101, true);
    let length = stack.len() + frame().len();
    let header = udp::Header::new(mpls::udp_source_port(1), mpls::UDP_PORT, length);
    let total = udp::Header::SIZE + length;
    let ip = Ipv6Header::new(Protocol::UDP, source, destination, 64, 0, total);
    let sum = Checksum::default().with(&stack).with(&frame());
    stack.push(&header.with_checksum(ip.pseudo_header(), sum).emit());
    stack.push(&ip.emit());
    push_ethernet(&mut stack, EtherType::IPV6);
    check(&stack, None, 106);
}
