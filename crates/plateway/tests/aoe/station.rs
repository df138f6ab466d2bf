//! A station of the tests' own: it sends the frames that it is given and hands over every answer
//! with their tag.
//!
//! It stands on a reactor's shard in a network namespace, so nothing but the frames themselves is
//! the tests'. A frame that is not answered is sent again; one that wants no answer is sent once,
//! whatever it is.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::{Memory, ShardId};
use contract::{
    Effect, EtherType, Event, FrameBatch, InFrame, Intake, LinkId, MacAddress, Machine, Spread,
    Takes,
};
use reactor::memory::Arena;
use reactor::{Config, Handle, LinkAccess, LinkOptions, Reactor};
use wire::aoe::{Address, Command, Header};

use crate::common::HANG;
use crate::lan::{INTERFACE, TARGET, inside};

/// After so long a frame is sent again. Only a lost frame waits for it.
const AGAIN: Duration = Duration::from_secs(1);

/// A station on an Ethernet.
pub(crate) struct Station {
    handle: Handle<Vec<u8>>,
    answers: Receiver<Vec<u8>>,
    speaker: testkit::aoe::Station,
}

impl Station {
    /// At the end of the cable in a namespace; it asks the target there.
    pub(crate) fn new(namespace: &str) -> Station {
        Self::at(namespace, INTERFACE, TARGET)
    }

    /// At an interface in a namespace; it asks a target of this address.
    pub(crate) fn at(namespace: &str, interface: &str, target: &str) -> Station {
        let interface = interface.to_owned();
        let target = target.parse().expect("an address");
        // The reactor's threads begin where the one is that starts them.
        inside(namespace, move || {
            let arena = Arc::new(Arena::new(1).expect("memory"));
            let (told, answers) = mpsc::channel();
            let told = Mutex::new(told);
            let handle = Reactor::start(&Config::default(), &arena, move |_| Post {
                told: told.lock().expect("nobody panics").clone(),
                batches: Vec::new(),
            })
            .expect("a shard");
            let options = LinkOptions {
                interface,
                vlan: None,
                access: LinkAccess::Packet,
                poll: contract::Poll::Never,
                intake: Intake {
                    takes: Takes::Type(EtherType::AOE),
                    spread: Spread::One(ShardId(0), Vec::new()),
                },
                forwards: false,
            };
            let facts = handle.add_link(LinkId(0), &options).expect("a link").facts;
            let speaker = testkit::aoe::Station::new(MacAddress(facts.mac), target, None);
            Station { handle, answers, speaker }
        })
    }

    /// Its address.
    pub(crate) fn mac(&self) -> MacAddress {
        self.speaker.mac
    }

    /// Sends a frame as it is.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        self.handle.send(ShardId(0), frame);
    }

    /// The answer to a command: its header, and what follows.
    pub(crate) fn ask(
        &mut self,
        address: Address,
        command: Command,
        body: &[u8],
    ) -> (Header, Vec<u8>) {
        let frame = self.speaker.ask(address, command, body);
        let until = Instant::now() + HANG;
        loop {
            self.handle.send(ShardId(0), frame.clone());
            while let Ok(answer) = self.answers.recv_timeout(AGAIN) {
                let heard = self.speaker.hear(&answer).expect("an AoE header");
                if let Some(answer) = heard {
                    return answer;
                }
            }
            assert!(Instant::now() < until, "{command} to {address} is not answered");
        }
    }

    /// As [`ask`](Self::ask), of what must not be refused.
    pub(crate) fn done(&mut self, address: Address, command: Command, body: &[u8]) -> Vec<u8> {
        let (header, answer) = self.ask(address, command, body);
        assert!(!header.flags.is_error(), "{command}: {}", header.error);
        answer
    }
}

/// A shard that carries frames.
#[derive(Debug)]
struct Post {
    told: Sender<Vec<u8>>,
    batches: Vec<FrameBatch>,
}

impl Machine for Post {
    type Mail = Vec<u8>;

    fn handle_event(&mut self, _: block::Instant, event: Event<Vec<u8>>, _: &mut dyn Memory) {
        if let Event::Mail { mail: bytes, .. } = event {
            let mut batch = FrameBatch::default();
            batch.push_whole(LinkId(0), [&bytes, &[]]);
            self.batches.push(batch);
        }
    }

    fn handle_frame(&mut self, _: block::Instant, frame: InFrame<'_>, _: &mut dyn Memory) {
        // The test may be over.
        let _ = self.told.send(frame.bytes.to_vec());
    }

    fn poll_effect(&mut self) -> Option<Effect<Vec<u8>>> {
        let batch = self.batches.pop()?;
        Some(Effect::SendFrames { token: 0, batch })
    }
}
