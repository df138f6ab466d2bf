//! The tables of routers as orders: labels, paths, and pseudowires with how they are watched.
//!
//! A path comes before the label that leads to it, and goes after it. A label that was taken away is
//! noted with whose it was. Errors: if not all shards carry out an order, all are told again what is
//! in the book.

use std::time::Instant;

use mpls::limits::{NHLFES_MAX, PSEUDOWIRES_MAX};
use mpls::{
    Action, Change, Fec, FecId, NhlfeId, Origin, Path, PortKind, Pseudowire, PseudowireId,
    RouterId, Space, Subject,
};
use sha2::{Digest as _, Sha256};
use wire::clamp::Clamp;
use wire::ethernet::MacAddress;

use super::labels::{self, Asks, Former, Holder};
use super::{RunError, backup_of, path_named, path_of, virtual_key};
use crate::config::link::pseudowire_link;
use crate::config::thing::Configured;
use crate::protocols::mpls::ilm::IlmAction;
use crate::protocols::mpls::pseudowire::Way;
use crate::protocols::mpls::split::ClassConfig;
use crate::protocols::mpls::words::Hop;
use crate::protocols::mpls::{IlmConfig, LspConfig, PseudowireConfig, Routing};
use crate::run::Running;

impl Running {
    /// A path as the shards are told, behind its backup, if it has one.
    fn paths(
        &mut self,
        (router, key): (&str, &str),
        hop: &Hop,
        backup: Option<&Hop>,
        mtu: Option<u32>,
    ) -> Result<Vec<Change>, RunError> {
        for hop in [Some(hop), backup].into_iter().flatten() {
            self.find_next_hop(router, &hop.link, hop.next_hop)?;
        }
        let mut path = |key: &str, hop: &Hop, mtu, backup| {
            let port = self.routers.port(router, &hop.link)?;
            let number = NhlfeId(self.routers.paths.give(key, NHLFES_MAX)?);
            let path = Path { port, via: hop.next_hop, labels: hop.labels, mtu, backup };
            Ok::<_, RunError>((number, Change::SetPath(number, path)))
        };
        let around = backup.map(|hop| path(&backup_of(key), hop, None, None)).transpose()?;
        let (_, primary) = path(key, hop, mtu, around.as_ref().map(|(number, _)| *number))?;
        Ok(around.into_iter().map(|(_, change)| change).chain([primary]).collect())
    }

    /// That a path is gone, and its backup, which goes after it.
    fn without_paths(&self, key: &str) -> Vec<Change> {
        let keys = [key.to_owned(), backup_of(key)];
        let numbers = keys.iter().filter_map(|key| self.routers.paths.of(key));
        numbers.map(|number| Change::RemovePath(NhlfeId(number))).collect()
    }

    /// A backup that a path has no more is gone.
    fn forget_backup(&self, router: RouterId, title: &str, key: &str) {
        if let Some(number) = self.routers.paths.of(&backup_of(key)) {
            let _ = self.forget(router, title, &Change::RemovePath(NhlfeId(number)));
        }
    }

    /// Changes a router on all shards, step by step; where not all do, all are told all of `back`.
    pub(super) fn route_all(
        &self,
        router: RouterId,
        title: &str,
        changes: &[Change],
        back: &[Change],
    ) -> Result<(), RunError> {
        let order = |change| self.route(router, title, change, None);
        changes.iter().try_for_each(order).inspect_err(|_| {
            back.iter().for_each(|change| drop(order(change)));
        })
    }

    fn paths_of_lsp(&mut self, lsp: &LspConfig) -> Result<Vec<Change>, RunError> {
        let key = path_named(&lsp.name);
        self.paths((&lsp.router, &key), &lsp.hop, lsp.backup.as_ref(), lsp.mtu)
    }

    pub(super) fn set_lsp(&mut self, config: &LspConfig) -> Result<(), RunError> {
        let (router, key) = (self.routers.id(&config.router)?, path_named(&config.name));
        let changes = self.paths_of_lsp(config)?;
        let before = self.routers.lsps.get(&config.name).cloned();
        let back = match &before {
            Some(before) => self.paths_of_lsp(before)?,
            None => self.without_paths(&key),
        };
        self.route_all(router, &config.title(), &changes, &back)?;
        if config.backup.is_none() && before.is_some_and(|before| before.backup.is_some()) {
            self.forget_backup(router, &config.title(), &key);
        }
        self.routers.lsps.insert(config.name.clone(), config.clone());
        Ok(())
    }

