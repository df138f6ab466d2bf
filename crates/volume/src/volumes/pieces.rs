//! Requests that lie on several disks: cut at the edges of their members, each piece a flight of
//! its own, and joined when all have come back.

use std::collections::BTreeMap;

use block::{Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Ticket};
use contract::DiskId;

use super::{Outbox, Volumes};
use crate::flight::{Flight, Join, What};
use crate::layout::Piece;

impl Volumes {
    pub(super) fn dispatch_pieces(
        &mut self,
        now: Instant,
        index: u32,
        extent: Extent,
        request: Request,
        out: &mut Outbox,
    ) {
        let volume = self.volumes[index as usize].as_mut().expect("the caller found it");
        let changes_data = request.operation.changes_data();
        let pieces: Vec<Piece> = volume.layout.pieces(extent).collect();
        let protected = |piece: &Piece| {
            let gate = self.gates[piece.disk.0 as usize].as_ref();
            gate.expect("a member's disk is there").protected().is_some()
        };
        if changes_data && pieces.iter().any(protected) {
            self.refuse(request, Failure::WriteProtected, now, out);
            return;
        }
        volume.in_flight += 1;
        let Request { ticket, operation } = request;
        let mut join = Box::new(Join::new());
        let mut start = 0u64;
        for piece in &pieces {
            join.push(start as u32);
            start += piece.extent.length.0;
        }
        let durable = operation.is_durable();
        let parent = self.flights.insert(Flight {
            ticket,
            volume: index,
            disk: pieces[0].disk,
            extent,
            number: self.next_number,
            begun: now,
            changes_data,
            durable: false,
            what: What::Joined(join),
        });
        self.next_number += 1;
        let mut rest = Some(operation);
        for (piece_index, piece) in pieces.iter().enumerate() {
            let whole = rest.take().expect("an operation has as many parts as pieces");
            let (mut part, more) = cut(whole, piece.extent.length.0);
            rest = more;
            let gate = self.gates[piece.disk.0 as usize].as_mut();
            gate.expect("a member's disk is there").count(changes_data, piece.extent.length.0);
            let ticket = self.take_off(Flight {
                ticket: Ticket::default(),
                volume: index,
                disk: piece.disk,
                extent,
                number: 0,
                begun: now,
                changes_data: false,
                durable,
                what: What::Piece { parent, index: piece_index as u32 },
            });
            part.move_to(piece.extent);
            out.submit.push((piece.disk, Request { ticket, operation: part }));
        }
    }

    pub(super) fn discard(&mut self, now: Instant, index: u32, request: Request, out: &mut Outbox) {
        let volume = self.volumes[index as usize].as_mut().expect("the caller found it");
        let Request { ticket, operation: Operation::Discard { extents } } = request else {
            unreachable!("only discards come here");
        };
        let size = volume.layout.size();
        let mut by_disk: BTreeMap<DiskId, Vec<Extent>> = BTreeMap::new();
        for piece in extents.iter().flat_map(|extent| volume.layout.pieces(*extent)) {
            by_disk.entry(piece.disk).or_default().push(piece.extent);
        }
        let gates = &self.gates;
        let gate =
            |disk: DiskId| gates[disk.0 as usize].as_ref().expect("a member's disk is there");
        if by_disk.keys().any(|disk| gate(*disk).protected().is_some()) {
            let request = Request { ticket, operation: Operation::Discard { extents } };
            self.refuse(request, Failure::WriteProtected, now, out);
            return;
        }
        // A discard is a hint: a disk that cannot give space back has done it.
        by_disk.retain(|disk, _| gate(*disk).facts().discards);
        if by_disk.is_empty() {
            self.deliver(now, Completion::new(ticket, Outcome::Done, Buffer::empty()), out);
            return;
        }
        volume.in_flight += 1;
        let mut join = Box::new(Join::new());
        for _ in &by_disk {
            join.push(0);
        }
        let first = *by_disk.keys().next().expect("it is not empty");
        let parent = self.flights.insert(Flight {
            ticket,
            volume: index,
            disk: first,
            extent: Extent::new(0, size.0),
            number: self.next_number,
            begun: now,
            changes_data: true,
            durable: false,
            what: What::Joined(join),
        });
        self.next_number += 1;
        for (piece_index, (disk, extents)) in by_disk.into_iter().enumerate() {
            let bytes = extents.iter().map(|extent| extent.length.0).sum();
            self.gate_mut(disk).expect("a member's disk is there").count(true, bytes);
            let ticket = self.take_off(Flight {
                ticket: Ticket::default(),
                volume: index,
                disk,
                extent: Extent::default(),
                number: 0,
                begun: now,
                changes_data: false,
                durable: false,
                what: What::Piece { parent, index: piece_index as u32 },
            });
            let operation = Operation::Discard { extents };
            out.submit.push((disk, Request { ticket, operation }));
        }
    }
}

/// Cuts an operation after `length` bytes: the part before, and what is left.
fn cut(operation: Operation, length: u64) -> (Operation, Option<Operation>) {
    let extent = operation.extent().expect("only operations with an extent are cut");
    if extent.length.0 == length {
        return (operation, None);
    }
    let head = Extent::new(extent.offset.0, length);
    let tail = Extent::new(extent.offset.0 + length, extent.length.0 - length);
    let cut_at = u32::try_from(length).unwrap_or(u32::MAX);
    match operation {
        Operation::Read { mut buffer, .. } => {
            let rest = buffer.split_off(cut_at);
            (
                Operation::Read { extent: head, buffer },
                Some(Operation::Read { extent: tail, buffer: rest }),
            )
        }
        Operation::Write { mut buffer, durable, .. } => {
            let rest = buffer.split_off(cut_at);
            (
                Operation::Write { extent: head, buffer, durable },
                Some(Operation::Write { extent: tail, buffer: rest, durable }),
            )
        }
        Operation::Compare { mut buffer, .. } => {
            let rest = buffer.split_off(cut_at);
            (
                Operation::Compare { extent: head, buffer },
                Some(Operation::Compare { extent: tail, buffer: rest }),
            )
        }
        Operation::WriteZeroes { deallocate, durable, .. } => (
            Operation::WriteZeroes { extent: head, deallocate, durable },
            Some(Operation::WriteZeroes { extent: tail, deallocate, durable }),
        ),
        Operation::Verify { .. } => {
            (Operation::Verify { extent: head }, Some(Operation::Verify { extent: tail }))
        }
        other => unreachable!("{} is not cut", other.name()),
    }
}
