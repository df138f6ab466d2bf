//! `plateway dissect`: a capture made here, with segments split, repeated and out of order.

#[allow(unreachable_pub)]
mod common;

use std::path::Path;

use common::{flat, plateway, text};
use serde_json::Value;
use wire::aoe::{
    Address, AtaArgument, Command as AoeCommand, ConfigArgument, ConfigCommand, Header,
};
use wire::ata::Opcode;
use wire::iscsi::keys::{Key, push};
use wire::iscsi::{
    DataIn, Digests as IscsiDigests, InitiatorNumbers, LoginFlags, LoginRequest, LoginResponse,
    Residual, ScsiCommand, ScsiCommandFlags, ScsiResponse, Stage, TargetNumbers, padding,
};
use wire::nvme::fabrics::{Connect, ConnectAttributes, ConnectData};
use wire::nvme::{Command, Completion, Nqn, Status};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, DataHeader, Digests, ICReq, ICResp, PduFlags,
};
use wire::scsi::{AdditionalSense, Cdb, Lun, ScsiStatus, Sense};

const HOST: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
const TARGET: [u8; 4] = [10, 0, 0, 2];

const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A classic capture, little-endian with nanoseconds; time goes on by 100 microseconds a packet.
struct File {
    bytes: Vec<u8>,
    time_us: u32,
}

impl File {
    fn new(link: u32) -> File {
        let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 1 << 18, link];
        File { bytes: words.into_iter().flat_map(u32::to_le_bytes).collect(), time_us: 0 }
    }

    fn packet(&mut self, parts: &[&[u8]]) {
        let packet = parts.concat();
        let length = packet.len() as u32;
        let words = [1_700_000_000, self.time_us * 1000, length, length];
        self.bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        self.bytes.extend(packet);
        self.time_us += 100;
    }
}

/// A capture of one connection.
struct Capture {
    file: File,
    next: [u32; 2],
    /// The target's.
    port: u16,
}

impl Capture {
    fn new() -> Capture {
        Capture::of(4420)
    }

    fn of(port: u16) -> Capture {
        Capture { file: File::new(RAW), next: [1_000, u32::MAX - 200], port }
    }

    /// Sends bytes in order.
    fn send(&mut self, from_host: bool, payload: &[u8]) {
        let sequence = self.next[usize::from(from_host)];
        self.next[usize::from(from_host)] = sequence.wrapping_add(payload.len() as u32);
        self.segment(from_host, sequence, ACK, payload);
    }

    fn segment(&mut self, from_host: bool, sequence: u32, flags: u8, payload: &[u8]) {
        let target = (TARGET, self.port);
        let (source, destination) = if from_host { (HOST, target) } else { (target, HOST) };
        let length = (40 + payload.len()) as u16;
        let ip = [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0, 0, 64, 6, 0, 0]].concat();
        let ports = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
        let tcp = [&ports, &sequence.to_be_bytes()[..], &[0; 4], &[0x50, flags, 0xff, 0xff]];
        let tcp = [&tcp.concat()[..], &[0; 4]].concat();
        self.file.packet(&[&ip, &source.0, &destination.0, &tcp, payload]);
    }
}

fn response(command_id: u16) -> [u8; 24] {
    let completion = Completion::new(command_id, Status::SUCCESS);
    CapsuleResponse::new(completion, Digests::NONE).emit()
}

