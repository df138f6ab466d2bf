//! What becomes of the frames that an interface receives: some are lost, and those that are longer
//! than they may be are counted.
//!
//! ```text
//!   wire -> interface -> [ AF_XDP ] -> [ watched | lost ] -> stack, packet sockets of one protocol
//! ```
//! Both are rules of nftables in the driver's own hook (`netdev`, `ingress`), so that they see frames
//! of every protocol and the sender learns of nothing, as on a wire. What a program in the driver's
//! hook takes has gone before, and so has what packet sockets of *all* protocols are shown: neither
//! is ever lost. Each frame is drawn for by itself. Units: parts of a million; bytes of an MTU.
//! Errors: no nftables, or a kernel that lacks the hook or `numgen`; [`Abilities`] finds that out in
//! a namespace of its own.

use crate::error::{Error, Result};
use crate::interface::Interface;
use crate::namespaces::Namespaces;
use crate::tool::run;

/// What all parts are parts of.
const MILLION: u32 = 1_000_000;
/// Names of the counters.
const CAME: &str = "came_frames";
const LOST: &str = "lost_frames";
const LONG: &str = "long_frames";
/// Before what loses them.
const WATCH_PRIORITY: i32 = -10;
const LOSS_PRIORITY: i32 = 0;

/// What this kernel can do to frames beside carrying them.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// Whether there is `tc netem`; else, what was said.
    pub netem: std::result::Result<(), String>,
    /// Whether there are rules for what an interface receives; else, what was said.
    pub rules: std::result::Result<(), String>,
    /// Whether a gateway can masquerade; else, what was said.
    pub nat: std::result::Result<(), String>,
}

impl Abilities {
    /// Tries them out. Of the prefix, see [`Namespaces::make`].
    pub fn find(prefix: &str) -> Result<Self> {
        let scratch = Namespaces::make(prefix, &["scratch"])?;
        let interface = scratch.at("scratch").interface("lo");
        let said = |tried: Result<()>| tried.map_err(|why| why.to_string());
        let rules = said(interface.lose(1)).and_then(|()| said(interface.watch(1500)));
        let netem = said(interface.impair(&Impairment { delay_us: 1, loss_ppm: 1 }));
        Ok(Self { netem, rules, nat: said(scratch.at("scratch").masquerade("lo")) })
    }
}

/// What `tc netem` does to what an interface sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// By how much each frame is late; their order stays.
    pub delay_us: u32,
    /// How many of a million frames are lost.
    pub loss_ppm: u32,
}

/// What came and what of it was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    pub came: u64,
    pub lost: u64,
}

