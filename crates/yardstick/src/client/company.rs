//! Connections that do nothing but be there: idle ones with keep alive, and stuck ones.
//!
//! Idle: admin queues (each a controller of its own), or with `queues` per controller also I/O
//! queues; a helper thread sends their keep alives at half the time-out. Stuck: a queue full of
//! reads whose data are never received. Both live until dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fd::AsFd;

use super::session::{Peer, Session, Wire};
use crate::pdu::{self, opcode, put};

/// Size of a stuck connection's reads: far beyond what socket buffers take in.
const STUCK_READ: usize = 128 * 1024;
const STUCK_DEPTH: u16 = 128;

/// Idle connections and the thread that keeps them alive.
pub(super) struct Idle {
    stop: Arc<AtomicBool>,
    /// Keep alives that were answered.
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<usize>>,
    _queues: Vec<Wire>,
}

impl Idle {
    /// Connects `count` connections; every controller among them has `queues` I/O queues.
    pub(super) fn connect(peer: &Peer, count: usize, queues: u16) -> Result<Self> {
        let mut sessions = Vec::new();
        let mut wires = Vec::new();
        while sessions.len() + wires.len() < count {
            let mut peer = peer.clone();
            peer.hostnqn = format!("{}-idle-{}", peer.hostnqn, sessions.len());
            let left = count - sessions.len() - wires.len() - 1;
            let queues = queues.min(left.min(usize::from(u16::MAX)) as u16);
            let session = Session::connect(&peer, false, queues)?;
            for number in 1..=queues {
                wires.push(session.queue(number, 1)?);
            }
            sessions.push(session);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let (seen, count) = (Arc::clone(&stop), Arc::clone(&answered));
        let period = peer.keep_alive() / 2;
        let thread = std::thread::spawn(move || keep_alive(sessions, period, &seen, &count));
        Ok(Self { stop, answered, thread: Some(thread), _queues: wires })
    }

    /// Keep alives that were answered so far.
    pub(super) fn answered(&self) -> &AtomicU64 {
        &self.answered
    }

    /// Ends the thread; how many sessions had been lost.
    pub(super) fn finish(mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("taken only here");
        thread.thread().unpark();
        thread.join().unwrap_or(usize::MAX)
    }
}

/// Sends keep alives evenly over the period; returns how many sessions broke.
fn keep_alive(
    mut sessions: Vec<Session>,
    period: Duration,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> usize {
    let mut lost = 0;
    if period.is_zero() || sessions.is_empty() {
        while !stop.load(Ordering::Acquire) {
            std::thread::park();
        }
        return lost;
    }
    let step = period / sessions.len() as u32;
    let mut due = Instant::now();
    let mut at = 0;
    while !stop.load(Ordering::Acquire) && !sessions.is_empty() {
        due += step;
        while let Some(left) = due.checked_duration_since(Instant::now())
            && !stop.load(Ordering::Acquire)
        {
            std::thread::park_timeout(left);
        }
        at = (at + 1) % sessions.len();
        if sessions[at].keep_alive().is_err() {
            sessions.swap_remove(at);
            lost += 1;
            at = 0;
        } else {
            answered.fetch_add(1, Ordering::Release);
        }
    }
    lost
}

/// A queue that asked for more than it will ever take.
pub(super) struct Stuck {
    _session: Session,
    _wire: Wire,
}

impl Stuck {
    /// Connects, sends as many reads as the queue takes, and receives nothing.
    pub(super) fn connect(peer: &Peer, number: usize) -> Result<Self> {
        let mut peer = peer.clone();
        peer.hostnqn = format!("{}-stuck-{number}", peer.hostnqn);
        peer.hdgst = false;
        peer.ddgst = false;
        let session = Session::connect(&peer, true, 1)?;
        let wire = session.queue(1, STUCK_DEPTH)?;
        let socket = socket2::SockRef::from(&wire.socket);
        socket.set_recv_buffer_size(64 * 1024)?;
        let blocks = STUCK_READ as u64 / session.block;
        let mut entry = pdu::transfer(opcode::READ, peer.nsid, STUCK_READ as u32, blocks);
        let mut bytes = Vec::new();
        for cid in 0..STUCK_DEPTH {
            put(&mut entry, 2, &cid.to_le_bytes());
            bytes.extend_from_slice(&pdu::capsule_cmd(&entry, 0, false, false));
        }
        rustix::io::write(wire.socket.as_fd(), &bytes)?;
        Ok(Self { _session: session, _wire: wire })
    }
}
