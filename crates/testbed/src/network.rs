//! A network of namespaces: nodes, and cables between them.
//!
//! A cable is a pair of virtual interfaces, one in each of two nodes; at either end of a core cable
//! the interface is called as the node at the other end, and has an address that both nodes' places
//! give. Nobody speaks IPv6 by itself on a cable. Unless it keeps its offloads, nothing is cut or
//! summed by an interface, so that a frame on a cable is a frame. A cable with a rate has a token
//! bucket (`tbf`) at both ends, whose queue holds more than is ever under way: it delays and drops
//! nothing. Errors: what `ip`, `tc` or `ethtool` say.

use crate::error::Result;
use crate::interface::TokenBucket;
use crate::namespaces::{Namespace, Namespaces};
use crate::tool::ip;

/// Some nodes and what connects them; it ends with the value.
#[derive(Debug)]
pub struct Network {
    nodes: Namespaces,
}

/// An end of a cable: the node, its interface, and the address of that, where it is not to be drawn
/// by the kernel.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub node: &'a str,
    pub interface: &'a str,
    pub mac: Option<&'a str>,
}

/// How a cable is.
#[derive(Clone, Copy, Debug)]
pub struct Cable<'a> {
    /// In bytes.
    pub mtu: u32,
    /// As `tc` writes it, both ways; as fast as it goes without one.
    pub rate: Option<&'a str>,
    /// Whether its interfaces have the offloads that they come with.
    pub offloads: bool,
}

impl Cable<'_> {
    /// As the kernel makes it, with this MTU.
    pub fn of(mtu: u32) -> Self {
        Self { mtu, rate: None, offloads: true }
    }
}

impl Network {
    /// Makes the nodes; nothing connects them yet. Of the prefix, see [`Namespaces::make`].
    pub fn make(prefix: &str, nodes: &[&str]) -> Result<Self> {
        Ok(Self { nodes: Namespaces::make(prefix, nodes)? })
    }

    /// The namespace of a node.
    pub fn at(&self, node: &str) -> &Namespace {
        self.nodes.at(node)
    }

    /// The numbers of all nodes' namespaces, by which processes are known to be in them.
    pub fn numbers(&self) -> Vec<u64> {
        self.nodes.ends().iter().filter_map(|node| self.at(node).number()).collect()
    }

    /// Lays a cable, which is up at both ends then.
    pub fn cable(&self, ends: [End<'_>; 2], cable: Cable<'_>) -> Result<()> {
        let mtu = cable.mtu.to_string();
        let [first, second] = ends.map(|end| {
            let address = end.mac.map_or(vec![], |mac| vec!["address", mac]);
            let way = ["mtu", &mtu, "netns", self.at(end.node).name()];
            [&["name", end.interface], &address[..], &way].concat()
        });
        ip(&[&["link", "add"], &first[..], &["type", "veth", "peer"], &second].concat())?;
        for End { node, interface, .. } in ends {
            let interface = self.at(node).interface(interface);
            interface.keep_from_ipv6()?;
            if !cable.offloads {
                interface.switch_offloads_off()?;
            }
            interface.up()?;
            if let Some(rate) = cable.rate {
                interface.shape(&TokenBucket::of(rate))?;
            }
        }
        Ok(())
    }

    /// A cable between two routers.
    pub fn core_cable(&self, [a, b]: [&str; 2], cable: Cable<'_>) -> Result<()> {
        let (mac_a, mac_b) = (self.address(a, b), self.address(b, a));
        let ends = [
            End { node: a, interface: b, mac: Some(&mac_a) },
            End { node: b, interface: a, mac: Some(&mac_b) },
        ];
        self.cable(ends, cable)
    }

    /// The address of the end in `of` of the core cable to `towards`.
    pub fn address(&self, of: &str, towards: &str) -> String {
        address(self.nodes.ends(), of, towards)
    }
}

/// Each node has a number, its place from 1, and an address by both ends of a core cable.
pub fn address(nodes: &[impl AsRef<str>], of: &str, towards: &str) -> String {
    let number = |name: &str| {
        let at = nodes.iter().position(|other| other.as_ref() == name);
        1 + at.unwrap_or_else(|| panic!("{name} is no node"))
    };
    format!("02:00:00:00:{:02x}:{:02x}", number(of), number(towards))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::PREFIX;

    #[test]
    fn an_address_says_whose_it_is_and_towards_whom() {
        assert_eq!(address(&["a", "b", "c"], "c", "a"), "02:00:00:00:03:01");
        assert_eq!(address(&["a", "b", "c"], "a", "c"), "02:00:00:00:01:03");
    }

    #[test]
    fn a_core_cable_is_called_as_who_is_at_its_other_end_and_leaves_nothing_to_hardware() {
        if let Err(why) = crate::allowed(PREFIX).and(crate::needs("ethtool")) {
            return testkit::skipped(why);
        }
        // A name that `ip link add` would take for a word of its own, were it not told.
        let network = Network::make(PREFIX, &["a", "b"]).unwrap();
        let cable = Cable { mtu: 4000, rate: Some("100mbit"), offloads: false };
        network.core_cable(["a", "b"], cable).unwrap();
        let link = network.at("a").run("ip", &["link", "show", "b"]).unwrap();
        for words in ["mtu 4000", "02:00:00:00:01:02", "qdisc tbf", ",UP"] {
            assert!(link.contains(words), "no {words} in {link}");
        }
        let addresses = network.at("a").run("ip", &["-6", "address"]).unwrap();
        assert_eq!(addresses, "");
        assert!(network.at("b").interface("a").offloads().unwrap().on().is_empty());
    }
}
