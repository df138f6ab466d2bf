//! Commands about the groups of listeners: which there are and in what state, and that of hosts who
//! set one.
//!
//! A command that sets states waits until all shards have agreed, as one that changes a reservation
//! does (`reserve`). Spec: SPC-4, "SET TARGET PORT GROUPS command". Not here: what commands ask for
//! (`scsi`), who is told (`targets`).

use block::Class;
use reservation::PathGroup;
use reservation::paths::Path;

use super::slots::{Incoming, TaskState};
use super::{Connection, Context, Ending};

impl Connection {
    /// All groups, ascending, with their states.
    pub(super) fn groups(&self, ctx: &Context<'_>) -> Vec<(PathGroup, Path)> {
        let groups = ctx.shared.groups(self.group).into_iter();
        groups.map(|group| (group, ctx.paths.get(group))).collect()
    }

    /// SET TARGET PORT GROUPS, whose list is there, in `slot`.
    #[cold]
    pub(super) fn take_set_paths(
        &mut self,
        slot: u16,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        let list = self.take_list(data, class, ctx);
        let Some(session) = self.state.session() else {
            return self.end(slot, Ending::ABORTED, ctx);
        };
        match scsi::set_paths(&list, &self.groups(ctx)) {
            Ok(states) => {
                let number = ctx.shared.set_paths(session, states);
                *self.slots.state(slot) = TaskState::Changing(number);
            }
            Err(sense) => self.end(slot, sense.into(), ctx),
        }
    }
}
