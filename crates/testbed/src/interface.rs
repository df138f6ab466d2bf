//! What can be set of an interface in a namespace: addresses, neighbours, a rate, a bridge, and on
//! which CPU what it receives is dealt with.
//!
//! A virtual interface hands frames over on the sender's CPU. [`Interface::steer`] has an end take
//! what it receives to a CPU of its own (RPS), as a card with a queue for that CPU would. A program
//! in the driver's hook comes before that: there the driver's own thread, pinned, does the same
//! ([`Interface::thread_on`]). Errors: what `ip`, `bridge`, `tc` or the kernel's files say.

use std::fs;

use crate::cpu::TaskStat;
use crate::error::{Error, Result};
use crate::namespaces::Namespace;
use crate::tool::run;

/// What a shaped interface may let pass at once, in bytes: some frames of any MTU, and what 1 Gbit/s
/// carries in a timer's tick of half a millisecond.
const BURST: &str = "64kb";
/// What waits for it at most: a window of 128 frames of 9,000 bytes, thrice.
const QUEUE: &str = "4mb";

/// An interface by its name; the functions find out whether it is there.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    pub(crate) at: &'a Namespace,
    pub(crate) name: &'a str,
}

/// A rate with what may pass at once and what may wait, all as `tc` writes it.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket<'a> {
    pub rate: &'a str,
    pub burst: &'a str,
    pub queue: &'a str,
}

impl<'a> TokenBucket<'a> {
    /// For a cable up to 1 Gbit/s that drops nothing of a window of 128 frames.
    pub fn of(rate: &'a str) -> Self {
        Self { rate, burst: BURST, queue: QUEUE }
    }
}

impl<'a> Interface<'a> {
    pub(crate) fn new(at: &'a Namespace, name: &'a str) -> Self {
        Self { at, name }
    }

    fn set(&self, what: &[&str]) -> Result<()> {
        // Told with `dev`, since a name may be a word of `ip`'s.
        self.at.ip(&[&["link", "set", "dev", self.name], what].concat())
    }

    /// Brings it up.
    pub fn up(&self) -> Result<()> {
        self.set(&["up"])
    }

    /// Its MTU, in bytes.
    pub fn mtu(&self) -> Result<u32> {
        let file = format!("/sys/class/net/{}/mtu", self.name);
        let text = self.at.run("cat", &[&file])?;
        text.trim().parse().map_err(|_| Error::Unexpected {
            what: format!("the MTU of {}", self.name),
            expected: "a number",
            seen: text,
        })
    }

