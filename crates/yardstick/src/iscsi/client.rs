//! What the bare iSCSI client is told, and the sessions that it makes of it.
//!
//! Each of a load's connections is a session of its own, with a part of every unit to itself. Idle
//! ones have logged in and send a NOP-Out now and then; stuck ones ask for data that they never
//! receive. How the load is carried out is in `load.rs`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::fd::AsFd;
use serde_json::Value;

use super::landing::Handling;
use super::pdu::{self, at, flag, opcode};
use super::queue::Queue;
use super::scsi::operation;
use super::session::{Capacity, Peer, Session};
use crate::bytes::put;
use crate::load::{self, Idle, Protocol, Shape, Work};

/// Size of a stuck session's reads: far beyond what socket buffers take in.
const STUCK_READ: u64 = 128 * 1024;
const STUCK_DEPTH: u32 = 128;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) peer: Peer,
    #[command(flatten)]
    handling: Handling,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Between two NOP-Outs of an idle session, in milliseconds; 0 sends none.
    #[arg(long, default_value_t = 5000)]
    ping_ms: u64,
}

/// Connects, measures one window, and returns what it saw.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let mut options = options.clone();
    options.peer.take_disk()?;
    load::run(&options, &options.shape)
}

/// A session that asked for more than it will ever take.
pub(crate) struct Stuck {
    _session: Session,
}

impl Options {
    /// Logs in and asks for the capacity that all units have, at least.
    fn session(&self, name: &str, number: u16) -> Result<(Session, Capacity)> {
        let mut session = Session::login(&self.peer, name, number)?;
        let mut least: Option<Capacity> = None;
        for lun in &self.peer.lun {
            let Capacity { blocks, block } = session.capacity(*lun)?;
            let before = least.unwrap_or(Capacity { blocks, block });
            ensure!(
                block > 0 && block == before.block,
                "unit {lun} has blocks of {block} bytes, another of {}",
                before.block
            );
            least = Some(Capacity { blocks: blocks.min(before.blocks), block });
        }
        let least = least.context("no unit is named")?;
        Ok((session, least))
    }
}

impl Protocol for Options {
    type Queue = Queue;
    type Stuck = Stuck;

    fn queues(&self, shape: &Shape) -> Result<Vec<Queue>> {
        let sessions = (0..shape.connections)
            .map(|number| self.session("", number))
            .collect::<Result<Vec<_>>>()?;
        let Some((_, capacity)) = sessions.first() else { return Ok(Vec::new()) };
        let works =
            Work::share(shape, self.peer.lun.len() as u64, capacity.blocks, capacity.block)?;
        let queue = |((session, capacity), work)| {
            let handling = (shape.buffer, self.handling);
            Queue::new(session, &self.peer.lun, capacity, work, handling)
        };
        sessions.into_iter().zip(works).map(queue).collect()
    }

    fn idle(&self, count: usize) -> Result<Idle> {
        let sessions = (0..count)
            .map(|number| Session::login(&self.peer, "-idle", number as u16))
            .collect::<Result<Vec<_>>>()?;
        Ok(Idle::new(sessions, Vec::new(), Duration::from_millis(self.ping_ms)))
    }

    fn stuck(&self, number: usize) -> Result<Stuck> {
        let mut plain = self.clone();
        (plain.peer.hdgst, plain.peer.ddgst) = (false, false);
        let (session, capacity) = plain.session("-stuck", number as u16)?;
        socket2::SockRef::from(&session.socket).set_recv_buffer_size(64 * 1024)?;
        let mut head = pdu::head(opcode::SCSI_COMMAND, flag::FINAL | flag::READ | flag::SIMPLE, 0);
        put(&mut head, at::LUN, &pdu::lun(self.peer.lun[0]));
        pdu::put_u32(&mut head, at::EDTL, STUCK_READ as u32);
        pdu::put_u32(&mut head, at::EXP_STAT_SN, session.exp_stat_sn);
        head[at::CDB] = operation::READ_10;
        put(&mut head, at::CDB + 7, &((STUCK_READ / capacity.block) as u16).to_be_bytes());
        let window = session.max_cmd_sn.wrapping_sub(session.cmd_sn).wrapping_add(1);
        let mut bytes = Vec::new();
        for tag in 0..STUCK_DEPTH.min(window) {
            pdu::put_u32(&mut head, at::ITT, tag);
            pdu::put_u32(&mut head, at::CMD_SN, session.cmd_sn.wrapping_add(tag));
            bytes.extend_from_slice(&head);
        }
        rustix::io::write(session.socket.as_fd(), &bytes)?;
        Ok(Stuck { _session: session })
    }
}
