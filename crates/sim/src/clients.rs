//! What a control thread does on a client: every shard imports the target's namespace, a volume
//! lies over the imports, and a client of each shard works on it.
//!
//! A client dies and begins anew with the write numbers that it has not used. Units: bytes of the
//! volume.

use std::sync::MutexGuard;

use contract::{DiskFacts, DiskId};
use reservation::Reservation;
use shard::ImportSettings;
use shard::{Answer, ImportEvent, Mail, News, Order, Shard};
use volume::{Layout, Member};

use crate::client::{Client, Simulated, VOLUME};
use crate::disk::SECTOR;
use crate::run::{MILLISECOND, Orders, Run, Start};
use crate::setup::{Fault, Setup};
use crate::world::World;
use crate::writer::{Ids, Writer};
use crate::{over_aoe, over_iscsi, over_nvme};

/// The number of orders that prepare a shard.
pub(crate) const PREPARES: u64 = 0;

/// How long after a refusal a disk is asked for again.
const IMPORT_REST: u64 = 1_000 * MILLISECOND;

/// What the run knows of a client.
pub(crate) struct ClientState {
    pub(crate) host: usize,
    pub(crate) working: bool,
    /// What the import of each shard said of the disk, when it was found.
    facts: Vec<Option<DiskFacts>>,
    /// Its size, as each was told last.
    pub(crate) told: Vec<u64>,
    /// The orders that give its shards the volume.
    adding: Option<Orders>,
    /// Those by which it lets go of its disk.
    leaving: Option<Orders>,
    /// The numbers of the next writes of its shards after a restart.
    pub(crate) next_ids: Vec<u64>,
}

impl ClientState {
    /// Client number `index` on a host of its own, not started. Its shards' writes are numbered as
    /// those of writers from `first` on.
    pub(crate) fn new(host: usize, shards: u16, first: u64) -> ClientState {
        let next_ids = (first..first + u64::from(shards)).collect();
        let (facts, told) = (Vec::new(), Vec::new());
        let (adding, leaving) = (None, None);
        ClientState { host, working: false, facts, told, adding, leaving, next_ids }
    }

    /// Whether it works on its disk, and keeps it.
    pub(crate) fn is_settled(&self) -> bool {
        self.working && self.leaving.is_none()
    }

    /// Bytes of its volume, once all shards found the disk. It may have grown between two answers.
    pub(crate) fn size(&self) -> Option<u64> {
        let sizes = self.facts.iter().map(|facts| Some(facts.as_ref()?.size.0));
        sizes.collect::<Option<Vec<u64>>>()?.into_iter().min()
    }
}

impl Run {
    pub(crate) fn start_client(&mut self, index: usize) {
        let now = self.world.instant();
        let shards = self.setup.client_shards;
        let host = self.clients[index].host;
        let writers = self.setup.writers();
        let ids = self.ids_of(index);
        let same_tags = self.setup.lan.as_ref().is_some_and(|lan| lan.same_tags);
        // AoE knows no flush: what is answered lasts, but where the target has a cache of its own.
        let cached = self.setup.lan.as_ref().is_some_and(|lan| lan.cached);
        let is_durable = self.setup.is_aoe(index) && !cached;
        let mut workers = Vec::new();
        let machine = |shard: u16| {
            let mut settings =
                self.shard_settings(shard, shards, 4 * block::limits::POOL_PAGES_MIN);
            if same_tags {
                settings.seed = index as u64;
            }
            let first = self.clients[index].next_ids[usize::from(shard)];
            let random = self.random.fork();
            let mut client = Client::new(random, Writer::new(first, writers), ids);
            client.is_durable = is_durable;
            let mut made = Simulated::new(Shard::new(now, settings));
            workers.push(made.look_after(client));
            self.prepare_lan(&mut made, host);
            made
        };
        let machines = (0..shards).map(machine).collect();
        self.world.start(host, machines);
        self.carry_virtual_links(host);
        for (shard, client) in workers.into_iter().enumerate() {
            self.prepare(host, shard, Order::AddClient(client));
        }
        let state = &mut self.clients[index];
        state.leaving = None;
        self.import_all(index);
    }

    /// Every shard of a client asks for its disk.
    fn import_all(&mut self, index: usize) {
        let state = &mut self.clients[index];
        let shards = state.next_ids.len();
        (state.working, state.adding) = (false, None);
        state.facts = vec![None; shards];
        state.told = vec![0; shards];
        for shard in 0..shards {
            self.import(index, shard);
        }
    }

    /// A client lets go of its disk, with requests under way, and asks for it again.
    pub(crate) fn unimport(&mut self, index: usize) {
        let state = &self.clients[index];
        if !state.working || state.leaving.is_some() {
            return;
        }
        self.did.counts.unimports += 1;
        let shards = state.next_ids.len();
        self.clients[index].leaving = Some(self.orders_of(shards));
        self.order_client(index, || Order::QuiesceVolume(VOLUME));
    }

    /// Nothing of its volume is below on any shard of a client.
    fn left(&mut self, index: usize) {
        self.clients[index].leaving = None;
        // What was told in the name of the disk that is gone, nobody vouches for.
        let ids = self.ids_of(index);
        self.oracle.doubted(|id| ids.contain(id));
        let host = self.clients[index].host;
        for shard in 0..self.clients[index].next_ids.len() {
            for order in [Order::ForgetVolume(VOLUME), Order::RemoveDisk(import_disk(index))] {
                let mail = Mail::Order { number: PREPARES, order: Box::new(order) };
                self.world.order(host, shard, mail);
            }
        }
        self.import_all(index);
    }

