//! A session from the initiator's end: its login, and one command at a time before anything is
//! measured.
//!
//! In: address, names, what is offered. Out: a connected socket, what was agreed on, and what the
//! target says of its units. Blocking; every receive has a time limit. Digests are computed and
//! compared. Errors: the target refuses (with the status), agrees to something else than was asked
//! for, or is silent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::pdu::{self, BHS_LEN, Bhs, DIGEST_LEN, at, flag, opcode};
use super::scsi::{operation, status};
use super::terms::{self, Terms};
use crate::bytes::{digest, put};
use crate::disk::Disk;
use crate::load::KeepAlive;

/// How long a target may take to answer a step of the set-up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Steps of a login; two are usual.
const STEPS_MAX: usize = 8;
/// How often a unit may say that something has happened to it before it is given up.
const ATTENTIONS_MAX: usize = 8;
/// The longest data segment that is read before anything is measured.
const SEGMENT_MAX: usize = 1 << 20;

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
    /// Target, unit and digests in one, in place of what says so by itself:
    /// iscsi://ADDRESS:PORT/TARGET/UNIT?hdgst=0&ddgst=1.
    #[arg(long, value_name = "URI", conflicts_with_all = ["connect", "target", "lun", "hdgst", "ddgst"])]
    disk: Option<String>,
    /// Target to log in to.
    #[arg(long, default_value = "iqn.2026-11.net.plateway:ceiling")]
    pub(crate) target: String,
    /// This initiator's name.
    #[arg(long, default_value = "iqn.2026-11.net.plateway:yardstick")]
    pub(crate) initiator: String,
    /// Logical units, in turn a command each.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub(crate) lun: Vec<u8>,
    /// Header digests.
    #[arg(long)]
    pub(crate) hdgst: bool,
    /// Data digests.
    #[arg(long)]
    pub(crate) ddgst: bool,
    /// Data that may come with a command (FirstBurstLength).
    #[arg(long, default_value = "8k", value_parser = crate::parse_size)]
    pub(crate) first_burst: usize,
    /// Data for which one R2T may ask (MaxBurstLength).
    #[arg(long, default_value = "1m", value_parser = crate::parse_size)]
    pub(crate) max_burst: usize,
    /// Data of one PDU that is taken (MaxRecvDataSegmentLength).
    #[arg(long, default_value = "256k", value_parser = crate::parse_size)]
    pub(crate) max_recv: usize,
}

impl Peer {
    /// Goes where the URI says, if there is one.
    pub(crate) fn take_disk(&mut self) -> Result<()> {
        let Some(uri) = &self.disk else { return Ok(()) };
        let Disk { connect, name, number, hdgst, ddgst } =
            Disk::parse("iscsi", "TARGET/UNIT", uri)?;
        (self.connect, self.target, self.lun) = (connect, name, vec![number]);
        (self.hdgst, self.ddgst) = (hdgst, ddgst);
        Ok(())
    }
}

/// A session that has logged in, over its one connection.
pub(crate) struct Session {
    pub(super) socket: TcpStream,
    pub(super) terms: Terms,
    /// Of the next command.
    pub(super) cmd_sn: u32,
    /// The last one that the target takes.
    pub(super) max_cmd_sn: u32,
    /// Of the next status.
    pub(super) exp_stat_sn: u32,
    itt: u32,
}

/// What a command came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) data: Vec<u8>,
    /// Sense, where the status is CHECK CONDITION.
    pub(super) sense: Vec<u8>,
}

/// The disk behind a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) blocks: u64,
    pub(super) block: u64,
}

impl Session {
    /// Logs in; `name` is appended to the initiator's, and `number` tells its sessions apart.
    pub(super) fn login(peer: &Peer, name: &str, number: u16) -> Result<Self> {
        let mut session = Self::connect(peer.connect)?;
        session
            .negotiate(peer, name, number)
            .with_context(|| format!("login to {}", peer.target))?;
        Ok(session)
    }

    /// Connects, and has said nothing.
    pub(super) fn connect(to: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let terms = Terms::default();
        Ok(Self { socket, terms, cmd_sn: 1, max_cmd_sn: 0, exp_stat_sn: 0, itt: 0 })
    }

