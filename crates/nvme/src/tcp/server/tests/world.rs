//! The world of the dialogues: a driver that keeps the contract, volumes, controllers, and what a
//! host does with them.

use std::sync::OnceLock;

use block::{Class, Failure, Instant, Outcome, VolumeId, limits};
use contract::SendBatch;
use reservation::Change;
use testkit::nvme::hear;
pub(super) use testkit::nvme::{Said, capsule, host_data, seal};
use testkit::pipe::Pipe;
use testkit::shard::Decision;
use testkit::{ShardStub, perform};
use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, ConnectData};
use wire::nvme::{Command, Completion as Entry, Status};
use wire::nvme_tcp::{Digests, FatalErrorStatus, ICReq, PduType, R2T, TermReq};

use super::transfer::IO;
use crate::controllers::Controllers;
use crate::fixtures::{self, nqn};
pub(super) use crate::fixtures::{ALL_DIGESTS, BOTH, SUBSYSTEM, pattern};
use crate::subsystem::Namespace;
use crate::tcp::server::{Connection, Context, Settings};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
/// Bytes of each volume.
pub(super) const VOLUME: usize = 2 << 20;

/// A connection with its driver and its host.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) pipe: Pipe,
    pub(super) sent: Vec<u8>,
    /// Bytes of each batch.
    pub(super) batches: Vec<usize>,
    /// Whether batches stay out.
    pub(super) hold_sends: bool,
    pub(super) digests: Digests,
    /// Bytes shown at once at most.
    pub(super) cut: usize,
}

/// All of it.
pub(super) struct World {
    pub(super) shard: ShardStub<Controllers>,
    pub(super) links: Vec<Link>,
    pub(super) volumes: Vec<Vec<u8>>,
    /// HOSTID of the hosts that connect from now on.
    pub(super) host_id: [u8; 16],
    /// Whether changes of reservations wait until the test has them decided.
    pub(super) hold_changes: bool,
    /// Whether requests wait until the test lets them go.
    pub(super) hold_requests: bool,
    /// What the next request ends with, instead of being carried out.
    pub(super) fail_next: Option<Failure>,
    /// Names of the operations that were carried out.
    pub(super) log: Vec<&'static str>,
    /// Chosen by the next connect.
    pub(super) settings: Settings,
}

pub(super) fn namespace(nsid: u32, volume: u32, read_only: bool) -> Namespace {
    Namespace { read_only, ..fixtures::namespace(nsid, volume, VOLUME) }
}

/// Those of the subsystem: 1 as given, 2 read-only, 5.
fn namespaces(first: Option<Namespace>) -> impl Iterator<Item = Namespace> {
    first.into_iter().chain([namespace(2, 1, true), namespace(5, 2, false)])
}

impl World {
    /// A pool of the smallest size; namespace 1 on volume 0, namespace 2 read-only on volume 1,
    /// namespace 5 on volume 2.
    pub(super) fn new() -> World {
        let now = Instant(1_000_000);
        let first = Some(namespace(1, 0, false));
        let controllers = fixtures::controllers(now, fixtures::subsystem(namespaces(first)));
        // Made once: hundreds of worlds begin with it.
        static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
        let content =
            CONTENT.get_or_init(|| (0..VOLUME).map(|i| (i / 512 * 7 + i) as u8).collect());
        World {
            shard: ShardStub::new(now, limits::POOL_PAGES_MIN, controllers),
            links: Vec::new(),
            volumes: vec![content.clone(), vec![0; VOLUME], vec![0; VOLUME]],
            host_id: [7; 16],
            hold_changes: false,
            hold_requests: false,
            fail_next: None,
            log: Vec::new(),
            settings: Settings::default(),
        }
    }

    /// Puts this under number 1, or nothing.
    pub(super) fn put(&mut self, first: Option<Namespace>) {
        let subsystem = fixtures::subsystem(namespaces(first));
        self.shard.shared.set_subsystem(self.shard.now, subsystem);
        self.shard.shared.announce_exports();
    }

    /// Accepts a connection.
    pub(super) fn accept(&mut self) -> usize {
        let index = self.links.len();
        self.links.push(Link {
            connection: fixtures::accepted(self.shard.now, index as u32, self.settings),
            pipe: Pipe::default(),
            sent: Vec::new(),
            batches: Vec::new(),
            hold_sends: false,
            digests: Digests::NONE,
            cut: usize::MAX,
        });
        index
    }

