//! Asynchronous events: held requests, and the one event that each kind of controller has to tell.
//!
//! An I/O controller tells that namespaces changed (log 04h), a discovery controller that its log changed (70h). After it was told, an event
//! is masked until its log is read with RAE 0.
//! Spec: NVMe base, "Asynchronous Event Request command".

use wire::nvme::Status;
use wire::nvme::async_event::AsyncEvent;

use super::controller::{Controller, Notice};
use super::{Answer, ControllerRef, Controllers, Reply};
use crate::limits::ASYNC_EVENT_REQUESTS_MAX;

impl Controller {
    fn event(&self) -> AsyncEvent {
        if self.is_discovery() {
            AsyncEvent::DISCOVERY_CHANGED
        } else {
            AsyncEvent::NAMESPACE_CHANGED
        }
    }

    /// The reply to a held request, if there is one and something to tell.
    fn take_event(&mut self) -> Option<Reply> {
        if self.notice != Notice::Waiting || !self.is_ready() || !self.features.events_enabled() {
            return None;
        }
        let command_id = self.event_requests.pop_front()?;
        self.notice = Notice::Told;
        let result = self.event().to_result();
        Some(Reply::new(command_id, Status::SUCCESS).with_result(result))
    }

    /// What happens while the event is masked is in the log that unmasks it.
    fn raise(&mut self) {
        if self.notice == Notice::Idle {
            self.notice = Notice::Waiting;
        }
    }

    /// The host has read the log of the event with RAE 0: it has seen all that there was to tell.
    pub(crate) fn event_log_read(&mut self) {
        self.notice = Notice::Idle;
    }
}

impl Controllers {
    /// Asynchronous Event Request: held until there is something to tell.
    pub(crate) fn async_event_request(&mut self, name: ControllerRef, command_id: u16) -> Answer {
        let controller = self.controller_mut(name).expect("an open admin queue has a controller");
        if controller.event_requests.len() >= ASYNC_EVENT_REQUESTS_MAX {
            let status = Status::ASYNC_EVENT_LIMIT_EXCEEDED.with_dnr();
            return Answer::Now(Reply::new(command_id, status));
        }
        controller.event_requests.push_back(command_id);
        match controller.take_event() {
            Some(reply) => Answer::Now(reply),
            None => Answer::Later,
        }
    }

    /// Tells what there is to tell, if a request is held.
    pub(crate) fn tell_event(&mut self, name: ControllerRef) {
        let Some(controller) = self.controller_mut(name) else { return };
        let key = controller.admin_key;
        if let Some(reply) = controller.take_event() {
            self.replies.push_back((key, reply));
        }
    }

    /// Something happened that the controller has to tell.
    pub(super) fn raise_event(&mut self, name: ControllerRef) {
        if let Some(controller) = self.controller_mut(name) {
            controller.raise();
            self.tell_event(name);
        }
    }
}
