//! The world of the dialogues: a driver that keeps the contract, volumes, targets, and what a host
//! does with them.

use core::time::Duration;
use std::sync::OnceLock;

use block::{Class, Failure, Instant, Outcome, VolumeId, limits};
use contract::SendBatch;
use reservation::replica::Answer;
use reservation::{Change, PathChange, PathGroup, PathState, Reservation, SetBy};
pub(super) use testkit::iscsi::host::{Host, Order};
pub(super) use testkit::iscsi::{Said, seal};
use testkit::pipe::Pipe;
use testkit::{Agreement, ShardStub, perform};
use wire::iscsi::{Digests, R2t};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, SenseKey};

use crate::fixtures::{self, GENERATION};
pub(super) use crate::fixtures::{ALL_DIGESTS, BOTH, HOST, TARGET, pattern};
use crate::server::{Connection, Context};
use crate::target::Target;
use crate::targets::Targets;

/// Bytes of each volume.
pub(super) const VOLUME: usize = 2 << 20;
/// The first CmdSN of every host: numbers of all tests go round.
pub(super) const CMD_SN: u32 = u32::MAX - 1;

/// A connection with its driver and its host.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) pipe: Pipe,
    pub(super) host: Host<()>,
    pub(super) sent: Vec<u8>,
    /// Bytes of each batch.
    pub(super) batches: Vec<usize>,
    /// Whether batches stay out.
    pub(super) hold_sends: bool,
    /// Bytes shown at once at most.
    pub(super) cut: usize,
}

/// All of it.
pub(super) struct World {
    pub(super) shard: ShardStub<Targets>,
    pub(super) links: Vec<Link>,
    pub(super) volumes: Vec<Vec<u8>>,
    /// Whether requests wait until the test lets them go.
    pub(super) hold_requests: bool,
    /// What the next request ends with, instead of being carried out.
    pub(super) fail_next: Option<Failure>,
    /// Reservations, and whether changes wait until the test lets them go.
    agreement: Agreement<Reservation>,
    pub(super) hold_changes: bool,
    /// Whether what is to be stored cannot be.
    pub(super) is_broken: bool,
    /// Names of the operations that were carried out.
    pub(super) log: Vec<&'static str>,
    /// Where the next connection reaches us.
    pub(super) local: &'static str,
}

/// The number of proposals that are no session's.
const FOREIGN: u64 = u64::MAX;

/// LUN 0 on volume 0, LUN 1 read-only on volume 1, LUN 300 on volume 2, without discards.
pub(super) fn target() -> Target {
    let (first, mut second, mut third) =
        (fixtures::unit(0, VOLUME), fixtures::unit(1, VOLUME), fixtures::unit(2, VOLUME));
    second.read_only = true;
    third.discards = false;
    fixtures::target(TARGET, [(0, first), (1, second), (300, third)])
}

/// A read of LUN 0.
pub(super) fn read(lba: u32, bytes: u32) -> Order {
    Order::read(0, Cdb::read_10(lba, (bytes / 512) as u16), bytes)
}

/// A write of LUN 0.
pub(super) fn write(lba: u32, bytes: u32) -> Order {
    Order::write(0, Cdb::write_10(lba, (bytes / 512) as u16, false), bytes)
}

/// A command of LUN 0 that moves nothing.
pub(super) fn flush() -> Order {
    Order::new(0, Cdb::synchronize_cache_10())
}

impl World {
    /// A pool of the smallest size, and [`target`].
    pub(super) fn new() -> World {
        World::exporting([target()])
    }

    /// The same with these targets.
    pub(super) fn exporting(targets: impl IntoIterator<Item = Target>) -> World {
        // Made once: hundreds of worlds begin with it.
        static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
        let content =
            CONTENT.get_or_init(|| (0..VOLUME).map(|i| (i / 512 * 7 + i) as u8).collect());
        let now = Instant(1_000_000);
        let mut agreement = Agreement::default();
        (0..3).for_each(|volume| agreement.add(volume, Reservation::default()));
        World {
            agreement,
            hold_changes: false,
            is_broken: false,
            shard: ShardStub::new(now, limits::POOL_PAGES_MIN, fixtures::exported(targets)),
            links: Vec::new(),
            volumes: vec![content.clone(), vec![0; VOLUME], vec![0; VOLUME]],
            hold_requests: false,
            fail_next: None,
            log: Vec::new(),
            local: "127.0.0.1:3260",
        }
    }

