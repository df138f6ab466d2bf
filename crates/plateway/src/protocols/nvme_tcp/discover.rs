//! `plateway discover nvme+tcp://...`: asks a target's discovery subsystem which subsystems it has for this host.
//!
//! The machine of the initiator (`nvme::tcp::initiator::Discovery`) does the talking; here it is carried by one blocking socket, since there is one
//! question and one answer. Times: its clock begins with the command. Errors: the address, the step and what was seen.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ::nvme::tcp::initiator::Discovery;
use contract::{ConnectionId, Loss, Next, SendBatch, SendSegment, StreamEffect};
use serde::Serialize;
use wire::nvme::log::DiscoveryEntry;
use wire::nvme_tcp::Digests;

use super::import;
use super::uri::NamespaceUri;
use crate::cli::DiscoverArgs;
use crate::commands;
use crate::config::address::HostPort;
use crate::config::defaults::Defaults;
use crate::control::table_of;
use crate::run::state::StateDirectory;

/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of one receive.
const RECEIVE: usize = 16 << 10;

/// An entry, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Entry {
    subsystem: String,
    kind: String,
    transport: String,
    family: String,
    address: String,
    service: String,
    port_id: u16,
    controller_id: u16,
}

/// Asks.
pub(crate) fn run(args: &DiscoverArgs, target: &HostPort) -> miette::Result<()> {
    let failed = |why: String| {
        miette::miette!(
            help = "is a target running there? `ss -ltn` on its machine shows the ports that are listened at: every listener of \
                `plateway serve` answers, dedicated discovery controllers are on 8009",
            "discovery at {target}: {why}"
        )
    };
    let mut uri = NamespaceUri::new(
        target.clone(),
        wire::nvme::Nqn::DISCOVERY.parse().map_err(|error| failed(format!("{error}")))?,
        1,
    );
    uri.host_nqn.clone_from(&args.protocols.host_nqn);
    let state = StateDirectory::new(&Defaults::of_this_machine().state);
    let settings = state
        .host()
        .and_then(|host| import::settings(&uri, host))
        .map_err(|error| error.within("discovery"))?;
    let mut result = Err("no address".to_owned());
    for address in &settings.addresses {
        let (host, host_id) = (settings.host.clone(), settings.host_id);
        let now = block::Instant::ZERO;
        let machine = Discovery::new(now, *address, host, host_id, Digests::NONE, LIMIT);
        result = Talk::new().run(machine).map_err(|why| match address.to_string() {
            named if named == target.to_string() => why,
            resolved => format!("{resolved}: {why}"),
        });
        if result.is_ok() {
            break;
        }
    }
    let entries = result.map_err(failed)?;
    let entries: Vec<Entry> = entries.iter().map(entry).collect();
    if args.json {
        return commands::print_json(&entries);
    }
    let rows = table_of(
        &entries,
        &[
            ("subsystem", |entry| entry.subsystem.clone()),
            ("kind", |entry| entry.kind.clone()),
            ("transport", |entry| entry.transport.clone()),
            ("address", |entry| entry.address.clone()),
            ("port", |entry| entry.service.clone()),
        ],
    );
    match entries.is_empty() {
        true => commands::print("it has no subsystem for this host\n"),
        false => commands::print(&format!("{rows}\n")),
    }
    Ok(())
}

fn entry(entry: &DiscoveryEntry) -> Entry {
    let subsystem = entry.subsystem();
    Entry {
        subsystem: subsystem.map_or_else(|error| format!("({error})"), |nqn| nqn.to_string()),
        kind: entry.subtype.to_string(),
        transport: entry.transport.to_string(),
        family: entry.family.to_string(),
        address: entry.address_text(),
        service: entry.service_text(),
        port_id: entry.port_id,
        controller_id: entry.controller_id,
    }
}

/// The one connection of the machine.
struct Talk {
    began: Instant,
    stream: Option<TcpStream>,
    /// Bytes that the machine has not consumed.
    shown: Vec<u8>,
    wants: usize,
    over: bool,
}

