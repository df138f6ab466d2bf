//! Changes of reservations that hosts ask for, and what hosts are told of those of others.
//!
//! A change leaves the shard's NVMe side by [`Controllers::poll_reservation_change`] and is answered
//! by [`Controllers::handle_reservation_answer`], once it is stored and in force everywhere; the
//! connection hears a [`ConnectionEvent::Decided`], unless it is gone: then the change may be made all
//! the same. What a change did to others comes to every shard, [`Controllers::reservation_changed`]:
//! each controller of a host that is told gets a notification (log 80h) for each namespace that is the
//! volume, unless it masked it (feature 82h), and one event until the log is read with RAE 0. Where
//! more wait than a controller keeps, the oldest are lost, which their numbers show. Spec: NVMe base,
//! "Reservation Notifications", "Reservation Notification (Log Identifier 80h)".

use std::collections::{BTreeMap, VecDeque};

use block::{Slot, VolumeId, planted};
use reservation::{Change, Consequences, Registrant, Reservation, Verdict, replica};
use wire::nvme::feature::FeatureId;
use wire::nvme::reservation::{NotificationType, ReservationNotification, ReservationPersistence};
use wire::nvme::{Command, Status};

use super::controller::Notice;
use super::{
    Answer, ConnectionEvent, ControllerRef, Controllers, Export, MachineKey, Queue, Reply,
};
use crate::limits::NOTIFICATIONS_MAX;
use crate::reservations::{notification, status_of};

/// What hosts asked for and is not decided.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    /// To be polled.
    changes: VecDeque<(VolumeId, u64, Change)>,
    /// Who waits, by our number.
    waiting: BTreeMap<u64, (MachineKey, Waiting)>,
    next: u64,
}

/// Which command of a connection waits.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// An I/O command, in this slot.
    Io(u16),
    /// An admin command, of this CID.
    Admin(u16),
}

impl Proposals {
    fn add(&mut self, who: (MachineKey, Waiting), volume: VolumeId, change: Change) {
        self.next += 1;
        self.waiting.insert(self.next, who);
        self.changes.push_back((volume, self.next, change));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.waiting.is_empty()
    }
}

/// The notifications of a controller that its host has not read.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    entries: VecDeque<(u64, NotificationType, u32)>,
    /// How many there were.
    count: u64,
    notice: Notice,
}

impl Notifications {
    fn push(&mut self, kind: NotificationType, nsid: u32) {
        self.count += 1;
        if self.entries.len() == NOTIFICATIONS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((self.count, kind, nsid));
        if self.notice == Notice::Idle {
            self.notice = Notice::Waiting;
        }
    }

    /// Whether the host is to be told; it is, then.
    pub(super) fn take_notice(&mut self) -> bool {
        let is_due = self.notice == Notice::Waiting;
        if is_due {
            self.notice = Notice::Told;
        }
        is_due
    }

    /// The log: the oldest of them.
    pub(crate) fn page(&self) -> ReservationNotification {
        let Some(&(count, kind, nsid)) = self.entries.front() else {
            return ReservationNotification::default();
        };
        let more = (self.entries.len() - 1).min(usize::from(u8::MAX)) as u8;
        ReservationNotification { count, kind, more, nsid }
    }

    /// The host read the oldest. It is told again if there are others.
    pub(super) fn read(&mut self) {
        self.entries.pop_front();
        let is_over = self.entries.is_empty() || planted("one-notification-is-announced");
        self.notice = if is_over { Notice::Idle } else { Notice::Waiting };
    }
}

impl Controllers {
    /// An I/O command of a connection, in this slot, asks for a change.
    pub(crate) fn propose(&mut self, key: MachineKey, slot: u16, volume: VolumeId, change: Change) {
        self.proposals.add((key, Waiting::Io(slot)), volume, change);
    }

    /// Set Features, reservation persistence: a change of one namespace's reservation.
    pub(super) fn set_persistence(
        &mut self,
        name: ControllerRef,
        command: &Command,
    ) -> Result<Answer, Status> {
        if FeatureId::save_of(command) {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let (controller, export) = self.controller_and_export(name);
        let namespace = export.and_then(|export| export.namespace(command.nsid()));
        let volume = namespace.ok_or(Status::INVALID_NAMESPACE)?.volume;
        let who = (controller.admin_key, Waiting::Admin(command.command_id()));
        let persists = ReservationPersistence(command.cdw(11)).persists();
        self.proposals.add(who, volume, Change::Persist(persists));
        Ok(Answer::Later)
    }

    /// A change that is to be agreed on, and our number of it; answered by
    /// [`handle_reservation_answer`](Self::handle_reservation_answer).
    pub fn poll_reservation_change(&mut self) -> Option<(VolumeId, u64, Change)> {
        self.proposals.changes.pop_front()
    }

    /// A change was agreed on, or not. The connection may be gone.
    pub fn handle_reservation_answer(
        &mut self,
        number: u64,
        answer: &replica::Answer<Verdict, Reservation>,
    ) {
        let waiting = self.proposals.waiting.remove(&number);
        let (key, waiting) = waiting.expect("a change is answered once");
        let status = status_of(answer);
        match waiting {
            Waiting::Io(slot) => {
                self.events.push_back((key, ConnectionEvent::Decided { slot, status }));
            }
            Waiting::Admin(command_id) => self.reply(key, Reply::new(command_id, status)),
        }
    }

    /// A change of a volume's reservation is in force on this shard: hosts are told what it did to
    /// them, and of those whose commands it ended nothing more goes below that waits.
    pub fn reservation_changed(&mut self, volume: VolumeId, consequences: &Consequences) {
        let Consequences { told, ended } = consequences;
        for (who, told) in told {
            self.notify(*who, volume, notification(*told));
        }
        let queues = self.queues.iter().map(|(_, queue)| queue);
        let is_ended = |queue: &&Queue| {
            queue.id != 0 && queue.open && ended.contains(&self.registrant_of(&queue.who))
        };
        let keys = queues.filter(is_ended).map(|queue| queue.key);
        let events: Vec<_> = keys.map(|key| (key, ConnectionEvent::Preempted(volume))).collect();
        self.events.extend(events);
    }

    /// Tells the controllers of a host that this shard owns.
    fn notify(&mut self, who: Registrant, volume: VolumeId, kind: NotificationType) {
        let of_host = self.controllers_where(|controller| {
            controller.is_ready() && self.registrant_of(&controller.who) == who
        });
        for name in of_host {
            let export = self.controllers.get(&name.id).and_then(|controller| controller.export);
            let nsids = self.nsids_of(export, volume);
            let controller = self.controller_mut(name).expect("just found");
            for nsid in nsids {
                if !controller.features.masks(nsid, kind) && !planted("notification-is-lost") {
                    controller.notifications.push(kind, nsid);
                }
            }
            self.tell_event(name);
        }
    }

    /// The numbers under which an export has a volume.
    fn nsids_of(&self, export: Option<Slot>, volume: VolumeId) -> Vec<u32> {
        let export = export.and_then(|slot| self.exports.get(slot));
        let namespaces = export.into_iter().flat_map(Export::namespaces);
        let on_it = namespaces.filter(|namespace| namespace.volume == volume);
        on_it.map(|namespace| namespace.nsid).collect()
    }
}
