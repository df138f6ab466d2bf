//! The PDUs of one iSCSI connection, both ways: cut out of the streams, put into words, and
//! commands tied to what completes them.
//!
//! Of a PDU its headers are kept, and of data what is decoded: texts and sense data. Whether PDUs
//! carry digests is agreed at login. Where that is not in the capture, the first header is tried:
//! if its CRC32C stands behind it, PDUs are taken to have both digests, else none, and what does
//! not fit then changes the guess for data. Spec: RFC 7143, 11; the Initiator Task Tag names the
//! command in the other direction.

use std::collections::BTreeMap;

use block::checksum::crc32c;
use wire::iscsi::keys::{Key, Pairs};
use wire::iscsi::{
    Bhs, DataIn, Digests, LoginRequest, LoginResponse, Opcode, Pdu, RESERVED_TAG, Stage,
};
use wire::scsi::{Cdb, ScsiStatus, Sense};

use crate::commands::dissect::Said;
use crate::protocols::cutting::{Cutter, Front};

/// Bytes of data that are kept of a PDU whose data are decoded: what a login may send in one.
const DATA_MAX: usize = 8192;
/// Bytes of a text that goes on in the next PDU; of a longer one the rest is left out.
const TEXT_MAX: usize = 65_536;
/// Commands under way that are remembered; a session has seldom more than some hundred.
const COMMANDS_MAX: usize = 65_536;

/// A connection's PDUs.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    host: Cutter,
    target: Cutter,
    digests: Agreement,
    /// What login has come to so far.
    offered: Digests,
    /// A text that goes on, of the host and of the target.
    texts: [Vec<u8>; 2],
    commands: BTreeMap<u32, Under>,
}

/// Which digests PDUs carry.
#[derive(Clone, Copy, Debug, Default)]
enum Agreement {
    #[default]
    Unknown,
    Guessed(Digests),
    Known(Digests),
}

/// A command under way.
#[derive(Clone, Debug)]
struct Under {
    since_ns: u64,
    /// Of a SCSI command: what it is.
    words: String,
}

/// Whether a connection begins with these bytes of its host: with a login.
pub(crate) fn is_begun_by(bytes: &[u8]) -> bool {
    let is_login = |login: LoginRequest| {
        login.operation.opcode() == Opcode::LOGIN_REQUEST
            && login.operation.is_immediate()
            && login.check().is_ok()
    };
    LoginRequest::parse(bytes).is_ok_and(is_login)
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
            let digests = &mut self.digests;
            let read = |head: &[u8], behind: &[u8]| digests.front(head, behind, from_host);
            let Some(pdu) = cutter.cut(&mut rest, said, read) else { break };
            said.push(self.describe(time_ns, from_host, &pdu));
        }
        let cutter = if from_host { &mut self.host } else { &mut self.target };
        cutter.pass(missing as u64, said);
    }

    /// Bytes of a direction that the capture does not have.
    pub(crate) fn gap(&mut self, from_host: bool, bytes: u32, said: &mut Vec<Said>) {
        let cutter = if from_host { &mut self.host } else { &mut self.target };
        let text = format!("{bytes} bytes are missing from the capture");
        said.push(Said { text, ..Said::default() });
        self.texts[usize::from(from_host)].clear();
        cutter.pass(bytes.into(), said);
    }

    /// A PDU in words. Its headers are there, and of its data what is decoded.
    fn describe(&mut self, time_ns: u64, from_host: bool, bytes: &[u8]) -> Said {
        let pdu = match Pdu::parse(bytes) {
            Ok(pdu) => pdu,
            Err(error) => return Said { text: error.to_string(), ..Said::default() },
        };
        let bhs = pdu.bhs();
        let data_at = bhs.header_bytes(self.digests.digests()) as usize;
        let mut data = bytes.get(data_at..).unwrap_or_default();
        data = &data[..data.len().min(bhs.data_segment_length.get() as usize)];
        let mut text = pdu.to_string();
        let mut latency_ns = None;
        match &pdu {
            Pdu::ScsiCommand(command) => {
                let words = Cdb(command.cdb).to_string();
                text.push_str(&format!(": {words}"));
                self.begin(time_ns, &bhs, words);
            }
            Pdu::ScsiResponse(response) => {
                if response.status != ScsiStatus::GOOD.0 {
                    text.push_str(&format!(", {}", ScsiStatus(response.status)));
                }
                text.push_str(&sense(data));
                latency_ns = self.end(time_ns, &bhs, &mut text);
            }
            Pdu::DataIn(DataIn { flags, .. }) if flags.is_status() => {
                latency_ns = self.end(time_ns, &bhs, &mut text);
            }
            Pdu::LoginRequest(login) => {
                self.begin(time_ns, &bhs, String::new());
                text.push_str(&self.text(from_host, login.flags.is_continue(), data));
            }
            Pdu::LoginResponse(login) => {
                latency_ns = self.answer(time_ns, &bhs);
                text.push_str(&self.text(from_host, login.flags.is_continue(), data));
                self.log_in(login);
            }
            Pdu::TextRequest(request) => {
                self.begin(time_ns, &bhs, String::new());
                text.push_str(&self.text(from_host, request.flags.is_continue(), data));
            }
            Pdu::TextResponse(response) => {
                latency_ns = self.answer(time_ns, &bhs);
                text.push_str(&self.text(from_host, response.flags.is_continue(), data));
            }
            Pdu::TaskManagementRequest(_) | Pdu::LogoutRequest(_) | Pdu::NopOut(_) => {
                self.begin(time_ns, &bhs, String::new());
            }
            Pdu::TaskManagementResponse(_) | Pdu::LogoutResponse(_) | Pdu::NopIn(_) => {
                latency_ns = self.answer(time_ns, &bhs);
            }
            Pdu::AsyncMessage(_) => text.push_str(&sense(data)),
            Pdu::Reject(_) => {
                if let Ok(rejected) = Pdu::parse(data) {
                    text.push_str(&format!(": {rejected}"));
                }
            }
            _ => {}
        }
        Said { pdu: bhs.opcode().to_string(), text, latency_ns }
    }

    /// Remembers what the other direction completes.
    fn begin(&mut self, time_ns: u64, bhs: &Bhs, words: String) {
        let tag = bhs.initiator_task_tag;
        if tag != RESERVED_TAG && self.commands.len() < COMMANDS_MAX {
            self.commands.insert(tag, Under { since_ns: time_ns, words });
        }
    }

    /// How long what a PDU completes was under way.
    fn answer(&mut self, time_ns: u64, bhs: &Bhs) -> Option<u64> {
        let under = self.commands.remove(&bhs.initiator_task_tag)?;
        Some(time_ns.saturating_sub(under.since_ns))
    }

    /// The same of a SCSI command, which is named.
    fn end(&mut self, time_ns: u64, bhs: &Bhs, text: &mut String) -> Option<u64> {
        let under = self.commands.get(&bhs.initiator_task_tag);
        match under.map(|under| &under.words) {
            Some(words) => text.push_str(&format!(" to {words}")),
            None => text.push_str(" to a command that was not seen"),
        }
        self.answer(time_ns, bhs)
    }

    /// The keys of a text, once all of it is there.
    fn text(&mut self, from_host: bool, goes_on: bool, data: &[u8]) -> String {
        let text = &mut self.texts[usize::from(from_host)];
        let room = TEXT_MAX - text.len();
        text.extend_from_slice(&data[..data.len().min(room)]);
        if goes_on {
            return String::new();
        }
        let text = std::mem::take(text);
        let mut words = String::new();
        for (at, pair) in Pairs::new(&text).enumerate() {
            words.push_str(if at == 0 { ": " } else { ", " });
            match pair {
                Ok(pair) => {
                    // The last word is that of who was offered a choice.
                    let is_on = pair.value == "CRC32C";
                    match Key::from_name(pair.key) {
                        Some(Key::HeaderDigest) => self.offered.header = is_on,
                        Some(Key::DataDigest) => self.offered.data = is_on,
                        _ => {}
                    }
                    words.push_str(&pair.to_string());
                }
                Err(error) => words.push_str(&error.to_string()),
            }
        }
        words
    }

    /// A login goes on, or is over: from the next PDU on it counts what was agreed.
    fn log_in(&mut self, login: &LoginResponse) {
        let flags = login.flags;
        let is_over = flags.is_transit() && flags.next() == Stage::FULL_FEATURE;
        if is_over && login.status.is_success() {
            self.digests = Agreement::Known(self.offered);
        }
    }
}

