//! News of the shards as events of the log, and what they say of disks.
//!
//! Every shard tells its own view: a disk that three shards see slow is told once. Nothing is told
//! that takes nothing from an allowance, since others cause most of it: peers that
//! misbehave, hosts that come, go or are refused, stations that have the address of a disk, disks
//! that err. What was left out is counted. Units: none; times by the system's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use block::{Extent, Failure, ShardId};
use contract::{DiskFacts, DiskId, HostEvent, HostNews, LinkId, Peer};
use reactor::disk::Disk;
use reservation::SetBy;
use shard::{ImportEvent, News, RouterId, Subject, Way};
use volume::gate::{DiskError, Health};

use super::allowance::{Key, Limits, network};
use crate::log::Event;

/// A disk that had an error is not well for so long.
const ERRORS_LAST: Duration = Duration::from_secs(60);

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    names: BTreeMap<DiskId, String>,
    links: BTreeMap<LinkId, String>,
    /// What routers tell of, by what it is called.
    routed: BTreeMap<(RouterId, Subject), String>,
    /// Their paths that carry less than they should, and what was told of each.
    narrow: BTreeMap<(RouterId, Subject, Way), String>,
    health: BTreeMap<DiskId, Health>,
    /// Disks that take no writes, and why.
    protected: BTreeMap<DiskId, Failure>,
    /// Disks of this machine, which know what the system said.
    local: BTreeMap<DiskId, Weak<Disk>>,
    /// The last of each disk.
    errors: BTreeMap<DiskId, Instant>,
    /// What each shard knows of the remote disks.
    remote: BTreeMap<DiskId, BTreeMap<ShardId, DiskFacts>>,
    /// The shards that see a link down.
    down: BTreeMap<LinkId, BTreeSet<ShardId>>,
    limits: Limits,
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

    /// A link is about to be closed: that is no news.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.down.remove(&link);
        self.limits.forget(Key::Link(link));
        self.limits.forget(Key::Stations(link));
    }

    /// A thing of a router is called so.
    pub(super) fn name_routed(&mut self, thing: (RouterId, Subject), title: &str) {
        self.routed.insert(thing, title.to_owned());
    }

    /// Tells what became of a next hop, unless there is too much of it.
    pub(super) fn tell_next_hop(&mut self, hop: (LinkId, IpAddr), event: Event) {
        let told = self.limits.take(Key::NextHop(hop.0, hop.1), 0, event, Instant::now());
        told.into_iter().for_each(Event::tell);
    }

    /// Nothing goes to a next hop any more.
    pub(super) fn forget_next_hop(&mut self, hop: (LinkId, IpAddr)) {
        self.limits.forget(Key::NextHop(hop.0, hop.1));
    }

    /// What is wrong with paths of a router, a line for each.
    pub(super) fn narrow_paths(&self, router: RouterId) -> impl Iterator<Item = &str> {
        let its = self.narrow.iter().filter(move |((of, ..), _)| *of == router);
        its.map(|(_, words)| &**words)
    }

    /// Of a thing of a router this path is not asked any more what it carries.
    pub(super) fn forget_path(&mut self, (router, subject): (RouterId, Subject), way: Way) {
        self.narrow.remove(&(router, subject, way));
    }

    /// A thing of a router is gone: what is still told of it is no news.
    pub(super) fn forget_routed(&mut self, thing: (RouterId, Subject)) {
        Way::BOTH.into_iter().for_each(|way| self.forget_path(thing, way));
        self.routed.remove(&thing);
        self.limits.forget(Key::Routed(thing.0, thing.1));
    }

    /// A disk was reopened: what was told of it is over.
    pub(super) fn forget(&mut self, disk: DiskId) {
        self.health.remove(&disk);
        self.protected.remove(&disk);
        self.errors.remove(&disk);
        self.limits.forget(Key::Errors(disk));
    }

    /// Whether a disk had an error a short while ago.
    pub(super) fn had_error(&self, disk: DiskId, now: Instant) -> bool {
        self.errors.get(&disk).is_some_and(|last| now < *last + ERRORS_LAST)
    }

    /// Whether a disk takes no writes since something failed.
    pub(super) fn is_protected(&self, disk: DiskId) -> bool {
        self.protected.contains_key(&disk)
    }

    /// Disks that take no writes since something failed, and what that was.
    pub(super) fn protected(&self) -> &BTreeMap<DiskId, Failure> {
        &self.protected
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

    /// Tells what is new, which a shard says.
    pub(super) fn tell(&mut self, from: ShardId, news: &News) {
        if let Some(event) = self.event(from, news, Instant::now()) {
            event.tell();
        }
    }

    /// Tells what came of a change of the configuration, unless there are too many of them; whether
    /// it did.
    pub(super) fn tell_apply(&mut self, event: Event) -> bool {
        let told = self.limits.take(Key::Applies, 0, event, Instant::now());
        told.map(Event::tell).is_some()
    }

    /// When [`tell_left_out`](Self::tell_left_out) wants to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.limits.due()
    }

    /// Tells how much was left out of what does not go on.
    pub(super) fn tell_left_out(&mut self) {
        self.limits.left_out(Instant::now()).into_iter().for_each(Event::tell);
    }

    fn event(&mut self, from: ShardId, news: &News, now: Instant) -> Option<Event> {
        let (key, event) = self.words(from, news, now)?;
        let untold = if let News::DiskError(error) = news { error.untold } else { 0 };
        self.limits.take(key, untold, event, now)
    }

    /// What news are in words, if people are told.
    fn words(&mut self, from: ShardId, news: &News, now: Instant) -> Option<(Key, Event)> {
        Some(match news {
            News::DiskHealth(disk, health) => {
                let before = self.health.insert(*disk, *health).unwrap_or(Health::Well);
                let name = self.name_of(*disk);
                let slow = block::limits::DISK_SLOW.as_secs();
                let stuck = block::limits::DISK_STUCK.as_secs();
                let event = match health {
                    health if *health == before => return None,
                    Health::Well => Event::info(format!("disk {name} answers again")),
                    Health::Slow => Event::warn(format!(
                        "disk {name} is slow: a request is older than {slow} s"
                    )),
                    Health::Stuck => Event::error(format!(
                        "disk {name} is stuck: a request is older than {stuck} s, its paths are failed; \
                         plateway disks list shows it"
                    )),
                };
                (Key::Disk(*disk), event.disk(&name))
            }
            News::DiskError(error) => {
                self.errors.insert(error.disk, now);
                (Key::Errors(error.disk), self.error_event(error))
            }
            News::DiskProtected(disk, failure) => {
                let name = self.name_of(*disk);
                let is_new = self.protected.insert(*disk, *failure).is_none();
                let event = Event::error(format!(
                    "disk {name} is read-only from now on: {failure}; once its cause is repaired: \
                     plateway disks reopen {name}"
                ));
                (Key::Disk(*disk), is_new.then_some(event.disk(&name))?)
            }
            // Its size is told by what follows it, and by `News::Import`.
            News::DiskChanged(..) => return None,
            // Whoever stores it says what went wrong.
            News::Store { .. } => return None,
            News::Path { group, was, is, by } => {
                let by = if matches!(by, SetBy::Host(_)) { "a host" } else { "an administrator" };
                let words = format!(
                    "listeners of group {group} are {is} now, which were {was}: {by} asked for it"
                );
                let event = if is.serves() { Event::info(words) } else { Event::warn(words) };
                (Key::Paths, event)
            }
            News::Warning(text) => (Key::Warnings, Event::warn(self.with_links(text))),
            News::Import(disk, what, words) => {
                let name = self.name_of(*disk);
                let words = format!("disk {name}: {}", self.with_links(words));
                let event = match what {
                    ImportEvent::Reached | ImportEvent::Changed => Event::info(words),
                    ImportEvent::Lost | ImportEvent::WayLost | ImportEvent::Refused => {
                        Event::warn(words)
                    }
                    ImportEvent::Unusable => Event::error(words),
                };
                (Key::Import(*disk), event.disk(&name))
            }
            News::Link(link, is_up) => {
                let name = self.links.get(link)?.clone();
                let was_up = self.down.get(link).is_none_or(BTreeSet::is_empty);
                let down = self.down.entry(*link).or_default();
                let _ = if *is_up { down.remove(&from) } else { down.insert(from) };
                let is_up = down.is_empty();
                if is_up {
                    self.down.remove(link);
                }
                let event = match (was_up, is_up) {
                    (true, false) => Event::warn(format!("link {name} is down")),
                    (false, true) => Event::info(format!("link {name} is up again")),
                    _ => return None,
                };
                (Key::Link(*link), event.link(&name))
            }
            News::Route(router, event) => {
                let subject = event.subject();
                let title = match subject {
                    Subject::Port(link) => format!("link {}", self.links.get(&link)?),
                    _ => self.routed.get(&(*router, subject))?.clone(),
                };
                let words = format!("{title}: {event}");
                if let Some((way, is_narrow)) = event.narrows() {
                    self.forget_path((*router, subject), way);
                    let lasts = is_narrow.then(|| {
                        let way_out = "a link on its way has too small an MTU";
                        ((*router, subject, way), format!("{words}: {way_out}"))
                    });
                    self.narrow.extend(lasts);
                }
                let event = if event.is_bad() { Event::warn(words) } else { Event::info(words) };
                (Key::Routed(*router, subject), event)
            }
            News::Closed { peer, reason } => {
                let words = format!("connection of {peer} closed: {reason}");
                (Key::Peer(network(peer.ip())), Event::warn(words).peer(peer))
            }
            News::Host(news) => {
                let HostNews { host, export, peer, event } = news;
                let is_refused = matches!(event, HostEvent::Refused(_));
                let say = |words: String| match is_refused {
                    true => Event::warn(words),
                    false => Event::info(words),
                };
                let (key, event) = match peer {
                    Peer::Address(address) => {
                        let by = network(address.ip());
                        let key = if is_refused { Key::Refusal(by) } else { Key::Host(by) };
                        (key, say(news.to_string()).peer(address))
                    }
                    // Stations can be made up: those of a link have one allowance.
                    Peer::Link(link) => {
                        let name = self.with_links(&link.to_string());
                        let words = self.with_links(&news.to_string());
                        (Key::Stations(*link), say(words).link(&name))
                    }
                };
                (key, event.host(host).export(export))
            }
        })
    }

    fn error_event(&self, error: &DiskError) -> Event {
        let DiskError { disk, extent, failure, .. } = *error;
        let name = self.name_of(disk);
        let place = Some(extent).filter(|extent| extent.length.0 > 0);
        let local = self.local.get(&disk).and_then(Weak::upgrade);
        let system = local.and_then(|local| local.error_at(place));
        let errno = system.as_ref().and_then(std::io::Error::raw_os_error);
        let said = system.map(|said| format!(": {said}")).unwrap_or_default();
        let event = match place {
            Some(Extent { offset, length }) => Event::error(format!(
                "disk {name}: {failure} at {}, {} bytes{said}",
                offset.0, length.0
            ))
            .place(offset.0, length.0),
            None => Event::error(format!("disk {name}: a flush failed, {failure}{said}")),
        };
        event.disk(&name).errno(errno)
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

#[cfg(test)]
mod tests {
    use super::super::allowance::{BURST, ERRORS_EVERY, EVERY};
    use super::*;

    impl EventLog {
        fn line(&mut self, news: &News, now: Instant) -> Option<String> {
            self.event(ShardId(0), news, now).map(|event| event.line())
        }
    }

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
    fn a_path_that_is_too_narrow_is_a_problem_until_it_is_wide_or_gone() {
        use mpls::{Event, Narrow, PseudowireId};
        let (mut event_log, router, id) = (EventLog::default(), RouterId(1), PseudowireId(2));
        let subject = (router, Subject::Pseudowire(id));
        event_log.name_routed(subject, "pseudowire p");
        let tell = |event_log: &mut EventLog, event| {
            let line = event_log.line(&News::Route(router, event), Instant::now());
            assert!(line.is_some_and(|line| line.contains("pseudowire p: its ")));
            event_log.narrow_paths(router).map(str::to_owned).collect::<Vec<_>>()
        };
        let narrow = |way, fits| Event::Narrow(id, way, Narrow { fits, promised: 1514 });
        let line = |way, fits| {
            format!(
                "pseudowire p: its {way} path carries frames of {fits} bytes at most, not of 1514: \
                 a link on its way has too small an MTU"
            )
        };
        let [primary, backup] = Way::BOTH;
        assert_eq!(tell(&mut event_log, narrow(primary, 1400)), [line(primary, 1400)]);
        assert_eq!(tell(&mut event_log, narrow(primary, 1300)), [line(primary, 1300)]);
        let both = tell(&mut event_log, narrow(backup, 900));
        assert_eq!(both, [line(primary, 1300), line(backup, 900)]);
        assert_eq!(event_log.narrow_paths(RouterId(0)).count(), 0);
        assert_eq!(tell(&mut event_log, Event::Whole(id, primary, 1514)), [line(backup, 900)]);
        event_log.forget_path(subject, backup);
        assert_eq!(event_log.narrow_paths(router).count(), 0);
        tell(&mut event_log, narrow(backup, 900));
        event_log.forget_routed(subject);
        assert_eq!(event_log.narrow_paths(router).count(), 0);
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
        assert!(line.starts_with("7.0 "), "{line}");
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
        assert_eq!(told, BURST as usize);
        let line = event_log.line(&news, start + EVERY).unwrap();
        assert!(line.contains("990 more"), "{line}");
        assert_eq!(event_log.line(&news, start + EVERY), None);
    }

    #[test]
    fn no_news_are_told_without_end_and_those_of_a_disk_hide_nothing_of_others() {
        let mut event_log = EventLog::default();
        let now = Instant::now();
        let peer = "127.0.0.1:1".parse().unwrap();
        let flap = |round: usize| if round.is_multiple_of(2) { Health::Slow } else { Health::Well };
        let refused =
            |disk| News::Import(DiskId(disk), ImportEvent::Refused, "another disk".to_owned());
        let floods: [&dyn Fn(usize) -> News; 4] = [
            &|_| refused(1),
            &|round| News::DiskHealth(DiskId(2), flap(round)),
            &|_| News::Warning("an address is used twice".to_owned()),
            &|_| News::Closed { peer, reason: "garbage".to_owned() },
        ];
        for flood in floods {
            let lines = (0..1000).filter(|round| event_log.line(&flood(*round), now).is_some());
            assert_eq!(lines.count(), BURST as usize, "{:?}", flood(0));
        }
        assert!(event_log.line(&refused(3), now).is_some());
        let protected = News::DiskProtected(DiskId(1), block::Failure::MediumWrite);
        assert!(event_log.line(&protected, now).is_some());
        let line = event_log.line(&refused(1), now + EVERY).unwrap();
        assert!(line.contains("990 more"), "{line}");
    }

    #[test]
    fn a_host_that_is_refused_is_told_with_what_lets_it_in_and_not_for_ever() {
        let mut event_log = EventLog::default();
        let now = Instant::now();
        let news = |event| {
            let (host, export) = ("nqn.2026-11.net.plateway:me".to_owned(), "nqn.x:v0".to_owned());
            News::Host(HostNews {
                host,
                export,
                peer: Peer::Address(([10, 0, 0, 7], 5000).into()),
                event,
            })
        };
        let refused = news(HostEvent::Refused(contract::Refused::NotNamed));
        let line = event_log.line(&refused, now).unwrap();
        assert!(line.contains("host nqn.2026-11.net.plateway:me at 10.0.0.7:5000"), "{line}");
        assert!(line.contains("add \"nqn.2026-11.net.plateway:me\""), "{line}");
        let told = (0..100).filter(|_| event_log.line(&refused, now).is_some()).count();
        assert_eq!(told, 9);
        let line = event_log.line(&refused, now + EVERY).unwrap();
        assert!(line.ends_with("(91 more like it were not shown)"), "{line}");
        // Others are told all the same.
        let line = event_log.line(&news(HostEvent::Connected), now).unwrap();
        assert!(line.contains("connected to nqn.x:v0 from 10.0.0.7"), "{line}");
    }

    #[test]
    fn who_asks_from_many_addresses_hides_nobody_who_was_there_and_is_not_remembered_without_end() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let key = |number: u32| Key::Refusal(network(std::net::Ipv4Addr::from(number).into()));
        let mut take = |key, now| limits.take(key, 0, Event::warn("refused"), now);
        assert!(take(key(1), now).is_some());
        let told = (2..10_000).filter(|number| take(key(*number), now).is_some()).count();
        // Each that is remembered, and those that share an allowance.
        assert_eq!(told, 63 + BURST as usize);
        assert!(take(key(1), now).is_some());
        // Those that are quiet make room.
        let later = now + EVERY * (BURST + 1);
        assert!(take(key(20_000), later).is_some());
        assert!(limits.len() < 70, "{}", limits.len());
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("::ffff:10.0.0.1"), of("::ffff:10.0.0.2"));
    }

    #[test]
    fn what_is_left_out_is_counted_also_where_nothing_like_it_follows() {
        let mut limits = Limits::default();
        let now = Instant::now();
        assert_eq!(limits.due(), None);
        for _ in 0..BURST + 7 {
            let _ = limits.take(Key::Warnings, 0, Event::warn("again"), now);
        }
        let due = limits.due().expect("something was left out");
        assert_eq!(limits.left_out(now), []);
        let told: Vec<String> = limits.left_out(due).iter().map(Event::line).collect();
        assert_eq!(told, ["again (6 more like it were not shown)"]);
        assert_eq!((limits.due(), limits.left_out(due + EVERY)), (None, Vec::new()));
    }

    #[test]
    fn a_link_that_several_shards_see_down_is_told_once_and_once_when_all_see_it_up() {
        let mut event_log = EventLog::default();
        event_log.name_link(LinkId(3), "eth1");
        let now = Instant::now();
        let mut told = |shard, is_up| {
            let event = event_log.event(ShardId(shard), &News::Link(LinkId(3), is_up), now)?;
            Some(event.line())
        };
        let some = |line: &str| Some(line.to_owned());
        assert_eq!((told(0, true), told(1, true)), (None, None));
        assert_eq!((told(0, false), told(1, false)), (some("link eth1 is down"), None));
        assert_eq!((told(0, true), told(1, true)), (None, some("link eth1 is up again")));
        event_log.forget_link(LinkId(3));
        assert_eq!(event_log.event(ShardId(0), &News::Link(LinkId(3), false), now), None);
    }

    #[test]
    fn events_say_what_they_are_about_and_how_grave_they_are() {
        let mut event_log = EventLog::default();
        event_log.name(DiskId(3), "d0");
        let (now, disk) = (Instant::now(), DiskId(3));
        let (extent, failure) = (Extent::new(8192, 4096), block::Failure::MediumRead);
        let error = News::DiskError(DiskError { disk, extent, failure, untold: 0 });
        let lost = |what| News::Import(disk, what, "words".to_owned());
        for (news, wanted) in [
            (
                error,
                Event::error("disk d0: unrecovered read error at 8192, 4096 bytes")
                    .place(8192, 4096)
                    .disk("d0"),
            ),
            (lost(ImportEvent::Lost), Event::warn("disk d0: words").disk("d0")),
            (lost(ImportEvent::WayLost), Event::warn("disk d0: words").disk("d0")),
            (lost(ImportEvent::Reached), Event::info("disk d0: words").disk("d0")),
            (lost(ImportEvent::Unusable), Event::error("disk d0: words").disk("d0")),
        ] {
            assert_eq!(event_log.event(ShardId(0), &news, now), Some(wanted));
        }
    }
}
