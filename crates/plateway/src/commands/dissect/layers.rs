//! From a captured packet down to what a protocol of ours reads: a segment of TCP, or a frame.
//! `etherparse` knows Ethernet, VLAN tags, IP and TCP; here is which link types begin with what.
//!
//! Captures hold less than was sent (snap length), or more than the headers announce, where
//! segmentation offload leaves the length 0; both are read. Fragments of IP are passed over, so
//! that what they held is missing from its stream. Checksums are not looked at: offload leaves them
//! undone. Spec: tcpdump.org's link-layer header types.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice};
use pcap_file::DataLink;

use super::capture::CapturedPacket;

/// A segment of a TCP connection.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// Sequence number of the first byte of payload (of the SYN, where it is set).
    pub(super) sequence: u32,
    /// Sequence numbers begin.
    pub(super) syn: bool,
    /// The connection is gone.
    pub(super) rst: bool,
    pub(super) payload: &'a [u8],
    /// Bytes of payload that were sent behind these and not captured.
    pub(super) missing: usize,
}

/// What stands behind the EtherType of a frame, and whose it is.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) source: [u8; 6],
    pub(crate) destination: [u8; 6],
    pub(crate) ether_type: u16,
    pub(crate) payload: &'a [u8],
}

/// Takes off what is around network or frame; `None` for a link type that begins with neither, and
/// for a packet that ends within its headers.
pub(super) fn slice<'a>(packet: &'a CapturedPacket<'_>) -> Option<LaxSlicedPacket<'a>> {
    let bytes = &*packet.bytes;
    let cooked = |at: usize, size: usize| {
        let ether_type = EtherType(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        Some(LaxSlicedPacket::from_ether_type(ether_type, bytes.get(size..)?))
    };
    match packet.link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        DataLink::LINUX_SLL => cooked(14, 16),
        DataLink::LINUX_SLL2 => cooked(0, 20),
        // An address family comes first, which IP's own version makes redundant.
        DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(bytes.get(4..)?).ok(),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        _ => None,
    }
}

/// The frame, VLAN tags taken off, if it was captured with its addresses.
pub(super) fn frame<'a>(sliced: &LaxSlicedPacket<'a>) -> Option<Frame<'a>> {
    let Some(LinkSlice::Ethernet2(ethernet)) = &sliced.link else { return None };
    let behind = sliced.ether_payload()?;
    Some(Frame {
        source: ethernet.source(),
        destination: ethernet.destination(),
        ether_type: behind.ether_type.0,
        payload: behind.payload,
    })
}

