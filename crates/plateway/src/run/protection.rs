//! Disks that take no writes since a flush or a durable write failed: kept in the state directory
//! with the identities, so that a restart forgets none of them. A person takes that back, by
//! `disks reopen`, or by `disks accept` where another disk takes the place.
//!
//! What is kept is what the shards told, at the next turn of the control thread: a server that is
//! killed before that has told its host that the flush failed, and nothing else. Errors are told in
//! the log: then a restart would forget.

use contract::DiskId;
use shard::Order;

use super::Running;
use super::error::RunError;
use super::identity::Identities;
use crate::log::Event;

impl Running {
    /// Keeps what shards told of disks that take no writes any more.
    pub(crate) fn keep_protection(&self) {
        let protected = self.shards.event_log().protected().clone();
        for disk in self.disks.values() {
            let (Some(failure), Some(backing)) = (protected.get(&disk.id), &disk.backing) else {
                continue;
            };
            let name = &disk.config.name;
            let identities = Identities::new(self.state.clone());
            if let Err(error) = identities.protect(name, backing, *failure) {
                let why = error.line();
                Event::error(format!(
                    "disk {name}: a restart would forget that it is read-only: {why}"
                ))
                .disk(name)
                .tell();
            }
        }
    }

    /// A disk that was added takes no writes, if it took none before.
    pub(super) fn protect_again(
        &self,
        disk: DiskId,
        name: &str,
        backing: Option<&str>,
    ) -> Result<(), RunError> {
        let Some(backing) = backing else { return Ok(()) };
        let Some(failure) = Identities::new(self.state.clone()).protected(backing, name)? else {
            return Ok(());
        };
        let protect = || Order::ProtectDisk { disk, failure };
        self.order(&format!("protect disk {name}"), protect)
    }

    /// A disk takes writes again, for good.
    pub(super) fn end_protection(&self, name: &str) -> Result<(), RunError> {
        let Some(backing) = &self.disk(name)?.backing else { return Ok(()) };
        Identities::new(self.state.clone()).renew(name, backing)
    }
}
