//! Connections of the world: bytes leave in segments of any length, arrive later and in order, and a
//! close, a reset or the death of a host is heard of on the other side.
//!
//! Units: bytes; nanoseconds of virtual time.

use std::net::SocketAddr;

use block::Instant;
use contract::{ConnectionId, Endpoint, Event, Loss, Machine, SendBatch};

use super::{Host, What, World};
use crate::network::{Attachment, End, Link, Segment, WINDOW};
use crate::node::Node;

impl<M: Machine> World<M> {
    pub(super) fn send(
        &mut self,
        host: usize,
        shard: usize,
        connection: ConnectionId,
        batch: SendBatch,
    ) {
        let node = &mut self.hosts[host].nodes[shard];
        let open = node.find(connection).expect("a machine sends on what is open");
        open.pipe.send(batch);
        let (link, from) = (open.link, open.end);
        self.schedule(0, What::Transmit { link, from });
    }

    /// Some of a sender's bytes leave: only now they are read.
    pub(super) fn transmit(&mut self, link: usize, from: End) {
        let Some(attachment) = self.links[link].ends[from] else { return };
        let Attachment { host, life, shard, connection } = attachment;
        if !self.is_alive(host, life) {
            return;
        }
        let room = WINDOW.saturating_sub(self.links[link].flows[1 - from].outstanding);
        if room == 0 {
            self.links[link].flows[1 - from].blocked = true;
            return;
        }
        let most = self.random.below(self.timing.segment_max).max(1).min(room as u64);
        let most = if self.random.chance(1, 16) { most.min(7) } else { most };
        let node = &mut self.hosts[host].nodes[shard];
        let Node { sockets, memory, inbox, .. } = node;
        let open = sockets[connection.slot as usize].open.as_mut().expect("it is attached");
        let Some((bytes, batch)) = open.pipe.leave_some(most, memory) else { return };
        let ends = batch.is_some() && open.pipe.close == Some(true);
        let length = bytes.len() as u64;
        self.trace.note(Instant(self.now), "segment", &[link as u64, from as u64, length]);
        self.trace.note_bytes(&bytes);
        match batch {
            Some(batch) if self.timing.keep_us > 0 && !ends => {
                open.kept = Some(batch);
                self.injected.kept += 1;
                let delay = self.draw_us(self.timing.keep_us);
                self.schedule(delay, What::Sent { host, life, shard, connection });
            }
            Some(batch) => inbox.push_back(Event::Sent { connection, batch }),
            None => {
                inbox.push_back(Event::SendProgress { connection });
                self.schedule(0, What::Transmit { link, from });
            }
        }
        let flow = &mut self.links[link].flows[1 - from];
        flow.outstanding += bytes.len();
        self.push_segment(link, 1 - from, Segment::Bytes(bytes));
        self.wake(host, shard);
        if ends {
            self.finish_close(host, shard, connection);
        }
    }

    /// A batch that has left some time ago comes back, unless the machine was told of a loss: then
    /// it does with the end.
    pub(super) fn give_back(&mut self, host: usize, shard: usize, connection: ConnectionId) {
        let node = &mut self.hosts[host].nodes[shard];
        let Some(open) = node.find(connection).filter(|open| !open.pipe.lost) else { return };
        let Some(batch) = open.kept.take() else { return };
        node.inbox.push_back(Event::Sent { connection, batch });
        self.wake(host, shard);
    }

    pub(super) fn push_segment(&mut self, link: usize, to: End, mut segment: Segment) {
        if self.corrupt_next
            && !self.links[link].bare
            && let Segment::Bytes(bytes) = &mut segment
        {
            self.corrupt(link, to, bytes);
        }
        let delay = self.draw_us(self.timing.network_us);
        let flow = &mut self.links[link].flows[to];
        let at = (self.now + delay).max(flow.last_arrival + 1);
        flow.last_arrival = at;
        flow.segments.push_back(segment);
        self.schedule_at(at, What::Deliver { link, to });
    }

