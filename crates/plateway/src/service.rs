//! What a service manager is told: that the server is ready, reads its configuration again, stops;
//! and, where it asks for that, that every shard still turns.
//!
//! systemd (or who speaks its protocol) names a socket in `NOTIFY_SOCKET`; without one nothing is
//! said and nothing runs. A thread of its own says it, so that a manager that does not read holds
//! up no host and no administrator. Where `WATCHDOG_USEC` is set, a thread of its own wakes the shards four
//! times in that time and says so each time that all of them have turned since. It asks the control
//! thread for nothing and no disk for anything, so that an `apply` or a disk that hangs never looks
//! like a server that does. Units: the environment's are microseconds. Errors: a manager that
//! cannot be reached is told in the log, once, and served without. Spec: sd_notify(3),
//! systemd.service(5).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use reactor::Pulse;
use sd_notify::NotifyState;
use shard::Mail;

use crate::log::Event;

/// How often the shards are looked at within the time of the watchdog: one look may come late, or
/// find a shard in a long turn.
const LOOKS: u32 = 4;

/// How long the end waits for a manager to take what it is told last.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How much longer a manager waits for what takes long, in microseconds: it is said every few
/// seconds.
const LONGER_US: u32 = 30_000_000;

type Telling = Box<dyn FnOnce() + Send>;

/// What takes long goes on: from now the service manager waits at least [`LONGER_US`] for it. Not
/// said as long as the manager has not read what was said before.
pub(crate) fn takes_longer() {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if std::env::var_os("NOTIFY_SOCKET").is_none() || IS_TOLD.swap(true, Relaxed) {
        return;
    }
    let tell = || {
        let _ = sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(LONGER_US)]);
        IS_TOLD.store(false, Relaxed);
    };
    // Without a thread the manager's own time counts.
    let _ = std::thread::Builder::new().name("notify".to_owned()).spawn(tell);
}

/// The way to the service manager, if there is one.
pub(crate) struct Service {
    lane: Option<Lane>,
    /// Dropped, it ends the thread of the watchdog.
    watchdog: Option<Sender<()>>,
}

impl Service {
    /// What is configured is served; `status` says it in a line.
    pub(crate) fn ready(pulse: Pulse<Mail>, status: String) -> Service {
        let service = Service { lane: Lane::start(), watchdog: None };
        service.tell(move || {
            let states = [NotifyState::Ready, NotifyState::Status(&status)];
            if let Err(error) = sd_notify::notify(&states) {
                let words =
                    format!("the service manager cannot be told that the server is ready: {error}");
                Event::warn(words).tell();
            }
        });
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        Service { watchdog: limit.and_then(|limit| watch(pulse, limit / LOOKS)), ..service }
    }

    /// The configuration is read again; until [`reloaded`](Self::reloaded).
    pub(crate) fn reloading(&self) {
        let Ok(now) = NotifyState::monotonic_usec_now() else { return };
        self.tell(move || drop(sd_notify::notify(&[NotifyState::Reloading, now])));
    }

    /// What was read is served, or was refused and what was there goes on.
    pub(crate) fn reloaded(&self, status: String) {
        self.tell(move || {
            let states = [NotifyState::Ready, NotifyState::Status(&status)];
            drop(sd_notify::notify(&states));
        });
    }

    /// The server drains and ends: from now on the manager's time for a stop counts.
    pub(crate) fn stopping(self) {
        self.tell(|| {
            let states = [NotifyState::Stopping, NotifyState::Status("stopping")];
            drop(sd_notify::notify(&states));
        });
        drop(self.watchdog);
        if let Some(Lane { told, ended }) = self.lane {
            drop(told);
            let _ = ended.recv_timeout(LAST_WORDS);
        }
    }

    fn tell(&self, tell: impl FnOnce() + Send + 'static) {
        if let Some(lane) = &self.lane {
            // Its thread is there as long as we are.
            let _ = lane.told.send(Box::new(tell));
        }
    }
}

/// A thread that tells one thing after the other: a manager that reads nothing holds it alone.
struct Lane {
    told: Sender<Telling>,
    /// Ends when all was told.
    ended: Receiver<()>,
}

impl Lane {
    /// None where there is no manager.
    fn start() -> Option<Lane> {
        std::env::var_os("NOTIFY_SOCKET")?;
        let (told, coming) = mpsc::channel::<Telling>();
        let (alive, ended) = mpsc::channel();
        let telling = move || {
            let _alive: Sender<()> = alive;
            coming.into_iter().for_each(|tell| tell());
        };
        match std::thread::Builder::new().name("notify".to_owned()).spawn(telling) {
            Ok(_) => Some(Lane { told, ended }),
            Err(error) => {
                let words = format!("no thread to tell the service manager anything: {error}");
                Event::error(words).tell();
                None
            }
        }
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
