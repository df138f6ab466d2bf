//! What `status` says of iSCSI: LUNs that hosts may see, and sessions of hosts.

use std::collections::BTreeMap;

use comfy_table::Table;
use contract::Counters;
use reservation::Registrant;
use serde::{Deserialize, Serialize};
use shard::Report;
use utoipa::ToSchema;

use super::chap::ChapConfig;
use crate::control::{counted, table_of};
use crate::protocols::Session;
use crate::run::Running;

/// The keys stay: later versions add some and rename none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = IscsiStatus)]
pub(crate) struct Status {
    /// LUNs that hosts may see.
    #[serde(default)]
    iscsi_luns: Vec<Lun>,
    /// Sessions of hosts.
    #[serde(default)]
    iscsi_sessions: Vec<Login>,
    /// What all connections did, by the name of the counter; what was never counted is left out.
    #[serde(default)]
    iscsi_counters: BTreeMap<String, u64>,
}

/// A logical unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = IscsiLun)]
struct Lun {
    /// The target's name.
    target: String,
    /// Its number there.
    lun: u16,
    /// The volume's name.
    volume: String,
    /// `any`, `none` or initiator names.
    hosts: String,
    /// As whom hosts have to log in to its target (CHAP), and as whom it proves itself in return;
    /// none where it asks nobody.
    #[serde(default)]
    chap: Option<String>,
    /// Sessions of hosts with this target.
    sessions: u64,
}

/// A host's session with a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = IscsiSession)]
struct Login {
    /// The target's name.
    target: String,
    /// The initiator's name.
    host: String,
    /// The name that the configuration gives that host, if it does.
    #[serde(default)]
    name: Option<String>,
    /// ISID in hexadecimal.
    isid: String,
    /// TSIH.
    tsih: u16,
    /// Its address.
    peer: String,
    /// LUNs that it may use.
    luns: u32,
    /// The shard that it is on.
    shard: u16,
}

impl Status {
    pub(crate) fn of(running: &Running, reports: &[Report]) -> Self {
        let all = || reports.iter().map(|report| &report.protocols.iscsi);
        let logins = all().flat_map(|report| &report.logins).map(|report| Login {
            target: report.nexus.target.to_string(),
            host: report.nexus.initiator.to_string(),
            name: running.name_of(report.nexus.initiator.as_str()),
            isid: report.nexus.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
            tsih: report.tsih,
            peer: report.peer.to_string(),
            luns: report.luns,
            shard: report.shard.0,
        });
        let logins: Vec<Login> = logins.collect();
        let exports = running.exports().filter_map(|open| open.config.as_iscsi());
        let luns = exports.map(|export| {
            let target = export.target.to_string();
            let mine = logins.iter().filter(|one| one.target == target);
            Lun {
                sessions: mine.count() as u64,
                target,
                lun: export.lun,
                volume: export.volume.clone(),
                hosts: export.hosts.to_string(),
                chap: export.chap.as_ref().map(ChapConfig::names),
            }
        });
        Self {
            iscsi_luns: luns.collect(),
            iscsi_sessions: logins,
            iscsi_counters: counted(all().flat_map(|report| report.sessions.each())),
        }
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = Session> {
        self.iscsi_sessions.iter().map(|login| Session {
            protocol: "iscsi",
            host: login.host.clone(),
            name: login.name.clone(),
            peer: login.peer.clone(),
            export: login.target.clone(),
            state: "logged in".to_owned(),
        })
    }

    pub(crate) fn tables(&self) -> [(&'static str, Table); 2] {
        let luns = table_of(
            &self.iscsi_luns,
            &[
                ("target", |one| one.target.clone()),
                ("LUN", |one| one.lun.to_string()),
                ("volume", |one| one.volume.clone()),
                ("hosts", |one| one.hosts.clone()),
                ("chap", |one| one.chap.clone().unwrap_or("none".to_owned())),
                ("sessions", |one| one.sessions.to_string()),
            ],
        );
        let sessions = table_of(
            &self.iscsi_sessions,
            &[
                ("host", |one| one.host.clone()),
                ("name", |one| one.name.clone().unwrap_or("-".to_owned())),
                ("address", |one| one.peer.clone()),
                ("target", |one| one.target.clone()),
                ("ISID", |one| one.isid.clone()),
                ("TSIH", |one| one.tsih.to_string()),
                ("LUNs", |one| one.luns.to_string()),
                ("shard", |one| one.shard.to_string()),
            ],
        );
        [("iscsi exports", luns), ("iscsi sessions", sessions)]
    }
}

/// What the initiator port of a session calls itself.
pub(crate) fn registrant_name(who: Registrant, reports: &[Report]) -> Option<String> {
    let logins = reports.iter().flat_map(|report| &report.protocols.iscsi.logins);
    let mut nexuses = logins.map(|login| &login.nexus);
    let name = nexuses.find(|nexus| nexus.registrant() == who)?.applicant().name?;
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay() {
        let (iscsi_luns, iscsi_sessions) = (vec![Lun::default()], vec![Login::default()]);
        let status = Status { iscsi_luns, iscsi_sessions, ..Status::default() };
        let status = serde_json::to_value(&status).expect("JSON");
        let has = |at: &serde_json::Value, keys: &[&str]| {
            keys.iter().for_each(|key| assert!(at.get(key).is_some(), "{key} is gone: {status}"));
        };
        has(&status, &["iscsi_luns", "iscsi_sessions", "iscsi_counters"]);
        has(&status["iscsi_luns"][0], &["target", "lun", "volume", "hosts", "chap", "sessions"]);
        let keys = ["target", "host", "isid", "tsih", "peer", "luns", "shard"];
        has(&status["iscsi_sessions"][0], &keys);
    }
}
