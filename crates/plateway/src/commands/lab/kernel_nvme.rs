//! A disk by the kernel's own initiator of NVMe/TCP, in place of ours: a block device of this machine, as long as the value is
//! there.
//!
//! ```text
//!   nvme connect (in the near end's network) -> controller -> namespace 1 = /dev/nvme0n1 -> client, or a file system
//! ```
//! The kernel opens its connections in the network of whoever asks for them, so this one goes over any path that the
//! lab lays; its initiators of AoE and iSCSI are in the machine's own network alone. Controllers of a lab are known by the host
//! name that they have, which has its process's number: what a lab left that was killed, the next one removes. Errors: a
//! kernel without it, what `nvme` says, a namespace that does not come, and a controller that does not go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::plan::{Digests, Experiment, Means, Serve};
use testbed::{needs, process};

use super::mounted::{must_succeed, read_ahead};
use super::stripe::Reached;
use super::trial::Lab;
use super::way::Way;
use super::{NVME_PORT, face, far, list};

/// What connects.
const NVME: &str = "nvme";
/// Where the kernel's controllers are, and how the names of our hosts begin.
const CONTROLLERS: &str = "/sys/class/nvme";
const HOST: &str = "nqn.2026-11.net.plateway:lab-";
/// How long it may take to connect, and to be gone.
const CONNECT_MAX: Duration = Duration::from_secs(60);
/// How long a connection may be lost, and how often it is looked whether it is.
const LOST_MAX_S: &str = "10";
const KEEP_ALIVE_S: &str = "30";

/// One that is connected.
pub(super) struct Kernel {
    controller: PathBuf,
    device: PathBuf,
}

/// What systems that the kernel is to reach need and is not here, a line each.
pub(super) fn missing(experiment: &Experiment) -> Vec<String> {
    let lacking = |what: &str, module: &str| {
        format!("expected a kernel with {what} (module {module}), seen one without")
    };
    let by_nvme = || {
        let lacks = || (!is_there()).then(|| lacking("an initiator of NVMe/TCP", "nvme-tcp"));
        needs(NVME).err().map(|why| why.to_string()).or_else(lacks)
    };
    let by_nfs = || (!face::has_kernel_client()).then(|| lacking("a client of NFS", "nfsv3"));
    let systems = experiment.systems.iter().filter(|system| system.kernel);
    let missing = systems.filter_map(|system| {
        let why = if matches!(system.means, Means::Nfs(_)) { by_nfs() } else { by_nvme() }?;
        Some(format!("system {}: kernel: {why}", system.name))
    });
    missing.collect()
}

/// Whether the kernel has it, which may load it for that.
fn is_there() -> bool {
    let _ = Command::new("modprobe").args(["--quiet", "nvme-tcp"]).output();
    Path::new("/sys/module/nvme_tcp").is_dir() && Path::new("/dev/nvme-fabrics").exists()
}

impl Kernel {
    /// Connects to what a system serves at the far end of a way, and waits until its namespace is a device.
    pub(super) fn connect(lab: &Lab<'_>, serve: &Serve, way: &Way<'_>) -> miette::Result<Kernel> {
        is_ours_alone()?;
        let host = format!("{HOST}{}", std::process::id());
        // An earlier trial's that failed.
        clear_of(|name| name == host)?;
        let connected = Self::try_to_connect(lab, serve, way, &host);
        if connected.is_err() {
            // Also where it was interrupted, or took too long: its network goes next.
            let _ = clear_of(|name| name == host);
        }
        connected
    }

    fn try_to_connect(
        lab: &Lab<'_>,
        serve: &Serve,
        way: &Way<'_>,
        host: &str,
    ) -> miette::Result<Kernel> {
        let cpus = list(lab.client_cpus(Some(way)));
        let mut command = process::command(way.near(), &cpus, Path::new(NVME));
        command.args(["connect", "--transport", "tcp", "--traddr", &way.far_address().to_string()]);
        command.args(["--trsvcid", &NVME_PORT.to_string(), "--nqn", far::SUBSYSTEM]);
        command.args(["--hostnqn", host]);
        // Of the process, as the name is: of two hosts of one name a kernel takes one alone.
        let id = format!("706c6174-6577-4179-8000-{:012x}", std::process::id());
        command.args(["--hostid", &id]);
        command.args(["--ctrl-loss-tmo", LOST_MAX_S, "--keep-alive-tmo", KEEP_ALIVE_S]);
        let digests: &[&str] = match serve.digests {
            Digests::None => &[],
            Digests::Header => &["--hdr-digest"],
            Digests::Data => &["--data-digest"],
            Digests::Both => &["--hdr-digest", "--data-digest"],
        };
        command.args(digests);
        must_succeed(command, CONNECT_MAX, lab.interrupt)?;
        let end = Instant::now() + CONNECT_MAX;
        loop {
            let own = controllers().into_iter().find(|(_, name)| *name == host);
            if let Some((controller, _)) = own
                && let Some(device) = device_of(&controller)
            {
                // It goes with the value, also where this fails.
                let kernel = Kernel { controller, device };
                read_ahead(&kernel.device)?;
                return Ok(kernel);
            }
            if Instant::now() > end {
                return Err(miette::miette!(
                    "the kernel: expected a block device of namespace 1 of {}, seen none for {} s",
                    far::SUBSYSTEM,
                    CONNECT_MAX.as_secs()
                ));
            }
            far::pause(lab.interrupt)?;
        }
    }

