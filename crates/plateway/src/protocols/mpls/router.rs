//! `[[router]]`: a label switching router. Its ports, circuits and tables are tables of their own,
//! which say whose they are where there are several.
//!
//! Where none is written and something is there that needs one, there is one with the defaults.

use std::time::Duration;

use mpls::limits::QUARANTINE_DEFAULT;

use super::words::{HOUR, time};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, NAME, table};
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

/// The one that nobody wrote.
pub(super) const DEFAULT: &str = "router";

table! {
    LowRouter = "[[router]]" {
        name: String = NAME,
        quarantine: String = "a time in quotes, such as \"60s\"",
    }
}

/// `[[router]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouterConfig {
    pub(crate) name: String,
    /// How long a label that was taken from somebody is nobody else's.
    pub(crate) quarantine: Duration,
}

pub(crate) fn router_title(name: &str) -> String {
    format!("router {name}")
}

/// What says whose a thing is, where that is not the only router that nobody wrote.
pub(super) fn of(router: &str) -> String {
    if router == DEFAULT { String::new() } else { format!(" of {router}") }
}

impl Configured for RouterConfig {
    fn title(&self) -> String {
        router_title(&self.name)
    }

    fn details(&self) -> String {
        format!(": quarantine {}", time(self.quarantine))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![("quarantine", time(self.quarantine))]
    }

    fn excludes(&self, other: &Thing) -> bool {
        matches!(routed(other), Some(Routed::Router(other)) if other.name == self.name)
    }

    fn change(&self, _: &Thing) -> Result<Change, Refused> {
        Ok(Change::Aside)
    }

    fn text(&self) -> String {
        let (name, quarantine) = (quoted(&self.name), time(self.quarantine));
        format!("[[router]]\nname = {name}\nquarantine = \"{quarantine}\"\n")
    }
}

impl Resolver<'_> {
    /// The routers, and their names, those of wrong ones too.
    pub(super) fn routers(&mut self, low: &LowArgs) -> (Vec<RouterConfig>, Names) {
        let mut names = self.names("router", low.routers.iter().map(|one| (&one.name, &one.span)));
        let mut routers = Vec::new();
        for one in &low.routers {
            let quarantine = one.quarantine.as_ref();
            let quarantine = quarantine
                .and_then(|written| self.time(written, "quarantine", Duration::ZERO..=HOUR));
            let Some(name) = &one.name else { continue };
            let quarantine = quarantine.unwrap_or(QUARANTINE_DEFAULT);
            let router = RouterConfig { name: name.get_ref().clone(), quarantine };
            self.place(router.title(), "", name.span());
            routers.push(router);
        }
        if let (true, Some(first)) = (low.routers.is_empty(), needs_router(low)) {
            names.push(DEFAULT, first.clone());
            let router = RouterConfig { name: DEFAULT.to_owned(), quarantine: QUARANTINE_DEFAULT };
            self.place(router.title(), "", first);
            routers.push(router);
        }
        (routers, names)
    }

    /// Whose the table at `table` is: the only router's unless it says so.
    pub(super) fn router_of(
        &mut self,
        low: &Low<String>,
        (table, title): (&Span, &str),
        routers: &Names,
    ) -> Option<String> {
        match (low, routers.list.as_slice()) {
            (Some(written), _) => self.known(written, "router", routers).map(str::to_owned),
            (None, [(only, _)]) => Some(only.clone()),
            (None, all) => {
                if !all.is_empty() && !self.is_reported(table, title, "router") {
                    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
                    let message =
                        format!("there are several routers, and this {title} says not whose it is");
                    let help =
                        format!("add router = {:?}, or another of {}", names[0], names.join(", "));
                    self.push(Mistake::error(table.clone(), message).help(help));
                }
                None
            }
        }
    }
}

/// The first table for which there has to be a router.
fn needs_router(low: &LowArgs) -> Option<Span> {
    let links = low.links.iter().filter(|one| one.mpls.as_ref().is_some_and(|yes| *yes.get_ref()));
    let spans = links.map(|one| &one.span);
    let spans = spans.chain(low.circuits.iter().map(|one| &one.span));
    let spans = spans.chain(low.ilms.iter().map(|one| &one.span));
    let spans = spans.chain(low.lsps.iter().map(|one| &one.span));
    let spans = spans.chain(low.pseudowires.iter().map(|one| &one.span));
    spans.min_by_key(|span| span.start).cloned()
}
