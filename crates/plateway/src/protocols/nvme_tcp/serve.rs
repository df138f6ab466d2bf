//! Namespaces on the shards: a subsystem is shown with all of its namespaces, and hosts get the
//! event from the difference.

use ::nvme::subsystem::{Hosts, Namespace, Subsystem};
use block::{BlockSize, ByteCount};
use shard::{Export, ExportKey, Order, Report};

use super::config::NamespaceConfig;
use super::nqn::Nqn;
use crate::config::address::HostPort;
use crate::config::export;
use crate::protocols::connect::{ClientKind, Guide, Reached};
use crate::protocols::{ExportConfig, Exported};
use crate::run::{RunError, Running};

impl Exported for NamespaceConfig {
    fn protocol(&self) -> &'static str {
        super::HOST_WORD.1
    }

    fn stream_key(&self) -> Option<&'static str> {
        Some("nvme")
    }

    fn guide(&self, client: ClientKind, reached: &Reached<'_>) -> Guide {
        self.guide_for(client, reached)
    }

    fn volume(&self) -> &str {
        &self.volume
    }

    fn is_quiesced_first(&self) -> bool {
        true
    }

    fn with_host(&self, host: &str, may: bool) -> Option<Result<ExportConfig, String>> {
        let hosts = self.hosts.with(host.parse::<Nqn>().ok()?, may);
        Some(hosts.map(|hosts| ExportConfig::NvmeTcp(NamespaceConfig { hosts, ..self.clone() })))
    }

    fn host_word(&self) -> &'static str {
        super::HOST_WORD.0
    }

    fn shares_hosts(&self, other: &ExportConfig) -> bool {
        other.as_nvme().is_some_and(|other| other.subsystem == self.subsystem)
    }

    fn users(&self, _: u32, to: Option<&ExportConfig>, reports: &[Report]) -> Vec<String> {
        let stays = |host: &str| match to.and_then(ExportConfig::as_nvme).map(|to| &to.hosts) {
            None => false,
            Some(export::Hosts::Any) => true,
            Some(export::Hosts::List(list)) => list.iter().any(|nqn| nqn.as_str() == host),
        };
        let all = reports.iter().flat_map(|report| &report.protocols.nvme.controllers);
        let mine = all.filter(|one| one.subsystem.as_str() == self.subsystem.as_str());
        let gone = mine.filter(|one| !stays(one.host.nqn.as_str()));
        gone.map(|one| format!("host {} at {}", one.host.nqn.as_str(), one.peer)).collect()
    }

    fn shown(&self) -> [String; 3] {
        [self.subsystem.to_string(), self.nsid.to_string(), self.hosts.to_string()]
    }

    fn show(&self, running: &Running, number: u32, _: bool) -> Result<(), RunError> {
        self.set(running, number, Some(self))
    }

    fn hide(&self, running: &Running, number: u32) -> Result<(), RunError> {
        self.set(running, number, None)
    }
}

impl NamespaceConfig {
    /// Shows the subsystem with `own` in the place of this export; without any namespace there is
    /// none.
    fn set(&self, running: &Running, number: u32, own: Option<&Self>) -> Result<(), RunError> {
        let others = running.exports().filter(|open| open.number != number);
        let others = others.filter_map(|open| open.config.as_nvme());
        let all = others.filter(|other| other.subsystem == self.subsystem).chain(own);
        let mut subsystem: Option<Subsystem> = None;
        for one in all {
            let hosts = match &one.hosts {
                export::Hosts::Any => Hosts::Any,
                export::Hosts::List(list) => Hosts::List(list.iter().map(Nqn::to_wire).collect()),
            };
            let namespace = one.namespace(running)?;
            let all =
                subsystem.unwrap_or_else(|| Subsystem::new(self.subsystem.to_wire(), Hosts::Any));
            // Where hosts change, one export after the other, the last word is that of the one that
            // changes.
            subsystem = Some(Subsystem { hosts, ..all.with_namespace(namespace) });
        }
        running.order(&format!("show subsystem {}", self.subsystem), || match &subsystem {
            Some(subsystem) => Order::SetExport(Export::Nvme(Box::new(subsystem.clone()))),
            None => Order::RemoveExport(ExportKey::Nvme(self.subsystem.to_wire())),
        })
    }

    /// What to type on a host.
    pub(crate) fn hint(&self, HostPort { host, tcp_port }: &HostPort) -> String {
        format!("nvme connect -t tcp -a {host} -s {tcp_port} -n {}", self.subsystem)
    }

    fn namespace(&self, running: &Running) -> Result<Namespace, RunError> {
        let facts = running.volume_facts(&self.volume)?;
        let block_size = BlockSize::new(u64::from(facts.block_size)).unwrap_or(BlockSize::B512);
        Ok(Namespace {
            nsid: self.nsid,
            volume: facts.id,
            uuid: facts.uuid.into_bytes(),
            block_size,
            blocks: block_size.blocks_in(ByteCount(facts.bytes)),
            read_only: facts.read_only,
            cache_volatile: facts.cache_volatile,
            discards: facts.discards,
            discard_zeroes: facts.discard_zeroes,
            physical_block: facts.physical_block,
        })
    }
}
