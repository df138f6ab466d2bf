//! Links: shows the frames that came, sends batches of frames, and sleeps on what is quiet.
//!
//! **Receiving.** A link whose descriptor became ready is *awake*. Each turn shows it a bounded
//! number of frames; one that has more comes again in the next turn, which does not sleep. Before
//! the shard sleeps, those that have none are watched by the engine and cost nothing. So a flood
//! takes turns with mail, timers and connections, and what a turn was shown is answered before more
//! is taken. What a link that forwards was shown stays where the kernel put it until the turn has ended.
//!
//! **Sending.** The vectors of `sendmmsg`, or those that AF_XDP copies from, are made from the batch
//! when it is sent, so data are read where they lie, in buffers or where frames came; what is new in front
//! of a frame that is sent on is written there. The kernel copies
//! them: a batch is done when the call returns. When the socket's buffer is full, what is left of the
//! batch waits for room, with a copy of what it names of frames that came: Ethernet promises nothing, but a dropped reply costs its peer a whole retransmission time, and an interface slower than memory
//! fills the buffer all the time. What the interface refuses, and what has found no room for
//! [`STUCK`], is dropped and counted.
//!
//! In: commands of the supervisor, frames, batches. Out: events. A socket that is asked back leaves
//! once no watch on it is out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use block::Instant;
use block::table::{Slot, Table};
use contract::{Event, Fetch, FrameBatch, InFrame, LentFrames, LinkId, Machine, OutFrame, Soon};
use libc::{iovec, mmsghdr};

use super::poll::NETWORK;
use super::{Alarm, Driver};
use crate::engine::{Engine, Kind, Op};
use crate::link::counters::Counters;
use crate::link::ring::Lies;
use crate::link::socket::LinkSocket;
use crate::link::supervisor::LinkCommand;
use crate::memory::ShardMemory;
use crate::memory::lines::prefetch;
use crate::stats::add;

/// Frames of a link that a turn is shown at most: two windows of 32, so that their replies leave in
/// one call; at 2 us each they hold others up for 128 us.
const FRAMES_PER_TURN: u32 = 64;
/// Messages of one call; the kernel takes no more (UIO_MAXIOV).
const MESSAGES_MAX: usize = 1024;
/// A link that has had no room to send for so long drops what waits.
const STUCK: Duration = Duration::from_secs(1);
/// Where nothing tells that there is room again, it is tried after so long: some frames of 9,000
/// bytes on a gigabit wire.
const ROOM_RETRY: Duration = Duration::from_micros(500);
/// A watch that failed is tried again after so long.
const RETRY: Duration = Duration::from_millis(100);

/// The links of a shard.
#[derive(Default)]
pub(super) struct Links {
    sockets: Table<OpenLink>,
    /// Links by name: few, and looked up once for a run of frames.
    names: Vec<Name>,
    /// Those whose sockets may have frames; no watch for frames is out on them.
    awake: Vec<Slot>,
    /// Some of them had frames at the end of the turn.
    has_frames: bool,
    /// Frames that were shown in this turn and lie where they were received.
    lent: LentFrames<Lies>,
    /// Batches of which something waits for room, in the order in which they came.
    held: VecDeque<Held>,
    call: Call,
    /// Lists that are not in use.
    lists: Vec<Vec<u32>>,
    /// System calls of sockets that are gone.
    system_calls: u64,
}

/// A link that the supervisor has named. It stays when the link is down, to count what is sent
/// there.
struct Name {
    link: LinkId,
    socket: Option<Slot>,
    counters: Arc<Counters>,
}

/// A socket in use.
struct OpenLink {
    socket: Box<LinkSocket>,
    /// Watches that are out.
    frames: bool,
    room: bool,
    /// There was no room to send when it was last tried.
    full: bool,
    /// Since when nothing could be sent.
    stuck: Option<Instant>,
    /// An alarm is set.
    alarm: bool,
    /// By which more frames are looked for.
    source: Slot,
    /// Who asked for the socket back.
    leaving: Option<Sender<Option<Box<LinkSocket>>>>,
}

/// A batch of which something waits for room.
struct Held {
    token: u32,
    batch: FrameBatch,
    /// The frames that have not left, by number.
    rest: Vec<u32>,
}

