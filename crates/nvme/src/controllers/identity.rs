//! Whether a controller knows what lies under a number: an NSID under which another volume was put
//! is closed to a controller until it has asked who is there.
//!
//! A host that had the old volume goes on sending to its NSID for a while: the event (log 04h)
//! reaches it some time later, on another connection. So each queue keeps what its controller
//! *takes* an NSID for, where something else is there now, or nothing. A command to such an NSID
//! gets 0x00B with DNR, as one to a namespace that is gone: it is never to be repeated, since what
//! it was meant for is not there. Identify Namespace (CNS 00h) of what is there opens the NSID; so
//! does the old volume when it comes back. A volume with blocks of another size is another one: an
//! LBA names another place in it.
//!
//! *Why the controllers are not failed instead:* a Linux host connects again and sends what it had
//! queued as soon as its controller is live, beside the scan that would find another volume: it
//! would write there, only later. After the event it scans: CNS 03h and 08h, and where they name
//! another volume it removes its disk, without CNS 00h. It sends that for a disk that it makes
//! anew, so what was meant for the old one is not let through. (Older kernels send it just before
//! they compare.) *What this does not cover:* a host that was away meanwhile comes with a new
//! controller, which takes for right what is there; it has to ask by itself. And a volume that
//! comes between the CNS 03h and 00h of one scan is opened by it, until the next scan.
//!
//! A change reaches the shards one after the other, so a shard may hear of an identification before
//! the change itself: a queue keeps whom its controller knows, not that it knows. The answer to
//! Identify waits until every shard with a queue of the controller has heard, since the next
//! command may be there first. They are told of what came to a controller that knew of nothing there,
//! too: a queue may have come to a shard that still had an older volume, which it would take for known. Spec: NVMe base, "Identify command".

use std::collections::BTreeMap;

use block::Slot;

use super::{Answer, ControllerRef, Controllers, Export, MachineKey, Message, Queue, Reply};
use crate::message::Admission;
use crate::subsystem::{Namespace, NamespaceIdentity};

/// What a controller takes NSIDs for, where that is not what is there now.
pub(crate) type Mistaken = BTreeMap<u32, NamespaceIdentity>;

/// An Identify Namespace that is answered once all shards with queues of the controller know what
/// it tells.
#[derive(Debug)]
pub(super) struct Identification {
    key: MachineKey,
    reply: Reply,
    /// Shards that have not answered.
    left: usize,
}

impl Queue {
    /// Whether what lies under this number is what the controller takes it for. Nearly always
    /// nothing is kept.
    #[inline]
    pub(super) fn knows(&self, nsid: u32) -> bool {
        self.mistaken.is_empty() || !self.mistaken.contains_key(&nsid)
    }
}

impl Controllers {
    fn queues_of(&mut self, export: Slot) -> impl Iterator<Item = &mut Queue> {
        let queues = self.queues.iter_mut().map(|(_, queue)| queue);
        queues.filter(move |queue| queue.export == Some(export))
    }

    /// What lies under this number now.
    pub(super) fn identity_of(&self, export: Option<Slot>, nsid: u32) -> Option<NamespaceIdentity> {
        self.exports.get(export?)?.namespace(nsid).map(Namespace::identity)
    }

    /// This namespace is not there any more: who knew it still takes its number for it.
    pub(super) fn namespace_left(&mut self, export: Slot, nsid: u32, identity: NamespaceIdentity) {
        for queue in self.queues_of(export) {
            queue.mistaken.entry(nsid).or_insert(identity);
        }
    }

    /// This namespace is there now: who took its number for it is right.
    pub(super) fn namespace_came(&mut self, export: Slot, nsid: u32, identity: NamespaceIdentity) {
        for queue in self.queues_of(export) {
            match queue.mistaken.get(&nsid) {
                None => drop(queue.came.insert(nsid)),
                Some(known) if *known == identity => drop(queue.mistaken.remove(&nsid)),
                Some(_) => {}
            }
        }
    }

    /// What of it is not so here.
    pub(super) fn mistaken_about(&self, export: Option<Slot>, mut known: Mistaken) -> Mistaken {
        known.retain(|nsid, known| self.identity_of(export, *nsid) != Some(*known));
        known
    }

    /// A queue of a controller of this shard is taken, here or elsewhere.
    pub(super) fn admission(&self, controller: ControllerRef) -> Admission {
        let (_, export) = self.controller_and_export(controller);
        let there = export.into_iter().flat_map(Export::namespaces);
        let mut known: Mistaken = there.map(|here| (here.nsid, here.identity())).collect();
        known.extend(self.mistaken(controller));
        Admission { controller, known }
    }

    /// What the controller is mistaken about, as its admin queue has it.
    fn mistaken(&self, name: ControllerRef) -> &Mistaken {
        let admin = self.controllers.get(&name.id).and_then(|controller| controller.admin);
        &self.queues.get(admin.expect("its admin queue is there")).expect("it is there").mistaken
    }

    /// The controller was told that this is under this number; a queue of it hears so. If it is not
    /// yet so here, or not any more, the controller takes the number for it all the same.
    fn learn(&mut self, queue: Slot, nsid: u32, identity: NamespaceIdentity) {
        let export = self.queues.get(queue).expect("its controller has it").export;
        let is_right = self.identity_of(export, nsid) == Some(identity);
        let mistaken = &mut self.queues.get_mut(queue).expect("just seen").mistaken;
        if is_right {
            mistaken.remove(&nsid);
        } else {
            mistaken.insert(nsid, identity);
        }
    }

    /// `reply` tells the controller who is under this number. It is sent at once unless that is
    /// news for queues on other shards.
    pub(super) fn answer_identified(
        &mut self,
        name: ControllerRef,
        nsid: u32,
        reply: Reply,
    ) -> Answer {
        let (controller, _) = self.controller_and_export(name);
        let (key, admin) = (controller.admin_key, controller.admin);
        let queue =
            admin.and_then(|admin| self.queues.get_mut(admin)).expect("its admin queue asks");
        if !queue.came.remove(&nsid) && !queue.mistaken.contains_key(&nsid) {
            return Answer::Now(reply);
        }
        let (controller, _) = self.controller_and_export(name);
        let (local, shards) = (controller.local_queues(), controller.remote_shards());
        let Some(identity) = self.identity_of(controller.export, nsid) else {
            return Answer::Now(reply);
        };
        for queue in admin.into_iter().chain(local) {
            self.learn(queue, nsid, identity);
        }
        if shards.is_empty() {
            return Answer::Now(reply);
        }
        let ask = self.identifications.insert(Identification { key, reply, left: shards.len() });
        for shard in shards {
            self.send(shard, Message::Identified { ask, controller: name, nsid, identity });
        }
        Answer::Later
    }

    /// A controller of another shard knows who is under this number.
    pub(super) fn foreign_identified(
        &mut self,
        name: ControllerRef,
        nsid: u32,
        identity: NamespaceIdentity,
    ) {
        for queue in self.foreign.get(&name).cloned().unwrap_or_default() {
            self.learn(queue, nsid, identity);
        }
    }

    /// A shard knows what a controller of ours was told. The last one lets the answer go.
    pub(super) fn identification_known(&mut self, ask: Slot) {
        let identification =
            self.identifications.get_mut(ask).expect("one answer to each question");
        identification.left -= 1;
        if identification.left == 0 {
            let Identification { key, reply, .. } =
                self.identifications.remove(ask).expect("just seen");
            self.reply(key, reply);
        }
    }
}
