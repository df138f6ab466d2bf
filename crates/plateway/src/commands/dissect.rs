//! `plateway dissect`: the NVMe/TCP and iSCSI PDUs and the AoE messages of a capture, one a line, with
//! what each command came to and how long that took.
//!
//! The file is read in pieces ([`capture`]), and of each packet what it carries is found
//! ([`layers`]); each direction of a TCP connection is put in order ([`reassembly`]) and cut into
//! PDUs ([`StreamTalk`]), of which only headers and what is decoded of their data are kept, so
//! memory is bounded whatever the capture holds. AoE messages ([`FrameTalk`]) are frames, each
//! whole. Times are seconds since the first packet. What is missing from the capture is said in a
//! line, and reading goes on at the next segment that begins with a PDU. Where a target seems to be
//! at another port than those that are read, that is told on standard error.

mod capture;
mod layers;
mod reassembly;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::SocketAddr;

use serde::Serialize;

use crate::cli::DissectArgs;
use crate::config::text::Count;
use crate::log::Event;
use crate::protocols::{FrameTalk, StreamTalk};
use capture::{CapturedPacket, Decoder};
pub(crate) use layers::Frame;
use layers::Segment;
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

pub(crate) fn run(args: &DissectArgs) -> miette::Result<()> {
    let path = args.file.display();
    let file = File::open(&args.file).map_err(|error| {
        miette::miette!(
            help = "a capture is made with: tcpdump -i lo -w nvme.pcap port 4420",
            "cannot open the capture {path}: {error}"
        )
    })?;
    let capture = Capture::new(args.port, args.json, BufWriter::new(std::io::stdout()));
    if let Some(hint) = read(&path, file, capture)? {
        Event::warn(hint).tell();
    }
    Ok(())
}

/// Shows what the capture at `path` holds, which `source` gives. Returns what to look for elsewhere.
fn read(
    path: &dyn Display,
    mut source: impl Read,
    mut capture: Capture<impl Write>,
) -> miette::Result<Option<String>> {
    let mut decoder = Decoder::default();
    let mut piece = vec![0; PIECE];
    // What came and is no whole packet yet.
    let mut buffer = Vec::new();
    loop {
        let count = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(miette::miette!("cannot read {path}: {error}")),
        };
        buffer.extend_from_slice(&piece[..count]);
        let mut rest = &buffer[..];
        while let Some(packet) = decoder.next(&mut rest).map_err(|error| {
            miette::miette!("{path} after packet {}: {error:#}", capture.packets)
        })? {
            if capture.packet(&packet).is_err() {
                // Whoever reads has seen enough.
                return Ok(None);
            }
        }
        let taken = buffer.len() - rest.len();
        buffer.drain(..taken);
    }
    if capture.end().is_err() {
        return Ok(None);
    }
    let ended = decoder.finish(&buffer);
    ended.map_err(|error| miette::miette!("{path} ends within a packet: {error}"))?;
    Ok(capture.elsewhere.hint(&capture.ports(), capture.pdus))
}

/// What is shown of a capture, and how that ends, where at most `piece` bytes come at once.
pub(crate) fn shown(capture: &[u8], piece: usize, json: bool) -> (String, Result<(), String>) {
    struct Pieces<'a>(&'a [u8], usize);
    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = buffer.len().min(self.1);
            self.0.read(&mut buffer[..size])
        }
    }
    let mut out = Vec::new();
    let shown = Capture::new(None, json, &mut out);
    let ended = read(&"the capture", Pieces(capture, piece), shown);
    (String::from_utf8_lossy(&out).into_owned(), ended.map(drop).map_err(|error| error.to_string()))
}

/// The connections of a capture.
struct Capture<W> {
    /// The port of the target, if it is none of the usual ones.
    port: Option<u16>,
    json: bool,
    out: W,
    first_ns: Option<u64>,
    packets: u64,
    pdus: u64,
    ignored: u64,
    connections: HashMap<(SocketAddr, SocketAddr), Connection>,
    next: usize,
    frames: FrameTalk,
    elsewhere: Elsewhere,
}

/// What went over TCP between ports that are not read.
#[derive(Default)]
struct Elsewhere {
    /// Segments with a payload, by the lower port of both: those of hosts are high.
    segments: BTreeMap<u16, u64>,
    /// Ports to which a connection was begun as those to a target are.
    begun: BTreeSet<u16>,
}

