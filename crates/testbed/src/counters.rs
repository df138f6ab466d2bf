//! What an interface has counted: frames, bytes and drops, both ways, since it was made.
//!
//! They are read from `/sys/class/net/*/statistics` inside the interface's namespace, some
//! interfaces at once, by a program that is started there. While something is measured that would be
//! measured, too: then they are read from `/proc/PID/net/dev` of a process that is there anyway
//! ([`Counters::seen_by`]). Errors: no such interface, or an answer that is no numbers.

use crate::error::{Error, Result};
use crate::interface::Interface;
use crate::namespaces::Namespace;

/// The counters of an interface, or their growth between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
}

/// The kernel's names, in the order of the fields.
const NAMES: [&str; 6] =
    ["rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped"];

impl Counters {
    /// What has come since an earlier look.
    pub fn since(&self, earlier: &Self) -> Self {
        let [now, before] = [self, earlier].map(Self::values);
        // An interface that was made anew began again.
        Self::of(std::array::from_fn(|at| now[at].saturating_sub(before[at])))
    }

    fn values(&self) -> [u64; 6] {
        let Self { rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped } = *self;
        [rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped]
    }

    fn of(values: [u64; 6]) -> Self {
        let [rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped] = values;
        Self { rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped }
    }

    /// Those of an interface of the network in which a process is; `None` if it has no such one, as
    /// before it has entered, or is over.
    pub fn seen_by(pid: u32, interface: &str) -> Option<Self> {
        Self::find(&std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?, interface)
    }

    /// In a line `NAME: ` and, of what was received, bytes, packets, errors, drops and four more; then
    /// the same of what was sent (proc_pid_net(5)).
    fn find(text: &str, interface: &str) -> Option<Self> {
        let of = |line: &'_ str| {
            let (name, numbers) = line.split_once(':')?;
            (name.trim() == interface).then(|| numbers.to_owned())
        };
        let numbers = text.lines().find_map(of)?;
        let numbers: Option<Vec<u64>> =
            numbers.split_whitespace().map(|word| word.parse().ok()).collect();
        let &[
            rx_bytes,
            rx_packets,
            _,
            rx_dropped,
            _,
            _,
            _,
            _,
            tx_bytes,
            tx_packets,
            _,
            tx_dropped,
            ..,
        ] = numbers?.as_slice()
        else {
            return None;
        };
        Some(Self { rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped })
    }

    /// Reads those of so many interfaces, a number a line; nothing if these are not all.
    fn parse(text: &str, interfaces: usize) -> Option<Vec<Self>> {
        let numbers: Option<Vec<u64>> = text.lines().map(|line| line.trim().parse().ok()).collect();
        let (each, rest) = numbers.as_ref()?.as_chunks();
        (each.len() == interfaces && rest.is_empty())
            .then(|| each.iter().copied().map(Self::of).collect())
    }
}

impl Namespace {
    /// What some interfaces inside have counted, in their order.
    pub fn counters(&self, interfaces: &[&str]) -> Result<Vec<Counters>> {
        if interfaces.is_empty() {
            return Ok(Vec::new());
        }
        let files: Vec<String> = interfaces
            .iter()
            .flat_map(|name| NAMES.map(|file| format!("/sys/class/net/{name}/statistics/{file}")))
            .collect();
        let text = self.run("cat", &files.iter().map(String::as_str).collect::<Vec<_>>())?;
        Counters::parse(&text, interfaces.len()).ok_or_else(|| Error::Unexpected {
            what: format!("counters of {} in {}", interfaces.join(", "), self.name()),
            expected: "six numbers each",
            seen: text,
        })
    }
}

impl Interface<'_> {
    /// What it has counted.
    pub fn counters(&self) -> Result<Counters> {
        // One was asked for, so one is told.
        self.at.counters(&[self.name]).map(|counters| counters[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_numbers_are_an_interface() {
        let text = "1\n2\n3\n4\n5\n6\n10\n20\n30\n40\n50\n60\n";
        let [one, two] = Counters::parse(text, 2).unwrap()[..] else { panic!("two") };
        assert_eq!((one.rx_packets, one.rx_dropped, one.tx_dropped), (1, 3, 6));
        assert_eq!((two.rx_bytes, two.tx_packets, two.tx_bytes), (20, 40, 50));
        assert_eq!(two.since(&one), Counters::of([9, 18, 27, 36, 45, 54]));
        assert_eq!(one.since(&two), Counters::default());
        for (text, interfaces) in [("1\n2\n", 1), (text, 1), ("1\n2\n3\n4\n5\nx\n", 1), ("", 1)] {
            assert_eq!(Counters::parse(text, interfaces), None, "{text:?}");
        }
    }

    #[test]
    fn a_process_shows_the_interfaces_of_its_network() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets|bytes\n\
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth1:100 200 0 7 0 0 0 0 300 400 0 9 0 0 0 0\n";
        let seen = Counters::find(text, "eth1").unwrap();
        assert_eq!(seen, Counters::of([200, 100, 7, 400, 300, 9]));
        assert_eq!(Counters::find(text, "lo").unwrap(), Counters::of([2, 1, 4, 10, 9, 12]));
        for (text, name) in
            [(text, "eth"), ("eth1: 1 2 3", "eth1"), ("eth1: x", "eth1"), ("", "lo")]
        {
            assert_eq!(Counters::find(text, name), None, "{text:?}");
        }
        let own = std::process::id();
        assert!(Counters::seen_by(own, "lo").is_some() && Counters::seen_by(own, "none").is_none());
        assert!(Counters::seen_by(u32::MAX, "lo").is_none());
    }

    #[test]
    fn frames_are_counted_at_both_ends_of_a_cable() {
        let Some(network) = crate::tests::pair() else { return };
        let (l, r) = (network.at("l"), network.at("r"));
        l.interface("left").add_address("192.0.2.1/24").unwrap();
        l.interface("left").add_neighbour("192.0.2.2", "02:00:00:00:00:02").unwrap();
        let before = r.interface("right").counters().unwrap();
        // A datagram of 1,000 bytes to a host that is not there.
        let script = "head -c 1000 /dev/zero > /dev/udp/192.0.2.2/9";
        if let Err(why) = l.run("bash", &["-c", script]) {
            return testkit::skipped(why);
        }
        let came = r.interface("right").counters().unwrap().since(&before);
        assert!(came.rx_packets >= 1 && came.rx_bytes >= 1042, "{came:?}");
        assert!(l.interface("left").counters().unwrap().tx_bytes >= 1042);
        assert_eq!(r.counters(&["lo", "right"]).unwrap().len(), 2);
        let error = r.counters(&["left"]).unwrap_err().to_string();
        assert!(error.contains("/sys/class/net/left/statistics/rx_packets"), "{error}");
    }
}
