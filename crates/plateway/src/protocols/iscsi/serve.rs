//! Logical units on the shards: a target is shown with all of its LUNs, and hosts are told of the
//! difference.

use ::iscsi::target::{Hosts, Target, Unit};
use block::{BlockSize, ByteCount};
use scsi::{LogicalUnit, ModeState};
use shard::{Export, ExportKey, Order, Report};
use wire::iscsi::IscsiName;

use super::config::UnitConfig;
use crate::config::address::HostPort;
use crate::config::export;
use crate::protocols::connect::{ClientKind, Guide, Reached};
use crate::protocols::{ExportConfig, Exported};
use crate::run::{RunError, Running};

impl Exported for UnitConfig {
    fn protocol(&self) -> &'static str {
        super::HOST_WORD.1
    }

    fn stream_key(&self) -> Option<&'static str> {
        Some("iscsi")
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
        let hosts = self.hosts.with(host.parse::<IscsiName>().ok()?, may);
        Some(hosts.map(|hosts| ExportConfig::Iscsi(UnitConfig { hosts, ..self.clone() })))
    }

    fn host_word(&self) -> &'static str {
        super::HOST_WORD.0
    }

    fn shares_hosts(&self, other: &ExportConfig) -> bool {
        other.as_iscsi().is_some_and(|other| self == other)
    }

    fn users(&self, _: u32, to: Option<&ExportConfig>, reports: &[Report]) -> Vec<String> {
        let may = |hosts: &export::Hosts<IscsiName>, host: &IscsiName| match hosts {
            export::Hosts::Any => true,
            export::Hosts::List(list) => list.contains(host),
        };
        let stays = |host: &IscsiName| {
            to.and_then(ExportConfig::as_iscsi).is_some_and(|to| may(&to.hosts, host))
        };
        let all = reports.iter().flat_map(|report| &report.protocols.iscsi.logins);
        let mine = all.filter(|one| one.nexus.target == self.target);
        let mine = mine.filter(|one| may(&self.hosts, &one.nexus.initiator));
        let gone = mine.filter(|one| !stays(&one.nexus.initiator));
        gone.map(|one| format!("host {} at {}", one.nexus.initiator, one.peer)).collect()
    }

    fn shown(&self) -> [String; 3] {
        [self.target.to_string(), self.lun.to_string(), self.hosts.to_string()]
    }

    fn show(&self, running: &Running, number: u32, _: bool) -> Result<(), RunError> {
        self.set(running, number, Some(self))
    }

    fn hide(&self, running: &Running, number: u32) -> Result<(), RunError> {
        self.set(running, number, None)
    }
}

impl UnitConfig {
    /// Shows the target with `own` in the place of this export; without any LUN there is none.
    fn set(&self, running: &Running, number: u32, own: Option<&Self>) -> Result<(), RunError> {
        let others = running.exports().filter(|open| open.number != number);
        let others = others.filter_map(|open| open.config.as_iscsi());
        let left: Vec<&Self> = others.filter(|other| other.target == self.target).collect();
        let mut target: Option<Target> = None;
        for one in left.iter().copied().chain(own) {
            let unit = one.unit(running)?;
            let all = target.unwrap_or_else(|| Target::new(self.target.clone()));
            target = Some(all.with_unit(unit));
        }
        // All exports say the same, or will: those that are changed after this one.
        let chap = own.or(left.first().copied()).and_then(|one| one.chap.as_ref());
        let required = chap.map(|chap| running.secrets().required(chap));
        if let Some(target) = &mut target {
            target.required = required;
        }
        running.order(&format!("show target {}", self.target), || match &target {
            Some(target) => Order::SetExport(Export::Iscsi(Box::new(target.clone()))),
            None => Order::RemoveExport(ExportKey::Iscsi(self.target.clone())),
        })
    }

    /// What to type on a host.
    pub(crate) fn hint(&self, address: &HostPort) -> String {
        self.login(address).join(" && ")
    }

    fn unit(&self, running: &Running) -> Result<Unit, RunError> {
        let facts = running.volume_facts(&self.volume)?;
        let block_size = BlockSize::new(u64::from(facts.block_size)).unwrap_or(BlockSize::B512);
        let hosts = match &self.hosts {
            export::Hosts::Any => Hosts::Any,
            export::Hosts::List(list) => Hosts::List(list.clone()),
        };
        let unit = LogicalUnit {
            volume: facts.id,
            uuid: facts.uuid.into_bytes(),
            block_size,
            blocks: block_size.blocks_in(ByteCount(facts.bytes)),
            read_only: facts.read_only,
            cache_volatile: facts.cache_volatile,
            discards: facts.discards,
            discard_zeroes: facts.discard_zeroes,
            physical_block: facts.physical_block,
            hosts_set_paths: self.set_groups,
            mode: ModeState::default(),
        };
        Ok(Unit { lun: self.lun, hosts, unit })
    }
}
