//! What a host may hear, PDU by PDU.
//!
//! - *Numbers*: statuses are counted without a gap; an R2T, a NOP-In that asks and a sign of life
//!   tell the next number. ExpCmdSN and MaxCmdSN never go back, ExpCmdSN is never beyond what was
//!   sent, and MaxCmdSN never more than one before it.
//! - *Data-In* count from 0 for each command, follow one another, are no longer than the host takes
//!   in a PDU, and end a sequence at MaxBurstLength; status comes with the last of them or behind it.
//! - *R2Ts* count from 0 for each command, follow one another and what came unasked, within
//!   MaxBurstLength and MaxOutstandingR2T, each under a tag of its own.
//! - *Answers*: one to each request; GOOD once all data moved, but for what the residual says; CHECK
//!   CONDITION with sense data; nothing of a task behind the answer to what ended it.
//!
//! Spec: RFC 7143, 4.2.2, 4.2.5, 11.4, 11.7, 11.8, 11.11, 11.13, 11.18.

use core::fmt::Debug;

use wire::iscsi::keys::Pairs;
use wire::iscsi::serial::precedes;
use wire::iscsi::{
    Bhs, DataIn, LoginResponse, LogoutResponseCode, Opcode, R2t, RESERVED_TAG, Residual,
    ResponseCode, ScsiResponse, Stage, TargetNumbers, TaskFunction, TaskResponse,
};
use wire::scsi::ScsiStatus;

use super::host::{Asked, Fault, Heard, Host, Kind};
use super::{Said, parse, sense};

impl<T: Debug> Host<T> {
    /// The next thing that it heard, if all of it is there.
    #[allow(clippy::should_implement_trait)] // It may go on after `None`.
    pub fn next(&mut self) -> Result<Option<Heard<T>>, Fault> {
        let rest = &self.bytes[self.taken..];
        let Some((said, length)) = parse(rest, self.agreed.digests).map_err(Fault::Garbled)? else {
            return Ok(None);
        };
        if self.over {
            return Err(format!("{} behind the end of the session", said.pdu()).into());
        }
        self.taken += length;
        self.count(&said)?;
        let (mut ended, mut aborted) = (None, Vec::new());
        match self.judge(&said, &mut aborted) {
            Ok(Some(tag)) => ended = self.asked.remove(&tag),
            Ok(None) => {}
            Err(_) if self.lenient => ended = self.asked.remove(&said.tag()),
            Err(why) => return Err(why),
        }
        Ok(Some(Heard { said, ended, aborted }))
    }

