//! The headers of tunnels: Ethernet with its tags, IPv4, IPv6, UDP, GRE and L2TPv3; and those of
//! stacks to compare with: TCP, FCIP and iFCP, RPC and NFS.
//!
//! The input is what each of them may find; where it has a checksum that is wrong, it is looked at
//! once more with the one that was expected, so that more than the checksum is searched.
#![no_main]

use std::net::Ipv6Addr;

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::checksum::Checksum;
use wire::ethernet::{Header, Tagged, VlanTag};
use wire::fibre_channel::{Encapsulation, EndOfFrame, FrameHeader, StartOfFrame};
use wire::ip::{Ipv4Header, Ipv6Header, PseudoHeader};
use wire::l2tp::{Cookie, DataHeader, SessionFormat, Transport, session_id};
use wire::nfs::{FileAttributes, ReadReply};
use wire::rpc::{AcceptedReply, RecordMark};
use wire::sequence::{Arrival, Numbers};
use wire::{Expected, ParseError, gre, tcp, udp};

fuzz_target!(|input: &[u8]| {
    ethernet(input);
    contract!(Ipv4Header, input);
    mended(input, |bytes| {
        Ipv4Header::pop(bytes).map(|(header, payload)| ipv4(bytes, header, payload))
    });
    contract!(Ipv6Header, input);
    match Ipv6Header::pop(input) {
        Ok((header, payload)) => {
            one_line(&header);
            assert_eq!(payload.len(), usize::from(header.payload_length));
            udp_in(header.pseudo_header(), payload);
        }
        Err(error) => drop(error.to_string()),
    }
    udp_in(PseudoHeader::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST), input);
    gre_in(input);
    l2tp(input);
    tcp_in(PseudoHeader::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST), input);
    fibre_channel(input);
    nfs(input);
    if let Some(&[a, b, c, d, e, f, g, h]) = input.first_chunk() {
        let [a, b] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        for (numbers, bits) in [(Numbers::GRE, 32), (Numbers::L2TP, 24)] {
            sequence(numbers, bits, [a, b]);
        }
    }
});

/// Has `parse` look at the input, and again with another checksum if that one was wrong.
fn mended(input: &[u8], mut parse: impl FnMut(&[u8]) -> Result<(), ParseError>) {
    let Err(error) = parse(input) else { return };
    drop(error.to_string());
    if let (true, Expected::Exactly(right)) = (error.field.ends_with("checksum"), error.expected) {
        let mut bytes = input.to_vec();
        bytes[error.offset..error.offset + 2].copy_from_slice(&(right as u16).to_be_bytes());
        parse(&bytes).expect("the checksum that was expected");
    }
}

fn ethernet(input: &[u8]) {
    if let Some(header) = contract!(Header, input) {
        one_line(&header);
    }
    contract!(VlanTag, input);
    match Tagged::parse(input) {
        Ok(Tagged { addresses, tag, rest }) => {
            let tag = tag.map_or(Vec::new(), |tag| {
                one_line(&tag);
                tag.emit().to_vec()
            });
            assert_eq!([&addresses[..], &tag, rest].concat(), input);
        }
        Err(error) => drop(error.to_string()),
    }
}

fn ipv4(bytes: &[u8], header: Ipv4Header, payload: &[u8]) {
    one_line(&header);
    let size = usize::from(header.version_length.length()) * 4;
    assert_eq!(payload, &bytes[size..header.total_length.into()]);
    let Ipv4Header { protocol, source, destination, ttl, traffic_class, .. } = header;
    let plain = Ipv4Header::new(protocol, source, destination, ttl, traffic_class, payload.len());
    let again = [&plain.emit(), payload].concat();
    assert_eq!(Ipv4Header::pop(&again), Ok((plain, payload)), "written and read again");
    udp_in(header.pseudo_header(), payload);
}

fn udp_in(pseudo_header: PseudoHeader, input: &[u8]) {
    contract!(udp::Header, input);
    mended(input, |bytes| {
        let (header, payload) = udp::Header::pop(bytes, pseudo_header)?;
        one_line(&header);
        assert_eq!(payload.len() + udp::Header::SIZE, usize::from(header.length));
        let sum = Checksum::default().with(payload);
        let checked = header.with_checksum(pseudo_header, sum);
        assert!(header.checksum == 0 || header == checked);
        let again = [&checked.emit(), payload].concat();
        assert_eq!(udp::Header::pop(&again, pseudo_header), Ok((checked, payload)));
        Ok(())
    });
}

