//! Groups of listeners: in which one a controller's host came, and that its host hears when the state
//! of that is another.
//!
//! Spec: NVMe base, "Asymmetric Namespace Access Reporting", "Asymmetric Namespace Access Change".

use contract::{Endpoint, ListenerId};
use reservation::{PathGroup, SetBy};

use super::Controllers;
use super::controller::Notice;

impl Controllers {
    /// A listener is there, or is of another group.
    pub fn set_listener(&mut self, listener: ListenerId, group: PathGroup) {
        self.groups.insert(listener, group);
    }

    /// A listener is gone.
    pub fn remove_listener(&mut self, listener: ListenerId) {
        self.groups.remove(&listener);
    }

    /// The group of the listener by which somebody came.
    pub(super) fn group_of(&self, endpoint: &Endpoint) -> PathGroup {
        self.groups.get(&endpoint.listener).copied().unwrap_or_default()
    }

    /// Groups are in other states from now on: the hosts that came by them are told.
    pub fn paths_changed(&mut self, changed: &[(PathGroup, SetBy)]) {
        let is_concerned = |group| changed.iter().any(|(other, _)| *other == group);
        let told = self.controllers_where(|controller| {
            !controller.is_discovery() && controller.is_ready() && is_concerned(controller.group)
        });
        for name in told {
            let controller = self.controller_mut(name).expect("just found");
            // What happens while the event is masked is in the log that unmasks it.
            if controller.access_notice == Notice::Idle {
                controller.access_notice = Notice::Waiting;
            }
            self.tell_event(name);
        }
    }
}
