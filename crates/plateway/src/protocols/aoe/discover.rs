//! `plateway discover aoe://eth1`: asks all targets of some interfaces, and shows who answers.
//!
//! The machine of the initiator (`aoe::initiator::Discovery`) asks three times, evenly over the
//! time; here it stands on a shard of a reactor, as every link does. Nobody answers for all, so the
//! search ends with its time. Targets are silent to stations that they do not serve. Errors: an
//! interface that is not there, is no Ethernet, is down, or may not be opened.

use std::sync::mpsc::Sender;
use std::time::Duration;

use ::aoe::filter;
use ::aoe::initiator::{Discovery, Found};
use block::Memory;
use contract::{Effect, EtherType, Event, InFrame, LinkFacts, LinkId, Links, Machine};
use indicatif::{ProgressBar, ProgressStyle};
use reactor::{Handle, LinkAccess, LinkOptions};
use serde::Serialize;

use crate::cli::DiscoverArgs;
use crate::control::Column;
use crate::protocols::asking;

/// A search that takes longer shows how far it is.
const SILENT: Duration = Duration::from_secs(2);

/// A target, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Entry {
    shelf: u16,
    slot: u8,
    interface: String,
    mac: String,
    /// Commands that it holds.
    buffers: u16,
    /// Sectors of a frame to it.
    sectors: u8,
    firmware: u16,
    /// Its config string; bytes that are no ASCII as `\xNN`.
    config: String,
}

/// Searches.
pub(crate) fn run(
    args: &DiscoverArgs,
    interfaces: &[String],
    vlan: Option<u16>,
) -> miette::Result<()> {
    if args.protocols.host_nqn.is_some() {
        return Err(miette::miette!(
            "--host-nqn is for nvme+tcp://: hosts are known over AoE by their MAC addresses"
        ));
    }
    let duration = Duration::from_secs(args.time);
    let found = search(interfaces, vlan, duration)?;
    let entries: Vec<Entry> = found.iter().map(|found| entry(found, interfaces)).collect();
    let columns: [Column<Entry>; 7] = [
        ("target", |entry| format!("{}.{}", entry.shelf, entry.slot)),
        ("interface", |entry| entry.interface.clone()),
        ("mac", |entry| entry.mac.clone()),
        ("buffers", |entry| entry.buffers.to_string()),
        ("sectors", |entry| entry.sectors.to_string()),
        ("firmware", |entry| format!("{:#06x}", entry.firmware)),
        ("config", |entry| entry.config.clone()),
    ];
    let nothing = format!(
        "no target answered within {} s; targets are silent to MAC addresses that neither their hosts nor their MAC masks name\n",
        args.time
    );
    asking::show(args, &entries, &columns, &nothing)
}

fn entry(found: &Found, interfaces: &[String]) -> Entry {
    Entry {
        shelf: found.address.shelf,
        slot: found.address.slot,
        interface: interfaces.get(found.link.0 as usize).cloned().unwrap_or_default(),
        mac: found.mac.to_string(),
        buffers: found.buffers,
        sectors: found.sectors,
        firmware: found.firmware,
        config: found.config.escape_ascii().to_string(),
    }
}

fn search(
    interfaces: &[String],
    vlan: Option<u16>,
    duration: Duration,
) -> miette::Result<Vec<Found>> {
    let links: Vec<LinkId> = (0..interfaces.len() as u32).map(LinkId).collect();
    let machine = move |told| {
        let (links, up) = (links.clone(), Links::default());
        Search { links, up, duration, discovery: None, over: false, told }
    };
    let bar = bar(duration);
    let waits = |time: Duration| bar.set_position(time.min(duration).as_millis() as u64);
    let open_all = |handle: &Handle<()>| {
        let mut numbered = (0..).map(LinkId).zip(interfaces);
        numbered.try_for_each(|(link, interface)| open(handle, link, interface, vlan))
    };
    let found = asking::ask(duration, machine, open_all, waits)?;
    bar.finish_and_clear();
    Ok(found)
}

fn open(
    handle: &Handle<()>,
    link: LinkId,
    interface: &str,
    vlan: Option<u16>,
) -> miette::Result<()> {
    let options = LinkOptions {
        interface: interface.to_owned(),
        vlan,
        access: LinkAccess::Packet,
        poll: contract::Poll::Never,
        intake: filter::searching(),
        forwards: false,
    };
    let added = handle.add_link(link, &options).map_err(|error| {
        let why = error.to_string().replacen(&format!("{link} on "), "", 1);
        miette::miette!("discovery by AoE: {why}")
    })?;
    if added.facts.ring_frames == 0 {
        return Err(miette::miette!(
            help = "ip link set {interface} up",
            "discovery by AoE: interface {interface} is down"
        ));
    }
    Ok(())
}

/// The progress line on a terminal, of a search that takes long; nothing elsewhere.
fn bar(duration: Duration) -> ProgressBar {
    use std::io::IsTerminal;
    let bar = match duration > SILENT && std::io::stderr().is_terminal() {
        true => ProgressBar::new(duration.as_millis() as u64),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:24} asking, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A shard that does nothing but search.
#[derive(Debug)]
struct Search {
    links: Vec<LinkId>,
    up: Links,
    duration: Duration,
    /// From the first link that is up.
    discovery: Option<Discovery>,
    over: bool,
    told: Sender<Vec<Found>>,
}

impl Search {
    fn link_up(&mut self, now: block::Instant, link: LinkId, facts: LinkFacts) {
        self.up.set(link, Some(facts));
        let (links, duration) = (&self.links, self.duration);
        let begin = || Discovery::new(now, links, duration, now.0);
        self.discovery.get_or_insert_with(begin).link_up(link, facts);
    }
}

impl Machine for Search {
    type Mail = ();

    fn handle_event(&mut self, now: block::Instant, event: Event<()>, _: &mut dyn Memory) {
        match (event, &mut self.discovery) {
            (Event::LinkUp { link, facts }, _) => self.link_up(now, link, facts),
            (Event::FramesSent { batch, .. }, Some(discovery)) => discovery.handle_sent(batch),
            _ => {}
        }
    }

    fn handle_frame(&mut self, _: block::Instant, frame: InFrame<'_>, _: &mut dyn Memory) {
        let frame = self.up.open(&frame).filter(|frame| frame.ether_type == EtherType::AOE);
        if let (Some(frame), Some(discovery)) = (frame, &mut self.discovery) {
            discovery.handle_frame(&frame);
        }
    }

    fn settle(&mut self, now: block::Instant, _: &mut dyn Memory) {
        let Some(discovery) = self.discovery.as_mut().filter(|_| !self.over) else { return };
        discovery.settle(now);
        if discovery.is_over(now) {
            self.over = true;
            // Whoever asked may wait no longer.
            let _ = self.told.send(discovery.found().cloned().collect());
        }
    }

    fn poll_effect(&mut self) -> Option<Effect<()>> {
        let batch = self.discovery.as_mut()?.poll_batch()?;
        Some(Effect::SendFrames { token: 0, batch })
    }

    fn poll_timeout(&self) -> Option<block::Instant> {
        self.discovery.as_ref().filter(|_| !self.over).map(Discovery::poll_timeout)
    }
}
