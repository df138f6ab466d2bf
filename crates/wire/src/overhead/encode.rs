//! A frame of a stack: the PDU of its protocol with the data in it, and around that one layer after
//! the other, each by the encoder of its own module.
//!
//! What a header says of what is in it (EtherType, protocol, port, S) follows from the layer inside,
//! so that the frame can be taken apart again, as the tests do. Everything else in it is any value.
//! Digests and CRCs are zeros: whoever owns bytes computes them. No errors: which layers there are
//! says a table of ours, and a layer in which another one cannot be panics.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;

use crate::aoe::{self, SECTOR};
use crate::ata::Opcode;
use crate::checksum::Checksum;
use crate::ethernet::{self, EtherType, MacAddress};
use crate::fibre_channel::{self, Encapsulation, EndOfFrame, FrameHeader, FrameType, StartOfFrame};
use crate::ip::{Ipv4Header, Ipv6Header, Protocol, PseudoHeader};
use crate::l2tp::{self, Cookie, L2SpecificSublayer, Transport};
use crate::mpls::{self, Label, LabelStackEntry};
use crate::nfs::{self, FileAttributes, ReadReply};
use crate::pseudowire::ControlWord;
use crate::rpc::{AcceptStatus, AcceptedReply, RecordMark};
use crate::sequence::{Numbers, PseudowireSequence};
use crate::{Front, gre, iscsi, nvme_tcp, tcp, udp};

const ADDRESSES_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const ADDRESSES_V6: [Ipv6Addr; 2] = [Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED];
const TTL: u8 = 64;
/// The delimiters of an FC frame that is all of its sequence.
const START: StartOfFrame = StartOfFrame::INITIATE_3;
const END: EndOfFrame = EndOfFrame::TERMINATE;
/// The label of a tunnel, and those at the bottom by what is behind them, which nothing in a packet
/// says.
const TUNNEL_LABEL: u32 = 200;
pub(super) const FRAME_LABEL: u32 = 100;
pub(super) const CONTROL_WORD_LABEL: u32 = 101;
pub(super) const IPV4_LABEL: u32 = 102;

/// A header around the PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Ethernet,
    /// An entry of a label stack.
    Label,
    ControlWord,
    Ipv4,
    Ipv6,
    Udp,
    Tcp {
        timestamps: bool,
    },
    Gre {
        key: bool,
        sequence: bool,
        checksum: bool,
    },
    L2tp {
        transport: Transport,
        cookie: Cookie,
        sublayer: bool,
    },
}

/// What a protocol puts around data, once for each block or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdu {
    /// An ATA command of AoE, in a frame of its own.
    Aoe,
    /// A Data-In of iSCSI.
    Iscsi(iscsi::Digests),
    /// Data of a read over NVMe/TCP.
    C2hData,
    /// Data of a write over NVMe/TCP.
    H2cData,
    /// The reply to NFS's READ.
    NfsRead,
    /// An FC frame in FCIP.
    Fcip,
    /// An FC frame in iFCP.
    Ifcp,
}

impl Pdu {
    /// The most data in one of a stream; none where the PDU fills a frame.
    pub(super) const fn data_max(self) -> Option<usize> {
        match self {
            Self::Aoe => None,
            Self::Iscsi(_) | Self::C2hData | Self::H2cData | Self::NfsRead => Some(usize::MAX),
            Self::Fcip | Self::Ifcp => Some(fibre_channel::DATA_MAX),
        }
    }
}

/// A header, or what stands behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// How long it is.
    pub bytes: usize,
}

/// A frame as it goes over the wire, from its Ethernet header to the end of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it has that is not data, outermost first; behind the data last.
    pub parts: Vec<Part>,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// The most data of a frame: whole sectors that leave room for every stack's headers in an IP
/// packet, whose length has 16 bits.
pub(super) const DATA_MAX: usize = 127 * SECTOR;

/// Puts `data` into the PDU, and the layers around that.
pub(super) fn encode(layers: &[Layer], pdu: Pdu, data: &[u8]) -> Frame {
    let (length, most) = (data.len(), DATA_MAX.min(pdu.data_max().unwrap_or(DATA_MAX)));
    assert!(length.is_multiple_of(SECTOR), "data of {length} bytes");
    assert!(length <= most, "{length} bytes of data in a frame that holds {most}");
    let mut encoding = Encoding { front: Front::new(), behind: data.to_vec(), parts: Vec::new() };
    encoding.put_in(pdu);
    for (at, layer) in layers.iter().enumerate().rev() {
        let outside = at.checked_sub(1).map(|at| layers[at]);
        let inside = layers.get(at + 1).map_or(Inside::Pdu(pdu), |layer| Inside::Layer(*layer));
        encoding.push_layer(*layer, outside, inside);
    }
    let Encoding { front, behind, parts } = encoding;
    Frame { parts, bytes: [&front[..], &behind].concat() }
}