/// The memory of a call, used over and over.
#[derive(Default)]
struct Call {
    vectors: Vec<iovec>,
    /// Of which a call takes as many as it has frames; the kernel changes nothing in them but what it says of each.
    messages: Vec<mmsghdr>,
    /// The frames, by number.
    frames: Vec<u32>,
}

impl Links {
    /// Whether a link had frames that were not shown when it was last looked at.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.has_frames
    }

    /// Whether a link has frames now.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        let mut awake = self.awake.iter().filter_map(|slot| self.sockets.get(*slot));
        awake.any(|open| open.leaving.is_none() && open.socket.has_frame())
    }

    /// System calls made for links.
    pub(super) fn system_calls(&self) -> u64 {
        let open: u64 = self.sockets.iter().map(|(_, open)| open.socket.system_calls()).sum();
        self.system_calls + open
    }

    #[inline]
    fn name(&mut self, link: LinkId) -> Option<&mut Name> {
        self.names.iter_mut().find(|name| name.link == link)
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Does what the supervisor says.
    pub(super) fn handle_link_command(&mut self, command: LinkCommand) {
        match command {
            LinkCommand::Take(socket, facts, poll) => {
                let (link, counters) = (socket.link, socket.counters.clone());
                let source = self.polls.add(poll, NETWORK);
                let slot = self.links.sockets.insert(OpenLink::new(socket, source));
                match self.links.name(link) {
                    Some(name) => name.socket = Some(slot),
                    None => self.links.names.push(Name { link, socket: Some(slot), counters }),
                }
                self.links.awake.push(slot);
                self.tell(Event::LinkUp { link, facts });
            }
            LinkCommand::Give { link, down, told } => self.give(link, down, told),
            LinkCommand::Poll(link, poll) => {
                let slot = self.links.name(link).and_then(|name| name.socket);
                if let Some(open) = slot.and_then(|slot| self.links.sockets.get(slot)) {
                    self.polls.change(open.source, poll);
                }
            }
            LinkCommand::Tell(link, facts) => self.tell(Event::LinkUp { link, facts }),
            LinkCommand::Lose(link) => self.tell(Event::LinkDown { link }),
            LinkCommand::Forget(link) => self.links.names.retain(|name| name.link != link),
        }
    }

    fn give(&mut self, link: LinkId, down: bool, told: Sender<Option<Box<LinkSocket>>>) {
        let Some(slot) = self.links.name(link).and_then(|name| name.socket.take()) else {
            let _ = told.send(None);
            return;
        };
        if down {
            self.tell(Event::LinkDown { link });
        }
        // What waits for room there comes back before the machine hears of the link again.
        self.send_held();
        let open = self.links.sockets.get_mut(slot).expect("a link's socket is there");
        open.leaving = Some(told);
        let watches = [(open.frames, Kind::Frames), (open.room, Kind::Room)];
        for (_, kind) in watches.into_iter().filter(|(is_out, _)| *is_out) {
            self.engine.cancel(Self::key(kind, slot));
        }
        self.leave_if_quiet(slot);
    }

    /// Gives a socket that was asked for back, if no watch on it is out.
    fn leave_if_quiet(&mut self, slot: Slot) {
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        if open.leaving.is_none() || open.frames || open.room {
            return;
        }
        assert!(self.links.lent.is_empty(), "a socket leaves before frames are shown, or after");
        // Whoever asked knows then that the machine was told.
        self.flush_events();
        let open = self.links.sockets.remove(slot).expect("it was just found");
        self.links.awake.retain(|awake| *awake != slot);
        self.links.system_calls += open.socket.system_calls();
        self.polls.leave(open.source);
        let (watched, sender) = (open.socket.descriptor(), open.socket.sender());
        self.engine.forget(watched);
        if sender != watched {
            self.engine.forget(sender);
        }
        if let Some(told) = open.leaving {
            // Nobody listens any more only while the reactor is being dropped.
            let _ = told.send(Some(open.socket));
        }
    }

    /// A watch for frames has ended.
    pub(super) fn frames_ended(&mut self, slot: Slot, result: i32) {
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        open.frames = false;
        if open.leaving.is_some() {
            self.leave_if_quiet(slot);
        } else if result < 0 {
            // The watch itself failed: not at once again, lest it spins.
            self.set_link_alarm(slot, RETRY);
        } else {
            if result & i32::from(libc::POLLERR) != 0 {
                // It is told until it is taken. What it means, the supervisor sees by itself.
                let _ = open.socket.take_error();
            }
            self.links.awake.push(slot);
        }
    }

    /// Shows the frames of this turn. Returns how many came.
    #[inline]
    pub(super) fn show_frames(&mut self) -> usize {
        if self.links.awake.is_empty() {
            return 0;
        }
        self.flush_events();
        let Driver { machine, memory, links, polls, now, .. } = self;
        let Links { awake, sockets, lent, .. } = links;
        let mut count = 0;
        for slot in &*awake {
            let Some(open) = sockets.get_mut(*slot) else { continue };
            if open.leaving.is_some() {
                continue;
            }
            let link = open.socket.link;
            let came = open.socket.receive(FRAMES_PER_TURN, |slot| {
                let lent = slot.lies.map(|lies| lent.lend(lies));
                let frame = InFrame::new(link, slot.tag, slot.bytes);
                let soon = slot.soon.map(|bytes| Soon { bytes, fetch: Fetch::by(prefetch) });
                let frame = InFrame { lent, soon, ..frame };
                machine.handle_frame(*now, frame, memory);
            });
            if came > 0 {
                polls.came(open.source, *now);
                polls.stir(open.source);
            }
            count += came;
        }
        count as usize
    }

    /// The end of a turn: no frame is lent any more, and whether there are others.
    #[inline]
    pub(super) fn survey_links(&mut self) {
        let Links { awake, sockets, lent, .. } = &mut self.links;
        lent.end_turn();
        for slot in &*awake {
            if let Some(open) = sockets.get_mut(*slot) {
                open.socket.give_back();
            }
        }
        self.links.has_frames = !self.links.awake.is_empty() && self.links.has_frame();
    }

    /// Before the shard sleeps: those that have no more frames are watched. Returns whether there is
    /// one that has some.
    #[inline]
    pub(super) fn watch_links(&mut self) -> bool {
        let Driver { links, engine, .. } = self;
        let Links { awake, sockets, .. } = links;
        let mut has_frames = false;
        awake.retain(|slot| {
            let Some(open) = sockets.get_mut(*slot) else { return false };
            if open.leaving.is_some() {
                return false;
            }
            if open.socket.ask_for_frames() {
                has_frames = true;
                return true;
            }
            open.frames = true;
            let op = Op::Frames(open.socket.descriptor());
            // SAFETY: a watch points at no memory.
            unsafe { engine.start(Self::key(Kind::Frames, *slot), op) };
            false
        });
        has_frames
    }

    /// Takes a batch to send.
    pub(super) fn send_frames(&mut self, token: u32, batch: FrameBatch) {
        let mut rest = self.links.lists.pop().unwrap_or_default();
        rest.extend(0..batch.frames.len() as u32);
        self.send_rest(Held { token, batch, rest });
    }

    /// Tries what waits for room again.
    fn send_held(&mut self) {
        for _ in 0..self.links.held.len() {
            let Some(held) = self.links.held.pop_front() else { return };
            self.send_rest(held);
        }
    }

    /// Sends what is left of a batch, link by link, and tells of it or holds what finds no room.
    fn send_rest(&mut self, mut held: Held) {
        let Held { batch, rest, .. } = &mut held;
        let mut frames = std::mem::take(&mut self.links.call.frames);
        let mut kept = self.links.lists.pop().unwrap_or_default();
        while let Some(first) = rest.first() {
            let link = batch.frames[*first as usize].link;
            frames.clear();
            if batch.frames.iter().all(|frame| frame.link == link) {
                frames.append(rest);
            } else {
                rest.retain(|number| {
                    let is_its = batch.frames[*number as usize].link == link;
                    if is_its {
                        frames.push(*number);
                    }
                    !is_its
                });
            }
            let done = self.send_on(link, batch, &frames);
            kept.extend_from_slice(&frames[done..]);
        }
        self.links.call.frames = frames;
        let spent = std::mem::replace(rest, kept);
        self.links.lists.push(spent);
        self.hold_rest(held);
    }

    /// A batch waits for room for what is left of it, or all of it is done with.
    fn hold_rest(&mut self, mut held: Held) {
        if held.rest.is_empty() {
            self.links.lists.push(held.rest);
            self.tell(Event::FramesSent { token: held.token, batch: held.batch });
            return;
        }
        for number in &held.rest {
            held.batch.own(*number as usize, &self.links.lent, |frame| {
                // SAFETY: what is lent lies where it was received until the turn ends, and what is new was
                // written in front of what is sent on of it; after that it has no name.
                unsafe { std::slice::from_raw_parts(frame.at, frame.length) }
            });
        }
        self.links.held.push_back(held);
    }

    /// Sends frames of one link. Returns how many are done with: sent, or dropped; the others wait
    /// for room.
    fn send_on(&mut self, link: LinkId, batch: &FrameBatch, frames: &[u32]) -> usize {
        let Some(name) = self.links.name(link) else { return frames.len() };
        let Some(slot) = name.socket else {
            add(&name.counters.cells.send_failed, frames.len() as u64);
            return frames.len();
        };
        let open = self.links.sockets.get_mut(slot).expect("a link's socket is there");
        if open.full {
            return 0;
        }
        open.socket.set_urgent(batch.is_urgent);
        let counters = open.socket.counters.clone();
        let mut done = 0;
        while done < frames.len() {
            let next = &frames[done..frames.len().min(done + MESSAGES_MAX)];
            let places = Places { memory: &self.memory, lent: &self.links.lent };
            let sent = if let Some(xdp) = open.socket.as_xdp() {
                let name = |at: usize, vectors: &mut Vec<iovec>| {
                    places.push_vectors(batch, &batch.frames[next[at] as usize], vectors);
                };
                // SAFETY: the vectors name the batch's head, the pages that its buffers own or lease, and
                // frames where they were received, in this turn; all stay as they are during the call.
                unsafe { xdp.send(next.len(), &mut self.links.call.vectors, name) }
            } else {
                let messages = self.links.call.gather(batch, next, &places);
                // SAFETY: as above.
                unsafe { open.socket.send(messages) }
            };
            match sent {
                Ok(count) => {
                    open.stuck = None;
                    let bytes: u32 =
                        next[..count].iter().map(|n| batch.frames[*n as usize].len()).sum();
                    add(&counters.cells.sent, count as u64);
                    add(&counters.cells.sent_bytes, bytes.into());
                    done += count;
                }
                Err(libc::EINTR) => {}
                Err(libc::EAGAIN) => {
                    add(&counters.cells.send_waits, 1);
                    self.wait_for_room(slot);
                    return done;
                }
                // The interface is down or gone: none of them leaves.
                Err(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                    add(&counters.cells.send_failed, (frames.len() - done) as u64);
                    return frames.len();
                }
                // Longer than the MTU, or dropped by the interface's own queue.
                Err(_) => {
                    add(&counters.cells.send_failed, 1);
                    done += 1;
                }
            }
        }
        if open.socket.has_unsent() {
            self.set_link_alarm(slot, ROOM_RETRY);
        }
        done
    }

    fn wait_for_room(&mut self, slot: Slot) {
        let now = self.now;
        let open = self.links.sockets.get_mut(slot).expect("its frames found no room");
        open.full = true;
        open.stuck.get_or_insert(now);
        if !open.socket.tells_room() {
            self.set_link_alarm(slot, ROOM_RETRY);
            return;
        }
        open.room = true;
        let op = Op::Room(open.socket.sender());
        // SAFETY: a watch points at no memory.
        unsafe { self.engine.start(Self::key(Kind::Room, slot), op) };
        self.set_link_alarm(slot, STUCK);
    }

    /// At most one is set: a link that is always full would fill the list of alarms.
    fn set_link_alarm(&mut self, slot: Slot, after: Duration) {
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        if !std::mem::replace(&mut open.alarm, true) {
            self.set_alarm(after, Alarm::Link(slot));
        }
    }

    /// A watch for room has ended.
    pub(super) fn room_ended(&mut self, slot: Slot) {
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        open.room = false;
        if open.leaving.is_some() {
            self.leave_if_quiet(slot);
            return;
        }
        open.full = false;
        self.send_held();
    }

    /// A link's moment has come: to watch it again, or to drop what has waited for too long.
    pub(super) fn link_alarm(&mut self, slot: Slot) {
        let now = self.now;
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        open.alarm = false;
        if open.leaving.is_some() {
            return;
        }
        let stuck_for = open.stuck.filter(|_| open.full).map(|since| now.since(since));
        let tells_room = open.socket.tells_room();
        if open.socket.push_on() {
            self.set_link_alarm(slot, ROOM_RETRY);
        }
        let Some(open) = self.links.sockets.get_mut(slot) else { return };
        if !open.frames && !self.links.awake.contains(&slot) {
            self.links.awake.push(slot);
        }
        match stuck_for {
            Some(since) if since >= STUCK => {
                self.drop_held(slot);
                self.set_link_alarm(slot, STUCK);
            }
            Some(since) if tells_room => self.set_link_alarm(slot, STUCK - since),
            _ => {}
        }
        if stuck_for.is_some() && !tells_room {
            self.room_ended(slot);
        }
    }

    /// Drops all that waits for room on a link, which stays full until there is room.
    fn drop_held(&mut self, slot: Slot) {
        let Some(open) = self.links.sockets.get(slot) else { return };
        let (link, counters) = (open.socket.link, open.socket.counters.clone());
        for _ in 0..self.links.held.len() {
            let Some(mut held) = self.links.held.pop_front() else { return };
            let before = held.rest.len();
            held.rest.retain(|number| held.batch.frames[*number as usize].link != link);
            add(&counters.cells.send_failed, (before - held.rest.len()) as u64);
            self.hold_rest(held);
        }
    }
}

