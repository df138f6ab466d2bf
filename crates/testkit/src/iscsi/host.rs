//! One connection of a host, which is its session: it makes the bytes of what is asked, counts what
//! the standard counts, remembers what it asked, and so knows what it may hear (`heard`).
//!
//! A host keeps the rules by itself: numbers ascend, data lie within what was agreed on. One that
//! broke rules (`seal` makes any bytes), or whose bytes were tampered with, is *lenient*: then what
//! it hears must parse and bear the right numbers, and nothing else.
//!
//! Not here: when to say what, and what data hold.

use core::fmt::{self, Debug};
use std::collections::BTreeMap;

use wire::iscsi::serial;
use wire::iscsi::{
    DataOut, Digests, InitiatorNumbers, LoginFlags, LoginRequest, LogoutReason, LogoutRequest,
    NopIn, NopOut, Operation, R2t, RESERVED_TAG, ScsiCommand, ScsiCommandFlags, Stage,
    TaskAttribute, TaskFunction, TaskManagementRequest, TextFlags, TextRequest,
};
use wire::scsi::{Cdb, Lun};

use super::{Said, seal, text};

/// A command and what surrounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub lun: [u8; 8],
    pub cdb: Cdb,
    /// R, W, F and the attribute; F is off where data follow unasked.
    pub flags: ScsiCommandFlags,
    /// Expected Data Transfer Length.
    pub expected: u32,
    /// Whether it is outside the order of CmdSN.
    pub is_immediate: bool,
}

impl Order {
    /// A command to a LUN that moves no data.
    pub fn new(lun: u16, cdb: Cdb) -> Order {
        let (lun, flags) = (Lun::of(lun).0, ScsiCommandFlags::NO_DATA);
        Order { lun, cdb, flags, expected: 0, is_immediate: false }
    }

    /// One that reads so many bytes.
    pub fn read(lun: u16, cdb: Cdb, expected: u32) -> Order {
        Order { flags: ScsiCommandFlags::READ, expected, ..Order::new(lun, cdb) }
    }

    /// One that writes so many bytes, of which none follow unasked but those with it.
    pub fn write(lun: u16, cdb: Cdb, expected: u32) -> Order {
        Order { flags: ScsiCommandFlags::WRITE, expected, ..Order::new(lun, cdb) }
    }

    /// With data that follow unasked.
    #[must_use]
    pub fn unfinished(self) -> Order {
        Order { flags: self.flags.with_final(false), ..self }
    }

    #[must_use]
    pub fn with_attribute(self, attribute: TaskAttribute) -> Order {
        Order { flags: self.flags.with_attribute(attribute.0), ..self }
    }
}

/// What kind of request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Login,
    Command(Order),
    Management(TaskFunction, /* Referenced Task Tag */ u32),
    Text,
    Logout,
    /// A NOP-Out, whose data come back.
    Nop(Vec<u8>),
}

/// A request that is not answered.
#[derive(Clone, Debug)]
pub struct Asked<T> {
    pub what: T,
    pub kind: Kind,
    /// What it bore.
    pub cmd_sn: u32,
    /// The logical unit that it is about, if any.
    pub lun: [u8; 8],
    /// Which of the host's requests it was, from 0 on.
    pub(super) number: u64,
    /// Bytes of data that came, or that were sent, announced or asked for.
    pub moved: u32,
    /// Bytes of the current sequence of Data-In.
    pub(super) in_burst: u32,
    /// DataSN or R2TSN of the next one.
    pub(super) data_sn: u32,
    /// DataSN of the next Data-Out that comes unasked.
    pub(super) unasked_sn: u32,
    /// R2Ts that are not answered, by transfer tag: the rest of what they ask for, and DataSN.
    pub(super) granted: BTreeMap<u32, (u32, u32)>,
}

impl<T> Asked<T> {
    /// The command, if it is one.
    pub fn order(&self) -> Option<&Order> {
        match &self.kind {
            Kind::Command(order) => Some(order),
            _ => None,
        }
    }

    /// Whether the target has shown that it has it: by data, or an R2T.
    pub fn is_known(&self) -> bool {
        self.data_sn > 0
    }

    /// Whether data that the target asked for have not left the host.
    pub fn owes_data(&self) -> bool {
        self.granted.values().any(|(left, _)| *left > 0)
    }
}

