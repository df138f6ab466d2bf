//! Which engine runs: io_uring where the kernel has what the driver needs and lets us use it, else
//! epoll.
//!
//! The probe builds a ring as a shard would. Default container profiles refuse the system call;
//! kernels before 6.1 lack DEFER_TASKRUN. The choice comes with one line that says what was chosen
//! and why.

use std::fmt;
use std::io;

use io_uring::{IoUring, Probe, opcode};

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The better one that works.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// One io_uring a shard.
    Uring,
    /// One epoll instance a shard, and disk threads.
    Epoll,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineKind::Uring => "io_uring",
            EngineKind::Epoll => "epoll",
        })
    }
}

/// What was chosen, and the line that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What runs.
    pub kind: EngineKind,
    /// One line for the log, such as
    /// `driver: epoll (io_uring is refused: Operation not permitted)`.
    pub reason: String,
}

/// Chooses an engine; an error only when io_uring was demanded and cannot be had.
pub(crate) fn choose(preference: Preference) -> io::Result<Choice> {
    choose_by(preference, probe)
}

fn choose_by(
    preference: Preference,
    probe: impl FnOnce() -> Result<(), String>,
) -> io::Result<Choice> {
    let (kind, reason) = match preference {
        Preference::Epoll => (EngineKind::Epoll, "as asked for".to_owned()),
        Preference::Auto => match probe() {
            Ok(()) => (EngineKind::Uring, "single issuer, deferred task work".to_owned()),
            Err(why) => (EngineKind::Epoll, why),
        },
        Preference::Uring => match probe() {
            Ok(()) => (EngineKind::Uring, "as asked for".to_owned()),
            Err(why) => {
                let hint = "use --driver auto or --driver epoll";
                return Err(io::Error::other(format!("driver io_uring: {why}; {hint}")));
            }
        },
    };
    Ok(Choice { kind, reason: format!("driver: {kind} ({reason})") })
}

/// Whether io_uring can be used here, or why not.
pub fn probe() -> Result<(), String> {
    let ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(8)
        .map_err(explain)?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err("this kernel's io_uring has no timed waits".to_owned());
    }
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known).map_err(explain)?;
    let needed = [
        ("POLL_ADD", opcode::PollAdd::CODE),
        ("RECV", opcode::Recv::CODE),
        ("RECVMSG", opcode::RecvMsg::CODE),
        ("SENDMSG", opcode::SendMsg::CODE),
        ("CONNECT", opcode::Connect::CODE),
        ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
        ("READV", opcode::Readv::CODE),
        ("WRITEV", opcode::Writev::CODE),
        ("FSYNC", opcode::Fsync::CODE),
        ("FALLOCATE", opcode::Fallocate::CODE),
    ];
    match needed.iter().find(|(_, code)| !known.is_supported(*code)) {
        Some((name, _)) => Err(format!("this kernel's io_uring lacks {name}")),
        None => Ok(()),
    }
}

fn explain(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => format!("io_uring is refused: {error}"),
        Some(libc::EINVAL) => {
            "io_uring without DEFER_TASKRUN: Linux 6.1 or later is needed".to_owned()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_means_epoll_and_says_why() {
        let refused = || Err(explain(io::Error::from_raw_os_error(libc::EPERM)));
        let choice = choose_by(Preference::Auto, refused).expect("epoll always works");
        assert_eq!(choice.kind, EngineKind::Epoll);
        assert!(choice.reason.starts_with("driver: epoll (io_uring is refused"), "{choice:?}");
    }

    #[test]
    fn a_demanded_ring_that_is_not_there_is_an_error() {
        let old = || Err(explain(io::Error::from_raw_os_error(libc::EINVAL)));
        let error = choose_by(Preference::Uring, old).expect_err("must not fall back");
        assert!(error.to_string().contains("Linux 6.1"), "{error}");
    }

    #[test]
    fn epoll_is_taken_without_a_probe() {
        let choice = choose_by(Preference::Epoll, || unreachable!()).expect("epoll");
        assert_eq!(choice.reason, "driver: epoll (as asked for)");
    }
}
