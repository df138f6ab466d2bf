//! Exports: shown to hosts, shown otherwise, and hidden, each by the orders of its protocol.
//!
//! Here is what all protocols have in common: a quiesced volume is resumed before it is shown, one
//! that is about to be removed is quiesced before hosts hear of it, and the book changes when all
//! shards have answered. If not all do, all are told again what is in the book. Hosts are told of a
//! change only when all shards have it: they look at once, and any shard may be asked.

use shard::Order;

use super::error::RunError;
use super::look::Inventory;
use super::shape::{self, VolumeFacts};
use super::{OpenVolume, Running};
use crate::protocols::ExportConfig;

/// Looks at what an export takes beside its volume, which was looked at, and its links.
pub(crate) fn look(config: &ExportConfig, inventory: &impl Inventory) -> Result<(), RunError> {
    match inventory.served() {
        Some(served) if served.args.exports.contains(config) => Ok(()),
        _ => config.look(inventory),
    }
}

/// An export that hosts are shown.
#[derive(Debug)]
pub(crate) struct OpenExport {
    /// Never used again, so that what is late for an old one finds nothing.
    pub(crate) number: u32,
    pub(crate) config: ExportConfig,
}

impl Running {
    pub(super) fn add_export(&mut self, config: &ExportConfig) -> Result<(), RunError> {
        if self.volume(config.volume())?.quiesced {
            // Its removal was begun and is being undone.
            self.resume_volume(config.volume())?;
        }
        look(config, self)?;
        let number = self.numbers.export.next();
        self.show(config, number, true).inspect_err(|_| drop(self.hide(config, number)))?;
        let open = OpenExport { number, config: config.clone() };
        self.exports.insert(config.title(), open);
        Ok(())
    }

    /// `going` are volumes that a later step removes.
    pub(super) fn remove_export(
        &mut self,
        config: &ExportConfig,
        going: &[String],
    ) -> Result<(), RunError> {
        let volume = config.volume();
        let is_last = self.exports_of(volume).count() == 1;
        if is_last && config.is_quiesced_first() && going.iter().any(|going| going == volume) {
            self.quiesce_volume(volume)?;
        }
        let Some(number) = self.exports.get(&config.title()).map(|open| open.number) else {
            return Ok(());
        };
        if let Err(error) = self.hide(config, number) {
            let _ = self.hide(config, number);
            // Under another number: what is late for this one finds nothing.
            let number = self.numbers.export.next();
            self.exports[&config.title()].number = number;
            let _ = self.show(config, number, true);
            return Err(error);
        }
        self.exports.shift_remove(&config.title());
        Ok(())
    }

    pub(super) fn change_export(&mut self, to: &ExportConfig) -> Result<(), RunError> {
        let Some(OpenExport { number, config }) = self.exports.get(&to.title()) else {
            return self.add_export(to);
        };
        self.show(to, *number, false).inspect_err(|_| drop(self.show(config, *number, false)))?;
        self.exports[&to.title()].config.clone_from(to);
        Ok(())
    }

    /// Shows hosts a volume as it is now, wherever it is exported.
    pub(super) fn renew_exports_of(&self, volume: &str) -> Result<(), RunError> {
        let mut mine = self.exports_of(volume);
        mine.try_for_each(|open| self.show(&open.config, open.number, false))
    }

    /// Shows an export once more, as it is now.
    pub(super) fn renew_export(&self, config: &ExportConfig) -> Result<(), RunError> {
        let Some(open) = self.exports.get(&config.title()) else { return Ok(()) };
        self.show(config, open.number, false)
    }

    fn show(&self, config: &ExportConfig, number: u32, is_new: bool) -> Result<(), RunError> {
        config.show(self, number, is_new)?;
        self.announce(config)
    }

    fn hide(&self, config: &ExportConfig, number: u32) -> Result<(), RunError> {
        config.hide(self, number)?;
        self.announce(config)
    }

    fn announce(&self, config: &ExportConfig) -> Result<(), RunError> {
        self.order(&format!("announce {}", config.title()), || Order::AnnounceExports)
    }

    fn exports_of(&self, volume: &str) -> impl Iterator<Item = &OpenExport> {
        self.exports.values().filter(move |open| open.config.volume() == volume)
    }

    /// What is exported, in the order of the configuration.
    pub(crate) fn exports(&self) -> impl Iterator<Item = &OpenExport> {
        self.exports.values()
    }

    /// What an export tells of its volume.
    pub(crate) fn volume_facts(&self, name: &str) -> Result<VolumeFacts, RunError> {
        let OpenVolume { id, config, layout, uuid, .. } = self.volume(name)?;
        shape::facts(config, *id, *uuid, layout, &self.parts(config)?)
    }
}
