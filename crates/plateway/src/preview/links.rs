//! Links: whether each interface of AoE is there and up, and whether this user may open it. Nothing is bound, received or sent.

use std::fs;

use reactor::{look_at_interface, may_open_links};
use serde::Serialize;
use wire::aoe::sectors_for_mtu;
use wire::ethernet::MacAddress;

use super::Look;
use crate::config::model::{Link, LinkAccess, LinkName};
use crate::run::RunError;

/// An interface, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LinkRow {
    /// Its name.
    pub(crate) aoe: String,
    /// 802.1Q; none takes frames without a tag.
    pub(crate) vlan: Option<u16>,
    /// `packet` or `xdp`.
    pub(crate) link: String,
    /// Its own address; none where it is not known.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header.
    pub(crate) mtu: Option<u32>,
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
}

impl Look<'_> {
    pub(super) fn links(&mut self) -> Vec<LinkRow> {
        let checked = self.checked;
        let mut rows = Vec::new();
        for link in &checked.args.links {
            let mut row = LinkRow {
                aoe: link.name.interface.clone(),
                vlan: link.name.vlan,
                link: link.access.to_string(),
                ..LinkRow::default()
            };
            match self.link(link, &mut row) {
                Ok(finding) => row.finding = finding,
                Err(error) => {
                    (row.finding, row.refused) = (format!("refused: {error}"), true);
                    self.mistakes.push(error.at(checked.places.link(&link.name)));
                }
            }
            rows.push(row);
        }
        rows
    }

    fn link(&self, link: &Link, row: &mut LinkRow) -> Result<String, RunError> {
        let LinkName { interface, .. } = &link.name;
        let is_served =
            self.served.is_some_and(|served| served.links.iter().any(|one| one.name == link.name));
        let fail = |why: String| RunError::new(format!("listener aoe {}: {why}", link.name));
        let facts = match look_at_interface(interface) {
            Ok(facts) => facts,
            // It may be in a network namespace of its own.
            Err(_) if is_served => return Ok("the server has it now".to_owned()),
            Err(error) => return Err(fail(error.to_string()).help("`ip -br link` shows them")),
        };
        (row.mac, row.mtu) = (Some(MacAddress(facts.mac).to_string()), Some(facts.mtu));
        let sectors = sectors_for_mtu(facts.mtu);
        if sectors == 0 {
            return Err(fail(format!("expected an MTU that carries a sector, seen {}", facts.mtu)));
        }
        if is_served {
            return Ok(format!("the server has it now, {sectors} sectors a frame"));
        }
        let rights = match (may_open_links(), self.served) {
            (Ok(()), _) => "",
            // The server's user may have what this one lacks.
            (Err(_), Some(_)) => "; this user may not open it, which is for the server to try",
            (Err(error), None) => return Err(fail(error.to_string())),
        };
        let state = if facts.up { "up" } else { "down: it is answered on once it is up" };
        let bridge = match (link.access, bridge_of(interface)) {
            (LinkAccess::Packet, Some(bridge)) => {
                format!(
                    "; deaf: it is a port of the bridge {bridge}, which takes its frames: name {bridge}"
                )
            }
            _ => String::new(),
        };
        Ok(format!("{state}, {sectors} sectors a frame{bridge}{rights}"))
    }
}

/// The bridge that an interface is a port of, as far as the system shows it.
fn bridge_of(interface: &str) -> Option<String> {
    let bridge = fs::read_link(format!("/sys/class/net/{interface}/brport/bridge")).ok()?;
    Some(bridge.file_name()?.to_string_lossy().into_owned())
}
