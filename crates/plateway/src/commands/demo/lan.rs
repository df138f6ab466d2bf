//! The Ethernet of the demo: two network namespaces with a cable between them, which end with it
//! however it ends. Errors are one line each: what was missing, and what to do about it.

use std::process::Command;

use testbed::network::{Cable, End};
use testbed::{Namespace, Network};

use super::program;

/// What the names of the namespaces begin with.
const PREFIX: &str = "plateway-demo-";
/// The end of the cable in each namespace.
pub(super) const INTERFACE: &str = "veth0";
pub(super) const MTU: u32 = 9000;

/// Two network namespaces with a cable between them; both are removed with this value.
pub(super) struct Lan {
    network: Network,
}

impl Lan {
    /// Makes it; why not, and what to do about it, in one line.
    pub(super) fn make() -> Result<Lan, String> {
        const HELP: &str = "it takes root (sudo plateway demo); to serve on an interface that is there: setcap cap_net_raw+ep on this program, then plateway serve DISK --aoe INTERFACE/7.0";
        testbed::namespaces::remove_leftovers(PREFIX);
        let make = || {
            let network = Network::make(PREFIX, &["t", "i"])?;
            let end = |node| End { node, interface: INTERFACE, mac: None };
            network.cable([end("t"), end("i")], Cable::of(MTU))?;
            network.at("t").interface("lo").up()?;
            Ok(Lan { network })
        };
        make().map_err(|why: testbed::Error| format!("{why}; {HELP}"))
    }

    /// Where the target is.
    pub(super) fn target(&self) -> &Namespace {
        self.network.at("t")
    }

    /// Where initiators of AoE are.
    pub(super) fn initiator(&self) -> &Namespace {
        self.network.at("i")
    }

    /// This program, in a namespace.
    pub(super) fn command(namespace: &Namespace) -> miette::Result<Command> {
        Ok(namespace.tool(&program()?.to_string_lossy()))
    }
}
