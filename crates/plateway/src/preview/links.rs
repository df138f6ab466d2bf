//! Links: whether each interface is there and up, and whether this user may open it. Nothing is bound, received or sent.

use std::fs;

use reactor::{look_at_interface, may_open_links};
use serde::Serialize;
use wire::ethernet::MacAddress;

use super::{Examined, Finding};
use crate::config::link::{LinkAccess, LinkConfig};
use crate::config::thing::Configured;
use crate::protocols::carried_on;
use crate::run::RunError;

/// A link, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LinkRow {
    pub(crate) name: String,
    /// Its interface, under the key of the `[[listener]]` that it was once written as.
    #[serde(rename = "aoe")]
    pub(crate) interface: String,
    /// 802.1Q; none takes frames without a tag.
    pub(crate) vlan: Option<u16>,
    /// `packet` or `xdp`.
    pub(crate) link: String,
    /// Its own address; none where it is not known.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header.
    pub(crate) mtu: Option<u32>,
    #[serde(flatten)]
    pub(crate) found: Finding,
}

impl LinkRow {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self {
            name: config.name.clone(),
            interface: config.ethernet.interface.clone(),
            vlan: config.ethernet.vlan,
            link: config.access.to_string(),
            ..Self::default()
        }
    }
}

impl Examined<'_> {
    pub(super) fn link(&self, link: &LinkConfig, row: &mut LinkRow) -> Result<String, RunError> {
        let interface = &link.ethernet.interface;
        let is_it = |other: &LinkConfig| other.ethernet == link.ethernet;
        let is_served = self.served.is_some_and(|served| served.links.iter().any(is_it));
        let fail = |why: String| RunError::new(format!("{}: {why}", link.title()));
        let facts = match look_at_interface(interface) {
            Ok(facts) => facts,
            // It may be in a network namespace of its own.
            Err(_) if is_served => return Ok("the server has it now".to_owned()),
            Err(error) => return Err(fail(error.to_string()).help("`ip -br link` shows them")),
        };
        (row.mac, row.mtu) = (Some(MacAddress(facts.mac).to_string()), Some(facts.mtu));
        let carried = carried_on(facts.mtu).map_err(fail)?;
        if is_served {
            return Ok(format!("the server has it now, {carried}"));
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
        Ok(format!("{state}, {carried}{bridge}{rights}"))
    }
}

/// The bridge that an interface is a port of, as far as the system shows it.
fn bridge_of(interface: &str) -> Option<String> {
    let bridge = fs::read_link(format!("/sys/class/net/{interface}/brport/bridge")).ok()?;
    Some(bridge.file_name()?.to_string_lossy().into_owned())
}
