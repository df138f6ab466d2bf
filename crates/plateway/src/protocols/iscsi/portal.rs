//! What a `[[listener]]` of iSCSI says beside its address: by which address hosts are told of it
//! (`advertise`), and how they prove who they are before they are told of targets (`chap`).

use std::net::{IpAddr, SocketAddr};

use ::iscsi::target::Portal;
use reservation::PathGroup;

use super::chap::{self, ChapConfig, LowChap};
use super::secret::Secrets;
use crate::config::address::{AddressError, HostPort};
use crate::config::file::{Low, TableReader};
use crate::config::mistake::Span;
use crate::config::resolve::Resolver;

/// As written.
#[derive(Debug, Default)]
pub(crate) struct LowPortal {
    pub(crate) advertise: Low<String>,
    pub(crate) chap: Option<LowChap>,
}

impl LowPortal {
    pub(crate) fn read(table: &mut TableReader<'_, '_>) -> Self {
        let expected = "an address in quotes, such as \"gateway.example:3260\"";
        Self { advertise: table.take("advertise", expected), chap: table.table("chap") }
    }

    /// Its keys, and where they are.
    pub(crate) fn keys(&self) -> [(&'static str, Option<Span>); 2] {
        let advertise = self.advertise.as_ref().map(toml::Spanned::span);
        [("advertise", advertise), ("chap", self.chap.as_ref().map(|low| low.span.clone()))]
    }
}

/// What it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortalConfig {
    /// What hosts are told in place of the address that they used.
    pub(crate) advertise: Option<HostPort>,
    /// How hosts prove who they are for discovery; `None`: they need not.
    pub(crate) chap: Option<ChapConfig>,
}

impl PortalConfig {
    /// What can change in place.
    pub(crate) fn values(&self) -> [(&'static str, String); 2] {
        let advertise = self.advertise.as_ref().map_or("none".to_owned(), HostPort::to_string);
        [("advertise", advertise), ("chap", chap::shown(self.chap.as_ref()))]
    }

    /// What a step that adds or removes the listener says.
    pub(crate) fn details(&self) -> String {
        let advertise = self.advertise.as_ref().map(|one| format!(", advertise {one}"));
        let chap = self.chap.as_ref().map(|chap| format!(", chap {chap}"));
        advertise.unwrap_or_default() + &chap.unwrap_or_default()
    }

    /// Its lines, as a file has them.
    pub(crate) fn text(&self) -> String {
        let advertise = self.advertise.as_ref().map(|one| format!("advertise = \"{one}\"\n"));
        let chap = self.chap.as_ref().map(|chap| format!("chap = {}\n", chap.text()));
        advertise.unwrap_or_default() + &chap.unwrap_or_default()
    }

    /// Who may ask for targets, by name alone.
    pub(crate) fn users(&self) -> Option<String> {
        self.chap.as_ref().map(ChapConfig::names)
    }

    /// What it is to hosts once it listens at `bound`.
    pub(crate) fn shown(
        &self,
        group: PathGroup,
        bound: Option<SocketAddr>,
        secrets: &Secrets,
    ) -> Portal {
        let advertised = self.advertise.as_ref().map(HostPort::to_string);
        Portal {
            group,
            is_advertised: advertised.is_some(),
            address: advertised.or_else(|| bound.filter(is_one).map(|at| at.to_string())),
            required: self.chap.as_ref().map(|chap| secrets.required(chap)),
        }
    }
}

/// Whether hosts that came by another address reach this one under its name: every address is none,
/// and one of a single link means something else on each host.
fn is_one(address: &SocketAddr) -> bool {
    let of_a_link = match address.ip() {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    !address.ip().is_unspecified() && !of_a_link
}

/// What a listener says.
pub(crate) fn resolve(resolver: &mut Resolver<'_>, low: &LowPortal) -> PortalConfig {
    let chap = low.chap.as_ref().and_then(|low| resolver.chap(low));
    PortalConfig { advertise: resolver.advertised(low), chap }
}

impl Resolver<'_> {
    fn advertised(&mut self, low: &LowPortal) -> Option<HostPort> {
        let written = low.advertise.as_ref()?;
        let address: HostPort = match written.get_ref().parse() {
            Ok(address) => address,
            Err(AddressError { message, offset }) => {
                let span = self.within(written, offset..written.get_ref().len());
                self.error(span, format!("advertise: {message}"));
                return None;
            }
        };
        if address.ip().is_some_and(|ip| ip.is_unspecified()) || address.tcp_port == 0 {
            let message = format!(
                "advertise: expected an address by which hosts reach this listener, seen {address}"
            );
            self.error(written.span(), message);
            return None;
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_of_an_address_that_is_one() {
        let told = |advertise: Option<&str>, bound: &str| {
            let advertise = advertise.map(|text| text.parse().expect("an address"));
            let portal = PortalConfig { advertise, chap: None };
            let shown =
                portal.shown(PathGroup::DEFAULT, Some(bound.parse().unwrap()), &Secrets::default());
            (shown.address, shown.is_advertised)
        };
        let own = |text: &str| Some(text.to_owned());
        assert_eq!(told(None, "192.0.2.1:3260"), (own("192.0.2.1:3260"), false));
        for none in ["0.0.0.0:3260", "[::]:3260", "[fe80::1]:3260", "169.254.0.1:3260"] {
            assert_eq!(told(None, none), (None, false), "{none}");
            let advertised = told(Some("gateway.example:3261"), none);
            assert_eq!(advertised, (own("gateway.example:3261"), true), "{none}");
        }
    }
}
