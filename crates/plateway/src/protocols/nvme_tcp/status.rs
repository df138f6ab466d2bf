//! What `status` says of NVMe: namespaces that hosts may see, and sessions of hosts.

use std::collections::BTreeMap;

use ::nvme::controllers::ControllerState;
use comfy_table::Table;
use contract::Counters;
use serde::{Deserialize, Serialize};
use shard::Report;
use utoipa::ToSchema;

use crate::control::{counted, table_of};
use crate::protocols::Session;
use crate::run::Running;

/// The keys stay: later versions add some and rename none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NvmeStatus)]
pub(crate) struct Status {
    /// Namespaces that hosts may see.
    exports: Vec<Export>,
    /// Sessions of hosts.
    controllers: Vec<Controller>,
    /// What all connections did, by the name of the counter; what was never counted is left out.
    #[serde(default)]
    nvme_counters: BTreeMap<String, u64>,
}

/// A namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NvmeExport)]
struct Export {
    /// SUBNQN.
    subsystem: String,
    /// NSID.
    nsid: u32,
    /// The volume's name.
    volume: String,
    /// `any`, `none` or NQNs.
    hosts: String,
    /// Controllers of hosts with this subsystem.
    controllers: u64,
}

/// A host's session with a subsystem.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NvmeController)]
struct Controller {
    /// SUBNQN.
    subsystem: String,
    /// CNTLID.
    controller: u16,
    /// HOSTNQN.
    host: String,
    /// The name that the configuration gives that host, if it does.
    #[serde(default)]
    name: Option<String>,
    /// HOSTID in hexadecimal.
    host_id: String,
    /// Its address.
    peer: String,
    /// What it is doing.
    state: String,
    /// KATO; 0 for none.
    keep_alive_ms: u32,
    /// I/O queues.
    queues: u64,
    /// The shard that owns it.
    shard: u16,
    /// Commands that failed, on whatever queue.
    errors: u64,
}

impl Status {
    pub(crate) fn of(running: &Running, reports: &[Report]) -> Self {
        let all = || reports.iter().map(|report| &report.protocols.nvme);
        let controllers = all().flat_map(|report| &report.controllers).map(|report| Controller {
            subsystem: report.subsystem.as_str().to_owned(),
            controller: report.controller,
            host: report.host.nqn.as_str().to_owned(),
            name: running.name_of(report.host.nqn.as_str()),
            host_id: report.host.id.iter().map(|byte| format!("{byte:02x}")).collect(),
            peer: report.peer.to_string(),
            state: match report.state {
                ControllerState::Disabled => "disabled",
                ControllerState::Ready => "ready",
                ControllerState::Resetting => "resetting",
                ControllerState::ShutDown => "shut down",
                ControllerState::Failed => "failed",
            }
            .to_owned(),
            keep_alive_ms: report.keep_alive_ms,
            queues: report.queues.len() as u64,
            shard: report.shard.0,
            errors: report.errors,
        });
        let controllers: Vec<Controller> = controllers.collect();
        let exports = running.exports().filter_map(|open| open.config.as_nvme());
        let exports = exports.map(|export| {
            let subsystem = export.subsystem.to_string();
            let mine = controllers.iter().filter(|one| one.subsystem == subsystem);
            Export {
                controllers: mine.count() as u64,
                subsystem,
                nsid: export.nsid,
                volume: export.volume.clone(),
                hosts: export.hosts.to_string(),
            }
        });
        Self {
            exports: exports.collect(),
            controllers,
            nvme_counters: counted(all().flat_map(|report| report.sessions.each())),
        }
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = Session> {
        self.controllers.iter().map(|controller| Session {
            protocol: "nvme",
            host: controller.host.clone(),
            name: controller.name.clone(),
            peer: controller.peer.clone(),
            export: controller.subsystem.clone(),
            state: controller.state.clone(),
        })
    }

    pub(crate) fn tables(&self) -> [(&'static str, Table); 2] {
        let exports = table_of(
            &self.exports,
            &[
                ("subsystem", |one| one.subsystem.clone()),
                ("namespace", |one| one.nsid.to_string()),
                ("volume", |one| one.volume.clone()),
                ("hosts", |one| one.hosts.clone()),
                ("sessions", |one| one.controllers.to_string()),
            ],
        );
        let sessions = table_of(
            &self.controllers,
            &[
                ("host", |one| one.host.clone()),
                ("name", |one| one.name.clone().unwrap_or("-".to_owned())),
                ("address", |one| one.peer.clone()),
                ("subsystem", |one| one.subsystem.clone()),
                ("controller", |one| one.controller.to_string()),
                ("state", |one| one.state.clone()),
                ("queues", |one| one.queues.to_string()),
                ("shard", |one| one.shard.to_string()),
                ("errors", |one| one.errors.to_string()),
            ],
        );
        [("exports", exports), ("sessions", sessions)]
    }
}
