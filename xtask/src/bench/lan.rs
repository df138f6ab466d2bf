//! A LAN of two stations for AoE, or a router with two links: pairs of virtual interfaces, each end
//! in a network namespace of its own.
//!
//! In: the MTU, and where received frames are dealt with. Out: commands that run at either end. A
//! virtual interface hands frames over on the sender's CPU; with [`Softirq::Own`], and at a router,
//! an end steers what it receives to its own CPU (RPS), as a card with a queue for that CPU would.
//! A program in the driver's hook comes before that: there the driver's own thread, pinned, does
//! the same ([`Lan::thread_at_router`]). Nothing
//! outside the two namespaces is touched, and both end with the value. [`Namespaces`] removes them
//! also when the bench is killed; should that fail, they go when the next one begins. Networks of
//! more than two stations are in [`super::mpls`]. Errors: no right to make namespaces, said in one line.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::cases::Case;

/// The names of all our namespaces begin so; then come the process, a number, and the end. Files in
/// shared memory end with the process.
pub(super) const PREFIX: &str = "plateway-bench-";
/// Where files live in memory.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
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

/// Some namespaces, which are removed with the value or with this process.
pub(super) struct Namespaces {
    names: Vec<String>,
    /// Waits for the end of its standard input, and removes them.
    sweeper: Child,
}

impl Namespaces {
    /// Makes one for each of these ends.
    pub(super) fn make(ends: &[&str]) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &&str| format!("{PREFIX}{}-{number}-{end}", std::process::id());
        let names: Vec<String> = ends.iter().map(name).collect();
        // A session of its own: what is typed at the terminal ends the bench and not this.
        let script = "trap '' INT TERM HUP; cat > /dev/null; \
                      for name; do ip netns delete \"$name\"; done";
        let mut sweeper = Command::new("setsid");
        sweeper.args(["sh", "-c", script, "sh"]).args(&names);
        sweeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let sweeper =
            sweeper.spawn().context("`setsid` is not on PATH (Debian package util-linux)")?;
        let namespaces = Self { names, sweeper };
        for name in &namespaces.names {
            ip(&["netns", "add", name])?;
        }
        Ok(namespaces)
    }

    /// The names, in the order of the ends.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The interfaces go with their namespaces.
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// Two namespaces and what connects them.
pub(super) struct Lan {
    target: String,
    load: String,
    _namespaces: Namespaces,
}

impl Lan {
    /// Makes both ends; `cpus` are those of the target and of the load.
    pub(super) fn new(mtu: u32, softirq: Softirq, cpus: (usize, usize)) -> Result<Self> {
        let lan = Self::unconnected()?;
        lan.connect(TARGET, LOAD, mtu)?;
        if softirq == Softirq::Own {
            steer(&lan.target, TARGET, cpus.0)?;
            steer(&lan.load, LOAD, cpus.1)?;
        }
        Ok(lan)
    }

    /// Makes a router's two links, both with their other ends at the load. What comes to the router
    /// is dealt with on `cpu`. What it sends is, too, until the sink has counted and dropped it:
    /// the last link is left as virtual interfaces are, so that the generator's CPU is its own.
    pub(super) fn for_router(cpu: usize) -> Result<Self> {
        let lan = Self::unconnected()?;
        let (router, load) = (lan.target.as_str(), lan.load.as_str());
        lan.connect(ROUTER_IN, GENERATOR, ROUTER_MTU)?;
        lan.connect(ROUTER_OUT, SINK, ROUTER_MTU)?;
        ip(&["-netns", router, "link", "set", ROUTER_IN, "address", ROUTER_MAC])?;
        ip(&["-netns", load, "link", "set", SINK, "address", SINK_MAC])?;
        steer(router, ROUTER_IN, cpu)?;
        Ok(lan)
    }

