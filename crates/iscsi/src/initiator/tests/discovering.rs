//! Discovery: of the real target's targets, and of those of a portal that the test plays.

use core::time::Duration;

use block::{Instant, ShardId, limits};
use contract::{ConnectionId, Loss, Receive, SendSegment, SessionEffect, StreamEffect};
use testkit::ShardStub;
use testkit::pipe::{Pipe, Shown, bytes_of};

use wire::iscsi::{
    Bhs, Digests, LoginFlags, LoginRequest, LoginResponse, LogoutResponse, LogoutResponseCode,
    NopIn, Pdu, RESERVED_TAG, Reject, RejectReason, Stage, TargetNumbers, TextFlags, TextResponse,
    padding,
};

use super::fixtures::{BOTH, TARGET, accepted, name, target, unit};
use crate::initiator::{Discovered, Discovery, Portal};
use crate::limits::{DISCOVERY_TARGETS_MAX, DISCOVERY_TEXT_MAX};
use crate::targets::Targets;

const NOW: Instant = Instant(1);
const LIMIT: Duration = Duration::from_secs(5);

fn discovery(digests: Digests) -> Discovery {
    let address = "192.0.2.1:3260".parse().unwrap();
    let host = (name("iqn.2026-11.net.plateway:host"), [0x80, 0, 0, 0, 0, 9]);
    let mut discovery = Discovery::new(NOW, address, host, None, digests, LIMIT);
    assert!(matches!(discovery.poll_effect(), Some(StreamEffect::Connect { .. })));
    discovery.handle_connected(ConnectionId::default());
    discovery
}

/// What it sends, and whether it closes.
fn sent(discovery: &mut Discovery) -> (Vec<u8>, bool) {
    let (mut bytes, mut closes) = (Vec::new(), false);
    discovery.settle(NOW);
    while let Some(effect) = discovery.poll_effect() {
        match effect {
            StreamEffect::Send { batch, .. } => {
                for segment in &batch.segments {
                    let SendSegment::Head { start, length } = *segment else { panic!("text") };
                    bytes.extend(&batch.head[start as usize..(start + length) as usize]);
                }
                discovery.handle_sent(batch);
                discovery.settle(NOW);
            }
            StreamEffect::Close { .. } => closes = true,
            StreamEffect::Connect { .. } => panic!("once"),
        }
    }
    (bytes, closes)
}

type Found = Result<Vec<Discovered>, String>;

/// Shows bytes as often as it wants them.
fn show(discovery: &mut Discovery, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Receive { consumed, .. } = discovery.handle_received(bytes);
        if consumed == 0 {
            break;
        }
        bytes = &bytes[consumed..];
    }
}

#[test]
fn targets_of_ours_are_found() {
    for digests in [Digests::NONE, BOTH] {
        let mut targets = Targets::new(ShardId(0), 1, [3; 32]);
        targets.set_target(target(Some(unit(false))));
        targets.configuration_complete();
        let mut shard = ShardStub::new(NOW, limits::POOL_PAGES_MIN, targets);
        let (mut server, mut pipe) = (accepted(NOW, 1), Pipe::default());
        let mut discovery = discovery(digests);
        let found = loop {
            let (bytes, closes) = sent(&mut discovery);
            if closes {
                break discovery.poll_result();
            }
            pipe.receive(&bytes);
            shard.show(&mut pipe, |shown, ctx| match shown {
                Shown::Bytes(bytes) => server.handle_received(bytes, ctx),
                Shown::Direct(_) => unreachable!("text"),
            });
            server.settle(&mut shard.context());
            while let Some(effect) = server.poll_effect() {
                match effect {
                    SessionEffect::Send(batch) => {
                        let bytes = bytes_of(&batch, &shard.memory);
                        show(&mut discovery, &bytes);
                        server.handle_sent(batch, &mut shard.context());
                    }
                    SessionEffect::Resume => pipe.resume(),
                    SessionEffect::Close { .. } => break,
                }
            }
        };
        let address = Some("127.0.0.1:3260".parse().unwrap());
        let portals = vec![Portal { text: "127.0.0.1:3260".to_owned(), address, group: Some(1) }];
        assert_eq!(found, Some(Ok(vec![Discovered { target: name(TARGET), portals }])));
        discovery.handle_closed(None);
        assert!(discovery.is_gone());
    }
}

