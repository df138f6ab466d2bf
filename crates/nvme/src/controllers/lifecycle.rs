//! How queues and controllers end: closed by us, lost, drained, gone.
//!
//! A queue that is closed or lost takes nothing more and drains; [`Controllers::queue_drained`]
//! ends it. A controller fails as a whole when its admin queue is lost, its keep-alive time is
//! over, or its host or subsystem is removed; it keeps its CNTLID until the last queue, on whatever
//! shard, has drained, so that nothing of the host's old association reaches the media under a new
//! one. Spec: NVMe base, "Controller Loss".

use std::sync::Arc;

use block::{Instant, Slot, VolumeId};
use contract::HostEvent;

use super::controller::{IoQueue, Phase};
use super::{
    CloseReason, ConnectionEvent, ControllerRef, Controllers, KeyState, MachineKey, Message, Timer,
};

impl Controllers {
    /// The connection is lost, or its machine closes it by itself. No new request of it is
    /// submitted; [`Self::queue_drained`] follows. A connection that was asked to close, or never
    /// connected, may be told too.
    pub fn connection_gone(&mut self, now: Instant, key: MachineKey) {
        let slot = match self.keys.get(&key) {
            Some(&KeyState::Pending(ask)) => {
                self.keys.remove(&key);
                return self.abandon_connect(ask);
            }
            Some(&KeyState::Queue(slot)) => slot,
            None => return,
        };
        if !self.shut_queue(slot) {
            return;
        }
        let queue = self.queues.get(slot).expect("keys lead to queues");
        let (id, controller, owner) = (queue.id, queue.controller, queue.owner);
        if id == 0 {
            self.fail(now, controller, CloseReason::AdminQueueLost);
        } else if owner != self.shard {
            self.send(owner, Message::QueueLost { controller, queue_id: id });
        }
    }

    /// Nothing of this connection is in flight any more, and nothing will be: its queue is gone.
    /// Call it once for each connection that was lost or asked to close; for one that was no queue
    /// it does nothing.
    pub fn queue_drained(&mut self, now: Instant, key: MachineKey) {
        // Whoever forgot to say that the connection is gone says so now.
        self.connection_gone(now, key);
        let Some(slot) = self.queue_of(key) else { return };
        self.keys.remove(&key);
        let queue = self.queues.remove(slot).expect("keys lead to queues");
        self.draining -= 1;
        if queue.id == 0 {
            let controller =
                self.controller_mut(queue.controller).expect("its admin queue was there");
            controller.admin = None;
            self.end_failed(queue.controller);
        } else if queue.owner == self.shard {
            self.owned_queue_gone(now, queue.controller, queue.id, queue.heard(now));
        } else {
            self.forget_foreign(queue.controller, slot);
            let (controller, queue_id) = (queue.controller, queue.id);
            let quiet = now.since(queue.heard(now));
            self.send(queue.owner, Message::QueueGone { controller, queue_id, quiet });
        }
        self.answer_hosts(now);
    }

    /// A disk does not come back: the controllers that export it are failed, so that their hosts
    /// see a dead path and not an endless wait. Their CNTLIDs stay taken until the disk answers.
    /// One shard has to notice it: it tells the others.
    pub fn volume_stuck(&mut self, now: Instant, volume: VolumeId) {
        self.send_all(&Message::VolumeStuck { volume });
        self.fail_users_of(now, volume);
    }

    /// Fails the controllers of this shard that export the volume.
    pub(super) fn fail_users_of(&mut self, now: Instant, volume: VolumeId) {
        let uses = |export: Option<Slot>| {
            export.and_then(|slot| self.exports.get(slot)).is_some_and(|export| {
                export.namespaces().any(|namespace| namespace.volume == volume)
            })
        };
        let stuck = self.controllers_where(|controller| uses(controller.export));
        for name in stuck {
            self.fail(now, name, CloseReason::DiskStuck);
        }
    }

    /// Lets a queue take no more commands; false if it took none before.
    fn shut_queue(&mut self, slot: Slot) -> bool {
        let queue = self.queues.get_mut(slot).expect("the queue is there");
        let was_open = core::mem::replace(&mut queue.open, false);
        self.draining += usize::from(was_open);
        was_open
    }

    /// Asks for a queue of this shard to be closed, unless it is closing.
    pub(super) fn close_queue(&mut self, slot: Slot, reason: CloseReason) {
        if self.shut_queue(slot) {
            let key = self.queues.get(slot).expect("just shut").key;
            self.events.push_back((key, ConnectionEvent::Close(reason)));
        }
    }

    /// Fails a controller of this shard: CFS, and all its connections are closed.
    pub(super) fn fail(&mut self, now: Instant, name: ControllerRef, reason: CloseReason) {
        let Some(controller) = self.controller_mut(name) else { return };
        if controller.phase == Phase::Failed {
            return;
        }
        let (who, endpoint) = (Arc::clone(&controller.who), controller.endpoint);
        let is_shut_down = controller.status.shst() != 0;
        controller.phase = Phase::Failed;
        controller.status = controller.status.with_fatal(true).with_ready(false);
        controller.event_requests.clear();
        let admin = controller.admin;
        if let Some(at) = controller.keep_alive_at.take() {
            self.timers.remove(&(at, Timer::KeepAlive(name)));
        }
        self.close_io_queues(name, reason);
        if let Some(slot) = admin {
            self.close_queue(slot, reason);
        }
        self.end_failed(name);
        self.answer_hosts(now);
        let why = if is_shut_down { "it shut its controller down" } else { reason.words() };
        self.tell_of_host(&who, &endpoint, HostEvent::Left(why));
    }

    /// Ends a failed controller once nothing of it is left.
    fn end_failed(&mut self, name: ControllerRef) {
        let Some(controller) = self.controller_mut(name) else { return };
        let over = controller.phase == Phase::Failed
            && controller.admin.is_none()
            && controller.is_without_io();
        if over {
            let announced = !controller.is_discovery();
            self.controllers.remove(&name.id);
            if announced {
                self.send_all(&Message::ControllerGone { controller: name.id });
            }
        }
    }

    /// An I/O queue of a controller of this shard lost its connection, elsewhere.
    pub(super) fn owned_queue_lost(&mut self, name: ControllerRef, queue_id: u16) {
        let Some(controller) = self.controller_mut(name) else { return };
        if let IoQueue::Remote { shard, .. } = controller.io_queue(queue_id) {
            controller.set_io_queue(queue_id, IoQueue::Remote { shard, lost: true });
        }
    }

    /// An I/O queue of a controller of this shard is gone, here or elsewhere: its QID is free. What
    /// it heard last counts for the controller.
    pub(super) fn owned_queue_gone(
        &mut self,
        now: Instant,
        name: ControllerRef,
        queue_id: u16,
        heard: Instant,
    ) {
        let Some(controller) = self.controller_mut(name) else { return };
        controller.heard = controller.heard.max(heard);
        let key = controller.admin_key;
        controller.set_io_queue(queue_id, IoQueue::Free);
        if let Some(reply) = self.end_reset(now, name) {
            self.reply(key, reply);
        }
        self.end_failed(name);
        self.answer_hosts(now);
    }

    fn forget_foreign(&mut self, name: ControllerRef, slot: Slot) {
        if let Some(slots) = self.foreign.get_mut(&name) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.foreign.remove(&name);
            }
        }
    }
}