    /// A world in which link 0 is logged in, with these digests.
    pub(super) fn connected(digests: Digests) -> World {
        let on = |is_on| if is_on { "CRC32C" } else { "None" };
        World::connected_with(&[
            ("HeaderDigest", on(digests.header)),
            ("DataDigest", on(digests.data)),
            ("InitialR2T", "No"),
            ("MaxBurstLength", "1048576"),
            ("MaxRecvDataSegmentLength", "1048576"),
            ("FirstBurstLength", "8192"),
        ])
    }

    /// A world in which link 0 is logged in, with these keys.
    pub(super) fn connected_with(keys: &[(&str, &str)]) -> World {
        let mut world = World::new();
        world.join(keys);
        world
    }

    /// Logs in to [`TARGET`] by a connection of its own; its link.
    pub(super) fn join(&mut self, keys: &[(&str, &str)]) -> usize {
        let link = self.accept();
        let said = self.log_in(link, Some(TARGET), keys);
        assert!(said.login().is_success() && self.links[link].host.is_logged_in, "{said:?}");
        link
    }

    /// Logs in, or tries to; what is said to it.
    pub(super) fn log_in(
        &mut self,
        link: usize,
        target: Option<&str>,
        keys: &[(&str, &str)],
    ) -> Said {
        let bytes = self.links[link].host.log_in(HOST, target, keys, ());
        self.send(link, &bytes);
        self.said_one(link)
    }

