//! The data path against a target that the test plays PDU by PDU: what only a peculiar or hostile
//! target does, and every way in which data may leave.

use core::time::Duration;

use block::{Failure, Memory, Operation, Outcome};
use contract::Next;
use wire::iscsi::{
    AsyncEvent, AsyncMessage, DataIn, DataOut, Digests, NopIn, Pdu, R2t, RESERVED_TAG, Reject,
    RejectReason, Residual, ScsiResponse,
};
use wire::scsi::{AdditionalSense, OpCode, ScsiStatus, Sense, SenseKey};

use super::fixtures::{ALL_DIGESTS, BOTH, pattern};
use super::played::{Played, USUAL};
use crate::limits::{ANSWERS_PER_SHARE, PONGS_MAX};

impl Played {
    /// Data of a read, as bytes; `ends` with a status.
    fn data(&mut self, tag: u32, data_sn: u32, offset: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
        let numbers = self.numbers;
        let header = DataIn::new(tag, data_sn, offset, bytes.len() as u32, ends, numbers);
        let header = match ends {
            true => header.with_status(0, Residual::None, self.status().stat_sn),
            false => header,
        };
        self.seal(&header.emit(), bytes)
    }

    fn grant(&mut self, tag: u32, transfer: u32, sn: u32, offset: u32, length: u32) -> Vec<u8> {
        let lun = wire::scsi::Lun::of(super::fixtures::LUN).0;
        let r2t = R2t::new(lun, tag, transfer, sn, offset, length, self.numbers);
        self.seal(&r2t.emit(), &[])
    }

    /// The next Data-Out and its data.
    fn hear_data(&mut self) -> (DataOut, Vec<u8>) {
        match self.hear() {
            (Pdu::DataOut(header), data) => (header, data),
            (other, _) => panic!("expected Data-Out, heard {other}"),
        }
    }

    /// Why the session ended, after bytes that broke a rule.
    fn broke(&mut self, bytes: &[u8]) -> String {
        self.receive(bytes);
        self.settle();
        assert!(self.closes, "the session goes on: {}", self.initiator.state());
        self.initiator.state()
    }
}

#[test]
fn data_leave_as_the_four_ways_of_the_negotiation_have_it() {
    for digests in [Digests::NONE, BOTH] {
        for (keys, immediate, unasked) in [
            ("InitialR2T=Yes ImmediateData=Yes", 4096, 4096),
            ("InitialR2T=No ImmediateData=Yes", 4096, 12_288),
            ("InitialR2T=No ImmediateData=No", 0, 12_288),
            ("InitialR2T=Yes ImmediateData=No", 0, 0),
        ] {
            let results = format!(
                "{keys} FirstBurstLength=12288 MaxBurstLength=16384 MaxRecvDataSegmentLength=4096"
            );
            let mut played = Played::live(digests, &results);
            let bytes = pattern(32_768, 3);
            played.write(1, &bytes, false);
            let (pdu, mut sent) = played.hear();
            let Pdu::ScsiCommand(command) = pdu else { panic!("{pdu}") };
            assert_eq!(command.expected_data_transfer_length, 32_768);
            assert!(command.flags.is_write() && !command.flags.is_read());
            assert_eq!(sent.len(), immediate, "{keys}");
            assert_eq!(command.flags.is_final(), unasked == immediate, "{keys}");
            let mut data_sn = 0;
            while sent.len() < unasked {
                let (header, data) = played.hear_data();
                let at = (header.buffer_offset as usize, header.data_sn);
                assert_eq!(at, (sent.len(), data_sn));
                assert_eq!(header.target_transfer_tag, RESERVED_TAG);
                sent.extend(data);
                data_sn += 1;
                assert_eq!(header.flags.is_final(), sent.len() == unasked);
            }
            assert!(played.is_quiet(), "{keys}: no more unasked");
            // The rest in as many bursts as it takes.
            let tag = command.initiator_task_tag;
            let (mut transfer, mut r2t_sn) = (70, 0);
            while sent.len() < bytes.len() {
                let length = (bytes.len() - sent.len()).min(16_384);
                let grant = played.grant(tag, transfer, r2t_sn, sent.len() as u32, length as u32);
                played.say_all(&grant);
                let end = sent.len() + length;
                let mut data_sn = 0;
                while sent.len() < end {
                    let (header, data) = played.hear_data();
                    assert_eq!((header.target_transfer_tag, header.data_sn), (transfer, data_sn));
                    assert_eq!(header.buffer_offset as usize, sent.len());
                    assert!(data.len() <= 4096);
                    sent.extend(data);
                    data_sn += 1;
                    assert_eq!(header.flags.is_final(), sent.len() == end);
                }
                (transfer, r2t_sn) = (transfer + 1, r2t_sn + 1);
            }
            assert!(sent == bytes, "{keys}");
            played.end(tag, ScsiStatus::GOOD, None);
            assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
        }
    }
}

