//! An Ethernet of two stations: two network namespaces with a cable between them, which are removed
//! with the value.
//!
//! Namespaces take a right that not every machine gives. Where there is none, a test says so and
//! passes.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{HANG, Server, flat, text};

/// The end of the cable in both namespaces.
pub(crate) const INTERFACE: &str = "veth0";
/// The targets' station.
pub(crate) const TARGET: &str = "02:00:00:00:00:01";
/// The initiators' station.
pub(crate) const INITIATOR: &str = "02:00:00:00:00:02";

/// Does `work` in a network namespace, on a thread of its own: what that opens stays there.
pub(crate) fn inside<R: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let namespace = File::open(format!("/run/netns/{namespace}")).expect("a namespace");
    let there = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).expect("it was made");
        work()
    };
    std::thread::spawn(there).join().expect("it is done")
}

/// Two namespaces.
pub(crate) struct Lan {
    /// Where servers are.
    pub(crate) target: String,
    /// Where initiators are.
    pub(crate) initiator: String,
}

impl Lan {
    /// Makes it, with this MTU; says why not where it may not.
    pub(crate) fn make(mtu: &str) -> Option<Lan> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let name = |end: &str| format!("plateway-test-{}-{number}{end}", std::process::id());
        // From here on what was made is removed, whatever is missing.
        let lan = Lan { target: name("t"), initiator: name("i") };
        let Lan { target, initiator } = &lan;
        for step in [
            format!("netns add {target}"),
            format!("netns add {initiator}"),
            format!(
                "link add {INTERFACE} mtu {mtu} address {TARGET} netns {target} type veth \
                 peer name {INTERFACE} mtu {mtu} address {INITIATOR} netns {initiator}"
            ),
            format!("-n {target} link set lo up"),
            format!("-n {target} link set {INTERFACE} up"),
            format!("-n {initiator} link set {INTERFACE} up"),
        ] {
            if let Err(why) = ip(&step) {
                testkit::skipped(format_args!("ip {step}: {why}"));
                return None;
            }
        }
        lan.await_up(INTERFACE);
        Some(lan)
    }

    /// Another cable, with jumbo frames.
    pub(crate) fn add_cable(&self, interface: &str) {
        let Lan { target, initiator } = self;
        must(&format!(
            "link add {interface} mtu 9000 netns {target} type veth \
             peer name {interface} mtu 9000 netns {initiator}"
        ));
        must(&format!("-n {target} link set {interface} up"));
        must(&format!("-n {initiator} link set {interface} up"));
        self.await_up(interface);
    }

    /// Takes a cable out at the initiators' side.
    pub(crate) fn pull(&self, interface: &str) {
        must(&format!("-n {} link set {interface} down", self.initiator));
    }

    /// Takes the targets' interface up or down.
    pub(crate) fn set(&self, state: &str) {
        must(&format!("-n {} link set {INTERFACE} {state}", self.target));
    }

    /// Makes the targets' end a port of a bridge.
    pub(crate) fn bridge(&self, bridge: &str) {
        must(&format!("-n {} link add {bridge} type bridge", self.target));
        must(&format!("-n {} link set {INTERFACE} master {bridge}", self.target));
    }

    fn await_up(&self, interface: &str) {
        let until = Instant::now() + HANG;
        for namespace in [&self.target, &self.initiator] {
            let show = format!("-n {namespace} -o link show {interface}");
            while !must(&show).contains("LOWER_UP") {
                assert!(Instant::now() < until, "{interface} of {namespace} does not come up");
                std::thread::yield_now();
            }
        }
    }

    /// The program in a namespace.
    pub(crate) fn plateway(&self, namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_plateway")]);
        command.env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
        command.stdin(std::process::Stdio::null());
        command
    }

    /// A server on the targets' side.
    pub(crate) fn serve(&self, directory: &std::path::Path, args: &[&str]) -> Server {
        Server::try_start_by(self.plateway(&self.target), directory, "aoe", args)
            .unwrap_or_else(|log| panic!("{args:?}: {log}"))
    }

    /// A server on the targets' side, where one was killed a moment ago: the kernel may still be
    /// closing what that one held.
    pub(crate) fn serve_again(&self, directory: &std::path::Path, args: &[&str]) -> Server {
        let until = Instant::now() + HANG;
        loop {
            let command = self.plateway(&self.target);
            match Server::try_start_by(command, directory, "aoe", args) {
                Ok(server) => return server,
                Err(log) => assert!(log.contains("in use") && Instant::now() < until, "{log}"),
            }
        }
    }

    /// The standard output of a command that must succeed in a namespace.
    pub(crate) fn run(&self, namespace: &str, args: &[&str]) -> String {
        let output = self.plateway(namespace).args(args).output().expect("it runs");
        assert!(
            output.status.success(),
            "{args:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// The standard error of a command that must fail in a namespace.
    pub(crate) fn refuse(&self, namespace: &str, args: &[&str]) -> String {
        let output: Output = self.plateway(namespace).args(args).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stdout));
        flat(&output.stderr)
    }

    /// What answers the initiators' station: `shelf.slot config`, in order.
    pub(crate) fn discover(&self, target: &str) -> Vec<String> {
        let found = self.run(&self.initiator, &["discover", target, "--json"]);
        let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
        let line = |one: &serde_json::Value| {
            format!("{}.{} {}", one["shelf"], one["slot"], one["config"].as_str().expect("a text"))
        };
        found.as_array().expect("a list").iter().map(line).collect()
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for namespace in [&self.target, &self.initiator] {
            // One that was never made is no mistake.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// What nothing may refuse.
pub(crate) fn must(line: &str) -> String {
    ip(line).unwrap_or_else(|why| panic!("ip {line}: {why}"))
}

pub(crate) fn ip(line: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(line.split_whitespace())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(flat(&output.stderr)),
    }
}

/// Looks again and again until it is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
