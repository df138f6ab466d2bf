//! `plateway discover iscsi://...`: asks a target portal which targets it has for this host.
//!
//! The machine of the initiator (`iscsi::initiator::discovery`) does the talking; here it stands on
//! a shard of a reactor. Errors: the address, the step and what was seen.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ::iscsi::initiator::{Discovered, Discovery};
use block::{Instant, Memory};
use contract::{ConnectionId, Effect, Event, Machine, Receive};
use serde::Serialize;
use wire::iscsi::{Digests, LoginStatus};

use super::import;
use super::uri::Portal;
use crate::cli::DiscoverArgs;
use crate::config::defaults::Defaults;
use crate::control::Column;
use crate::protocols::asking;
use crate::run::open;
use crate::run::state::StateDirectory;

/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The port of this host that asks: none that a disk has.
const ISID: [u8; 6] = [0x80, 0, 0, 0, 0, 0xff];

/// What helps where a proof is wanted, or another.
const PROVE: &str = "it wants to know who asks: plateway discover 'iscsi://USER@HOST?secret_file=PATH', or without secret_file and the secret in PLATEWAY_CHAP_SECRET";

/// A target at one of its addresses, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Entry {
    target: String,
    address: String,
    portal_group: Option<u16>,
}

/// Asks.
pub(crate) fn run(args: &DiscoverArgs, portal: &Portal) -> miette::Result<()> {
    let failed = |why: String| {
        let refusal = LoginStatus::AUTHENTICATION_FAILURE.name().unwrap_or_default();
        let help = match why.contains(refusal) {
            true => PROVE,
            false => {
                "is a target running there? `ss -ltn` on its machine shows the ports that are listened at; iSCSI's is 3260"
            }
        };
        miette::miette!(help = help, "discovery at {portal}: {why}")
    };
    let state = StateDirectory::new(&Defaults::of_this_machine().state);
    let named = args.protocols.initiator.as_ref().map(|name| &name.0);
    let initiator = import::initiator(named, Path::new(import::OPEN_ISCSI), || state.host())
        .map_err(|error| error.within("discovery"))?;
    let login = import::login_here(portal).map_err(|error| error.within("discovery"))?;
    let mut challenges = import::challenges();
    let mut result = Err("no address".to_owned());
    for address in open::resolve(&portal.address)? {
        let who = initiator.clone();
        let login = login.clone().map(|login| (login, challenges.make()));
        let machine = move |told| {
            let (now, who) = (Instant::default(), (who.clone(), ISID));
            let login = login.clone();
            let discovery = Discovery::new(now, address, who, login, Digests::NONE, LIMIT);
            Question { discovery, told }
        };
        result = asking::ask(LIMIT, machine, |_| Ok(()), |_| {})?.map_err(|why| {
            match address.to_string() {
                named if named == portal.address.to_string() => why,
                resolved => format!("{resolved}: {why}"),
            }
        });
        if result.is_ok() {
            break;
        }
    }
    let entries: Vec<Entry> = result.map_err(failed)?.iter().flat_map(entries).collect();
    let columns: [Column<Entry>; 2] =
        [("target", |entry| entry.target.clone()), ("address", |entry| entry.address.clone())];
    let nothing = format!(
        "it has no target for us: put this name into the hosts of a LUN there: {initiator}\n"
    );
    asking::show(args, &entries, &columns, &nothing)
}

fn entries(found: &Discovered) -> impl Iterator<Item = Entry> {
    found.portals.iter().map(|portal| Entry {
        target: found.target.to_string(),
        address: portal.text.clone(),
        portal_group: portal.group,
    })
}

/// A shard that does nothing but ask.
#[derive(Debug)]
struct Question {
    discovery: Discovery,
    told: Sender<Result<Vec<Discovered>, String>>,
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
        _: Instant,
        _: ConnectionId,
        bytes: &[u8],
        _: &mut dyn Memory,
    ) -> Receive {
        self.discovery.handle_received(bytes)
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
