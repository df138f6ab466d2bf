//! Requests that lie on several disks: cut at the edges of their members, each piece a flight of
//! its own, and joined when all have come back.

use std::collections::BTreeMap;

use block::{Extent, Failure, Instant, Join, Operation, Outcome, Request, Slot, Ticket, VolumeId};
use contract::DiskId;

use super::Volumes;
use crate::flight::{Flight, What};
use crate::latency::Class;
use crate::layout::Piece;

impl Volumes {
    /// Notes a request of which so many pieces are made, the first for `disk`.
    pub(super) fn begin_joined(
        &mut self,
        now: Instant,
        (volume, disk): (VolumeId, DiskId),
        ticket: Ticket,
        (class, changed): (Class, Option<Extent>),
        pieces: usize,
    ) -> Slot {
        self.volumes[volume.0].in_flight += 1;
        self.note(Flight {
            ticket,
            volume,
            disk,
            extent: changed.unwrap_or_default(),
            number: 0,
            begun: now,
            changes_data: changed.is_some(),
            durable: false,
            class,
            what: What::Joined(Box::new(Join::new(pieces))),
        })
    }

    /// Notes a piece, of this extent of its disk, which begins `start` bytes into the payload of
    /// its request; returns the ticket under which its disk is asked.
    pub(super) fn begin_piece(
        &mut self,
        now: Instant,
        (volume, disk, extent): (VolumeId, DiskId, Extent),
        (parent, start): (Slot, u64),
        (class, durable): (Class, bool),
    ) -> Ticket {
        self.take_off(Flight {
            ticket: Ticket::default(),
            volume,
            disk,
            extent,
            number: 0,
            begun: now,
            changes_data: false,
            durable,
            class,
            what: What::Piece { parent, start: start as u32 },
        })
    }

    pub(super) fn dispatch_pieces(
        &mut self,
        now: Instant,
        volume: VolumeId,
        extent: Extent,
        request: Request,
    ) {
        let (changes_data, durable) =
            (request.operation.changes_data(), request.operation.is_durable());
        let pieces: Vec<Piece> = self.volumes[volume.0].layout.pieces(extent).collect();
        let protected = |piece: &Piece| self.gates[piece.disk.0].protected().is_some();
        if changes_data && pieces.iter().any(protected) {
            return self.refuse(now, volume, request, Failure::WriteProtected);
        }
        let Request { ticket, operation } = request;
        let class = Class::changing(changes_data);
        let changed = (class, changes_data.then_some(extent));
        let first = (volume, pieces[0].disk);
        let parent = self.begin_joined(now, first, ticket, changed, pieces.len());
        let (mut rest, mut start) = (Some(operation), 0);
        for Piece { disk, extent } in pieces {
            let whole = rest.take().expect("an operation has as many parts as pieces");
            let (mut operation, more) = cut(whole, extent.length.0);
            rest = more;
            let at = (volume, disk, extent);
            let ticket = self.begin_piece(now, at, (parent, start), (class, durable));
            start += extent.length.0;
            operation.move_to(extent);
            self.gates[disk.0].counters.count(changes_data, operation.bytes());
            self.outbox.submit.push((disk, Request { ticket, operation }));
        }
        assert!(rest.is_none(), "the pieces are shorter than the operation");
    }

    pub(super) fn discard(&mut self, now: Instant, volume: VolumeId, request: Request) {
        let Operation::Discard { extents } = &request.operation else {
            unreachable!("only discards come here");
        };
        let layout = &self.volumes[volume.0].layout;
        let all = Extent::new(0, layout.size().0);
        let mut by_disk: BTreeMap<DiskId, Vec<Extent>> = BTreeMap::new();
        for piece in extents.iter().flat_map(|extent| layout.shares(*extent)) {
            by_disk.entry(piece.disk).or_default().push(piece.extent);
        }
        if by_disk.keys().any(|disk| self.gates[disk.0].protected().is_some()) {
            return self.refuse(now, volume, request, Failure::WriteProtected);
        }
        // A discard is a hint: a disk that cannot give space back has done it.
        by_disk.retain(|disk, _| self.gates[disk.0].facts.discards);
        let Some(first) = by_disk.keys().next() else {
            self.volumes[volume.0].latencies.of_mut(Class::Write).record_at_once();
            return self.deliver(now, request.complete(Outcome::Done));
        };
        let first = (volume, *first);
        let parent =
            self.begin_joined(now, first, request.ticket, (Class::Write, Some(all)), by_disk.len());
        for (disk, extents) in by_disk {
            let extent = extents.first().copied().unwrap_or_default();
            let at = (volume, disk, extent);
            let ticket = self.begin_piece(now, at, (parent, 0), (Class::Write, false));
            let operation = Operation::Discard { extents };
            self.gates[disk.0].counters.count(true, operation.bytes());
            self.outbox.submit.push((disk, Request { ticket, operation }));
        }
    }
}

/// Cuts an operation after `length` bytes: the part before, and what is left. The part before has
/// the extent of the whole still.
fn cut(mut operation: Operation, length: u64) -> (Operation, Option<Operation>) {
    let whole = operation.extent().expect("only operations with an extent are cut");
    if whole.length.0 == length {
        return (operation, None);
    }
    let extent = Extent::new(whole.offset.0 + length, whole.length.0 - length);
    // A payload is shorter than 4 GiB; what has none may not be.
    let at = u32::try_from(length).unwrap_or(u32::MAX);
    let rest = match &mut operation {
        Operation::Read { buffer, .. } => Operation::Read { extent, buffer: buffer.split_off(at) },
        Operation::Write { buffer, durable, .. } => {
            Operation::Write { extent, buffer: buffer.split_off(at), durable: *durable }
        }
        Operation::Compare { buffer, .. } => {
            Operation::Compare { extent, buffer: buffer.split_off(at) }
        }
        &mut Operation::WriteZeroes { deallocate, durable, .. } => {
            Operation::WriteZeroes { extent, deallocate, durable }
        }
        Operation::Verify { .. } => Operation::Verify { extent },
        &mut Operation::Seek { sought, .. } => Operation::Seek { extent, sought },
        other => unreachable!("{} is not cut", other.name()),
    };
    (operation, Some(rest))
}