    pub(super) fn remove_lsp(&mut self, config: &LspConfig) -> Result<(), RunError> {
        let router = self.routers.id(&config.router)?;
        let changes = self.without_paths(&path_named(&config.name));
        let back = self.paths_of_lsp(config)?;
        self.route_all(router, &config.title(), &changes, &back)?;
        self.routers.lsps.shift_remove(&config.name);
        Ok(())
    }

    fn paths_of_ilm(&mut self, ilm: &IlmConfig) -> Result<Vec<Change>, RunError> {
        match ilm.action.hop() {
            Some(hop) => self.paths((&ilm.router, &path_of(ilm)), hop, ilm.backup.as_ref(), None),
            None => Ok(Vec::new()),
        }
    }

    fn space(&self, ilm: &IlmConfig) -> Result<Space, RunError> {
        Ok(match &ilm.from {
            Some(link) => Space::Port(self.routers.port(&ilm.router, link)?),
            None => Space::Platform,
        })
    }

    /// What is done with a label, and by which path that is there.
    fn label_of(&self, ilm: &IlmConfig, fec: FecId) -> Result<Change, RunError> {
        let action = match (&ilm.action, self.routers.paths.of(&path_of(ilm))) {
            (IlmAction::Forward(_), Some(number)) => Action::Forward(NhlfeId(number)),
            _ => Action::Pop,
        };
        Ok(Change::SetLabel { space: self.space(ilm)?, label: ilm.label, fec, action })
    }

