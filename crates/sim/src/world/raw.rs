//! Raw peers: ends of connections without a host, for scripts: bytes in, bytes out. The scenes of
//! the driver contract are played with them, and hosts that do what our initiator never does.

use std::collections::VecDeque;
use std::net::SocketAddr;

use contract::{Endpoint, Event, Loss, Machine};

use super::{What, World};
use crate::network::{End, Link, Segment, WINDOW};

/// An end of a connection without a host.
#[derive(Debug)]
pub(super) struct Raw {
    link: usize,
    end: End,
    received: VecDeque<u8>,
    ended: Option<Loss>,
}

impl<M: Machine> World<M> {
    pub(super) fn connect_to_raw(&mut self, host: usize, shard: usize, token: u64) {
        let link = self.links.len();
        let end = self.attach(host, shard, 0);
        self.links.push(Link::new([Some(end), None], [None, Some(self.raws.len())]));
        self.raws.push(Raw { link, end: 1, received: VecDeque::new(), ended: None });
        let local = self.hosts[host].address;
        let connected = Event::Connected { token, connection: end.connection, local };
        self.hosts[host].nodes[shard].inbox.push_back(connected);
        self.wake(host, shard);
    }

    /// Connects a raw peer to a host that listens; returns its number.
    pub fn connect_raw(&mut self, target: usize) -> usize {
        self.connect_raw_to(target, 0)
    }

    /// Whether somebody listens there.
    pub(crate) fn is_up(&self, target: usize) -> bool {
        !self.hosts[target].nodes.is_empty()
    }

    /// The same where it listens by its listener of this number.
    pub fn connect_raw_to(&mut self, target: usize, number: usize) -> usize {
        let (address, listener) = self.hosts[target].listeners[number];
        let link = self.links.len();
        let end = self.attach_next(target, 1);
        self.links.push(Link::new([None, Some(end)], [Some(self.raws.len()), None]));
        let peer = SocketAddr::from(([10, 9, 9, 9], 50_000));
        let endpoint = Endpoint { listener, peer, local: address };
        self.hosts[target].nodes[end.shard].accepted(end.connection, endpoint);
        self.wake(target, end.shard);
        self.raws.push(Raw { link, end: 0, received: VecDeque::new(), ended: None });
        self.raws.len() - 1
    }

    /// Whether digests cover what a raw peer and its host say to each other.
    pub fn bare_raw(&mut self, raw: usize, bare: bool) {
        let link = self.raws[raw].link;
        self.links[link].bare = bare;
    }

    /// Raw peers that there are.
    pub fn raw_peers(&self) -> usize {
        self.raws.len()
    }

    /// A raw peer sends.
    pub fn send_raw(&mut self, raw: usize, bytes: &[u8]) {
        let Raw { link, end, .. } = self.raws[raw];
        self.links[link].flows[1 - end].outstanding += bytes.len();
        self.push_segment(link, 1 - end, Segment::Bytes(bytes.to_vec()));
    }

    /// A raw peer takes bytes that have come, if there are as many.
    pub fn receive_raw(&mut self, raw: usize, count: usize) -> Option<Vec<u8>> {
        let there = self.raws[raw].received.len().min(count);
        if there < count && there < WINDOW / 2 {
            return None;
        }
        Some(self.take_raw(raw, there))
    }

    /// A raw peer takes what has come, `most` bytes of it at most.
    pub fn take_raw(&mut self, raw: usize, most: usize) -> Vec<u8> {
        let Raw { link, end, .. } = self.raws[raw];
        let there = self.raws[raw].received.len().min(most);
        let bytes = self.raws[raw].received.drain(..there).collect();
        let flow = &mut self.links[link].flows[end];
        flow.outstanding -= there;
        if core::mem::take(&mut flow.blocked) {
            self.schedule(0, What::Transmit { link, from: 1 - end });
        }
        bytes
    }

    /// How a raw peer's connection ended, once all that came was taken.
    pub fn raw_end(&self, raw: usize) -> Option<(usize, Loss)> {
        let raw = &self.raws[raw];
        raw.ended.map(|loss| (raw.received.len(), loss))
    }

    /// A raw peer closes its direction, or resets the connection.
    pub fn end_raw(&mut self, raw: usize, reset: bool) {
        let Raw { link, end, .. } = self.raws[raw];
        let segment = if reset { Segment::Reset } else { Segment::End };
        self.push_segment(link, 1 - end, segment);
    }

    /// Something arrives at a raw peer.
    pub(super) fn deliver_to_raw(&mut self, raw: usize, segment: Segment) {
        self.raw_news = true;
        let raw = &mut self.raws[raw];
        match segment {
            Segment::Bytes(_) if raw.ended.is_some() => {}
            Segment::Bytes(bytes) => raw.received.extend(bytes),
            Segment::End => raw.ended = raw.ended.or(Some(Loss::EndOfStream)),
            Segment::Reset => raw.ended = Some(Loss::Error(104)),
        }
    }

    /// Wakes whoever plays raw peers at this moment.
    pub fn alarm_at(&mut self, at: u64) {
        self.schedule_at(at, What::Alarm);
    }
}