/// A portal that answers with these texts, piece by piece, and how many requests it saw.
struct Portals {
    texts: Vec<Vec<u8>>,
    numbers: TargetNumbers,
    requests: u32,
}

impl Portals {
    fn new(texts: Vec<Vec<u8>>) -> Portals {
        let numbers = TargetNumbers { stat_sn: 1, exp_cmd_sn: 1, max_cmd_sn: 1 };
        Portals { texts, numbers, requests: 0 }
    }

    fn status(&mut self) -> TargetNumbers {
        let numbers = self.numbers;
        self.numbers.stat_sn += 1;
        numbers
    }

    /// What it answers to some PDUs.
    fn answer(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            let length = Bhs::parse(bytes).unwrap().length(Digests::NONE) as usize;
            let (pdu, rest) = bytes.split_at(length);
            bytes = rest;
            match Pdu::parse(pdu).unwrap() {
                Pdu::LoginRequest(request) => answers.extend(self.log_in(&request)),
                Pdu::TextRequest(request) => {
                    self.requests += 1;
                    self.numbers.exp_cmd_sn += 1;
                    self.numbers.max_cmd_sn += 1;
                    let is_first = request.target_transfer_tag == RESERVED_TAG;
                    assert_eq!(is_first, self.requests == 1);
                    let text = self.texts.remove(0);
                    let (flags, tag) = match self.texts.is_empty() {
                        true => (TextFlags::FINAL, RESERVED_TAG),
                        false => (TextFlags::CONTINUE, 77),
                    };
                    let itt = request.initiator_task_tag;
                    let numbers = self.status();
                    let response = TextResponse::new(flags, itt, tag, text.len() as u32, numbers);
                    answers.extend(response.emit());
                    answers.extend(&text);
                    answers.resize(answers.len() + padding(text.len() as u32) as usize, 0);
                    // A question in between.
                    answers.extend(NopIn::ping([0; 8], 5, self.numbers).emit());
                }
                Pdu::LogoutRequest(request) => {
                    let tag = request.initiator_task_tag;
                    let numbers = self.status();
                    let response = LogoutResponse::new(tag, LogoutResponseCode::CLOSED, numbers);
                    answers.extend(response.emit());
                }
                Pdu::NopOut(pong) => assert_eq!(pong.target_transfer_tag, 5),
                other => panic!("{other}"),
            }
        }
        answers
    }

    fn log_in(&mut self, request: &LoginRequest) -> Vec<u8> {
        let flags = match request.flags.current() {
            Stage::SECURITY => LoginFlags::transit(Stage::SECURITY, Stage::OPERATIONAL),
            _ => LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE),
        };
        LoginResponse::new(request, flags, 1, 0, self.status()).emit().to_vec()
    }

    fn discover(mut self) -> (Found, u32) {
        let mut discovery = discovery(Digests::NONE);
        loop {
            let (bytes, closes) = sent(&mut discovery);
            if closes {
                let found = discovery.poll_result().expect("it is over");
                return (found, self.requests);
            }
            let answers = self.answer(&bytes);
            show(&mut discovery, &answers);
        }
    }
}

