//! A network of namespaces: stations and routers, and cables between them.
//!
//! A cable is a pair of virtual interfaces; at either end of a cable of the core the interface is
//! called as the node at the other end. Nothing is cut or summed by an interface (`tso`, `gso`, `gro`,
//! `tx` and `rx` are off), so that a frame on a cable is a frame. A cable with a rate has a token
//! bucket (`tbf`) at both ends, whose queue holds more than is ever under way: it delays and drops
//! nothing. Errors: what `ip`, `tc` or `ethtool` say.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::bench::lan::{Namespaces, ip, run};
use crate::bench::process::Bench;

/// What a shaped cable may let pass at once, in bytes: some frames of any MTU, and what 1 Gbit/s
/// carries in a timer's tick of half a millisecond.
const BURST: &str = "64kb";
/// What waits for it at most: a window of 128 frames of 9,000 bytes, thrice.
const QUEUE: &str = "4mb";

pub(super) struct Network {
    nodes: &'static [&'static str],
    namespaces: Namespaces,
}

/// An end of a cable: the node, its interface, and the address of that.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) node: &'a str,
    pub(super) interface: &'a str,
    pub(super) mac: &'a str,
}

/// How a cable is.
#[derive(Clone, Copy)]
pub(super) struct Cable<'a> {
    pub(super) mtu: u32,
    /// As `tc` writes it.
    pub(super) rate: Option<&'a str>,
}

impl Network {
    /// Makes the nodes; nothing connects them yet.
    pub(super) fn make(nodes: &'static [&'static str]) -> Result<Self> {
        Ok(Self { nodes, namespaces: Namespaces::make(nodes)? })
    }

    /// The namespace of a node.
    pub(super) fn at(&self, node: &str) -> &str {
        let at = self.nodes.iter().position(|other| *other == node);
        &self.namespaces.names()[at.unwrap_or_else(|| panic!("{node} is no node"))]
    }

    pub(super) fn cable(&self, [a, b]: [End<'_>; 2], cable: Cable<'_>) -> Result<()> {
        let mtu = cable.mtu.to_string();
        let [first, second] =
            [a, b].map(|end| ["mtu", &mtu, "address", end.mac, "netns", self.at(end.node)]);
        let (peer, add) = (["type", "veth", "peer", "name", b.interface], ["link", "add"]);
        ip(&[&add[..], &[a.interface], &first, &peer, &second].concat())?;
        for End { node, interface, .. } in [a, b] {
            let at = self.at(node);
            // No IPv6: nobody else speaks on this cable.
            ip(&["-netns", at, "link", "set", interface, "addrgenmode", "none"])?;
            let off = "tx off rx off tso off gso off gro off";
            let switch = ["netns", "exec", at, "ethtool", "-K", interface];
            ip(&switch.into_iter().chain(off.split(' ')).collect::<Vec<_>>())?;
            ip(&["-netns", at, "link", "set", interface, "up"])?;
            if let Some(rate) = cable.rate {
                let add = ["-netns", at, "qdisc", "add", "dev", interface, "root", "tbf"];
                let limits = ["rate", rate, "burst", BURST, "limit", QUEUE];
                run("tc", &[&add[..], &limits].concat())?;
            }
        }
        Ok(())
    }

    /// A cable between two routers.
    pub(super) fn core_cable(&self, [a, b]: [&str; 2], cable: Cable<'_>) -> Result<()> {
        let (mac_a, mac_b) = (self.address(a, b), self.address(b, a));
        let ends = [
            End { node: a, interface: b, mac: &mac_a },
            End { node: b, interface: a, mac: &mac_b },
        ];
        self.cable(ends, cable)
    }

    /// The address of the end in `of` of the cable to `towards`.
    pub(super) fn address(&self, of: &str, towards: &str) -> String {
        address(self.nodes, of, towards)
    }

    /// A program at a node that does not outlive the bench.
    pub(super) fn command(&self, bench: &Bench, node: &str, cpus: &str, program: &Path) -> Command {
        bench.command_in(&["ip", "netns", "exec", self.at(node)], cpus, program)
    }

    /// A program at a node, on any CPU, that ends with its standard input or at once.
    pub(super) fn tool(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.at(node), program]);
        command
    }

    /// Frames that the interfaces of a node sent and received so far.
    pub(super) fn frames(&self, node: &str, interfaces: &[&str]) -> Result<u64> {
        let mut files = Vec::new();
        for interface in interfaces {
            for way in ["rx", "tx"] {
                files.push(format!("/sys/class/net/{interface}/statistics/{way}_packets"));
            }
        }
        let output = self.tool(node, "cat").args(&files).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let counts: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ensure!(counts.len() == files.len(), "no counters at {node}: {text}");
        Ok(counts.iter().sum())
    }
}

/// Each node has a number, and an address by both ends of a cable.
pub(super) fn address(nodes: &[&str], of: &str, towards: &str) -> String {
    let number = |name: &str| {
        let at = nodes.iter().position(|other| *other == name);
        1 + at.unwrap_or_else(|| panic!("{name} is no node"))
    };
    format!("02:00:00:00:{:02x}:{:02x}", number(of), number(towards))
}

/// Says in time which program is missing.
pub(super) fn needs(program: &str, package: &str) -> Result<()> {
    let found = Command::new(program).arg("--version").output();
    found.with_context(|| {
        format!("skipped: `{program}` is not on PATH (Debian package {package})")
    })?;
    Ok(())
}
