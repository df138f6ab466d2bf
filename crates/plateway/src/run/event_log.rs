//! News of the shards as log lines on standard error, and what they say of disks.
//!
//! Every shard tells its own view: a disk that three shards see slow is told once. Hosts that come,
//! go or are refused, peers that misbehave, and errors of each disk are told of at a bounded rate
//! each, and what was left out is counted. Units: none; times by
//! the system's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use block::{Extent, ShardId};
use contract::{DiskFacts, DiskId, HostEvent, LinkId};
use reactor::disk::Disk;
use shard::News;
use volume::gate::{DiskError, Health};

use super::allowance::Allowance;

/// So many lines about peers are written at once ...
const PEERS_BURST: u32 = 10;
/// ... and then one for each of these.
const PEERS_EVERY: Duration = Duration::from_secs(5);
/// The same of hosts that come and go: a machine room that starts anew is told whole.
const HOSTS_BURST: u32 = 200;
const HOSTS_EVERY: Duration = Duration::from_secs(1);

/// The same of errors of one disk.
const ERRORS_BURST: u32 = 5;
const ERRORS_EVERY: Duration = Duration::from_secs(10);
/// A disk that had an error is not well for so long.
const ERRORS_LAST: Duration = Duration::from_secs(60);

/// What was told so far.
#[derive(Debug)]
pub(super) struct EventLog {
    names: BTreeMap<DiskId, String>,
    links: BTreeMap<LinkId, String>,
    health: BTreeMap<DiskId, Health>,
    protected: BTreeSet<DiskId>,
    /// Disks of this machine, which know what the system said.
    local: BTreeMap<DiskId, Weak<Disk>>,
    errors: BTreeMap<DiskId, Errors>,
    /// What each shard knows of the remote disks.
    remote: BTreeMap<DiskId, BTreeMap<ShardId, DiskFacts>>,
    peers: Allowance,
    hosts: Allowance,
    refusals: Allowance,
}

/// Of one disk.
#[derive(Debug)]
struct Errors {
    last: Instant,
    lines: Allowance,
}

impl Default for EventLog {
    fn default() -> Self {
        let now = Instant::now();
        EventLog {
            names: BTreeMap::new(),
            links: BTreeMap::new(),
            health: BTreeMap::new(),
            protected: BTreeSet::new(),
            local: BTreeMap::new(),
            errors: BTreeMap::new(),
            remote: BTreeMap::new(),
            peers: Allowance::new(PEERS_BURST, PEERS_EVERY, now),
            hosts: Allowance::new(HOSTS_BURST, HOSTS_EVERY, now),
            refusals: Allowance::new(PEERS_BURST, PEERS_EVERY, now),
        }
    }
}

impl EventLog {
    /// A disk has this name.
    pub(super) fn name(&mut self, disk: DiskId, name: &str) {
        self.names.insert(disk, name.to_owned());
    }

    /// A disk of this machine is open.
    pub(super) fn opened(&mut self, disk: DiskId, local: &Arc<Disk>) {
        self.local.insert(disk, Arc::downgrade(local));
    }

    /// A link has this name.
    pub(super) fn name_link(&mut self, link: LinkId, name: &str) {
        self.links.insert(link, name.to_owned());
    }

    /// A disk was reopened: what was told of it is over.
    pub(super) fn forget(&mut self, disk: DiskId) {
        self.health.remove(&disk);
        self.protected.remove(&disk);
        self.errors.remove(&disk);
    }

    /// Whether a disk had an error a short while ago.
    pub(super) fn had_error(&self, disk: DiskId, now: Instant) -> bool {
        self.errors.get(&disk).is_some_and(|errors| now < errors.last + ERRORS_LAST)
    }

    /// Whether a disk takes no writes since something failed.
    pub(super) fn is_protected(&self, disk: DiskId) -> bool {
        self.protected.contains(&disk)
    }

    /// A shard reached a remote disk and found this, if it has not told of something newer.
    pub(super) fn note_reached(&mut self, disk: DiskId, shard: ShardId, facts: DiskFacts) {
        self.remote.entry(disk).or_default().entry(shard).or_insert(facts);
    }

    /// A shard knows this of a remote disk now.
    pub(super) fn note_remote(&mut self, disk: DiskId, shard: ShardId, facts: DiskFacts) {
        self.remote.entry(disk).or_default().insert(shard, facts);
    }

    /// A remote disk is gone.
    pub(super) fn forget_remote(&mut self, disk: DiskId) {
        self.remote.remove(&disk);
    }

    /// What may be relied on of a remote disk: what the shard knows that knows the smallest. So a
    /// volume grows once all shards take requests to what is new, and shrinks at once.
    pub(super) fn remote_facts(&self, disk: DiskId) -> Option<DiskFacts> {
        self.remote.get(&disk)?.values().min_by_key(|facts| facts.size).cloned()
    }

    /// Tells what is new.
    pub(super) fn tell(&mut self, news: &News) {
        if let Some(line) = self.line(news, Instant::now()) {
            log(&line);
        }
    }