/// The segment of TCP, unless the packet is a fragment of one or something else.
pub(super) fn segment<'a>(sliced: &LaxSlicedPacket<'a>) -> Option<Segment<'a>> {
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
    let net = sliced.net.as_ref()?;
    let captured = net.ip_payload_ref()?.payload.len();
    // Bytes announced, and how many of them are in front of the payload.
    let (source, destination, announced, before): (IpAddr, IpAddr, u16, usize) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let authentication = ip.extensions().auth.map_or(0, |header| header.slice().len());
            let header = ip.header();
            let before = header.slice().len() + authentication;
            let (from, to) = (header.source_addr(), header.destination_addr());
            (from.into(), to.into(), header.total_len(), before)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let before = ip.extensions().slice().len();
            let (from, to) = (header.source_addr(), header.destination_addr());
            (from.into(), to.into(), header.payload_length(), before)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    Some(Segment {
        source: SocketAddr::new(source, tcp.source_port()),
        destination: SocketAddr::new(destination, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        syn: tcp.syn(),
        rst: tcp.rst(),
        payload: tcp.payload(),
        missing: usize::from(announced).saturating_sub(before + captured),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1 port 1 to 10.0.0.2 port 2, sequence 3, `abc`, of which as much is announced.
    fn ipv4(announced: u16) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend(announced.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend(tcp());
        ip
    }

    fn tcp() -> [u8; 23] {
        let mut tcp = [0; 23];
        (tcp[1], tcp[3], tcp[7], tcp[12], tcp[13]) = (1, 2, 3, 0x50, 0x10);
        tcp[20..].copy_from_slice(b"abc");
        tcp
    }

    /// What a packet has of a segment: payload, and how much of it is missing.
    fn open(link: DataLink, bytes: &[&[u8]]) -> Option<(Vec<u8>, usize)> {
        let packet = CapturedPacket { time_ns: 0, link, bytes: bytes.concat().into() };
        let sliced = slice(&packet)?;
        let segment = segment(&sliced)?;
        assert_eq!((segment.source.port(), segment.destination.port()), (1, 2));
        assert_eq!((segment.sequence, segment.syn, segment.rst), (3, false, false));
        Some((segment.payload.to_vec(), segment.missing))
    }

    #[test]
    fn a_segment_is_found_behind_any_link() {
        let ip = ipv4(43);
        let ethernet = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
        let mut cooked2 = [0; 20];
        cooked2[0] = 8;
        for (link, head) in [
            (DataLink::ETHERNET, [&ethernet[..], &[8, 0]].concat()),
            (DataLink::ETHERNET, [&ethernet[..], &[0x81, 0, 0, 5, 8, 0]].concat()),
            (
                DataLink::ETHERNET,
                [&ethernet[..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat(),
            ),
            (DataLink::LINUX_SLL, [&[0; 14][..], &[8, 0]].concat()),
            (DataLink::LINUX_SLL2, cooked2.to_vec()),
            (DataLink::NULL, vec![2, 0, 0, 0]),
            (DataLink::LOOP, vec![0, 0, 0, 2]),
            (DataLink::RAW, vec![]),
            (DataLink::IPV4, vec![]),
        ] {
            assert_eq!(open(link, &[&head, &ip]), Some((b"abc".to_vec(), 0)), "{link:?}");
        }
        assert_eq!(open(DataLink::from(9), &[&ip]), None, "a link type that is not read");
    }

    #[test]
    fn headers_that_are_cut_off_or_nonsense_hold_nothing() {
        let ip = ipv4(43);
        for length in 0..40 {
            assert_eq!(open(DataLink::RAW, &[&ip[..length]]), None, "{length} bytes");
        }
        for (at, byte) in [(0, 0x75), (0, 0x44), (32, 0x40), (9, 17)] {
            let mut wrong = ip.clone();
            wrong[at] = byte;
            assert_eq!(open(DataLink::RAW, &[&wrong]), None, "{byte:#x} at byte {at}");
        }
        for link in [DataLink::ETHERNET, DataLink::LINUX_SLL2, DataLink::NULL] {
            assert_eq!(open(link, &[&[8; 3]]), None);
        }
    }

    #[test]
    fn padding_is_cut_what_was_not_captured_is_counted_and_offload_leaves_no_length() {
        let padding = [0; 6];
        assert_eq!(open(DataLink::RAW, &[&ipv4(43), &padding]), Some((b"abc".to_vec(), 0)));
        assert_eq!(open(DataLink::RAW, &[&ipv4(1043)]), Some((b"abc".to_vec(), 1000)));
        assert_eq!(open(DataLink::RAW, &[&ipv4(0), b"def"]), Some((b"abcdef".to_vec(), 0)));
    }

    #[test]
    fn a_fragment_is_passed_over() {
        for (high, low) in [(0x20, 0), (0, 1)] {
            let mut fragment = ipv4(43);
            (fragment[6], fragment[7]) = (high, low);
            assert_eq!(open(DataLink::RAW, &[&fragment]), None);
        }
    }

    #[test]
    fn extensions_of_ipv6_are_skipped() {
        let addresses = [[0; 15].as_slice(), &[1]].concat().repeat(2);
        let head =
            |length: u8, next: u8| [&[0x60, 0, 0, 0, 0, length, next, 64], &addresses[..]].concat();
        let options = [6, 0, 1, 4, 0, 0, 0, 0];
        let found = |missing| Some((b"abc".to_vec(), missing));
        assert_eq!(open(DataLink::IPV6, &[&head(23, 6), &tcp()]), found(0));
        assert_eq!(open(DataLink::RAW, &[&head(31, 0), &options, &tcp()]), found(0));
        assert_eq!(open(DataLink::RAW, &[&head(131, 0), &options, &tcp()]), found(100));
        let fragment = [6, 0, 0, 1, 0, 0, 0, 7];
        assert_eq!(open(DataLink::RAW, &[&head(31, 44), &fragment, &tcp()]), None);
    }

    #[test]
    fn a_frame_has_its_addresses_and_no_tags() {
        let head = [[1; 6], [2; 6]].concat();
        for tags in [&[][..], &[0x81, 0, 0, 5]] {
            let bytes = [&head, tags, &[0x88, 0xa2, 7, 8]].concat();
            let packet =
                CapturedPacket { time_ns: 0, link: DataLink::ETHERNET, bytes: bytes.into() };
            let sliced = slice(&packet).unwrap();
            let frame = frame(&sliced).unwrap();
            assert_eq!((frame.destination, frame.source), ([1; 6], [2; 6]));
            assert_eq!((frame.ether_type, frame.payload), (0x88a2, &[7, 8][..]));
            assert!(segment(&sliced).is_none());
        }
    }
}
