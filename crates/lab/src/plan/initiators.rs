//! Initiators of another kind: who reaches a system in place of ours, and who loads it in place of our own client.
//!
//! The kernel's reaches it and makes a block device of it, on which our client works; it can do so in any network
//! over NVMe/TCP alone. A command of the plan's, to which the lab appends where the disk is and what is to be done, and which tells how far
//! it is ([`Following`](crate::following::Following)). So a plan holds our client against others', or one of others'
//! against another. It is asked for what any has: full queues of reads, of writes or of both, on the whole disk. Errors:
//! the mistakes of a plan, each at its place.

use super::check::Checker;
use super::files::said_of_a_disk;
use super::low::{LowLoad, LowSystem};
use super::model::{Load, Means, Pace, Protocol};
use crate::mistake::{Mistake, Span};

impl Checker<'_> {
    /// The command, of a system that is reached by the wire: `None` if it is wrong, `Some(None)` if there is none.
    pub(super) fn initiator(
        &mut self,
        low: &LowSystem,
        means: &Means,
    ) -> Option<Option<Vec<String>>> {
        let Some(written) = &low.initiator else { return Some(None) };
        let seen = match means {
            Means::Serve(_) | Means::Rival(_) | Means::Target(_) if low.file_system.is_none() => {
                return self.command(&low.initiator, "initiator").map(Some);
            }
            Means::Serve(_) | Means::Rival(_) | Means::Target(_) => "a file-system on it",
            Means::Disk { .. } => "disk, which the near end reaches by itself",
            Means::Folder(_) => "folder",
            Means::Stream(_) => "stream",
            Means::Nfs(_) => "nfs",
        };
        let message = format!(
            "initiator: expected serve, rival or target beside it, whose blocks it reaches by the wire, seen {seen}"
        );
        self.push(Mistake::new(written.span(), message).help("leave it out"));
        None
    }

    /// Whether the kernel reaches it; `None` if that is wrong.
    pub(super) fn kernel(&mut self, low: &LowSystem, means: &Means) -> Option<bool> {
        let Some(written) = low.kernel.as_ref().filter(|kernel| *kernel.get_ref()) else {
            return Some(false);
        };
        let (expected, seen) = match means {
            Means::Serve(serve) if serve.protocol == Protocol::Nvme => match &low.initiator {
                None => return Some(true),
                Some(_) => ("nothing else that reaches it", "an initiator of its own".to_owned()),
            },
            Means::Nfs(nfs) if !nfs.sync => return Some(true),
            Means::Nfs(_) => (
                "sync = false in nfs",
                "true: of version 3 the kernel has each write durable in no other way than by waiting for it".to_owned(),
            ),
            Means::Serve(serve) => (
                "a serve by nvme, or nfs",
                format!(
                    "one by {}, whose initiator in the kernel is in no network of the lab's",
                    serve.protocol.word()
                ),
            ),
            _ => ("a serve by nvme, or nfs", "neither".to_owned()),
        };
        let message = format!("kernel: expected {expected} beside it, seen {seen}");
        self.push(Mistake::new(written.span(), message).help("leave it out"));
        None
    }

    /// Refuses loads of a table that no such command is asked for, where one of its systems has one.
    pub(super) fn initiated(
        &mut self,
        systems: &[usize],
        loads: &[Load],
        span: &Span,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let known = |at: &usize| self.systems[*at].thing.as_ref();
        let mut all = systems.iter().filter_map(known);
        let Some(system) = all.find(|system| system.initiator.is_some()) else { return };
        let name = system.name.clone();
        let mut wrong = Vec::new();
        if let Some(load) = loads.iter().find(|load| load.pattern.trims()) {
            wrong.push(("pattern", "reads and writes alone", load.pattern.to_string()));
        }
        if let Some(load) = loads.iter().find(|load| matches!(load.pace, Pace::Open { .. })) {
            wrong.push(("rate", "a depth", load.pace.to_string()));
        }
        wrong.extend(said_of_a_disk(loads).map(|(key, seen)| (key, "none", seen)));
        self.unfit(&format!("{name:?} has an initiator of its own"), wrong, span, own, usual);
    }
}
