//! The target and the client against each other, over the loopback interface; and what either says
//! when the other is wrong.

mod proxy;

use std::io::{IoSliceMut, Read as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::Result;
use clap::Parser as _;
use serde_json::Value;

use super::ceiling::Connection;
use super::client::{self, Options};
use super::pdu::{self, BHS_LEN, at, flag, opcode};
use super::scsi::{BLOCK, operation, status};
use super::session::Session;
use crate::bytes::put;
use crate::load::{KeepAlive as _, Protocol as _, Queue as _, Room};
use crate::report::Tally;
use crate::responder::tests::{SIZE, start};
use proxy::Way;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(to: SocketAddr, words: &str) -> Options {
    let to = format!("--connect={to}");
    let own = ["client", "--seconds=0.05", "--warm-up=0.01", &to];
    Line::parse_from(own.into_iter().chain(words.split_whitespace())).options
}

/// What a short load sees.
fn load(to: SocketAddr, words: &str) -> Result<Value> {
    client::run(&options(to, words))
}

fn session(to: SocketAddr, words: &str) -> Session {
    Session::login(&options(to, words).peer, "", 0).expect("a login")
}

/// The error that ends a load.
fn failure(to: SocketAddr, words: &str) -> String {
    match load(to, words) {
        Ok(seen) => panic!("nothing was noticed: {seen}"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn loads_of_every_kind_are_carried_out() {
    let target = start::<Connection>();
    for words in [
        "--fill --rw=randread --bs=4k --iodepth=8",
        "--fill --rw=randwrite --bs=4k --iodepth=8 --connections=2",
        "--fill --rw=randwrite --bs=128k --iodepth=4",
        "--fill --rw=randrw=70 --iodepth=128",
        "--fill --rw=randread --iodepth=600",
        "--fill --rw=read --bs=128k --iodepth=2 --stuck-connections=1",
        "--fill --rw=randread --iodepth=4 --lun=0,1,2,3,4,5,6,7,8,15",
        "--fill --rw=randrw --bs=64k --iodepth=4 --first-burst=4k --max-burst=20k --max-recv=12k",
        "--fill --rw=write --bs=64k --idle-connections=5 --ping-ms=10",
        "--rw=randread --rate=2000 --before-write-seconds=0.01",
        "--rw=read",
        "--fill --rw=randread --bs=16k --iodepth=8 --receive=copied",
        "--fill --rw=randread --bs=64k --iodepth=1 --receive=placed --digest-by=table",
        "--fill --rw=randread --bs=64k --iodepth=1 --receive=placed --max-recv=12k",
        "--fill --rw=write --bs=64k --iodepth=1 --receive=placed",
        "--rw=read --bs=512 --iodepth=1 --receive=placed",
        "--fill --rw=randwrite --bs=64k --iodepth=8 --send=zero-copy",
        "--fill --rw=rw=30 --bs=16k --iodepth=16 --send=zero-copy --connections=3",
    ] {
        for digests in ["", "--hdgst", "--ddgst", "--hdgst --ddgst"] {
            let seen = load(target, &format!("{words} {digests}"))
                .unwrap_or_else(|error| panic!("{words} {digests}: {error:#}"));
            assert_eq!(seen["idle_sessions_lost"], 0, "{words} {digests}: {seen}");
            // A fill is over before the window opens.
            assert!(!words.contains("--fill") || seen["ops"] == 0, "{words} {digests}: {seen}");
        }
    }
}

/// Writes blocks by hand, with `first` bytes of them in the command.
fn write(session: &mut Session, block: u32, data: &[u8], first: usize) {
    let itt = 0x7700_0001;
    let mut head = pdu::head(opcode::SCSI_COMMAND, flag::FINAL | flag::WRITE | flag::SIMPLE, itt);
    pdu::put_u32(&mut head, at::EDTL, data.len() as u32);
    head[at::CDB] = operation::WRITE_10;
    pdu::put_u32(&mut head, at::CDB + 2, block);
    put(&mut head, at::CDB + 7, &((data.len() / BLOCK) as u16).to_be_bytes());
    session.send(head, &data[..first]).expect("room");
    session.cmd_sn += 1;
    loop {
        let (answer, _) = session.receive().expect("an answer");
        if answer[0] == opcode::SCSI_RESPONSE {
            assert_eq!(answer[at::STATUS], status::GOOD);
            return;
        }
        assert_eq!((answer[0], pdu::u32_at(&answer, at::ITT)), (opcode::R2T, itt));
        let from = pdu::u32_at(&answer, at::OFFSET) as usize;
        let asked = pdu::u32_at(&answer, at::LENGTH) as usize;
        let half = asked / 2 / BLOCK * BLOCK;
        for (from, to, last) in [(from, from + half, 0), (from + half, from + asked, flag::FINAL)] {
            let mut head = pdu::head(opcode::DATA_OUT, last, itt);
            put(&mut head, at::TTT, &answer[at::TTT..at::CMD_SN]);
            pdu::put_u32(&mut head, at::OFFSET, from as u32);
            session.send(head, &data[from..to]).expect("room");
        }
    }
}

fn read(session: &mut Session, block: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = [0; 10];
    cdb[0] = operation::READ_10;
    pdu::put_u32(&mut cdb, 2, block);
    put(&mut cdb, 7, &blocks.to_be_bytes());
    let outcome = session.command(0, &cdb, u32::from(blocks) * BLOCK as u32).expect("an answer");
    assert_eq!(outcome.status, status::GOOD);
    outcome.data
}

#[test]
fn what_is_written_is_read_in_pieces_of_any_size() {
    let target = start::<Connection>();
    for words in ["", "--hdgst --ddgst", "--max-burst=12k --max-recv=8k --first-burst=4k"] {
        let mut session = session(target, words);
        let (max_burst, max_send) = (session.terms.max_burst, session.terms.max_send);
        for (number, first) in [0, 512, 4096].into_iter().enumerate() {
            let blocks = 1 + 64 * number;
            let data: Vec<u8> = (0..blocks * BLOCK).map(|at| (at / 7 + number) as u8).collect();
            write(&mut session, 9, &data, first.min(data.len()));
            assert!(read(&mut session, 9, blocks as u16) == data, "{max_burst} {max_send}");
        }
    }
}

/// Carries out a read of the first blocks by a queue of a load, byte by byte as they come; what lies in its pages then.
fn landed(target: SocketAddr, words: &str, blocks: usize, pieces: usize) -> Vec<u8> {
    let options =
        options(target, &format!("{words} --rw=read --iodepth=1 --bs={}", blocks * BLOCK));
    let mut queue = options.queues(&options.shape).expect("a session").remove(0);
    queue.flow().socket.set_nonblocking(false).expect("a socket");
    assert!(queue.issue(0) && queue.flow_mut().flush().expect("room"));
    let mut tally = Tally::new();
    while queue.flow().outstanding > 0 {
        let got = match queue.room() {
            Room::One(into, len) => {
                // SAFETY: the room of a queue is memory of its own, so many bytes long.
                let into = unsafe { std::slice::from_raw_parts_mut(into, len.min(pieces)) };
                queue.flow().socket.try_clone().and_then(|mut socket| socket.read(into))
            }
            Room::Two(two) => {
                let mut left = pieces;
                let mut parts = two.map(|part| {
                    let len = part.iov_len.min(left);
                    left -= len;
                    // SAFETY: as above, and both rooms are apart.
                    IoSliceMut::new(unsafe {
                        std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len)
                    })
                });
                queue
                    .flow()
                    .socket
                    .try_clone()
                    .and_then(|mut socket| socket.read_vectored(&mut parts))
            }
        };
        queue.fill(got.expect("bytes"));
        queue.consume(0, false, &mut tally).expect("a good answer");
    }
    queue.pages(0).to_vec()
}

#[test]
fn data_land_in_the_pages_of_their_command_whatever_pieces_they_come_in() {
    let target = start::<Connection>();
    let data: Vec<u8> = (0..32 * BLOCK).map(|at| (at / 3) as u8).collect();
    write(&mut session(target, ""), 0, &data, 0);
    for way in ["copied", "placed"] {
        for more in ["", "--ddgst", "--hdgst --ddgst --digest-by=table", "--max-recv=4k --ddgst"] {
            for pieces in [1, 47, 49, 600, usize::MAX] {
                let words = format!("--receive={way} {more}");
                assert!(
                    landed(target, &words, 32, pieces) == data,
                    "{words} in pieces of {pieces}"
                );
            }
        }
    }
}

#[test]
fn what_comes_in_place_of_data_is_understood_all_the_same() {
    let words = "--fill --rw=randread --bs=32k --iodepth=1 --receive=placed";
    let mut seen = 0;
    let proxy = proxy::start(start::<Connection>(), words, move |way, bytes| {
        seen += usize::from(way == Way::FromTarget);
        // Whether one is there, before some commands' data: with nothing, and with more than the pages have room for.
        if way == Way::FromTarget && seen > 4 && seen % 40 < 2 {
            let data = if seen % 40 == 0 { 0 } else { 100_000 };
            let mut ping = bytes[..BHS_LEN].to_vec();
            (ping[0], ping[at::FLAGS]) = (opcode::NOP_IN, flag::FINAL);
            pdu::put_data_len(&mut ping, data);
            pdu::put_u32(&mut ping, at::ITT, pdu::NO_TAG);
            pdu::put_u32(&mut ping, at::TTT, 0x5000);
            bytes.splice(..0, ping.into_iter().chain(vec![7; data]));
        }
    });
    load(proxy, words).expect("a load");
}

#[test]
fn data_that_would_reach_beyond_their_command_are_refused_wherever_they_land() {
    for way in ["left", "copied", "placed"] {
        let words = format!("--fill --rw=randread --bs=4k --iodepth=1 --receive={way}");
        // A byte by itself, so that what is left of them fills up to more than the command has.
        let mut seen = 0;
        let proxy = proxy::start(start::<Connection>(), &words, move |from, bytes| {
            seen += usize::from(from == Way::FromTarget);
            if from == Way::FromTarget && seen == 8 {
                let mut first = bytes[..BHS_LEN].to_vec();
                first[at::FLAGS] = 0;
                pdu::put_data_len(&mut first, 1);
                pdu::put_data_len(bytes, 4095);
                pdu::put_u32(bytes, at::OFFSET, 1);
                bytes.splice(..0, first.into_iter().chain([7, 0, 0, 0]));
            }
        });
        let error = failure(proxy, &words);
        assert!(error.contains("4096 bytes of 4096 moved"), "{way}: {error}");
    }
}

#[test]
fn a_wrong_digest_of_placed_data_is_noticed_and_more_than_one_command_at_once_is_refused() {
    for by in ["simd", "table"] {
        let words =
            format!("--fill --rw=randread --iodepth=1 --ddgst --receive=placed --digest-by={by}");
        let error = planted(&words, 20, |bytes| bytes[2000] ^= 1);
        assert!(error.contains("a data digest is wrong"), "{by}: {error}");
    }
    let error = failure(start::<Connection>(), "--rw=read --iodepth=2 --receive=placed");
    assert!(error.contains("expected --iodepth 1"), "{error}");
}

#[test]
fn a_uri_says_where_the_disk_is_and_what_its_digests_are() {
    let target = start::<Connection>();
    let with = |uri: &str, words: &str| {
        let own = ["client", "--seconds=0.05", "--warm-up=0.01", "--disk", uri];
        client::run(&Line::parse_from(own.into_iter().chain(words.split_whitespace())).options)
    };
    let uri = format!("iscsi://{target}/iqn.2026-11.net.plateway:ceiling/3?hdgst=0&ddgst=1");
    assert!(with(&uri, "--rw=read").expect("a load")["ops"].as_u64() > Some(0));
    for (wrong, why) in [
        ("nvme+tcp://127.0.0.1:1/x/1", "expected iscsi://ADDRESS:PORT/TARGET/UNIT"),
        ("iscsi://127.0.0.1:1/x/y", "expected iscsi://ADDRESS:PORT/TARGET/UNIT"),
        ("iscsi://127.0.0.1:1/x/1?hdgst=2", "seen \"hdgst=2\""),
    ] {
        let error = with(wrong, "").expect_err("refused");
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
    assert!(Line::try_parse_from(["client"]).is_err(), "nobody says where");
}

#[test]
fn a_load_that_is_watched_tells_how_far_it_is_in_whole_lines() {
    let target = start::<Connection>();
    let folder = std::env::temp_dir().join(format!("yardstick-{}", std::process::id()));
    let status = folder.to_str().expect("a path");
    let lines = |words: &str| -> Vec<Value> {
        let told = format!("{words} --status={status} --status-ms=10 --status-lines=5");
        load(target, &told).expect("a load");
        let text = std::fs::read_to_string(&folder).expect("lines");
        std::fs::remove_file(&folder).expect("it is there");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let counted = |line: &Value, side: &str| -> u64 {
        line[side].as_object().expect("counts").values().filter_map(Value::as_u64).sum()
    };
    let reads = lines("--rw=randread");
    let counts: Vec<u64> = reads.iter().map(|line| counted(line, "read")).collect();
    assert!(counts.len() == 5 && counts.is_sorted() && counts[0] > 0, "{counts:?}");
    assert!(reads.iter().all(|line| line["write"] == serde_json::json!({})));
    assert!(reads.iter().all(|line| line["notes"] == serde_json::json!([])));
    // A mix is told apart; and what goes over loopback is copied there, however it was asked for.
    let mixed = lines("--rw=randrw=80 --send=zero-copy");
    let [read, write] = ["read", "write"].map(|side| counted(&mixed[4], side) as f64);
    let share = read / (read + write);
    assert!((0.7..0.9).contains(&share), "{share} read: {}", mixed[4]);
    assert!(mixed[4]["notes"].to_string().contains("the kernel copied all the same"));
}

#[test]
fn a_fill_writes_every_block_and_nothing_else_than_its_pattern() {
    let target = start::<Connection>();
    let mut session = session(target, "");
    let blocks = 128;
    let zeroes = vec![0; blocks * BLOCK];
    for block in (0..SIZE / BLOCK).step_by(blocks) {
        write(&mut session, block as u32, &zeroes, 8192);
    }
    load(target, "--rw=randwrite --bs=16k --connections=2 --fill").expect("a fill");
    for block in (0..SIZE / BLOCK).step_by(blocks) {
        let data = read(&mut session, block as u32, blocks as u16);
        assert!(data.iter().all(|byte| *byte == 0xa5), "behind block {block}");
    }
}

#[test]
fn what_the_target_does_not_do_it_says_in_sense() {
    let mut session = session(start::<Connection>(), "--hdgst --ddgst");
    let end = (SIZE / BLOCK) as u32;
    let mut beyond = [operation::READ_10, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    pdu::put_u32(&mut beyond, 2, end - 1);
    for (lun, cdb, code) in [
        (0, &[0xff][..], 0x20),
        (0, &beyond[..], 0x21),
        (0, &[operation::INQUIRY, 0, 1, 0, 36][..], 0x24),
        (16, &[operation::TEST_UNIT_READY][..], 0x25),
        (16, &[operation::READ_10, 0, 0, 0, 0, 0, 0, 0, 1][..], 0x25),
    ] {
        let outcome = session.command(lun, cdb, 1024).expect("an answer");
        assert_eq!(outcome.status, status::CHECK_CONDITION, "{cdb:02x?}");
        assert_eq!((outcome.sense[2], outcome.sense[12]), (5, code), "{cdb:02x?}");
    }
    assert_eq!(session.command(0, &[operation::TEST_UNIT_READY], 0).expect("good").status, 0);
}

/// The flags and the count with which a command of one block ends.
fn residual(session: &mut Session, cdb: &[u8], expected: u32) -> (u8, u32) {
    let mut head = pdu::head(opcode::SCSI_COMMAND, flag::FINAL | flag::READ | flag::SIMPLE, 5);
    pdu::put_u32(&mut head, at::EDTL, expected);
    put(&mut head, at::CDB, cdb);
    session.send(head, &[]).expect("room");
    session.cmd_sn += 1;
    let (answer, data) = session.receive().expect("an answer");
    assert_eq!(data.len() as u32, expected.min(BLOCK as u32));
    let flags = answer[at::FLAGS] & (flag::OVERFLOW | flag::UNDERFLOW);
    (flags, pdu::u32_at(&answer, at::RESIDUAL))
}

#[test]
fn a_command_that_moves_less_or_more_than_expected_has_a_residual() {
    let mut session = session(start::<Connection>(), "");
    let cdb = [operation::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(residual(&mut session, &cdb, 512), (0, 0));
    assert_eq!(residual(&mut session, &cdb, 2048), (flag::UNDERFLOW, 1536));
    assert_eq!(residual(&mut session, &cdb, 128), (flag::OVERFLOW, 384));
    assert_eq!(residual(&mut session, &cdb, 0), (flag::OVERFLOW, 512));
}

#[test]
fn a_nop_out_comes_back_with_its_data_and_a_logout_is_granted() {
    let mut session = session(start::<Connection>(), "--ddgst");
    session.keep_alive().expect("a NOP-In");
    let mut head = pdu::head(opcode::NOP_OUT, flag::FINAL, 6);
    pdu::put_u32(&mut head, at::TTT, pdu::NO_TAG);
    session.send(head, b"hello").expect("room");
    session.cmd_sn += 1;
    let (answer, data) = session.receive().expect("an answer");
    assert_eq!((answer[0], &data[..]), (opcode::NOP_IN, &b"hello"[..]));
    assert_eq!(pdu::u32_at(&answer, at::EXP_CMD_SN), session.cmd_sn);
    assert_eq!(session.max_cmd_sn, session.cmd_sn + 255, "a window of 256");
    session.send(pdu::head(opcode::LOGOUT_REQUEST, flag::FINAL, 7), &[]).expect("room");
    let (answer, _) = session.receive().expect("an answer");
    assert_eq!((answer[0], answer[at::RESPONSE]), (opcode::LOGOUT_RESPONSE, 0));
}

/// The answer to a login request of `stage`, which wishes to go on to `next`.
fn login(session: &mut Session, stage: u8, next: u8, text: &[u8]) -> (pdu::Bhs, Vec<u8>) {
    let flags = flag::FINAL | stage << 2 | next;
    let head = pdu::head(opcode::LOGIN_REQUEST | opcode::IMMEDIATE, flags, 1);
    session.send(head, text).expect("room");
    session.receive().expect("an answer")
}

#[test]
fn a_login_may_begin_with_the_security_stage_and_is_no_discovery() {
    let target = start::<Connection>();
    let mut session = Session::connect(target).expect("a connection");
    let (answer, text) = login(&mut session, 0, 1, b"InitiatorName=iqn.x\0AuthMethod=CHAP,None\0");
    assert_eq!((answer[at::FLAGS], &answer[at::LOGIN_STATUS..][..2]), (0x81, &[0, 0][..]));
    assert_eq!(text, b"TargetPortalGroupTag=1\0AuthMethod=None\0");
    let (answer, text) = login(&mut session, 1, 3, b"MaxBurstLength=16776192\0");
    assert_eq!((answer[at::FLAGS], pdu::u16_at(&answer, at::TSIH) > 0), (0x87, true));
    assert_eq!(text, b"MaxBurstLength=1048576\0MaxRecvDataSegmentLength=262144\0");
    let mut session = Session::connect(target).expect("a connection");
    let (answer, _) = login(&mut session, 1, 3, b"SessionType=Discovery\0");
    assert_eq!(answer[at::LOGIN_STATUS..][..2], [2, 9]);
}

#[test]
fn the_target_closes_on_digests_that_are_wrong() {
    let target = start::<Connection>();
    for words in ["--hdgst", "--ddgst"] {
        let mut session = session(target, words);
        session.keep_alive().expect("a NOP-In");
        // As if nothing had been agreed on: what stands where the digest should is another header.
        (session.terms.header_digest, session.terms.data_digest) = (false, false);
        let head = pdu::head(opcode::NOP_OUT | opcode::IMMEDIATE, flag::FINAL, 6);
        for _ in 0..2 {
            // It may be closed already.
            let _ = session.send(head, &[0; 64]);
        }
        assert!(session.receive().is_err(), "{words}");
    }
}

/// A load whose target has its PDU number `number` changed by `alter`; the login's is the first.
fn planted(words: &str, number: usize, alter: fn(&mut Vec<u8>)) -> String {
    let mut seen = 0;
    let proxy = proxy::start(start::<Connection>(), words, move |way, bytes| {
        seen += usize::from(way == Way::FromTarget);
        if way == Way::FromTarget && seen == number {
            alter(bytes);
        }
    });
    failure(proxy, words)
}

#[test]
fn a_wrong_answer_to_a_read_is_noticed() {
    let noticed = |alter, words| {
        let error = planted("--fill --rw=randread --bs=4k --iodepth=4", 20, alter);
        assert!(error.contains(words), "{words}: {error}");
    };
    noticed(|bytes| bytes[at::STATUS] = status::CHECK_CONDITION, "status 0x02");
    noticed(|bytes| bytes[at::FLAGS] |= flag::UNDERFLOW, "a residual");
    noticed(|bytes| bytes[at::FLAGS] |= flag::OVERFLOW, "a residual");
    noticed(|bytes| bytes[at::ITT] = 1, "which there is not");
    noticed(|bytes| bytes[at::OFFSET + 2] = 16, "data at 4096 behind 0");
    noticed(|bytes| bytes[at::STAT_SN + 3] ^= 1, "status");
    noticed(|bytes| bytes[0] = opcode::R2T, "an R2T");
    noticed(|bytes| bytes[0] = opcode::REJECT, "rejects");
    noticed(|bytes| bytes[0] = 0x32, "PDU type 0x32");
    noticed(
        |bytes| {
            pdu::put_data_len(bytes, 2048);
            bytes.truncate(BHS_LEN + 2048);
        },
        "2048 bytes of 4096",
    );
}

#[test]
fn a_wrong_answer_to_a_write_is_noticed() {
    let noticed = |number, alter, words| {
        let error = planted("--fill --rw=write --bs=16k --iodepth=1", number, alter);
        assert!(error.contains(words), "{words}: {error}");
    };
    // Behind three answers of the set-up come an R2T and a response for each write.
    noticed(4, |bytes| bytes[at::LENGTH + 1] = 1, "of 16384 bytes");
    noticed(4, |bytes| bytes[at::OFFSET + 2] = 0, "an R2T at 0 behind 8192");
    noticed(4, |bytes| bytes[0] = opcode::SCSI_RESPONSE, "8192 bytes of 16384");
    noticed(5, |bytes| bytes[at::STATUS] = 0x08, "status 0x08");
    noticed(5, |bytes| bytes[at::RESPONSE] = 1, "response 0x01");
    noticed(5, |bytes| bytes[at::FLAGS] |= flag::UNDERFLOW, "a residual");
    noticed(5, |bytes| bytes[0] = opcode::DATA_IN, "data in answer to a write");
}

#[test]
fn a_wrong_digest_is_noticed() {
    let error =
        planted("--fill --rw=randread --iodepth=4 --hdgst", 20, |bytes| bytes[BHS_LEN] ^= 1);
    assert!(error.contains("a header digest is wrong"), "{error}");
    let error = planted("--fill --rw=randread --iodepth=4 --ddgst", 20, |bytes| bytes[2000] ^= 1);
    assert!(error.contains("a data digest is wrong"), "{error}");
}

#[test]
fn no_command_leaves_while_the_window_is_closed() {
    let last = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&last);
    let words = "--fill --rw=randread --iodepth=32";
    let proxy = proxy::start(start::<Connection>(), words, move |way, bytes| match way {
        Way::FromTarget => {
            let max = pdu::u32_at(bytes, at::EXP_CMD_SN).wrapping_add(2);
            pdu::put_u32(bytes, at::MAX_CMD_SN, max);
            told.store(max, Ordering::SeqCst);
        }
        Way::ToTarget if bytes[0] == opcode::SCSI_COMMAND => {
            let (number, last) = (pdu::u32_at(bytes, at::CMD_SN), told.load(Ordering::SeqCst));
            // What is past the window is turned into what the target closes on.
            bytes[0] = if number > last { 0x3e } else { bytes[0] };
        }
        Way::ToTarget => {}
    });
    load(proxy, words).expect("slow, but well");
    let commands = (SIZE / 4096) as u32;
    assert!(last.load(Ordering::SeqCst) > commands, "all were let through");
}

#[test]
fn a_target_that_asks_whether_one_is_there_is_answered() {
    let (tell, told) = mpsc::channel();
    let mut seen = 0;
    let proxy = proxy::start(start::<Connection>(), "", move |way, bytes| {
        if way == Way::ToTarget && bytes[0] & opcode::MASK == opcode::NOP_OUT {
            // Nobody may listen any more.
            let _ = tell.send(pdu::u32_at(bytes, at::TTT));
        }
        seen += usize::from(way == Way::FromTarget);
        // Once before the load, and once in it.
        if way == Way::FromTarget && [2, 20].contains(&seen) {
            let mut ping = bytes[..BHS_LEN].to_vec();
            (ping[0], ping[at::FLAGS]) = (opcode::NOP_IN, flag::FINAL);
            pdu::put_data_len(&mut ping, 0);
            pdu::put_u32(&mut ping, at::ITT, pdu::NO_TAG);
            pdu::put_u32(&mut ping, at::TTT, 0x5000 + seen as u32);
            bytes.splice(..0, ping);
        }
    });
    load(proxy, "--fill --rw=randread --iodepth=4").expect("a load");
    assert_eq!([told.recv(), told.recv()], [Ok(0x5002), Ok(0x5014)]);
}