#[test]
fn a_write_within_the_first_burst_needs_no_grant() {
    let mut played = Played::live(BOTH, USUAL);
    let bytes = pattern(8192, 1);
    played.write(1, &bytes, false);
    let (cdb, tag, data) = played.hear_command();
    assert_eq!((cdb.opcode(), cdb.blocks(), cdb.fua()), (OpCode::WRITE_10, 16, false));
    assert!(data == bytes && played.is_quiet());
    played.end(tag, ScsiStatus::GOOD, None);
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
}

#[test]
fn a_status_in_the_last_data_completes_a_read() {
    for digests in ALL_DIGESTS {
        let mut played = Played::live(digests, USUAL);
        played.read(1, 1024);
        let (cdb, tag, _) = played.hear_command();
        assert_eq!((cdb.opcode(), cdb.blocks()), (OpCode::READ_10, 2));
        // Of a length that needs padding.
        let mut pdus = played.data(tag, 0, 0, &[1; 511], false);
        pdus.extend(played.data(tag, 1, 511, &[2; 513], true));
        played.say_all(&pdus);
        let done = played.done().expect("it is complete");
        assert_eq!(done.outcome, Outcome::Done);
        let mut bytes = [0; 1024];
        played.memory.read(&done.buffer, 0, &mut bytes);
        assert_eq!((bytes[510], bytes[511]), (1, 2));
    }
}

#[test]
fn answers_are_taken_a_share_at_a_time_so_that_those_above_go_on_between() {
    let answers = 2 * ANSWERS_PER_SHARE + 1;
    let mut played = Played::live(Digests::NONE, USUAL);
    (0..answers).for_each(|slot| played.read(slot, 512));
    let mut stream = Vec::new();
    for byte in 0..answers {
        let (_, tag, _) = played.hear_command();
        stream.extend(played.data(tag, 0, 0, &[byte as u8; 512], true));
    }
    let length = stream.len() / answers as usize;
    let (mut at, mut shares) = (0, Vec::new());
    loop {
        let shown = played.receive(&stream[at..]);
        at += shown.consumed;
        let done = core::iter::from_fn(|| played.done());
        shares.push(done.inspect(|done| assert_eq!(done.outcome, Outcome::Done)).count() as u32);
        assert_eq!(at, length * shares.iter().sum::<u32>() as usize, "nothing is held back");
        if !matches!(shown.next, Next::Yield) {
            assert!(matches!(shown.next, Next::Idle), "{:?}", shown.next);
            break;
        }
    }
    assert_eq!(shares, [ANSWERS_PER_SHARE, ANSWERS_PER_SHARE, 1]);
}

#[test]
fn a_response_twice_finds_nothing_even_when_the_slot_is_used_again() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.ask(1, Operation::Flush);
    let (cdb, tag, _) = played.hear_command();
    assert_eq!(cdb.opcode(), OpCode::SYNCHRONIZE_CACHE_10);
    played.end(tag, ScsiStatus::GOOD, None);
    assert!(played.done().is_some());
    played.ask(2, Operation::Flush);
    played.hear_command();
    let again = played.ending(tag, ScsiStatus::GOOD, None);
    assert!(played.broke(&again).contains("a tag of a task that is under way"));
}

