//! A disk behind a pseudowire: the router's shard reaches it, and the others ask that one.
//!
//! The client has three shards and its router on the second, where alone frames come; the target has
//! one, and exports its volume on the other end.

use block::{Failure, Ticket};
use shard::DiskMessage;

use super::*;

/// Where the client's router is.
const ROUTER: usize = 1;
const BY: ShardId = ShardId(ROUTER as u16);

/// A client that has found the target's disk, with a volume on it, and the target.
fn reached() -> (Host, Host) {
    let (client, target) = hosts();
    reach((client, target))
}

fn reach((mut client, mut target): (Host, Host)) -> (Host, Host) {
    let settings = ImportSettings::Aoe(aoe::initiator::Settings::new(&[WIRED], ADDRESS));
    client.begin(|| Order::AddImport {
        disk: DISK,
        settings: Box::new(settings.clone()),
        by: Some(BY),
    });
    assert_eq!(client.answers(), ["Done", "Done"], "two have nothing to look for");
    assert!(!client.sent.is_empty());
    meet_by_router(&mut client, &mut target);
    let found = core::mem::take(&mut client.control);
    let [(BY, Mail::Answer { answer, .. }), (BY, Mail::News(_))] = found.as_slice() else {
        panic!("{found:?}")
    };
    let Answer::Import(Ok(facts)) = &**answer else { panic!("{answer:?}") };
    assert_eq!(facts.size, ByteCount(SIZE));
    client.order(|| Order::AddReached { disk: DISK, facts: facts.clone() });
    client.add_volume(Reservation::default());
    (client, target)
}

fn hosts() -> (Host, Host) {
    let mut target = Host::with_pseudowire(TARGET, ONE, 1, 0);
    target.serve(WIRED, Reservation::default());
    (Host::with_pseudowire(ONE, TARGET, 3, ROUTER), target)
}

/// Lets both exchange frames until none is left.
fn meet_by_router(client: &mut Host, target: &mut Host) {
    for _ in 0..64 {
        let (questions, answers) =
            (core::mem::take(&mut client.sent), core::mem::take(&mut target.sent));
        if questions.is_empty() && answers.is_empty() {
            return;
        }
        questions.iter().for_each(|frame| target.frame(0, frame));
        answers.iter().for_each(|frame| client.frame(ROUTER, frame));
    }
    panic!("they never end");
}

impl Host {
    /// Has the volume written to by a client of a shard.
    fn write_by(&mut self, shard: usize, at: u64, bytes: &[u8]) -> Answered {
        let length = bytes.len() as u32;
        let mut buffer = Buffer::reserved(length, at as u32 % 4096);
        self.memory.write(&mut buffer, 0, bytes);
        let extent = Extent::new(at, length.into());
        let asked = self.visit_on(shard, Operation::Write { extent, buffer, durable: true });
        self.carry();
        asked
    }

    fn read_by(&mut self, shard: usize, at: u64, length: u32) -> Answered {
        let (extent, buffer) =
            (Extent::new(at, length.into()), Buffer::reserved(length, at as u32 % 4096));
        let asked = self.visit_on(shard, Operation::Read { extent, buffer });
        self.carry();
        asked
    }

    fn take(&mut self, answered: &Answered) -> Vec<u8> {
        let buffer = done(answered);
        let bytes = self.memory.bytes(&buffer);
        self.memory.release(buffer);
        bytes
    }
}

#[test]
fn all_shards_write_and_read_by_the_one_that_reaches_the_disk() {
    let (mut client, mut target) = reached();
    let bytes = |shard: usize| vec![0x40 + shard as u8; 5 * 512];
    for shard in 0..3 {
        let written = client.write_by(shard, 4096 * shard as u64 + 512, &bytes(shard));
        meet_by_router(&mut client, &mut target);
        client.memory.release(done(&written));
        let at = 4096 * shard + 512;
        assert_eq!(target.disk[at..at + 5 * 512], bytes(shard));
    }
    for shard in 0..3 {
        let (of, at) = ((shard + 1) % 3, 4096 * ((shard + 1) % 3) as u64 + 512);
        let read = client.read_by(shard, at, 5 * 512);
        meet_by_router(&mut client, &mut target);
        assert_eq!(client.take(&read), bytes(of), "shard {shard}");
    }
    // A sector a frame, which is what the pseudowire carries.
    let with_data: Vec<&OutFrame> =
        client.shapes.iter().filter(|frame| frame.data_length > 0).collect();
    assert_eq!(with_data.len(), 15);
    assert!(with_data.iter().all(|frame| frame.data_length == 512), "{with_data:?}");
    // One initiator has all that the target holds, and all pages are back.
    let reports: Vec<usize> =
        client.shards.iter().map(|shard| shard.report().imports.len()).collect();
    assert_eq!(reports, [0, 1, 0]);
    for host in [&client, &target] {
        assert_eq!(host.memory.held(), 0);
        assert!(host.shards.iter().all(|shard| (shard.pages_used(), shard.in_flight()) == (0, 0)));
    }
}

#[test]
fn the_one_that_reaches_the_disk_has_all_that_the_target_holds() {
    let (client, mut target) = hosts();
    let mut export = aoe::Export::new(ADDRESS, &[WIRED], VOLUME, ByteCount(SIZE));
    export.buffers = 6;
    let export = Box::new(AoeExport { id: EXPORT, export, control: Control::default() });
    target.order(|| Order::SetExport(Export::Aoe(export.clone())));
    let (mut client, mut target) = reach((client, target));
    let read = client.read_by(0, 0, 8 * 512);
    assert_eq!(client.sent.len(), 6, "of eight frames");
    meet_by_router(&mut client, &mut target);
    assert_eq!(client.take(&read), [0; 8 * 512]);
}

