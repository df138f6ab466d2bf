//! Frames: which link, VLAN, station, export and command they mean, and who is heard at all.
//!
//! The order of the checks is the order in which silence is owed: nothing is answered before the source is known to be one that the export hears.

use contract::{InFrame, LinkId};
use wire::aoe::{Address, Command, ErrorCode, Header, VERSION};
use wire::ethernet::MacAddress;

use super::{Context, Exported, Notice, Target};
use crate::envelope::{Envelope, Misfit, open};
use crate::export::ExportId;
use crate::head::Head;

/// A frame that is for AoE targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) link: LinkId,
    /// The tag control information, if it had a tag.
    pub(super) tag: Option<u16>,
    pub(super) source: MacAddress,
    /// To all stations.
    pub(super) is_broadcast: bool,
    pub(super) header: Header,
    /// What stands behind the AoE header.
    pub(super) body: &'a [u8],
}

impl Target {
    /// A frame came. Its bytes are needed no more when this returns.
    #[inline]
    pub fn handle_frame(&mut self, frame: InFrame<'_>, ctx: &mut Context<'_>) {
        let Some(received) = self.accept(&frame) else { return };
        let address = received.header.address;
        if received.header.flags.is_response() {
            return self.overhear(&received);
        }
        self.counters.frames += 1;
        if received.header.command == Command::ATA && !address.is_wildcard() {
            if let Some(id) = self.find(&received) {
                self.ata(&received, id, ctx);
            }
            return;
        }
        self.handle_rest(&received);
    }

    /// Reads link header and AoE header; `None` and counted if the frame is not for AoE targets here.
    #[inline]
    fn accept<'a>(&mut self, frame: &InFrame<'a>) -> Option<Received<'a>> {
        let Some(facts) = self.link(frame.link).and_then(|link| link.facts.as_ref()) else {
            self.drops.link_down += 1;
            return None;
        };
        match open(facts, frame) {
            Ok(Envelope { tag, source, is_broadcast, header, body }) => {
                Some(Received { link: frame.link, tag, source, is_broadcast, header, body })
            }
            Err(misfit) => {
                *match misfit {
                    Misfit::Runt => &mut self.drops.runt,
                    Misfit::OtherType => &mut self.drops.other_type,
                    Misfit::OtherVlan => &mut self.drops.other_vlan,
                    Misfit::OtherStation => &mut self.drops.other_station,
                    Misfit::GroupSource => &mut self.drops.group_source,
                } += 1;
                None
            }
        }
    }

    /// The export that the frame's exact address names, if it hears the source.
    #[inline]
    pub(super) fn find(&mut self, received: &Received<'_>) -> Option<ExportId> {
        let link = self.link(received.link)?;
        let Some(id) = link.directory.find(received.header.address) else {
            self.drops.no_such_export += 1;
            return None;
        };
        if !self.exported(id).hears(received.source) {
            self.drops.not_allowed += 1;
            return None;
        }
        if received.header.version != VERSION {
            self.refuse(received, id, ErrorCode::UNSUPPORTED_VERSION);
            return None;
        }
        Some(id)
    }

    /// Everything but ATA commands to one export.
    fn handle_rest(&mut self, received: &Received<'_>) {
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
        let Some(id) = self.find(received) else { return };
        match command {
            Command::CONFIG => self.config(received, id),
            Command::MAC_MASK => self.mask(received, id),
            Command::RESERVE => self.reserve(received, id),
            _ => self.refuse(received, id, ErrorCode::UNKNOWN_COMMAND),
        }
    }

    /// A response: somebody else's, or one of a station that has an address of ours.
    #[cold]
    fn overhear(&mut self, received: &Received<'_>) {
        self.counters.responses_heard += 1;
        let Received { link, source, header, .. } = *received;
        let is_ours = |other: &super::Link| other.facts.is_some_and(|facts| facts.mac == source.0);
        if header.command != Command::CONFIG || self.links.iter().flatten().any(is_ours) {
            return;
        }
        let Some(found) = self.link(link) else { return };
        let Some(id) = found.directory.find(header.address) else { return };
        let exported = self.exported_mut(id);
        if !core::mem::replace(&mut exported.heard_twice, true) {
            let address = header.address;
            self.notices.push_back(Notice::AddressTwice { link, address, by: source });
        }
    }

    /// Answers with the E flag.
    #[cold]
    pub(super) fn refuse(&mut self, received: &Received<'_>, id: ExportId, code: ErrorCode) {
        let Some(head) = self.head(received, id) else { return };
        self.counters.refused += 1;
        self.send(received.link, head.refused(code).bytes());
    }

    /// The head of an answer to a frame, in the name of an export.
    #[inline]
    pub(super) fn head(&self, received: &Received<'_>, id: ExportId) -> Option<Head> {
        let address = self.exported(id).export.address;
        self.head_for(received.link, received.source, received.tag, &received.header, address)
    }

    /// The same for a request that came earlier; `None` if the link is down now.
    #[inline]
    pub(super) fn head_for(
        &self,
        link: LinkId,
        source: MacAddress,
        tag: Option<u16>,
        header: &Header,
        own: Address,
    ) -> Option<Head> {
        let facts = self.link(link)?.facts.as_ref()?;
        Some(Head::new(facts, source, tag, &header.response(own)))
    }

    /// Sends a frame of these bytes, padded.
    #[inline]
    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8]) {
        if self.outbox.is_full() {
            self.drops.unsent += 1;
            return;
        }
        self.counters.answers += 1;
        self.outbox.push(link, bytes);
    }

    /// Sends a frame of a head and more, if the link carries it.
    pub(super) fn send_two(&mut self, link: LinkId, head: &[u8], body: &[u8]) {
        let facts = self.link(link).and_then(|link| link.facts);
        let mtu = facts.map_or(0, |facts| facts.mtu as usize);
        // The MTU leaves the Ethernet header out, and the tag.
        if head.len() + body.len() > mtu + 14 {
            self.drops.too_large += 1;
        } else if self.outbox.is_full() {
            self.drops.unsent += 1;
        } else {
            self.counters.answers += 1;
            self.outbox.push_two(link, head, body);
        }
    }

    /// An export that a directory or a flight names: it is there.
    #[inline]
    pub(super) fn exported(&self, id: ExportId) -> &Exported {
        self.exports[id.0 as usize].as_deref().expect("what is named is exported")
    }

    /// The same, to change.
    #[inline]
    pub(super) fn exported_mut(&mut self, id: ExportId) -> &mut Exported {
        self.exports[id.0 as usize].as_deref_mut().expect("what is named is exported")
    }
}
