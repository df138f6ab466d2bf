//! Disks of other targets, by their URIs, and whom `discover` asks: for each protocol an arm.
//!
//! Errors: a [`UriError`] with what was expected and seen. Not here: how each writes its own (`uri` in
//! its folder).

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, Range};
use std::path::Path;
use std::time::Duration;

use contract::{Intake, LinkId, Poll};
use shard::ImportSettings;

use super::{aoe, iscsi, nvme_tcp};
use crate::cli::DiscoverArgs;
use crate::config::address::HostPort;
use crate::config::link::Ethernet;
use crate::config::uri::{Parser, UriError};
use crate::run::RunError;
use crate::run::state::StateDirectory;

/// A disk of another target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteUri {
    NvmeTcp(nvme_tcp::uri::NamespaceUri),
    Iscsi(iscsi::uri::UnitUri),
    Aoe(aoe::uri::TargetUri),
}

/// Which frames so many shards take.
pub(crate) type IntakeOf = fn(u16) -> Intake;

/// What the rest of the program knows of a remote disk.
pub(crate) trait Remote: fmt::Display {
    /// Whether both lead to the same blocks.
    fn same_backing(&self, other: &RemoteUri) -> bool;

    /// What names its blocks for good.
    fn backing(&self) -> String;

    /// The links on which it is, and what it takes there; none of one that is reached by
    /// connections.
    fn links(&self) -> Option<(Vec<Ethernet>, IntakeOf)> {
        None
    }

    /// The pseudowire of this process behind which it is, which has a link on its router's shard
    /// alone.
    fn pseudowire(&self) -> Option<&str> {
        None
    }

    /// How long its requests wait while it is lost, before they fail.
    fn deadline(&self) -> Duration;

    /// Where its target listens, if it does; the name of that host is looked up.
    fn listener(&self) -> Option<&HostPort> {
        None
    }

    /// Looks at what of this machine it takes beside its links: who we are, and our secrets, whose
    /// relative paths begin at `directory`. Changes nothing.
    fn look(&self, _state: &StateDirectory, _directory: &Path) -> Result<(), RunError> {
        Ok(())
    }

    /// How the shards reach it; `links` are open, and `addresses`, one at least, are those of its
    /// listener, if it has one. `disk` is its name, `poll` how long they look for its answers.
    fn settings(
        &self,
        disk: &str,
        state: &StateDirectory,
        links: &[LinkId],
        addresses: &[SocketAddr],
        poll: Poll,
    ) -> Result<ImportSettings, RunError>;

    /// What to do about one that cannot be reached.
    fn who_answers(&self, settings: &ImportSettings) -> String;

    /// With so many connections from each shard where it has some, and room for the requests of all
    /// of them.
    fn widened(&self, connections: u16, depth: u16) -> RemoteUri;
}

impl Deref for RemoteUri {
    type Target = dyn Remote;

    fn deref(&self) -> &Self::Target {
        match self {
            RemoteUri::NvmeTcp(uri) => uri,
            RemoteUri::Iscsi(uri) => uri,
            RemoteUri::Aoe(uri) => uri,
        }
    }
}

impl RemoteUri {
    /// The schemes, as messages list them.
    pub(crate) const SCHEMES: [&str; 3] = ["nvme+tcp://", "iscsi://", "aoe://"];

    /// Parses what follows a scheme; `None` if it is none of a protocol.
    pub(crate) fn parse(
        parser: &Parser<'_>,
        scheme: &str,
        at: Range<usize>,
    ) -> Option<Result<Self, UriError>> {
        match scheme {
            nvme_tcp::uri::SCHEME => Some(nvme_tcp::uri::parse(parser, at).map(Self::NvmeTcp)),
            iscsi::uri::SCHEME => Some(iscsi::uri::parse(parser, at).map(Self::Iscsi)),
            aoe::uri::SCHEME => Some(aoe::uri::parse(parser, at).map(Self::Aoe)),
            _ => None,
        }
    }

    /// The scheme that is meant by a usual wrong one.
    pub(crate) fn meant(scheme: &str) -> Option<&'static str> {
        matches!(scheme, "nvme" | "tcp" | "nvmf").then_some(nvme_tcp::uri::SCHEME)
    }
}

/// Whom `discover` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryTarget {
    /// `nvme+tcp://host[:port]`
    NvmeTcp(HostPort),
    /// `iscsi://[user@]host[:port]`
    Iscsi(iscsi::uri::Portal),
    /// `aoe://INTERFACE[,INTERFACE...][?vlan=N]`: one or more, each once, all in one VLAN.
    Aoe { interfaces: Vec<String>, vlan: Option<u16> },
}

/// Parses whom `discover` asks.
pub(crate) fn parse_target(text: &str) -> Result<DiscoveryTarget, UriError> {
    let parser = Parser { uri: text };
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let at = text.len() - rest.len()..text.len();
    match scheme {
        nvme_tcp::uri::SCHEME => {
            nvme_tcp::uri::parse_target(&parser, at).map(DiscoveryTarget::NvmeTcp)
        }
        iscsi::uri::SCHEME => iscsi::uri::parse_target(&parser, at).map(DiscoveryTarget::Iscsi),
        aoe::uri::SCHEME => aoe::uri::parse_target(&parser, at)
            .map(|(interfaces, vlan)| DiscoveryTarget::Aoe { interfaces, vlan }),
        _ => {
            let expected =
                "a target such as nvme+tcp://127.0.0.1:4420, iscsi://127.0.0.1:3260 or aoe://eth1";
            let mut error = parser.expected(0..text.len(), expected);
            error.help = nvme_tcp::uri::guess_target(text);
            Err(error)
        }
    }
}

impl DiscoveryTarget {
    /// Asks, and shows what it was told.
    pub(crate) fn discover(&self, args: &DiscoverArgs) -> miette::Result<()> {
        match self {
            DiscoveryTarget::NvmeTcp(target) => nvme_tcp::discover::run(args, target),
            DiscoveryTarget::Iscsi(portal) => iscsi::discover::run(args, portal),
            DiscoveryTarget::Aoe { interfaces, vlan } => {
                aoe::discover::run(args, interfaces, *vlan)
            }
        }
    }
}