fn gre_in(input: &[u8]) {
    mended(input, |bytes| {
        let (header, payload) = gre::Header::pop(bytes)?;
        one_line(&header);
        let front = header.emit(Checksum::default().with(payload));
        assert_eq!((front.len(), &bytes[front.len()..]), (header.size(), payload));
        let again = [&front, payload].concat();
        assert_eq!(gre::Header::pop(&again), Ok((header, payload)), "written and read again");
        Ok(())
    });
}

fn l2tp(input: &[u8]) {
    for transport in [Transport::Udp, Transport::Ip] {
        let id = session_id(transport, input);
        for cookie in [Cookie::None, Cookie::Short([0; 4]), Cookie::Long([0; 8])] {
            for has_sublayer in [false, true] {
                let format = SessionFormat { transport, cookie, has_sublayer };
                let (header, frame) = match DataHeader::pop(input, format) {
                    Ok(popped) => popped,
                    Err(error) => {
                        drop(error.to_string());
                        continue;
                    }
                };
                one_line(&header);
                assert_eq!(id, Ok(header.session_id));
                assert_eq!(header.cookie.bytes().len(), cookie.bytes().len());
                let front = header.emit(transport);
                assert_eq!(&input[front.len()..], frame);
                let again = [&front, frame].concat();
                assert_eq!(DataHeader::pop(&again, format), Ok((header, frame)));
            }
        }
    }
}

fn tcp_in(pseudo_header: PseudoHeader, input: &[u8]) {
    contract!(tcp::Header, input);
    contract!(tcp::Timestamps, input);
    mended(input, |bytes| {
        let (header, options, payload) = tcp::Header::pop(bytes, pseudo_header)?;
        one_line(&header);
        assert_eq!([&header.emit()[..], options, payload].concat().len(), bytes.len());
        let behind = Checksum::default().with(options).with(payload);
        let checked = header.with_checksum(pseudo_header, behind, options.len() + payload.len());
        assert_eq!(header, checked);
        Ok(())
    });
}

fn fibre_channel(input: &[u8]) {
    contract!(FrameHeader, input);
    contract!(StartOfFrame, input);
    contract!(EndOfFrame, input);
    match Encapsulation::pop(input) {
        Ok((header, frame)) => {
            one_line(&header);
            // All of it is told twice or kept.
            assert_eq!(header.emit(), input[..Encapsulation::SIZE]);
            assert_eq!(Encapsulation::SIZE + frame.len(), usize::from(header.frame_words) * 4);
        }
        Err(error) => drop(error.to_string()),
    }
}

fn nfs(input: &[u8]) {
    contract!(RecordMark, input);
    contract!(FileAttributes, input);
    match AcceptedReply::pop(input) {
        Ok((reply, results)) => {
            one_line(&reply);
            let again = [&reply.emit()[..], results].concat();
            assert_eq!(AcceptedReply::pop(&again), Ok((reply, results)), "written and read again");
        }
        Err(error) => drop(error.to_string()),
    }
    match ReadReply::pop(input) {
        Ok((reply, data)) => {
            one_line(&reply);
            let again = [&reply.emit(), data].concat();
            assert_eq!(again, input[..again.len()], "written and read again");
        }
        Err(error) => drop(error.to_string()),
    }
}

/// Of two numbers of so many bits at most one is ahead of the other.
fn sequence(numbers: Numbers, bits: u32, both: [u32; 2]) {
    let [one, other] = both.map(|number| number >> (32 - bits));
    let arrivals = (numbers.arrival(Some(one), other), numbers.arrival(Some(other), one));
    match arrivals {
        (Arrival::InOrder, Arrival::InOrder) => assert_eq!(one, other),
        (Arrival::Ahead(missing), Arrival::Late) | (Arrival::Late, Arrival::Ahead(missing)) => {
            assert!(missing > 0 && missing < 1 << (bits - 1));
        }
        (Arrival::Late, Arrival::Late) => assert_eq!(one ^ other, 1 << (bits - 1), "half of all"),
        _ => panic!("{one} and {other}: {arrivals:?}"),
    }
}
