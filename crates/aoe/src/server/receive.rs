//! Frames: which export and command they mean, and who is heard at all.
//!
//! The order of the checks is the order in which silence is owed: nothing is answered before the
//! source is known to be one that the export hears.

use block::Instant;
use block::record::passed;
use contract::{
    FrameBatch, HostEvent, HostNews, LinkFacts, LinkId, OpenedFrame, Peer, Refused, Station,
};
use wire::aoe::{Command, ErrorCode, Header, VERSION};
use wire::ethernet::EtherType;

use super::{Context, Notice, Target};
use crate::export::ExportId;
use crate::head::{Head, Reply};
use crate::limits::{REFUSED_AGAIN, REFUSED_MAX};
use crate::received::Received;

impl Target {
    /// A frame of our EtherType came. Its bytes are needed no more when this returns.
    #[inline]
    pub fn handle_frame(&mut self, frame: &OpenedFrame<'_>, ctx: &mut Context<'_>) {
        if self.facts(frame.from.link).is_none() {
            self.drops.link_down += 1;
            return;
        }
        let Some(received) = Received::parse(frame) else {
            self.drops.runt += 1;
            return;
        };
        let address = received.header.address;
        if received.header.flags.is_response() {
            return self.overhear(&received);
        }
        self.counters.frames += 1;
        if received.header.command == Command::ATA && !address.is_wildcard() {
            if let Some(id) = self.find(&received, ctx.now) {
                self.ata(&received, id, ctx);
            }
            return;
        }
        self.handle_rest(&received, ctx);
    }

    /// The export that the frame's exact address names, if it hears the source.
    #[inline]
    pub(super) fn find(&mut self, received: &Received<'_>, now: Instant) -> Option<ExportId> {
        let link = self.links.get(received.from.link.0)?;
        let Some(id) = link.directory.find(received.header.address) else {
            self.drops.no_such_export += 1;
            return None;
        };
        if !self.exports[id.0].hears(received.from.mac) {
            self.turn_away(received, id, now);
            return None;
        }
        if received.header.version != VERSION {
            self.refuse(received, id, ErrorCode::UNSUPPORTED_VERSION);
            return None;
        }
        Some(id)
    }

    /// A station that is not heard gets silence, and people are told of it: once a minute each, and
    /// of so many, since any number of stations can be made up.
    #[cold]
    fn turn_away(&mut self, received: &Received<'_>, id: ExportId, now: Instant) {
        self.drops.not_allowed += 1;
        let Station { link, mac, .. } = received.from;
        let exported = &mut self.exports[id.0];
        while exported.refused.front().is_some_and(|(_, at)| now >= *at + REFUSED_AGAIN) {
            exported.refused.pop_front();
        }
        let is_told = exported.refused.iter().any(|(other, _)| *other == mac);
        if is_told || exported.refused.len() >= REFUSED_MAX {
            return;
        }
        exported.refused.push_back((mac, now));
        let why = if exported.is_host(mac) { Refused::NotInMask } else { Refused::NotNamed };
        self.host_news.push_back(HostNews {
            host: mac.to_string(),
            export: exported.export.address.to_string(),
            peer: Peer::Link(link),
            event: HostEvent::Refused(why),
        });
    }

    /// Everything but ATA commands to one export.
    fn handle_rest(&mut self, received: &Received<'_>, ctx: &Context<'_>) {
        let Header { address, command, .. } = received.header;
        if address.is_wildcard() {
            match command {
                Command::CONFIG => self.query_all(received),
                _ => self.drops.wildcard += 1,
            }
            return;
        }
        // aoecfg sends its changes to all stations: the exact address says who is meant.
        if received.is_broadcast && command != Command::CONFIG {
            self.drops.broadcast += 1;
            return;
        }
        let Some(id) = self.find(received, ctx.now) else { return };
        match command {
            Command::CONFIG => self.config(received, id),
            Command::MAC_MASK => self.mask(received, id),
            Command::RESERVE => self.reserve(received, id, ctx),
            _ => self.refuse(received, id, ErrorCode::UNKNOWN_COMMAND),
        }
    }

    /// A response: somebody else's, or one of a station that has an address of ours.
    #[cold]
    fn overhear(&mut self, received: &Received<'_>) {
        self.counters.responses_heard += 1;
        let Received { from: Station { link, mac, .. }, header, .. } = *received;
        let is_ours = |other: &super::Link| other.facts.is_some_and(|facts| facts.mac == mac.0);
        if header.command != Command::CONFIG || self.links.iter().any(|(_, link)| is_ours(link)) {
            return;
        }
        let found = self.links.get(link.0).and_then(|link| link.directory.find(header.address));
        let Some(id) = found else { return };
        if !core::mem::replace(&mut self.exports[id.0].heard_twice, true) {
            let address = header.address;
            self.notices.push_back(Notice::AddressTwice { link, address, by: mac });
        }
    }

    /// What was parsed of a frame, if that is whole; else the frame is counted.
    #[inline]
    pub(super) fn whole<T, E>(&mut self, parsed: Result<T, E>) -> Option<T> {
        self.drops.runt += u64::from(parsed.is_err());
        parsed.ok()
    }

    /// Answers with the E flag.
    #[cold]
    pub(super) fn refuse(&mut self, received: &Received<'_>, id: ExportId, code: ErrorCode) {
        self.counters.refused += 1;
        passed("status", code);
        let Reply { to, head } = self.reply(received, id);
        self.send(&Reply { to, head: head.refused(code) });
    }

    /// The answer to a frame, in the name of an export, with nothing behind the header yet.
    #[inline]
    pub(super) fn reply(&self, received: &Received<'_>, id: ExportId) -> Reply {
        let own = self.exports[id.0].export.address;
        Reply { to: received.from, head: Head::new(&received.header.response(own)) }
    }

    /// Sends a frame without data.
    #[inline]
    pub(super) fn send(&mut self, Reply { to, head }: &Reply) {
        if let Some((facts, batch)) = self.begin_frame(to.link) {
            batch.push(facts, to, EtherType::AOE, head.bytes());
        }
    }

    /// Sends a frame of a head and more, if the link carries it.
    pub(super) fn send_two(&mut self, Reply { to, head }: &Reply, body: &[u8]) {
        let payload_max = self.facts(to.link).map_or(usize::MAX, LinkFacts::payload_max);
        if head.bytes().len() + body.len() > payload_max {
            self.drops.too_large += 1;
        } else if let Some((facts, batch)) = self.begin_frame(to.link) {
            batch.push_two(facts, to, EtherType::AOE, [head.bytes(), body]);
        }
    }

    /// Where a frame to a link is put; `None` and counted if it cannot leave.
    #[inline]
    pub(super) fn begin_frame(&mut self, link: LinkId) -> Option<(&LinkFacts, &mut FrameBatch)> {
        let known = self.links.get(link.0);
        let Some(facts) = known.and_then(|link| link.facts.as_ref()) else {
            self.drops.link_down += 1;
            return None;
        };
        if self.outbox.is_full() {
            self.drops.unsent += 1;
            return None;
        }
        self.counters.answers += 1;
        Some((facts, self.outbox.gathering()))
    }
}