    /// From the operational stage to the full feature phase.
    fn negotiate(&mut self, peer: &Peer, name: &str, number: u16) -> Result<()> {
        let mut agreed = Terms::default();
        let mut text = terms::emit(&offers(peer, name));
        for _ in 0..STEPS_MAX {
            let mut head = pdu::head(
                opcode::LOGIN_REQUEST | opcode::IMMEDIATE,
                // The operational stage, and the wish to enter the full feature phase.
                flag::FINAL | 1 << 2 | 3,
                0,
            );
            // An ISID of the random format: a number of this process, and the session's.
            put(&mut head, at::ISID, &(0x8000_0000 | std::process::id() & 0xff_ffff).to_be_bytes());
            put(&mut head, at::ISID + 4, &number.to_be_bytes());
            self.send(head, &text)?;
            let (answer, data) = self.receive()?;
            ensure!(
                answer[0] == opcode::LOGIN_RESPONSE,
                "PDU type {:#04x} in answer to a login",
                answer[0]
            );
            let refused = pdu::u16_at(&answer, at::LOGIN_STATUS);
            ensure!(refused == 0, "refused with status {refused:#06x}");
            for (key, value) in terms::parse(&data) {
                ensure!(value != "Reject", "{key} is rejected");
                agreed.settle(key, value)?;
            }
            let flags = answer[at::FLAGS];
            if flags & flag::FINAL != 0 && flags & 3 == 3 {
                self.terms = agreed;
                return self.check(peer);
            }
            text.clear();
        }
        bail!("no end of it after {STEPS_MAX} steps");
    }

    /// Whether what was asked for was granted.
    fn check(&self, peer: &Peer) -> Result<()> {
        let Terms { header_digest, data_digest, .. } = self.terms;
        ensure!(
            (header_digest, data_digest) == (peer.hdgst, peer.ddgst),
            "digests {}/{} asked for, {header_digest}/{data_digest} granted",
            peer.hdgst,
            peer.ddgst
        );
        Ok(())
    }

    /// Waits until a unit is ready, and asks how large it is.
    pub(super) fn capacity(&mut self, lun: u8) -> Result<Capacity> {
        let mut attentions = 0;
        loop {
            let ready = self.command(lun, &[operation::TEST_UNIT_READY], 0)?;
            if ready.status == status::GOOD {
                break;
            }
            // Unit attention: what happened before we came.
            let is_attention = ready.sense.get(2).is_some_and(|key| key & 0x0f == 6);
            attentions += 1;
            ensure!(
                is_attention && attentions < ATTENTIONS_MAX,
                "unit {lun} is not ready: {ready:?}"
            );
        }
        let mut cdb = [0; 16];
        cdb[0] = operation::SERVICE_ACTION_IN_16;
        cdb[1] = operation::CAPACITY;
        cdb[13] = 32;
        let answer = self.command(lun, &cdb, 32)?;
        ensure!(
            answer.status == status::GOOD && answer.data.len() >= 12,
            "unit {lun} does not say how large it is: {answer:?}"
        );
        let block = pdu::u32_at(&answer.data, 8).into();
        Ok(Capacity { blocks: pdu::u64_at(&answer.data, 0) + 1, block })
    }

    /// Carries out one command that reads `expected` bytes, or none.
    pub(super) fn command(&mut self, lun: u8, cdb: &[u8], expected: u32) -> Result<Outcome> {
        self.itt = self.itt.wrapping_add(1) & 0x00ff_ffff;
        let reads = if expected > 0 { flag::READ } else { 0 };
        let flags = flag::FINAL | flag::SIMPLE | reads;
        let mut head = pdu::head(opcode::SCSI_COMMAND, flags, self.itt);
        put(&mut head, at::LUN, &pdu::lun(lun));
        put(&mut head, at::CDB, cdb);
        pdu::put_u32(&mut head, at::EDTL, expected);
        self.send(head, &[])?;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let mut data = Vec::new();
        loop {
            let (answer, segment) = self.receive()?;
            let status = answer[at::STATUS];
            match answer[0] {
                opcode::DATA_IN => {
                    let offset = pdu::u32_at(&answer, at::OFFSET) as usize;
                    ensure!(offset == data.len(), "data at {offset} behind {}", data.len());
                    data.extend_from_slice(&segment);
                    if answer[at::FLAGS] & flag::STATUS != 0 {
                        return Ok(Outcome { status, data, sense: Vec::new() });
                    }
                }
                opcode::SCSI_RESPONSE => {
                    let sense = segment.get(2..).unwrap_or_default().to_vec();
                    return Ok(Outcome { status, data, sense });
                }
                other => bail!("PDU type {other:#04x} in answer to a command"),
            }
        }
    }

    /// Sends a header with the present sequence numbers, and data.
    pub(super) fn send(&mut self, mut head: Bhs, data: &[u8]) -> Result<()> {
        pdu::put_u32(&mut head, at::CMD_SN, self.cmd_sn);
        pdu::put_u32(&mut head, at::EXP_STAT_SN, self.exp_stat_sn);
        pdu::put_data_len(&mut head, data.len());
        let mut bytes = head.to_vec();
        if self.terms.header_digest {
            bytes.extend_from_slice(&digest(&head));
        }
        bytes.extend_from_slice(&pdu::segment(data, self.terms.data_digest));
        self.socket.write_all(&bytes)?;
        Ok(())
    }

