//! Hosts that have a name: all shards are told of all of them with every change of one, before the
//! exports that name it are shown.
//!
//! Who is connected stays so, and is to reservations whoever it is called from then on: what it had
//! under what it was called before stays where it is, and is somebody else's. A person who makes the
//! change is told of whom that is so. Errors: all shards are told again what is in the book.

use indexmap::IndexMap;
use reservation::Registrant;
use shard::Order;

use super::Running;
use super::error::RunError;
use crate::config::thing::Configured as _;
use crate::protocols::{HostConfig, host};

impl Running {
    /// A host is there, or is called otherwise. Returns whose sessions that concerns.
    pub(super) fn set_host(&mut self, host: &HostConfig) -> Result<Option<String>, RunError> {
        let mut wanted = self.hosts.clone();
        let before = wanted.insert(host.name.clone(), host.clone());
        self.bring_hosts(wanted, &host.title())?;
        Ok(self.concerned(before.as_ref(), Some(host)))
    }

    /// A host has no name any more. Returns whose sessions that concerns.
    pub(super) fn remove_host(&mut self, host: &HostConfig) -> Result<Option<String>, RunError> {
        let mut wanted = self.hosts.clone();
        let before = wanted.shift_remove(&host.name);
        self.bring_hosts(wanted, &host.title())?;
        Ok(self.concerned(before.as_ref(), None))
    }

    /// Secrets are others now.
    pub(super) fn renew_hosts(&self) -> Result<(), RunError> {
        self.tell_hosts(&self.hosts, "hosts")
    }

    /// The name of the host that is called so.
    pub(crate) fn name_of(&self, identity: &str) -> Option<String> {
        let mut named = self.hosts.values();
        let found = named.find(|host| host.called_at_all().iter().any(|name| name == identity));
        found.map(|host| host.name.clone())
    }

    /// The name of the host that reservations know so.
    pub(super) fn name_of_registrant(&self, who: Registrant) -> Option<String> {
        let found = self.hosts.values().find(|host| host.applicant().id == who);
        found.map(|host| host.name.clone())
    }

    fn bring_hosts(
        &mut self,
        wanted: IndexMap<String, HostConfig>,
        title: &str,
    ) -> Result<(), RunError> {
        self.tell_hosts(&wanted, title)
            .inspect_err(|_| drop(self.tell_hosts(&self.hosts, title)))?;
        self.hosts = wanted;
        Ok(())
    }

    fn tell_hosts(
        &self,
        hosts: &IndexMap<String, HostConfig>,
        title: &str,
    ) -> Result<(), RunError> {
        let named = host::named(hosts.values(), &self.secrets);
        self.order(&format!("name {title}"), || Order::SetNamedHosts(Box::new(named.clone())))
    }

    /// The sessions of those who are another registrant from now on, in words.
    fn concerned(&self, from: Option<&HostConfig>, to: Option<&HostConfig>) -> Option<String> {
        let called = |host: Option<&HostConfig>| -> Vec<String> {
            host.map_or_else(Vec::new, HostConfig::called_at_all)
        };
        let (from_names, to_names) = (called(from), called(to));
        let sessions = self.status().ok()?.protocols.sessions();
        let is_concerned = |host: &String| from_names.contains(host) != to_names.contains(host);
        let concerned = sessions.iter().filter(|one| is_concerned(&one.host));
        let list: Vec<String> =
            concerned.map(|one| format!("{} at {}", one.host, one.peer)).collect();
        let name = &to.or(from)?.name;
        (!list.is_empty()).then(|| {
            format!(
                "host {name}: whoever is connected is another registrant to reservations from now on: {}; \
                 what it registered before stays under what it was called",
                list.join(", ")
            )
        })
    }
}
