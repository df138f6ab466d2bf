//! What a host leaves to an interface: to cut long segments, to join short ones, to compute and
//! to check checksums.
//!
//! A virtual interface does nothing of it and hands the work on undone: a frame that is longer than
//! the MTU, or has no checksum. Where frames are counted, forwarded or timed, it is off. In and out:
//! `ethtool`, inside the interface's namespace; what was switched is read back. Errors: no ethtool,
//! no such interface, or one that keeps what it does, with its names.

use crate::error::{Error, Result};
use crate::interface::Interface;

/// What of it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// TCP segmentation offload: the interface cuts segments to the MTU.
    pub tso: bool,
    /// Generic segmentation offload: the kernel does, just before the driver.
    pub gso: bool,
    /// Generic receive offload: the kernel joins the segments of a stream.
    pub gro: bool,
    /// Large receive offload: the interface does.
    pub lro: bool,
    /// The interface checks checksums.
    pub rx_checksum: bool,
    /// The interface computes them.
    pub tx_checksum: bool,
}

/// What `ethtool -K` calls an offload, what `ethtool -k` calls it, and its field.
type Name = (&'static str, &'static str, fn(&mut Offloads) -> &mut bool);
/// In the order in which they are switched: what needs another goes first.
const NAMES: [Name; 6] = [
    ("tso", "tcp-segmentation-offload", |all| &mut all.tso),
    ("gso", "generic-segmentation-offload", |all| &mut all.gso),
    ("gro", "generic-receive-offload", |all| &mut all.gro),
    ("lro", "large-receive-offload", |all| &mut all.lro),
    ("rx", "rx-checksumming", |all| &mut all.rx_checksum),
    ("tx", "tx-checksumming", |all| &mut all.tx_checksum),
];

impl Offloads {
    /// What is on, as `ethtool -K` calls it.
    pub fn on(&self) -> Vec<&'static str> {
        let mut all = *self;
        let on = NAMES.into_iter().filter(|(_, _, of)| *of(&mut all));
        on.map(|(name, _, _)| name).collect()
    }

    /// Reads what `ethtool -k` prints; of what is missing, the name.
    fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let mut all = Self::default();
        for (_, name, of) in NAMES {
            // `[fixed]` or `[requested on]` may follow.
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            *of(&mut all) = match value.and_then(|value| value.split_whitespace().next()) {
                Some("on") => true,
                Some("off") => false,
                _ => return Err(name),
            };
        }
        Ok(all)
    }
}

impl Interface<'_> {
    /// What its host leaves to it.
    pub fn offloads(&self) -> Result<Offloads> {
        let text = self.at.run("ethtool", &["-k", self.name])?;
        Offloads::parse(&text).map_err(|expected| Error::Unexpected {
            what: format!("ethtool -k {}", self.name),
            expected,
            seen: text,
        })
    }

    /// Leaves nothing to it any more.
    pub fn switch_offloads_off(&self) -> Result<()> {
        let on = self.offloads()?.on();
        if on.is_empty() {
            return Ok(());
        }
        let mut args = vec!["-K", self.name];
        args.extend(on.iter().flat_map(|name| [name, "off"]));
        // Where one of several is kept, it ends well or not by the version: what is on then, tells.
        let switched = self.at.run("ethtool", &args);
        let kept = self.offloads()?.on();
        if !kept.is_empty() {
            let (interface, namespace) = (self.name.to_owned(), self.at.name().to_owned());
            return Err(Error::Kept { interface, namespace, kept });
        }
        switched.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ethtool 6.1 prints of a pair of virtual interfaces, in part.
    const VETH: &str = "Features for left:\nrx-checksumming: on\ntx-checksumming: on\n\
        \ttx-checksum-ipv4: off [fixed]\n\ttx-checksum-ip-generic: on\nscatter-gather: on\n\
        tcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\ngeneric-segmentation-offload: on\n\
        generic-receive-offload: off\nlarge-receive-offload: off [fixed]\nrx-vlan-offload: on\n";

    #[test]
    fn what_is_on_is_read_whatever_follows_it() {
        let seen = Offloads::parse(VETH).unwrap();
        assert_eq!(seen.on(), ["tso", "gso", "rx", "tx"]);
        assert!(!seen.gro && !seen.lro);
        let fixed = VETH.replace("large-receive-offload: off", "large-receive-offload: on");
        assert!(Offloads::parse(&fixed).unwrap().lro);
        let off = Offloads::parse(&VETH.replace(": on", ": off [requested on]")).unwrap();
        assert_eq!(off, Offloads::default());
    }

    #[test]
    fn what_ethtool_does_not_tell_is_named() {
        let without = VETH.replace("large-receive-offload", "huge-receive-offload");
        assert_eq!(Offloads::parse(&without), Err("large-receive-offload"));
        assert_eq!(Offloads::parse(""), Err("tcp-segmentation-offload"));
        let odd = VETH.replace("generic-receive-offload: off", "generic-receive-offload: maybe");
        assert_eq!(Offloads::parse(&odd), Err("generic-receive-offload"));
    }

    #[test]
    fn offloads_are_switched_off_and_stay_off_and_what_keeps_them_says_so() {
        let Some(network) = crate::tests::pair() else { return };
        if let Err(why) = crate::needs("ethtool") {
            return testkit::skipped(why);
        }
        let left = network.at("l").interface("left");
        assert_ne!(left.offloads().unwrap(), Offloads::default());
        left.switch_offloads_off().unwrap();
        assert_eq!(left.offloads().unwrap(), Offloads::default());
        left.switch_offloads_off().unwrap();
        let kept = network.at("l").interface("lo").switch_offloads_off().unwrap_err().to_string();
        assert!(kept.starts_with("lo in ") && kept.contains("let rx, tx be"), "{kept}");
        let none = network.at("l").interface("none").offloads().unwrap_err().to_string();
        assert!(none.contains("ethtool -k none: "), "{none}");
    }
}
