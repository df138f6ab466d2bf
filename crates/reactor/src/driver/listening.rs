//! Listening: shard 0 accepts for all and deals connections out, one shard after the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use contract::{Endpoint, ListenerId, Machine};

use super::{Alarm, Driver};
use crate::accept::{
    ACCEPT_RETRY, Admitted, Arrival, ListenOptions, Listener, Round, accept_round,
};
use crate::engine::{Engine, Key, Kind, Op};
use crate::mailbox::Delivery;
use crate::sockets;
use crate::stats::add;

/// The listeners of shard 0; other shards have none.
#[derive(Default)]
pub(super) struct Listening {
    /// By the number that names their operation.
    listeners: BTreeMap<u32, Watched>,
    next_number: u32,
    next_shard: usize,
    /// An alarm for the next try is set.
    retries: bool,
}

struct Watched {
    listener: Listener,
    state: State,
}

enum State {
    /// A watch is out.
    Watching,
    /// Descriptors have run out; it waits for one.
    Paused,
    /// It goes when its watch has ended.
    Leaving(Sender<()>),
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Begins to accept.
    pub(super) fn listen(&mut self, listener: Listener) {
        let number = self.listening.next_number;
        // A key has 24 bits for it; 16 million listeners later they begin anew.
        self.listening.next_number = (number + 1) & 0x00ff_ffff;
        let watched = Watched { listener, state: State::Paused };
        self.listening.listeners.insert(number, watched);
        self.watch_listener(number);
    }

    fn watch_listener(&mut self, number: u32) {
        let watched = self.listening.listeners.get_mut(&number).expect("it is watched");
        watched.state = State::Watching;
        let op = Op::Acceptable(watched.listener.fd.as_raw_fd());
        // SAFETY: a watch points at no memory.
        unsafe { self.engine.start(Key::new(Kind::Listener, number, 0), op) };
    }

    /// Accepts no more there, and says so once the socket is closed.
    pub(super) fn unlisten(&mut self, id: ListenerId, told: Sender<()>) {
        let found = self.listening.listeners.iter().find(|(_, w)| w.listener.id == id);
        let Some((&number, _)) = found else {
            let _ = told.send(());
            return;
        };
        let watched = self.listening.listeners.get_mut(&number).expect("it was just found");
        match watched.state {
            State::Watching => {
                watched.state = State::Leaving(told);
                self.engine.cancel(Key::new(Kind::Listener, number, 0));
            }
            State::Paused | State::Leaving(_) => {
                self.listening.listeners.remove(&number);
                let _ = told.send(());
            }
        }
    }

    /// Grants connections of a listener something else: those that come, and as to spinning those
    /// that are there.
    pub(super) fn change_listener(&mut self, id: ListenerId, options: ListenOptions) {
        let mut listeners = self.listening.listeners.values_mut();
        let Some(watched) = listeners.find(|watched| watched.listener.id == id) else { return };
        watched.listener.options = options;
        let spin = options.spin();
        for shard in 0..self.outboxes.len() {
            if shard != self.shard.index() {
                self.outboxes[shard].push(Delivery::Spin(id, spin));
            }
        }
        self.spin_for(id, spin);
    }

    /// The connections of a listener that live here spin so long from now on.
    pub(super) fn spin_for(&mut self, id: ListenerId, spin: Duration) {
        let connections = self.connections.iter_mut().map(|(_, connection)| connection);
        let is_of = |admitted: &Admitted| admitted.listener() == id;
        for connection in connections.filter(|one| one.admitted.as_ref().is_some_and(is_of)) {
            connection.spin = spin;
        }
    }

    /// A listener's watch has ended.
    pub(super) fn listener_ended(&mut self, key: Key, result: i32) {
        let number = key.slot();
        let Some(watched) = self.listening.listeners.get_mut(&number) else { return };
        if let State::Leaving(_) = watched.state {
            let watched = self.listening.listeners.remove(&number).expect("it was just found");
            if let State::Leaving(told) = watched.state {
                drop(watched.listener);
                let _ = told.send(());
            }
        } else if result < 0 {
            // Watching itself failed: as if descriptors had run out, lest it spins.
            self.pause_accepting(number);
        } else {
            self.accept(number);
        }
    }

    fn accept(&mut self, number: u32) {
        let watched = self.listening.listeners.get(&number).expect("it accepts");
        let fd = watched.listener.fd.as_raw_fd();
        let mut arrived: Vec<(OwnedFd, SocketAddr)> = Vec::new();
        let round = accept_round(|| sockets::accept(fd), |fd, peer| arrived.push((fd, peer)));
        for (fd, peer) in arrived {
            self.admit(number, fd, peer);
        }
        match round {
            Round::Watch => self.watch_listener(number),
            Round::Pause => self.pause_accepting(number),
        }
    }

    fn admit(&mut self, number: u32, fd: OwnedFd, peer: SocketAddr) {
        let listener = &self.listening.listeners.get(&number).expect("it accepts").listener;
        let options = listener.options;
        let admission = &self.shared.admission;
        let admitted = admission.admit(peer.ip(), listener.id, options.max_connections);
        let Some(admitted) = admitted else {
            add(&self.counters().refused, 1);
            return;
        };
        // A connection that is broken already has no address; nothing is lost with it.
        let Ok(local) = sockets::prepare(&fd) else { return };
        let endpoint = Endpoint { listener: listener.id, peer, local };
        let arrival = Arrival { fd, endpoint, spin: options.spin(), admitted };
        let shard = self.listening.next_shard % self.shared.inboxes.len();
        self.listening.next_shard = shard + 1;
        if shard == self.shard.index() {
            self.arrive(arrival);
        } else {
            self.outboxes[shard].push(Delivery::Arrival(arrival));
        }
    }

    fn pause_accepting(&mut self, number: u32) {
        let watched = self.listening.listeners.get_mut(&number).expect("it accepts");
        watched.state = State::Paused;
        add(&self.counters().accept_pauses, 1);
        self.shared.admission.wait();
        if !self.listening.retries {
            self.listening.retries = true;
            self.set_alarm(ACCEPT_RETRY, Alarm::Accept);
        }
    }

    /// The moment to try again has come.
    pub(super) fn accept_retry(&mut self) {
        self.listening.retries = false;
        self.accept_again();
    }

    /// A descriptor may have become free.
    pub(super) fn accept_again(&mut self) {
        let paused: Vec<u32> = self
            .listening
            .listeners
            .iter()
            .filter(|(_, watched)| matches!(watched.state, State::Paused))
            .map(|(number, _)| *number)
            .collect();
        for number in paused {
            self.accept(number);
        }
    }
}