impl Interface<'_> {
    /// Loses so many of a million frames that it receives.
    pub fn lose(&self, ppm: u32) -> Result<()> {
        let rules = [
            format!("counter name {CAME}"),
            format!("numgen random mod {MILLION} < {ppm} counter name {LOST} drop"),
        ];
        self.rule("loss", LOSS_PRIORITY, &[CAME, LOST], &rules)
    }

    /// What came since [`Interface::lose`], and what of it was lost.
    pub fn lost_by_rules(&self) -> Result<Loss> {
        let [came, lost] = self.counted("loss", [CAME, LOST])?;
        Ok(Loss { came, lost })
    }

    /// Counts received frames that are longer than an MTU.
    pub fn watch(&self, mtu: u32) -> Result<()> {
        // Here the Ethernet header has been taken off.
        let rules = [format!("meta length > {mtu} counter name {LONG}")];
        self.rule("watch", WATCH_PRIORITY, &[LONG], &rules)
    }

    /// How many there were since [`Interface::watch`].
    pub fn oversized(&self) -> Result<u64> {
        self.counted("watch", [LONG]).map(|[long]| long)
    }

    /// Delays and loses what it sends, by `tc netem`. A token bucket that is to be behind it is
    /// added later.
    pub fn impair(&self, impairment: &Impairment) -> Result<()> {
        let words = netem(impairment);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let add = ["-netns", self.at.name(), "qdisc", "add", "dev", self.name, "root"];
        run("tc", &[&add[..], &words].concat()).map(|_| ())
    }

    /// What it was to send since [`Interface::impair`], and what of it was lost.
    pub fn lost_by_netem(&self) -> Result<Loss> {
        let show = ["-netns", self.at.name(), "-statistics", "qdisc", "show", "dev", self.name];
        let text = run("tc", &show)?;
        netem_loss(&text).ok_or_else(|| Error::Unexpected {
            what: format!("tc -statistics qdisc show of {} in {}", self.name, self.at.name()),
            expected: "what netem sent and dropped",
            seen: text,
        })
    }

    /// A table of its own for some rules, with the counters that they name.
    fn rule(
        &self,
        purpose: &str,
        priority: i32,
        counters: &[&str],
        rules: &[String],
    ) -> Result<()> {
        let (table, device) = (self.table(purpose), self.name);
        let mut script = format!("add table netdev {table}\n");
        for counter in counters {
            script += &format!("add counter netdev {table} {counter}\n");
        }
        script += &format!(
            "add chain netdev {table} received {{ type filter hook ingress device \"{device}\" priority {priority}; }}\n"
        );
        for rule in rules {
            script += &format!("add rule netdev {table} received {rule}\n");
        }
        self.at.run("nft", &[&script]).map(|_| ())
    }

    fn counted<const N: usize>(&self, purpose: &str, names: [&str; N]) -> Result<[u64; N]> {
        let table = self.table(purpose);
        let text = self.at.run("nft", &["list", "counters", "table", "netdev", &table])?;
        let counts = names.map(|name| counter(&text, name));
        if counts.contains(&None) {
            return Err(Error::Unexpected {
                what: format!("nft list counters of {table} in {}", self.at.name()),
                expected: "packets of each counter",
                seen: text,
            });
        }
        Ok(counts.map(Option::unwrap_or_default))
    }

    /// The table of a purpose: its name has what nftables takes for a name.
    fn table(&self, purpose: &str) -> String {
        format!("{purpose}_{}", self.name.replace(['-', '.'], "_"))
    }
}

/// The frames of a counter in what `nft list counters` prints.
fn counter(text: &str, name: &str) -> Option<u64> {
    let behind = text.split_once(&format!("counter {name} {{"))?.1;
    let mut words = behind.split_whitespace();
    (words.next()? == "packets").then_some(())?;
    words.next()?.parse().ok()
}

/// What netem sent and dropped, in what `tc -statistics qdisc` prints.
fn netem_loss(text: &str) -> Option<Loss> {
    let behind = text.split_once("qdisc netem ")?.1;
    let (sent, dropped) = behind.split_once("Sent ")?.1.split_once("(dropped ")?;
    let sent: u64 = sent.split_once(" bytes ")?.1.strip_suffix(" pkt ")?.parse().ok()?;
    let lost = dropped.split_once(',')?.0.parse().ok()?;
    Some(Loss { came: sent + lost, lost })
}

/// The words of `tc` for it.
fn netem(Impairment { delay_us, loss_ppm }: &Impairment) -> Vec<String> {
    let mut words = vec!["handle".to_owned(), "1:".into(), "netem".into()];
    // Of 1,000 frames, as is usual, most of what is under way would be dropped.
    words.extend(["limit".into(), NETEM_FRAMES.to_string()]);
    if *delay_us > 0 {
        words.extend(["delay".into(), format!("{delay_us}us")]);
    }
    if *loss_ppm > 0 {
        words.extend(["loss".into(), "random".into(), format!("{}%", f64::from(*loss_ppm) / 1e4)]);
    }
    words
}

