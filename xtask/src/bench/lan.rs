//! A LAN of two stations for AoE, or a router with two links: pairs of virtual interfaces, each end
//! in a network namespace of its own.
//!
//! In: the MTU, and where received frames are dealt with. Out: the namespaces of either end. With
//! [`Softirq::Own`], and at a router, an end steers what it receives to its own CPU; where a program
//! is in the driver's hook, the driver's thread is pinned ([`Lan::thread_at_router`]). Both ends go
//! with the value, and what a killed bench left goes when the next one begins, as the testbed
//! ([`testbed::namespaces`]) has it. Networks of more than two stations are in [`super::mpls`].
//! Errors: no right to make namespaces, said in one line.

use anyhow::{Result, ensure};
use serde::Deserialize;
use testbed::{Cable, End, Namespace, Network};

use super::cases::Case;

/// The names of all our namespaces begin so, and those of our files in shared memory.
pub(super) const PREFIX: &str = "plateway-bench-";
/// The ends, as their namespaces are called.
const TARGET_END: &str = "target";
const LOAD_END: &str = "load";
/// The interface at the target's end.
pub(super) const TARGET: &str = "aoe-target";
/// The interface at the load's end.
pub(super) const LOAD: &str = "aoe-load";

/// The interface by which frames come to a router, and the one at its other end.
pub(super) const ROUTER_IN: &str = "mpls-in";
pub(super) const GENERATOR: &str = "mpls-gen";
/// The interface by which they leave it, and the one at its other end.
pub(super) const ROUTER_OUT: &str = "mpls-out";
pub(super) const SINK: &str = "mpls-sink";
/// Addresses of [`ROUTER_IN`] and of [`SINK`].
pub(super) const ROUTER_MAC: &str = "02:00:00:00:00:11";
pub(super) const SINK_MAC: &str = "02:00:00:00:00:02";
const ROUTER_MTU: u32 = 1500;
/// A bridge in a router's place.
const BRIDGE: &str = "mpls-bridge";

/// On which CPU received frames are dealt with.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Softirq {
    /// On the sender's, as virtual interfaces do: the target's frames on the load's CPU and the
    /// other way round.
    #[default]
    Sender,
    /// On the receiver's own.
    Own,
}

/// Two namespaces and what connects them.
pub(super) struct Lan {
    network: Network,
}

impl Lan {
    /// Makes both ends; `cpus` are those of the target and of the load.
    pub(super) fn new(mtu: u32, softirq: Softirq, cpus: (usize, usize)) -> Result<Self> {
        let lan = Self::unconnected()?;
        lan.connect([(TARGET, None), (LOAD, None)], mtu)?;
        if softirq == Softirq::Own {
            lan.at_target().interface(TARGET).steer(cpus.0)?;
            lan.at_load().interface(LOAD).steer(cpus.1)?;
        }
        Ok(lan)
    }

    /// Makes a router's two links, both with their other ends at the load. What comes to the router
    /// is dealt with on `cpu`. What it sends is, too, until the sink has counted and dropped it:
    /// the last link is left as virtual interfaces are, so that the generator's CPU is its own.
    pub(super) fn for_router(cpu: usize) -> Result<Self> {
        let lan = Self::unconnected()?;
        lan.connect([(ROUTER_IN, Some(ROUTER_MAC)), (GENERATOR, None)], ROUTER_MTU)?;
        lan.connect([(ROUTER_OUT, None), (SINK, Some(SINK_MAC))], ROUTER_MTU)?;
        lan.at_target().interface(ROUTER_IN).steer(cpu)?;
        Ok(lan)
    }

    /// Puts a bridge in the router's place. It knows where the sink is, and learns and asks nothing.
    pub(super) fn bridge(&self) -> Result<()> {
        let router = self.at_target();
        router.interface(BRIDGE).make_bridge(&[ROUTER_IN, ROUTER_OUT])?;
        Ok(router.interface(ROUTER_OUT).has_behind(SINK_MAC)?)
    }

    /// Has what comes to a router dealt with by a thread of the interface's own, on `cpu`. Those of
    /// other sides are on the same CPU.
    pub(super) fn thread_at_router(&self, cpu: usize) -> Result<()> {
        Ok(self.at_target().interface(ROUTER_IN).thread_on(cpu)?)
    }

    fn unconnected() -> Result<Self> {
        Ok(Self { network: Network::make(PREFIX, &[TARGET_END, LOAD_END])? })
    }

    /// Makes a pair of interfaces, one at each end, each with its address if that matters.
    fn connect(&self, ends: [(&str, Option<&str>); 2], mtu: u32) -> Result<()> {
        let [(target, target_mac), (load, load_mac)] = ends;
        let ends = [
            End { node: TARGET_END, interface: target, mac: target_mac },
            End { node: LOAD_END, interface: load, mac: load_mac },
        ];
        Ok(self.network.cable(ends, Cable::of(mtu))?)
    }

    /// Lets a router send IP by its second link: the sink has every address but this host's, and
    /// answers to none.
    pub(super) fn route_to_sink(&self, own: &str, peer: &str) -> Result<()> {
        let out = self.at_target().interface(ROUTER_OUT);
        out.add_address(&format!("{own}/24"))?;
        Ok(out.add_neighbour(peer, SINK_MAC)?)
    }

    /// The target's end.
    pub(super) fn at_target(&self) -> &Namespace {
        self.network.at(TARGET_END)
    }

    /// The load's end.
    pub(super) fn at_load(&self) -> &Namespace {
        self.network.at(LOAD_END)
    }
}

/// Says which cases are left out, if namespaces cannot be made; then none that needs them is left in.
pub(super) fn leave_out(chosen: &mut Vec<Case>) -> Result<Option<String>> {
    let Some(whose) = who_needs_namespaces(chosen.iter().map(|case| &*case.name)) else {
        return Ok(None);
    };
    let Err(error) = testbed::allowed(PREFIX) else {
        return Ok(None);
    };
    let count = chosen.len();
    chosen.retain(|case| protocol(&case.name).is_none());
    let line = format!("{whose} left out ({} cases): {error}", count - chosen.len());
    ensure!(!chosen.is_empty(), "{line}");
    Ok(Some(line))
}

/// Which protocols these cases need namespaces for, with a verb.
fn who_needs_namespaces<'a>(cases: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut whose: Vec<_> = cases.filter_map(protocol).collect();
    whose.sort_unstable();
    whose.dedup();
    let verb = if whose.len() == 1 { "is" } else { "are" };
    (!whose.is_empty()).then(|| format!("{} {verb}", whose.join(" and ")))
}

/// The protocol of a case that needs a namespace.
fn protocol(case: &str) -> Option<&'static str> {
    let (protocol, _) = case.split_once('-')?;
    ["AoE", "MPLS"].into_iter().find(|name| name.eq_ignore_ascii_case(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_and_nothing_else() {
        let whose = |cases: &[&'static str]| who_needs_namespaces(cases.iter().copied());
        assert_eq!(whose(&["read-4k", "iscsi-read-4k"]), None);
        assert_eq!(whose(&["read-4k", "mpls-swap", "mpls-idle"]).as_deref(), Some("MPLS is"));
        let both = whose(&["mpls-swap", "aoe-read-4k"]);
        assert_eq!(both.as_deref(), Some("AoE and MPLS are"));
    }
}