#[test]
fn a_response_twice_while_the_payload_is_out_finds_nothing() {
    for status in [ScsiStatus::GOOD, ScsiStatus::TASK_SET_FULL] {
        let mut played = Played::live(Digests::NONE, USUAL);
        played.write(1, &[1; 512], false);
        let now = played.now;
        played.initiator.settle(now, &mut played.memory);
        let Some(contract::StreamEffect::Send { batch, .. }) = played.initiator.poll_effect()
        else {
            panic!("it sends")
        };
        let bytes = testkit::pipe::bytes_of(&batch, &played.memory);
        let tag = wire::iscsi::Bhs::parse(&bytes).expect("a command").initiator_task_tag;
        played.numbers.exp_cmd_sn += 1;
        let first = played.ending(tag, status, None);
        played.receive(&first);
        assert!(played.initiator.poll_completion().is_none(), "the payload is awaited");
        let second = played.ending(tag, status, None);
        assert!(played.broke(&second).contains("a tag of a task that is under way"));
        let id = played.connection;
        played.initiator.handle_closed(now, id, None, Some(batch));
        let done = played.initiator.poll_completion().map(|done| done.outcome);
        assert_eq!(done, (status == ScsiStatus::GOOD).then_some(Outcome::Done));
    }
}

#[test]
fn a_command_that_succeeds_without_all_its_data_is_never_done() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 1024);
    let (_, tag, _) = played.hear_command();
    let mut pdus = played.data(tag, 0, 0, &[1; 512], false);
    pdus.extend(played.ending(tag, ScsiStatus::GOOD, None));
    assert!(played.broke(&pdus).contains("moves all its data"));
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[1; 1024], false);
    let (_, tag, _) = played.hear_command();
    let numbers = played.status();
    let response = ScsiResponse::new(tag, 0, Residual::Underflow(512), 0, 0, numbers).emit();
    assert!(played.broke(&response).contains("moves all its data"));
}

#[test]
fn read_data_out_of_order_or_range_end_the_session() {
    for (data_sn, offset, length) in [(0, 512, 512), (1, 0, 512), (0, 0, 1536)] {
        let mut played = Played::live(Digests::NONE, USUAL);
        played.read(1, 1024);
        let (_, tag, _) = played.hear_command();
        let pdu = played.data(tag, data_sn, offset, &vec![0; length], false);
        assert!(played.broke(&pdu).contains("in order and within"), "{data_sn} {offset} {length}");
    }
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[1; 512], false);
    let (_, tag, _) = played.hear_command();
    let pdu = played.data(tag, 0, 0, &[0; 512], false);
    assert!(played.broke(&pdu).contains("reads none"));
    // Nothing in it, and it ends nothing.
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 512);
    let (_, tag, _) = played.hear_command();
    let pdu = played.data(tag, 0, 0, &[], false);
    assert!(played.broke(&pdu).contains("data in a Data-In"));
}

#[test]
fn a_wrong_data_digest_has_the_read_asked_again_and_in_the_end_it_is_a_medium_error() {
    let mut played = Played::live(Digests { header: false, data: true }, USUAL);
    played.read(1, 512);
    for round in 0..8 {
        let (_, tag, _) = played.hear_command();
        let mut pdu = played.data(tag, 0, 0, &[1; 512], true);
        *pdu.last_mut().expect("a digest") ^= 1;
        played.say_all(&pdu);
        if round < 7 {
            assert!(played.done().is_none());
            played.pass(played.now + Duration::from_secs(1));
        }
    }
    let done = played.done().expect("tries run out");
    assert_eq!(done.outcome, Outcome::NotDone(Failure::MediumRead));
}

#[test]
fn a_wrong_header_digest_or_one_of_other_data_ends_the_session() {
    let mut played = Played::live(BOTH, USUAL);
    played.read(1, 512);
    let (_, tag, _) = played.hear_command();
    let mut pdu = played.data(tag, 0, 0, &[1; 512], true);
    pdu[40] ^= 1;
    assert!(played.broke(&pdu).contains("header digest"));
    let mut played = Played::live(BOTH, USUAL);
    played.read(1, 512);
    let (_, tag, _) = played.hear_command();
    let sense = Sense::new(SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR);
    let mut pdu = played.ending(tag, ScsiStatus::CHECK_CONDITION, Some(sense));
    *pdu.last_mut().expect("a digest") ^= 1;
    assert!(played.broke(&pdu).contains("the data digest of a SCSI Response was wrong"));
}