#[test]
fn writes_of_two_shards_that_overlap_are_never_on_the_wire_at_once() {
    let (mut client, mut target) = reached();
    let first = client.write_by(0, 0, &[1; 1024]);
    let second = client.write_by(2, 512, &[2; 1024]);
    assert_eq!(client.sent.len(), 2, "two sectors of the first");
    meet_by_router(&mut client, &mut target);
    for written in [first, second] {
        client.memory.release(done(&written));
    }
    assert_eq!(target.disk[..2048], [[1; 512], [2; 512], [2; 512], [0; 512]].concat());
}

#[test]
fn while_the_pseudowire_is_down_requests_of_all_shards_wait_and_end_at_their_deadline() {
    let (mut client, mut target) = reached();
    client.tell(ROUTER, Event::LinkDown { link: LINK });
    assert!(client.shards[ROUTER].report().imports[0].state.contains("looking for 7.3"));
    let read = client.read_by(0, 0, 512);
    assert!(client.sent.is_empty() && read.lock().unwrap().is_none());
    client.raise(ONE, ROUTER);
    meet_by_router(&mut client, &mut target);
    client.pass_until(ROUTER, |client| {
        meet_by_router(client, &mut target);
        read.lock().unwrap().is_some()
    });
    assert_eq!(client.take(&read), [0; 512]);

    client.tell(ROUTER, Event::LinkDown { link: LINK });
    let (read, begun) = (client.read_by(2, 0, 512), client.now);
    client.pass_until(ROUTER, |_| read.lock().unwrap().is_some());
    let completion = read.lock().unwrap().take().expect("it is answered");
    assert_eq!(completion.outcome, Outcome::NotDone(Failure::TimedOut));
    assert!(client.now >= begun + Duration::from_secs(60));
    client.memory.release(completion.buffer);
    assert_eq!(client.memory.held(), 0);
}

#[test]
fn a_shard_that_drains_awaits_what_another_has_of_it() {
    let (mut client, mut target) = reached();
    let read = client.read_by(0, 0, 512);
    client.begin(|| Order::Drain);
    assert_eq!(client.answers(), ["Done"], "the third shard has nothing there");
    meet_by_router(&mut client, &mut target);
    assert_eq!(client.answers(), ["Done", "Done"]);
    client.take(&read);
}

#[test]
fn what_comes_for_a_disk_that_is_gone_is_refused_with_its_buffer() {
    let (mut client, mut target) = reached();
    client.order(|| Order::QuiesceVolume(VOLUME));
    client.order(|| Order::ForgetVolume(VOLUME));
    client.order(|| Order::RemoveDisk(DISK));
    meet_by_router(&mut client, &mut target);
    let ticket = Ticket { shard: ShardId(2), ..Ticket::default() };
    let operation =
        Operation::Read { extent: Extent::new(0, 512), buffer: Buffer::reserved(512, 0) };
    let ask = DiskMessage::Ask(DISK, Request { ticket, operation });
    client.tell(ROUTER, Event::Mail { from: ShardId(2), mail: Mail::Disk(Box::new(ask)) });
    let (from, to, mail) = client.mail.pop_front().expect("an answer");
    let Mail::Disk(message) = mail else { panic!("{mail:?}") };
    let DiskMessage::Done(completion) = *message else { panic!("{message:?}") };
    assert_eq!((from, to), (BY, ShardId(2)));
    assert_eq!(completion.outcome, Outcome::NotDone(Failure::Removed));
    assert_eq!((completion.ticket, completion.buffer.len()), (ticket, 512));
}

#[test]
fn all_shards_follow_a_disk_that_grows() {
    let (mut client, mut target) = reached();
    let larger = ByteCount(SIZE + 4096);
    target.disk.resize(larger.0 as usize, 7);
    let facts = DiskFacts::of_memory(larger);
    target.order(|| Order::FollowDisk { disk: DISK, facts: facts.clone() });
    let layout = Layout::single(Member { disk: DISK, base: 0, length: larger.0 });
    target.order(|| Order::ResizeVolume { volume: VOLUME, layout: layout.clone() });
    let export = aoe::Export::new(ADDRESS, &[WIRED], VOLUME, larger);
    let export = Box::new(AoeExport { id: EXPORT, export, control: Control::default() });
    target.order(|| Order::SetExport(Export::Aoe(export.clone())));
    target.order(|| Order::AnnounceExports);
    target.pass_until(0, |target| !target.sent.is_empty());
    meet_by_router(&mut client, &mut target);
    let changed = |(from, mail): &(ShardId, Mail)| match mail {
        Mail::News(news) => match &**news {
            News::DiskChanged(DISK, facts) => Some((*from, facts.size)),
            _ => None,
        },
        _ => None,
    };
    let told: Vec<_> = client.control.iter().filter_map(changed).collect();
    assert_eq!(told, [(BY, larger)], "{:?}", client.control);
    client.control.clear();
    // As the control thread does, whom it told.
    client.order(|| Order::FollowDisk { disk: DISK, facts: facts.clone() });
    client.order(|| Order::ResizeVolume { volume: VOLUME, layout: layout.clone() });
    let read = client.read_by(2, SIZE, 4096);
    meet_by_router(&mut client, &mut target);
    assert_eq!(client.take(&read), [7; 4096]);
}