    /// Puts a bridge in the router's place. It knows where the sink is, and learns and asks nothing.
    pub(super) fn bridge(&self) -> Result<()> {
        let router = self.target.as_str();
        let off = ["stp_state", "0", "mcast_snooping", "0"];
        let add = ["-netns", router, "link", "add", BRIDGE, "type", "bridge"];
        ip(&[&add[..], &off[..]].concat())?;
        ip(&["-netns", router, "link", "set", BRIDGE, "addrgenmode", "none"])?;
        for port in [ROUTER_IN, ROUTER_OUT] {
            ip(&["-netns", router, "link", "set", port, "master", BRIDGE])?;
        }
        ip(&["-netns", router, "link", "set", BRIDGE, "up"])?;
        let fdb = ["-netns", router, "fdb", "add", SINK_MAC, "dev", ROUTER_OUT, "master", "static"];
        run("bridge", &fdb)
    }

    /// Has what comes to a router dealt with by a thread of the interface's own, on `cpu`: for a
    /// program in the driver's hook, which runs before any steering. The thread is there once the
    /// program is attached.
    pub(super) fn thread_at_router(&self, cpu: usize) -> Result<()> {
        let script = format!("echo 1 > /sys/class/net/{ROUTER_IN}/threaded");
        ip(&["netns", "exec", &self.target, "sh", "-c", &script])?;
        let begin = format!("napi/{ROUTER_IN}-");
        let priority = real_time(&std::fs::read_to_string("/proc/self/stat")?);
        let mut pinned = 0;
        // Those of other sides are on the same CPU.
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if let (true, Some(pid)) = (name.starts_with(&begin), entry.file_name().to_str()) {
                run("taskset", &["--pid", "--cpu-list", &cpu.to_string(), pid])?;
                // Whoever runs the bench so has the router run so, and then this is half of it.
                if let Some(priority) = &priority {
                    run("chrt", &["--fifo", "--pid", priority, pid])?;
                }
                pinned += 1;
            }
        }
        ensure!(pinned > 0, "no thread of {ROUTER_IN} is there: its driver runs no program");
        Ok(())
    }

    fn unconnected() -> Result<Self> {
        let namespaces = Namespaces::make(&["target", "load"])?;
        let [target, load] = [0, 1].map(|at| namespaces.names()[at].clone());
        Ok(Self { target, load, _namespaces: namespaces })
    }

    /// Makes a pair of interfaces, one at each end.
    fn connect(&self, at_target: &str, at_load: &str, mtu: u32) -> Result<()> {
        let (target, load) = (self.target.as_str(), self.load.as_str());
        ip(&[
            "link", "add", at_target, "netns", target, "type", "veth", "peer", "name", at_load,
            "netns", load,
        ])?;
        let mtu = mtu.to_string();
        for (end, interface) in [(target, at_target), (load, at_load)] {
            // No IPv6: nobody else speaks on this link.
            ip(&["-netns", end, "link", "set", interface, "addrgenmode", "none"])?;
            ip(&["-netns", end, "link", "set", interface, "mtu", &mtu, "up"])?;
        }
        Ok(())
    }

    /// Lets a router send IP by its second link: the sink has every address but this host's, and
    /// answers to none.
    pub(super) fn route_to_sink(&self, own: &str, peer: &str) -> Result<()> {
        let router = self.target.as_str();
        ip(&["-netns", router, "addr", "add", &format!("{own}/24"), "dev", ROUTER_OUT])?;
        let to = ["lladdr", SINK_MAC, "dev", ROUTER_OUT, "nud", "permanent"];
        ip(&[&["-netns", router, "neigh", "add", peer][..], &to].concat())
    }

    /// What comes before a program at the target's end.
    pub(super) fn at_target(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.target]
    }

    /// What comes before a program at the load's end.
    pub(super) fn at_load(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.load]
    }
}