    pub(crate) fn import(&mut self, index: usize, shard: usize) {
        let settings = import_settings(&self.setup, index);
        self.orders += 1;
        let (disk, settings) = (import_disk(index), Box::new(settings));
        let order = Order::AddImport { disk, settings, by: None };
        let mail = Mail::Order { number: self.orders, order: Box::new(order) };
        self.world.order(self.clients[index].host, shard, mail);
    }

    /// The writes of a client, in all of its lives.
    pub(crate) fn ids_of(&self, index: usize) -> Ids {
        let count = u64::from(self.setup.client_shards);
        Ids { first: index as u64 * count + 1, count, step: self.setup.writers() }
    }

    /// Orders something before anybody can reach the shard; its answer is nobody's concern.
    pub(crate) fn prepare(&mut self, host: usize, shard: usize, order: Order) {
        let mail = Mail::Order { number: PREPARES, order: Box::new(order) };
        self.world.order_first(host, shard, mail);
    }

    /// Orders the same of every shard of a client.
    fn order_client(&mut self, index: usize, order: impl Fn() -> Order) {
        for shard in 0..self.clients[index].next_ids.len() {
            self.orders += 1;
            let mail = Mail::Order { number: self.orders, order: Box::new(order()) };
            self.world.order(self.clients[index].host, shard, mail);
        }
    }

    /// Takes what clients' shards wrote to their control thread.
    pub(crate) fn read_clients_control(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            let host = self.clients[index].host;
            while let Some((from, mail)) = self.world.hosts[host].control.pop_front() {
                let answer = match mail {
                    Mail::Answer { number, answer } => {
                        let is_last = |orders: &mut Option<Orders>| {
                            orders.as_mut().is_some_and(|orders| orders.answered(number))
                        };
                        if is_last(&mut self.clients[index].leaving) {
                            self.left(index);
                        } else if is_last(&mut self.clients[index].adding) {
                            self.begin_work(index);
                        }
                        answer
                    }
                    Mail::News(news) => {
                        match *news {
                            News::DiskProtected(..) => self.reopen_import(index),
                            News::Import(_, ImportEvent::WayLost, told) => {
                                self.did.counts.ways_lost += 1;
                                self.lost_import(index, &told)?;
                            }
                            News::Import(_, ImportEvent::Lost, told) => {
                                self.did.counts.lost += 1;
                                self.lost_import(index, &told)?;
                            }
                            News::DiskChanged(_, facts) => {
                                self.clients[index].told[from.index()] = facts.size.0;
                            }
                            _ => {}
                        }
                        continue;
                    }
                    _ => continue,
                };
                match *answer {
                    Answer::Import(Ok(facts)) => {
                        self.clients[index].told[from.index()] = facts.size.0;
                        self.clients[index].facts[from.index()] = Some(facts);
                        if let Some(length) = self.clients[index].size() {
                            let member = Member { disk: import_disk(index), base: 0, length };
                            let layout = Layout::single(member);
                            let shards = self.clients[index].next_ids.len();
                            self.clients[index].adding = Some(self.orders_of(shards));
                            self.order_client(index, || Order::AddVolume {
                                volume: VOLUME,
                                layout: layout.clone(),
                                reservation: Reservation::default(),
                            });
                        }
                    }
                    Answer::Import(Err(_)) => {
                        let start = Start::Import { client: index, shard: from.index() };
                        self.start_after(IMPORT_REST, start);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A client gave its target up, or one way to it.
    fn lost_import(&mut self, index: usize, told: &str) -> Result<(), String> {
        // A host whose tasks another one ends without a word gives its session up.
        let is_well =
            self.setup.is_strict() && !self.setup.is_aoe(index) && !self.may_be_ended(index);
        match is_well && self.setup.faults[Fault::Garbage] == 0 {
            true => Err(format!("client {index} {told}, and nothing was wrong")),
            false => Ok(()),
        }
    }

    /// Every shard of a client has the volume: they begin.
    fn begin_work(&mut self, index: usize) {
        let host = self.clients[index].host;
        for shard in 0..self.clients[index].next_ids.len() {
            let mut work = self.setup.work;
            work.blocks = self.clients[index].size().map_or(0, |size| size / SECTOR as u64);
            let mut client = client_of(&self.world, host, shard);
            work.request_max = work.request_max.min(work.blocks);
            if let Some(lan) = self.setup.lan.as_ref().filter(|_| self.setup.is_aoe(index)) {
                work.depth = lan.depth.unwrap_or(work.depth);
            }
            client.begin(work);
            if self.healed {
                client.stop();
            }
        }
        self.clients[index].working = true;
        self.world.nudge(host);
    }

    /// A flush failed, since the target may have lost what it had acknowledged: somebody looks at
    /// it, and lets writes pass again.
    fn reopen_import(&mut self, index: usize) {
        let Some(facts) = self.clients[index].facts[0].clone() else { return };
        let disk = import_disk(index);
        self.order_client(index, || Order::RenewDisk { disk, facts: facts.clone() });
    }
}

pub(crate) fn client_of(
    world: &World<Simulated>,
    host: usize,
    shard: usize,
) -> MutexGuard<'_, Client> {
    world.hosts[host].nodes[shard].machine.client().expect("the host is a client")
}

/// The number of a client's disk, so that its owner is not always the first shard.
fn import_disk(index: usize) -> DiskId {
    DiskId(index as u32)
}

/// Where a client finds the target's volume.
fn import_settings(setup: &Setup, client: usize) -> ImportSettings {
    if let Some(lan) = setup.lan.as_ref().filter(|_| setup.is_aoe(client)) {
        return over_aoe::import_settings(lan, setup.uses_second(client));
    }
    if setup.scsi_clients {
        return over_iscsi::import_settings(setup, client);
    }
    over_nvme::import_settings(setup, client)
}