    fn line(&mut self, news: &News, now: Instant) -> Option<String> {
        match news {
            News::DiskHealth(disk, health) => {
                let before = self.health.insert(*disk, *health).unwrap_or(Health::Well);
                let name = self.name_of(*disk);
                let slow = block::limits::DISK_SLOW.as_secs();
                let stuck = block::limits::DISK_STUCK.as_secs();
                match health {
                    health if *health == before => None,
                    Health::Well => Some(format!("disk {name} answers again")),
                    Health::Slow => {
                        Some(format!("disk {name} is slow: a request is older than {slow} s"))
                    }
                    Health::Stuck => Some(format!(
                        "disk {name} is stuck: a request is older than {stuck} s, its paths are failed; \
                         plateway disks list shows it"
                    )),
                }
            }
            News::DiskError(error) => self.error_line(error, now),
            News::DiskProtected(disk, failure) => {
                let name = self.name_of(*disk);
                self.protected.insert(*disk).then(|| {
                    format!(
                        "disk {name} takes no writes any more: {failure}; once its cause is repaired: \
                         plateway disks reopen {name}"
                    )
                })
            }
            // Its size is told by what follows it, and by `News::Import`.
            News::DiskChanged(..) => None,
            // Whoever stores it says what went wrong.
            News::Store { .. } => None,
            News::Warning(text) => Some(format!("warning: {}", self.with_links(text))),
            News::Import(disk, what) => {
                Some(format!("disk {}: {}", self.name_of(*disk), self.with_links(what)))
            }
            News::Closed { peer, reason } => {
                self.peers.take(now, || format!("connection of {peer} closed: {reason}"))
            }
            News::Host(news) => {
                let is_refused = matches!(news.event, HostEvent::Refused(_));
                let allowance = if is_refused { &mut self.refusals } else { &mut self.hosts };
                allowance.take(now, || news.to_string())
            }
        }
    }

    fn error_line(&mut self, error: &DiskError, now: Instant) -> Option<String> {
        let DiskError { disk, extent, failure, untold } = *error;
        let name = self.name_of(disk);
        let place = Some(extent).filter(|extent| extent.length.0 > 0);
        let said = self.local.get(&disk).and_then(Weak::upgrade);
        let said = said.and_then(|local| local.error_at(place));
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let new = || Allowance::new(ERRORS_BURST, ERRORS_EVERY, now);
        let errors = self.errors.entry(disk).or_insert_with(|| Errors { last: now, lines: new() });
        errors.last = now;
        errors.lines.leave_out(untold);
        errors.lines.take(now, || match place {
            Some(Extent { offset, length }) => {
                format!("disk {name}: {failure} at {}, {} bytes{said}", offset.0, length.0)
            }
            None => format!("disk {name}: a flush failed, {failure}{said}"),
        })
    }

    /// A text in which shards named links by their numbers, with the names of interfaces.
    pub(super) fn with_links(&self, text: &str) -> String {
        // The largest number first: link 1 stands at the beginning of link 12.
        let links = self.links.iter().rev();
        links.fold(text.to_owned(), |text, (link, name)| text.replace(&link.to_string(), name))
    }

    fn name_of(&self, disk: DiskId) -> String {
        self.names.get(&disk).cloned().unwrap_or_else(|| format!("number {}", disk.0))
    }
}

/// Writes a line for people to standard error, which may be closed.
pub(crate) fn log(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "plateway: {line}");
}

#[cfg(test)]
mod tests {
    use contract::HostNews;

    use super::*;

    #[test]
    fn a_disk_that_several_shards_see_slow_is_told_once() {
        let mut event_log = EventLog::default();
        event_log.name(DiskId(3), "d0");
        let now = Instant::now();
        let slow = News::DiskHealth(DiskId(3), Health::Slow);
        assert!(event_log.line(&slow, now).unwrap().contains("disk d0 is slow"));
        assert_eq!(event_log.line(&slow, now), None);
        let well = News::DiskHealth(DiskId(3), Health::Well);
        assert!(event_log.line(&well, now).unwrap().contains("answers again"));
    }

    #[test]
    fn an_address_that_is_used_twice_is_told_with_its_interface() {
        let mut event_log = EventLog::default();
        event_log.name_link(LinkId(3), "eth1 vlan 5");
        let notice = aoe::server::Notice::AddressTwice {
            link: LinkId(3),
            address: wire::aoe::Address::new(7, 0),
            by: wire::ethernet::MacAddress([2, 0, 0, 0, 0, 9]),
        };
        let news = News::Warning(notice.to_string());
        let line = event_log.line(&news, Instant::now()).unwrap();
        assert!(line.starts_with("warning: 7.0 "), "{line}");
        assert!(line.contains("02:00:00:00:00:09 on eth1 vlan 5"), "{line}");
    }

