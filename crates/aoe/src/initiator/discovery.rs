//! Discovery: which targets there are on some links. A machine that asks all of them and gathers
//! what answers, for a while.

use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;
use contract::{FrameBatch, LinkFacts, LinkId, OpenedFrame, Station};
use wire::aoe::{Address, Command, ConfigArgument, VERSION};
use wire::ethernet::{EtherType, MacAddress};

use super::sending::query;
use crate::limits::DISCOVERED_MAX;
use crate::outbox::Outbox;
use crate::received::Received;

/// Queries that are sent, evenly over the time: one may be lost.
const QUERIES: u32 = 3;

/// A target that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it answered.
    pub link: LinkId,
    /// Its address.
    pub address: Address,
    /// Its station.
    pub mac: MacAddress,
    /// Commands that it holds.
    pub buffers: u16,
    /// Sectors of a frame to it.
    pub sectors: u8,
    /// Its firmware version.
    pub firmware: u16,
    /// Its config string.
    pub config: Vec<u8>,
}

/// A search for targets.
#[derive(Debug)]
pub struct Discovery {
    links: Vec<(LinkId, Option<LinkFacts>)>,
    found: BTreeMap<(LinkId, Address, MacAddress), Found>,
    next: Instant,
    left: u32,
    pace: Duration,
    tag: u32,
    outbox: Outbox,
}

impl Discovery {
    /// A search on some links that takes `duration`.
    pub fn new(now: Instant, links: &[LinkId], duration: Duration, seed: u64) -> Discovery {
        Discovery {
            links: links.iter().map(|link| (*link, None)).collect(),
            found: BTreeMap::new(),
            next: now,
            left: QUERIES,
            pace: duration / QUERIES,
            // Not 0, which announcements have, and without the highest bit, as the kernel's are.
            tag: (seed as u32 & 0x7fff_ffff).max(1),
            outbox: Outbox::default(),
        }
    }

    /// A link is up.
    pub fn link_up(&mut self, link: LinkId, facts: LinkFacts) {
        for (id, known) in &mut self.links {
            if *id == link {
                *known = Some(facts);
            }
        }
    }

    /// A frame came: an answer, an announcement, or something else.
    pub fn handle_frame(&mut self, frame: &OpenedFrame<'_>) {
        let Some(Received { from, header, body, .. }) = Received::parse(frame) else { return };
        let is_answer = header.flags.is_response()
            && !header.flags.is_error()
            && header.command == Command::CONFIG
            && header.version == VERSION
            && !header.address.is_wildcard();
        let Ok(argument) = ConfigArgument::parse(body) else { return };
        let key = (from.link, header.address, from.mac);
        if !is_answer || (self.found.len() >= DISCOVERED_MAX && !self.found.contains_key(&key)) {
            return;
        }
        let string = body.get(ConfigArgument::SIZE..).unwrap_or_default();
        let length = string.len().min(argument.length.into());
        let found = Found {
            link: from.link,
            address: header.address,
            mac: from.mac,
            buffers: argument.buffer_count,
            sectors: argument.sector_count,
            firmware: argument.firmware,
            config: string[..length].to_vec(),
        };
        self.found.insert(key, found);
    }

    /// The end of a turn, or the moment of [`poll_timeout`](Self::poll_timeout): asks again if it
    /// is time.
    pub fn settle(&mut self, now: Instant) {
        if self.left > 0 && self.next <= now {
            for (link, facts) in &self.links {
                if let Some(facts) = facts {
                    let query = query(Address::ANY, self.tag);
                    let batch = self.outbox.gathering();
                    batch.push(facts, &Station::all(*link), EtherType::AOE, &query);
                }
            }
            self.left -= 1;
            self.next = now + self.pace;
        }
        self.outbox.hand_out();
    }

    /// When [`settle`](Self::settle) wants to be called; when it is over, that is when nothing is
    /// asked any more.
    pub fn poll_timeout(&self) -> Instant {
        self.next
    }

    /// Frames to be sent.
    pub fn poll_batch(&mut self) -> Option<FrameBatch> {
        self.outbox.poll()
    }

    /// Frames have left.
    pub fn handle_sent(&mut self, batch: FrameBatch) {
        self.outbox.take_back(batch);
    }

    /// Whether the time is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.left == 0 && self.next <= now
    }

    /// What answered, in the order of links and addresses. One address behind several stations is
    /// one target with several paths, or two targets that should not have it.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        self.found.values()
    }
}