/// An I/O queue is connected and reads 4 KiB twice; the second answer succeeds without a capsule.
fn capture() -> Vec<u8> {
    let mut capture = Capture::new();
    let start = capture.next;
    capture.segment(true, start[1].wrapping_sub(1), SYN, &[]);
    capture.segment(false, start[0].wrapping_sub(1), SYN | ACK, &[]);
    capture.send(true, &ICReq::new(Digests::NONE, 0).emit());
    capture.send(false, &ICResp::new(Digests::NONE, 131_072).emit());
    let connect = Connect {
        record_format: 0,
        queue_id: 1,
        sq_size: 31,
        attributes: ConnectAttributes(0),
        keep_alive_ms: 0,
    };
    let mut pdu =
        CapsuleCommand::new(Command::connect(&connect), Digests::NONE, 1024).emit().to_vec();
    let data = ConnectData {
        host_id: [7; 16],
        controller_id: 1,
        subsystem: Nqn::new("nqn.2026-11.net.plateway:v0").unwrap(),
        host: Some(Nqn::new("nqn.2026-11.net.plateway:me").unwrap()),
    };
    pdu.extend(data.emit());
    // In three segments, the last two the wrong way round and one of them twice.
    let at = capture.next[1];
    capture.send(true, &pdu[..50]);
    capture.segment(true, at.wrapping_add(600), ACK, &pdu[600..]);
    capture.segment(true, at.wrapping_add(50), ACK, &pdu[50..600]);
    capture.segment(true, at.wrapping_add(50), ACK, &pdu[50..600]);
    capture.next[1] = at.wrapping_add(pdu.len() as u32);
    capture.send(false, &response(0));
    for (command_id, lba) in [(5, 8), (6, 16)] {
        let command = Command::read(1, lba, 8, 4096).with_command_id(command_id);
        capture.send(true, &CapsuleCommand::new(command, Digests::NONE, 0).emit());
    }
    let payload = [0x5a; 4096];
    let mut answer = DataHeader::c2h(5, 0, 4096, PduFlags::LAST, Digests::NONE).emit().to_vec();
    answer.extend(payload);
    answer.extend(response(5));
    let flags = PduFlags::LAST | PduFlags::SUCCESS;
    answer.extend(DataHeader::c2h(6, 0, 4096, flags, Digests::NONE).emit());
    answer.extend(payload);
    answer.chunks(1448).for_each(|part| capture.send(false, part));
    capture.file.bytes
}

fn dissect(directory: &Path, bytes: &[u8], args: &[&str]) -> (bool, String, String) {
    let file = directory.join("a.pcap");
    std::fs::write(&file, bytes).unwrap();
    let output = plateway().arg("dissect").arg(&file).args(args).output().expect("it runs");
    (output.status.success(), text(&output.stdout), flat(&output.stderr))
}

#[test]
fn each_pdu_is_a_line_and_answers_name_their_commands() {
    let directory = tempfile::tempdir().unwrap();
    let (good, lines, errors) = dissect(directory.path(), &capture(), &["--json"]);
    assert!(good, "{errors}");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let pdus: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["pdu"].as_str())
        .filter(|pdu| !pdu.is_empty())
        .collect();
    let expected = [
        "ICReq",
        "ICResp",
        "CapsuleCmd",
        "CapsuleResp",
        "CapsuleCmd",
        "CapsuleCmd",
        "C2HData",
        "CapsuleResp",
        "C2HData",
    ];
    assert_eq!(pdus, expected);
    let all = |part: &str| lines.iter().any(|line| line["text"].as_str().unwrap().contains(part));
    for part in ["qid 1", "nqn.2026-11.net.plateway:v0", "lba 8 blocks 8", "lba 16 blocks 8"] {
        assert!(all(part), "{part}: {lines:#?}");
    }
    let latencies: Vec<u64> = lines.iter().filter_map(|line| line["latency_ns"].as_u64()).collect();
    assert_eq!(latencies.len(), 3, "connect and two reads: {lines:#?}");
    assert!(latencies.iter().all(|ns| ns.is_multiple_of(100_000) && *ns > 0));
}

#[test]
fn lines_for_people_say_when_who_and_what() {
    let directory = tempfile::tempdir().unwrap();
    let (good, lines, errors) = dissect(directory.path(), &capture(), &[]);
    assert!(good, "{errors}");
    assert!(lines.contains("0.000200 c0 > ICReq"), "{lines}");
    assert!(lines.contains("0.000300 c0 < ICResp"), "{lines}");
    assert!(lines.contains(" after ") && lines.contains("9 PDUs"), "{lines}");
    let (_, other, _) = dissect(directory.path(), &capture(), &["--port", "1234"]);
    assert!(other.contains("0 PDUs"), "{other}");
}

