//! `plateway discover nvme+tcp://...`: asks a target's discovery subsystem which subsystems it has
//! for this host.
//!
//! The machine of the initiator (`nvme::tcp::initiator::Discovery`) does the talking; here it
//! stands on a shard of a reactor. Errors: the address, the step and what was seen.

use std::sync::mpsc::Sender;
use std::time::Duration;

use ::nvme::tcp::initiator::Discovery;
use block::{Instant, Memory};
use contract::{ConnectionId, Effect, Event, Machine, Receive};
use serde::Serialize;
use wire::nvme::log::DiscoveryEntry;
use wire::nvme_tcp::Digests;

use super::import;
use super::uri::NamespaceUri;
use crate::cli::DiscoverArgs;
use crate::config::address::HostPort;
use crate::config::defaults::Defaults;
use crate::control::Column;
use crate::protocols::asking;
use crate::run::open;
use crate::run::state::StateDirectory;

/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(20);

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
    let addresses = open::resolve(&uri.address)?;
    let settings =
        import::settings(&uri, &state, &addresses).map_err(|error| error.within("discovery"))?;
    let asked_as = settings.host.clone();
    let mut result = Err("no address".to_owned());
    for address in settings.addresses {
        let (host, host_id) = (settings.host.clone(), settings.host_id);
        let machine = move |told| {
            let (now, host) = (Instant::default(), host.clone());
            let discovery = Discovery::new(now, address, host, host_id, Digests::NONE, LIMIT);
            Question { discovery, told }
        };
        result = asking::ask(LIMIT, machine, |_| Ok(()), |_| {})?.map_err(|why| {
            match address.to_string() {
                named if named == target.to_string() => why,
                resolved => format!("{resolved}: {why}"),
            }
        });
        if result.is_ok() {
            break;
        }
    }
    let entries: Vec<Entry> = result.map_err(failed)?.iter().map(entry).collect();
    let columns: [Column<Entry>; 5] = [
        ("subsystem", |entry| entry.subsystem.clone()),
        ("kind", |entry| entry.kind.clone()),
        ("transport", |entry| entry.transport.clone()),
        ("address", |entry| entry.address.clone()),
        ("port", |entry| entry.service.clone()),
    ];
    let nothing = format!(
        "it has no subsystem for us: put this name into the hosts of an export there: {asked_as}\n"
    );
    asking::show(args, &entries, &columns, &nothing)
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

/// A shard that does nothing but ask.
#[derive(Debug)]
struct Question {
    discovery: Discovery,
    told: Sender<Result<Vec<DiscoveryEntry>, String>>,
}

impl Machine for Question {
    type Mail = ();

    fn handle_event(&mut self, _: Instant, event: Event<()>, _: &mut dyn Memory) {
        match event {
            Event::Connected { connection, .. } => self.discovery.handle_connected(connection),
            Event::ConnectFailed { error, .. } => self.discovery.handle_connect_failed(error),
            Event::Sent { batch, .. } => self.discovery.handle_sent(batch),
            Event::Lost { loss, .. } => self.discovery.handle_lost(loss),
            Event::Closed { batch, .. } => self.discovery.handle_closed(batch),
            _ => {}
        }
    }

    fn handle_received(
        &mut self,
        now: Instant,
        _: ConnectionId,
        bytes: &[u8],
        _: &mut dyn Memory,
    ) -> Receive {
        self.discovery.handle_received(now, bytes)
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut dyn Memory) {
        self.discovery.handle_timeout(now);
    }

    fn settle(&mut self, now: Instant, _: &mut dyn Memory) {
        self.discovery.settle(now);
        if let Some(result) = self.discovery.poll_result() {
            // Whoever asked may wait no longer.
            let _ = self.told.send(result);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect<()>> {
        Some(self.discovery.poll_effect()?.of(0))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.discovery.poll_timeout()
    }
}
