//! A remote disk's initiator, by whichever protocol it is reached: the one file of the shard that
//! names those protocols. To reach disks by another, it gets an arm in each `match` here.
//!
//! Imports treat all of them alike: requests in, completions out. They differ in what they say to
//! the driver: a [`StreamInitiator`] opens connections, a [`FrameInitiator`] sends frames on links.

use core::time::Duration;

use block::{Completion, Instant, Memory, Request};
use contract::counters::Counter;
use contract::{
    ConnectionId, Counters, Direct, DiskFacts, Effect, Event, FrameBatch, LinkFacts, LinkId, Next,
    OpenedFrame, Receive,
};
use iscsi::initiator as iscsi_tcp;
use nvme::tcp::initiator::{self as nvme_tcp, InitiatorNews};
use wire::aoe::Address;

use crate::dispatch::dispatch;
use crate::mail::{ImportEvent, Mail};
use crate::protocols::FrameProtocol;
use crate::shard::Settings;

/// Where a remote disk is.
#[derive(Clone, Debug)]
pub enum ImportSettings {
    /// A namespace over NVMe/TCP.
    NvmeTcp(nvme_tcp::Settings),
    /// A shelf.slot on links that are there or will be. `sharers` and `tag_partition` are the
    /// shard's to set.
    Aoe(aoe::initiator::Settings),
    /// A logical unit over iSCSI. The last byte of the ISID is the shard's to set: each has sessions
    /// of its own.
    Iscsi(iscsi_tcp::Settings),
}

impl ImportSettings {
    /// How long it may take to be there for the first time.
    pub fn connect_deadline(&self) -> Duration {
        match self {
            ImportSettings::NvmeTcp(settings) => settings.connect_deadline,
            ImportSettings::Aoe(_) => aoe::limits::CONNECT_DEADLINE,
            ImportSettings::Iscsi(settings) => settings.connect_deadline,
        }
    }
}

/// An initiator.
#[derive(Debug)]
pub(crate) enum Remote {
    Stream(StreamInitiator),
    Frame(FrameInitiator),
}

/// One that has connections.
#[derive(Debug)]
pub(crate) enum StreamInitiator {
    NvmeTcp(Box<nvme_tcp::Initiator>),
    Iscsi(Box<iscsi_tcp::Initiator>),
}

/// One that has links.
#[derive(Debug)]
pub(crate) enum FrameInitiator {
    Aoe(Box<aoe::Initiator>),
}

/// What a frame answers, or whom it announces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    Aoe(Address, u32),
}

impl Answered {
    /// Of a frame that imports may want.
    #[inline]
    pub(crate) fn of(protocol: FrameProtocol, frame: &OpenedFrame<'_>) -> Option<Answered> {
        match protocol {
            FrameProtocol::Aoe => {
                let (address, tag) = aoe::answer_of(frame)?;
                Some(Answered::Aoe(address, tag))
            }
        }
    }
}

/// The same call to whichever it is.
macro_rules! each {
    ($remote:expr, $initiator:ident => $call:expr) => {
        match $remote {
            Remote::Stream(stream) => each_stream!(stream, $initiator => $call),
            Remote::Frame(frame) => each_frame!(frame, $initiator => $call),
        }
    };
}

macro_rules! each_stream {
    ($remote:expr, $initiator:ident => $call:expr) => {
        match $remote {
            StreamInitiator::NvmeTcp($initiator) => $call,
            StreamInitiator::Iscsi($initiator) => $call,
        }
    };
}

macro_rules! each_frame {
    ($remote:expr, $initiator:ident => $call:expr) => {
        match $remote {
            FrameInitiator::Aoe($initiator) => $call,
        }
    };
}

impl Remote {
    /// `sharers` shards have one of the disk, of which this is one.
    pub(crate) fn new(
        settings: ImportSettings,
        shard: Settings,
        sharers: u16,
        seed: u64,
    ) -> Remote {
        match settings {
            ImportSettings::NvmeTcp(settings) => {
                let initiator = nvme_tcp::Initiator::new(settings, sharers > 1, seed);
                Remote::Stream(StreamInitiator::NvmeTcp(Box::new(initiator)))
            }
            ImportSettings::Aoe(mut settings) => {
                settings.sharers = sharers;
                settings.tag_partition = shard.shard.0 as u8;
                let initiator = aoe::Initiator::new(settings, seed);
                Remote::Frame(FrameInitiator::Aoe(Box::new(initiator)))
            }
            ImportSettings::Iscsi(mut settings) => {
                settings.isid[5] = shard.shard.0 as u8;
                let initiator = iscsi_tcp::Initiator::new(settings, sharers > 1, seed);
                Remote::Stream(StreamInitiator::Iscsi(Box::new(initiator)))
            }
        }
    }