impl Elsewhere {
    fn segment(&mut self, segment: &Segment<'_>) {
        if segment.payload.is_empty() {
            return;
        }
        let (from, to) = (segment.source.port(), segment.destination.port());
        *self.segments.entry(from.min(to)).or_default() += 1;
        if StreamTalk::is_begun_by(segment.payload) {
            self.begun.insert(to);
        }
    }

    /// Where else to look: at a port where a target is for sure, else, where nothing was found, at the
    /// busiest.
    fn hint(&self, ports: &[u16], pdus: u64) -> Option<String> {
        let read: Vec<String> = ports.iter().map(u16::to_string).collect();
        let read = read.join(" and ");
        if let Some(port) = self.begun.first() {
            return Some(format!(
                "port {read} alone was looked at, and a connection to port {port} begins as one to a target: --port {port} shows it"
            ));
        }
        let (port, _) = self.segments.iter().max_by_key(|(_, count)| **count)?;
        let count = Count(self.segments.values().sum::<u64>(), "TCP segment");
        (pdus == 0).then(|| {
            format!(
                "no PDU was found at port {read}; {count} went between other ports, most at {port}: a target there is named by --port {port}"
            )
        })
    }
}

/// A connection, by the addresses of its host and its target.
struct Connection {
    number: usize,
    host: Direction,
    target: Direction,
    /// Known once something was said.
    talk: Option<StreamTalk>,
}

impl<W: Write> Capture<W> {
    fn new(port: Option<u16>, json: bool, out: W) -> Self {
        Capture {
            port,
            json,
            out,
            first_ns: None,
            packets: 0,
            pdus: 0,
            ignored: 0,
            connections: HashMap::new(),
            next: 0,
            frames: FrameTalk::default(),
            elsewhere: Elsewhere::default(),
        }
    }

    /// Those of targets.
    fn ports(&self) -> Vec<u16> {
        self.port.map_or_else(|| StreamTalk::TCP_PORTS.to_vec(), |port| vec![port])
    }

    /// Whether it is the target's.
    fn is_port(&self, port: u16) -> bool {
        self.port.map_or(StreamTalk::TCP_PORTS.contains(&port), |wanted| port == wanted)
    }

    /// Takes a packet in; what is neither TCP of the port nor AoE is passed over.
    fn packet(&mut self, packet: &CapturedPacket<'_>) -> std::io::Result<()> {
        self.packets += 1;
        let first = *self.first_ns.get_or_insert(packet.time_ns);
        let time_ns = packet.time_ns.saturating_sub(first);
        let Some(sliced) = layers::slice(packet) else { return Ok(()) };
        if let Some(frame) = layers::frame(&sliced)
            && frame.ether_type == FrameTalk::ETHER_TYPE.0
        {
            return self.message(time_ns, &frame);
        }
        match layers::segment(&sliced) {
            Some(segment) if self.is_port(segment.destination.port()) => {
                self.segment(time_ns, true, &segment)
            }
            Some(segment) if self.is_port(segment.source.port()) => {
                self.segment(time_ns, false, &segment)
            }
            Some(segment) => {
                self.elsewhere.segment(&segment);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes an AoE message in.
    fn message(&mut self, time_ns: u64, frame: &Frame<'_>) -> std::io::Result<()> {
        let line = self.frames.message(time_ns, frame);
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

    /// Takes a segment of the port in.
    fn segment(
        &mut self,
        time_ns: u64,
        from_host: bool,
        segment: &Segment<'_>,
    ) -> std::io::Result<()> {
        let (from, to) = (segment.source, segment.destination);
        let key = if from_host { (from, to) } else { (to, from) };
        if segment.syn && from_host {
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
            self.connections.insert(key, Connection { number, host, target, talk: None });
            let text = format!("connection of {} to {}", key.0, key.1);
            self.print(time_ns, number, true, &Said { text, ..Said::default() })?;
        }
        let Some(connection) = self.connections.get_mut(&key) else { return Ok(()) };
        let number = connection.number;
        let direction = if from_host { &mut connection.host } else { &mut connection.target };
        let mut said = Vec::new();
        for given in direction.segment(segment) {
            let first = if let Given::Bytes(bytes, _) = &given { bytes } else { &[][..] };
            let talk = &mut connection.talk;
            let talk = talk.get_or_insert_with(|| StreamTalk::new(key.1.port(), from_host, first));
            match given {
                Given::Bytes(bytes, missing) => {
                    talk.bytes(time_ns, from_host, &bytes, missing, &mut said);
                }
                Given::Gap(bytes) => talk.gap(from_host, bytes, &mut said),
            }
        }
        if segment.rst {
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