    /// The block device.
    pub(super) fn device(&self) -> &Path {
        &self.device
    }

    /// The same, as a client is told of it.
    pub(super) fn reached(&self) -> Reached {
        Reached::by(self.device.display().to_string())
    }

    /// Disconnects; what was written was flushed before.
    pub(super) fn disconnect(self) -> miette::Result<()> {
        end(&self.controller)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = end(&self.controller);
    }
}

/// Removes what labs left that are no more, before the networks of their connections go.
pub(super) fn remove_leftovers() {
    // What does not go now is told by whoever connects.
    let _ = clear_of(|host| lab_of(host).is_some_and(|pid| !is_alive(pid)));
}

/// An error where another lab has a disk by the kernel: both serve by one name.
fn is_ours_alone() -> miette::Result<()> {
    let own = std::process::id().to_string();
    let hosts: Vec<String> = controllers().into_iter().map(|(_, host)| host).collect();
    let mut labs = hosts.iter().filter_map(|host| lab_of(host));
    labs.find(|pid| *pid != own && is_alive(pid)).map_or(Ok(()), |pid| {
        Err(miette::miette!(
            "the kernel: expected to be the only lab that it connects for, seen another one, process {pid}"
        ))
    })
}

/// The number of the lab whose host has this name.
fn lab_of(host: &str) -> Option<&str> {
    host.strip_prefix(HOST)
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// Ends controllers by their hosts' names.
fn clear_of(mut is_one: impl FnMut(&str) -> bool) -> miette::Result<()> {
    let mut all = controllers().into_iter().filter(|(_, host)| is_one(host));
    all.try_for_each(|(controller, _)| end(&controller))
}

/// Each controller with its host's name.
fn controllers() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(CONTROLLERS).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let host = fs::read_to_string(entry.path().join("hostnqn")).ok()?;
        Some((entry.path(), host.trim().to_owned()))
    });
    named.collect()
}

/// Has a controller go, and waits until it is gone; one that is not there is.
fn end(controller: &Path) -> miette::Result<()> {
    let told = |what: &dyn std::fmt::Display| {
        miette::miette!("the kernel: cannot remove {}: {what}", controller.display())
    };
    match fs::write(controller.join("delete_controller"), "1") {
        Err(error) if controller.exists() => return Err(told(&error)),
        _ => {}
    }
    let until = Instant::now() + CONNECT_MAX;
    while controller.exists() {
        if Instant::now() > until {
            return Err(told(&format!("it stays for {} s", CONNECT_MAX.as_secs())));
        }
        std::thread::sleep(far::AGAIN);
    }
    Ok(())
}

/// The block device of a controller's first namespace, once it is there.
fn device_of(controller: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(controller).ok()?.flatten();
    let mut names = entries.filter_map(|entry| node(entry.file_name().to_str()?));
    let device = Path::new("/dev").join(names.next()?);
    device.exists().then_some(device)
}

/// What the device of a namespace of a controller is called: where paths are put together, it is that of all of them, and
/// the controller's own is hidden.
fn node(name: &str) -> Option<String> {
    let numbers = name.strip_prefix("nvme")?;
    let (front, namespace) = numbers.split_once('n')?;
    let subsystem = front.split_once('c').map_or(front, |(subsystem, _)| subsystem);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(subsystem) && is_number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_s_device_is_that_of_all_its_paths() {
        for (entry, expected) in [
            ("nvme0n1", Some("nvme0n1")),
            ("nvme12c3n1", Some("nvme12n1")),
            ("nvme0", None),
            ("nvme0n1p1", None),
            ("hwmon3", None),
            ("ng0n1", None),
            ("nvmen", None),
        ] {
            assert_eq!(node(entry).as_deref(), expected, "{entry}");
        }
    }

    #[test]
    fn a_controller_that_is_not_there_is_gone() {
        assert!(end(Path::new("/nowhere/nvme7")).is_ok());
        assert!(device_of(Path::new("/nowhere/nvme7")).is_none());
    }
}
