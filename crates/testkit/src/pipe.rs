//! The driver's side of one connection: what came and was not consumed, what the machine wants
//! next, the batch that is out. It keeps the driver's half of the contract (`contract::Machine`)
//! and checks the machine's half.

use crate::Pages;
use block::Memory;
use contract::{Direct, Next, Receive, SendBatch, SendSegment, SessionEffect};

/// One connection, seen from one of its ends.
#[derive(Debug)]
pub struct Pipe {
    /// What the other side sent and did not arrive yet.
    pub coming: Vec<u8>,
    received: Vec<u8>,
    shown: usize,
    want: Want,
    /// The batch that is out.
    pub out: Option<SendBatch>,
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
            received: Vec::new(),
            shown: 0,
            want: ANY,
            out: None,
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
        self.received.extend(self.coming.drain(..count));
    }

    /// Bytes arrive.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
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

    /// Shows what arrived, as often as the machine wants it within a turn. Returns whether it was
    /// shown anything.
    pub fn show(
        &mut self,
        memory: &mut Pages,
        mut machine: impl FnMut(Shown<'_>, &mut Pages) -> Receive,
    ) -> bool {
        let mut moved = false;
        while self.is_open() && !self.lost {
            match &mut self.want {
                Want::Pause => break,
                Want::Direct { direct, filled } => {
                    let missing = direct.length - *filled;
                    let there = self.received.len().min(missing as usize);
                    if there == 0 {
                        break;
                    }
                    moved = true;
                    let bytes: Vec<u8> = self.received.drain(..there).collect();
                    memory.write(&mut direct.buffer, direct.at + *filled, &bytes);
                    *filled += there as u32;
                    if *filled < direct.length {
                        break;
                    }
                    let Want::Direct { direct, .. } = core::mem::replace(&mut self.want, ANY)
                    else {
                        unreachable!("it was one")
                    };
                    let receive = machine(Shown::Direct(direct), memory);
                    if self.take(receive.next) {
                        break;
                    }
                }
                &mut Want::Stream { at_least, at_most } => {
                    let most = self.shown.saturating_add(at_most).max(at_least);
                    let visible = self.received.len().min(most);
                    if visible < at_least.max(self.shown).max(1) {
                        break;
                    }
                    moved = true;
                    let receive = machine(Shown::Bytes(&self.received[..visible]), memory);
                    assert!(receive.consumed <= visible, "consumed more than was shown");
                    let yields = matches!(receive.next, Next::Yield);
                    assert!(!yields || receive.consumed > 0, "a turn of nothing");
                    self.received.drain(..receive.consumed);
                    self.shown = visible - receive.consumed;
                    if self.take(receive.next) {
                        break;
                    }
                }
            }
        }
        moved
    }

    /// Notes what the machine wants. Returns whether it yields.
    fn take(&mut self, next: Next) -> bool {
        let (want, yields) = match next {
            Next::Stream { at_least, at_most } => {
                assert!(at_least > 0 && at_most > 0, "at least {at_least}, at most {at_most}");
                assert!(
                    at_least as usize > self.shown,
                    "it was shown {} bytes, and {at_least} are enough",
                    self.shown
                );
                let at_most = if at_most == u32::MAX { usize::MAX } else { at_most as usize };
                (Want::Stream { at_least: at_least as usize, at_most }, false)
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
    pub fn leave(&mut self, memory: &Pages) -> Option<(Vec<u8>, SendBatch)> {
        let batch = self.out.take()?;
        Some((bytes_of(&batch, memory), batch))
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
pub fn bytes_of(batch: &SendBatch, memory: &Pages) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(batch.length as usize);
    for segment in &batch.segments {
        match *segment {
            SendSegment::Head { start, length } => {
                bytes.extend(&batch.head[start as usize..(start + length) as usize]);
            }
            SendSegment::Data { buffer, at, length } => {
                let from = bytes.len();
                bytes.resize(from + length as usize, 0);
                memory.read(&batch.buffers[buffer as usize], at, &mut bytes[from..]);
            }
            SendSegment::Zeros { length } => bytes.resize(bytes.len() + length as usize, 0),
        }
    }
    assert_eq!(bytes.len() as u64, batch.length, "the length of a batch");
    bytes
}
