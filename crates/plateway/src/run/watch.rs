//! What a measurement wants to know of the machine below it: how late instruments told what they held
//! back, and for how long the shards' processors stood still while they looked for more.
//!
//! Units: whole microseconds of lateness; nanoseconds. Errors: a volume that is not there.

use super::Running;
use super::error::RunError;
use crate::config::volume::Layout;

/// What was counted so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sighting {
    /// How many answers were told 0, 1, 2 and so on microseconds after they were due; of a volume of one
    /// disk here that has instruments.
    pub(crate) late: Option<Vec<u64>>,
    /// For how long the shards looked for more, all of them together.
    pub(crate) looked_ns: u64,
    /// How often their processors stood still in that time, and for how long.
    pub(crate) pauses: u64,
    pub(crate) paused_ns: u64,
}

impl Running {
    /// What looks at a volume and the shards, any number of times. To be dropped, or no more called,
    /// before the shards are shut down.
    pub(crate) fn watch(
        &self,
        volume: &str,
    ) -> Result<impl Fn() -> Sighting + Send + 'static, RunError> {
        let disk = match &self.volume(volume)?.config.layout {
            Layout::Single { disk } => self.disk(disk)?.local.clone(),
            _ => None,
        };
        let shards = self.shards.watch();
        Ok(move || {
            let late = disk.as_ref().and_then(|disk| disk.late());
            let mut seen = Sighting { late, ..Sighting::default() };
            for shard in shards() {
                seen.looked_ns += shard.looked_ns;
                seen.pauses += shard.pauses;
                seen.paused_ns += shard.paused_ns;
            }
            seen
        })
    }
}
