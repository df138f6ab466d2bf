//! Connect: who may have which queue of which controller.
//!
//! An admin queue makes a controller here, on the shard of its connection, after every shard has
//! said that nothing of an earlier association of this host still drains ([`Message::HostAsk`]). An
//! I/O queue joins a controller, whose owner is asked when it is another shard. Errors:
//! [`Refusal`], a status and DW0; DNR says that the same Connect would fail again, since Linux then
//! stops trying. Spec: NVMe base, "Connect command"; "Connect Response".

use core::time::Duration;
use std::sync::Arc;

use block::{Instant, ShardId, Slot};
use contract::{Endpoint, HostEvent, Refused, Traffic};
use reservation::PathGroup;
use wire::nvme::fabrics::{Connect, ConnectData, ConnectInvalid, FabricsType};
use wire::nvme::{Command, Status};

use super::controller::{Controller, IoQueue, Phase};
use super::{
    Answer, Association, ControllerRef, Controllers, Host, KeyState, MachineKey, Message, Mistaken,
    Queue, QueueHandle, QueueView, Reply, Timer,
};
use crate::limits::{
    ADMIN_QUEUE_DEPTH_MAX, CONTROLLER_ID_MAX, CONTROLLERS_MAX, CONTROLLERS_PER_HOST_MAX, HOST_HOLD,
    IO_QUEUES_MAX, QUEUE_DEPTH_MAX,
};
use crate::message::{Admission, QueueWanted, Refusal};

/// A Connect whose fields are sound.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: MachineKey,
    command_id: u16,
    pub(super) connect: Connect,
    pub(super) endpoint: Endpoint,
    pub(super) group: PathGroup,
    pub(super) who: Arc<Association>,
}

/// A Connect that waits for other shards.
#[derive(Debug)]
pub(super) struct Pending {
    asked: Asked,
    /// Whether its connection is gone: then it is answered to nobody.
    gone: bool,
    wait: Wait,
}

#[derive(Debug)]
enum Wait {
    /// An admin queue: so many shards have still to say whether something of the host drains, and
    /// whether one said so.
    Hosts { left: u16, busy: bool },
    /// An I/O queue: the owner has to answer.
    Owner,
}

/// A shard that wants to know when nothing of a host drains here any more.
#[derive(Debug)]
pub(super) struct HostWaiter {
    from: ShardId,
    ask: Slot,
    who: Association,
    until: Instant,
}

impl Refusal {
    fn new(status: Status) -> Self {
        Refusal { status, result: 0 }
    }

    fn in_command(offset: u16) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        Refusal { status, result: ConnectInvalid::in_command_at(offset).0 }
    }

    fn in_data(offset: u16) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        Refusal { status, result: ConnectInvalid::in_data_at(offset).0 }
    }

    fn busy() -> Self {
        Refusal::new(Status::CONNECT_BUSY)
    }

    /// A refused Connect ends its connection: there is nothing else to be had on it.
    fn reply(self, command_id: u16) -> Reply {
        Reply::new(command_id, self.status).with_result(self.result).closing()
    }
}

