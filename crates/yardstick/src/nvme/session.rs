//! Connecting to a controller: blocking, one command at a time, before anything is measured.
//!
//! In: address, names. Out: connected sockets and what the controller says of itself. A session
//! keeps its admin connection open; [`Session::keep_alive`] re-arms it. Every receive has a time
//! limit. Errors: the target refuses (with the status), disagrees about digests, or is silent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::pdu::{self, command, flag, kind, opcode};
use crate::bytes::{digest, put};
use crate::disk::Disk;
use crate::load::KeepAlive;

/// How long a target may take to answer a step of the set-up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who asks, for what, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Peer {
    /// Address of the target.
    #[arg(
        long,
        required_unless_present = "disk",
        default_value = "0.0.0.0:0",
        hide_default_value = true
    )]
    pub(crate) connect: SocketAddr,
    /// Subsystem, namespace and digests in one, in place of what says so by itself:
    /// nvme+tcp://ADDRESS:PORT/NQN/NSID?hdgst=0&ddgst=1.
    #[arg(long, value_name = "URI", conflicts_with_all = ["connect", "nqn", "nsid", "hdgst", "ddgst"])]
    disk: Option<String>,
    /// Subsystem to connect to.
    #[arg(long, default_value = "nqn.2026-11.net.plateway:ceiling")]
    pub(crate) nqn: String,
    /// This host's name.
    #[arg(long, default_value = "nqn.2026-11.net.plateway:yardstick")]
    pub(crate) hostnqn: String,
    /// Namespace.
    #[arg(long, default_value_t = 1)]
    pub(crate) nsid: u32,
    /// Header digests.
    #[arg(long)]
    pub(crate) hdgst: bool,
    /// Data digests.
    #[arg(long)]
    pub(crate) ddgst: bool,
    /// Keep-alive time-out of every controller, in milliseconds.
    #[arg(long, default_value_t = 120_000)]
    pub(crate) kato_ms: u64,
}

impl Peer {
    /// Goes where the URI says, if there is one.
    pub(crate) fn take_disk(&mut self) -> Result<()> {
        let Some(uri) = &self.disk else { return Ok(()) };
        let Disk { connect, name, number, hdgst, ddgst } =
            Disk::parse("nvme+tcp", "NQN/NSID", uri)?;
        (self.connect, self.nqn, self.nsid) = (connect, name, number);
        (self.hdgst, self.ddgst) = (hdgst, ddgst);
        Ok(())
    }

    /// Keep-alive time-out; zero turns it off.
    pub(crate) fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.kato_ms)
    }
}

/// A connected controller.
pub(crate) struct Session {
    peer: Peer,
    admin: Wire,
    controller: u16,
    next: u16,
    /// Bytes a command capsule of an I/O queue may carry as data.
    pub(crate) in_capsule: usize,
    /// Bytes of a block.
    pub(crate) block: u64,
    /// Blocks of the namespace.
    pub(crate) blocks: u64,
}

/// One connection past its ICReq.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    /// Longest data of one H2CData.
    pub(crate) max_h2c: usize,
}

