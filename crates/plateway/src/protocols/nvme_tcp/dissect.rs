//! The PDUs of one NVMe/TCP connection, both ways: cut out of the streams, put into words, and
//! commands tied to what completes them.
//!
//! Of a PDU only its head is kept: the header, its digest, and of data what is decoded (Connect).
//! The flags of each PDU say whether it carries digests, so the beginning of a connection need not
//! be in the capture; whether the queue is an admin queue is then taken from the commands that are
//! seen. Spec: NVM Express TCP Transport 1.0, "PDU format"; CCCID names the command in the other
//! direction.

use std::collections::BTreeMap;

use wire::nvme::Command;
use wire::nvme::fabrics::{Connect, ConnectData, FabricsType};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICReq, ICResp, PduType,
    R2T, TermReq, expected_header_length,
};

use crate::commands::dissect::Said;
use crate::protocols::cutting::{Cutter, Front};

/// Bytes of a PDU that are kept: a command's header, its digest, padding, and the data of Connect.
const HEAD_MAX: usize = 72 + 4 + 52 + ConnectData::SIZE;
/// Longest PDU that is believed when looking for a beginning: 16 MiB and some.
const LENGTH_MAX: u32 = (16 << 20) + 4096;
/// Commands under way that are remembered; a queue has at most 65,536.
const COMMANDS_MAX: usize = 65_536;

/// A connection's PDUs.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    host: Cutter,
    target: Cutter,
    /// Known once a Connect was seen, or guessed from what only an admin queue carries.
    admin: Option<bool>,
    commands: BTreeMap<u16, Under>,
}

/// A command under way.
#[derive(Clone, Debug)]
struct Under {
    since_ns: u64,
    words: String,
}

impl Conversation {
    /// The next bytes of a direction, and how many behind them were not captured.
    pub(crate) fn bytes(
        &mut self,
        time_ns: u64,
        from_host: bool,
        bytes: &[u8],
        missing: usize,
        said: &mut Vec<Said>,
    ) {
        let mut rest = bytes;
        loop {
            let cutter = if from_host { &mut self.host } else { &mut self.target };
            let read = |head: &[u8], _: &[u8]| front(head, from_host);
            let Some(pdu) = cutter.cut(&mut rest, said, read) else { break };
            said.push(self.describe(time_ns, &pdu));
        }
        let cutter = if from_host { &mut self.host } else { &mut self.target };
        cutter.pass(missing as u64, said);
    }

    /// Bytes of a direction that the capture does not have.
    pub(crate) fn gap(&mut self, from_host: bool, bytes: u32, said: &mut Vec<Said>) {
        let cutter = if from_host { &mut self.host } else { &mut self.target };
        let text = format!("{bytes} bytes are missing from the capture");
        said.push(Said { text, ..Said::default() });
        cutter.pass(bytes.into(), said);
    }

    /// A PDU in words. Its head is there as far as it is decoded.
    fn describe(&mut self, time_ns: u64, pdu: &[u8]) -> Said {
        let kind = PduType(pdu[0]);
        let mut latency_ns = None;
        let words = match kind {
            PduType::IC_REQ => ICReq::parse(pdu).map(|pdu| pdu.to_string()),
            PduType::IC_RESP => ICResp::parse(pdu).map(|pdu| pdu.to_string()),
            PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => {
                TermReq::parse(pdu).map(|pdu| pdu.to_string())
            }
            PduType::CAPSULE_COMMAND => CapsuleCommand::parse(pdu).map(|capsule| {
                format!("{}: {}", capsule.common, self.command(time_ns, &capsule, pdu))
            }),
            PduType::CAPSULE_RESPONSE => CapsuleResponse::parse(pdu).map(|capsule| {
                let under = self.commands.remove(&capsule.completion.command_id);
                latency_ns = under.as_ref().map(|under| time_ns.saturating_sub(under.since_ns));
                format!("{capsule}{}", answer(under.as_ref()))
            }),
            PduType::C2H_DATA => DataHeader::parse(pdu).map(|data| {
                if !data.is_success() {
                    return data.to_string();
                }
                let under = self.commands.remove(&data.command_id);
                latency_ns = under.as_ref().map(|under| time_ns.saturating_sub(under.since_ns));
                format!("{data}{}", answer(under.as_ref()))
            }),
            PduType::H2C_DATA => DataHeader::parse(pdu).map(|data| data.to_string()),
            PduType::R2T => R2T::parse(pdu).map(|pdu| pdu.to_string()),
            other => Ok(other.to_string()),
        };
        let text = words.unwrap_or_else(|error| format!("{kind}, malformed: {error}"));
        Said { pdu: kind.to_string(), text, latency_ns }
    }

