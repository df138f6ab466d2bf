//! What leaves by a port in each millisecond, and how many frames wait for it, where somebody asks.
//!
//! The shard counts for as long as was asked, and is asked for it then. One recording of a port at a
//! time: whoever asks for another one meanwhile is told so; one that nobody fetched is over a second
//! after its end. Units: milliseconds, bytes. Errors name the port.

use std::time::{Duration, Instant};

use contract::LinkId;
use mpls::{Change, RouterId};

use super::{Routers, RunError};
use crate::control::SchemaVersion;
use crate::protocols::Bins;
use crate::run::Running;

/// The longest stretch: a bin of four bytes for each millisecond of it.
pub(crate) const MILLISECONDS_MAX: u16 = 10_000;

impl Routers {
    /// A port or circuit by its name, and whose it is.
    fn recordable(&self, name: &str) -> Result<(RouterId, LinkId, String), RunError> {
        let port = self.ports.get(name).map(|(link, one)| (*link, &one.router));
        let circuit = || self.circuits.get(name).map(|(link, one)| (*link, &one.router));
        match port.or_else(circuit) {
            Some((link, router)) => Ok((self.id(router)?, link, router.clone())),
            None => {
                let known: Vec<&str> =
                    self.ports.keys().chain(self.circuits.keys()).map(String::as_str).collect();
                let why = format!("there is no port {name:?} (ports: {})", known.join(", "));
                Err(RunError::new(why).help("`plateway route show` shows them"))
            }
        }
    }
}

impl Running {
    /// Has the bytes counted that leave by a port in each of so many milliseconds from now on.
    pub(crate) fn record_port(&mut self, name: &str, milliseconds: u16) -> Result<(), RunError> {
        let (router, link, _) = self.routers.recordable(name)?;
        if self.routers.recorded.get(&link).is_some_and(|until| Instant::now() < *until) {
            return Err(RunError::new(format!("what leaves by {name} is being counted already"))
                .help("ask again once that is over"));
        }
        let change = Change::Record(link, milliseconds);
        self.route(router, name, &change, Some(&Change::Record(link, 0)))?;
        let until = Duration::from_millis(milliseconds.into()) + Duration::from_secs(1);
        self.routers.recorded.insert(link, Instant::now() + until);
        Ok(())
    }

    /// What was counted, which is forgotten then.
    pub(crate) fn recorded(&mut self, name: &str) -> Result<Bins, RunError> {
        let (id, link, router) = self.routers.recordable(name)?;
        self.routers.recorded.remove(&link);
        let report = self.router_report(&router)?;
        let port = report.ports.into_iter().find(|port| port.link == link);
        let bins = port.and_then(|port| port.bins);
        self.route(id, name, &Change::Record(link, 0), None)?;
        let Some(mpls::Bins { bytes, queued }) = bins else {
            // Unrecorded: of one that an apply made anew within the stretch.
            return Err(RunError::new(format!("port {name} was made anew meanwhile")));
        };
        let schema_version = SchemaVersion::default();
        Ok(Bins { schema_version, router, port: name.to_owned(), bytes, queued })
    }
}