/// Sense data behind their length, in words.
fn sense(data: &[u8]) -> String {
    let sense = data.get(2..).filter(|sense| !sense.is_empty());
    sense
        .and_then(|sense| Sense::parse(sense).ok())
        .map_or(String::new(), |sense| format!(", {sense}"))
}

impl Agreement {
    fn digests(self) -> Digests {
        match self {
            Agreement::Unknown => Digests::NONE,
            Agreement::Guessed(digests) | Agreement::Known(digests) => digests,
        }
    }

    /// What the front of a PDU of that direction tells.
    fn front(&mut self, head: &[u8], behind: &[u8], from_host: bool) -> Front {
        let Ok(bhs) = Bhs::parse(head) else { return Front::Needs(Bhs::SIZE) };
        if !believable(&bhs, from_host) {
            if let Agreement::Guessed(digests) = self {
                digests.data = !digests.data;
            }
            return Front::None(bhs.to_string());
        }
        let header = Bhs::SIZE + bhs.additional_bytes() as usize;
        if matches!(bhs.opcode(), Opcode::LOGIN_REQUEST | Opcode::LOGIN_RESPONSE) {
            *self = Agreement::Known(Digests::NONE);
        } else if matches!(self, Agreement::Unknown) {
            if head.len() < header {
                return Front::Needs(header);
            }
            let has = behind.starts_with(&crc32c(&head[..header]).to_le_bytes());
            *self = Agreement::Guessed(Digests { header: has, data: has });
        }
        let digests = self.digests();
        let kept = match bhs.opcode() {
            Opcode::LOGIN_REQUEST
            | Opcode::LOGIN_RESPONSE
            | Opcode::TEXT_REQUEST
            | Opcode::TEXT_RESPONSE
            | Opcode::SCSI_RESPONSE
            | Opcode::ASYNC_MESSAGE
            | Opcode::REJECT => (bhs.data_segment_length.get() as usize).min(DATA_MAX),
            _ => 0,
        };
        let kept = bhs.header_bytes(digests) as usize + kept;
        Front::Is { kept, length: bhs.length(digests).into() }
    }
}

/// Whether this can be the beginning of a PDU of that direction.
fn believable(bhs: &Bhs, from_host: bool) -> bool {
    let opcode = bhs.opcode();
    // F is always set in most of them, so that zeros are none.
    let may_lack_f = matches!(
        opcode,
        Opcode::SCSI_COMMAND
            | Opcode::LOGIN_REQUEST
            | Opcode::LOGIN_RESPONSE
            | Opcode::TEXT_REQUEST
            | Opcode::TEXT_RESPONSE
            | Opcode::DATA_OUT
            | Opcode::DATA_IN
    );
    bhs.operation.0 & 0x80 == 0
        && bhs.check().is_ok()
        && opcode.is_from_initiator() == from_host
        && (may_lack_f || bhs.flags & 0x80 != 0)
}
