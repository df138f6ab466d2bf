//! The logical units of a configuration: `iscsi` of an `[[export]]`.
//!
//! A host logs in to a target and then sees those of its LUNs that name it (LUN masking), so the
//! exports of one target may name different hosts.

use scsi::limits::LUN_MAX;
use shard::Protocol;
use toml::Spanned;
use wire::iscsi::IscsiName;

use crate::config::export::{HostWords, Hosts, LowExport};
use crate::config::file::{LowArgs, LowWords, NUMBER, table};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::text::quoted;
use crate::config::thing::{Configured, Thing};
use crate::config::volume::volume_title;
use crate::protocols::{ExportConfig, need_listener};

pub(crate) const EXAMPLE: &str =
    "iscsi = { target = \"iqn.2026-11.net.plateway:v0\", lun = 0, hosts = \"any\" }";

table! {
    LowUnit = "iscsi of [[export]]" {
        target: String = "an iSCSI name in quotes",
        lun: i64 = NUMBER,
        hosts: LowWords = "\"any\" or a list of initiator names",
    }
}

/// A volume as a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitConfig {
    /// The volume, which exists.
    pub(crate) volume: String,
    pub(crate) target: IscsiName,
    /// 0 to [`LUN_MAX`], unique in its target.
    pub(crate) lun: u16,
    /// Who may use it.
    pub(crate) hosts: Hosts<IscsiName>,
}

impl Configured for UnitConfig {
    fn title(&self) -> String {
        format!("export {}: {} LUN {}", self.volume, self.target, self.lun)
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![("hosts", self.hosts.to_string())]
    }

    fn stands_on(&self) -> Vec<String> {
        vec![volume_title(&self.volume)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        let Thing::Export(ExportConfig::Iscsi(other)) = other else { return false };
        self.target == other.target && (self.lun == other.lun || self.volume == other.volume)
    }

    fn text(&self) -> String {
        let (volume, target) = (quoted(&self.volume), quoted(self.target.as_str()));
        let (lun, hosts) = (self.lun, self.hosts.text());
        format!(
            "[[export]]\nvolume = {volume}\niscsi = {{ target = {target}, lun = {lun}, hosts = {hosts} }}\n"
        )
    }
}

/// An export and where it was written.
struct Seen {
    export: UnitConfig,
    volume_at: Span,
    lun_at: Span,
}

const HOSTS: HostWords = HostWords {
    names: "initiator names",
    nobody: "no host may log in",
    host: "host",
    help: "name them as in their /etc/iscsi/initiatorname.iscsi: hosts = [\"iqn...\"], or hosts = \"any\" (as a flag: --hosts any)",
    is_one: super::is_name,
};

/// The logical units, in order.
pub(crate) fn resolve(resolver: &mut Resolver<'_>, low: &LowArgs) -> Vec<UnitConfig> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut is_whole = true;
    for one in low.exports.iter().filter(|one| one.by.iscsi.is_some()) {
        match resolver.unit(one) {
            Some(export) => {
                resolver.compare_unit(&export, &seen);
                seen.push(export);
            }
            None => is_whole = false,
        }
    }
    // One that is wrong may be the one that is missed.
    if is_whole {
        resolver.warn_without_lun_0(&seen);
    }
    need_listener(resolver, low, Protocol::Iscsi, |by| by.iscsi.is_some());
    seen.into_iter().map(|one| one.export).collect()
}

impl Resolver<'_> {
    fn unit(&mut self, low: &LowExport) -> Option<Seen> {
        let iscsi = low.by.iscsi.as_ref()?;
        let target = match &iscsi.target {
            Some(written) => self.iscsi_name(written),
            None => {
                let example = "target = \"iqn.2026-11.net.plateway:v0\"";
                self.missing(&iscsi.span, "iscsi of [[export]]", "target", example);
                None
            }
        };
        let lun = self.number(&iscsi.lun, "lun", 0..=u64::from(LUN_MAX));
        let lun = lun.map(|lun| u16::try_from(lun).unwrap_or(LUN_MAX));
        if iscsi.lun.is_none() {
            self.missing(&iscsi.span, "iscsi of [[export]]", "lun", "lun = 0");
        }
        let hosts = self.hosts(&iscsi.hosts, &iscsi.span, &HOSTS, Self::iscsi_name);
        let volume = low.volume.as_ref()?;
        Some(Seen {
            export: UnitConfig {
                volume: volume.get_ref().clone(),
                target: target?,
                lun: lun?,
                hosts,
            },
            volume_at: volume.span(),
            lun_at: iscsi.lun.as_ref().map_or(iscsi.span.clone(), Spanned::span),
        })
    }

    fn iscsi_name(&mut self, written: &Spanned<String>) -> Option<IscsiName> {
        match super::name(written.get_ref()) {
            Ok(name) => Some(name),
            Err((message, offset)) => {
                let span = self.within(written, offset..written.get_ref().len());
                self.error(span, message);
                None
            }
        }
    }

    /// Compares an export with those before it.
    fn compare_unit(&mut self, new: &Seen, seen: &[Seen]) {
        let (export, at) = (&new.export, new.volume_at.clone());
        let family = || seen.iter().filter(|old| old.export.target == export.target);
        if let Some(old) = family().find(|old| old.export.lun == export.lun) {
            let message = format!("{} has a LUN {} already", export.target, export.lun);
            self.push(Mistake::error(new.lun_at.clone(), message).first(&old.lun_at));
        } else if let Some(old) = family().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in {} twice", export.volume, export.target);
            let help = "hosts take two LUNs of one identity for two paths to one disk";
            self.push(Mistake::error(at, message).first(&old.volume_at).help(help));
        } else if let Some(old) = seen.iter().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in two targets", export.volume);
            let help = "a host that logs in to both takes them for two paths to one disk";
            self.push(Mistake::warning(at, message).first(&old.volume_at).help(help));
        }
    }

    fn warn_without_lun_0(&mut self, seen: &[Seen]) {
        for (at, one) in seen.iter().enumerate() {
            let mine = |other: &&Seen| other.export.target == one.export.target;
            let is_first = !seen[..at].iter().any(|other| mine(&other));
            if is_first && !seen.iter().filter(mine).any(|other| other.export.lun == 0) {
                let message = format!("no LUN 0 in {}", one.export.target);
                let help = "some hosts look for LUNs by asking LUN 0: give a volume lun = 0";
                self.push(Mistake::warning(one.lun_at.clone(), message).help(help));
            }
        }
    }
}