    #[test]
    fn errors_of_a_disk_are_told_at_a_bounded_rate_and_it_is_not_well_for_a_minute() {
        let mut event_log = EventLog::default();
        let (now, disk) = (Instant::now(), DiskId(3));
        event_log.name(disk, "d0");
        let error = |untold| {
            let (extent, failure) = (Extent::new(8192, 4096), block::Failure::MediumRead);
            News::DiskError(DiskError { disk, extent, failure, untold })
        };
        let line = event_log.line(&error(0), now).unwrap();
        assert_eq!(line, "disk d0: unrecovered read error at 8192, 4096 bytes");
        let told = (0..100).filter(|_| event_log.line(&error(7), now).is_some()).count();
        assert_eq!(told, 4);
        let line = event_log.line(&error(0), now + ERRORS_EVERY).unwrap();
        // 96 lines, and what came with each of them but the four that said so themselves.
        assert!(line.ends_with("(768 more like it were not shown)"), "{line}");
        let last = now + ERRORS_EVERY;
        assert!(event_log.had_error(disk, last + Duration::from_secs(59)));
        assert!(!event_log.had_error(disk, last + ERRORS_LAST));
        assert!(!event_log.had_error(DiskId(4), now));
        event_log.forget(disk);
        assert!(!event_log.had_error(disk, last));
        let (extent, failure) = (Extent::default(), block::Failure::MediumWrite);
        let flush = News::DiskError(DiskError { disk, extent, failure, untold: 0 });
        let line = event_log.line(&flush, now).unwrap();
        assert_eq!(line, "disk d0: a flush failed, write fault");
    }

    #[test]
    fn a_protected_disk_is_told_with_the_next_command() {
        let mut event_log = EventLog::default();
        event_log.name(DiskId(0), "d7");
        let news = News::DiskProtected(DiskId(0), block::Failure::MediumWrite);
        let line = event_log.line(&news, Instant::now()).unwrap();
        assert!(line.contains("plateway disks reopen d7"), "{line}");
        assert!(event_log.is_protected(DiskId(0)));
        event_log.forget(DiskId(0));
        assert!(!event_log.is_protected(DiskId(0)));
    }

    #[test]
    fn a_remote_disk_grows_when_the_last_shard_knows_it_and_shrinks_with_the_first() {
        let mut event_log = EventLog::default();
        let disk = DiskId(4);
        assert_eq!(event_log.remote_facts(disk), None);
        let facts = |bytes| contract::DiskFacts::of_memory(block::ByteCount(bytes));
        event_log.note_remote(disk, ShardId(0), facts(4096));
        event_log.note_remote(disk, ShardId(1), facts(4096));
        event_log.note_remote(disk, ShardId(1), facts(8192));
        assert_eq!(event_log.remote_facts(disk), Some(facts(4096)));
        event_log.note_remote(disk, ShardId(0), facts(8192));
        assert_eq!(event_log.remote_facts(disk), Some(facts(8192)));
        event_log.note_remote(disk, ShardId(0), facts(512));
        assert_eq!(event_log.remote_facts(disk), Some(facts(512)));
        event_log.forget_remote(disk);
        assert_eq!(event_log.remote_facts(disk), None);
    }

    #[test]
    fn peers_that_misbehave_are_told_at_a_bounded_rate_and_counted() {
        let mut event_log = EventLog::default();
        let start = Instant::now();
        let peer = "127.0.0.1:1".parse().unwrap();
        let news = News::Closed { peer, reason: "garbage".to_owned() };
        let told = (0..1000).filter(|_| event_log.line(&news, start).is_some()).count();
        assert_eq!(told, PEERS_BURST as usize);
        let line = event_log.line(&news, start + PEERS_EVERY).unwrap();
        assert!(line.contains("990 more"), "{line}");
        assert_eq!(event_log.line(&news, start + PEERS_EVERY), None);
    }

    #[test]
    fn a_host_that_is_refused_is_told_with_what_lets_it_in_and_not_for_ever() {
        let mut event_log = EventLog::default();
        let now = Instant::now();
        let news = |event| {
            let (host, export) = ("nqn.2026-11.net.plateway:me".to_owned(), "nqn.x:v0".to_owned());
            News::Host(HostNews { host, export, peer: ([10, 0, 0, 7], 5000).into(), event })
        };
        let refused = news(HostEvent::Refused(contract::Refused::NotNamed));
        let line = event_log.line(&refused, now).unwrap();
        assert!(line.contains("host nqn.2026-11.net.plateway:me at 10.0.0.7:5000"), "{line}");
        assert!(line.contains("add \"nqn.2026-11.net.plateway:me\""), "{line}");
        let told = (0..100).filter(|_| event_log.line(&refused, now).is_some()).count();
        assert_eq!(told, 9);
        let line = event_log.line(&refused, now + PEERS_EVERY).unwrap();
        assert!(line.ends_with("(91 more like it were not shown)"), "{line}");
        // Others are told all the same.
        let line = event_log.line(&news(HostEvent::Connected), now).unwrap();
        assert!(line.contains("connected to nqn.x:v0 from 10.0.0.7"), "{line}");
    }
}
