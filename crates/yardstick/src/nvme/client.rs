//! What the bare NVMe/TCP client is told, and the connections that it makes of it.
//!
//! A load's connections are I/O queues of one controller. Idle ones are admin queues (each a
//! controller of its own), or with `--idle-queues` also I/O queues of each controller; keep alives
//! are sent at half the time-out. Stuck ones have a queue full of reads whose data are never
//! received. How the load is carried out is in `load.rs`.

use std::net::TcpStream;
use std::rc::Rc;

use anyhow::Result;
use clap::Args;
use rustix::fd::AsFd;
use serde_json::Value;

use super::pdu::{self, opcode};
use super::queue::Queue;
use super::session::{Peer, Session, Wire};
use crate::bytes::put;
use crate::load::{self, Idle, Protocol, Shape, Work};

/// Size of a stuck connection's reads: far beyond what socket buffers take in.
const STUCK_READ: usize = 128 * 1024;
const STUCK_DEPTH: u16 = 128;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    peer: Peer,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// I/O queues of each controller among the idle connections.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=128))]
    idle_queues: u16,
}

/// Connects, measures one window, and returns what it saw.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let mut options = options.clone();
    options.peer.take_disk()?;
    load::run(&options, &options.shape)
}

/// A queue that asked for more than it will ever take.
pub(crate) struct Stuck {
    _session: Session,
    _wire: Wire,
}

impl Protocol for Options {
    type Queue = Queue;
    type Stuck = Stuck;

    fn queues(&self, shape: &Shape) -> Result<Vec<Queue>> {
        let session = Rc::new(Session::connect(&self.peer, true, shape.connections)?);
        let works = Work::share(shape, 1, session.blocks, session.block)?;
        let queue = |(number, work)| {
            let wire = session.queue(number, shape.iodepth)?;
            Queue::new(&session, wire, work, shape.buffer)
        };
        (1..).zip(works).map(queue).collect()
    }

    fn idle(&self, count: usize) -> Result<Idle> {
        let mut sessions = Vec::new();
        let mut held: Vec<TcpStream> = Vec::new();
        while sessions.len() + held.len() < count {
            let mut peer = self.peer.clone();
            peer.hostnqn = format!("{}-idle-{}", peer.hostnqn, sessions.len());
            let left = count - sessions.len() - held.len() - 1;
            let queues = self.idle_queues.min(left.min(usize::from(u16::MAX)) as u16);
            let session = Session::connect(&peer, false, queues)?;
            for number in 1..=queues {
                held.push(session.queue(number, 1)?.socket);
            }
            sessions.push(session);
        }
        Ok(Idle::new(sessions, held, self.peer.keep_alive() / 2))
    }

    fn stuck(&self, number: usize) -> Result<Stuck> {
        let mut peer = self.peer.clone();
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
        Ok(Stuck { _session: session, _wire: wire })
    }
}
