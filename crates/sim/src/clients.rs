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
use crate::run::{MILLISECOND, Run, Start};
use crate::setup::{Fault, Setup};
use crate::world::World;
use crate::writer::{Ids, Writer};
use crate::{over_aoe, over_nvme};

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
    /// Shards that have the volume.
    ready: usize,
    /// The numbers of the next writes of its shards after a restart.
    pub(crate) next_ids: Vec<u64>,
}

impl ClientState {
    /// Client number `index` on a host of its own, not started. Its shards' writes are numbered as
    /// those of writers from `first` on.
    pub(crate) fn new(host: usize, shards: u16, first: u64) -> ClientState {
        let next_ids = (first..first + u64::from(shards)).collect();
        let (facts, told) = (Vec::new(), Vec::new());
        ClientState { host, working: false, facts, told, ready: 0, next_ids }
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
        let writers = self.writers();
        let ids = self.ids_of(index);
        let same_tags = self.setup.lan.as_ref().is_some_and(|lan| lan.same_tags);
        let is_aoe = self.setup.is_aoe(index);
        let mut workers = Vec::new();
        let machine = |shard: u16| {
            let mut settings =
                self.shard_settings(shard, shards, 4 * block::limits::POOL_PAGES_MIN);
            if same_tags {
                settings.seed = index as u64;
            }
            let first = self.clients[index].next_ids[usize::from(shard)];
            let random = self.random.fork();
            let mut client = Client::new(random, Writer::new(first, writers as u64), ids);
            client.is_durable = is_aoe;
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
        (state.working, state.ready) = (false, 0);
        state.facts = vec![None; usize::from(shards)];
        state.told = vec![0; usize::from(shards)];
        for shard in 0..usize::from(shards) {
            self.import(index, shard);
        }
    }

    pub(crate) fn import(&mut self, index: usize, shard: usize) {
        let settings = import_settings(&self.setup, index);
        self.orders += 1;
        let order = Order::AddImport { disk: import_disk(index), settings: Box::new(settings) };
        let mail = Mail::Order { number: self.orders, order: Box::new(order) };
        self.world.order(self.clients[index].host, shard, mail);
    }

    fn writers(&self) -> usize {
        self.clients.len() * usize::from(self.setup.client_shards) + self.nvme.raw_hosts.len()
    }

    /// The writes of a client, in all of its lives.
    pub(crate) fn ids_of(&self, index: usize) -> Ids {
        let count = u64::from(self.setup.client_shards);
        Ids { first: index as u64 * count + 1, count, step: self.writers() as u64 }
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
                    Mail::Answer { number: PREPARES, .. } => continue,
                    Mail::Answer { answer, .. } => answer,
                    Mail::News(news) => {
                        match *news {
                            News::DiskProtected(..) => self.reopen_import(index),
                            News::Import(_, ImportEvent::Lost, told) => {
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
                    _ if self.clients[index].working => {}
                    _ => {
                        self.clients[index].ready += 1;
                        if self.clients[index].ready == self.clients[index].next_ids.len() {
                            self.begin_work(index);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A client gave its target up.
    fn lost_import(&mut self, index: usize, told: &str) -> Result<(), String> {
        self.did.counts.lost += 1;
        let is_well = self.setup.is_strict() && !self.setup.is_aoe(index);
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
        return over_aoe::import_settings(lan);
    }
    over_nvme::import_settings(setup, client)
}