#[test]
fn a_capture_with_a_hole_goes_on_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    let command = |id: u16| {
        let command = Command::read(1, u64::from(id), 8, 4096).with_command_id(id);
        CapsuleCommand::new(command, Digests::NONE, 0).emit()
    };
    // Begun in the middle: no SYN, and half a PDU first.
    capture.send(true, &command(1)[30..]);
    capture.send(true, &command(2));
    capture.send(false, &response(2));
    let (good, lines, errors) = dissect(directory.path(), &capture.file.bytes, &[]);
    assert!(good, "{errors}");
    assert!(lines.contains("expected a PDU"), "{lines}");
    assert!(lines.contains("cid 2 nsid 1 lba 2") && lines.contains("2 PDUs"), "{lines}");
}

/// A PDU of iSCSI as it is sent.
fn iscsi(header: [u8; 48], data: &[u8], digests: IscsiDigests) -> Vec<u8> {
    let mut pdu = header.to_vec();
    if digests.header {
        pdu.extend(block::checksum::crc32c(&header).to_le_bytes());
    }
    let mut data = data.to_vec();
    data.resize(data.len() + padding(data.len() as u32) as usize, 0);
    pdu.extend(&data);
    if digests.data && !data.is_empty() {
        pdu.extend(block::checksum::crc32c(&data).to_le_bytes());
    }
    pdu
}

/// A host logs in, reads 4 KiB and asks for a block that is not there.
fn iscsi_capture(port: u16, digests: IscsiDigests) -> Capture {
    const NONE: IscsiDigests = IscsiDigests::NONE;
    let (here, there) = (InitiatorNumbers::default(), TargetNumbers::default());
    let mut capture = Capture::of(port);
    let word = |is_on| if is_on { "CRC32C" } else { "None" };
    let mut offer = Vec::new();
    push(&mut offer, Key::InitiatorName.name(), "iqn.2026-11.net.plateway:me");
    push(&mut offer, Key::TargetName.name(), "iqn.2026-11.net.plateway:v0");
    push(&mut offer, Key::HeaderDigest.name(), "CRC32C,None");
    push(&mut offer, Key::DataDigest.name(), "None,CRC32C");
    let mut choice = Vec::new();
    push(&mut choice, Key::HeaderDigest.name(), word(digests.header));
    push(&mut choice, Key::DataDigest.name(), word(digests.data));
    let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
    let login = LoginRequest::new(flags, [0x80, 0, 0, 0, 0, 1], 0, 1, 1, offer.len() as u32, here);
    let pdu = iscsi(login.emit(), &offer, NONE);
    let start = capture.next;
    capture.segment(true, start[1].wrapping_sub(1), SYN, &[]);
    capture.segment(false, start[0].wrapping_sub(1), SYN | ACK, &[]);
    // In two segments, the last first.
    let at = start[1];
    capture.segment(true, at.wrapping_add(60), ACK, &pdu[60..]);
    capture.segment(true, at, ACK, &pdu[..60]);
    capture.next[1] = at.wrapping_add(pdu.len() as u32);
    let answer = LoginResponse::new(&login, flags, 7, choice.len() as u32, there);
    capture.send(false, &iscsi(answer.emit(), &choice, NONE));
    for (tag, lba) in [(5, 8), (6, 1 << 20)] {
        let (lun, flags) = (Lun::of(3).0, ScsiCommandFlags::READ);
        let cdb = Cdb::read_10(lba, 8).emit();
        let command = ScsiCommand::new(lun, tag, flags, cdb, 4096, 0, here);
        capture.send(true, &iscsi(command.emit(), &[], digests));
    }
    let good = ScsiStatus::GOOD.0;
    let data = DataIn::new(5, 0, 0, 4096, true, there).with_status(good, Residual::None, 1);
    let mut answers = iscsi(data.emit(), &[0x5a; 4096], digests);
    let sense = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE).emit(false);
    let sense = [&(sense.len() as u16).to_be_bytes()[..], &sense].concat();
    let status = ScsiStatus::CHECK_CONDITION.0;
    let refused =
        ScsiResponse::new(6, status, Residual::Underflow(4096), 0, sense.len() as u32, there);
    answers.extend(iscsi(refused.emit(), &sense, digests));
    answers.chunks(1448).for_each(|part| capture.send(false, part));
    capture
}