impl OpenLink {
    fn new(socket: Box<LinkSocket>, source: Slot) -> OpenLink {
        OpenLink {
            socket,
            frames: false,
            room: false,
            full: false,
            stuck: None,
            alarm: false,
            leaving: None,
            source,
        }
    }
}

impl Call {
    /// The messages of these frames, naming their bytes where they lie.
    fn gather(
        &mut self,
        batch: &FrameBatch,
        frames: &[u32],
        places: &Places<'_>,
    ) -> &mut [mmsghdr] {
        let Call { vectors, messages, .. } = self;
        vectors.clear();
        if messages.len() < frames.len() {
            // SAFETY: a header of zeros names nothing, which is valid.
            messages.resize_with(frames.len(), || unsafe { std::mem::zeroed() });
        }
        let messages = &mut messages[..frames.len()];
        for (message, number) in messages.iter_mut().zip(frames) {
            let before = vectors.len();
            places.push_vectors(batch, &batch.frames[*number as usize], vectors);
            message.msg_hdr.msg_iovlen = (vectors.len() - before) as _;
        }
        // Now that the vectors stay where they are.
        let mut next = vectors.as_mut_ptr();
        for message in &mut *messages {
            message.msg_hdr.msg_iov = next;
            next = next.wrapping_add(message.msg_hdr.msg_iovlen);
        }
        messages
    }
}

