//! What a service manager is told: that the server is ready, reads its configuration again, stops;
//! and, where it asks for that, that every shard still turns.
//!
//! systemd (or who speaks its protocol) names a socket in `NOTIFY_SOCKET`; without one nothing is
//! said and nothing runs. Where `WATCHDOG_USEC` is set, a thread of its own wakes the shards four
//! times in that time and says so each time that all of them have turned since. It asks the control
//! thread for nothing and no disk for anything, so that an `apply` or a disk that hangs never looks
//! like a server that does. Units: the environment's are microseconds. Errors: a manager that
//! cannot be reached is told in the log, once, and served without. Spec: sd_notify(3),
//! systemd.service(5).

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use reactor::Pulse;
use sd_notify::NotifyState;
use shard::Mail;

use crate::log::Event;

/// How often the shards are looked at within the time of the watchdog: one look may come late, or
/// find a shard in a long turn.
const LOOKS: u32 = 4;

/// The way to the service manager, if there is one.
pub(crate) struct Service {
    /// Dropped, it ends the thread of the watchdog.
    watchdog: Option<Sender<()>>,
}

impl Service {
    /// What is configured is served; `status` says it in a line.
    pub(crate) fn ready(pulse: Pulse<Mail>, status: &str) -> Service {
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]) {
            let words =
                format!("the service manager cannot be told that the server is ready: {error}");
            Event::warn(words).tell();
        }
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        Service { watchdog: limit.and_then(|limit| watch(pulse, limit / LOOKS)) }
    }

    /// The configuration is read again; until [`reloaded`](Self::reloaded).
    pub(crate) fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now();
        let _ = now.map(|now| sd_notify::notify(&[NotifyState::Reloading, now]));
    }

    /// What was read is served, or was refused and what was there goes on.
    pub(crate) fn reloaded(&self, status: &str) {
        let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The server drains and ends: from now on the manager's time for a stop counts.
    pub(crate) fn stopping(self) {
        drop(self.watchdog);
        let _ = sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }
}

/// Looks at the shards so often, in a thread that ends with what is returned.
fn watch(pulse: Pulse<Mail>, pause: Duration) -> Option<Sender<()>> {
    let (alive, ended) = mpsc::channel();
    let watching = move || {
        let mut before = pulse.turns();
        pulse.nudge();
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let turns = pulse.turns();
            if have_turned(&before, &turns) {
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
                before = turns;
                pulse.nudge();
            }
        }
    };
    match std::thread::Builder::new().name("watchdog".to_owned()).spawn(watching) {
        Ok(_) => Some(alive),
        Err(error) => {
            let words =
                format!("no thread for the watchdog, so the manager will end this: {error}");
            Event::error(words).tell();
            None
        }
    }
}

/// Whether each shard took a turn between two looks.
fn have_turned(before: &[u64], now: &[u64]) -> bool {
    before.iter().zip(now).all(|(before, now)| before != now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_that_does_not_turn_is_enough() {
        assert!(have_turned(&[1, 7], &[2, 9]));
        assert!(!have_turned(&[1, 7], &[2, 7]));
    }
}