/// What a layer is around.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Layer(Layer),
    Pdu(Pdu),
}

struct Encoding {
    front: Front<256>,
    /// Data, and what stands behind them.
    behind: Vec<u8>,
    /// In the order of the bytes.
    parts: Vec<Part>,
}

impl Encoding {
    fn push(&mut self, name: &'static str, header: &[u8]) {
        self.front.push(header);
        self.parts.insert(0, Part { name, bytes: header.len() });
    }

    fn append(&mut self, name: &'static str, trailer: &[u8]) {
        self.behind.extend(trailer);
        self.parts.push(Part { name, bytes: trailer.len() });
    }

    /// Bytes so far.
    fn length(&self) -> usize {
        self.front.len() + self.behind.len()
    }

    fn checksum(&self) -> Checksum {
        Checksum::default().with(&self.front).with(&self.behind)
    }

    /// Puts what the PDU has around the data.
    fn put_in(&mut self, pdu: Pdu) {
        let data = self.behind.len();
        match pdu {
            Pdu::Aoe => {
                let (opcode, sectors) = (Opcode::WRITE_SECTORS_EXT, (data / SECTOR) as u8);
                let argument = aoe::AtaArgument::request(opcode, 1 << 33, sectors, true);
                let address = aoe::Address::new(7, 3);
                self.push("ATA", &argument.emit());
                self.push("AoE", &aoe::Header::request(address, aoe::Command::ATA, 9).emit());
            }
            Pdu::Iscsi(digests) => {
                let numbers = iscsi::TargetNumbers::default();
                let bhs = iscsi::DataIn::new(7, 0, 0, data as u32, true, numbers);
                let digest = [0; iscsi::Digests::SIZE];
                if digests.header {
                    self.push("header digest", &digest);
                }
                self.push("BHS", &bhs.emit());
                if digests.data {
                    self.append("data digest", &digest);
                }
            }
            Pdu::C2hData => {
                let (flags, digests) = (nvme_tcp::PduFlags::LAST, nvme_tcp::Digests::NONE);
                let header = nvme_tcp::DataHeader::c2h(7, 0, data as u32, flags, digests);
                self.push("C2HData", &header.emit());
            }
            Pdu::H2cData => {
                let digests = nvme_tcp::Digests::NONE;
                let header = nvme_tcp::DataHeader::h2c(7, 1, 0, data as u32, true, digests);
                self.push("H2CData", &header.emit());
            }
            Pdu::NfsRead => {
                let attributes = Some(FileAttributes::default());
                let results = ReadReply { attributes, count: data as u32, is_end: false };
                self.push("READ results", &results.emit());
                let reply = AcceptedReply { transaction: 9, status: AcceptStatus::SUCCESS };
                self.push("RPC reply", &reply.emit());
                self.push("record mark", &RecordMark::whole(self.length() as u32).emit());
            }
            Pdu::Fcip => self.put_in_fc_frame(Encapsulation::fcip(data)),
            Pdu::Ifcp => self.put_in_fc_frame(Encapsulation::ifcp(START, END, data)),
        }
    }

    fn put_in_fc_frame(&mut self, encapsulation: Encapsulation) {
        let routing = FrameHeader::SOLICITED_DATA;
        let header = FrameHeader { routing, frame_type: FrameType::FCP, ..FrameHeader::default() };
        self.push("FC header", &header.emit());
        self.push("SOF", &START.emit());
        self.push("encapsulation", &encapsulation.emit());
        self.append("CRC", &0_u32.to_be_bytes());
        self.append("EOF", &END.emit());
    }