/// Says which cases are left out, if namespaces cannot be made; then none that needs them is left in.
pub(super) fn leave_out(chosen: &mut Vec<Case>) -> Result<Option<String>> {
    let Some(whose) = who_needs_namespaces(chosen.iter().map(|case| &*case.name)) else {
        return Ok(None);
    };
    let Err(error) = allowed() else {
        return Ok(None);
    };
    let count = chosen.len();
    chosen.retain(|case| protocol(&case.name).is_none());
    let line = format!("{whose} left out ({} cases): {error:#}", count - chosen.len());
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

/// Whether namespaces and interfaces may be made here; if not, why, in one line.
fn allowed() -> Result<()> {
    remove_stale();
    let lan = Lan::new(1500, Softirq::Own, (0, 0))?;
    let [program, args @ ..] = lan.at_load();
    let output = Command::new(program).args(args).arg("true").output()?;
    if !output.status.success() {
        bail!("{}", one_line(&output.stderr));
    }
    Ok(())
}

/// At which real-time priority a process runs, first come, first served, if it does; from its
/// `/proc/PID/stat`, of which the name, in parentheses, may hold anything.
fn real_time(stat: &str) -> Option<String> {
    const FIFO: &str = "1";
    let behind_name = stat.rsplit(')').next()?;
    // The fields 40 and 41, counted from 1; the name is the second.
    let mut fields = behind_name.split_whitespace().skip(40 - 3);
    let (priority, policy) = (fields.next()?, fields.next()?);
    (policy == FIFO).then(|| priority.to_owned())
}

/// Lets the frames that an interface receives be dealt with on one CPU.
fn steer(namespace: &str, interface: &str, cpu: usize) -> Result<()> {
    let script = format!("echo {} > /sys/class/net/{interface}/queues/rx-0/rps_cpus", mask(cpu));
    ip(&["netns", "exec", namespace, "sh", "-c", &script])
}

/// A set of one CPU as the kernel writes it: hexadecimal, in groups of 32 bits.
fn mask(cpu: usize) -> String {
    let rest = ",00000000".repeat(cpu / 32);
    format!("{:x}{rest}", 1_u32 << (cpu % 32))
}

/// Removes what benches left behind that have ended without doing so: namespaces, and files in
/// shared memory.
fn remove_stale() {
    let alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
    let Ok(output) = Command::new("ip").args(["netns", "list"]).output() else {
        return;
    };
    // Another bench may be doing the same: what is gone already is as good.
    for name in stale(&String::from_utf8_lossy(&output.stdout), alive) {
        let _ = Command::new("ip").args(["netns", "delete", &name]).output();
    }
    let files = std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let names: Vec<String> =
        files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for name in stale(&names.join("\n"), alive) {
        let _ = std::fs::remove_file(Path::new(SHARED_MEMORY).join(name));
    }
}

/// Those of our names among lines that begin with one (as in `ip netns list`) whose process is no
/// longer alive.
fn stale(list: &str, alive: impl Fn(u32) -> bool) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| {
            let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid: u32| !alive(pid))
        })
        .map(str::to_owned)
        .collect()
}

pub(super) fn ip(args: &[&str]) -> Result<()> {
    run("ip", args)
}

pub(super) fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| {
        format!("`{program}` is not on PATH (Debian packages iproute2, util-linux)")
    })?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), one_line(&output.stderr));
    }
    Ok(())
}

fn one_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_benches_that_have_ended_are_stale() {
        let list = "plateway-bench-12-0-target (id: 3)\nplateway-bench-13-0-load\nother\nplateway-bench-x-1\n";
        assert_eq!(stale(list, |pid| pid == 13), ["plateway-bench-12-0-target"]);
    }

    #[test]
    fn what_is_left_out_is_named_and_nothing_else() {
        let whose = |cases: &[&'static str]| who_needs_namespaces(cases.iter().copied());
        assert_eq!(whose(&["read-4k", "iscsi-read-4k"]), None);
        assert_eq!(whose(&["read-4k", "mpls-swap", "mpls-idle"]).as_deref(), Some("MPLS is"));
        let both = whose(&["mpls-swap", "aoe-read-4k"]);
        assert_eq!(both.as_deref(), Some("AoE and MPLS are"));
    }

    #[test]
    fn a_real_time_priority_is_found_behind_any_name() {
        let stat = |priority: u32, policy: u32| {
            let before: Vec<String> = (4..40).map(|field| (field + 100).to_string()).collect();
            format!("7 (a) b (c) S {} {priority} {policy} 0 0", before.join(" "))
        };
        assert_eq!(real_time(&stat(3, 1)).as_deref(), Some("3"));
        assert_eq!([real_time(&stat(0, 0)), real_time("")], [None, None]);
    }

    #[test]
    fn a_cpu_is_a_bit_in_groups_of_eight_digits() {
        assert_eq!(
            [0, 1, 5, 32, 70].map(mask),
            ["1", "2", "20", "1,00000000", "40,00000000,00000000"]
        );
    }
}
