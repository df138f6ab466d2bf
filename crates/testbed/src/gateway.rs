//! A namespace as a router of the kernel's: routes, forwarding, and masquerading (NAT).
//!
//! All of it is IPv4's. Errors: what `ip`, `nft` or the kernel's files say.

use crate::error::Result;
use crate::namespaces::Namespace;

impl Namespace {
    /// Adds a route to a network (as in `10.0.0.0/8`) by a gateway.
    pub fn add_route(&self, network: &str, gateway: &str) -> Result<()> {
        self.ip(&["route", "add", network, "via", gateway])
    }

    /// Has the kernel send on what is for others.
    pub fn forward(&self) -> Result<()> {
        // The file is that of the namespace in which it is written.
        self.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]).map(|_| ())
    }

    /// What leaves by an interface on behalf of others has its address, and what comes back is
    /// theirs.
    pub fn masquerade(&self, outer: &str) -> Result<()> {
        let script = format!(
            "add table ip gateway\n\
             add chain ip gateway leaving {{ type nat hook postrouting priority 100; }}\n\
             add rule ip gateway leaving oifname \"{outer}\" masquerade\n"
        );
        self.run("nft", &[&script]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use crate::network::{Cable, End, Network};
    use crate::tests::PREFIX;

    #[test]
    fn who_is_behind_a_gateway_is_seen_with_its_address() {
        if let Err(why) = crate::allowed(PREFIX) {
            return testkit::skipped(why);
        }
        let network = Network::make(PREFIX, &["in", "gate", "out"]).unwrap();
        let end = |node, interface| End { node, interface, mac: None };
        network.cable([end("in", "eth0"), end("gate", "inner")], Cable::of(1500)).unwrap();
        network.cable([end("gate", "outer"), end("out", "eth0")], Cable::of(1500)).unwrap();
        let (inside, gate, out) = (network.at("in"), network.at("gate"), network.at("out"));
        inside.interface("eth0").add_address("192.0.2.2/24").unwrap();
        gate.interface("inner").add_address("192.0.2.1/24").unwrap();
        gate.interface("outer").add_address("198.51.100.1/24").unwrap();
        out.interface("eth0").add_address("198.51.100.2/24").unwrap();
        inside.add_route("198.51.100.0/24", "192.0.2.1").unwrap();
        gate.forward().unwrap();
        if let Err(why) = gate.masquerade("outer") {
            return testkit::skipped(why);
        }
        // `out` has no route to 192.0.2.2: it counts what comes from where it can answer.
        let rules = "add table ip seen\nadd counter ip seen gate\n\
            add chain ip seen coming { type filter hook input priority 0; }\n\
            add rule ip seen coming ip saddr 198.51.100.1 udp dport 9 counter name gate\n";
        out.run("nft", &[rules]).unwrap();
        inside
            .run("bash", &["-c", "for at in 1 2 3; do echo x > /dev/udp/198.51.100.2/9; done"])
            .unwrap();
        let seen = out.run("nft", &["list", "counters", "table", "ip", "seen"]).unwrap();
        assert!(seen.contains("packets 3 "), "{seen}");
    }
}