    /// The numbers of a PDU.
    fn count(&mut self, said: &Said) -> Result<(), Fault> {
        // They mean nothing where a login is refused.
        if matches!(said, Said::Login(response, _) if !response.status.is_success()) {
            return Ok(());
        }
        let TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn } = said.numbers();
        // So do those of a login whose request was tampered with: they are what the target says.
        if matches!(said, Said::Login(..)) && self.lenient {
            self.stat_sn = Some(stat_sn.wrapping_add(1));
            (self.exp_cmd_sn, self.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
            return Ok(());
        }
        let broken = |why: &str| Err(Fault::Broken(format!("{why}: {}", said.pdu())));
        let counts = match said {
            Said::Data(data, _) => data.flags.is_status(),
            Said::Nop(nop, _) => nop.initiator_task_tag != RESERVED_TAG,
            Said::R2t(_) => false,
            _ => true,
        };
        let tells = counts || !matches!(said, Said::Data(..));
        let expected = *self.stat_sn.get_or_insert(stat_sn);
        if tells && stat_sn != expected {
            return broken(&format!("StatSN is not {expected}"));
        }
        self.stat_sn = Some(expected.wrapping_add(u32::from(counts)));
        if precedes(exp_cmd_sn, self.exp_cmd_sn) || precedes(max_cmd_sn, self.max_cmd_sn) {
            return broken("ExpCmdSN or MaxCmdSN went back");
        }
        if precedes(self.cmd_sn, exp_cmd_sn) && !self.lenient {
            return broken("ExpCmdSN is beyond what was sent");
        }
        if precedes(max_cmd_sn, exp_cmd_sn.wrapping_sub(1)) {
            return broken("MaxCmdSN is more than one before ExpCmdSN");
        }
        (self.exp_cmd_sn, self.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        Ok(())
    }

    /// What a PDU means; the tag of what is answered by it.
    fn judge(&mut self, said: &Said, aborted: &mut Vec<Asked<T>>) -> Result<Option<u32>, Fault> {
        let tag = said.tag();
        match said {
            Said::Login(response, text) => self.logged_in(response, text).map(Some),
            _ if !self.is_logged_in => Err(Fault::Garbled(format!("{} in a login", said.pdu()))),
            Said::Data(data, bytes) => self.data_in(data, bytes).map(|ends| ends.then_some(tag)),
            Said::R2t(r2t) => self.r2t(r2t).map(|()| None),
            Said::Response(response, data) => self.response(response, data).map(|()| Some(tag)),
            Said::Management(response) => {
                let Kind::Management(function, referenced) = *self.kind(said)? else {
                    return Err(unasked(said));
                };
                if response.response == TaskResponse::COMPLETE {
                    aborted.extend(self.end_tasks(tag, function, referenced));
                } else if response.response == TaskResponse::NO_SUCH_TASK
                    && self.asked.get(&referenced).is_some_and(|asked| asked.order().is_some())
                    && !(self.ends_many() || self.may_be_reset)
                {
                    return Err(format!("task {referenced} is not answered, and unknown").into());
                }
                Ok(Some(tag))
            }
            Said::Text(response, _) => {
                let is_final = response.target_transfer_tag == RESERVED_TAG;
                match self.kind(said)? {
                    Kind::Text if is_final == response.flags.is_final() => Ok(Some(tag)),
                    _ => Err(unasked(said)),
                }
            }
            Said::Logout(response) => match self.kind(said)? {
                Kind::Logout => {
                    if response.response == LogoutResponseCode::CLOSED {
                        self.over = true;
                        let mut rest = core::mem::take(&mut self.asked);
                        self.asked.extend(rest.remove_entry(&tag));
                        aborted.extend(rest.into_values());
                    }
                    Ok(Some(tag))
                }
                _ => Err(unasked(said)),
            },
            Said::Nop(nop, _) if nop.initiator_task_tag == RESERVED_TAG => Ok(None),
            Said::Nop(_, data) => match self.kind(said)? {
                Kind::Nop(sent) if sent.starts_with(data) => {
                    let most = sent.len().min(self.agreed.own_segment as usize);
                    match data.len() == most {
                        true => Ok(Some(tag)),
                        false => Err("a part of a NOP's data came back".to_owned().into()),
                    }
                }
                _ => Err(unasked(said)),
            },
            Said::Async(_) => Ok(None),
            Said::Reject(_, header) => Ok(self.rejected(header)),
        }
    }

    /// Whether a function is under way that ends more than one task: which of them have ended is not
    /// known before it is answered.
    fn ends_many(&self) -> bool {
        self.asked.values().any(|asked| {
            matches!(asked.kind, Kind::Management(function, _) if function != TaskFunction::ABORT_TASK)
        })
    }

    fn kind(&self, said: &Said) -> Result<&Kind, Fault> {
        let asked = self.asked.get(&said.tag()).ok_or_else(|| unasked(said))?;
        Ok(&asked.kind)
    }

    fn logged_in(&mut self, response: &LoginResponse, text: &[u8]) -> Result<u32, Fault> {
        let tag = response.initiator_task_tag;
        // No digest covers a login.
        let is_ours = self.asked.get(&tag).is_some_and(|asked| asked.kind == Kind::Login);
        if !is_ours || response.isid != self.isid {
            return Err(Fault::Garbled(format!("a login that is not ours: {response}")));
        }
        if !response.status.is_success() {
            self.over = true;
            return Ok(tag);
        }
        self.agree(text)?;
        let flags = response.flags;
        if flags.is_transit() && flags.next() == Stage::FULL_FEATURE {
            if response.tsih == 0 || (self.tsih != 0 && self.tsih != response.tsih) {
                return Err(Fault::Garbled(format!("a session without number: {response}")));
            }
            (self.tsih, self.is_logged_in) = (response.tsih, true);
            if let Some(segment) = self.offered_segment {
                self.agreed.own_segment = segment;
            }
            self.agreed.first_burst = self.agreed.first_burst.min(self.agreed.max_burst);
        }
        Ok(tag)
    }

    /// Takes what a target answers to keys.
    fn agree(&mut self, text: &[u8]) -> Result<(), Fault> {
        for pair in Pairs::new(text) {
            let pair = pair.map_err(|error| Fault::Garbled(error.to_string()))?;
            let number = pair.value.parse().unwrap_or(0);
            let agreed = &mut self.agreed;
            match pair.key {
                "HeaderDigest" => agreed.digests.header = pair.value == "CRC32C",
                "DataDigest" => agreed.digests.data = pair.value == "CRC32C",
                "InitialR2T" => agreed.initial_r2t = pair.value == "Yes",
                "ImmediateData" => agreed.immediate_data = pair.value == "Yes",
                "MaxBurstLength" if number > 0 => agreed.max_burst = number,
                "FirstBurstLength" if number > 0 => agreed.first_burst = number,
                "MaxOutstandingR2T" if number > 0 => agreed.max_outstanding_r2t = number,
                "MaxRecvDataSegmentLength" if number > 0 => agreed.target_segment = number,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the task ends with it.
    fn data_in(&mut self, data: &DataIn, bytes: &[u8]) -> Result<bool, Fault> {
        let Host { asked, agreed, .. } = self;
        let broken = |why: &str| Err(Fault::Broken(format!("{why}: {data}")));
        let Some(asked) = asked.get_mut(&data.initiator_task_tag) else {
            return broken("data for no command");
        };
        let length = bytes.len() as u32;
        let expected = match asked.order() {
            Some(order) if order.flags.is_read() => order.expected,
            _ => return broken("data for no command that reads"),
        };
        if data.data_sn != asked.data_sn || data.buffer_offset != asked.moved {
            return broken(&format!("data out of order for {asked:?}"));
        }
        if length == 0 || length > agreed.own_segment || length > expected - asked.moved {
            return broken(&format!("too much or no data for {asked:?}"));
        }
        (asked.data_sn, asked.moved) = (asked.data_sn + 1, asked.moved + length);
        asked.in_burst += length;
        if asked.in_burst > agreed.max_burst {
            return broken("a sequence beyond MaxBurstLength");
        }
        if asked.in_burst == agreed.max_burst && !data.flags.is_final() {
            return broken("a sequence of MaxBurstLength that does not end");
        }
        if data.flags.is_final() {
            asked.in_burst = 0;
        }
        if data.flags.is_acknowledge() {
            return broken("A at level 0");
        }
        if !data.flags.is_status() {
            return Ok(false);
        }
        if ScsiStatus(data.status) != ScsiStatus::GOOD {
            return broken("a status with data that is not harmless");
        }
        check_good(asked, data.residual())?;
        Ok(true)
    }

    fn r2t(&mut self, r2t: &R2t) -> Result<(), Fault> {
        let Host { asked, agreed, .. } = self;
        let broken = |why: &str| Err(Fault::Broken(format!("{why}: {r2t}")));
        let tag = r2t.target_transfer_tag;
        let is_used = asked.values().any(|asked| asked.granted.contains_key(&tag));
        let Some(asked) = asked.get_mut(&r2t.initiator_task_tag) else {
            return broken("an R2T for no command");
        };
        let (lun, expected) = match asked.order() {
            Some(order) if order.flags.is_write() => (order.lun, order.expected),
            _ => return broken("an R2T for no command that writes"),
        };
        if tag == RESERVED_TAG || is_used || r2t.lun != lun {
            return broken(&format!("a transfer tag or LUN that cannot be, for {asked:?}"));
        }
        let length = r2t.desired_data_transfer_length;
        if r2t.r2t_sn != asked.data_sn || r2t.buffer_offset != asked.moved {
            return broken(&format!("an R2T out of order for {asked:?}"));
        }
        if length > agreed.max_burst || length > expected - asked.moved {
            return broken(&format!("an R2T beyond what there is for {asked:?}"));
        }
        asked.granted.retain(|_, (left, _)| *left > 0);
        if asked.granted.len() as u32 >= agreed.max_outstanding_r2t {
            return broken(&format!("too many R2Ts for {asked:?}"));
        }
        asked.granted.insert(tag, (length, 0));
        (asked.data_sn, asked.moved) = (asked.data_sn + 1, asked.moved + length);
        Ok(())
    }

    fn response(&mut self, response: &ScsiResponse, data: &[u8]) -> Result<(), Fault> {
        let broken = |why: &str| Err(Fault::Broken(format!("{why}: {response}")));
        let asked = self.asked.get(&response.initiator_task_tag);
        let Some(asked) = asked.filter(|asked| asked.order().is_some()) else {
            return broken("an answer to no command");
        };
        if response.response != ResponseCode::COMPLETED {
            return broken("a target that failed");
        }
        if response.exp_data_sn != asked.data_sn {
            return broken(&format!("ExpDataSN is not {}", asked.data_sn));
        }
        if asked.in_burst > 0 {
            return broken("a sequence of data that does not end");
        }
        let status = ScsiStatus(response.status);
        if status == ScsiStatus::CHECK_CONDITION {
            sense(data)?;
        } else if !data.is_empty() {
            return broken("data with a response that is no CHECK CONDITION");
        }
        if status == ScsiStatus::GOOD {
            check_good(asked, response.residual())?;
        }
        Ok(())
    }

    /// What a function ended: tasks that were asked before it.
    fn end_tasks(&mut self, tag: u32, function: TaskFunction, referenced: u32) -> Vec<Asked<T>> {
        let number = self.asked[&tag].number;
        let lun = self.asked[&tag].lun;
        let is_of_unit = matches!(
            function,
            TaskFunction::ABORT_TASK_SET
                | TaskFunction::CLEAR_TASK_SET
                | TaskFunction::LOGICAL_UNIT_RESET
        );
        let is_of_target =
            matches!(function, TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET);
        let ended = |other: &u32, asked: &mut Asked<T>| {
            let Some(order) = asked.order() else { return false };
            let is_meant = match function {
                TaskFunction::ABORT_TASK => *other == referenced,
                _ => is_of_target || (is_of_unit && order.lun == lun),
            };
            is_meant && asked.number < number
        };
        self.asked.extract_if(.., ended).map(|(_, asked)| asked).collect()
    }

    /// What was rejected is not answered otherwise.
    fn rejected(&self, header: &[u8]) -> Option<u32> {
        let bhs = Bhs::parse(header).ok()?;
        let of_task = matches!(bhs.opcode(), Opcode::DATA_OUT | Opcode::SNACK);
        let tag = bhs.initiator_task_tag;
        (!of_task && self.asked.contains_key(&tag)).then_some(tag)
    }
}

/// Whether a command that ended GOOD moved what it should, but for what the residual says.
fn check_good<T: Debug>(asked: &Asked<T>, residual: Residual) -> Result<(), Fault> {
    let order = asked.order().expect("a command");
    let (expected, moved) = (order.expected, asked.moved);
    let open: u32 = asked.granted.values().map(|(left, _)| left).sum();
    let is_right = match residual {
        Residual::None => moved == expected && open == 0,
        Residual::Underflow(less) if order.flags.is_read() => {
            moved.checked_add(less) == Some(expected)
        }
        // More than is needed may have come with the command.
        Residual::Underflow(less) => less <= expected && moved >= expected - less && open == 0,
        // Nothing moves where a host has the direction wrong.
        Residual::Overflow(_) if order.flags.is_read() => moved == expected,
        Residual::Overflow(_) => true,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("GOOD with {residual:?} for {asked:?}").into()),
    }
}

fn unasked(said: &Said) -> Fault {
    Fault::Broken(format!("an answer to nothing: {}", said.pdu()))
}

#[cfg(test)]
mod tests {
    use wire::iscsi::{
        Digests, LoginFlags, LogoutReason, LogoutResponse, NopIn, NopOut, TaskManagementResponse,
    };
    use wire::scsi::{AdditionalSense, Cdb, Sense};

    use super::super::host::Order;
    use super::super::{seal, text};
    use super::*;

    const NONE: Digests = Digests::NONE;
    const STAT_SN: u32 = 100;
    const TAG: u32 = 1;

    /// A host that is logged in, takes 4096 bytes a PDU and 8192 a sequence.
    fn host() -> Host<()> {
        let mut host = Host::new([1; 6], 7);
        let sent = host.log_in(
            "iqn.a:b",
            Some("iqn.a:c"),
            &[("MaxRecvDataSegmentLength", "4096"), ("MaxBurstLength", "8192")],
            (),
        );
        let request = wire::iscsi::LoginRequest::parse(&sent).expect("a login request");
        let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
        let answer = text(&[("MaxBurstLength", "8192"), ("InitialR2T", "No")]);
        let numbers = TargetNumbers { stat_sn: STAT_SN - 1, exp_cmd_sn: 7, max_cmd_sn: 20 };
        let response = LoginResponse::new(&request, flags, 9, answer.len() as u32, numbers);
        host.hear(&seal(&response.emit(), &answer, NONE));
        let heard = host.next().expect("a right answer").expect("a whole PDU");
        assert!(heard.ended.is_some() && host.is_logged_in && host.tsih == 9);
        host
    }

    fn reads(bytes: u32) -> Host<()> {
        let mut host = host();
        assert_eq!(host.command(Order::read(3, Cdb::read_10(0, 1), bytes), &[], ()).0, TAG);
        host
    }

    fn writes(bytes: u32) -> Host<()> {
        let mut host = host();
        host.command(Order::write(3, Cdb::write_10(0, 1, false), bytes), &[], ());
        host
    }

    fn numbers(step: u32) -> TargetNumbers {
        TargetNumbers { stat_sn: STAT_SN + step, exp_cmd_sn: 8, max_cmd_sn: 20 }
    }

    fn data(sn: u32, offset: u32, length: u32, ends: bool) -> Vec<u8> {
        let header = DataIn::new(TAG, sn, offset, length, ends, numbers(0));
        seal(&header.emit(), &vec![0; length as usize], NONE)
    }

    fn last(sn: u32, offset: u32, length: u32, residual: Residual) -> Vec<u8> {
        let header = DataIn::new(TAG, sn, offset, length, true, numbers(0));
        let header = header.with_status(0, residual, STAT_SN);
        seal(&header.emit(), &vec![0; length as usize], NONE)
    }

    fn response(status: ScsiStatus, exp_data_sn: u32, step: u32) -> Vec<u8> {
        let residual = Residual::None;
        let header = ScsiResponse::new(TAG, status.0, residual, exp_data_sn, 0, numbers(step));
        header.emit().to_vec()
    }

    fn r2t(sn: u32, transfer: u32, offset: u32, length: u32) -> Vec<u8> {
        let lun = wire::scsi::Lun::of(3).0;
        R2t::new(lun, TAG, transfer, sn, offset, length, numbers(0)).emit().to_vec()
    }

    fn is_broken(mut host: Host<()>, pdus: &[Vec<u8>]) -> bool {
        host.hear(&pdus.concat());
        loop {
            match host.next() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(Fault::Broken(_)) => return true,
                Err(why) => panic!("{why:?}"),
            }
        }
    }

    #[test]
    fn a_command_is_answered_once_and_with_all_its_data() {
        let none = Residual::None;
        assert!(!is_broken(reads(6144), &[data(0, 0, 4096, false), last(1, 4096, 2048, none)]));
        let twice = [last(0, 0, 4096, none), response(ScsiStatus::GOOD, 1, 1)];
        assert!(is_broken(reads(4096), &twice));
        assert!(is_broken(reads(4096), &[response(ScsiStatus::GOOD, 0, 0)]), "no data came");
        assert!(is_broken(reads(4096), &[last(0, 0, 2048, none)]), "half of it came");
        assert!(!is_broken(reads(4096), &[last(0, 0, 2048, Residual::Underflow(2048))]));
        assert!(!is_broken(reads(2048), &[last(0, 0, 2048, Residual::Overflow(2048))]));
        assert!(!is_broken(reads(4096), &[response(ScsiStatus::BUSY, 0, 0)]));
    }

    #[test]
    fn data_come_in_order_in_segments_and_sequences_that_were_agreed_on() {
        let none = Residual::None;
        assert!(is_broken(reads(8192), &[data(1, 0, 4096, false)]), "DataSN");
        assert!(is_broken(reads(8192), &[data(0, 4096, 4096, false)]), "offset");
        assert!(is_broken(reads(8192), &[data(0, 0, 4100, false)]), "longer than the host takes");
        assert!(is_broken(reads(4096), &[data(0, 0, 4096, false), data(1, 4096, 4, false)]));
        let whole = [data(0, 0, 4096, false), data(1, 4096, 4096, true), last(2, 8192, 4, none)];
        assert!(!is_broken(reads(8196), &whole));
        let unended = [data(0, 0, 4096, false), data(1, 4096, 4096, false)];
        assert!(is_broken(reads(8196), &unended), "a sequence ends at MaxBurstLength");
        assert!(is_broken(writes(4096), &[data(0, 0, 512, false)]), "it reads nothing");
    }

    #[test]
    fn r2ts_come_in_order_one_at_a_time_within_what_is_written() {
        assert!(!is_broken(writes(8192), &[r2t(0, 5, 0, 8192)]));
        assert!(is_broken(writes(8192), &[r2t(1, 5, 0, 512)]), "R2TSN");
        assert!(is_broken(writes(8192), &[r2t(0, 5, 512, 512)]), "offset");
        assert!(is_broken(writes(512), &[r2t(0, 5, 0, 1024)]), "more than there is");
        assert!(is_broken(writes(16_384), &[r2t(0, 5, 0, 8196)]), "beyond MaxBurstLength");
        assert!(is_broken(writes(512), &[r2t(0, RESERVED_TAG, 0, 512)]));
        assert!(is_broken(writes(8192), &[r2t(0, 5, 0, 512), r2t(1, 6, 512, 512)]), "two are out");
        assert!(is_broken(reads(512), &[r2t(0, 5, 0, 512)]));
        let mut host = writes(8192);
        host.hear(&r2t(0, 5, 0, 4096));
        let Ok(Some(Heard { said: Said::R2t(asked), .. })) = host.next() else { panic!("no R2T") };
        host.give_all(&asked, &[0; 4096], 1024);
        host.hear(&r2t(1, 6, 4096, 4096));
        assert!(host.next().is_ok());
        assert!(is_broken(host, &[response(ScsiStatus::GOOD, 2, 0)]), "its data are not all there");
    }

    #[test]
    fn statuses_are_counted_without_a_gap() {
        let good = |exp, step| response(ScsiStatus::BUSY, exp, step);
        assert!(is_broken(reads(512), &[good(0, 1)]));
        assert!(!is_broken(reads(512), &[good(0, 0)]));
        let ping = |step| NopIn::ping([0; 8], 77, numbers(step)).emit().to_vec();
        assert!(!is_broken(reads(512), &[ping(0), ping(0), good(0, 0)]), "a question has none");
        assert!(is_broken(reads(512), &[ping(1)]));
    }

    #[test]
    fn the_window_never_goes_back() {
        let pings = |exp_cmd_sn, max_cmd_sn| {
            let numbers = TargetNumbers { stat_sn: STAT_SN, exp_cmd_sn, max_cmd_sn };
            NopIn::ping([0; 8], RESERVED_TAG, numbers).emit().to_vec()
        };
        assert!(!is_broken(reads(512), &[pings(8, 20), pings(8, 21)]));
        assert!(is_broken(reads(512), &[pings(8, 19)]));
        assert!(is_broken(reads(512), &[pings(8, 20), pings(7, 20)]));
        assert!(is_broken(reads(512), &[pings(9, 20)]), "beyond what was sent");
        assert!(is_broken(reads(512), &[pings(8, 6)]));
    }

    #[test]
    fn nothing_of_a_task_is_heard_behind_the_end_of_it() {
        for function in [TaskFunction::ABORT_TASK, TaskFunction::LOGICAL_UNIT_RESET] {
            let mut host = reads(512);
            let lun = wire::scsi::Lun::of(3).0;
            let (tag, _) = host.manage(function, lun, Some(TAG), ());
            let done = TaskManagementResponse::new(tag, TaskResponse::COMPLETE, numbers(0));
            host.hear(&done.emit());
            let heard = host.next().expect("a right answer").expect("a whole PDU");
            assert_eq!(heard.aborted.len(), 1);
            assert!(is_broken(host, &[response(ScsiStatus::BUSY, 0, 1)]), "{function}");
        }
        let mut host = reads(512);
        let (tag, _) = host.logout(LogoutReason::CLOSE_SESSION, ());
        let out = LogoutResponse::new(tag, LogoutResponseCode::CLOSED, numbers(0));
        host.hear(&out.emit());
        let heard = host.next().expect("a right answer").expect("a whole PDU");
        assert!(host.is_over() && heard.aborted.len() == 1);
        assert!(is_broken(host, &[response(ScsiStatus::BUSY, 0, 1)]));
    }

    #[test]
    fn a_check_condition_has_sense_data() {
        let failed = |data: &[u8]| {
            let status = ScsiStatus::CHECK_CONDITION.0;
            let length = data.len() as u32;
            let none = Residual::Underflow(512);
            let header = ScsiResponse::new(TAG, status, none, 0, length, numbers(0));
            seal(&header.emit(), data, NONE)
        };
        assert!(is_broken(reads(512), &[failed(&[])]));
        let sense = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE).emit(false);
        let mut data = (sense.len() as u16).to_be_bytes().to_vec();
        data.extend(sense);
        assert!(!is_broken(reads(512), &[failed(&data)]));
    }

    #[test]
    fn the_data_of_a_nop_come_back() {
        for (back, right) in [(4096, true), (4095, false), (0, false)] {
            let mut host = host();
            let sent = vec![0x5a; 5000];
            let (tag, bytes) = host.nop(&sent, ());
            let nop = NopOut::parse(&bytes).expect("a NOP-Out");
            assert_eq!(nop.initiator_task_tag, tag);
            let now = TargetNumbers { exp_cmd_sn: 7, ..numbers(0) };
            let pong = NopIn::pong(&nop, back, now);
            let pong = seal(&pong.emit(), &sent[..back as usize], NONE);
            assert_eq!(is_broken(host, &[pong]), !right, "{back}");
        }
    }

    #[test]
    fn a_lenient_host_hears_whatever_parses_and_bears_the_right_numbers() {
        let pdus = [data(5, 4096, 512, false), r2t(7, 1, 9, 9), response(ScsiStatus::GOOD, 9, 0)];
        for lenient in [false, true] {
            let mut host = reads(512);
            host.lenient = lenient;
            assert_eq!(is_broken(host, &pdus), !lenient);
        }
        let mut host = reads(512);
        host.lenient = true;
        assert!(is_broken(host, &[response(ScsiStatus::GOOD, 9, 1)]));
    }

    #[test]
    fn garbled_bytes_are_told_from_broken_rules() {
        let mut host = host();
        host.agreed.digests = Digests { header: true, data: true };
        host.hear(&NopIn::ping([0; 8], RESERVED_TAG, numbers(0)).emit());
        host.hear(&[0; 4]);
        assert!(matches!(host.next(), Err(Fault::Garbled(_))), "a wrong digest");
        let mut host = Host::<()>::new([1; 6], 7);
        host.hear(&[0x3f; 48]);
        assert!(matches!(host.next(), Err(Fault::Garbled(_)) | Ok(None)));
    }
}
