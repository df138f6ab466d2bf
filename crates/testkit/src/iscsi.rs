//! The initiator's side of iSCSI: it makes PDUs, also wrong ones, and hears the target as strictly as
//! the standard lets an initiator be.
//!
//! ```text
//!  host      one connection and what was asked on it: the bytes of what is asked, the numbers it bears
//!  heard     what a target may say to that: every rule of numbers, data and answers
//! ```
//! Units: bytes. Errors: texts that say what was wrong. Spec: RFC 7143.

mod heard;
pub mod host;

use block::checksum::crc32c;
use wire::iscsi::keys::{Pairs, push};
use wire::iscsi::{
    AsyncMessage, Bhs, DataIn, Digests, IscsiName, LoginResponse, LoginStatus, LogoutResponse,
    NopIn, Opcode, Pdu, R2t, Reject, RejectReason, Residual, ScsiResponse, TargetNumbers,
    TaskManagementResponse, TextResponse, padding,
};
use wire::scsi::{ScsiStatus, Sense};

/// What a target said, with the data of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Login(LoginResponse, Vec<u8>),
    Response(ScsiResponse, Vec<u8>),
    Data(DataIn, Vec<u8>),
    R2t(R2t),
    Management(TaskManagementResponse),
    Text(TextResponse, Vec<u8>),
    Logout(LogoutResponse),
    Nop(NopIn, Vec<u8>),
    Async(AsyncMessage),
    Reject(Reject, Vec<u8>),
}

impl Said {
    /// The status of a login.
    pub fn login(&self) -> LoginStatus {
        match self {
            Said::Login(response, _) => response.status,
            other => panic!("expected a login response, got {other:?}"),
        }
    }

    /// The status of a command, which a response or the last data of a read bear.
    pub fn status(&self) -> ScsiStatus {
        match self {
            Said::Response(response, _) => ScsiStatus(response.status),
            Said::Data(data, _) if data.flags.is_status() => ScsiStatus(data.status),
            other => panic!("expected a status, got {other:?}"),
        }
    }

    /// The sense data of a failed command.
    pub fn sense(&self) -> Sense {
        match self {
            Said::Response(_, data) => {
                sense(data).unwrap_or_else(|why| panic!("{why} in {self:?}"))
            }
            other => panic!("expected sense data, got {other:?}"),
        }
    }

    /// The residual of a command.
    pub fn residual(&self) -> Residual {
        match self {
            Said::Response(response, _) => response.residual(),
            Said::Data(data, _) => data.residual(),
            other => panic!("expected a residual, got {other:?}"),
        }
    }

    pub fn r2t(&self) -> R2t {
        match self {
            Said::R2t(r2t) => *r2t,
            other => panic!("expected an R2T, got {other:?}"),
        }
    }

    /// Why something was rejected.
    pub fn reject(&self) -> RejectReason {
        match self {
            Said::Reject(reject, _) => reject.reason,
            other => panic!("expected a Reject, got {other:?}"),
        }
    }

    /// What became of a task management function.
    pub fn management(&self) -> wire::iscsi::TaskResponse {
        match self {
            Said::Management(response) => response.response,
            other => panic!("expected a task management response, got {other:?}"),
        }
    }

    /// The pairs of a text.
    pub fn pairs(&self) -> Vec<(String, String)> {
        match self {
            Said::Login(_, text) | Said::Text(_, text) => pairs(text),
            other => panic!("expected a text, got {other:?}"),
        }
    }

    /// The task that it is about, or the reserved tag.
    pub fn tag(&self) -> u32 {
        self.pdu().bhs().initiator_task_tag
    }

    /// The header, as the PDU that it is.
    pub fn pdu(&self) -> Pdu {
        match self {
            Said::Login(it, _) => Pdu::LoginResponse(*it),
            Said::Response(it, _) => Pdu::ScsiResponse(*it),
            Said::Data(it, _) => Pdu::DataIn(*it),
            Said::R2t(it) => Pdu::R2t(*it),
            Said::Management(it) => Pdu::TaskManagementResponse(*it),
            Said::Text(it, _) => Pdu::TextResponse(*it),
            Said::Logout(it) => Pdu::LogoutResponse(*it),
            Said::Nop(it, _) => Pdu::NopIn(*it),
            Said::Async(it) => Pdu::AsyncMessage(*it),
            Said::Reject(it, _) => Pdu::Reject(*it),
        }
    }