#[test]
fn several_r2ts_at_once_are_answered_in_order_when_the_payload_is_at_home() {
    let results = "InitialR2T=Yes ImmediateData=No FirstBurstLength=8192 MaxBurstLength=8192 \
                   MaxOutstandingR2T=2 MaxRecvDataSegmentLength=8192";
    let mut played = Played::live(Digests::NONE, results);
    let bytes = pattern(16_384, 1);
    played.write(1, &bytes, false);
    let (_, tag, _) = played.hear_command();
    let mut grants = played.grant(tag, 7, 0, 0, 8192);
    grants.extend(played.grant(tag, 8, 1, 8192, 8192));
    played.say_all(&grants);
    for (transfer, range) in [(7, 0..8192), (8, 8192..16_384)] {
        let (header, data) = played.hear_data();
        assert_eq!(header.target_transfer_tag, transfer);
        assert!(data == bytes[range]);
    }
}

#[test]
fn r2ts_beyond_the_command_or_out_of_order_or_too_many_end_the_session() {
    let wide = "InitialR2T=Yes ImmediateData=No MaxBurstLength=8192 MaxOutstandingR2T=1";
    for (sn, offset, length, rule) in [
        (0, 0, 0, "1 to MaxBurstLength"),
        (0, 4096, 4096, "in order"),
        (1, 0, 4096, "in order"),
        (0, 0, 16_384, "1 to MaxBurstLength"),
        (0, 0, 65_536, "within the command"),
    ] {
        let mut played = Played::live(Digests::NONE, wide);
        played.write(1, &[1; 16_384], false);
        let (_, tag, _) = played.hear_command();
        let grant = played.grant(tag, 1, sn, offset, length);
        let why = played.broke(&grant);
        assert!(why.contains(rule), "{sn} {offset} {length}: {why}");
    }
    // What came with the command is not asked for again.
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[1; 8192], false);
    let (_, tag, _) = played.hear_command();
    let grant = played.grant(tag, 1, 0, 0, 4096);
    assert!(played.broke(&grant).contains("in order and within"));
    // Nor is anything of a read.
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 8192);
    let (_, tag, _) = played.hear_command();
    let grant = played.grant(tag, 1, 0, 0, 4096);
    assert!(played.broke(&grant).contains("in order and within"));
}

#[test]
fn a_large_read_goes_straight_into_its_buffer_and_a_break_returns_it() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 131_072);
    let (_, tag, _) = played.hear_command();
    let pdu = played.data(tag, 0, 0, &vec![5; 131_072], true);
    let receive = played.receive(&pdu[..48 + 100]);
    assert_eq!(receive.consumed, 148);
    let Next::Direct(direct) = receive.next else { panic!("{:?}", receive.next) };
    assert_eq!((direct.at, direct.length), (100, 131_072 - 100));
    let (now, id) = (played.now, played.connection);
    played.initiator.handle_lost(now, id, contract::Loss::EndOfStream);
    played.settle();
    played.initiator.handle_closed(now, id, Some(direct), None);
    played.rest();
    played.bring_up(USUAL);
}

#[test]
fn a_session_that_ends_behind_a_large_read_gives_its_buffer_back() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 131_072);
    let (_, tag, _) = played.hear_command();
    let numbers = played.status();
    let logout =
        wire::iscsi::LogoutResponse::new(9, wire::iscsi::LogoutResponseCode::CLOSED, numbers);
    let mut pdus = logout.emit().to_vec();
    pdus.extend(&played.data(tag, 0, 0, &vec![5; 131_072], true)[..148]);
    assert!(played.broke(&pdus).contains("logged us out"));
    played.shut();
    played.rest();
    played.bring_up(USUAL);
    let (cdb, ..) = played.hear_command();
    assert_eq!(cdb.opcode(), OpCode::READ_10, "it is asked again, with its buffer");
}

