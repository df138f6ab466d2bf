//! Remote disks that are being reached: the name of the host is looked up, then every shard
//! connects; or the one that has the link of the disk's pseudowire, by which the others ask it. Several
//! are reached side by side, and nobody waits for them who does not want to.
//!
//! ```text
//!   begin_reaching --> Name --addresses--> Shards --all answered--> OpenDisk, or an error: none keeps it
//! ```
//!
//! [`Bell`](super::shards::Bell) is rung when one can go on ([`Running::go_on`]). Errors name the
//! disk, who was asked and what was seen; all but wrong links and identities may be otherwise
//! later.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use block::ShardId;
use contract::DiskId;
use shard::{Answer, ImportSettings, Order};

use super::disks::{described, look};
use super::error::RunError;
use super::open::{Lookup, look_up, looked_up};
use super::shards::{ORDER_LIMIT, Pending};
use super::stop;
use super::{OpenDisk, Running, identity};
use crate::config::disk::DiskConfig;
use crate::log::Event;
use crate::protocols::RemoteUri;

/// After so much waiting people are told for what.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A disk that is being reached.
#[derive(Debug)]
pub(super) struct Reaching {
    config: DiskConfig,
    uri: RemoteUri,
    begun: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Name(Lookup),
    Shards {
        disk: DiskId,
        settings: Box<ImportSettings>,
        /// The shard that reaches it for all, if each cannot by itself.
        by: Option<ShardId>,
        pending: Pending,
    },
}

/// How far it is.
pub(super) enum Reached {
    NotYet(Reaching),
    There(OpenDisk),
}

impl Reaching {
    /// What people are told who wait for it.
    pub(super) fn waits(&self) -> Event {
        Event::warn(self.words()).disk(&self.config.name)
    }

    pub(super) fn words(&self) -> String {
        let disk = described(&self.config);
        match &self.stage {
            Stage::Name(_) => format!("{disk}: its host is being looked up"),
            Stage::Shards { settings, .. } => {
                let tries = settings.connect_deadline().as_secs();
                format!("{disk}: not reached yet, trying for {tries} s")
            }
        }
    }

    fn silence(&self) -> RunError {
        let (disk, limit) = (described(&self.config), self.limit().as_secs());
        RunError::new(format!("{disk}: not all shards answered within {limit} s")).transient()
    }

    /// How long it may take from its beginning, as far as that is known.
    fn limit(&self) -> Duration {
        match &self.stage {
            Stage::Name(_) => ORDER_LIMIT,
            Stage::Shards { settings, .. } => ORDER_LIMIT + settings.connect_deadline(),
        }
    }
}

impl Running {
    /// Begins to reach a remote disk.
    pub(super) fn begin_reaching(
        &mut self,
        config: &DiskConfig,
        uri: &RemoteUri,
    ) -> Result<Reaching, RunError> {
        look(config, self)?;
        let stage = match uri.listener() {
            Some(address) => {
                let bell = self.shards.bell().clone();
                Stage::Name(look_up(address, move || bell.ring()))
            }
            None => self.connect(config, uri, &[])?,
        };
        Ok(Reaching { config: config.clone(), uri: uri.clone(), begun: Instant::now(), stage })
    }

    /// Has every shard connect; the disk's links are open then.
    fn connect(
        &mut self,
        config: &DiskConfig,
        uri: &RemoteUri,
        addresses: &[SocketAddr],
    ) -> Result<Stage, RunError> {
        let (disk, name) = (DiskId(self.numbers.disk.next()), &config.name);
        self.shards.event_log().name(disk, name);
        let links = self
            .open_import_links(name, uri, config.poll)
            .map_err(|error| error.within(&described(config)))?;
        let settings = uri
            .settings(name, &self.state, &links, addresses, config.poll)
            .map_err(|error| error.within(&format!("disk {name}")))
            .inspect_err(|_| self.close_import_links(name))?;
        let settings = Box::new(settings);
        let by = match uri.pseudowire() {
            Some(name) => Some(self.end_of(name)?.1),
            None => None,
        };
        let order = || Order::AddImport { disk, settings: settings.clone(), by };
        let pending = self.shards.begin_order(order);
        Ok(Stage::Shards { disk, settings, by, pending })
    }

