//! What this machine and this user supply where the configuration is silent.
//!
//! The only place of the configuration that looks at the environment: CPUs of the process,
//! systemd's `STATE_DIRECTORY` and `RUNTIME_DIRECTORY`, the user's own directories. Everything else
//! takes a [`Defaults`] as a value, so that tests are the same on every machine.

use std::path::{Path, PathBuf};

/// Values for keys that are absent.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// The CPUs that this process may run on, ascending; never empty.
    pub(crate) cpus: Vec<u32>,
    /// `[server] control`.
    pub(crate) control: PathBuf,
    /// `[server] state`.
    pub(crate) state: PathBuf,
}

impl Defaults {
    /// Asks the kernel and the environment.
    pub(crate) fn of_this_machine() -> Self {
        let root = rustix::process::geteuid().is_root();
        let get = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let (control, state) = directories(root, get);
        Self { cpus: cpus(), control, state }
    }

    /// Where a server is asked: the user's own, or the system's where he has none.
    pub(crate) fn asked(&self) -> &Path {
        let system = Path::new(SYSTEM_CONTROL);
        if !self.control.exists() && system.exists() { system } else { &self.control }
    }
}

/// The socket of a server that the system runs; a group may be let in.
const SYSTEM_CONTROL: &str = "/run/plateway/control.sock";

/// The CPUs of our affinity mask: what containers and `taskset` leave us.
fn cpus() -> Vec<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    let cpus: Vec<u32> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// The control socket and the state directory: systemd's first, then the system's for root, then
/// the user's.
fn directories(root: bool, get: impl Fn(&str) -> Option<PathBuf>) -> (PathBuf, PathBuf) {
    // systemd separates several directories by colons; the first is ours.
    let first = |path: PathBuf| match path.to_str().and_then(|text| text.split_once(':')) {
        Some((first, _)) => PathBuf::from(first),
        None => path,
    };
    let user_state = || {
        let base =
            get("XDG_STATE_HOME").or_else(|| get("HOME").map(|home| home.join(".local/state")));
        base.unwrap_or_else(|| PathBuf::from("/var/lib")).join("plateway")
    };
    let system = |path: &str| root.then(|| PathBuf::from(path));
    let state = get("STATE_DIRECTORY")
        .map(first)
        .or_else(|| system("/var/lib/plateway"))
        .unwrap_or_else(user_state);
    let runtime = get("RUNTIME_DIRECTORY")
        .map(first)
        .or_else(|| system("/run/plateway"))
        .or_else(|| get("XDG_RUNTIME_DIR").map(|directory| directory.join("plateway")))
        .unwrap_or_else(|| state.clone());
    (runtime.join("control.sock"), state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(root: bool, environment: &[(&str, &str)]) -> (String, String) {
        let get = |name: &str| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        };
        let (control, state) = directories(root, get);
        (control.display().to_string(), state.display().to_string())
    }

    #[test]
    fn directories_come_from_systemd_then_root_then_the_user() {
        let pair = |control: &str, state: &str| (control.to_owned(), state.to_owned());
        let systemd = [
            ("STATE_DIRECTORY", "/var/lib/private/p:/x"),
            ("RUNTIME_DIRECTORY", "/run/p"),
            ("HOME", "/h"),
        ];
        assert_eq!(chosen(true, &systemd), pair("/run/p/control.sock", "/var/lib/private/p"));
        assert_eq!(
            chosen(true, &[("HOME", "/root")]),
            pair("/run/plateway/control.sock", "/var/lib/plateway")
        );
        let user = [("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(
            chosen(false, &user),
            pair("/run/user/7/plateway/control.sock", "/home/u/.local/state/plateway")
        );
        let bare = [("XDG_STATE_HOME", "/s")];
        assert_eq!(chosen(false, &bare), pair("/s/plateway/control.sock", "/s/plateway"));
    }

    #[test]
    fn there_is_always_a_cpu() {
        assert!(!cpus().is_empty());
    }
}
