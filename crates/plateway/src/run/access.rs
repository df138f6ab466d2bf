//! One access of the control thread to a volume: how labels are read and written and volumes are
//! flushed.
//!
//! It is an internal client of a shard, so a label travels alike to a file, a RAM disk and a remote
//! disk. Bytes are copied here, since labels and checks for blankness are small. Units: bytes of
//! the volume. Errors: the request's [`Outcome`].

use std::sync::mpsc::Sender;

use block::{Account, Buffer, Class, Completion, Extent, Operation, Outcome, VolumeId};
use shard::{ClientContext, InternalClient};

/// What the control thread asks of a volume.
#[derive(Debug)]
pub(super) enum Request {
    /// Its bytes.
    Read(Extent),
    /// To hold these bytes from an offset on, durably.
    Write(u64, Vec<u8>),
    /// To make durable what was written.
    Flush,
}

/// What came of an access, with the bytes of a read.
pub(super) type Ended = (Outcome, Vec<u8>);

/// An access, and who waits for it.
#[derive(Debug)]
pub(super) struct Access {
    volume: VolumeId,
    request: Request,
    answer: Sender<Ended>,
    account: Account,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    WaitsForMemory,
    InFlight,
    Over,
}

impl Access {
    pub(super) fn new(volume: VolumeId, request: Request, answer: Sender<Ended>) -> Access {
        // It waits for disks alone, so it takes of the reserve, for which it stands in no line.
        let account = Account::new(Class::Immediate);
        Access { volume, request, answer, account, state: State::WaitsForMemory }
    }

    fn operation(&mut self, context: &mut ClientContext<'_>) -> Option<Operation> {
        Some(match &self.request {
            Request::Flush => Operation::Flush,
            Request::Read(extent) => {
                let buffer = take(&mut self.account, *extent, context)?;
                Operation::Read { extent: *extent, buffer }
            }
            Request::Write(offset, bytes) => {
                let extent = Extent::new(*offset, bytes.len() as u64);
                let mut buffer = take(&mut self.account, extent, context)?;
                context.memory.write(&mut buffer, 0, bytes);
                Operation::Write { extent, buffer, durable: true }
            }
        })
    }
}

fn take(account: &mut Account, extent: Extent, context: &mut ClientContext<'_>) -> Option<Buffer> {
    let phase = (extent.offset.0 % u64::from(block::PAGE_SIZE)) as u32;
    context.take(account, extent.length.0 as u32, phase)
}

impl InternalClient for Access {
    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>) {
        let Completion { outcome, buffer, .. } = completion;
        let mut bytes = Vec::new();
        if let Request::Read(extent) = &self.request
            && outcome.is_done()
        {
            bytes.resize(extent.length.0 as usize, 0);
            context.memory.read(&buffer, 0, &mut bytes);
        }
        if !matches!(self.request, Request::Flush) {
            context.give(&mut self.account, buffer);
        }
        self.state = State::Over;
        // Whoever asked may wait no longer.
        let _ = self.answer.send((outcome, bytes));
    }

    /// What is refused memory waits: a pool that is used up is given back to, by a later turn.
    fn handle_turn(&mut self, context: &mut ClientContext<'_>) {
        if self.state == State::WaitsForMemory
            && let Some(operation) = self.operation(context)
        {
            self.state = State::InFlight;
            context.submit(self.volume, 0, operation);
        }
    }

    fn is_over(&self) -> bool {
        self.state == State::Over
    }
}