    /// A label is there, or leads elsewhere: its path first.
    pub(super) fn set_ilm(&mut self, config: &IlmConfig) -> Result<(), RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let before = self.routers.ilms.get(&title).cloned();
        let place = labels::place(config);
        let fec = match &before {
            Some((fec, _)) => *fec,
            None => match self.routers.withdrawn.fec_of(&place, config) {
                Some(fec) => fec,
                None => FecId(self.routers.next_fec.next()),
            },
        };
        let holder = Holder::Fec(fec);
        let asks = Asks::ilm(Some(&holder), config);
        self.routers.withdrawn.check(&place, &asks, Instant::now())?;
        let paths = self.paths_of_ilm(config)?;
        self.route_all(router, &title, &paths, &[]).inspect_err(|_| {
            drop(self.tell_ilm_again(router, before.as_ref()));
        })?;
        let change = self.label_of(config, fec)?;
        let gone = Change::WithdrawLabel { space: self.space(config)?, label: config.label, fec };
        let back = before.is_none().then_some(&gone);
        self.route(router, &title, &change, back).inspect_err(|_| {
            drop(self.tell_ilm_again(router, before.as_ref()));
            // The shards that had it hold it back.
            if before.is_none() {
                self.withdraw_ilm(fec, config);
            }
        })?;
        self.routers.withdrawn.given(&place);
        if config.backup.is_none() && before.is_some_and(|(_, before)| before.backup.is_some()) {
            self.forget_backup(router, &title, &path_of(config));
        }
        self.routers.ilms.insert(title, (fec, config.clone()));
        Ok(())
    }

    /// What was in the book.
    fn tell_ilm_again(
        &mut self,
        router: RouterId,
        before: Option<&(FecId, IlmConfig)>,
    ) -> Result<(), RunError> {
        let Some((fec, config)) = before else { return Ok(()) };
        let paths = self.paths_of_ilm(config)?;
        self.route_all(router, &config.title(), &paths, &[])?;
        let change = self.label_of(config, *fec)?;
        self.route(router, &config.title(), &change, None)
    }

    pub(super) fn remove_ilm(&mut self, config: &IlmConfig) -> Result<Option<String>, RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let Some((fec, before)) = self.routers.ilms.get(&title).cloned() else { return Ok(None) };
        let change = Change::WithdrawLabel { space: self.space(config)?, label: config.label, fec };
        let back = self.label_of(&before, fec)?;
        self.route(router, &title, &change, Some(&back))?;
        self.withdraw_ilm(fec, &before);
        self.routers.ilms.shift_remove(&title);
        let gone = self.without_paths(&path_of(config));
        let mut left = gone.iter().filter_map(|change| self.forget(router, &title, change));
        Ok(left.next())
    }

    /// Refuses a configuration that gives a label to somebody while it is nobody's, before anything is
    /// done.
    pub(in crate::run) fn check_labels(&self, to: &Routing) -> Result<(), RunError> {
        let (book, now) = (&self.routers, Instant::now());
        for ilm in to.ilms.iter().filter(|one| !book.ilms.contains_key(&one.title())) {
            let (place, asks) = (labels::place(ilm), Asks::ilm(None, ilm));
            book.withdrawn.check(&place, &asks, now).map_err(|why| why.within(&ilm.title()))?;
        }
        let has_it = |one: &PseudowireConfig| {
            book.pseudowires.get(&one.name).is_some_and(|before| before.label_in == one.label_in)
        };
        for one in to.pseudowires.iter().filter(|one| !has_it(one)) {
            let holder = book.holder(one);
            let asks = Asks::pseudowire(holder.as_ref(), one);
            let check = book.withdrawn.check(&labels::place_of(one), &asks, now);
            check.map_err(|why| why.within(&one.title()))?;
        }
        Ok(())
    }

    /// Until when a label of a router that is taken away now is nobody else's.
    fn until(&self, router: &str) -> Instant {
        let router = self.routers.routers.get(router);
        Instant::now() + router.map(|(_, config)| config.quarantine).unwrap_or_default()
    }

    fn withdraw_ilm(&mut self, fec: FecId, config: &IlmConfig) {
        let former = Former::ilm(fec, config, self.until(&config.router));
        self.routers.withdrawn.put(labels::place(config), former);
    }

    fn withdraw_pseudowire(&mut self, holder: Holder, config: &PseudowireConfig) {
        let former = Former::pseudowire(holder, config, self.until(&config.router));
        self.routers.withdrawn.put(labels::place_of(config), former);
    }

    /// A pseudowire as the shards are told, and how it is watched.
    fn pseudowire_of(&mut self, config: &PseudowireConfig) -> Result<[Change; 2], RunError> {
        let origin = |way: &Way| {
            let port = self.routers.port(&config.router, &way.link)?;
            let of = if way.backup { mpls::Way::Backup } else { mpls::Way::Primary };
            Ok(Origin { port, tunnel: way.tunnel, way: of })
        };
        let origins = config.from.iter().map(origin).collect::<Result<Vec<_>, RunError>>()?;
        let Some(circuit) = self.routers.circuit_of(config) else {
            // Unrecorded: a circuit comes before its pseudowire.
            return Err(RunError::new(format!("{}: its circuit is not there", config.title())));
        };
        let numbers = &mut self.routers.pseudowire_numbers;
        let id = PseudowireId(numbers.give(&config.name, PSEUDOWIRES_MAX)?);
        let paths = &mut self.routers.paths;
        let mut path = |lsp: &String| paths.give(&path_named(lsp), NHLFES_MAX).map(NhlfeId);
        let pseudowire = Pseudowire {
            fec: Fec { circuit, class: config.class.map(ClassConfig::key) },
            label_in: config.label_in,
            label_out: config.label_out,
            origins,
            nhlfe: path(&config.lsp)?,
            backup: config.backup.as_ref().map(&mut path).transpose()?,
            control_word: config.control_word,
            clamp: config.clamp.then_some(Clamp::AoeSectors),
        };
        let watch = config.bfd.map(|bfd| bfd.watch());
        Ok([Change::SetPseudowire(id, pseudowire), Change::SetWatch(id, watch)])
    }

    /// One that ends in this process gets a link first.
    pub(super) fn add_pseudowire(&mut self, config: &PseudowireConfig) -> Result<(), RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        if config.circuit.is_some() {
            return self.set_pseudowire(config);
        }
        let link = self.routed_link(virtual_key(&config.router, &config.name))?;
        let mac = match config.mac {
            Some(mac) => mac,
            None => made_mac(&self.state.host()?.into_bytes(), &config.router, &config.name),
        };
        let gone = Change::RemovePort(link);
        let port = Change::SetPort(link, PortKind::Virtual { mac });
        self.shards.event_log().name_link(link, &pseudowire_link(&config.name));
        self.route(router, &title, &port, Some(&gone))
            .and_then(|()| self.set_pseudowire(config))
            .inspect_err(|_| {
                self.shards.event_log().forget_link(link);
                let _ = self.route(router, &title, &gone, None);
            })
    }

    pub(super) fn set_pseudowire(&mut self, config: &PseudowireConfig) -> Result<(), RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let before = self.routers.pseudowires.get(&config.name).cloned();
        let [change, watch] = self.pseudowire_of(config)?;
        let number = self.routers.pseudowire_numbers.of(&config.name);
        let id = PseudowireId(number.expect("it was given one"));
        let back = match &before {
            Some(before) => self.pseudowire_of(before)?.to_vec(),
            None => vec![Change::RemovePseudowire(id)],
        };
        let place = labels::place_of(config);
        let holder = self.routers.holder(config);
        let asks = Asks::pseudowire(holder.as_ref(), config);
        self.routers.withdrawn.check(&place, &asks, Instant::now())?;
        // Watching begins once there is something to watch.
        let subject = (router, Subject::Pseudowire(id));
        self.shards.event_log().name_routed(subject, &title);
        for change in [&change, &watch] {
            self.route(router, &title, change, None).inspect_err(|_| {
                for back in &back {
                    let _ = self.route(router, &title, back, None);
                }
                if before.is_none() {
                    self.shards.event_log().forget_routed(subject);
                }
                // The shards that had it hold it back.
                let had_it = before.as_ref().is_some_and(|one| one.label_in == config.label_in);
                if let Some(holder) = holder.clone().filter(|_| !had_it) {
                    self.withdraw_pseudowire(holder, config);
                }
            })?;
        }
        self.routers.withdrawn.given(&place);
        let is_asked = [config.bfd.is_some(), config.bfd.is_some() && config.backup.is_some()];
        for (way, _) in mpls::Way::BOTH.into_iter().zip(is_asked).filter(|(_, is_asked)| !is_asked)
        {
            self.shards.event_log().forget_path(subject, way);
        }
        if let Some(before) = before.filter(|before| before.label_in != config.label_in)
            && let Some(holder) = self.routers.holder(&before)
        {
            self.withdraw_pseudowire(holder, &before);
        }
        self.routers.pseudowires.insert(config.name.clone(), config.clone());
        Ok(())
    }

    pub(super) fn remove_pseudowire(
        &mut self,
        config: &PseudowireConfig,
    ) -> Result<Option<String>, RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let Some(before) = self.routers.pseudowires.get(&config.name).cloned() else {
            return Ok(None);
        };
        let Some(number) = self.routers.pseudowire_numbers.of(&config.name) else {
            return Ok(None);
        };
        let back = self.pseudowire_of(&before)?;
        let change = Change::RemovePseudowire(PseudowireId(number));
        self.route(router, &title, &change, None).inspect_err(|_| {
            for back in &back {
                let _ = self.route(router, &title, back, None);
            }
        })?;
        let subject = Subject::Pseudowire(PseudowireId(number));
        self.shards.event_log().forget_routed((router, subject));
        if let Some(holder) = self.routers.holder(&before) {
            self.withdraw_pseudowire(holder, &before);
        }
        self.routers.pseudowires.shift_remove(&config.name);
        let (None, Some(link)) = (&before.circuit, self.routers.circuit_of(&before)) else {
            return Ok(None);
        };
        self.shards.event_log().forget_link(link);
        Ok(self.forget(router, &title, &Change::RemovePort(link)))
    }
}

/// The address of this process on a pseudowire, the same at each start: of no vendor's, and of one
/// station.
pub(super) fn made_mac(host: &[u8; 16], router: &str, pseudowire: &str) -> MacAddress {
    let digest = Sha256::new().chain_update(b"plateway [[pseudowire]] ").chain_update(host);
    let digest = digest.chain_update(router).chain_update([0]).chain_update(pseudowire).finalize();
    let mut mac: [u8; 6] = *digest.first_chunk().expect("6 of 32 bytes");
    mac[0] = mac[0] & !1 | 2;
    MacAddress(mac)
}