impl Controllers {
    /// Connect, the first command of a connection; `data` are its 1024 bytes. Any other first
    /// command is refused with 0x00C.
    pub fn connect(
        &mut self,
        now: Instant,
        key: MachineKey,
        endpoint: &Endpoint,
        command: &Command,
        data: &[u8],
    ) -> Answer {
        let command_id = command.command_id();
        match self.begin_connect(now, key, endpoint, command, data) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Now(refusal.reply(command_id)),
        }
    }

    fn begin_connect(
        &mut self,
        now: Instant,
        key: MachineKey,
        endpoint: &Endpoint,
        command: &Command,
        data: &[u8],
    ) -> Result<Answer, Refusal> {
        let is_connect = command.is_fabrics() && FabricsType::of(command) == FabricsType::CONNECT;
        if !is_connect || self.keys.contains_key(&key) {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        let connect = Connect::from_command(command);
        if connect.record_format != 0 {
            return Err(Refusal::new(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr()));
        }
        let (who, controller_id) = parse_data(data)?;
        let depth_max = if connect.queue_id == 0 { ADMIN_QUEUE_DEPTH_MAX } else { QUEUE_DEPTH_MAX };
        if connect.sq_size == 0 || u32::from(connect.sq_size) >= depth_max {
            return Err(Refusal::in_command(Connect::OFFSET_SQ_SIZE));
        }
        let group = self.group_of(endpoint);
        let (command_id, endpoint, who) = (command.command_id(), *endpoint, Arc::new(who));
        let asked = Asked { key, command_id, connect, endpoint, group, who };
        if connect.queue_id == 0 {
            self.begin_admin(now, asked, controller_id)
        } else {
            self.begin_io(now, asked, controller_id)
        }
    }

    /// Notes a Connect that waits; the mark with which other shards are asked.
    fn wait(&mut self, asked: Asked, wait: Wait) -> Slot {
        let key = asked.key;
        let ask = self.pending.insert(Pending { asked, gone: false, wait });
        self.keys.insert(key, KeyState::Pending(ask));
        ask
    }

    /// The connection of a Connect that still waits is gone.
    pub(super) fn abandon_connect(&mut self, ask: Slot) {
        self.pending.get_mut(ask).expect("a pending key has its Connect").gone = true;
    }

    /// Ends a Connect that waited: if its connection is still there it hears what `finish` says of
    /// it. Returns whether it became a queue.
    fn conclude(
        &mut self,
        ask: Slot,
        finish: impl FnOnce(&mut Self, &Asked) -> Result<Reply, Refusal>,
    ) -> bool {
        let Pending { asked, gone, .. } = self.pending.remove(ask).expect("one end to each wait");
        if gone {
            return false;
        }
        self.keys.remove(&asked.key);
        let outcome = finish(self, &asked);
        let joined = outcome.is_ok();
        let reply = outcome.unwrap_or_else(|refusal| refusal.reply(asked.command_id));
        self.reply(asked.key, reply);
        joined
    }

    /// The export that this association may use; `None` for the discovery subsystem.
    fn allowed_export(&self, who: &Association) -> Result<Option<Slot>, Refusal> {
        if who.subsystem.is_discovery() {
            return Ok(None);
        }
        let Some(&slot) = self.export_of.get(&who.subsystem) else {
            let mut refusal = Refusal::in_data(ConnectData::OFFSET_SUBSYSTEM);
            if !self.configured {
                // It may come with the rest of the configuration.
                refusal.status = refusal.status.without_hints();
            }
            return Err(refusal);
        };
        let export = self.exports.get(slot).expect("names lead to exports");
        if !export.subsystem.hosts.allow(&who.host.nqn) {
            return Err(Refusal::new(Status::CONNECT_INVALID_HOST.with_dnr()));
        }
        Ok(Some(slot))
    }

    fn begin_admin(&mut self, now: Instant, asked: Asked, id: u16) -> Result<Answer, Refusal> {
        if id != ConnectData::CONTROLLER_ANY {
            return Err(Refusal::in_data(ConnectData::OFFSET_CONTROLLER_ID));
        }
        let export = self.allowed_export(&asked.who).inspect_err(|refusal| {
            let status = refusal.status.without_hints();
            let why = match status {
                // It may come with the rest of the configuration, and the host asks again.
                _ if status == refusal.status => return,
                Status::CONNECT_INVALID_HOST => Refused::NotNamed,
                _ => Refused::NotExported,
            };
            self.tell_of_host(&asked.who, &asked.endpoint, HostEvent::Refused(why));
        })?;
        self.check_room(&asked.who)?;
        let alone = self.shards == 1 && self.is_clear(&asked.who);
        if export.is_none() || alone {
            return self.finish_admin(now, &asked).map(Answer::Now);
        }
        let who = Association::clone(&asked.who);
        let ask = self.wait(asked, Wait::Hosts { left: self.shards, busy: false });
        self.send_all(&Message::HostAsk { ask, who: who.clone() });
        self.hold_for_host(now, self.shard, ask, who);
        Ok(Answer::Later)
    }

    /// Bounds on controllers: more of them than this is "busy", since others may go.
    fn check_room(&self, who: &Association) -> Result<(), Refusal> {
        let same = self.controllers.values().filter(|controller| *controller.who == *who).count();
        if self.controllers.len() >= CONTROLLERS_MAX || same >= CONTROLLERS_PER_HOST_MAX {
            return Err(Refusal::busy());
        }
        Ok(())
    }

    /// Nothing of the host's drains anywhere: make the controller.
    fn finish_admin(&mut self, now: Instant, asked: &Asked) -> Result<Reply, Refusal> {
        // The configuration may have changed while other shards were asked.
        let export = self.allowed_export(&asked.who)?;
        self.check_room(&asked.who)?;
        let name = self.next_name().ok_or_else(Refusal::busy)?;
        let slot = self.insert_queue(now, asked, name, self.shard, export, Mistaken::new());
        if export.is_some() {
            let subsystem = asked.who.subsystem.clone();
            self.send_all(&Message::ControllerMade { controller: name.id, subsystem });
        }
        self.controllers.insert(name.id, Controller::new(now, name, export, asked, slot));
        self.arm_keep_alive(name);
        self.tell_of_host(&asked.who, &asked.endpoint, HostEvent::Connected);
        Ok(asked.accepted(slot, name.id))
    }

    /// The next CNTLID of this shard: cyclic, so that one is used again as late as possible, and
    /// never while a controller has it.
    fn next_name(&mut self) -> Option<ControllerRef> {
        let step = u32::from(self.shards);
        for _ in 0..=CONTROLLER_ID_MAX / step {
            let id = self.next_id;
            self.next_id += step;
            if self.next_id > CONTROLLER_ID_MAX {
                self.next_id = u32::from(self.shard.0);
            }
            if id != 0 && !self.controllers.contains_key(&(id as u16)) {
                self.next_instance = self.next_instance.wrapping_add(1);
                return Some(ControllerRef { id: id as u16, instance: self.next_instance });
            }
        }
        None
    }

    fn begin_io(&mut self, now: Instant, asked: Asked, id: u16) -> Result<Answer, Refusal> {
        let export = self.allowed_export(&asked.who)?;
        let queue_id = asked.connect.queue_id;
        if queue_id > IO_QUEUES_MAX || export.is_none() {
            return Err(Refusal::in_command(Connect::OFFSET_QUEUE_ID));
        }
        if id == 0 || u32::from(id) > CONTROLLER_ID_MAX {
            return Err(Refusal::in_data(ConnectData::OFFSET_CONTROLLER_ID));
        }
        let owner = ShardId::owner_of(id.into(), self.shards);
        let who = Association::clone(&asked.who);
        let wanted = QueueWanted { controller: id, queue_id, group: asked.group, who };
        if owner == self.shard {
            let admission = self.admit_queue(now, owner, &wanted)?;
            return self.finish_io(now, &asked, owner, admission).map(Answer::Now);
        }
        let ask = self.wait(asked, Wait::Owner);
        self.send(owner, Message::ConnectAsk { ask, wanted: Box::new(wanted) });
        Ok(Answer::Later)
    }

    /// The owner's decision about an I/O queue of shard `from`. A yes reserves the QID until the
    /// queue is gone; for a queue of this shard [`Self::finish_io`] does that.
    pub(super) fn admit_queue(
        &mut self,
        now: Instant,
        from: ShardId,
        wanted: &QueueWanted,
    ) -> Result<Admission, Refusal> {
        let controller = self.controllers.get(&wanted.controller);
        let Some(controller) = controller.filter(|it| it.phase != Phase::Failed) else {
            return Err(Refusal::in_data(ConnectData::OFFSET_CONTROLLER_ID));
        };
        check_same(&controller.who, &wanted.who)?;
        if controller.group != wanted.group {
            // Its namespaces have one state: all its queues come by one path.
            return Err(Refusal::in_data(ConnectData::OFFSET_CONTROLLER_ID));
        }
        if wanted.queue_id > controller.features.queues_granted {
            return Err(Refusal::in_command(Connect::OFFSET_QUEUE_ID));
        }
        if !controller.is_ready() || controller.status.shst() != 0 {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        let drains = match controller.io_queue(wanted.queue_id) {
            IoQueue::Free => None,
            IoQueue::Local(slot) => Some(!self.queues.get(slot).is_some_and(|queue| queue.open)),
            IoQueue::Remote { lost, .. } => Some(lost),
        };
        if let Some(drains) = drains {
            // One that drains goes; a retry will find it gone.
            let status = Status::COMMAND_SEQUENCE_ERROR;
            return Err(Refusal::new(if drains { status } else { status.with_dnr() }));
        }
        let controller = self.controllers.get_mut(&wanted.controller).expect("just seen");
        controller.heard = controller.heard.max(now);
        let name = controller.name;
        if from != self.shard {
            let queue = IoQueue::Remote { shard: from, lost: false };
            controller.set_io_queue(wanted.queue_id, queue);
        }
        Ok(self.admission(name))
    }

    /// The owner said yes: the connection becomes a queue.
    fn finish_io(
        &mut self,
        now: Instant,
        asked: &Asked,
        owner: ShardId,
        Admission { controller: name, known }: Admission,
    ) -> Result<Reply, Refusal> {
        let export = self.allowed_export(&asked.who)?;
        let mistaken = self.mistaken_about(export, known);
        let slot = self.insert_queue(now, asked, name, owner, export, mistaken);
        if owner == self.shard {
            let controller = self.controller_mut(name).expect("it has just admitted the queue");
            controller.set_io_queue(asked.connect.queue_id, IoQueue::Local(slot));
        } else {
            self.foreign.entry(name).or_default().push(slot);
        }
        Ok(asked.accepted(slot, name.id))
    }

    /// The owner of a controller answered about an I/O queue.
    pub(super) fn queue_answered(
        &mut self,
        now: Instant,
        owner: ShardId,
        ask: Slot,
        answer: Result<Admission, Refusal>,
    ) {
        let queue_id = self.pending.get(ask).expect("it waits").asked.connect.queue_id;
        let admitted = answer.as_ref().ok().map(|admission| admission.controller);
        let joined = self
            .conclude(ask, |controllers, asked| controllers.finish_io(now, asked, owner, answer?));
        // A connection that did not wait, or may not be there any more, gives the number back.
        if let Some(controller) = admitted.filter(|_| !joined) {
            // Its owner heard the Connect when it admitted it.
            let quiet = Duration::MAX;
            self.send(owner, Message::QueueGone { controller, queue_id, quiet });
        }
    }

    fn insert_queue(
        &mut self,
        now: Instant,
        asked: &Asked,
        controller: ControllerRef,
        owner: ShardId,
        export: Option<Slot>,
        mistaken: Mistaken,
    ) -> Slot {
        let (key, id, who) = (asked.key, asked.connect.queue_id, Arc::clone(&asked.who));
        let (heard, stopped, open, traffic) = (now, false, true, Traffic::default());
        let queue = Queue {
            key,
            id,
            controller,
            owner,
            export,
            who,
            heard,
            stopped,
            open,
            traffic,
            mistaken,
            came: Default::default(),
        };
        let slot = self.queues.insert(queue);
        self.keys.insert(key, KeyState::Queue(slot));
        slot
    }

    /// Whether nothing of this host with this subsystem drains here.
    fn is_clear(&self, who: &Association) -> bool {
        let queue_drains = self.draining > 0
            && self.queues.iter().any(|(_, queue)| !queue.open && *queue.who == *who);
        let failed =
            |controller: &Controller| controller.phase == Phase::Failed && *controller.who == *who;
        !queue_drains && !self.controllers.values().any(failed)
    }

    /// A shard (maybe this one) wants to know when nothing of a host drains here.
    pub(super) fn hold_for_host(
        &mut self,
        now: Instant,
        from: ShardId,
        ask: Slot,
        who: Association,
    ) {
        if self.is_clear(&who) {
            return self.answer_host(now, from, ask, false);
        }
        let until = now + HOST_HOLD;
        self.timers.insert((until, Timer::HostHold));
        self.waiters.push(HostWaiter { from, ask, who, until });
    }

    fn answer_host(&mut self, now: Instant, to: ShardId, ask: Slot, busy: bool) {
        if to == self.shard {
            self.host_answered(now, ask, busy);
        } else {
            self.send(to, Message::HostAnswer { ask, busy });
        }
    }

    /// Something has drained, or a moment has come: those who waited for it are told that nothing
    /// drains any more, those who waited long enough that their host is busy.
    pub(super) fn answer_hosts(&mut self, now: Instant) {
        for waiter in core::mem::take(&mut self.waiters) {
            let busy = !self.is_clear(&waiter.who);
            if busy && now < waiter.until {
                self.waiters.push(waiter);
            } else {
                self.answer_host(now, waiter.from, waiter.ask, busy);
            }
        }
    }

    /// A shard said whether something of a host drains there.
    pub(super) fn host_answered(&mut self, now: Instant, ask: Slot, answer: bool) {
        let pending = self.pending.get_mut(ask).expect("it waits for every shard");
        let Wait::Hosts { left, busy } = &mut pending.wait else {
            unreachable!("hosts are asked about for admin queues alone");
        };
        *left -= 1;
        *busy |= answer;
        if let (0, busy) = (*left, *busy) {
            self.conclude(ask, |controllers, asked| match busy {
                true => Err(Refusal::busy()),
                false => controllers.finish_admin(now, asked),
            });
        }
    }
}

impl Asked {
    fn accepted(&self, slot: Slot, controller: u16) -> Reply {
        let Connect { queue_id, sq_size, attributes, .. } = self.connect;
        let view = QueueView {
            handle: QueueHandle(slot),
            controller,
            queue_id,
            depth: sq_size + 1,
            flow_control_off: attributes.disable_sq_flow_control(),
            group: self.group,
        };
        let reply = Reply::new(self.command_id, Status::SUCCESS).with_result(controller.into());
        Reply { queue: Some(view), ..reply }
    }
}

/// The data of Connect: who connects to what, and CNTLID.
fn parse_data(data: &[u8]) -> Result<(Association, u16), Refusal> {
    if data.len() < ConnectData::SIZE {
        return Err(Refusal::new(Status::INVALID_SGL_LENGTH.with_dnr()));
    }
    let data = ConnectData::parse(data).map_err(|error| {
        let in_host = error.offset >= usize::from(ConnectData::OFFSET_HOST);
        Refusal::in_data(if in_host {
            ConnectData::OFFSET_HOST
        } else {
            ConnectData::OFFSET_SUBSYSTEM
        })
    })?;
    let host = Host::new(data.host, data.host_id);
    Ok((Association { host, subsystem: data.subsystem }, data.controller_id))
}

/// An I/O queue is of the same subsystem and host as its admin queue.
fn check_same(who: &Association, wanted: &Association) -> Result<(), Refusal> {
    if who.subsystem != wanted.subsystem {
        return Err(Refusal::in_data(ConnectData::OFFSET_SUBSYSTEM));
    }
    if who.host.nqn != wanted.host.nqn {
        return Err(Refusal::in_data(ConnectData::OFFSET_HOST));
    }
    if who.host.id != wanted.host.id {
        return Err(Refusal::in_data(0));
    }
    Ok(())
}