    /// Accepts a connection of a host with an ISID of its own.
    pub(super) fn accept(&mut self) -> usize {
        let index = self.links.len();
        self.links.push(Link {
            connection: fixtures::accepted(self.shard.now, index as u32, self.local),
            pipe: Pipe::default(),
            host: Host::new([0x80, 0, 0, 0, 0, index as u8], CMD_SN),
            sent: Vec::new(),
            batches: Vec::new(),
            hold_sends: false,
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
            moved |= !self.hold_changes && self.agree();
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
            self.release_one(0);
        }
    }

    /// Carries out one request that is held.
    pub(super) fn release_one(&mut self, which: usize) {
        let (at, request) = self.shard.below.held.remove(which).expect("it is held");
        self.log.push(request.operation.name());
        let bytes = &mut self.volumes[at.0 as usize];
        let outcome = self.fail_next.take().map_or(Outcome::Done, Outcome::NotDone);
        let completion = perform(bytes, request, outcome, &mut self.shard.memory);
        let link = completion.ticket.machine.0 as usize;
        assert_eq!(completion.ticket.generation, GENERATION);
        self.with(link, |connection, ctx| connection.handle_completion(completion, ctx));
    }

    /// What the targets have to say, as their shard would carry it.
    fn control(&mut self) -> bool {
        let mut moved = false;
        while let Some((place, event)) = self.shard.shared.poll_event() {
            moved = true;
            let link = place.index as usize;
            if !self.links[link].connection.is_gone() {
                self.with(link, |connection, ctx| connection.handle_event(event, ctx));
            }
        }
        assert!(self.shard.shared.poll_message().is_none(), "one shard writes to nobody");
        moved
    }

    /// Agrees on the changes of reservations and paths that sessions ask for, as their shard would.
    fn agree(&mut self) -> bool {
        let mut moved = false;
        while let Some((number, change)) = self.shard.shared.poll_path_change() {
            moved = true;
            let (answer, changed) = match self.is_broken {
                true => (Answer::NotStored, Vec::new()),
                false => self.shard.decide_paths(&change),
            };
            self.shard.shared.paths_changed(&changed);
            self.shard.shared.handle_path_answer(number, &answer);
        }
        while let Some((volume, number, change)) = self.shard.shared.poll_reservation_change() {
            moved = true;
            self.agreement.propose(volume.0, number, change);
        }
        let ShardStub { shared, reservations, .. } = &mut self.shard;
        let answers = self.agreement.settle(!self.is_broken, |key, value| {
            shared.reservation_changed(VolumeId(key), value.consequences());
            reservations.set(VolumeId(key), value.clone());
            true
        });
        moved |= answers.is_some();
        let answers = answers.unwrap_or_default();
        for (number, answer) in answers.into_iter().filter(|(number, _)| *number != FOREIGN) {
            shared.handle_reservation_answer(number, answer);
        }
        moved
    }

    /// Changes the reservation of volume 0 in the name of somebody who comes another way.
    pub(super) fn change(&mut self, change: Change) {
        self.agreement.propose(0, FOREIGN, change);
        self.run();
    }

    /// A group of listeners is in this state from now on, as an administrator wants it.
    pub(super) fn set_path(&mut self, group: PathGroup, state: PathState) {
        let change = PathChange { states: vec![(group, state)], by: SetBy::Administrator };
        let (_, changed) = self.shard.decide_paths(&change);
        self.shard.shared.paths_changed(&changed);
        self.run();
    }

    /// Memory may be free again. Whether somebody waits still.
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
    pub(super) fn pass(&mut self, link: usize, time: Duration) {
        self.shard.now = self.shard.now + time;
        let now = self.shard.now;
        self.shard.shared.handle_timeout(now);
        self.with(link, |connection, ctx| connection.handle_timeout(ctx));
        self.run();
    }

    /// All that the target said since the last call, none of which its host may not hear.
    pub(super) fn said(&mut self, link: usize) -> Vec<Said> {
        let Link { host, sent, .. } = &mut self.links[link];
        host.hear(&core::mem::take(sent));
        let mut said = Vec::new();
        while let Some(heard) = host.next().unwrap_or_else(|why| panic!("{why}")) {
            said.push(heard.said);
        }
        assert_eq!(host.unheard(), 0, "PDUs leave whole");
        said
    }

    /// The one thing that it said.
    pub(super) fn said_one(&mut self, link: usize) -> Said {
        let mut said = self.said(link);
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// Sends a command with these data; its task tag.
    pub(super) fn command(&mut self, link: usize, order: Order, data: &[u8]) -> u32 {
        let (tag, bytes) = self.links[link].host.command(order, data, ());
        self.send(link, &bytes);
        tag
    }

    /// Sends a command on link 0; the one thing that is said to it.
    pub(super) fn ask(&mut self, order: Order, data: &[u8]) -> Said {
        self.command(0, order, data);
        self.said_one(0)
    }

    /// Data for an R2T on link 0, `most` bytes a PDU; the one thing that is said to them.
    pub(super) fn granted(&mut self, r2t: &R2t, data: &[u8], most: u32) -> Said {
        self.grant(r2t, data, most);
        self.said_one(0)
    }

    /// Data for an R2T on link 0, of all those of its command, `most` bytes a PDU.
    pub(super) fn grant(&mut self, r2t: &R2t, data: &[u8], most: u32) {
        let bytes = self.links[0].host.give_all(r2t, data, most);
        self.send(0, &bytes);
    }

    /// Writes on link 0 as a host does that knows what was agreed on: as much as may be with the
    /// command, the rest of the first burst, and what is asked for. The answer.
    pub(super) fn write_all(&mut self, order: Order, data: &[u8]) -> Said {
        let host = &mut self.links[0].host;
        let agreed = host.agreed;
        let first = (agreed.first_burst as usize).min(data.len());
        let with = match agreed.immediate_data {
            true => first.min(agreed.target_segment as usize),
            false => 0,
        };
        let follows = !agreed.initial_r2t && with < first;
        let order = if follows { order.unfinished() } else { order };
        let (tag, mut bytes) = host.command(order, &data[..with], ());
        if follows {
            bytes.extend(host.unasked(tag, with as u32, &data[with..first], true));
        }
        self.send(0, &bytes);
        loop {
            match self.said_one(0) {
                Said::R2t(r2t) => self.grant(&r2t, data, u32::MAX),
                answer => return answer,
            }
        }
    }

    /// Reads on link 0: the data, and the answer.
    pub(super) fn read_all(&mut self, order: Order) -> (Vec<u8>, Said) {
        self.command(0, order, &[]);
        let mut said = self.said(0);
        let answer = said.last().cloned().expect("an answer");
        let data = said.drain(..).flat_map(|said| match said {
            Said::Data(_, data) => data,
            _ => Vec::new(),
        });
        (data.collect(), answer)
    }

    /// Whether the session of link 0 still works.
    pub(super) fn lives(&mut self) -> bool {
        let (data, answer) = self.read_all(read(0, 512));
        data == self.volumes[0][..512] && answer.status() == ScsiStatus::GOOD
    }
}

/// A command has to have failed for this reason.
#[track_caller]
pub(super) fn refused(said: &Said, key: SenseKey, code: AdditionalSense) {
    assert_eq!(said.status(), ScsiStatus::CHECK_CONDITION, "{said:?}");
    assert_eq!((said.sense().key, said.sense().code), (key, code), "{said:?}");
}

/// Closes everything in every state and sees that nothing is left.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        (self.hold_changes, self.is_broken) = (false, false);
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
        assert_eq!(self.shard.shared.session_count(), 0, "sessions are left");
    }
}