impl Session {
    /// Connects the admin queue and enables the controller; with `identify` also asks for the
    /// namespace and for `queues` I/O queues.
    pub(crate) fn connect(peer: &Peer, identify: bool, queues: u16) -> Result<Self> {
        let admin = Wire::connect(peer)?;
        let mut session = Self {
            peer: peer.clone(),
            admin,
            controller: 0,
            next: 0,
            in_capsule: 0,
            block: 512,
            blocks: 0,
        };
        session.controller = connect_queue(&mut session.admin, peer, 0xffff, 0, 32)?;
        session.property_set(0x14, 0x0046_0001)?;
        let deadline = std::time::Instant::now() + PATIENCE;
        while session.property_get(0x1c)? & 1 == 0 {
            ensure!(std::time::Instant::now() < deadline, "the controller does not become ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        if identify {
            session.identify()?;
        }
        if queues > 0 {
            let asked = u32::from(queues - 1);
            let mut entry = command(opcode::SET_FEATURES);
            put(&mut entry, 40, &7_u32.to_le_bytes());
            put(&mut entry, 44, &(asked | asked << 16).to_le_bytes());
            let granted = session.admin_command(entry, &mut [])? as u32 & 0xffff;
            ensure!(granted >= asked, "{} I/O queues granted, {queues} asked for", granted + 1);
        }
        Ok(session)
    }

    /// The namespace that is asked for.
    pub(super) fn nsid(&self) -> u32 {
        self.peer.nsid
    }

    /// Connects I/O queue `number` (from 1) for `depth` commands.
    pub(crate) fn queue(&self, number: u16, depth: u16) -> Result<Wire> {
        let mut wire = Wire::connect(&self.peer)?;
        // SQSIZE is 0's based and one entry stays free; hosts ask for at least two entries.
        let size = depth.saturating_add(1).clamp(2, 1024);
        connect_queue(&mut wire, &self.peer, self.controller, number, size)?;
        Ok(wire)
    }

    fn identify(&mut self) -> Result<()> {
        let mut data = vec![0; 4096];
        let mut entry = command(opcode::IDENTIFY);
        entry[40] = 1;
        self.admin_command(entry, &mut data)?;
        self.in_capsule = (pdu::u32_at(&data, 1792) as usize * 16).saturating_sub(64);
        let mut entry = command(opcode::IDENTIFY);
        put(&mut entry, 4, &self.peer.nsid.to_le_bytes());
        self.admin_command(entry, &mut data)?;
        self.blocks = pdu::u64_at(&data, 0);
        let format = 128 + 4 * usize::from(data[26] & 0x0f);
        ensure!(self.blocks > 0, "namespace {} is not there", self.peer.nsid);
        self.block = 1 << data[format + 2];
        Ok(())
    }

    fn property_set(&mut self, offset: u32, value: u32) -> Result<()> {
        let mut entry = command(opcode::FABRICS);
        put(&mut entry, 44, &offset.to_le_bytes());
        put(&mut entry, 48, &value.to_le_bytes());
        self.admin_command(entry, &mut []).map(drop)
    }

    fn property_get(&mut self, offset: u32) -> Result<u64> {
        let mut entry = command(opcode::FABRICS);
        entry[4] = 4;
        put(&mut entry, 44, &offset.to_le_bytes());
        self.admin_command(entry, &mut [])
    }

    fn admin_command(&mut self, mut entry: [u8; 64], data: &mut [u8]) -> Result<u64> {
        self.next = self.next.wrapping_add(1) & 0x0fff;
        put(&mut entry, 2, &self.next.to_le_bytes());
        if !data.is_empty() {
            put(&mut entry, 32, &(data.len() as u32).to_le_bytes());
        }
        self.admin.send_command(&entry, &[])?;
        self.admin.completion(data)
    }
}

impl KeepAlive for Session {
    fn keep_alive(&mut self) -> Result<()> {
        let entry = command(opcode::KEEP_ALIVE);
        self.admin_command(entry, &mut []).map(drop)
    }
}

fn connect_queue(
    wire: &mut Wire,
    peer: &Peer,
    controller: u16,
    queue: u16,
    size: u16,
) -> Result<u16> {
    let mut data = vec![0; 1024];
    // The host's identifier follows its name: the same name means the same host.
    let (low, high) = (digest(peer.hostnqn.as_bytes()), digest(b"yardstick"));
    put(&mut data, 0, &low);
    put(&mut data, 4, &high);
    put(&mut data, 12, &low);
    put(&mut data, 16, &controller.to_le_bytes());
    put(&mut data, 256, peer.nqn.as_bytes());
    put(&mut data, 512, peer.hostnqn.as_bytes());
    let mut entry = command(opcode::FABRICS);
    entry[4] = 1;
    entry[39] = pdu::SGL_IN_CAPSULE;
    put(&mut entry, 32, &1024_u32.to_le_bytes());
    put(&mut entry, 42, &queue.to_le_bytes());
    put(&mut entry, 44, &(size - 1).to_le_bytes());
    // Bit 2: no submission queue flow control, so that reads may end with the SUCCESS flag.
    entry[46] = 0x04;
    if queue == 0 {
        let millis = peer.kato_ms as u32;
        put(&mut entry, 48, &millis.to_le_bytes());
    }
    wire.send_command(&entry, &data)?;
    let result = wire
        .completion(&mut [])
        .with_context(|| format!("Connect of queue {queue} to {}", peer.nqn))?;
    Ok(result as u16)
}

impl Wire {
    fn connect(peer: &Peer) -> Result<Self> {
        let socket = TcpStream::connect(peer.connect)
            .with_context(|| format!("cannot connect to {}", peer.connect))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let (header_digest, data_digest) = (peer.hdgst, peer.ddgst);
        let mut wire = Self { socket, header_digest, data_digest, max_h2c: 0 };
        let digests = u8::from(peer.hdgst) | u8::from(peer.ddgst) << 1;
        let mut ask = [0; pdu::IC_LEN];
        pdu::put_common(&mut ask, kind::IC_REQ, 0, 128, 0, pdu::IC_LEN);
        ask[11] = digests;
        wire.socket.write_all(&ask)?;
        let mut answer = [0; pdu::IC_LEN];
        wire.socket.read_exact(&mut answer).context("ICResp")?;
        ensure!(answer[0] == kind::IC_RESP, "PDU type {:#04x} in place of ICResp", answer[0]);
        ensure!(answer[11] == digests, "digests {digests:#x} asked for, {:#x} granted", answer[11]);
        wire.max_h2c = pdu::u32_at(&answer, 12) as usize;
        Ok(wire)
    }

