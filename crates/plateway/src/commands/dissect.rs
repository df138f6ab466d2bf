//! `plateway dissect`: the NVMe/TCP PDUs and AoE messages of a capture, one a line, with what each command came to and how long that took.
//!
//! The file is read in pieces; each direction of a TCP connection is put in order ([`reassembly`]) and cut into PDUs ([`StreamTalk`]), of which only headers
//! and what is decoded of their data are kept, so memory is bounded whatever the capture holds. AoE messages ([`FrameTalk`]) are frames, each whole. Both pcap and pcapng are read. Times are seconds
//! since the first packet. What is missing from the capture is said in a line, and reading goes on at the next segment that begins with a PDU.

mod reassembly;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::net::SocketAddr;

use serde::Serialize;
use wire::ethernet;
use wire::ip::{Packet, Protocol};
use wire::pcap::{CapturedPacket, Stream};
use wire::tcp::{TcpFlags, TcpHeader};

use crate::cli::DissectArgs;
use crate::protocols::{FrameTalk, StreamTalk};
use reassembly::{Direction, Given};

/// Bytes read from the file at once.
const PIECE: usize = 256 << 10;
/// Connections that are followed at once; more are counted and left alone.
const CONNECTIONS_MAX: usize = 65_536;

/// A line of the output.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Seconds since the first packet.
    time: f64,
    /// Which connection, counted from 0.
    connection: usize,
    /// Whether the host sent it.
    from_host: bool,
    /// What it is.
    #[serde(flatten)]
    said: &'a Said,
}

/// A PDU, or a remark.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Said {
    /// The type of the PDU; empty for a remark.
    pub(crate) pdu: String,
    /// All of it in words.
    pub(crate) text: String,
    /// Of the last PDU of a command: since the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<u64>,
}

/// Dissects.
pub(crate) fn run(args: &DissectArgs) -> miette::Result<()> {
    let path = args.file.display();
    let mut file = File::open(&args.file).map_err(|error| {
        miette::miette!(
            help = "a capture is made with: tcpdump -i lo -w nvme.pcap port 4420",
            "cannot open the capture {path}: {error}"
        )
    })?;
    let mut capture = Capture::new(args);
    let mut stream = Stream::new();
    let mut piece = vec![0; PIECE];
    loop {
        let count = match file.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(miette::miette!("cannot read {path}: {error}")),
        };
        if count == 0 {
            break;
        }
        stream.feed(&piece[..count]);
        loop {
            let packet = stream.poll_packet().map_err(|error| {
                miette::miette!("{path} after packet {}: {error}", capture.packets)
            })?;
            let Some(packet) = packet else { break };
            if capture.packet(&packet).is_err() {
                // Whoever reads has seen enough.
                return Ok(());
            }
        }
    }
    let ended = stream.finish();
    if capture.end().is_err() {
        return Ok(());
    }
    ended.map_err(|error| miette::miette!("{path} ends within a packet: {error}"))
}

/// The connections of a capture.
struct Capture<W> {
    port: u16,
    json: bool,
    out: W,
    first_ns: Option<u64>,
    packets: u64,
    pdus: u64,
    ignored: u64,
    connections: HashMap<(SocketAddr, SocketAddr), Connection>,
    next: usize,
    frames: FrameTalk,
}

/// A connection, by the addresses of its host and its target.
struct Connection {
    number: usize,
    host: Direction,
    target: Direction,
    talk: StreamTalk,
}

impl Capture<BufWriter<std::io::Stdout>> {
    fn new(args: &DissectArgs) -> Self {
        Capture {
            port: args.port,
            json: args.json,
            out: BufWriter::new(std::io::stdout()),
            first_ns: None,
            packets: 0,
            pdus: 0,
            ignored: 0,
            connections: HashMap::new(),
            next: 0,
            frames: FrameTalk::default(),
        }
    }
}

