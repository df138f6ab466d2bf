//! The links of a target: what they are, and which exports they show.

use contract::{LinkFacts, LinkId};
use wire::aoe::sectors_for_mtu;

use super::Target;
use super::directory::Directory;
use crate::export::ExportId;

/// A link, up or not.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// What is known of it while it is up.
    pub(super) facts: Option<LinkFacts>,
    /// Sectors that a frame carries.
    pub(super) sectors: u8,
    pub(super) directory: Directory,
}

impl Target {
    /// What is known of a link that is up.
    #[inline]
    pub(super) fn facts(&self, id: LinkId) -> Option<&LinkFacts> {
        self.links.get(id.0)?.facts.as_ref()
    }

    /// Sectors that a frame of a link carries; 0 if there is no such link.
    #[inline]
    pub(super) fn frame_sectors(&self, id: LinkId) -> u8 {
        self.links.get(id.0).map_or(0, |link| link.sectors)
    }

    /// The link of a number, which is there from now on, up or not.
    pub(super) fn link_slot(&mut self, id: LinkId) -> &mut Link {
        if self.links.get(id.0).is_none() {
            self.links.insert(id.0, Link::default());
        }
        &mut self.links[id.0]
    }

    /// A link is up, or is not what it was. Exports on it are announced if that concerns
    /// initiators.
    pub fn link_up(&mut self, id: LinkId, facts: LinkFacts) {
        let link = self.link_slot(id);
        let sectors = sectors_for_mtu(facts.mtu);
        let is_news =
            link.facts.is_none_or(|known| (known.mac, link.sectors) != (facts.mac, sectors));
        // What carries no sector is no link for AoE.
        link.facts = (sectors > 0).then_some(facts);
        link.sectors = sectors;
        if !is_news || sectors == 0 {
            return;
        }
        for (number, exported) in self.exports.iter() {
            if exported.export.links.contains(&id) {
                self.sweeps.announce(ExportId(number), id);
            }
        }
    }

    /// A link is down: frames from it are dropped, answers to it too.
    pub fn link_down(&mut self, id: LinkId) {
        self.link_slot(id).facts = None;
    }
}