    /// The numbers that it bears.
    pub fn numbers(&self) -> TargetNumbers {
        let of =
            |stat_sn, exp_cmd_sn, max_cmd_sn| TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn };
        match self {
            Said::Login(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Response(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Data(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::R2t(it) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Management(it) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Text(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Logout(it) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Nop(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Async(it) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
            Said::Reject(it, _) => of(it.stat_sn, it.exp_cmd_sn, it.max_cmd_sn),
        }
    }
}

/// A name that must be a valid one.
pub fn name(name: &str) -> IscsiName {
    IscsiName::new(name).expect("a valid name")
}

/// A text of these keys and values.
pub fn text<V: core::fmt::Display>(pairs: &[(&str, V)]) -> Vec<u8> {
    let mut text = Vec::new();
    pairs.iter().for_each(|(key, value)| push(&mut text, key, value));
    text
}

/// The keys and values of a text, which must be a whole one.
pub fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let pair = |pair: Result<wire::iscsi::keys::Pair<'_>, _>| {
        let pair = pair.unwrap_or_else(|error| panic!("{error}"));
        (pair.key.to_owned(), pair.value.to_owned())
    };
    Pairs::new(text).map(pair).collect()
}

/// The sense data of a response: a length, and so many bytes.
pub fn sense(data: &[u8]) -> Result<Sense, String> {
    let length = data.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let sense = length.and_then(|length| data.get(2..2 + length)).ok_or("no sense data")?;
    Sense::parse(sense).map_err(|error| error.to_string())
}

/// Header, digest, data, padding, digest. Additional headers are part of the header.
pub fn seal(header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let mut bytes = header.to_vec();
    if digests.header {
        bytes.extend(crc32c(header).to_le_bytes());
    }
    let from = bytes.len();
    bytes.extend_from_slice(data);
    bytes.extend(&[0; 4][..padding(data.len() as u32) as usize]);
    if digests.data && !data.is_empty() {
        let digest = crc32c(&bytes[from..]);
        bytes.extend(digest.to_le_bytes());
    }
    bytes
}

/// Hears one whole PDU: digests and padding right. Returns its length, too.
pub fn hear(bytes: &[u8], digests: Digests) -> (Said, usize) {
    let heard = parse(bytes, digests).unwrap_or_else(|why| panic!("{why}"));
    heard.expect("a whole PDU")
}

/// The first PDU of some bytes and its length; `None` if it is not whole.
fn parse(bytes: &[u8], digests: Digests) -> Result<Option<(Said, usize)>, String> {
    let Ok(bhs) = Bhs::parse(bytes) else { return Ok(None) };
    // Digests are in force behind the login.
    let digests = if bhs.opcode() == Opcode::LOGIN_RESPONSE { Digests::NONE } else { digests };
    bhs.check().map_err(|error| error.to_string())?;
    let length = bhs.length(digests) as usize;
    if bytes.len() < length {
        return Ok(None);
    }
    let pdu = &bytes[..length];
    if digests.header {
        check_digest(pdu, 0, Bhs::SIZE)?;
    }
    let data_at = bhs.header_bytes(digests) as usize;
    let data_end = data_at + bhs.data_segment_length.get() as usize;
    let padded = data_at + bhs.data_padded() as usize;
    if digests.data && data_end > data_at {
        check_digest(pdu, data_at, padded)?;
    }
    if pdu[data_end..padded].iter().any(|byte| *byte != 0) {
        return Err(format!("padding that is not zero in {bhs}"));
    }
    let data = pdu[data_at..data_end].to_vec();
    let said = of_target(pdu, data).map_err(|why| format!("{why} in {bhs}"))?;
    Ok(Some((said, length)))
}

fn of_target(pdu: &[u8], data: Vec<u8>) -> Result<Said, String> {
    let pdu = Pdu::parse(pdu).map_err(|error| error.to_string())?;
    Ok(match pdu {
        Pdu::LoginResponse(it) => {
            it.check().map_err(|error| error.to_string())?;
            Said::Login(it, data)
        }
        Pdu::ScsiResponse(it) => Said::Response(it, data),
        Pdu::DataIn(it) => {
            it.check().map_err(|error| error.to_string())?;
            Said::Data(it, data)
        }
        Pdu::R2t(it) => {
            it.check().map_err(|error| error.to_string())?;
            Said::R2t(it)
        }
        Pdu::TaskManagementResponse(it) => Said::Management(it),
        Pdu::TextResponse(it) => {
            it.check().map_err(|error| error.to_string())?;
            Said::Text(it, data)
        }
        Pdu::LogoutResponse(it) => Said::Logout(it),
        Pdu::NopIn(it) => Said::Nop(it, data),
        Pdu::AsyncMessage(it) => Said::Async(it),
        Pdu::Reject(it) => Said::Reject(it, data),
        _ => return Err("no PDU of a target".to_owned()),
    })
}

/// The digest behind `pdu[from..to]`.
fn check_digest(pdu: &[u8], from: usize, to: usize) -> Result<(), String> {
    let digest = pdu.get(to..).and_then(|rest| rest.first_chunk()).ok_or("a missing digest")?;
    match u32::from_le_bytes(*digest) == crc32c(&pdu[from..to]) {
        true => Ok(()),
        false => Err(format!("a wrong digest at byte {to}")),
    }
}
