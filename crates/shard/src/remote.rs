//! A remote disk's initiator, by whichever protocol it is reached.
//!
//! Imports treat all of them alike: requests in, completions out. What differs is what they say to the driver: one opens connections, the other sends frames
//! on links; [`RemoteEffect`] has both.

use core::time::Duration;

use block::{Completion, Instant, Memory, Request};
use contract::{ConnectionId, DiskFacts, FrameBatch, SendBatch};
use nvme::tcp::initiator as nvme_tcp;

use crate::shard::Settings;

/// How long a disk behind AoE is looked for before its order is refused: many queries.
const AOE_CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Where a remote disk is.
#[derive(Clone, Debug)]
pub enum ImportSettings {
    /// A namespace over NVMe/TCP.
    NvmeTcp(nvme_tcp::Settings),
    /// A shelf.slot on links that are there or will be. `sharers` and `lane` are the shard's to set.
    Aoe(aoe::initiator::Settings),
}

/// What an initiator wants of the driver.
#[derive(Debug)]
pub(crate) enum RemoteEffect {
    Connect { token: u32, address: std::net::SocketAddr },
    Send { connection: ConnectionId, batch: SendBatch },
    Close { connection: ConnectionId, after_send: bool },
    SendFrames(FrameBatch),
}

/// An initiator.
#[derive(Debug)]
pub(crate) enum Remote {
    NvmeTcp(Box<nvme_tcp::Initiator>),
    Aoe(Box<aoe::Initiator>),
}

/// The same call to whichever it is.
macro_rules! each {
    ($remote:expr, $initiator:ident => $call:expr) => {
        match $remote {
            Remote::NvmeTcp($initiator) => $call,
            Remote::Aoe($initiator) => $call,
        }
    };
}

impl ImportSettings {
    /// How long it may take to be there for the first time.
    pub fn connect_deadline(&self) -> Duration {
        match self {
            ImportSettings::NvmeTcp(settings) => settings.connect_deadline,
            ImportSettings::Aoe(_) => AOE_CONNECT_DEADLINE,
        }
    }
}

impl Remote {
    pub(crate) fn new(
        now: Instant,
        settings: ImportSettings,
        shard: Settings,
        seed: u64,
    ) -> Remote {
        match settings {
            ImportSettings::NvmeTcp(settings) => {
                let shared = shard.shards > 1;
                Remote::NvmeTcp(Box::new(nvme_tcp::Initiator::new(settings, shared, seed)))
            }
            ImportSettings::Aoe(mut settings) => {
                settings.sharers = shard.shards;
                settings.lane = shard.shard.0 as u8;
                Remote::Aoe(Box::new(aoe::Initiator::new(settings, seed)))
            }
        }
    }

    #[inline]
    pub(crate) fn handle_request(&mut self, now: Instant, request: Request) {
        each!(self, initiator => initiator.handle_request(now, request));
    }

    #[inline]
    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        each!(self, initiator => initiator.poll_completion())
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        each!(self, initiator => initiator.poll_timeout())
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        each!(self, initiator => initiator.handle_timeout(now));
    }

    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        match self {
            Remote::NvmeTcp(initiator) => initiator.settle(now, memory),
            Remote::Aoe(initiator) => initiator.settle(now),
        }
    }

    #[inline]
    pub(crate) fn poll_effect(&mut self) -> Option<RemoteEffect> {
        Some(match self {
            Remote::NvmeTcp(initiator) => match initiator.poll_effect()? {
                nvme_tcp::InitiatorEffect::Connect { token, address } => {
                    RemoteEffect::Connect { token, address }
                }
                nvme_tcp::InitiatorEffect::Send { connection, batch } => {
                    RemoteEffect::Send { connection, batch }
                }
                nvme_tcp::InitiatorEffect::Close { connection, after_send } => {
                    RemoteEffect::Close { connection, after_send }
                }
            },
            Remote::Aoe(initiator) => {
                let aoe::initiator::InitiatorEffect::Send(batch) = initiator.poll_effect()?;
                RemoteEffect::SendFrames(batch)
            }
        })
    }

    /// News in words, and whether they are that the disk's facts changed.
    pub(crate) fn poll_news(&mut self) -> Option<(String, bool)> {
        match self {
            Remote::NvmeTcp(initiator) => {
                let news = initiator.poll_news()?;
                Some((initiator.tell(&news), news == nvme_tcp::InitiatorNews::FactsChanged))
            }
            Remote::Aoe(initiator) => {
                let news = initiator.poll_news()?;
                let changed = news == aoe::initiator::InitiatorNews::FactsChanged;
                Some((initiator.tell(&news), changed))
            }
        }
    }

    pub(crate) fn facts(&self) -> Option<DiskFacts> {
        match self {
            Remote::NvmeTcp(initiator) => initiator.facts().cloned(),
            Remote::Aoe(initiator) => initiator.facts(),
        }
    }

    pub(crate) fn explain(&self) -> String {
        each!(self, initiator => initiator.explain())
    }

    pub(crate) fn state(&self) -> String {
        each!(self, initiator => initiator.state())
    }

    pub(crate) fn in_flight(&self) -> usize {
        each!(self, initiator => initiator.in_flight())
    }

    pub(crate) fn close(&mut self) {
        each!(self, initiator => initiator.close());
    }

    pub(crate) fn drain(&mut self) {
        each!(self, initiator => initiator.drain());
    }

    pub(crate) fn is_closing(&self) -> bool {
        each!(self, initiator => initiator.is_closing())
    }

    pub(crate) fn is_gone(&self) -> bool {
        each!(self, initiator => initiator.is_gone())
    }

    pub(crate) fn owns(&self, connection: ConnectionId) -> bool {
        match self {
            Remote::NvmeTcp(initiator) => initiator.owns(connection),
            Remote::Aoe(_) => false,
        }
    }

    /// The one that has connections.
    pub(crate) fn nvme_tcp(&mut self) -> Option<&mut nvme_tcp::Initiator> {
        match self {
            Remote::NvmeTcp(initiator) => Some(initiator),
            Remote::Aoe(_) => None,
        }
    }

    /// The one that has links.
    pub(crate) fn aoe(&mut self) -> Option<&mut aoe::Initiator> {
        match self {
            Remote::NvmeTcp(_) => None,
            Remote::Aoe(initiator) => Some(initiator),
        }
    }
}