    pub(super) fn deliver(&mut self, link: usize, to: End) {
        let held_until = self.links[link].flows[to].held_until;
        if self.now < held_until {
            return self.schedule_at(held_until, What::Deliver { link, to });
        }
        let Some(segment) = self.links[link].flows[to].segments.pop_front() else { return };
        if self.links[link].silent {
            return;
        }
        if let Some(raw) = self.links[link].raw[to] {
            return self.deliver_to_raw(raw, segment);
        }
        let Some(Attachment { host, life, shard, connection }) = self.links[link].ends[to] else {
            return;
        };
        if !self.is_alive(host, life) {
            return;
        }
        let Some(open) = self.hosts[host].nodes[shard].find(connection) else { return };
        match segment {
            // After a reset nothing arrives: what was between was lost, and a stream has no holes.
            Segment::Bytes(_) if open.loss.is_some() => return,
            Segment::Bytes(bytes) => open.pipe.receive(&bytes),
            Segment::End => open.loss = open.loss.or(Some(Loss::EndOfStream)),
            Segment::Reset => open.loss = Some(Loss::Error(104)),
        }
        self.wake(host, shard);
    }

    /// Ends a connection on one side: what was lent comes back, and the other side hears of it.
    pub(super) fn finish_close(&mut self, host: usize, shard: usize, connection: ConnectionId) {
        let node = &mut self.hosts[host].nodes[shard];
        let socket = &mut node.sockets[connection.slot as usize];
        let mut open = socket.open.take().expect("it is open");
        let (direct, batch) = open.pipe.shut();
        // After last words, what still comes in is read and dropped; otherwise a close over unread
        // bytes is a reset.
        let unread = open.pipe.close != Some(true) && open.pipe.unread() > 0;
        let lost_data = batch.is_some() || unread;
        let batch = batch.or(open.kept);
        node.inbox.push_back(Event::Closed { connection, direct, batch });
        self.links[open.link].ends[open.end] = None;
        let last = if lost_data { Segment::Reset } else { Segment::End };
        self.push_segment(open.link, 1 - open.end, last);
        self.wake(host, shard);
    }

    pub(super) fn connect(&mut self, host: usize, shard: usize, token: u64, address: SocketAddr) {
        if self.raw_listener == Some(address) {
            self.connect_to_raw(host, shard, token);
            return;
        }
        let listens =
            |other: &Host<M>| other.listeners.iter().find(|(at, _)| *at == address).copied();
        let found = (0..self.hosts.len())
            .filter(|other| !self.hosts[*other].nodes.is_empty())
            .find_map(|other| listens(&self.hosts[other]).map(|(_, id)| (other, id)));
        let Some((target, listener)) = found else {
            let failed = Event::ConnectFailed { token, error: 111 };
            self.hosts[host].nodes[shard].inbox.push_back(failed);
            self.wake(host, shard);
            return;
        };
        let link = self.links.len();
        let local = self.hosts[host].address;
        let near = self.attach(host, shard, 0);
        let far = self.attach_next(target, 1);
        self.links.push(Link::new([Some(near), Some(far)], [None, None]));
        self.trace.note(Instant(self.now), "connect", &[link as u64, far.shard as u64]);
        let connected = Event::Connected { token, connection: near.connection, local };
        self.hosts[host].nodes[shard].inbox.push_back(connected);
        let endpoint = Endpoint { listener, peer: local, local: address };
        self.hosts[target].nodes[far.shard].accepted(far.connection, endpoint);
        self.wake(host, shard);
        self.wake(target, far.shard);
    }

    /// A shard's end of the link that is made next.
    pub(super) fn attach(&mut self, host: usize, shard: usize, end: End) -> Attachment {
        let link = self.links.len();
        let connection = self.hosts[host].nodes[shard].open(link, end, &mut self.random);
        Attachment { host, life: self.hosts[host].life, shard, connection }
    }

    /// The same of the shard whose turn it is to accept.
    pub(super) fn attach_next(&mut self, host: usize, end: End) -> Attachment {
        let found = &mut self.hosts[host];
        let shard = found.accepted % found.nodes.len();
        found.accepted += 1;
        self.attach(host, shard, end)
    }
}