#[test]
fn pdus_of_iscsi_are_lines_whatever_digests_login_came_to() {
    let directory = tempfile::tempdir().unwrap();
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let digests = IscsiDigests { header, data };
        let capture = iscsi_capture(3260, digests);
        let (good, lines, errors) = dissect(directory.path(), &capture.file.bytes, &[]);
        assert!(good, "{errors}");
        for part in [
            "c0 > Login Request immediate [T operational negotiation to full feature phase]",
            "InitiatorName=iqn.2026-11.net.plateway:me, TargetName=iqn.2026-11.net.plateway:v0, HeaderDigest=CRC32C,None",
            "c0 < Login Response",
            "lun 3 itt 0x5",
            ": READ(10) lba 8 blocks 8\n",
            "to READ(10) lba 8 blocks 8 after 200",
            ", CHECK CONDITION, illegal request: logical block address out of range",
            "to READ(10) lba 1048576 blocks 8 after ",
            "6 PDUs",
        ] {
            assert!(lines.contains(part), "{digests:?} {part}: {lines}");
        }
        let (_, other, _) = dissect(directory.path(), &capture.file.bytes, &["--port", "4420"]);
        assert!(other.contains("0 PDUs"), "{other}");
    }
}

#[test]
fn a_login_is_known_on_whatever_port_and_digests_are_guessed_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let digests = IscsiDigests { header: true, data: true };
    let elsewhere = iscsi_capture(4420, digests).file.bytes;
    let (_, lines, _) = dissect(directory.path(), &elsewhere, &[]);
    assert!(lines.contains("Login Request") && lines.contains("6 PDUs"), "{lines}");
    let (_, lines, _) = dissect(directory.path(), &elsewhere, &["--port", "4420", "--json"]);
    let pdus = lines.lines().filter(|line| line.contains("\"pdu\":\"SCSI ")).count();
    assert_eq!(pdus, 4, "{lines}");
    for digests in [digests, IscsiDigests::NONE] {
        // Without the five packets up to the end of the login, each behind 16 bytes.
        let whole = iscsi_capture(3260, digests).file.bytes;
        let mut at = 24;
        for _ in 0..5 {
            let length = whole[at + 8..at + 12].try_into().expect("four bytes");
            at += 16 + u32::from_le_bytes(length) as usize;
        }
        let cut = [&whole[..24], &whole[at..]].concat();
        let (good, lines, errors) = dissect(directory.path(), &cut, &[]);
        assert!(good, "{errors}");
        assert!(lines.contains("to READ(10) lba 8 blocks 8"), "{lines}");
        assert!(lines.contains("illegal request") && lines.contains("4 PDUs"), "{lines}");
    }
}

