//! The driver's side of one connection: what came and was not consumed, what the machine wants
//! next, the batch that is out. It keeps the driver's half of the contract (`contract::Machine`)
//! and checks the machine's half.

use core::ops::Range;

use block::{Instant, Memory};
use contract::{
    ConnectionId, Direct, Machine, Next, Receive, SendBatch, SendSegment, SessionEffect,
};

use crate::Pages;
use crate::pages::Lender;

/// One connection, seen from one of its ends.
#[derive(Debug)]
pub struct Pipe {
    /// What the other side sent and did not arrive yet.
    pub coming: Vec<u8>,
    received: Received,
    /// How much of it was shown.
    shown: usize,
    want: Want,
    /// Whether the machine may leave what it could consume, as scripted ones do.
    pub may_leave: bool,
    /// The batch that is out.
    pub out: Option<SendBatch>,
    /// How much of it has left.
    sent: u64,
    /// Whether the machine closed, and whether after what is out.
    pub close: Option<bool>,
    /// Whether the machine was told of a loss.
    pub lost: bool,
    /// Whether the driver closed.
    pub closed: bool,
    /// How often the machine wanted to receive directly, and how often it yielded.
    pub directs: usize,
    pub yields: usize,
}

/// Bytes that came and were not consumed.
#[derive(Debug, Default)]
struct Received {
    all: Vec<u8>,
    /// How many at the front are consumed: they are moved out now and then, not at every step.
    consumed: usize,
}

impl Received {
    fn bytes(&self) -> &[u8] {
        &self.all[self.consumed..]
    }

    fn len(&self) -> usize {
        self.all.len() - self.consumed
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count;
        if self.consumed > self.all.len() / 2 {
            self.all.drain(..self.consumed);
            self.consumed = 0;
        }
    }
}

#[derive(Debug)]
enum Want {
    Stream { at_least: usize, at_most: usize },
    Direct { direct: Direct, filled: u32 },
    Pause,
}

/// What a machine is shown.
#[derive(Debug)]
pub enum Shown<'a> {
    /// Bytes of the stream.
    Bytes(&'a [u8]),
    /// A direct receive that is complete.
    Direct(Direct),
}

const ANY: Want = Want::Stream { at_least: 1, at_most: usize::MAX };

impl Default for Pipe {
    fn default() -> Self {
        Pipe {
            coming: Vec::new(),
            received: Received::default(),
            shown: 0,
            want: ANY,
            may_leave: false,
            out: None,
            sent: 0,
            close: None,
            lost: false,
            closed: false,
            directs: 0,
            yields: 0,
        }
    }
}

impl Pipe {
    /// `count` bytes arrive, if there are so many.
    pub fn arrive(&mut self, count: usize) {
        let count = count.min(self.coming.len());
        self.received.all.extend(self.coming.drain(..count));
    }