    pub(super) fn with<R>(
        &mut self,
        link: usize,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> R {
        act(&mut self.links[link].connection, &mut self.shard.context())
    }

    /// Sends bytes of the host; all there is to do is done.
    pub(super) fn send(&mut self, link: usize, bytes: &[u8]) {
        for piece in bytes.chunks(self.links[link].cut) {
            self.links[link].pipe.receive(piece);
            self.run();
        }
    }

    /// Turns until nothing happens any more.
    pub(super) fn run(&mut self) {
        loop {
            let mut moved = false;
            for link in 0..self.links.len() {
                moved |= self.receive(link);
            }
            moved |= self.serve();
            moved |= self.control();
            moved |= !self.hold_changes && self.decide();
            for link in 0..self.links.len() {
                moved |= self.effects(link);
            }
            if !moved {
                return;
            }
        }
    }

    fn receive(&mut self, link: usize) -> bool {
        let Link { connection, pipe, .. } = &mut self.links[link];
        fixtures::show(&mut self.shard, pipe, connection)
    }

    fn effects(&mut self, link: usize) -> bool {
        if self.links[link].pipe.closed {
            return false;
        }
        self.with(link, |connection, ctx| connection.settle(ctx));
        let mut moved = false;
        while let Some(effect) = self.links[link].connection.poll_effect() {
            moved = true;
            self.links[link].pipe.handle(effect);
            if !self.links[link].hold_sends {
                self.finish_send(link);
            }
        }
        moved
    }

    /// The batch that is out leaves.
    pub(super) fn finish_send(&mut self, link: usize) {
        let Link { pipe, sent, batches, .. } = &mut self.links[link];
        let Some((bytes, batch)) = pipe.leave(&self.shard.memory) else { return };
        sent.extend_from_slice(&bytes);
        batches.push(bytes.len());
        self.with(link, |connection, ctx| connection.handle_sent(batch, ctx));
    }

    /// Bytes outside the pool that leave for a host, or wait to.
    pub(super) fn held(&self, link: usize) -> usize {
        let Link { connection, pipe, .. } = &self.links[link];
        connection.bytes_gathered() + pipe.out.as_ref().map_or(0, SendBatch::bytes_held)
    }

    /// Lets the batch that is out go, and all that follows.
    pub(super) fn release_sends(&mut self, link: usize) {
        self.links[link].hold_sends = false;
        self.finish_send(link);
        self.run();
    }

    /// The driver has closed: what was lent comes back.
    pub(super) fn closed(&mut self, link: usize) {
        let (direct, batch) = self.links[link].pipe.shut();
        self.with(link, |connection, ctx| connection.handle_closed(direct, batch, ctx));
        self.run();
    }

    fn serve(&mut self) -> bool {
        let moved = !self.hold_requests && !self.shard.below.held.is_empty();
        if moved {
            self.release_requests();
        }
        moved
    }

    /// Carries out all requests that are held.
    pub(super) fn release_requests(&mut self) {
        for _ in 0..self.shard.below.held.len() {
            let (at, request) = self.shard.below.held.pop_front().expect("it was counted");
            self.log.push(request.operation.name());
            let bytes = &mut self.volumes[at.0 as usize];
            let outcome = self.fail_next.take().map_or(Outcome::Done, Outcome::NotDone);
            let completion = perform(bytes, request, outcome, &mut self.shard.memory);
            let link = completion.ticket.machine.0 as usize;
            assert_eq!(completion.ticket.generation, 3);
            self.with(link, |connection, ctx| connection.handle_completion(completion, ctx));
        }
    }

    /// What the controllers have to say, as their shard would carry it.
    fn control(&mut self) -> bool {
        let mut moved = false;
        while let Some((key, event)) = self.shard.shared.poll_event() {
            moved = true;
            let link = key.machine.0 as usize;
            self.with(link, |connection, ctx| connection.handle_event(event, ctx));
        }
        moved
    }

    /// Changes of reservations that hosts asked for are decided, as by the only shard.
    pub(super) fn decide(&mut self) -> bool {
        let mut moved = false;
        while let Some((volume, number, change)) = self.shard.shared.poll_reservation_change() {
            moved = true;
            let answer = self.change(volume, &change);
            self.shard.shared.handle_reservation_answer(number, &answer);
        }
        moved
    }

    /// Somebody changes a reservation, whatever he speaks.
    pub(super) fn change(&mut self, volume: VolumeId, change: &Change) -> Decision {
        let (answer, consequences) = self.shard.decide(volume, change);
        self.shard.shared.reservation_changed(volume, &consequences);
        answer
    }

    /// Memory may be free again.
    pub(super) fn wake(&mut self, link: usize) -> bool {
        self.shard.pool.begin_line();
        let waits = Class::ALL.map(|class| {
            self.with(link, |connection, ctx| {
                connection.handle_memory(class, ctx);
                assert!(!connection.would_go_on(class, ctx.pool), "it went on as far as it could");
                connection.waits_for_memory(class)
            })
        });
        self.run();
        waits.contains(&true)
    }

    /// Time passes until the machine's own limits are looked at.
    pub(super) fn pass(&mut self, link: usize, time: core::time::Duration) {
        self.shard.now = self.shard.now + time;
        self.with(link, |connection, ctx| connection.handle_timeout(ctx));
        self.run();
    }

    /// All that the target said since the last call.
    pub(super) fn said(&mut self, link: usize) -> Vec<Said> {
        let sent = core::mem::take(&mut self.links[link].sent);
        let digests = self.links[link].digests;
        let mut said = Vec::new();
        let mut at = 0;
        while at < sent.len() {
            let (pdu, length) = hear(&sent[at..], digests);
            said.push(pdu);
            at += length;
        }
        said
    }

    /// The one thing that it said.
    pub(super) fn said_one(&mut self, link: usize) -> Said {
        let mut said = self.said(link);
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// Sends a command without data in its capsule.
    pub(super) fn command(&mut self, link: usize, command: Command) {
        let capsule = capsule(command, &[], self.links[link].digests);
        self.send(link, &capsule);
    }

    /// Sends a command with its data in its capsule.
    pub(super) fn command_with(&mut self, link: usize, command: Command, data: &[u8]) {
        let command = command.with_sgl(SglDescriptor::in_capsule(data.len() as u32));
        let capsule = capsule(command, data, self.links[link].digests);
        self.send(link, &capsule);
    }

    /// Sends a command; the one thing that is said to it.
    pub(super) fn ask(&mut self, link: usize, command: Command) -> Said {
        self.command(link, command);
        self.said_one(link)
    }

    /// The same, with data in its capsule.
    pub(super) fn ask_with(&mut self, link: usize, command: Command, data: &[u8]) -> Said {
        self.command_with(link, command, data);
        self.said_one(link)
    }

    /// Sends data for an R2T, `chunk` bytes a PDU; the one thing that is said to them.
    pub(super) fn granted(&mut self, link: usize, r2t: &R2T, data: &[u8], chunk: usize) -> Said {
        self.grant(link, r2t, data, chunk);
        self.said_one(link)
    }

    /// Sends data for an R2T, `chunk` bytes a PDU.
    pub(super) fn grant(&mut self, link: usize, r2t: &R2T, data: &[u8], chunk: usize) {
        assert_eq!(r2t.length as usize, data.len());
        let digests = self.links[link].digests;
        let mut offset = 0;
        for piece in data.chunks(chunk) {
            let last = offset + piece.len() == data.len();
            let pdu = host_data(r2t, offset as u32, piece, last, digests);
            self.send(link, &pdu);
            offset += piece.len();
        }
    }

    /// Accepts a connection and agrees on digests.
    pub(super) fn greet(&mut self, digests: Digests) -> usize {
        let link = self.accept();
        self.greet_on(link, digests);
        link
    }

    pub(super) fn greet_on(&mut self, link: usize, digests: Digests) {
        self.send(link, &ICReq::new(digests, 0).emit());
        assert!(matches!(self.said_one(link), Said::ICResp(_)));
        self.links[link].digests = digests;
    }

    /// Connects an admin queue of 32 entries and enables its controller; its link and CNTLID.
    pub(super) fn connect_admin(&mut self, digests: Digests) -> (usize, u16) {
        self.connect_admin_to(SUBSYSTEM, 31, digests)
    }

    pub(super) fn connect_admin_to(
        &mut self,
        subsystem: &str,
        sq_size: u16,
        digests: Digests,
    ) -> (usize, u16) {
        let link = self.greet(digests);
        let entry = self.connect(link, subsystem, ConnectData::CONTROLLER_ANY, sq_size, false);
        assert!(entry.status.is_success(), "{entry}");
        let cc = Configuration(0).with_enable(true).with_iosqes(6).with_iocqes(4);
        let enable = Command::property_set(0x14, cc.0).with_command_id(9);
        assert!(self.ask(link, enable).status().is_success());
        (link, entry.result as u16)
    }

    /// Connects I/O queue 1 of a controller, or the admin queue of a new one (0xffff); its
    /// completion.
    pub(super) fn connect(
        &mut self,
        link: usize,
        subsystem: &str,
        controller_id: u16,
        sq_size: u16,
        flow_control_off: bool,
    ) -> Entry {
        let attributes = ConnectAttributes(if flow_control_off { 4 } else { 0 });
        let connect = Connect {
            record_format: 0,
            queue_id: u16::from(controller_id != ConnectData::CONTROLLER_ANY),
            sq_size,
            attributes,
            keep_alive_ms: 0,
        };
        let data = ConnectData {
            host_id: self.host_id,
            controller_id,
            subsystem: nqn(subsystem),
            host: Some(nqn(HOST)),
        };
        self.ask_with(link, Command::connect(&connect), &data.emit()).response()
    }

    /// A world with an admin queue (link 0) and an I/O queue (link 1).
    pub(super) fn connected(digests: Digests) -> World {
        World::connected_with(digests, 127, false)
    }

    pub(super) fn connected_with(digests: Digests, sq_size: u16, flow_control_off: bool) -> World {
        let mut world = World::new();
        world.join(digests, sq_size, flow_control_off);
        world
    }

    /// Connects an admin queue (link 0) and an I/O queue (link 1).
    pub(super) fn join(&mut self, digests: Digests, sq_size: u16, flow_control_off: bool) {
        let (_, controller) = self.connect_admin(digests);
        self.connect_io(digests, controller, sq_size, flow_control_off);
    }

    pub(super) fn connect_io(
        &mut self,
        digests: Digests,
        controller: u16,
        sq_size: u16,
        flow_control_off: bool,
    ) -> usize {
        let link = self.greet(digests);
        let entry = self.connect(link, SUBSYSTEM, controller, sq_size, flow_control_off);
        assert!(entry.status.is_success(), "{entry}");
        link
    }
}

/// The CIDs and statuses of all that was said on the I/O queue.
/// An H2CTermReq, whose data are the beginning of what it is about.
pub(super) fn termination(fes: FatalErrorStatus, about: &[u8]) -> Vec<u8> {
    let mut bytes = [0; TermReq::SIZE_MAX];
    let length = TermReq::new(PduType::H2C_TERM_REQ, fes, 0, about).emit(&mut bytes);
    bytes[..length].to_vec()
}

pub(super) fn statuses(world: &mut World) -> Vec<(u16, Status)> {
    let said = world.said(IO);
    said.iter().map(|said| (said.response().command_id, said.status())).collect()
}

/// Closes everything in every state and sees that nothing is left.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for link in 0..self.links.len() {
            if self.links[link].pipe.lose() {
                let loss = contract::Loss::EndOfStream;
                self.with(link, |connection, ctx| connection.handle_lost(loss, ctx));
                self.run();
            }
        }
        self.release_requests();
        for link in 0..self.links.len() {
            self.links[link].hold_sends = false;
            self.finish_send(link);
            self.run();
            if !self.links[link].pipe.closed {
                self.closed(link);
            }
            self.release_requests();
            assert!(self.links[link].connection.is_gone(), "link {link} is not gone");
            assert_eq!(self.links[link].connection.pages(), 0, "link {link} holds pages");
            assert_eq!(self.links[link].connection.outstanding(), 0);
        }
        assert_eq!(self.shard.pool.used(), 0, "pages are lost to the pool");
        assert_eq!(self.shard.memory.held(), 0, "pages are lost to the memory");
        assert_eq!(self.shard.shared.queue_count(), 0, "queues are left");
    }
}
