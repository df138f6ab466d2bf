//! The stacks: those of the paper, in its order, each with the forms in which it is really sent, and
//! those that are sent today.
//!
//! The paper counts 32 bytes for AoE with its Ethernet and its ATA command, where 36 are sent, and
//! carries that on: 18 for MPLS around a frame (a label and the Ethernet outside), 14 for GRE, 12 for
//! L2TP, 20 for IPv4, 8 for UDP.

use super::Stack;
use super::encode::{Layer, Pdu};
use crate::iscsi::Digests;
use crate::l2tp::{Cookie, Transport};
use Layer::{ControlWord, Ethernet, Ipv4, Ipv6, Label, Udp};

const TCP: Layer = Layer::Tcp { timestamps: false };
const GRE: Layer = Layer::Gre { key: false, sequence: false, checksum: false };
const GRE_KEY: Layer = Layer::Gre { key: true, sequence: false, checksum: false };
const GRE_SEQUENCE: Layer = Layer::Gre { key: true, sequence: true, checksum: false };
const GRE_ALL: Layer = Layer::Gre { key: true, sequence: true, checksum: true };
const ISCSI: Pdu = Pdu::Iscsi(Digests::NONE);
const ISCSI_DIGESTS: Pdu = Pdu::Iscsi(Digests { header: true, data: true });

const fn l2tp(transport: Transport, cookie: Cookie, sublayer: bool) -> Layer {
    Layer::L2tp { transport, cookie, sublayer }
}
const L2TP: Layer = l2tp(Transport::Udp, Cookie::None, false);
const L2TP_SUBLAYER: Layer = l2tp(Transport::Udp, Cookie::None, true);
const L2TP_COOKIE: Layer = l2tp(Transport::Udp, Cookie::Long([7; 8]), true);
const L2TP_IP: Layer = l2tp(Transport::Ip, Cookie::None, false);

/// A stack in the form that the paper means.
const fn paper(
    name: &'static str,
    paper_bytes: usize,
    why: &'static str,
    layers: &'static [Layer],
    pdu: Pdu,
) -> Stack {
    Stack { name, paper_bytes: Some(paper_bytes), why, layers, pdu }
}

/// Another form, or another stack.
const fn other(name: &'static str, why: &'static str, layers: &'static [Layer], pdu: Pdu) -> Stack {
    Stack { name, paper_bytes: None, why, layers, pdu }
}