    /// Sends one command with its data in the capsule.
    fn send_command(&mut self, entry: &[u8; 64], data: &[u8]) -> Result<()> {
        let head = pdu::capsule_cmd(entry, data.len(), self.header_digest, self.data_digest);
        let mut out = head.to_vec();
        if self.header_digest {
            out.extend_from_slice(&digest(&head));
        }
        out.extend_from_slice(data);
        if self.data_digest && !data.is_empty() {
            out.extend_from_slice(&digest(data));
        }
        self.socket.write_all(&out)?;
        Ok(())
    }

    /// Reads up to the completion of the one command outstanding; its data go to `into`.
    fn completion(&mut self, into: &mut [u8]) -> Result<u64> {
        loop {
            let mut header = [0; pdu::SHORT_LEN];
            self.socket.read_exact(&mut header).context("no answer to a command")?;
            let length = pdu::u32_at(&header, 4) as usize;
            ensure!((pdu::SHORT_LEN..1 << 20).contains(&length), "a PDU of {length} bytes");
            let mut rest = vec![0; length - pdu::SHORT_LEN];
            self.socket.read_exact(&mut rest)?;
            let mut result = 0;
            match header[0] {
                kind::CAPSULE_RESP => {
                    let status = pdu::u16_at(&header, 22) >> 1;
                    ensure!(status == 0, "refused with status {:#x}", status & 0x7ff);
                    result = pdu::u64_at(&header, 8);
                }
                kind::C2H_DATA => {
                    let from = usize::from(header[3]).saturating_sub(pdu::SHORT_LEN);
                    let size = pdu::u32_at(&header, 16) as usize;
                    let at = pdu::u32_at(&header, 12) as usize;
                    let room = into.get_mut(at..at + size).context("more data than asked")?;
                    let data = rest.get(from..from + size).context("data beyond the PDU")?;
                    room.copy_from_slice(data);
                    if header[1] & flag::SUCCESS == 0 {
                        continue;
                    }
                }
                other => bail!("PDU type {other:#04x} in answer to a command"),
            }
            return Ok(result);
        }
    }
}