    /// Receives a PDU and its data, and answers what the target asks in between.
    pub(super) fn receive(&mut self) -> Result<(Bhs, Vec<u8>)> {
        loop {
            let (head, data) = self.receive_any()?;
            self.max_cmd_sn = pdu::u32_at(&head, at::MAX_CMD_SN);
            if counts_status(&head) {
                self.exp_stat_sn = pdu::u32_at(&head, at::STAT_SN).wrapping_add(1);
            }
            match pong(&head) {
                Some(pong) => self.send(pong, &[])?,
                None if head[0] == opcode::NOP_IN && is_unsolicited(&head) => {}
                None => return Ok((head, data)),
            }
        }
    }

    fn receive_any(&mut self) -> Result<(Bhs, Vec<u8>)> {
        let mut head = [0; BHS_LEN];
        self.socket.read_exact(&mut head).context("no answer")?;
        if self.terms.header_digest {
            let mut sum = [0; DIGEST_LEN];
            self.socket.read_exact(&mut sum)?;
            ensure!(sum == digest(&head), "a header digest is wrong");
        }
        let len = pdu::data_len(&head);
        ensure!(head[at::AHS_LEN] == 0 && len <= SEGMENT_MAX, "a data segment of {len} bytes");
        let mut data = vec![0; pdu::padded(len)];
        self.socket.read_exact(&mut data)?;
        if self.terms.data_digest && len > 0 {
            let mut sum = [0; DIGEST_LEN];
            self.socket.read_exact(&mut sum)?;
            ensure!(sum == digest(&data), "a data digest is wrong");
        }
        data.truncate(len);
        Ok((head, data))
    }
}

impl KeepAlive for Session {
    fn keep_alive(&mut self) -> Result<()> {
        self.itt = self.itt.wrapping_add(1) & 0x00ff_ffff;
        let mut head = pdu::head(opcode::NOP_OUT | opcode::IMMEDIATE, flag::FINAL, self.itt);
        pdu::put_u32(&mut head, at::TTT, pdu::NO_TAG);
        self.send(head, &[])?;
        let (answer, _) = self.receive()?;
        ensure!(
            answer[0] == opcode::NOP_IN && pdu::u32_at(&answer, at::ITT) == self.itt,
            "PDU type {:#04x} in answer to a NOP-Out",
            answer[0]
        );
        Ok(())
    }
}

/// What is offered, in the order in which it is written.
fn offers(peer: &Peer, name: &str) -> Vec<(String, String)> {
    let digests = |on: bool| if on { "CRC32C" } else { "None" }.to_owned();
    let fixed = |value: &str| value.to_owned();
    [
        ("InitiatorName", format!("{}{name}", peer.initiator)),
        ("SessionType", fixed("Normal")),
        ("TargetName", peer.target.clone()),
        ("HeaderDigest", digests(peer.hdgst)),
        ("DataDigest", digests(peer.ddgst)),
        ("ImmediateData", fixed("Yes")),
        ("InitialR2T", fixed("Yes")),
        ("MaxRecvDataSegmentLength", peer.max_recv.to_string()),
        ("MaxBurstLength", peer.max_burst.to_string()),
        ("FirstBurstLength", peer.first_burst.min(peer.max_burst).to_string()),
        ("MaxConnections", fixed("1")),
        ("MaxOutstandingR2T", fixed("1")),
        ("ErrorRecoveryLevel", fixed("0")),
        ("DefaultTime2Wait", fixed("0")),
        ("DefaultTime2Retain", fixed("0")),
        ("DataPDUInOrder", fixed("Yes")),
        ("DataSequenceInOrder", fixed("Yes")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

/// Whether a PDU of the target has a status, for which its counter goes on.
#[inline]
pub(super) fn counts_status(head: &[u8]) -> bool {
    match head[0] {
        opcode::DATA_IN => head[at::FLAGS] & flag::STATUS != 0,
        opcode::R2T => false,
        opcode::NOP_IN => !is_unsolicited(head),
        _ => true,
    }
}

/// Whether a NOP-In answers nobody.
fn is_unsolicited(head: &[u8]) -> bool {
    pdu::u32_at(head, at::ITT) == pdu::NO_TAG
}

/// The answer to a NOP-In that asks for one, but for its sequence numbers.
pub(super) fn pong(head: &[u8]) -> Option<Bhs> {
    let tag = pdu::u32_at(head, at::TTT);
    if head[0] != opcode::NOP_IN || tag == pdu::NO_TAG {
        return None;
    }
    let mut pong = pdu::head(opcode::NOP_OUT | opcode::IMMEDIATE, flag::FINAL, pdu::NO_TAG);
    put(&mut pong, at::LUN, &head[at::LUN..at::ITT]);
    pdu::put_u32(&mut pong, at::TTT, tag);
    Some(pong)
}