/// All stacks, in the order in which they are shown.
pub const STACKS: &[Stack] = &[
    paper(
        "AoE",
        32,
        "the paper counts 20 for Ethernet and AoE, which are 14 and 10: 4 too few",
        &[Ethernet],
        Pdu::Aoe,
    ),
    paper(
        "AoE/MPLS",
        50,
        "4 too few as in AoE; one label and no control word, though its experiment pushes two labels",
        &[Ethernet, Label, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS, control word",
        "4 more for the numbers of frames, so that late ones are known",
        &[Ethernet, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS, 2 labels",
        "4 more for the label of a tunnel, as in the paper's experiment",
        &[Ethernet, Label, Label, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS, 2 labels, control word",
        "8 more for the label of a tunnel and the numbers of frames",
        &[Ethernet, Label, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    paper(
        "AoE/GRE",
        80,
        "10 too many, as GRE is 4 and not 14; 4 too few as in AoE",
        &[Ethernet, Ipv4, GRE, Ethernet],
        Pdu::Aoe,
    ),
    other("AoE/GRE, key", "4 more for a key", &[Ethernet, Ipv4, GRE_KEY, Ethernet], Pdu::Aoe),
    other(
        "AoE/GRE, key, sequence",
        "4 more for a key, 4 for a sequence number",
        &[Ethernet, Ipv4, GRE_SEQUENCE, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/GRE, key, sequence, checksum",
        "4 more for a key, 4 for a sequence number, 4 for a checksum",
        &[Ethernet, Ipv4, GRE_ALL, Ethernet],
        Pdu::Aoe,
    ),
    paper(
        "AoE/GRE/MPLS",
        98,
        "6 too many as in AoE/GRE; a pseudowire with one label and no control word around it",
        &[Ethernet, Label, Ethernet, Ipv4, GRE, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/GRE/MPLS, IP in labels",
        "14 less: routers put the label on the tunnel's IP packet, without an Ethernet in between",
        &[Ethernet, Label, Ipv4, GRE, Ethernet],
        Pdu::Aoe,
    ),
    paper(
        "AoE/L2TP",
        86,
        "two errors cancel: 4 too many, as L2TPv3 over UDP is 8 and not 12; 4 too few as in AoE",
        &[Ethernet, Ipv4, Udp, L2TP, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/L2TP, sublayer",
        "4 more that number the frames",
        &[Ethernet, Ipv4, Udp, L2TP_SUBLAYER, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/L2TP, sublayer, cookie",
        "4 more that number the frames, and a cookie of 8",
        &[Ethernet, Ipv4, Udp, L2TP_COOKIE, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/L2TP, over IP",
        "12 less: no UDP, and of the header the session ID alone",
        &[Ethernet, Ipv4, L2TP_IP, Ethernet],
        Pdu::Aoe,
    ),
    paper(
        "iSCSI",
        102,
        "right: Ethernet 14, IPv4 20, TCP 20, BHS 48, no TCP options and no digests",
        &[Ethernet, Ipv4, TCP],
        ISCSI,
    ),
    other(
        "iSCSI, TCP timestamps",
        "12 more, which most systems send in each segment",
        &[Ethernet, Ipv4, Layer::Tcp { timestamps: true }],
        ISCSI,
    ),
    other(
        "iSCSI, digests",
        "4 more for the digest of the header, 4 for that of the data",
        &[Ethernet, Ipv4, TCP],
        ISCSI_DIGESTS,
    ),
    paper(
        "iSCSI/MPLS",
        120,
        "right: a pseudowire with one label and no control word",
        &[Ethernet, Label, Ethernet, Ipv4, TCP],
        ISCSI,
    ),
    other(
        "iSCSI/MPLS, IP in labels",
        "14 less: routers put the label on the IP packet",
        &[Ethernet, Label, Ipv4, TCP],
        ISCSI,
    ),
    paper(
        "iFCP",
        82,
        "the paper leaves out SOF 4, FC header 24, CRC 4 and EOF 4",
        &[Ethernet, Ipv4, TCP],
        Pdu::Ifcp,
    ),
    paper(
        "FCIP",
        82,
        "as with iFCP, the paper leaves out SOF 4, FC header 24, CRC 4 and EOF 4",
        &[Ethernet, Ipv4, TCP],
        Pdu::Fcip,
    ),
    other(
        "AoE/MPLS/IP",
        "one label and a control word over IPv4 (RFC 4023)",
        &[Ethernet, Ipv4, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS/GRE",
        "one label and a control word over GRE and IPv4 (RFC 4023)",
        &[Ethernet, Ipv4, GRE, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS/UDP",
        "one label and a control word over UDP, by whose source port routers spread flows (RFC 7510)",
        &[Ethernet, Ipv4, Udp, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "AoE/MPLS/UDP, IPv6",
        "20 more, as IPv6 is 40",
        &[Ethernet, Ipv6, Udp, Label, ControlWord, Ethernet],
        Pdu::Aoe,
    ),
    other(
        "NVMe/TCP",
        "a read: C2HData 24 on TCP as iSCSI has it; digests are 4 and 4 as well",
        &[Ethernet, Ipv4, TCP],
        Pdu::C2hData,
    ),
    other(
        "NVMe/TCP, write",
        "H2CData 24; a small write is in its capsule, whose header is 72",
        &[Ethernet, Ipv4, TCP],
        Pdu::H2cData,
    ),
    other(
        "NFS",
        "a reply to version 3's READ: record mark 4, RPC 24, results with attributes 104",
        &[Ethernet, Ipv4, TCP],
        Pdu::NfsRead,
    ),
];
