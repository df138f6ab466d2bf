//! A network namespace for a test: made, and gone with the test's thread; and what `ip` makes in it.
//!
//! Root needs nothing more. Others get a user namespace, which only a process with one thread can
//! enter: the test starts itself again in one. Where neither is permitted, the test says so and
//! passes.

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open};

/// Set in a process that was started again in a user namespace.
const INSIDE: &str = "LINK_TEST_IN_USER_NAMESPACE";

/// Runs a test, of this name, in a network namespace of its own.
pub(crate) fn in_namespace(name: &str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match unshare(libc::CLONE_NEWNET) {
            Ok(()) => test(),
            Err(_) if std::env::var_os(INSIDE).is_none() => start_again(name),
            Err(error) => eprintln!("skipped: no network namespace is to be had: {error}"),
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: changes namespaces of the calling thread or process, touches no memory.
    let result = unsafe { libc::unshare(what) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn start_again(name: &str) {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (users, groups) = (format!("0 {user} 1"), format!("0 {group} 1"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    // SAFETY: between fork and exec only system calls are made, on strings that were made before.
    unsafe {
        command.pre_exec(move || {
            unshare(libc::CLONE_NEWUSER)?;
            put(c"/proc/self/setgroups", "deny")?;
            put(c"/proc/self/uid_map", &users)?;
            put(c"/proc/self/gid_map", &groups)
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{name} failed in its user namespace"),
        Err(error) => eprintln!("skipped: no user namespace is to be had: {error}"),
    }
}

fn put(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}

/// Makes a pair of interfaces, each other's cable, that are down and have so many queues. `false`:
/// this system has none.
pub(crate) fn make_pair(one: &str, other: &str, queues: u32) -> bool {
    let queued = format!("numtxqueues {queues} numrxqueues {queues}");
    let made = ip(&format!("link add {one} {queued} type veth peer name {other} {queued}"));
    if let Err(why) = &made {
        let has_none = ["ip: ", "not supported", "Unknown device type"];
        assert!(has_none.iter().any(|words| why.contains(words)), "veth: {why}");
        eprintln!("skipped: no cable is to be had: {why}");
    }
    made.is_ok()
}

/// Sets an interface up or down.
pub(crate) fn set_up(name: &str, up: bool) {
    ip(&format!("link set {name} {}", if up { "up" } else { "down" })).unwrap();
}

pub(crate) fn set_mtu(name: &str, mtu: u32) {
    ip(&format!("link set {name} mtu {mtu}")).unwrap();
}

pub(crate) fn set_mac(name: &str, mac: [u8; 6]) {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    ip(&format!("link set {name} address {mac}")).unwrap();
}

/// Deletes an interface, and with it the other end of its cable.
pub(crate) fn delete(name: &str) {
    ip(&format!("link delete {name}")).unwrap();
}

/// Runs `ip`, of iproute2, in the namespace of the calling thread.
fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
