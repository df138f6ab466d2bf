//! Queries of config strings, and announcements: who is there, what it takes, what it is called.
//!
//! A query for one export is answered at once. One for many (a wildcard), and announcements, go out
//! [`SWEEP_BURST`] at a time, a millisecond apart, so that a forged query to thousands of exports
//! does not fill the ring of whoever is named in it, and holds nobody up here. Nobody answers an
//! announcement, and who missed it would never hear that a disk has grown: it is made three times
//! ([`ANNOUNCED_AGAIN`]).

use std::collections::VecDeque;

use block::{Instant, ShardId};
use contract::{LinkId, Station};
use wire::aoe::{CONFIG_MAX, Command, ConfigArgument, ConfigCommand, ErrorCode, Header, VERSION};
use wire::ethernet::MacAddress;

use super::Target;
use crate::export::{ExportId, FIRMWARE, Hosts};
use crate::head::{Head, Reply};
use crate::limits::{ANNOUNCED_AGAIN, SWEEP_BURST, SWEEP_PACE, SWEEPS_MAX};
use crate::received::Received;

/// What goes out in bursts.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// Wildcard queries.
    queries: VecDeque<Sweep>,
    /// Exports that are to be announced once all shards show them as they are now, and where.
    held: Vec<(ExportId, LinkId)>,
    /// Exports that are to be announced, where, and how often they were.
    announcements: VecDeque<(ExportId, LinkId, usize)>,
    /// Those that were announced once, and twice, and when they are to be again; in order.
    again: [VecDeque<(Instant, ExportId, LinkId)>; ANNOUNCED_AGAIN.len()],
    /// When the next burst is due.
    next: Instant,
}

/// A wildcard query on its way through all exports.
#[derive(Debug)]
struct Sweep {
    from: Station,
    header: Header,
    command: ConfigCommand,
    string: Vec<u8>,
    /// The number of the next export.
    next: u32,
}

impl Sweeps {
    /// An export is to be announced on a link, as soon as all shards show it as it is now.
    pub(super) fn hold(&mut self, id: ExportId, link: LinkId) {
        self.held.push((id, link));
    }

    /// An export is to be announced on a link.
    pub(super) fn announce(&mut self, id: ExportId, link: LinkId) {
        self.announcements.push_back((id, link, 0));
    }

    /// What was held is to be announced now.
    pub(super) fn announce_held(&mut self) {
        self.announcements.extend(self.held.drain(..).map(|(id, link)| (id, link, 0)));
    }

    /// An export was announced for the first time, or once more.
    fn announced(&mut self, now: Instant, id: ExportId, link: LinkId, before: usize) {
        if let Some(again) = self.again.get_mut(before) {
            again.push_back((now + ANNOUNCED_AGAIN[before], id, link));
        }
    }

    /// What is to be announced once more, and is due.
    fn announce_again(&mut self, now: Instant) {
        for (again, before) in self.again.iter_mut().zip(1..) {
            while let Some((_, id, link)) = again.pop_front_if(|(at, ..)| *at <= now) {
                self.announcements.push_back((id, link, before));
            }
        }
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let is_empty = self.queries.is_empty() && self.announcements.is_empty();
        let again = self.again.iter().filter_map(|again| Some(again.front()?.0)).min();
        Instant::earliest((!is_empty).then_some(self.next), again)
    }
}

/// Whether a target with this string answers.
fn answers(command: ConfigCommand, own: &[u8], asked: &[u8]) -> bool {
    match command {
        ConfigCommand::READ => true,
        ConfigCommand::TEST => own == asked,
        ConfigCommand::PREFIX => own.starts_with(asked),
        _ => false,
    }
}

/// The string of a query; `None` if it is too long or not there. Reading needs none.
fn string<'a>(argument: &ConfigArgument, body: &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(argument.length);
    match argument.command {
        ConfigCommand::READ => Some(&[]),
        _ if length > CONFIG_MAX => None,
        _ => body[ConfigArgument::SIZE..].get(..length),
    }
}

impl Target {
    /// Query or config, for one export.
    pub(super) fn config(&mut self, received: &Received<'_>, id: ExportId) {
        let Some(argument) = self.whole(ConfigArgument::parse(received.body)) else { return };
        let string = string(&argument, received.body);
        let (Some(string), true) = (string, argument.command <= ConfigCommand::FORCE) else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        if argument.command.changes() {
            return self.change_config(received, id, argument.command, string);
        }
        self.counters.queries += 1;
        if answers(argument.command, self.exports[id.0].control.config(), string) {
            self.tell(received.from, &received.header, id, argument.command);
        } else {
            self.drops.no_match += 1;
        }
    }