#[test]
fn aoe_messages_are_lines_and_answers_name_their_latency() {
    let (host, target) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
    let mut file = File::new(ETHERNET);
    let mut frame = |to: [u8; 6], from: [u8; 6], tagged: bool, message: &[u8]| {
        let vlan: &[u8] = if tagged { &[0x81, 0, 0, 5] } else { &[] };
        file.packet(&[&to, &from, vlan, &[0x88, 0xa2], message]);
    };
    let any = Header::request(Address::ANY, AoeCommand::CONFIG, 0);
    let query = ConfigArgument::request(ConfigCommand::READ, 0);
    frame([0xff; 6], host, false, &[&any.emit()[..], &query.emit()].concat());
    let own = Address::new(7, 3);
    frame(host, target, false, &[&any.response(own).emit()[..], &query.emit()].concat());
    let read = Header::request(own, AoeCommand::ATA, 0x1234);
    let argument = AtaArgument::request(Opcode::READ_SECTORS_EXT, 40, 2, false);
    frame(target, host, true, &[&read.emit()[..], &argument.emit()].concat());
    let done = AtaArgument { count: 0, command_status: 0x40, ..argument };
    let answer = [&read.response(own).emit()[..], &done.emit(), &[7; 1024]].concat();
    frame(host, target, true, &answer);
    frame(host, target, false, &[0x18, 0, 0]);

    let directory = tempfile::tempdir().unwrap();
    let (good, lines, errors) = dissect(directory.path(), &file.bytes, &[]);
    assert!(good, "{errors}");
    for part in [
        "AoE of 02:00:00:00:00:01 to *.*",
        "0.000000 c0 > *.* Config tag 0x00000000: read",
        "0.000100 c1 < 7.3 Config tag 0x00000000 response",
        "c1 > 7.3 ATA tag 0x00001234: READ SECTORS EXT lba 40 count 2 E",
        "c1 < 7.3 ATA tag 0x00001234 response: status 0x40 DRDY left 0 data 1024 after 100",
        "length at byte 3",
        "5 packets",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    let (good, lines, errors) = dissect(directory.path(), &file.bytes, &["--json"]);
    assert!(good, "{errors}");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let latencies: Vec<u64> = lines.iter().filter_map(|line| line["latency_ns"].as_u64()).collect();
    assert_eq!(latencies, [100_000, 100_000]);
}

#[test]
fn a_target_at_another_port_is_hinted_at() {
    let directory = tempfile::tempdir().unwrap();
    let dissect = |bytes: &[u8], args: &[&str]| dissect(directory.path(), bytes, args);
    let begun = |hello: &[u8]| {
        let mut capture = Capture::of(4421);
        capture.send(true, hello);
        capture.file.bytes
    };
    let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
    let numbers = InitiatorNumbers::default();
    let login = LoginRequest::new(flags, [0x80, 0, 0, 0, 0, 1], 0, 1, 1, 0, numbers).emit();
    for hello in [&ICReq::new(Digests::NONE, 0).emit()[..], &login] {
        for args in [&[][..], &["--json"]] {
            let (good, _, errors) = dissect(&begun(hello), args);
            let words = "a connection to port 4421 begins as one to a target: --port 4421 shows it";
            assert!(good && errors.contains(words), "{errors}");
        }
        let (_, lines, errors) = dissect(&begun(hello), &["--port", "4421"]);
        assert!(lines.contains("1 PDUs") && errors.is_empty(), "{lines}{errors}");
    }
    // Of a capture that began later nobody knows what was spoken.
    let (good, _, errors) = dissect(&begun(&[7; 100]), &[]);
    assert!(
        good && errors.contains("no PDU was found at port 4420 and 3260; 1 TCP segment"),
        "{errors}"
    );
    assert!(errors.contains("most at 4421: a target there is named by --port 4421"), "{errors}");
    // Where something was found, others may speak what they like.
    let (good, _, errors) = dissect(&[&capture()[..], &begun(&[7; 100])[24..]].concat(), &[]);
    assert!(good && errors.is_empty(), "{errors}");
}

#[test]
fn what_is_no_capture_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (good, _, errors) = dissect(directory.path(), b"this is not a capture at all", &[]);
    assert!(!good && errors.contains("pcap"), "{errors}");
    let cut = &capture()[..400];
    let (good, lines, errors) = dissect(directory.path(), cut, &[]);
    assert!(!good && errors.contains("ends within a packet"), "{errors}");
    assert!(lines.contains("ICReq"), "{lines}");
}