    /// Goes on as far as that is possible now. After an error nothing of it is left.
    pub(super) fn go_on(&mut self, mut reaching: Reaching) -> Result<Reached, RunError> {
        // It may be behind a next hop that is found only now.
        self.follow_next_hops();
        let Reaching { config, uri, begun, .. } = &reaching;
        if let (Stage::Name(lookup), Some(address)) = (&reaching.stage, uri.listener()) {
            let Some(found) = looked_up(lookup, address, begun.elapsed()) else {
                return Ok(Reached::NotYet(reaching));
            };
            let within = |error: RunError| error.within(&format!("disk {}", config.name));
            reaching.stage = self.connect(config, uri, &found.map_err(within)?)?;
        }
        let is_late = reaching.begun.elapsed() > reaching.limit();
        let ended = match &reaching.stage {
            Stage::Shards { disk, settings, by, pending } if pending.is_answered() => {
                self.imported((*disk, *by), &reaching, settings, pending.answers())
            }
            _ if is_late => Err(reaching.silence()),
            _ => return Ok(Reached::NotYet(reaching)),
        };
        ended.map(Reached::There).or_else(|error| self.give_up(&reaching).and(Err(error)))
    }

    /// Waits until it is there, cannot be had, or the process is to end.
    pub(super) fn wait_for(&mut self, mut reaching: Reaching) -> Result<OpenDisk, RunError> {
        let mut is_told = false;
        loop {
            reaching = match self.go_on(reaching)? {
                Reached::There(disk) => return Ok(disk),
                Reached::NotYet(reaching) => reaching,
            };
            if stop::is_stopped() {
                let error = stop::error(&described(&reaching.config));
                return self.give_up(&reaching).and(Err(error));
            }
            if !is_told && reaching.begun.elapsed() >= PATIENCE {
                is_told = true;
                reaching.waits().tell();
            }
            self.shards.bell().wait(PATIENCE);
        }
    }

    /// Lets go of a disk that is being reached.
    pub(super) fn give_up(&mut self, reaching: &Reaching) -> Result<(), RunError> {
        let Stage::Shards { disk, .. } = &reaching.stage else { return Ok(()) };
        let (id, name) = (*disk, &reaching.config.name);
        self.shards.event_log().forget_remote(id);
        let removed = self.order(&format!("let go of disk {name}"), || Order::RemoveDisk(id));
        self.close_import_links(name);
        removed
    }

    /// What shards found of a disk that they were to reach.
    fn imported(
        &self,
        (id, by): (DiskId, Option<ShardId>),
        Reaching { config, uri, .. }: &Reaching,
        settings: &ImportSettings,
        answers: Vec<Answer>,
    ) -> Result<OpenDisk, RunError> {
        let mut reached = None;
        for (shard, answer) in (0..).map(ShardId).zip(answers) {
            match answer {
                Answer::Import(Ok(facts)) => {
                    // News of the shard may have been quicker than its answer.
                    self.shards.event_log().note_reached(id, shard, facts.clone());
                    reached = Some(facts);
                }
                Answer::Import(Err(why)) => {
                    let why = self.shards.event_log().with_links(&why);
                    return Err(RunError::new(format!("{}: {why}", described(config)))
                        .transient()
                        .help(uri.who_answers(settings)));
                }
                Answer::Done if by.is_some_and(|by| by != shard) => {}
                other => unreachable!("disk {}: {other:?}", config.name),
            }
        }
        let facts = reached.expect("a shard reaches it");
        if by.is_some() {
            let order = || Order::AddReached { disk: id, facts: facts.clone() };
            self.order(&format!("add disk {}", config.name), order)?;
        }
        let (backing, config) = (identity::backing(&config.uri), config.clone());
        self.protect_again(id, &config.name, backing.as_deref())?;
        Ok(OpenDisk { id, config, local: None, facts, fresh: false, backing, caveats: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{args, disk};
    use super::*;
    use crate::config::uri::DiskUri;

    #[test]
    fn shards_that_do_not_answer_about_a_remote_disk_are_told_of() {
        let directory = tempfile::tempdir().unwrap();
        // It takes connections and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri =
            format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/1", silent.local_addr().unwrap());
        let (mut running, _) = Running::start(&args(directory.path(), ""), &[]).unwrap();
        let config = args(directory.path(), &disk("far", &uri)).disks.remove(0);
        let DiskUri::Remote(remote) = config.uri.clone() else { panic!("{uri}") };
        let mut reaching = running.begin_reaching(&config, &remote).unwrap();
        while matches!(reaching.stage, Stage::Name(_)) {
            reaching = match running.go_on(reaching).unwrap() {
                Reached::NotYet(reaching) => reaching,
                Reached::There(disk) => panic!("{disk:?}"),
            };
            running.shards.bell().wait(Duration::from_millis(10));
        }
        let Stage::Shards { pending, .. } = &mut reaching.stage else { panic!("{reaching:?}") };
        *pending = Pending::unanswered();
        let limit = reaching.limit() + Duration::from_secs(1);
        reaching.begun = reaching.begun.checked_sub(limit).expect("it may lie before the boot");
        let Err(error) = running.go_on(reaching) else { panic!("it goes on") };
        let words = format!("disk far ({uri}): not all shards answered within 70 s");
        assert_eq!(error.line(), words);
        assert!(error.is_transient());
        assert!(running.shut_down().is_empty());
    }
}
