//! `backup = { ... }` of an `[[ilm]]` or an `[[lsp]]`: the way around its next hop, which its packets
//! take while that fails.
//!
//! Its labels lead to where the path goes on behind what failed: the bypass on top, and below it what
//! the merge point takes the packet by. Errors are pushed as mistakes at what was written. Spec: RFC
//! 4090 clause 3.2 (facility backup).

use std::collections::BTreeMap;

use mpls::Via;
use toml::Spanned;

use super::neighbour::NeighbourConfig;
use super::port::Ports;
use super::words::{Hop, LABELS, LINK, NEXT_HOP};
use super::{IlmConfig, LspConfig};
use crate::config::file::{Written as _, table};
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::thing::Configured as _;

table! {
    LowBackup = "backup" {
        link: String = LINK,
        next_hop: String = NEXT_HOP,
        labels: Vec<Spanned<i64>> = LABELS,
    }
}

/// The lines of a table that say it.
pub(super) fn text(backup: Option<&Hop>) -> String {
    let inline = |hop: &Hop| hop.text().trim_end().replace('\n', ", ");
    backup.map(|hop| format!("backup = {{ {} }}\n", inline(hop))).unwrap_or_default()
}

/// What a change tells of it.
pub(super) fn value(backup: Option<&Hop>) -> (&'static str, String) {
    let words = |hop: &Hop| format!("{} {}", super::words::shown(&hop.labels), hop.where_to());
    ("backup", backup.map_or_else(|| "none".to_owned(), words))
}

impl Resolver<'_> {
    /// The backup of a path whose next hop is `primary`, of a router; `Some(None)` where none was
    /// written.
    pub(super) fn backup(
        &mut self,
        low: Option<&LowBackup>,
        primary: Option<(&Hop, &str)>,
        around: (&Ports, &Links),
    ) -> Option<Option<Hop>> {
        const EXAMPLE: &str =
            "labels = [900, 201]: the bypass, and what the router at its end takes the packet by";
        let Some(low) = low else { return Some(None) };
        if low.link.is_none() {
            self.missing(&low.span, LowBackup::TITLE, "link", "link = \"eth3\"");
        }
        let parts = (&low.link, &low.next_hop, &low.labels);
        let (hop, router) = self.hop(parts, (&low.span, LowBackup::TITLE, EXAMPLE), around)?;
        let (Some((primary, of)), Some(link)) = (primary, &low.link) else {
            return Some(Some(hop));
        };
        if router != of {
            let name = format!("link {}", hop.link);
            self.across_routers(link.span(), [("what it backs up", of), (&name, &router)]);
        }
        let is_same = (&hop.link, hop.next_hop) == (&primary.link, primary.next_hop);
        if is_same {
            let message = format!(
                "backup: expected another next hop than that which it backs up, seen the same, {}",
                hop.where_to()
            );
            let help = "name a link to a router that knows a way around it";
            self.push(Mistake::error(low.span.clone(), message).help(help));
        } else if hop.link == primary.link {
            let message = format!(
                "backup: it goes by {}, too: while that link fails, so does the way around",
                hop.link
            );
            let help = "name another link";
            self.push(Mistake::warning(link.span(), message).help(help));
        }
        Some(Some(hop))
    }

    /// Warns of next hops with a backup whose failure is only found where it is the link's own, once
    /// each, and of neighbours that nothing has a backup for.
    pub(super) fn warn_of_unwatched(
        &mut self,
        ilms: &[(IlmConfig, Span)],
        lsps: &[(LspConfig, Span)],
        neighbours: &[NeighbourConfig],
    ) {
        let key = |hop: &Hop| (hop.link.clone(), hop.next_hop);
        // What only the kernel can tell gives no warning.
        let is_watched = |hop: &Hop| neighbours.iter().any(|one| one.is_of(hop).unwrap_or(true));
        let ilms = ilms.iter().filter(|(one, _)| one.backup.is_some());
        let ilms = ilms.filter_map(|(one, span)| Some((one.action.hop()?, span)));
        let lsps = lsps.iter().filter(|(one, _)| one.backup.is_some());
        let lsps = lsps.map(|(one, span)| (&one.hop, span));
        let mut with_backup: BTreeMap<(String, Option<Via>), &Hop> = BTreeMap::new();
        for (hop, span) in ilms.chain(lsps) {
            let is_first = with_backup.insert(key(hop), hop).is_none();
            if is_first && !is_watched(hop) {
                let message = format!(
                    "nobody watches the way {}: its backup is taken while the link is down, and not where it fails in silence",
                    hop.where_to()
                );
                let help = match hop.next_hop {
                    Some(via @ Via::Ip(address)) => format!(
                        "add [[neighbour]] link = {:?}, next_hop = \"{via}\" and address = \"{address}\"",
                        hop.link
                    ),
                    Some(via) => format!(
                        "add [[neighbour]] link = {:?}, next_hop = \"{via}\" and its IP address",
                        hop.link
                    ),
                    None => "have pseudowires watched from end to end, with a second path: bfd = {} and backup".to_owned(),
                };
                self.push(Mistake::warning(span.clone(), message).help(help));
            }
        }
        for one in neighbours {
            if !with_backup.values().any(|hop| one.is_of(hop).unwrap_or(true)) {
                let span = self.place_of(&one.title(), "");
                let message = format!("nothing that goes to {} has a backup", one.title());
                let help = "add backup = { link = ..., next_hop = ..., labels = [...] } to an [[ilm]] or [[lsp]] with this link and next_hop";
                self.push(Mistake::warning(span, message).help(help));
            }
        }
    }
}