    /// A query with a wildcard: all that match are asked, in time.
    pub(super) fn query_all(&mut self, received: &Received<'_>) {
        let Some(argument) = self.whole(ConfigArgument::parse(received.body)) else { return };
        if received.header.version != VERSION || argument.command > ConfigCommand::PREFIX {
            self.drops.wildcard += 1;
            return;
        }
        let Some(string) = string(&argument, received.body) else {
            self.drops.no_match += 1;
            return;
        };
        let Received { from, header, .. } = *received;
        let is_same = |sweep: &Sweep| {
            (sweep.from, sweep.header, sweep.command) == (from, header, argument.command)
        };
        let queries = &mut self.sweeps.queries;
        if queries.len() >= SWEEPS_MAX || queries.iter().any(is_same) {
            self.drops.busy += 1;
            return;
        }
        self.counters.queries += 1;
        let (command, string) = (argument.command, string.to_vec());
        queries.push_back(Sweep { from, header, command, string, next: 0 });
    }

    /// A burst of what is to go out.
    #[cold]
    pub(super) fn sweep(&mut self, now: Instant) {
        let mut left = SWEEP_BURST;
        self.sweeps.announce_again(now);
        while left > 0
            && let Some((id, link, before)) = self.sweeps.announcements.pop_front()
        {
            let frames = self.announce(id, link);
            left = left.saturating_sub(frames);
            if frames > 0 {
                self.sweeps.announced(now, id, link, before);
            }
        }
        while left > 0
            && let Some(mut sweep) = self.sweeps.queries.pop_front()
        {
            let Sweep { from, header, command, .. } = sweep;
            while left > 0
                && let Some((number, exported)) = self.exports.first_from(sweep.next)
            {
                sweep.next = number + 1;
                let is_meant = !exported.removed
                    && header.address.matches(exported.export.address)
                    && exported.export.links.contains(&from.link)
                    && exported.hears(from.mac)
                    && answers(command, exported.control.config(), &sweep.string);
                if is_meant {
                    self.tell(from, &header, ExportId(number), command);
                    left -= 1;
                }
            }
            if self.exports.first_from(sweep.next).is_some() {
                // The others have their turn first.
                self.sweeps.queries.push_back(sweep);
            }
        }
        self.sweeps.next = now + SWEEP_PACE;
    }

    /// Announces an export on a link, to all or, if not all are heard, to each who is. Returns how
    /// many frames that took.
    fn announce(&mut self, id: ExportId, link: LinkId) -> u32 {
        let Some(exported) = self.exports.get(id.0) else { return 0 };
        let Some(facts) = self.facts(link).filter(|_| !exported.removed) else { return 0 };
        // Of those that have the link one does it: a link of one shard alone has no other.
        if facts.is_shared && ShardId::owner_of(id.0, self.shards) != self.shard {
            return 0;
        }
        let hears = |mac: &&MacAddress| exported.hears(**mac);
        let stations: Vec<MacAddress> = match (&exported.export.hosts, exported.control.mask()) {
            (Hosts::Any, []) => vec![MacAddress::BROADCAST],
            (Hosts::Any, mask) => mask.to_vec(),
            (Hosts::List(hosts), _) => hosts.iter().filter(hears).copied().collect(),
        };
        let header = Header::request(exported.export.address, Command::CONFIG, 0);
        for station in &stations {
            self.counters.announcements += 1;
            self.tell(Station::new(link, *station), &header, id, ConfigCommand::READ);
        }
        stations.len() as u32
    }

    /// Says what an export takes and what it is called.
    pub(super) fn tell(
        &mut self,
        to: Station,
        request: &Header,
        id: ExportId,
        command: ConfigCommand,
    ) {
        let exported = &self.exports[id.0];
        let own = exported.export.address;
        let config = exported.control.config();
        let argument = ConfigArgument {
            buffer_count: exported.export.buffers,
            firmware: FIRMWARE,
            sector_count: self.frame_sectors(to.link),
            version: VERSION,
            command,
            length: config.len() as u16,
        };
        let body = [&argument.emit()[..], config].concat();
        self.send_two(&Reply { to, head: Head::new(&request.response(own)) }, &body);
    }
}
