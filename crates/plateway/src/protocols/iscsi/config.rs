//! The logical units of a configuration: `iscsi` of an `[[export]]`.
//!
//! A host logs in to a target and then sees those of its LUNs that name it (LUN masking), so the
//! exports of one target may name different hosts. How a host proves who it is (`chap`) is the
//! target's, so all of its exports say the same.

use scsi::limits::LUN_MAX;
use shard::Protocol;
use toml::Spanned;
use wire::iscsi::IscsiName;

use super::chap::{self, ChapConfig, LowChap};
use crate::config::export::{HostWords, Hosts, LowExport};
use crate::config::file::{Low, LowArgs, LowWords, NUMBER, TableReader, Written};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::text::quoted;
use crate::config::thing::{Configured, Thing};
use crate::config::volume::volume_title;
use crate::protocols::{ExportConfig, need_listener};

pub(crate) const EXAMPLE: &str =
    "iscsi = { target = \"iqn.2026-11.net.plateway:v0\", lun = 0, hosts = \"any\" }";

/// `iscsi` of an `[[export]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowUnit {
    /// Of the whole value.
    pub(crate) span: Span,
    pub(crate) target: Low<String>,
    pub(crate) lun: Low<i64>,
    pub(crate) hosts: Low<LowWords>,
    pub(crate) chap: Option<LowChap>,
    pub(crate) set_groups: Low<bool>,
}

impl Written for LowUnit {
    const TITLE: &'static str = "iscsi of [[export]]";
    const KEYS: &'static [&'static str] = &["target", "lun", "hosts", "chap", "set_groups"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            target: table.take("target", "an iSCSI name in quotes"),
            lun: table.take("lun", NUMBER),
            hosts: table.take("hosts", "\"any\" or a list of initiator names"),
            chap: table.table("chap"),
            set_groups: table.take("set_groups", "true or false"),
        }
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
    /// How hosts prove to the target who they are; `None`: they need not.
    pub(crate) chap: Option<ChapConfig>,
    /// Whether its hosts may set the states of groups of listeners.
    pub(crate) set_groups: bool,
}

impl Configured for UnitConfig {
    fn title(&self) -> String {
        format!("export {}: {} LUN {}", self.volume, self.target, self.lun)
    }

    fn details(&self) -> String {
        let chap = self.chap.as_ref().map(|chap| format!(", chap {chap}"));
        let set_groups = if self.set_groups { ", set_groups" } else { "" };
        chap.unwrap_or_default() + set_groups
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![
            ("hosts", self.hosts.to_string()),
            ("chap", chap::shown(self.chap.as_ref())),
            ("set_groups", self.set_groups.to_string()),
        ]
    }

    fn proof(&self) -> Option<&ChapConfig> {
        self.chap.as_ref()
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
        let chap = self.chap.as_ref().map(|chap| format!(", chap = {}", chap.text()));
        let chap = chap.unwrap_or_default();
        let set_groups = if self.set_groups { ", set_groups = true" } else { "" };
        format!(
            "[[export]]\nvolume = {volume}\niscsi = {{ target = {target}, lun = {lun}, hosts = {hosts}{chap}{set_groups} }}\n"
        )
    }
}

/// An export and where it was written.
struct Seen {
    export: UnitConfig,
    volume_at: Span,
    lun_at: Span,
    /// Of `chap`; of the whole where it has none.
    chap_at: Span,
}

const HOSTS: HostWords = HostWords {
    names: "initiator names",
    key: "iscsi",
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
        // One that is wrong must not be taken for none.
        let chap = match &iscsi.chap {
            Some(low) => Some(self.chap(low)?),
            None => None,
        };
        let volume = low.volume.as_ref()?;
        let export = UnitConfig {
            volume: volume.get_ref().clone(),
            target: target?,
            lun: lun?,
            hosts,
            chap,
            set_groups: iscsi.set_groups.as_ref().is_some_and(|written| *written.get_ref()),
        };
        let chap_at = iscsi.chap.as_ref().map_or(&iscsi.span, |low| &low.span).clone();
        self.place(export.title(), "", iscsi.span.clone());
        self.place(export.title(), "chap", chap_at.clone());
        Some(Seen {
            export,
            volume_at: volume.span(),
            lun_at: iscsi.lun.as_ref().map_or(iscsi.span.clone(), Spanned::span),
            chap_at,
        })
    }

    pub(in crate::protocols) fn iscsi_name(
        &mut self,
        written: &Spanned<String>,
    ) -> Option<IscsiName> {
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
        if let Some(old) = family().next().filter(|old| old.export.chap != export.chap) {
            let [here, there] = [export, &old.export].map(|one| chap::shown(one.chap.as_ref()));
            let message =
                format!("chap of {}: {here} here, {there} in another export", export.target);
            let help = "a host logs in to the target as a whole: write the same chap in all of its exports";
            self.push(Mistake::error(new.chap_at.clone(), message).first(&old.chap_at).help(help));
        }
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