#[test]
fn targets_come_in_as_many_pieces_as_it_takes() {
    let text = b"TargetName=iqn.2026-11.net.plateway:a\0TargetAlias=first\0\
                 TargetAddress=192.0.2.1:3260,1\0TargetAddress=[2001:db8::1],2\0\
                 TargetName=iqn.2026-11.net.plateway:b\0TargetAddress=storage.example:3261,3\0\
                 TargetName=iqn.2026-11.net.plateway:c\0";
    for size in [7, 50, text.len()] {
        let pieces: Vec<Vec<u8>> = text.chunks(size).map(<[u8]>::to_vec).collect();
        let count = pieces.len() as u32;
        let (found, requests) = Portals::new(pieces).discover();
        assert_eq!(requests, count);
        let found = found.unwrap();
        let names: Vec<_> = found.iter().map(|target| target.target.as_str()).collect();
        let expected = ["a", "b", "c"].map(|end| format!("iqn.2026-11.net.plateway:{end}"));
        assert_eq!(names, expected);
        let portal = |text: &str, address: Option<&str>, group| Portal {
            text: text.to_owned(),
            address: address.map(|address| address.parse().unwrap()),
            group,
        };
        let both = [
            portal("192.0.2.1:3260", Some("192.0.2.1:3260"), Some(1)),
            portal("[2001:db8::1]", Some("[2001:db8::1]:3260"), Some(2)),
        ];
        assert_eq!(found[0].portals, both);
        // A name is for others to look up; who says nothing is where we asked.
        assert_eq!(found[1].portals, [portal("storage.example:3261", None, Some(3))]);
        assert_eq!(found[2].portals, [portal("192.0.2.1:3260", Some("192.0.2.1:3260"), None)]);
    }
    assert_eq!(Portals::new(vec![Vec::new()]).discover().0, Ok(Vec::new()));
}

#[test]
fn more_than_anybody_has_is_not_believed() {
    let many: Vec<u8> = (0..=DISCOVERY_TARGETS_MAX)
        .flat_map(|at| format!("TargetName=iqn.2026-11.net.plateway:{at}\0").into_bytes())
        .collect();
    let pieces = many.chunks(16_000).map(<[u8]>::to_vec).collect();
    let why = Portals::new(pieces).discover().0.unwrap_err();
    assert!(why.contains("more than 4096 targets"), "{why}");
    let pieces = vec![vec![b'a'; 16_384]; DISCOVERY_TEXT_MAX / 16_384 + 2];
    let why = Portals::new(pieces).discover().0.unwrap_err();
    assert!(why.contains("bytes about targets"), "{why}");
}

#[test]
fn what_cannot_be_is_told_in_words() {
    for (text, words) in [
        (&b"TargetAddress=192.0.2.1,1\0"[..], "a TargetAddress behind a TargetName"),
        (b"TargetName=disk\0", "TargetName \"disk\": iSCSI name"),
        (b"TargetName=iqn.2026-11.net.plateway:a", "value"),
    ] {
        let why = Portals::new(vec![text.to_vec()]).discover().0.unwrap_err();
        assert!(why.contains(words), "{why}");
    }
    let why = Portals::new(vec![Vec::new(), Vec::new()]).discover().0.unwrap_err();
    assert!(why.contains("a text that goes on somehow"), "{why}");
}

#[test]
fn it_ends_in_time_and_with_the_connection() {
    let mut silent = discovery(Digests::NONE);
    assert_eq!(silent.poll_timeout(), Some(NOW + LIMIT));
    silent.handle_timeout(Instant((NOW + LIMIT).0 - 1));
    assert!(silent.poll_result().is_none());
    silent.handle_timeout(NOW + LIMIT);
    let why = silent.poll_result().expect("over").unwrap_err();
    assert!(why.contains("it stood at its login"), "{why}");
    assert_eq!(silent.poll_timeout(), None);
    let mut lost = discovery(Digests::NONE);
    lost.handle_lost(Loss::EndOfStream);
    let why = lost.poll_result().expect("over").unwrap_err();
    assert_eq!(why, "the target closed the connection");
    let mut refused = discovery(Digests::NONE);
    let (bytes, _) = sent(&mut refused);
    let mut portals = Portals::new(Vec::new());
    let answers = portals.answer(&bytes);
    show(&mut refused, &answers);
    let (bytes, _) = sent(&mut refused);
    let answers = portals.answer(&bytes);
    show(&mut refused, &answers);
    let reject = Reject::new(RejectReason::PROTOCOL_ERROR, 0, portals.status()).emit();
    show(&mut refused, &reject);
    let why = refused.poll_result().expect("over").unwrap_err();
    assert!(why.contains("SendTargets was rejected: protocol error"), "{why}");
}