/// What may be under way: 100 ms of full frames at 10 Gbit/s.
const NETEM_FRAMES: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    /// Sends datagrams of so many bytes to a host that is not there, which makes a frame each.
    fn send(network: &Network, frames: u32, bytes: u32) {
        let script = format!(
            "data=$(head -c {bytes} /dev/zero | tr '\\0' x); exec 3> /dev/udp/192.0.2.2/9; \
             for at in $(seq {frames}); do echo -n $data >&3 2> /dev/null; done"
        );
        network.at("l").run("bash", &["-c", &script]).unwrap();
    }

    /// A pair whose left end knows where its datagrams are to go; none where this kernel has no rules.
    fn pair() -> Option<Network> {
        let network = crate::tests::pair()?;
        if let Err(why) = Abilities::find(crate::tests::PREFIX).unwrap().rules {
            testkit::skipped(why);
            return None;
        }
        let left = network.at("l").interface("left");
        left.add_address("192.0.2.1/24").unwrap();
        left.add_neighbour("192.0.2.2", "02:00:00:00:00:02").unwrap();
        Some(network)
    }

    #[test]
    fn as_many_frames_are_lost_as_was_said() {
        let Some(network) = pair() else { return };
        let right = network.at("r").interface("right");
        right.lose(200_000).unwrap();
        let before = right.counters().unwrap();
        send(&network, 4_000, 64);
        let Loss { came, lost } = right.lost_by_rules().unwrap();
        assert_eq!(right.counters().unwrap().since(&before).rx_packets, came);
        // Seven standard deviations on either side of 800.
        assert!(came >= 4_000 && (620..=980).contains(&lost), "{lost} of {came}");
        let script = "cat /proc/net/snmp";
        let snmp = network.at("r").run("sh", &["-c", script]).unwrap();
        let received: u64 = snmp
            .lines()
            .filter_map(|line| line.strip_prefix("Ip: "))
            .nth(1)
            .and_then(|line| line.split_whitespace().nth(2)?.parse().ok())
            .unwrap();
        assert_eq!(received, came - lost, "what is lost does not arrive");
    }

    #[test]
    fn frames_of_any_protocol_are_lost() {
        let Some(network) = pair() else { return };
        let right = network.at("r").interface("right");
        right.lose(999_999).unwrap();
        // Whoever is asked for an address is asked by ARP.
        let _ = network.at("l").run("bash", &["-c", "echo x > /dev/udp/192.0.2.3/9; sleep 0.1"]);
        let Loss { came, lost } = right.lost_by_rules().unwrap();
        assert!(came >= 1 && lost == came, "{lost} of {came}");
    }

    #[test]
    fn a_frame_that_is_longer_than_the_mtu_is_counted_and_no_other() {
        let Some(network) = pair() else { return };
        let right = network.at("r").interface("right");
        right.watch(1000).unwrap();
        // With headers of IP and UDP these are 1,000 bytes, and one more.
        send(&network, 3, 972);
        assert_eq!(right.oversized().unwrap(), 0);
        send(&network, 2, 973);
        assert_eq!(right.oversized().unwrap(), 2);
    }

    #[test]
    fn counters_are_read_by_name_and_netem_is_told_in_its_words() {
        let text = "table netdev loss_a {\n\tcounter came_frames {\n\t\tpackets 7 bytes 9\n\t}\n\
            \tcounter lost_frames {\n\t\tpackets 2 bytes 3\n\t}\n}\n";
        assert_eq!((counter(text, CAME), counter(text, LOST)), (Some(7), Some(2)));
        assert_eq!(counter(text, LONG), None);
        let text = "qdisc netem 1: root refcnt 2 limit 100000 delay 4ms loss 3%\n \
            Sent 9000 bytes 97 pkt (dropped 3, overlimits 0 requeues 0)\n backlog 0b 0p requeues 0\n\
            qdisc tbf 8001: parent 1:1 rate 10Mbit burst 64Kb\n Sent 1 bytes 1 pkt (dropped 50, overlimits 0)\n";
        assert_eq!(netem_loss(text), Some(Loss { came: 100, lost: 3 }));
        assert_eq!(netem_loss(&text.replace("netem", "fq")), None);
        let said = |delay_us, loss_ppm| netem(&Impairment { delay_us, loss_ppm }).join(" ");
        assert_eq!(said(2_000, 0), "handle 1: netem limit 100000 delay 2000us");
        assert_eq!(said(0, 10_000), "handle 1: netem limit 100000 loss random 1%");
    }

    #[test]
    fn what_nobody_watches_has_no_count() {
        let Some(network) = pair() else { return };
        let error = network.at("l").interface("left").oversized().unwrap_err().to_string();
        assert!(error.contains("netdev watch_left"), "{error}");
    }
}