impl<W: Write> Capture<W> {
    /// Takes a packet in; what is neither TCP of the port nor AoE is passed over.
    fn packet(&mut self, packet: &CapturedPacket<'_>) -> std::io::Result<()> {
        self.packets += 1;
        let first = *self.first_ns.get_or_insert(packet.time_ns);
        let time_ns = packet.time_ns.saturating_sub(first);
        let Ok((ether_type, bytes)) = ethernet::network(packet.link, packet.bytes) else {
            return Ok(());
        };
        if ether_type == FrameTalk::ETHER_TYPE {
            return self.message(time_ns, packet, bytes);
        }
        let Ok(ip) = Packet::parse(ether_type, bytes) else { return Ok(()) };
        if ip.protocol != Protocol::TCP || ip.fragment.is_some() {
            return Ok(());
        }
        let Ok((header, payload)) = TcpHeader::parse(ip.payload) else { return Ok(()) };
        let from_host = match self.port {
            port if header.destination_port == port => true,
            port if header.source_port == port => false,
            _ => return Ok(()),
        };
        let source = SocketAddr::new(ip.source, header.source_port);
        let destination = SocketAddr::new(ip.destination, header.destination_port);
        let key = if from_host { (source, destination) } else { (destination, source) };
        let whole = ip.payload_length.saturating_sub(header.header_length.into());
        self.segment(time_ns, key, from_host, &header, payload, whole)
    }

    /// Takes an AoE message in.
    fn message(
        &mut self,
        time_ns: u64,
        packet: &CapturedPacket<'_>,
        bytes: &[u8],
    ) -> std::io::Result<()> {
        let Some(line) = self.frames.message(time_ns, packet, bytes) else { return Ok(()) };
        let number = match line.connection {
            Some(number) => number,
            None if self.frames.len() >= CONNECTIONS_MAX => {
                self.ignored += 1;
                return Ok(());
            }
            None => {
                let number = self.next;
                self.next += 1;
                self.frames.number(&line, number);
                let said = Said { text: line.name.clone(), ..Said::default() };
                self.print(time_ns, number, true, &said)?;
                number
            }
        };
        self.print(time_ns, number, line.from_host, &line.said)
    }

    /// Takes a segment in, of which `whole` bytes were sent and `payload` was captured.
    fn segment(
        &mut self,
        time_ns: u64,
        key: (SocketAddr, SocketAddr),
        from_host: bool,
        header: &TcpHeader,
        payload: &[u8],
        whole: usize,
    ) -> std::io::Result<()> {
        let begins = header.flags.contains(TcpFlags::SYN) && from_host;
        let ends = header.flags.contains(TcpFlags::RST);
        if begins {
            // The ports are used again.
            self.connections.remove(&key);
        }
        if !self.connections.contains_key(&key) {
            if self.connections.len() >= CONNECTIONS_MAX {
                self.ignored += 1;
                return Ok(());
            }
            let number = self.next;
            self.next += 1;
            let (host, target) = (Direction::default(), Direction::default());
            let talk = StreamTalk::default();
            self.connections.insert(key, Connection { number, host, target, talk });
            let text = format!("connection of {} to {}", key.0, key.1);
            self.print(time_ns, number, true, &Said { text, ..Said::default() })?;
        }
        let Some(connection) = self.connections.get_mut(&key) else { return Ok(()) };
        let number = connection.number;
        let direction = if from_host { &mut connection.host } else { &mut connection.target };
        let mut said = Vec::new();
        for given in direction.segment(header, payload, whole) {
            let talk = &mut connection.talk;
            match given {
                Given::Bytes(bytes, missing) => {
                    talk.bytes(time_ns, from_host, &bytes, missing, &mut said);
                }
                Given::Gap(bytes) => talk.gap(from_host, bytes, &mut said),
            }
        }
        if ends {
            self.connections.remove(&key);
            let text = "reset".to_owned();
            said.push(Said { text, ..Said::default() });
        }
        said.iter().try_for_each(|said| self.print(time_ns, number, from_host, said))
    }

    fn print(
        &mut self,
        time_ns: u64,
        connection: usize,
        from_host: bool,
        said: &Said,
    ) -> std::io::Result<()> {
        self.pdus += u64::from(!said.pdu.is_empty());
        let time = time_ns as f64 / 1e9;
        if self.json {
            let line = Line { time, connection, from_host, said };
            serde_json::to_writer(&mut self.out, &line)?;
            return writeln!(self.out);
        }
        let arrow = if from_host { '>' } else { '<' };
        write!(self.out, "{time:.6} c{connection} {arrow} {}", said.text)?;
        if let Some(latency) = said.latency_ns {
            write!(self.out, " after {}", lab::report::Nanoseconds(latency as f64))?;
        }
        writeln!(self.out)
    }

    fn end(&mut self) -> std::io::Result<()> {
        if !self.json {
            let Capture { packets, pdus, next, ignored, .. } = self;
            writeln!(self.out, "{packets} packets, {next} connections, {pdus} PDUs")?;
            if *ignored > 0 {
                writeln!(self.out, "{ignored} packets of further connections were left alone")?;
            }
        }
        self.out.flush()
    }
}