#[test]
fn commands_wait_for_the_window_of_the_target() {
    let mut played = Played::new(Digests::NONE);
    played.window = 2;
    played.bring_up(USUAL);
    (0..4).for_each(|slot| played.ask(slot, Operation::Flush));
    let (_, first, _) = played.hear_command();
    let (_, second, _) = played.hear_command();
    assert!(played.is_quiet(), "beyond MaxCmdSN nothing is sent");
    // An answer opens the window, and so does a NOP-In that is nothing else.
    played.end(first, ScsiStatus::GOOD, None);
    let (_, third, _) = played.hear_command();
    let (_, fourth, _) = played.hear_command();
    for tag in [second, third, fourth] {
        played.end(tag, ScsiStatus::GOOD, None);
    }
    assert_eq!(core::iter::from_fn(|| played.done()).count(), 4);
    played.window = 0;
    played.say(&NopIn::ping([0; 8], RESERVED_TAG, played.numbers).emit(), &[]);
    let numbers = played.status();
    let closed = AsyncMessage::new(AsyncEvent::VENDOR, [0; 3], numbers);
    played.say(&closed.emit(), &[]);
    (0..2).for_each(|slot| played.ask(slot, Operation::Flush));
    // What was open once stays open: MaxCmdSN never goes back.
    played.hear_command();
    played.hear_command();
}

#[test]
fn questions_of_the_target_are_answered_as_often_as_it_takes_answers() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.say(&NopIn::ping([1; 8], 77, played.numbers).emit(), &[]);
    let (pdu, _) = played.hear();
    let Pdu::NopOut(pong) = pdu else { panic!("{pdu}") };
    assert_eq!((pong.target_transfer_tag, pong.lun), (77, [1; 8]));
    assert_eq!(pong.initiator_task_tag, RESERVED_TAG);
    let ping = NopIn::ping([1; 8], 77, played.numbers).emit();
    let many: Vec<u8> = (0..=PONGS_MAX).flat_map(|_| ping).collect();
    assert!(played.broke(&many).contains("signs of life"));
}

#[test]
fn what_ends_a_session_is_told_in_the_targets_words() {
    let mut played = Played::live(Digests::NONE, USUAL);
    let numbers = played.status();
    let drop = AsyncMessage::new(AsyncEvent::SESSION_DROP, [0, 2, 0], numbers);
    assert!(played.broke(&drop.emit()).contains("target will drop the session"));
    let mut played = Played::live(Digests::NONE, USUAL);
    played.read(1, 512);
    let (pdu, _) = played.hear();
    let numbers = played.status();
    let reject = Reject::new(RejectReason::PROTOCOL_ERROR, 48, numbers).emit();
    let bytes = played.seal(&reject, &pdu.emit());
    let why = played.broke(&bytes);
    assert!(why.contains("the target rejected a SCSI Command: protocol error"), "{why}");
    let mut played = Played::live(Digests::NONE, USUAL);
    let mut skipped = AsyncMessage::new(AsyncEvent::VENDOR, [0; 3], played.status());
    skipped.stat_sn += 1;
    assert!(played.broke(&skipped.emit()).contains("no status is missing"));
}

#[test]
fn no_bytes_make_a_session_panic() {
    let mut random = block::random::Random::new(11);
    for round in 0..1500 {
        let digests = ALL_DIGESTS[round % 4];
        let mut played = Played::live(digests, USUAL);
        played.read(1, 4096);
        played.write(2, &[1; 65_536], false);
        let (_, read, _) = played.hear_command();
        let (_, write, _) = played.hear_command();
        let mut pdus = played.data(read, 0, 0, &[1; 4096], false);
        pdus.extend(played.grant(write, 3, 0, 8192, 4096));
        pdus.extend(played.ending(read, ScsiStatus::GOOD, None));
        pdus.extend(played.ending(write, ScsiStatus::GOOD, None));
        for _ in 0..1 + random.below(4) {
            let at = random.below(pdus.len() as u64) as usize;
            pdus[at] = random.next_u64() as u8;
        }
        let mut at = 0;
        while at < pdus.len() && !played.closes {
            let receive = played.receive(&pdus[at..]);
            at += receive.consumed;
            played.settle();
            if receive.consumed == 0 || matches!(receive.next, Next::Direct(_)) {
                break;
            }
        }
    }
}