/// Where data lie that batches name.
struct Places<'d> {
    memory: &'d ShardMemory,
    lent: &'d LentFrames<Lies>,
}

impl Places<'_> {
    /// Where the bytes of a frame lie. One that is sent on is in one piece, where there is room in front of what stays
    /// of it.
    #[inline]
    fn push_vectors(&self, batch: &FrameBatch, frame: &OutFrame, vectors: &mut Vec<iovec>) {
        let (at, length) = (frame.data_at as usize, frame.data_length as usize);
        let heads = batch.heads(frame);
        let rest = frame.lent.map(|lent| {
            let lies = self.lent.get(lent);
            assert!(at + length <= lies.length, "of {} bytes {length} from {at}", lies.length);
            (lies.at.wrapping_add(at), lies.room + at)
        });
        let front: usize = heads.iter().map(|head| head.len()).sum();
        if let Some((rest, room)) = rest
            && front <= room
        {
            let begin = rest.wrapping_sub(front);
            // SAFETY: so many bytes in front of what is sent on are the frame's, or nobody's; it is sent on
            // once, and nobody looks at it again.
            unsafe { write(&heads, begin) };
            return vectors.push(iovec { iov_base: begin.cast(), iov_len: front + length });
        }
        vectors.extend(heads.into_iter().filter(|head| !head.is_empty()).map(vector));
        if let Some((rest, _)) = rest {
            vectors.push(iovec { iov_base: rest.cast(), iov_len: length });
        } else if length > 0 {
            let buffer = &batch.buffers[frame.buffer as usize].0;
            self.memory.iovecs(buffer, frame.data_at, frame.data_length, vectors);
        }
    }
}

/// Writes these, one behind the other.
///
/// # Safety
/// So much can be written there, and is none of them.
#[inline]
unsafe fn write(all: &[&[u8]], mut to: *mut u8) {
    for bytes in all {
        // SAFETY: as the caller says.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            to = to.add(bytes.len());
        }
    }
}

#[inline]
fn vector(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