/// What both ends agreed on, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub digests: Digests,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_burst: u32,
    pub first_burst: u32,
    pub max_outstanding_r2t: u32,
    /// MaxRecvDataSegmentLength of the host, and of the target.
    pub own_segment: u32,
    pub target_segment: u32,
}

impl Default for Agreed {
    /// What holds of what nobody mentions.
    fn default() -> Agreed {
        Agreed {
            digests: Digests::NONE,
            initial_r2t: true,
            immediate_data: true,
            max_burst: 262_144,
            first_burst: 65_536,
            max_outstanding_r2t: 1,
            own_segment: 8192,
            target_segment: 8192,
        }
    }
}

/// What a host heard that it may hear.
#[derive(Debug)]
pub struct Heard<T> {
    pub said: Said,
    /// What was answered by it.
    pub ended: Option<Asked<T>>,
    /// What ended with it unanswered, and is never heard of again: by task management or a logout.
    pub aborted: Vec<Asked<T>>,
}

/// What it may not hear, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bytes that are no PDU of this connection: where bits may flip on the wire, that is how it
    /// shows.
    Garbled(String),
    /// A whole PDU that breaks a rule.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Garbled(why) | Fault::Broken(why)) = self;
        f.write_str(why)
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Broken(why)
    }
}

/// A connection; `T` is what its user notes of a request.
#[derive(Debug)]
pub struct Host<T> {
    pub isid: [u8; 6],
    /// TSIH: as asked for, and once it is logged in as the target said.
    pub tsih: u16,
    pub cid: u16,
    pub agreed: Agreed,
    pub lenient: bool,
    /// Whether other hosts may reset what it uses: then tasks of it end that it is not told of.
    pub may_be_reset: bool,
    /// How much the DataSN of its Data-Out are beyond what they should be: 0 of a host that keeps the
    /// rules.
    pub skew: u32,
    /// Requests that are not answered, by task tag.
    pub asked: BTreeMap<u32, Asked<T>>,
    /// Whether the full feature phase has begun.
    pub is_logged_in: bool,
    /// CmdSN of the next request.
    pub cmd_sn: u32,
    /// The last CmdSN that the target takes.
    pub max_cmd_sn: u32,
    pub(super) exp_cmd_sn: u32,
    /// The next StatSN; before the first of them, none is known.
    pub(super) stat_sn: Option<u32>,
    /// What the login offered, of what takes effect with its end.
    pub(super) offered_segment: Option<u32>,
    pub(super) requests: u64,
    next_tag: u32,
    pub(super) bytes: Vec<u8>,
    /// Bytes of `bytes` that were taken.
    pub(super) taken: usize,
    pub(super) over: bool,
}

impl<T: Debug> Host<T> {
    /// One whose first CmdSN is this.
    pub fn new(isid: [u8; 6], cmd_sn: u32) -> Host<T> {
        Host {
            isid,
            tsih: 0,
            cid: 1,
            agreed: Agreed::default(),
            lenient: false,
            may_be_reset: false,
            skew: 0,
            asked: BTreeMap::new(),
            is_logged_in: false,
            cmd_sn,
            max_cmd_sn: cmd_sn,
            exp_cmd_sn: cmd_sn,
            stat_sn: None,
            offered_segment: None,
            requests: 0,
            next_tag: 1,
            bytes: Vec::new(),
            taken: 0,
            over: false,
        }
    }

    /// Whether the target said that it ends the session.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the target takes another command.
    pub fn may_ask(&self) -> bool {
        !serial::precedes(self.max_cmd_sn, self.cmd_sn)
    }

    /// ExpStatSN: all statuses before it have arrived.
    pub fn exp_stat_sn(&self) -> u32 {
        self.stat_sn.unwrap_or(0)
    }

