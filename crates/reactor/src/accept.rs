//! Accepting: which connections are let in, and what happens when descriptors run out.
//!
//! In: what `accept` returned. Out: admitted connections, counts of refused ones, and whether to go
//! on, to wait for the next, or to pause. Bounds: connections of the process, of one peer address,
//! and of one listener. What is refused is closed at once. An [`Admitted`] is the place that a
//! connection holds and gives up when it is dropped, on whatever shard.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use contract::{Endpoint, ListenerId, Poll};

use crate::process::lock;

/// Connections taken from a listener in one turn.
pub(crate) const ACCEPTS_PER_TURN: u32 = 64;
/// When descriptors have run out and none of ours is given back, it is tried again after so long.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(500);

/// What a listener grants its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// How long a shard looks for more from its connections before it sleeps.
    pub poll: Poll,
    /// Connections that it may have at once.
    pub max_connections: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { poll: Poll::default(), max_connections: block::limits::CONNECTIONS_MAX }
    }
}

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) fd: OwnedFd,
    pub(crate) options: ListenOptions,
}

/// A connection on its way to its shard.
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    pub(crate) endpoint: Endpoint,
    pub(crate) poll: Poll,
    pub(crate) admitted: Admitted,
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of the whole process.
    pub total: u32,
    /// From one address.
    pub per_host: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            total: block::limits::CONNECTIONS_MAX,
            per_host: block::limits::CONNECTIONS_PER_HOST_MAX,
        }
    }
}

#[derive(Default)]
struct Counts {
    total: u32,
    hosts: HashMap<IpAddr, u32>,
    listeners: HashMap<ListenerId, u32>,
}

/// The places that connections hold.
pub(crate) struct Admission {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    waiting: AtomicBool,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Admission {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Admission> {
        Arc::new(Admission {
            limits,
            counts: Mutex::default(),
            waiting: AtomicBool::new(false),
            freed: OnceLock::new(),
        })
    }

    /// What to do, once, when a place is given up after [`wait`](Self::wait).
    pub(crate) fn when_freed(&self, act: impl Fn() + Send + Sync + 'static) {
        // Set once, by the runtime, before the first connection.
        let _ = self.freed.set(Box::new(act));
    }

    /// Asks to be told when the next connection is closed.
    pub(crate) fn wait(&self) {
        self.waiting.store(true, SeqCst);
    }

    /// A place for a connection that `peer` made to `listener`, or `None`.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        listener: ListenerId,
        listener_max: u32,
    ) -> Option<Admitted> {
        let host = peer.to_canonical();
        let mut counts = lock(&self.counts);
        let of_host = counts.hosts.get(&host).copied().unwrap_or(0);
        let of_listener = counts.listeners.get(&listener).copied().unwrap_or(0);
        if counts.total >= self.limits.total
            || of_host >= self.limits.per_host
            || of_listener >= listener_max
        {
            return None;
        }
        counts.total += 1;
        counts.hosts.insert(host, of_host + 1);
        counts.listeners.insert(listener, of_listener + 1);
        Some(Admitted { admission: self.clone(), host, listener })
    }
}

/// A connection's place.
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    host: IpAddr,
    listener: ListenerId,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = lock(&self.admission.counts);
        counts.total -= 1;
        decrement(&mut counts.hosts, self.host);
        decrement(&mut counts.listeners, self.listener);
        drop(counts);
        if self.admission.waiting.swap(false, SeqCst)
            && let Some(act) = self.admission.freed.get()
        {
            act();
        }
    }
}

/// Counts one less, and forgets who has none, so that strangers leave nothing behind.
fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// What a round of accepting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// None waits, or enough were taken for a turn: watch the listener.
    Watch,
    /// The system has no descriptor or memory left for one more: watching would only find the same
    /// one waiting.
    Pause,
}

