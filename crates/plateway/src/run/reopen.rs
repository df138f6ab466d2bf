//! Reopening a disk that a failure has protected: the one way back to writes, and taken by a
//! person.
//!
//! Where the descriptor still works the disk keeps it, so that reads see no gap; else the disk is
//! closed and opened anew, and in between its requests are answered as removed. What was
//! acknowledged since the last good flush may be lost: see docs/faults.md.

use std::sync::Arc;
use std::time::Duration;

use reactor::disk::Disk;
use shard::Order;

use super::Running;
use super::disks::look;
use super::error::RunError;
use super::open;
use crate::config::disk::DiskConfig;

/// How long what a disk was asked may take to come back before it is opened anew.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

impl Running {
    /// Lets a disk take writes again. Returns what was done.
    pub(crate) fn reopen(&mut self, name: &str) -> Result<String, RunError> {
        if let Some(done) = self.try_now(name) {
            return Ok(done);
        }
        let Some(disk) = self.disks.get(name) else {
            let known: Vec<&str> = self.disks.keys().map(String::as_str).collect();
            return Err(RunError::new(format!(
                "disk {name}: expected one of {}, seen {name:?}",
                known.join(", ")
            ))
            .help("plateway disks list"));
        };
        if disk.is_remote() {
            let facts = disk.facts.clone();
            self.renewed(name, facts)?;
            return Ok(format!(
                "disk {name} takes requests again; its connection is kept by itself"
            ));
        }
        let was_protected = self.shards.event_log().is_protected(disk.id);
        let done = match disk.local.as_ref().map(|local| local.refresh()) {
            Some(Ok(facts)) => {
                self.renewed(name, facts)?;
                if !was_protected {
                    return Ok(format!(
                        "disk {name} took writes all the time, and does; nothing was lost"
                    ));
                }
                "is open as before"
            }
            Some(Err(_)) | None => {
                self.open_anew(name, CLOSE_LIMIT)?;
                "was opened anew"
            }
        };
        Ok(format!(
            "disk {name} {done} and takes writes; what was acknowledged since its last good flush may be lost"
        ))
    }

    /// `limit` is for what it was asked to come back.
    pub(super) fn open_anew(&mut self, name: &str, limit: Duration) -> Result<(), RunError> {
        let Some(disk) = self.disks.get_mut(name) else { return Ok(()) };
        let (id, config) = (disk.id, disk.config.clone());
        // Before the disk goes: a model that cannot be read by now is no reason for that.
        let spec = open::spec_of(&config)?;
        // The lock on what it lies on goes with the last owner. What is not back in time still is
        // the end of it: the shards forget the disk then.
        disk.local = None;
        if !self.shards.handle().remove_disk(id, limit) {
            return Err(RunError::new(format!(
                "disk {name}: expected its requests back within {} s, seen one that is still in flight; \
                 until it is back and the disk reopened its requests fail",
                limit.as_secs()
            ))
            .help(format!("once the device has given it back: plateway disks reopen {name}")));
        }
        // What is gone is not made, and what is not the known one is not taken: it would be another
        // disk under the same name.
        let as_it_is = DiskConfig { uri: config.uri.as_it_is(), ..config };
        let opened = look(&as_it_is, self).and_then(|_| {
            Disk::open(&spec.as_it_is(), &self.arena)
                .map_err(|error| open::refused(&as_it_is, &error))
        });
        let opened =
            opened.map_err(|error| error.and("; until it is reopened its requests fail"))?;
        let opened = Arc::new(opened);
        let Some(disk) = self.disks.get_mut(name) else { return Ok(()) };
        self.shards.event_log().opened(id, &opened);
        self.shards.handle().add_disk(id, &opened, disk.config.poll);
        let facts = opened.facts();
        disk.local = Some(opened);
        self.renewed(name, facts)
    }

    /// Tells all shards what a reopened disk is like; it takes writes again. If it came back
    /// otherwise, its volume follows, and so do the exports: a cache that is volatile now has to be
    /// flushed for hosts that are told of none, or they have to be told.
    fn renewed(&mut self, name: &str, facts: contract::DiskFacts) -> Result<(), RunError> {
        let Some(disk) = self.disks.get_mut(name) else { return Ok(()) };
        let before = std::mem::replace(&mut disk.facts, facts.clone());
        let id = disk.id;
        let renew = || Order::RenewDisk { disk: id, facts: facts.clone() };
        self.order(&format!("renew disk {name}"), renew)?;
        self.shards.event_log().forget(id);
        self.end_protection(name)?;
        if facts == before {
            return Ok(());
        }
        self.note_disk(name);
        self.volume_follows(name)
    }
}