    /// A command in words, which is remembered.
    fn command(&mut self, time_ns: u64, capsule: &CapsuleCommand, pdu: &[u8]) -> String {
        let command = &capsule.command;
        let connect = (command.is_fabrics() && FabricsType::of(command) == FabricsType::CONNECT)
            .then(|| Connect::from_command(command));
        match &connect {
            Some(connect) => {
                self.admin = Some(connect.queue_id == 0);
                self.commands.clear();
            }
            None => self.guess(command),
        }
        let mut words = command.describe(self.admin.unwrap_or(false)).to_string();
        if connect.is_some()
            && let Ok(payload) = capsule.common.payload()
            && let Some(data) = pdu.get(payload.offset as usize..)
            && let Ok(data) = ConnectData::parse(data)
        {
            words.push_str(&format!(", {data}"));
        }
        if self.commands.len() < COMMANDS_MAX {
            let under = Under { since_ns: time_ns, words: words.clone() };
            self.commands.insert(command.command_id(), under);
        }
        words
    }

    /// Where no Connect was seen, commands that only one kind of queue knows tell which it is.
    fn guess(&mut self, command: &Command) {
        if self.admin.is_none() && !command.is_fabrics() {
            // 06h Identify, 08h Abort, 0ah Get Features, 0ch Asynchronous Event Request, 18h Keep
            // Alive; as I/O commands none is in use over fabrics but 08h Write Zeroes and 0ch
            // Verify, which name a namespace.
            let only_admin = matches!(command.0[0], 0x06 | 0x0a | 0x18);
            let either = matches!(command.0[0], 0x08 | 0x0c) && command.nsid() == 0;
            if only_admin || either {
                self.admin = Some(true);
            }
        }
    }
}

fn answer(under: Option<&Under>) -> String {
    under.map_or_else(
        || " to a command that was not seen".to_owned(),
        |under| format!(" to {}", under.words),
    )
}

/// What the front of a PDU of that direction tells.
fn front(front: &[u8], from_host: bool) -> Front {
    match CommonHeader::parse(front) {
        Err(_) => Front::Needs(CommonHeader::SIZE),
        Ok(common) if !believable(&common, from_host) => Front::None(common.to_string()),
        Ok(common) => {
            let kept = (common.length as usize).min(HEAD_MAX);
            Front::Is { kept, length: common.length.into() }
        }
    }
}

/// Whether a host that sends these bytes begins a connection by them.
pub(crate) fn is_begun_by(bytes: &[u8]) -> bool {
    let begins = |common: CommonHeader| common.kind == PduType::IC_REQ && believable(&common, true);
    CommonHeader::parse(bytes).is_ok_and(begins)
}

/// Whether this can be the beginning of a PDU of that direction.
fn believable(common: &CommonHeader, from_host: bool) -> bool {
    let digests = Digests { header: common.flags.0 & 1 != 0, data: common.flags.0 & 2 != 0 };
    expected_header_length(common.kind) == Some(common.header_length)
        && common.kind.is_from_host() == from_host
        && common.length <= LENGTH_MAX
        && common.length >= u32::from(common.header_length) + digests.header_bytes()
        && common.flags.0 & 0xf0 == 0
}
