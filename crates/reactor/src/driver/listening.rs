//! Listening: shard 0 accepts for all and deals connections out, one shard after the other.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::Sender;

use block::table::{Slot, Table};
use contract::{Endpoint, ListenerId, Machine};

use super::{Alarm, Driver};
use crate::accept::{ACCEPT_RETRY, Arrival, ListenOptions, Listener, Round, accept_round};
use crate::engine::{Engine, Kind, Op};
use crate::mailbox::Delivery;
use crate::sockets;
use crate::stats::add;

/// The listeners of shard 0; other shards have none.
#[derive(Default)]
pub(super) struct Listening {
    listeners: Table<Watched>,
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

impl Listening {
    fn find(&mut self, id: ListenerId) -> Option<(Slot, &mut Watched)> {
        self.listeners.iter_mut().find(|(_, watched)| watched.listener.id == id)
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Begins to accept.
    pub(super) fn listen(&mut self, listener: Listener) {
        let watched = Watched { listener, state: State::Paused };
        let slot = self.listening.listeners.insert(watched);
        self.watch_listener(slot);
    }

    fn watch_listener(&mut self, slot: Slot) {
        let watched = self.listening.listeners.get_mut(slot).expect("it is watched");
        watched.state = State::Watching;
        let op = Op::Acceptable(watched.listener.fd.as_raw_fd());
        // SAFETY: a watch points at no memory.
        unsafe { self.engine.start(Self::key(Kind::Listener, slot), op) };
    }

    /// Accepts no more there, and says so once the socket is closed.
    pub(super) fn unlisten(&mut self, id: ListenerId, told: Sender<()>) {
        let Some((slot, watched)) = self.listening.find(id) else {
            let _ = told.send(());
            return;
        };
        if let State::Watching = watched.state {
            watched.state = State::Leaving(told);
            self.engine.cancel(Self::key(Kind::Listener, slot));
        } else {
            self.listening.listeners.remove(slot);
            let _ = told.send(());
        }
    }

    /// Grants connections of a listener something else: those that come, and as to polling those
    /// that are there.
    pub(super) fn change_listener(&mut self, id: ListenerId, options: ListenOptions) {
        let Some((_, watched)) = self.listening.find(id) else { return };
        watched.listener.options = options;
        let poll = options.poll;
        for shard in 0..self.outboxes.len() {
            if shard != self.shard.index() {
                self.outboxes[shard].push(Delivery::Poll(id, poll));
            }
        }
        self.polls.change_listener(id, poll);
    }

    /// A listener's watch has ended.
    pub(super) fn listener_ended(&mut self, slot: Slot, result: i32) {
        let Some(watched) = self.listening.listeners.get(slot) else { return };
        if let State::Leaving(told) = &watched.state {
            let told = told.clone();
            self.listening.listeners.remove(slot);
            let _ = told.send(());
        } else if result < 0 {
            // Watching itself failed: as if descriptors had run out, lest it spins.
            self.pause_accepting(slot);
        } else {
            self.accept(slot);
        }
    }

    fn accept(&mut self, slot: Slot) {
        let watched = self.listening.listeners.get(slot).expect("it accepts");
        let fd = watched.listener.fd.as_raw_fd();
        let mut arrived: Vec<(OwnedFd, SocketAddr)> = Vec::new();
        let round = accept_round(|| sockets::accept(fd), |fd, peer| arrived.push((fd, peer)));
        for (fd, peer) in arrived {
            self.admit(slot, fd, peer);
        }
        match round {
            Round::Watch => self.watch_listener(slot),
            Round::Pause => self.pause_accepting(slot),
        }
    }

    fn admit(&mut self, slot: Slot, fd: OwnedFd, peer: SocketAddr) {
        let listener = &self.listening.listeners.get(slot).expect("it accepts").listener;
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
        let arrival = Arrival { fd, endpoint, poll: options.poll, admitted };
        let shard = self.listening.next_shard % self.shared.inboxes.len();
        self.listening.next_shard = shard + 1;
        if shard == self.shard.index() {
            self.arrive(arrival);
        } else {
            self.outboxes[shard].push(Delivery::Arrival(arrival));
        }
    }

    fn pause_accepting(&mut self, slot: Slot) {
        let watched = self.listening.listeners.get_mut(slot).expect("it accepts");
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
        let listeners = self.listening.listeners.iter();
        let is_paused = |watched: &Watched| matches!(watched.state, State::Paused);
        let paused: Vec<Slot> =
            listeners.filter_map(|(slot, watched)| is_paused(watched).then_some(slot)).collect();
        for slot in paused {
            self.accept(slot);
        }
    }
}