    dispatch! { each:
        fn handle_request(&mut self, now: Instant, request: &mut Request);
        fn take_completions(&mut self, into: &mut Vec<Completion>);
        fn poll_timeout(&self) -> Option<Instant>;
        fn handle_timeout(&mut self, now: Instant);
        fn explain(&self) -> String;
        fn state(&self) -> String;
        fn identity(&self) -> Option<String>;
        fn in_flight(&self) -> usize;
        fn close(&mut self);
        fn drain(&mut self);
        fn is_closing(&self) -> bool;
        fn is_refused(&self) -> bool;
        fn is_gone(&self) -> bool;
    }

    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        match self {
            Remote::Stream(stream) => {
                each_stream!(stream, initiator => initiator.settle(now, memory))
            }
            Remote::Frame(FrameInitiator::Aoe(initiator)) => initiator.settle(now),
        }
    }

    /// What the driver is to do. `serial` names the initiator in tokens.
    #[inline]
    pub(crate) fn poll_effect(&mut self, serial: u32) -> Option<Effect<Mail>> {
        Some(match self {
            Remote::Stream(stream) => {
                each_stream!(stream, initiator => initiator.poll_effect())?.of(serial)
            }
            Remote::Frame(FrameInitiator::Aoe(initiator)) => {
                Effect::SendFrames { token: serial, batch: initiator.poll_batch()? }
            }
        })
    }

    /// News, and the same in words.
    pub(crate) fn poll_news(&mut self) -> Option<(ImportEvent, String)> {
        each!(self, initiator => {
            let news = initiator.poll_news()?;
            let event = match &news {
                InitiatorNews::Connected | InitiatorNews::WayFound => ImportEvent::Reached,
                InitiatorNews::WayLost(_) => ImportEvent::WayLost,
                InitiatorNews::Lost(_) => ImportEvent::Lost,
                InitiatorNews::FactsChanged => ImportEvent::Changed,
                InitiatorNews::Unusable(_) => ImportEvent::Unusable,
                InitiatorNews::Refused(_) => ImportEvent::Refused,
            };
            Some((event, initiator.tell(&news)))
        })
    }

    pub(crate) fn facts(&self) -> Option<DiskFacts> {
        match self {
            Remote::Stream(stream) => {
                each_stream!(stream, initiator => initiator.facts().cloned())
            }
            Remote::Frame(FrameInitiator::Aoe(initiator)) => initiator.facts(),
        }
    }

    pub(crate) fn counters(&self) -> Vec<(&'static Counter, u64)> {
        match self {
            Remote::Stream(_) => Vec::new(),
            Remote::Frame(FrameInitiator::Aoe(initiator)) => initiator.counters().each().collect(),
        }
    }
}

impl StreamInitiator {
    dispatch! { each_stream:
        fn owns(&self, connection: ConnectionId) -> bool;
        fn handle_connected(&mut self, now: Instant, token: u32, connection: ConnectionId);
        fn handle_connect_failed(&mut self, now: Instant, token: u32, error: i32);
        fn handle_received(
            &mut self, now: Instant, connection: ConnectionId, bytes: &[u8], memory: &mut dyn Memory
        ) -> Receive;
        fn handle_direct(
            &mut self, now: Instant, connection: ConnectionId, direct: Direct, memory: &mut dyn Memory
        ) -> Next;
    }

    /// What happened to a connection of it, but for what it received.
    pub(crate) fn handle_connection(
        &mut self,
        now: Instant,
        event: Event<Mail>,
        memory: &mut dyn Memory,
    ) {
        each_stream!(self, initiator => match event {
            Event::Sent { connection, batch } => {
                initiator.handle_sent(now, connection, batch, memory);
            }
            Event::SendProgress { connection } => initiator.handle_progress(now, connection),
            Event::Lost { connection, loss } => initiator.handle_lost(now, connection, loss),
            Event::Closed { connection, direct, batch } => {
                initiator.handle_closed(now, connection, direct, batch);
            }
            other => unreachable!("no initiator is told of {other:?}"),
        });
    }
}

impl FrameInitiator {
    dispatch! { each_frame:
        fn handle_frame(&mut self, now: Instant, frame: &OpenedFrame<'_>, memory: &mut dyn Memory);
        fn handle_sent(&mut self, now: Instant, batch: FrameBatch);
    }

    pub(crate) fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        each_frame!(self, initiator => match facts {
            Some(facts) => initiator.link_up(now, link, facts),
            None => initiator.link_down(now, link),
        });
    }

    #[inline]
    pub(crate) fn wants(&self, answered: Answered) -> bool {
        let (FrameInitiator::Aoe(initiator), Answered::Aoe(address, tag)) = (self, answered);
        initiator.wants(address, tag)
    }
}
