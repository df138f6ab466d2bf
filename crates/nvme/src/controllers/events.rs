//! Asynchronous events: held requests, and what each kind of controller has to tell.
//!
//! An I/O controller tells that namespaces changed (log 04h), that the state of their group did
//! (0Ch) or that there are reservation notifications (80h), a discovery controller that its log
//! changed (70h). After it was told, an event is masked until its log is read with RAE 0. Spec:
//! NVMe base, "Asynchronous Event Request command".

use wire::nvme::Status;
use wire::nvme::async_event::AsyncEvent;

use super::controller::{Controller, Notice};
use super::{Answer, ConnectionEvent, ControllerRef, Controllers, MachineKey, QueueHandle, Reply};
use crate::limits::ASYNC_EVENT_REQUESTS_MAX;

impl Controller {
    /// The reply to a held request, if there is one and something to tell.
    fn take_event(&mut self) -> Option<Reply> {
        if !self.is_ready() || self.event_requests.is_empty() {
            return None;
        }
        let event = self.due_event()?;
        let command_id = self.event_requests.pop_front()?;
        Some(Reply::new(command_id, Status::SUCCESS).with_result(event.to_result()))
    }

    /// What there is to tell; it is told, then.
    fn due_event(&mut self) -> Option<AsyncEvent> {
        if self.notice == Notice::Waiting && self.features.events_enabled() {
            self.notice = Notice::Told;
            return Some(match self.is_discovery() {
                true => AsyncEvent::DISCOVERY_CHANGED,
                false => AsyncEvent::NAMESPACE_CHANGED,
            });
        }
        if self.access_notice == Notice::Waiting && self.features.access_events_enabled() {
            self.access_notice = Notice::Told;
            return Some(AsyncEvent::ACCESS_CHANGED);
        }
        self.notifications.take_notice().then_some(AsyncEvent::RESERVATION_NOTIFICATION)
    }
}

impl Controllers {
    /// Asynchronous Event Request: held until there is something to tell.
    pub(super) fn async_event_request(
        &mut self,
        name: ControllerRef,
        command_id: u16,
    ) -> Result<Answer, Status> {
        let controller = self.controller_mut(name).expect("an open admin queue has a controller");
        if controller.event_requests.len() >= ASYNC_EVENT_REQUESTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        controller.event_requests.push_back(command_id);
        Ok(controller.take_event().map_or(Answer::Later, Answer::Now))
    }

    /// Forgets a held request without an answer; whether there was one of this CID.
    pub(crate) fn forget_event_request(&mut self, queue: QueueHandle, command_id: u16) -> bool {
        let controller = self.queues.get(queue.0).map(|queue| queue.controller);
        let Some(controller) = controller.and_then(|name| self.controller_mut(name)) else {
            return false;
        };
        let held = &mut controller.event_requests;
        let Some(at) = held.iter().position(|held| *held == command_id) else { return false };
        held.remove(at);
        true
    }

    /// The answer to a request of this CID, if it is on its way to the connection.
    pub(crate) fn take_event_reply(
        &mut self,
        queue: QueueHandle,
        command_id: u16,
    ) -> Option<Reply> {
        let name = self.queues.get(queue.0)?.controller;
        let key = self.controller_mut(name)?.admin_key;
        let told = [
            AsyncEvent::DISCOVERY_CHANGED,
            AsyncEvent::NAMESPACE_CHANGED,
            AsyncEvent::ACCESS_CHANGED,
            AsyncEvent::RESERVATION_NOTIFICATION,
        ];
        let is_it = |(to, event): &(MachineKey, ConnectionEvent)| match event {
            ConnectionEvent::Reply(reply) => {
                let is_told = told.iter().any(|event| reply.result == event.to_result().into());
                *to == key && reply.command_id == command_id && is_told
            }
            _ => false,
        };
        let at = self.events.iter().position(is_it)?;
        match self.events.remove(at)?.1 {
            ConnectionEvent::Reply(reply) => Some(reply),
            _ => None,
        }
    }

    /// Tells what there is to tell, if a request is held.
    pub(super) fn tell_event(&mut self, name: ControllerRef) {
        let Some(controller) = self.controller_mut(name) else { return };
        let key = controller.admin_key;
        if let Some(reply) = controller.take_event() {
            self.reply(key, reply);
        }
    }

    /// Something happened that the controller has to tell.
    pub(super) fn raise_event(&mut self, name: ControllerRef) {
        let controller = self.controller_mut(name).expect("it has something to tell");
        // What happens while the event is masked is in the log that unmasks it.
        if controller.notice == Notice::Idle {
            controller.notice = Notice::Waiting;
        }
        self.tell_event(name);
    }
}