    /// A tag that no request has; those of others come again only after all the rest.
    pub fn free_tag(&mut self) -> u32 {
        loop {
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            if tag != RESERVED_TAG && !self.asked.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// The numbers of the next request.
    pub fn numbers(&mut self, is_immediate: bool) -> InitiatorNumbers {
        let numbers = InitiatorNumbers { cmd_sn: self.cmd_sn, exp_stat_sn: self.exp_stat_sn() };
        if !is_immediate {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        numbers
    }

    fn note(&mut self, tag: u32, kind: Kind, cmd_sn: u32, what: T) -> &mut Asked<T> {
        let asked = Asked {
            what,
            lun: match &kind {
                Kind::Command(order) => order.lun,
                _ => [0; 8],
            },
            kind,
            cmd_sn,
            number: self.requests,
            moved: 0,
            in_burst: 0,
            data_sn: 0,
            unasked_sn: 0,
            granted: BTreeMap::new(),
        };
        self.requests += 1;
        let before = self.asked.insert(tag, asked);
        assert!(before.is_none(), "tag {tag} is in use: {before:?}");
        self.asked.get_mut(&tag).expect("it was just put there")
    }

    /// A login request with this text. All of a login have one tag.
    pub fn login(&mut self, flags: LoginFlags, text: &[u8], what: T) -> Vec<u8> {
        let tag = 0;
        let numbers = self.numbers(true);
        let request = LoginRequest::new(
            flags,
            self.isid,
            self.tsih,
            self.cid,
            tag,
            text.len() as u32,
            numbers,
        );
        self.offer(text);
        self.note(tag, Kind::Login, numbers.cmd_sn, what);
        seal(&request.emit(), text, Digests::NONE)
    }

    /// What a login offers counts once it is over.
    fn offer(&mut self, text: &[u8]) {
        let pairs = wire::iscsi::keys::Pairs::new(text).flatten();
        for pair in pairs.filter(|pair| pair.key == "MaxRecvDataSegmentLength") {
            self.offered_segment = pair.value.parse().ok();
        }
    }

    /// The whole login of a host that has nothing to prove, in one request: to a target, or for
    /// discovery, with these keys beside the names.
    pub fn log_in(
        &mut self,
        initiator: &str,
        target: Option<&str>,
        keys: &[(&str, &str)],
        what: T,
    ) -> Vec<u8> {
        let mut all = vec![("InitiatorName", initiator)];
        match target {
            Some(target) => all.push(("TargetName", target)),
            None => all.push(("SessionType", "Discovery")),
        }
        all.extend(keys);
        let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
        self.login(flags, &text(&all), what)
    }

    /// A command with these data, under a tag of its own, which is returned with its bytes.
    pub fn command(&mut self, order: Order, data: &[u8], what: T) -> (u32, Vec<u8>) {
        let tag = self.free_tag();
        (tag, self.command_as(tag, order, data, what))
    }

    /// The same under this tag.
    pub fn command_as(&mut self, tag: u32, order: Order, data: &[u8], what: T) -> Vec<u8> {
        let numbers = self.numbers(order.is_immediate);
        let Order { lun, cdb, flags, expected, is_immediate } = order;
        let length = data.len() as u32;
        let mut command = ScsiCommand::new(lun, tag, flags, cdb.0, expected, length, numbers);
        if is_immediate {
            command.operation = Operation::immediate(ScsiCommand::OPCODE);
        }
        let first_burst = self.agreed.first_burst;
        let asked = self.note(tag, Kind::Command(order), numbers.cmd_sn, what);
        asked.moved = match flags.is_final() {
            true => length,
            // All that is announced is on its way.
            false => first_burst.min(expected),
        };
        seal(&command.emit(), data, self.agreed.digests)
    }

    /// Data of a command that nobody asked for, in one PDU.
    pub fn unasked(&mut self, tag: u32, offset: u32, data: &[u8], is_final: bool) -> Vec<u8> {
        let exp_stat_sn = self.exp_stat_sn();
        let asked = self.asked.get_mut(&tag).expect("a command that is not answered");
        let lun = asked.order().expect("a command").lun;
        let data_sn = asked.unasked_sn.wrapping_add(self.skew);
        asked.unasked_sn += 1;
        let length = data.len() as u32;
        let header = DataOut::unsolicited(lun, tag, data_sn, offset, length, is_final, exp_stat_sn);
        seal(&header.emit(), data, self.agreed.digests)
    }

    /// Data in answer to an R2T, in one PDU; `offset` is the command's.
    pub fn give(&mut self, r2t: &R2t, offset: u32, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let exp_stat_sn = self.exp_stat_sn();
        let asked = self.asked.get_mut(&r2t.initiator_task_tag);
        let granted = asked.and_then(|asked| asked.granted.get_mut(&r2t.target_transfer_tag));
        let mut forgotten = (r2t.desired_data_transfer_length, 0);
        let (left, data_sn) = granted.unwrap_or(&mut forgotten);
        *left = left.saturating_sub(length);
        let is_final = offset + length == r2t.buffer_offset + r2t.desired_data_transfer_length;
        let sent_sn = data_sn.wrapping_add(self.skew);
        let header = DataOut::solicited(r2t, sent_sn, offset, length, is_final, exp_stat_sn);
        *data_sn += 1;
        seal(&header.emit(), data, self.agreed.digests)
    }

    /// All that an R2T asks for of the command's data, `most` bytes a PDU, or as many as the target
    /// takes.
    pub fn give_all(&mut self, r2t: &R2t, data: &[u8], most: u32) -> Vec<u8> {
        let most = most.min(self.agreed.target_segment) as usize;
        let (mut offset, end) =
            (r2t.buffer_offset, r2t.buffer_offset + r2t.desired_data_transfer_length);
        let mut bytes = Vec::new();
        for part in data[offset as usize..end as usize].chunks(most) {
            bytes.extend(self.give(r2t, offset, part));
            offset += part.len() as u32;
        }
        bytes
    }

    /// A text request that begins a negotiation, or goes on with one by the target's tag.
    pub fn text(&mut self, text: &[u8], transfer_tag: Option<u32>, what: T) -> (u32, Vec<u8>) {
        let tag = self.free_tag();
        let numbers = self.numbers(false);
        let transfer_tag = transfer_tag.unwrap_or(RESERVED_TAG);
        let length = text.len() as u32;
        let request = TextRequest::new(TextFlags::FINAL, tag, transfer_tag, length, numbers);
        self.note(tag, Kind::Text, numbers.cmd_sn, what);
        (tag, seal(&request.emit(), text, self.agreed.digests))
    }

    /// NOP-Out with data that are to come back.
    pub fn nop(&mut self, data: &[u8], what: T) -> (u32, Vec<u8>) {
        let tag = self.free_tag();
        let numbers = self.numbers(true);
        let request = NopOut::ping(tag, data.len() as u32, numbers);
        self.note(tag, Kind::Nop(data.to_vec()), numbers.cmd_sn, what);
        (tag, seal(&request.emit(), data, self.agreed.digests))
    }

    /// The answer to a target's question.
    pub fn pong(&mut self, question: &NopIn) -> Vec<u8> {
        let numbers = self.numbers(true);
        seal(&NopOut::pong(question, numbers).emit(), &[], self.agreed.digests)
    }

    /// A task management function, on the task of this tag where it names one.
    pub fn manage(
        &mut self,
        function: TaskFunction,
        lun: [u8; 8],
        task: Option<u32>,
        what: T,
    ) -> (u32, Vec<u8>) {
        let tag = self.free_tag();
        let numbers = self.numbers(true);
        let referenced = task.unwrap_or(RESERVED_TAG);
        let ref_cmd_sn = self.asked.get(&referenced).map_or(0, |asked| asked.cmd_sn);
        let request = TaskManagementRequest::new(function, lun, tag, numbers);
        let request = request.with_task(referenced, ref_cmd_sn);
        self.note(tag, Kind::Management(function, referenced), numbers.cmd_sn, what).lun = lun;
        (tag, seal(&request.emit(), &[], self.agreed.digests))
    }

    /// Logout.
    pub fn logout(&mut self, reason: LogoutReason, what: T) -> (u32, Vec<u8>) {
        let tag = self.free_tag();
        let numbers = self.numbers(true);
        let request = LogoutRequest::new(reason, self.cid, tag, numbers);
        self.note(tag, Kind::Logout, numbers.cmd_sn, what);
        (tag, seal(&request.emit(), &[], self.agreed.digests))
    }

    /// Takes bytes of the target; [`next`](Self::next) says what they are.
    pub fn hear(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..core::mem::take(&mut self.taken));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that came and are no whole PDU.
    pub fn unheard(&self) -> usize {
        self.bytes.len() - self.taken
    }
}