impl Talk {
    fn new() -> Talk {
        let shown = Vec::with_capacity(RECEIVE);
        Talk { began: Instant::now(), stream: None, shown, wants: 1, over: false }
    }

    fn now(&self) -> block::Instant {
        block::Instant(self.began.elapsed().as_nanos() as u64)
    }

    fn left(&self, machine: &Discovery) -> Duration {
        let until = machine.poll_timeout().unwrap_or(block::Instant(LIMIT.as_nanos() as u64));
        // A socket takes no limit of zero.
        until.since(self.now()).max(Duration::from_millis(1))
    }

    /// Carries the machine to its end.
    fn run(&mut self, mut machine: Discovery) -> Result<Vec<DiscoveryEntry>, String> {
        loop {
            machine.settle(self.now());
            if let Some(effect) = machine.poll_effect() {
                // What follows from it is wanted before anything is waited for.
                self.perform(&mut machine, effect);
                continue;
            }
            if let Some(result) = machine.poll_result() {
                return result;
            }
            if machine.poll_timeout().is_some_and(|at| at <= self.now()) {
                machine.handle_timeout(self.now());
                continue;
            }
            self.receive(&mut machine);
        }
    }

    fn perform(&mut self, machine: &mut Discovery, effect: StreamEffect) {
        let connection = ConnectionId::default();
        match effect {
            StreamEffect::Connect { address, .. } => match self.connect(machine, address) {
                Ok(stream) => {
                    self.stream = Some(stream);
                    machine.handle_connected(connection);
                }
                Err(error) => {
                    machine.handle_connect_failed(error.raw_os_error().unwrap_or(libc::EIO));
                }
            },
            StreamEffect::Send { batch, .. } => {
                let sent = self.stream.as_mut().map(|stream| stream.write_all(&bytes_of(&batch)));
                let failed = sent.and_then(Result::err);
                machine.handle_sent(batch);
                if let Some(error) = failed {
                    machine.handle_lost(Loss::Error(error.raw_os_error().unwrap_or(libc::EIO)));
                }
            }
            StreamEffect::Close { .. } => {
                self.stream = None;
                machine.handle_closed(None);
            }
        }
    }

    fn connect(&self, machine: &Discovery, address: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, self.left(machine))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(stream)
    }

    /// Waits for bytes, or for the machine's next moment.
    fn receive(&mut self, machine: &mut Discovery) {
        let left = self.left(machine);
        let Some(stream) = &mut self.stream else { return std::thread::sleep(left) };
        if self.over {
            return std::thread::sleep(left);
        }
        let mut piece = [0; RECEIVE];
        let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut piece));
        match read {
            Ok(0) => {
                self.over = true;
                machine.handle_lost(Loss::EndOfStream);
            }
            Ok(count) => self.show(machine, &piece[..count]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => {
                self.over = true;
                machine.handle_lost(Loss::Error(error.raw_os_error().unwrap_or(libc::EIO)));
            }
        }
    }

    fn show(&mut self, machine: &mut Discovery, piece: &[u8]) {
        self.shown.extend_from_slice(piece);
        while !self.shown.is_empty() && self.shown.len() >= self.wants {
            let receive = machine.handle_received(self.now(), &self.shown);
            self.shown.drain(..receive.consumed);
            match receive.next {
                Next::Stream { at_least, .. } => self.wants = at_least as usize,
                Next::Yield if receive.consumed > 0 => self.wants = 1,
                Next::Idle => self.wants = 1,
                Next::Yield | Next::Pause | Next::Direct(_) => return,
            }
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// The bytes of a batch that carries no buffers: commands of an admin queue and what they bring in their capsules.
fn bytes_of(batch: &SendBatch) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(batch.length as usize);
    for segment in &batch.segments {
        if let SendSegment::Head { start, length } = segment {
            bytes.extend_from_slice(&batch.head[*start as usize..(*start + *length) as usize]);
        }
    }
    bytes
}
