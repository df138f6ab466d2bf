//! The label of a disk that is to be no member of a set any more: what it says, and its end. Data
//! stay where they are. Units: bytes. Where it is interrupted the second copy may be left, which is
//! a label still; the same again ends it.

use ::volume::assemble::Found;
use ::volume::label::{LABEL_OFFSETS, LABEL_SIZE};

use super::Running;
use super::error::RunError;
use super::look::Inventory;
use super::shards::ACCESS_LIMIT;

impl Running {
    /// The label of the disk that a volume is alone on, or what is left of one; none where there is
    /// no such thing.
    pub(crate) fn label_on(&self, volume: &str) -> Result<Option<Found>, RunError> {
        let config = &self.volume(volume)?.config;
        let found = self.examine(config, &config.layout.disks()[0])?;
        Ok(found.ok().filter(|found| matches!(found, Found::Label(_) | Found::Damaged(_))))
    }

    /// Puts zeros in the place of the label, durably.
    pub(crate) fn wipe_label(&self, volume: &str) -> Result<(), RunError> {
        let name = &self.volume(volume)?.config.layout.disks()[0];
        let whole = self.whole(&self.disk(name)?.part())?;
        let wiped = LABEL_OFFSETS
            .iter()
            .try_for_each(|at| self.shards.write(whole, *at, vec![0; LABEL_SIZE]));
        let wiped = wiped.and_then(|()| self.shards.flush(whole, ACCESS_LIMIT));
        let failed = |why| RunError::new(format!("disk {name}: cannot wipe its label: {why}"));
        self.drop_volume(whole, name)?;
        wiped.map_err(failed)
    }
}