/// Accepts until none waits, a turn's worth is taken, or nothing more can be had.
pub(crate) fn accept_round(
    mut accept: impl FnMut() -> io::Result<(OwnedFd, SocketAddr)>,
    mut arrived: impl FnMut(OwnedFd, SocketAddr),
) -> Round {
    for _ in 0..ACCEPTS_PER_TURN {
        match accept() {
            Ok((fd, peer)) => arrived(fd, peer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Round::Watch,
            Err(error) => match error.raw_os_error() {
                // The connection died in the queue (accept(2) lists these): the next one may be
                // well.
                Some(
                    libc::ECONNABORTED
                    | libc::EINTR
                    | libc::EPROTO
                    | libc::ENETDOWN
                    | libc::ENETUNREACH
                    | libc::EHOSTDOWN
                    | libc::EHOSTUNREACH
                    | libc::ENOPROTOOPT
                    | libc::EPERM,
                ) => {}
                _ => return Round::Pause,
            },
        }
    }
    Round::Watch
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn failing(errors: &[i32]) -> impl FnMut() -> io::Result<(OwnedFd, SocketAddr)> {
        let mut errors: Vec<i32> = errors.iter().rev().copied().collect();
        move || Err(io::Error::from_raw_os_error(errors.pop().expect("asked too often")))
    }

    #[test]
    fn places_are_bounded_in_all_per_host_and_per_listener() {
        let admission = Admission::new(ConnectionLimits { total: 4, per_host: 2 });
        let first = ListenerId(1);
        let a = admission.admit(host(1), first, 3).unwrap();
        let _b = admission.admit(host(1), first, 3).unwrap();
        assert!(admission.admit(host(1), first, 3).is_none(), "two of one host");
        let _c = admission.admit(host(2), first, 3).unwrap();
        assert!(admission.admit(host(3), first, 3).is_none(), "three of one listener");
        let _d = admission.admit(host(3), ListenerId(2), 3).unwrap();
        assert!(admission.admit(host(4), ListenerId(2), 3).is_none(), "four in all");
        drop(a);
        assert!(admission.admit(host(1), first, 3).is_some());
    }

    #[test]
    fn a_mapped_address_is_the_same_host() {
        let admission = Admission::new(ConnectionLimits { total: 9, per_host: 1 });
        let _a = admission.admit(host(1), ListenerId(1), 9).unwrap();
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(admission.admit(mapped, ListenerId(1), 9).is_none());
    }

    #[test]
    fn hosts_that_left_are_forgotten() {
        let admission = Admission::new(ConnectionLimits::default());
        drop(admission.admit(host(1), ListenerId(1), 9));
        let counts = admission.counts.lock().unwrap();
        assert!(counts.hosts.is_empty() && counts.listeners.is_empty() && counts.total == 0);
    }

    #[test]
    fn a_close_is_told_once_to_who_waits_for_it() {
        let admission = Admission::new(ConnectionLimits::default());
        let told = Arc::new(AtomicU32::new(0));
        let count = told.clone();
        admission.when_freed(move || {
            count.fetch_add(1, SeqCst);
        });
        drop(admission.admit(host(1), ListenerId(1), 9));
        assert_eq!(told.load(SeqCst), 0, "nobody waited");
        admission.wait();
        drop(admission.admit(host(1), ListenerId(1), 9));
        drop(admission.admit(host(1), ListenerId(1), 9));
        assert_eq!(told.load(SeqCst), 1);
    }

    #[test]
    fn without_descriptors_accepting_pauses() {
        for error in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            assert_eq!(accept_round(failing(&[error]), |_, _| {}), Round::Pause);
        }
    }

    #[test]
    fn a_connection_that_died_in_the_queue_does_not_stop_the_next() {
        let errors = [libc::ECONNABORTED, libc::EPROTO, libc::EAGAIN];
        assert_eq!(accept_round(failing(&errors), |_, _| {}), Round::Watch);
    }

    #[test]
    fn a_turn_takes_so_many_and_no_more() {
        let mut taken = 0;
        let accept = || {
            let fd = std::fs::File::open("/dev/null")?.into();
            Ok((fd, SocketAddr::new(host(1), 1)))
        };
        assert_eq!(accept_round(accept, |_, _| taken += 1), Round::Watch);
        assert_eq!(taken, ACCEPTS_PER_TURN);
    }
}