    /// Bytes arrive.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.all.extend_from_slice(bytes);
    }

    /// Bytes that came and were not consumed.
    pub fn unread(&self) -> usize {
        self.received.len()
    }

    /// Whether the machine may be shown or told something.
    pub fn is_open(&self) -> bool {
        self.close.is_none() && !self.closed
    }

    /// Whether a batch is out.
    pub fn is_sending(&self) -> bool {
        self.out.is_some()
    }

    /// Whether the machine wants nothing shown.
    pub fn is_paused(&self) -> bool {
        matches!(self.want, Want::Pause)
    }

    /// `count` bytes arrive, if there are so many, and what arrived is shown. Returns whether
    /// anything moved.
    pub fn come(
        &mut self,
        count: usize,
        memory: &mut Pages,
        machine: impl FnMut(Shown<'_>, &mut Pages) -> Receive,
    ) -> bool {
        let moved = count.min(self.coming.len()) > 0;
        self.arrive(count);
        self.show(memory, machine) || moved
    }

    /// Whether the machine may be shown something.
    pub fn is_readable(&self) -> bool {
        let least = match self.want {
            Want::Pause => return false,
            Want::Direct { .. } => 1,
            Want::Stream { at_least, .. } => at_least,
        };
        self.is_open() && !self.lost && self.received.len() >= least
    }

    /// Whether the machine waits for any byte, and one came that it was not shown.
    pub fn has_news(&self) -> bool {
        let wants_any = matches!(self.want, Want::Stream { at_least: 1, .. });
        wants_any && self.received.len() > self.shown
    }

    /// Shows what arrived, as often as the machine wants it within a turn. Returns whether it was
    /// shown anything.
    pub fn show<L: Lender>(
        &mut self,
        memory: &mut Pages<L>,
        machine: impl FnMut(Shown<'_>, &mut Pages<L>) -> Receive,
    ) -> bool {
        self.show_cut(|_, all| all, memory, machine)
    }

    /// The same to a connection of a machine with several. Of what is there `cut` says how much is
    /// shown, between two bounds.
    pub fn show_to<M: Machine, L: Lender>(
        &mut self,
        (now, connection): (Instant, ConnectionId),
        cut: impl FnMut(usize, usize) -> usize,
        machine: &mut M,
        memory: &mut Pages<L>,
    ) -> bool {
        self.show_cut(cut, memory, |shown, memory| match shown {
            Shown::Bytes(bytes) => machine.handle_received(now, connection, bytes, memory),
            Shown::Direct(direct) => {
                let next = machine.handle_direct(now, connection, direct, memory);
                Receive { consumed: 0, next }
            }
        })
    }

    fn show_cut<L: Lender>(
        &mut self,
        mut cut: impl FnMut(usize, usize) -> usize,
        memory: &mut Pages<L>,
        mut machine: impl FnMut(Shown<'_>, &mut Pages<L>) -> Receive,
    ) -> bool {
        let mut moved = false;
        while self.is_readable() {
            moved = true;
            let receive = match &mut self.want {
                Want::Pause => unreachable!("it is readable"),
                Want::Direct { direct, filled } => {
                    let missing = (direct.length - *filled) as usize;
                    let there = self.received.len().min(missing);
                    let bytes = &self.received.bytes()[..there];
                    memory.write(&mut direct.buffer, direct.at + *filled, bytes);
                    self.received.consume(there);
                    *filled += there as u32;
                    if there < missing {
                        break;
                    }
                    let Want::Direct { direct, .. } = core::mem::replace(&mut self.want, ANY)
                    else {
                        unreachable!("it was one")
                    };
                    machine(Shown::Direct(direct), memory)
                }
                &mut Want::Stream { at_least, at_most } => {
                    // Less than the least is never shown, however little may come at once.
                    let most = self.shown.saturating_add(at_most).max(at_least);
                    let most = self.received.len().min(most);
                    let visible = cut(at_least.max(self.shown), most);
                    let receive = machine(Shown::Bytes(&self.received.bytes()[..visible]), memory);
                    assert!(
                        receive.consumed <= visible,
                        "{} of {visible} bytes were consumed",
                        receive.consumed
                    );
                    self.received.consume(receive.consumed);
                    self.shown = visible - receive.consumed;
                    receive
                }
            };
            if self.take(receive) {
                break;
            }
        }
        moved
    }

    /// Notes what the machine wants. Returns whether it yields.
    fn take(&mut self, Receive { consumed, next }: Receive) -> bool {
        let (want, yields) = match next {
            Next::Stream { at_least, at_most } => {
                assert!(at_least > 0 && at_most > 0, "at least {at_least}, at most {at_most}");
                let (at_least, shown) = (at_least as usize, self.shown);
                // Else it would be shown the same for ever.
                let goes_on = at_least > shown || (self.may_leave && consumed > 0);
                assert!(goes_on, "it was shown {shown} bytes, and {at_least} are enough");
                let at_most = if at_most == u32::MAX { usize::MAX } else { at_most as usize };
                (Want::Stream { at_least, at_most }, false)
            }
            Next::Idle => {
                assert_eq!(self.shown, 0, "idle with bytes left");
                (ANY, false)
            }
            Next::Direct(direct) => {
                assert_eq!(self.shown, 0, "a direct receive follows unconsumed bytes");
                assert!(direct.length > 0, "a direct receive of nothing");
                assert!(!direct.buffer.is_reserved(), "a direct receive without pages");
                self.directs += 1;
                (Want::Direct { direct, filled: 0 }, false)
            }
            Next::Yield => {
                assert!(consumed > 0, "a turn of nothing");
                assert!(self.shown > 0, "it yields with nothing left");
                self.yields += 1;
                (ANY, true)
            }
            Next::Pause => (Want::Pause, false),
        };
        self.want = want;
        yields
    }

    /// The session wants something.
    pub fn handle(&mut self, effect: SessionEffect) {
        match effect {
            SessionEffect::Send(batch) => self.send(batch),
            SessionEffect::Resume => self.resume(),
            SessionEffect::Close { after_send } => self.end(after_send),
        }
    }

    /// The machine sends.
    pub fn send(&mut self, batch: SendBatch) {
        assert!(!self.closed && self.close.is_none(), "a send after the close");
        assert!(self.out.is_none(), "two batches are out");
        assert!(!batch.is_empty(), "an empty batch");
        self.out = Some(batch);
    }

    /// The machine goes on.
    pub fn resume(&mut self) {
        if self.is_open() {
            assert!(self.is_paused(), "resumed without a pause");
            self.want = ANY;
        }
    }

    /// The machine closes.
    pub fn end(&mut self, after_send: bool) {
        assert!(self.close.is_none() && !self.closed, "closed twice");
        self.close = Some(after_send);
    }

    /// The batch that is out leaves: its bytes, and the batch for the machine.
    pub fn leave<L: Lender>(&mut self, memory: &Pages<L>) -> Option<(Vec<u8>, SendBatch)> {
        let (bytes, batch) = self.leave_some(u64::MAX, memory)?;
        Some((bytes, batch.expect("all of it left")))
    }

    /// Some bytes of the batch that is out leave, `most` at most: only now they are read. With the
    /// last of them comes the batch for the machine.
    pub fn leave_some<L: Lender>(
        &mut self,
        most: u64,
        memory: &Pages<L>,
    ) -> Option<(Vec<u8>, Option<SendBatch>)> {
        let batch = self.out.as_ref()?;
        let end = self.sent.saturating_add(most).min(batch.length);
        let bytes = part_of(batch, self.sent..end, memory);
        let is_over = end == batch.length;
        self.sent = if is_over { 0 } else { end };
        Some((bytes, self.out.take_if(|_| is_over)))
    }

    /// The connection carries nothing more. Returns whether the machine is to be told.
    pub fn lose(&mut self) -> bool {
        self.is_open() && !core::mem::replace(&mut self.lost, true)
    }

    /// The driver closes if it was asked to.
    pub fn try_shut(&mut self) -> Option<(Option<Direct>, Option<SendBatch>)> {
        (self.close.is_some() && !self.closed).then(|| self.shut())
    }

    /// The driver closes: what was lent, for the machine.
    pub fn shut(&mut self) -> (Option<Direct>, Option<SendBatch>) {
        assert!(self.close.is_some() && !self.closed, "nobody asked to close");
        self.closed = true;
        let direct = match core::mem::replace(&mut self.want, Want::Pause) {
            Want::Direct { direct, .. } => Some(direct),
            _ => None,
        };
        (direct, self.out.take())
    }
}

/// The bytes of a batch.
pub fn bytes_of<L: Lender>(batch: &SendBatch, memory: &Pages<L>) -> Vec<u8> {
    part_of(batch, 0..batch.length, memory)
}

fn part_of<L: Lender>(batch: &SendBatch, part: Range<u64>, memory: &Pages<L>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((part.end - part.start) as usize);
    let mut start = 0;
    for segment in &batch.segments {
        let (SendSegment::Head { length, .. }
        | SendSegment::Data { length, .. }
        | SendSegment::Zeros { length }) = *segment;
        let end = start + u64::from(length);
        let (low, high) = (part.start.max(start), part.end.min(end));
        if low < high {
            let (skip, count) = ((low - start) as u32, (high - low) as usize);
            let from = bytes.len();
            bytes.resize(from + count, 0);
            let into = &mut bytes[from..];
            match *segment {
                SendSegment::Head { start, .. } => {
                    into.copy_from_slice(&batch.head[(start + skip) as usize..][..count]);
                }
                SendSegment::Data { buffer, at, .. } => {
                    memory.read(&batch.buffers[buffer as usize], at + skip, into);
                }
                SendSegment::Zeros { .. } => {}
            }
        }
        start = end;
    }
    assert_eq!(start, batch.length, "the length of a batch");
    bytes
}