    /// Puts a header in front.
    fn push_layer(&mut self, layer: Layer, outside: Option<Layer>, inside: Inside) {
        let length = self.length();
        match layer {
            Layer::Ethernet => {
                let (destination, source) = (MacAddress([2; 6]), MacAddress([4; 6]));
                let ether_type = ether_type(inside);
                let header = ethernet::Header { destination, source, ether_type };
                self.push("Ethernet", &header.emit());
            }
            Layer::Label => {
                let is_bottom = !matches!(inside, Inside::Layer(Layer::Label));
                let label = label(inside);
                let entry = LabelStackEntry { label, traffic_class: 0, is_bottom, ttl: TTL };
                self.push("label", &entry.emit());
            }
            Layer::ControlWord => {
                let word = ControlWord::ethernet(PseudowireSequence::FIRST);
                self.push("control word", &word.emit());
            }
            Layer::Ipv4 => {
                let ([source, destination], protocol) = (ADDRESSES_V4, protocol(inside));
                let header = Ipv4Header::new(protocol, source, destination, TTL, 0, length);
                self.push("IPv4", &header.emit());
            }
            Layer::Ipv6 => {
                let ([source, destination], protocol) = (ADDRESSES_V6, protocol(inside));
                let header = Ipv6Header::new(protocol, source, destination, TTL, 0, length);
                self.push("IPv6", &header.emit());
            }
            Layer::Udp => {
                let (source, destination) = udp_ports(inside);
                let mut header = udp::Header::new(source, destination, length);
                // A tunnel needs none over IPv4, and the consent of both ends to have none over IPv6.
                if outside == Some(Layer::Ipv6) {
                    header = header.with_checksum(pseudo_header(outside), self.checksum());
                }
                self.push("UDP", &header.emit());
            }
            Layer::Tcp { timestamps } => {
                let option = tcp::Timestamps { value: 1, echo_reply: 2 }.emit();
                let options = if timestamps { &option[..] } else { &[] };
                let header = tcp::Header::segment(tcp_port(inside), 49_152, 1, 1, options.len());
                let sum = Checksum::default().with(options).with_sum(self.checksum());
                let behind = options.len() + length;
                let header = header.with_checksum(pseudo_header(outside), sum, behind);
                self.push("TCP", &[&header.emit()[..], options].concat());
            }
            Layer::Gre { key, sequence, checksum } => {
                let header = gre::Header {
                    protocol_type: ether_type(inside),
                    has_checksum: checksum,
                    key: key.then_some(42),
                    sequence: sequence.then_some(0),
                };
                self.push("GRE", &header.emit(self.checksum()));
            }
            Layer::L2tp { transport, cookie, sublayer } => {
                let sublayer =
                    sublayer.then_some(L2SpecificSublayer::new(Some(Numbers::L2TP.first())));
                let session_id = NonZeroU32::MIN;
                let header = l2tp::DataHeader { session_id, cookie, sublayer };
                self.push("L2TPv3", &header.emit(transport));
            }
        }
    }
}

/// What Ethernet and GRE say of what is in them.
fn ether_type(inside: Inside) -> EtherType {
    match inside {
        Inside::Pdu(Pdu::Aoe) => EtherType::AOE,
        Inside::Layer(Layer::Ethernet) => EtherType::TRANSPARENT_ETHERNET,
        Inside::Layer(Layer::Label) => EtherType::MPLS,
        Inside::Layer(Layer::Ipv4) => EtherType::IPV4,
        Inside::Layer(Layer::Ipv6) => EtherType::IPV6,
        other => panic!("no EtherType of {other:?}"),
    }
}

fn label(inside: Inside) -> Label {
    let number = match inside {
        Inside::Layer(Layer::Label) => TUNNEL_LABEL,
        Inside::Layer(Layer::Ethernet) => FRAME_LABEL,
        Inside::Layer(Layer::ControlWord) => CONTROL_WORD_LABEL,
        Inside::Layer(Layer::Ipv4) => IPV4_LABEL,
        other => panic!("no label for {other:?}"),
    };
    Label::new(number).expect("a number of 20 bits")
}

fn protocol(inside: Inside) -> Protocol {
    match inside {
        Inside::Layer(Layer::Label) => Protocol::MPLS,
        Inside::Layer(Layer::Udp) => Protocol::UDP,
        Inside::Layer(Layer::Tcp { .. }) => Protocol::TCP,
        Inside::Layer(Layer::Gre { .. }) => Protocol::GRE,
        Inside::Layer(Layer::L2tp { .. }) => Protocol::L2TP,
        other => panic!("no IP protocol of {other:?}"),
    }
}

fn udp_ports(inside: Inside) -> (u16, u16) {
    match inside {
        Inside::Layer(Layer::Label) => (mpls::udp_source_port(0x1234), mpls::UDP_PORT),
        Inside::Layer(Layer::L2tp { .. }) => (l2tp::UDP_PORT, l2tp::UDP_PORT),
        other => panic!("no UDP port of {other:?}"),
    }
}

/// That of those who serve the PDU.
fn tcp_port(inside: Inside) -> u16 {
    match inside {
        Inside::Pdu(Pdu::Iscsi(_)) => iscsi::PORT,
        Inside::Pdu(Pdu::C2hData | Pdu::H2cData) => nvme_tcp::PORT,
        Inside::Pdu(Pdu::NfsRead) => nfs::PORT,
        Inside::Pdu(Pdu::Fcip) => fibre_channel::FCIP_PORT,
        Inside::Pdu(Pdu::Ifcp) => fibre_channel::IFCP_PORT,
        other => panic!("no TCP port of {other:?}"),
    }
}

/// What checksums cover of the layer outside.
fn pseudo_header(outside: Option<Layer>) -> PseudoHeader {
    let ([v4_source, v4_destination], [v6_source, v6_destination]) = (ADDRESSES_V4, ADDRESSES_V6);
    match outside {
        Some(Layer::Ipv4) => PseudoHeader::V4(v4_source, v4_destination),
        Some(Layer::Ipv6) => PseudoHeader::V6(v6_source, v6_destination),
        other => panic!("no addresses in {other:?}"),
    }
}
