//! What `status` says of AoE: volumes at a shelf and slot, and what their target did and dropped.

use std::collections::BTreeMap;

use ::aoe::ExportId;
use ::aoe::server::Traffic;
use block::ByteCount;
use comfy_table::Table;
use contract::Counters;
use serde::{Deserialize, Serialize};
use shard::Report;
use utoipa::ToSchema;

use crate::config::link::{Ethernet, PSEUDOWIRE_PREFIX};
use crate::control::{Keyed, counted, table_of};
use crate::run::Running;

type TrafficKeys = Keyed<Traffic>;

/// The keys stay: later versions add some and rename none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = AoeStatus)]
pub(crate) struct Status {
    /// Volumes at a shelf and slot.
    aoe_exports: Vec<Export>,
    /// What the target did, by the name of the counter; what was never counted is left out.
    aoe_counters: BTreeMap<String, u64>,
    /// Frames that the target dropped in silence, by the reason.
    pub(crate) aoe_drops: BTreeMap<String, u64>,
}

/// A volume at a shelf and slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = AoeExport)]
struct Export {
    shelf: u16,
    slot: u8,
    /// Where it answers; a pseudowire as `pw:` and its name.
    interfaces: Vec<String>,
    /// 802.1Q on all of them.
    vlan: Option<u16>,
    /// The volume's name.
    volume: String,
    /// `any`, `none` or MAC addresses.
    hosts: String,
    /// Commands that it says it holds.
    buffers: u16,
    #[serde(flatten)]
    traffic: TrafficKeys,
}

impl Status {
    pub(crate) fn of(running: &Running, reports: &[Report]) -> Self {
        let all = || reports.iter().map(|report| &report.protocols.aoe);
        let exports = running.exports().filter_map(|open| {
            let config = open.config.as_aoe()?;
            let number = ExportId(open.number);
            let traffic = all().flat_map(|one| &one.exports).filter(|(id, _)| *id == number);
            let links: Vec<&Ethernet> = running.ethernets(&config.links).collect();
            let carried = config.links.iter().filter(|name| name.starts_with(PSEUDOWIRE_PREFIX));
            Some(Export {
                shelf: config.address.shelf,
                slot: config.address.slot,
                interfaces: links
                    .iter()
                    .map(|ethernet| ethernet.interface.clone())
                    .chain(carried.cloned())
                    .collect(),
                vlan: links.first().and_then(|ethernet| ethernet.vlan),
                volume: config.volume.clone(),
                hosts: config.hosts.to_string(),
                buffers: config.buffers,
                traffic: Keyed::sum(traffic.map(|(_, traffic)| *traffic)),
            })
        });
        Self {
            aoe_exports: exports.collect(),
            aoe_counters: counted(all().flat_map(|one| one.counters.each())),
            aoe_drops: counted(all().flat_map(|one| one.drops.each())),
        }
    }

    pub(crate) fn tables(&self) -> [(&'static str, Table); 1] {
        let exports = table_of(
            &self.aoe_exports,
            &[
                ("aoe", |one| format!("{}.{}", one.shelf, one.slot)),
                ("on", |one| {
                    let vlan = one.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
                    format!("{}{vlan}", one.interfaces.join(" "))
                }),
                ("volume", |one| one.volume.clone()),
                ("hosts", |one| one.hosts.clone()),
                ("buffers", |one| one.buffers.to_string()),
                ("reads", |one| one.traffic.reads.to_string()),
                ("writes", |one| one.traffic.writes.to_string()),
                ("read", |one| ByteCount(one.traffic.read_bytes).to_string()),
                ("written", |one| ByteCount(one.traffic.write_bytes).to_string()),
                ("over buffers", |one| one.traffic.over_buffers.to_string()),
            ],
        );
        [("aoe exports", exports)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay() {
        let status = Status { aoe_exports: vec![Export::default()], ..Status::default() };
        let status = serde_json::to_value(&status).expect("JSON");
        assert!(status.get("aoe_counters").is_some() && status.get("aoe_drops").is_some());
        for key in ["reads", "writes", "read_bytes", "write_bytes", "over_buffers"] {
            assert!(status["aoe_exports"][0].get(key).is_some(), "{key} is gone: {status}");
        }
    }
}