    /// Sets its MTU, in bytes.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.set(&["mtu", &mtu.to_string()])
    }

    /// Sets its MAC address.
    pub fn set_mac(&self, mac: &str) -> Result<()> {
        self.set(&["address", mac])
    }

    /// Keeps the kernel from speaking IPv6 on it by itself; before it comes up.
    pub fn keep_from_ipv6(&self) -> Result<()> {
        self.set(&["addrgenmode", "none"])
    }

    /// Adds an IP address with its prefix length, as in `192.0.2.1/24`.
    pub fn add_address(&self, address: &str) -> Result<()> {
        self.at.ip(&["addr", "add", address, "dev", self.name])
    }

    /// Says where an IP address is, so that nobody is asked for it.
    pub fn add_neighbour(&self, address: &str, mac: &str) -> Result<()> {
        let to = ["lladdr", mac, "dev", self.name, "nud", "permanent"];
        self.at.ip(&[&["neigh", "add", address], &to[..]].concat())
    }

    /// Limits what it sends.
    pub fn shape(&self, bucket: &TokenBucket<'_>) -> Result<()> {
        self.shape_at(&["root"], bucket)
    }

    /// The same of what netem lets go ([`Interface::impair`]).
    pub fn shape_behind(&self, bucket: &TokenBucket<'_>) -> Result<()> {
        self.shape_at(&["parent", "1:1"], bucket)
    }

    fn shape_at(&self, place: &[&str], bucket: &TokenBucket<'_>) -> Result<()> {
        let add = ["-netns", self.at.name(), "qdisc", "add", "dev", self.name];
        let add = [&add[..], place, &["tbf"]].concat();
        let limits = ["rate", bucket.rate, "burst", bucket.burst, "limit", bucket.queue];
        run("tc", &[&add[..], &limits].concat()).map(|_| ())
    }

    /// Makes a bridge of this name between some ports of the namespace, which asks nobody anything.
    pub fn make_bridge(&self, ports: &[&str]) -> Result<()> {
        let kind = ["type", "bridge", "stp_state", "0", "mcast_snooping", "0"];
        self.at.ip(&[&["link", "add", "name", self.name], &kind[..]].concat())?;
        self.keep_from_ipv6()?;
        for port in ports {
            self.at.interface(port).set(&["master", self.name])?;
        }
        self.up()
    }

    /// Tells the bridge whose port it is that a station is behind it.
    pub fn has_behind(&self, mac: &str) -> Result<()> {
        let at = ["-netns", self.at.name(), "fdb", "add", mac, "dev", self.name];
        run("bridge", &[&at[..], &["master", "static"]].concat()).map(|_| ())
    }

    /// Lets the frames that it receives be dealt with on one CPU (RPS).
    pub fn steer(&self, cpu: usize) -> Result<()> {
        self.write("queues/rx-0/rps_cpus", &mask(cpu))
    }

    /// Has what it receives dealt with by a thread of its own, on one CPU: for a program in the
    /// driver's hook, which runs before any steering. The thread is there once the program is
    /// attached. Interfaces of the same name in other namespaces have their threads pinned, too.
    pub fn thread_on(&self, cpu: usize) -> Result<()> {
        self.write("threaded", "1")?;
        let begin = format!("napi/{}-", self.name);
        let system = |source| Error::System { doing: "look for threads".into(), source };
        let own = fs::read_to_string("/proc/self/stat").map_err(system)?;
        let priority = TaskStat::parse(&own).and_then(|own| own.real_time_priority());
        let mut pinned = 0;
        for entry in fs::read_dir("/proc").map_err(system)?.flatten() {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if let (true, Some(pid)) = (name.starts_with(&begin), entry.file_name().to_str()) {
                run("taskset", &["--pid", "--cpu-list", &cpu.to_string(), pid])?;
                // Whoever runs us so has what receives run so, and then this is half of it.
                if let Some(priority) = priority {
                    run("chrt", &["--fifo", "--pid", &priority.to_string(), pid])?;
                }
                pinned += 1;
            }
        }
        match pinned {
            0 => Err(Error::NoThread { interface: self.name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Writes one of the files by which the kernel lets itself be told of it.
    fn write(&self, file: &str, value: &str) -> Result<()> {
        let script = format!("echo {value} > /sys/class/net/{}/{file}", self.name);
        self.at.run("sh", &["-c", &script]).map(|_| ())
    }
}

/// A set of one CPU as the kernel writes it: hexadecimal, in groups of 32 bits.
fn mask(cpu: usize) -> String {
    let rest = ",00000000".repeat(cpu / 32);
    format!("{:x}{rest}", 1_u32 << (cpu % 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_a_bit_in_groups_of_eight_digits() {
        assert_eq!(
            [0, 1, 5, 32, 70].map(mask),
            ["1", "2", "20", "1,00000000", "40,00000000,00000000"]
        );
    }

    #[test]
    fn an_interface_is_as_it_was_set() {
        let Some(network) = crate::tests::pair() else { return };
        let (at, left) = (network.at("l"), network.at("l").interface("left"));
        left.set_mtu(9000).unwrap();
        left.set_mac("02:00:00:00:00:07").unwrap();
        left.add_address("192.0.2.1/24").unwrap();
        left.add_neighbour("192.0.2.2", "02:00:00:00:00:02").unwrap();
        left.shape(&TokenBucket::of("10mbit")).unwrap();
        let link = at.run("ip", &["link", "show", "left"]).unwrap();
        assert!(link.contains("mtu 9000") && link.contains("02:00:00:00:00:07"), "{link}");
        let neighbour = at.run("ip", &["neigh", "show", "dev", "left"]).unwrap();
        assert!(neighbour.contains("192.0.2.2 lladdr 02:00:00:00:00:02 PERMANENT"), "{neighbour}");
        let queue = at.run("tc", &["qdisc", "show", "dev", "left"]).unwrap();
        assert!(queue.contains("tbf") && queue.contains("rate 10Mbit"), "{queue}");
        left.steer(0).unwrap();
        let steered = at.run("cat", &["/sys/class/net/left/queues/rx-0/rps_cpus"]).unwrap();
        assert_eq!(steered.trim().trim_start_matches(['0', ',']), "1");
    }

    #[test]
    fn what_an_interface_receives_is_dealt_with_by_a_thread_where_it_has_one() {
        let Some(network) = crate::tests::pair() else { return };
        let (at, left) = (network.at("l"), network.at("l").interface("left"));
        let error = left.thread_on(0).unwrap_err().to_string();
        assert!(error.contains("/sys/class/net/left/threaded"), "{error}");
        // A virtual interface has one with a program in its hook, or while it joins segments.
        let joins = at.run("ethtool", &["-K", "left", "gro", "on"]).map(|_| ());
        // Who has processes of its own sees no threads of the kernel's.
        if let Err(why) = joins.and_then(|()| left.thread_on(0)) {
            testkit::skipped(why);
        }
    }

    #[test]
    fn a_bridge_knows_who_is_behind_a_port_and_no_interface_is_an_error() {
        let Some(network) = crate::tests::pair() else { return };
        let at = network.at("l");
        at.interface("way").make_bridge(&["left"]).unwrap();
        at.interface("left").has_behind("02:00:00:00:00:02").unwrap();
        let known = at.run("bridge", &["fdb", "show", "dev", "left"]).unwrap();
        assert!(known.contains("02:00:00:00:00:02 master way static"), "{known}");
        let error = at.interface("none").up().unwrap_err().to_string();
        assert!(error.contains("link set dev none up: Cannot find device"), "{error}");
    }
}
