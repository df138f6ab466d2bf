//! One I/O queue against a target that the test plays PDU by PDU: what only a peculiar or hostile
//! target does.

use core::time::Duration;

use block::{Buffer, Failure};
use block::{Completion, Extent, Instant, Memory, Operation, Outcome, Request, Ticket};
use contract::{ConnectionId, Next, Receive, SendBatch, SendSegment, StreamEffect};
use remote::JobState;
use testkit::Pages;
use testkit::nvme::seal;
use wire::nvme::command::DsmRange;
use wire::nvme::{Completion as Entry, Status};
use wire::nvme_tcp::{CapsuleResponse, DataHeader, Digests, ICResp, PduFlags, R2T, TermReq};

use crate::limits::ANSWERS_PER_SHARE;
use crate::tcp::initiator::exchange::Disk;
use crate::tcp::initiator::facts::Limits;
use crate::tcp::initiator::framing::{Fault, Socket};
use crate::tcp::initiator::plan::{Plan, plan};
use crate::tcp::initiator::queue::Queue;

const NOW: Instant = Instant(1_000);

struct Played {
    queue: Queue,
    disk: Disk,
    memory: Pages,
    digests: Digests,
}

const LIMITS: Limits = Limits {
    block_shift: 9,
    transfer: 1 << 20,
    capsule: 8192,
    zeroes: 65_536,
    verify: 65_536,
    ranges: 256,
    range_blocks: u32::MAX,
    discard_blocks: u64::MAX,
    compares: true,
};

impl Played {
    /// A live queue of 4 slots.
    fn new(digests: Digests) -> Played {
        Played::with_depth(digests, 4)
    }

    fn with_depth(digests: Digests, depth: u16) -> Played {
        let mut queue = Queue::new(digests);
        queue.set_depth(depth);
        queue.framing.open(ConnectionId::default());
        let mut played = Played { queue, disk: Disk::default(), memory: Pages::default(), digests };
        played.receive(&ICResp::new(digests, 4096).emit()).expect("a good ICResp");
        played.queue.live = true;
        let batch = played.batch().expect("ICReq");
        played.sent(batch);
        played
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<Receive, Fault> {
        self.queue.handle_received(NOW, bytes, &mut self.disk, &mut self.memory)
    }

    fn submit(&mut self, operation: Operation) {
        let mut request = Request { ticket: Ticket::default(), operation };
        self.disk.admit(&mut request, NOW + Duration::from_secs(60));
        self.go_on();
    }

    /// Sends the command of the job whose turn it is.
    fn go_on(&mut self) {
        let index = self.disk.front().expect("a job waits");
        match plan(&mut self.disk[index], &LIMITS, 1) {
            Plan::Command { mut command, sends } => {
                self.disk.start();
                let (disk, memory) = (&mut self.disk, &mut self.memory);
                self.queue.submit(index, &mut command, sends, disk, &LIMITS, memory);
            }
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, length: u32) {
        let buffer = Buffer::reserved(length, 0);
        self.submit(Operation::Read { extent: Extent::new(0, length.into()), buffer });
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut buffer = Buffer::reserved(bytes.len() as u32, 0);
        self.memory.write(&mut buffer, 0, bytes);
        let extent = Extent::new(0, bytes.len() as u64);
        self.submit(Operation::Write { extent, buffer, durable: false });
    }

    fn batch(&mut self) -> Option<SendBatch> {
        match self.queue.framing.poll_send(NOW)? {
            StreamEffect::Send { batch, .. } => Some(batch),
            other => panic!("{other:?}"),
        }
    }

    fn sent(&mut self, batch: SendBatch) {
        let mut returned = Vec::new();
        let (disk, memory) = (&mut self.disk, &mut self.memory);
        self.queue.handle_sent(NOW, batch, disk, &mut returned, memory);
    }

    fn done(&mut self) -> Option<Completion> {
        self.disk.poll_completion()
    }

    fn data(&self, id: u16, offset: u32, bytes: &[u8], flags: PduFlags) -> Vec<u8> {
        let header = DataHeader::c2h(id, offset, bytes.len() as u32, flags, self.digests);
        seal(&header.emit(), bytes, self.digests)
    }

    fn response(&self, id: u16, status: Status) -> Vec<u8> {
        CapsuleResponse::new(Entry::new(id, status), Digests::NONE).emit().to_vec()
    }
}

fn rule(result: Result<Receive, Fault>) -> String {
    result.expect_err("the target broke a rule").to_string()
}

#[test]
fn success_in_the_last_data_completes_a_read_without_a_response() {
    let mut played = Played::new(Digests::NONE);
    played.read(1024);
    let mut pdus = played.data(0, 0, &[1; 512], PduFlags::NONE);
    pdus.extend(played.data(0, 512, &[2; 512], PduFlags::LAST | PduFlags::SUCCESS));
    assert_eq!(played.receive(&pdus).expect("fine").consumed, pdus.len());
    let done = played.done().expect("it is complete");
    assert_eq!(done.outcome, Outcome::Done);
    let mut bytes = [0; 1024];
    played.memory.read(&done.buffer, 0, &mut bytes);
    assert_eq!((bytes[511], bytes[512]), (1, 2));
}

#[test]
fn answers_are_taken_a_share_at_a_time_so_that_those_above_go_on_between() {
    let answers = 2 * ANSWERS_PER_SHARE + 1;
    let mut played = Played::with_depth(Digests::NONE, answers as u16);
    (0..answers).for_each(|_| played.read(512));
    let end = PduFlags::LAST | PduFlags::SUCCESS;
    let pdu = |id| played.data(id as u16, 0, &[id as u8; 512], end);
    let stream: Vec<u8> = (0..answers).flat_map(pdu).collect();
    let length = stream.len() / answers as usize;
    let (mut at, mut shares) = (0, Vec::new());
    loop {
        let shown = played.receive(&stream[at..]).expect("fine");
        at += shown.consumed;
        let done = core::iter::from_fn(|| played.done());
        shares.push(done.inspect(|done| assert_eq!(done.outcome, Outcome::Done)).count() as u32);
        assert_eq!(at, length * shares.iter().sum::<u32>() as usize, "nothing is held back");
        if !matches!(shown.next, Next::Yield) {
            assert!(matches!(shown.next, Next::Idle), "{:?}", shown.next);
            break;
        }
    }
    assert_eq!(shares, [ANSWERS_PER_SHARE, ANSWERS_PER_SHARE, 1]);
}

#[test]
fn a_response_twice_finds_nothing_even_when_the_slot_is_used_again() {
    let mut played = Played::new(Digests::NONE);
    played.submit(Operation::Flush);
    let response = played.response(0, Status::SUCCESS);
    played.receive(&response).expect("fine");
    played.submit(Operation::Flush);
    assert!(rule(played.receive(&response)).contains("identifier"));
    assert!(played.done().is_some() && played.done().is_none());
}

#[test]
fn a_second_response_while_the_payload_is_still_lent_is_refused() {
    let mut played = Played::new(Digests::NONE);
    played.write(&[1; 4096]);
    // The command's batch is out, with the payload: the first answer waits for it.
    let out = played.batch().expect("the command");
    let response = played.response(0, Status::SUCCESS);
    played.receive(&response).expect("fine");
    assert_eq!(played.queue.outstanding(), 0);
    assert!(rule(played.receive(&response)).contains("one answer"));
    assert!(played.done().is_none());
    played.sent(out);
    assert_eq!(played.done().expect("the first answer counts").outcome, Outcome::Done);
}

#[test]
fn a_read_that_succeeds_without_all_its_data_is_never_done() {
    let mut played = Played::new(Digests::NONE);
    played.read(1024);
    let mut pdus = played.data(0, 0, &[1; 512], PduFlags::LAST);
    pdus.extend(played.response(0, Status::SUCCESS));
    assert!(rule(played.receive(&pdus)).contains("without all its data"));
    assert!(played.done().is_none());
}

#[test]
fn read_data_out_of_order_or_range_end_the_connection() {
    for (offset, length) in [(512u32, 512usize), (0, 1536)] {
        let mut played = Played::new(Digests::NONE);
        played.read(1024);
        let pdu = played.data(0, offset, &vec![0; length], PduFlags::NONE);
        assert!(rule(played.receive(&pdu)).contains("in order"));
    }
    let mut played = Played::new(Digests::NONE);
    played.write(&[1; 512]);
    let pdu = played.data(0, 0, &[0; 512], PduFlags::NONE);
    assert!(rule(played.receive(&pdu)).contains("reads none"));
}

#[test]
fn a_wrong_data_digest_has_the_read_asked_again_and_in_the_end_it_is_a_medium_error() {
    let digests = Digests { header: false, data: true };
    let mut played = Played::new(digests);
    played.read(512);
    for id in 0..8u16 {
        let mut pdu = played.data(id << 12, 0, &[1; 512], PduFlags::LAST | PduFlags::SUCCESS);
        *pdu.last_mut().expect("a digest") ^= 1;
        played.receive(&pdu).expect("the connection stays");
        if id == 7 {
            break;
        }
        assert!(played.done().is_none());
        played.disk.handle_timeout(NOW + Duration::from_secs(1));
        played.go_on();
    }
    let done = played.done().expect("tries run out");
    assert_eq!(done.outcome, Outcome::NotDone(Failure::MediumRead));
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let mut played = Played::new(Digests { header: true, data: false });
    played.read(512);
    let mut pdu = played.data(0, 0, &[1; 512], PduFlags::LAST);
    pdu[16] ^= 1;
    assert!(rule(played.receive(&pdu)).contains("header digest"));
}

#[test]
fn several_r2ts_at_once_are_answered_in_order_in_pieces_of_maxh2cdata() {
    let mut played = Played::new(Digests::NONE);
    let bytes: Vec<u8> = (0..16_384).map(|at| (at / 64) as u8).collect();
    played.write(&bytes);
    let command = played.batch().expect("the command");
    assert!(command.buffers.is_empty(), "too large for a capsule");
    // The first is answered while the command is out; two more come while that answer is out.
    let mut grants = R2T::new(0, 7, 0, 8192, Digests::NONE).emit().to_vec();
    played.receive(&grants).expect("fine");
    played.sent(command);
    let first = played.batch().expect("the first answer");
    grants = R2T::new(0, 8, 8192, 4096, Digests::NONE).emit().to_vec();
    grants.extend(R2T::new(0, 9, 12_288, 4096, Digests::NONE).emit());
    played.receive(&grants).expect("fine");
    assert!(played.batch().is_none(), "the payload is out");
    let headers = |batch: &SendBatch| {
        let heads = batch.segments.iter().filter_map(|segment| match *segment {
            SendSegment::Head { start, .. } => {
                let header = DataHeader::parse(&batch.head[start as usize..]).expect("a header");
                Some((header.transfer_tag, header.offset, header.length, header.is_last()))
            }
            SendSegment::Data { .. } | SendSegment::Zeros { .. } => None,
        });
        heads.collect::<Vec<_>>()
    };
    assert_eq!(headers(&first), [(7, 0, 4096, false), (7, 4096, 4096, true)]);
    played.sent(first);
    let second = played.batch().expect("the rest");
    assert_eq!(headers(&second), [(8, 8192, 4096, true), (9, 12_288, 4096, true)]);
    // The answer comes before the driver says that the batch has left: the payload is awaited.
    let response = played.response(0, Status::SUCCESS);
    played.receive(&response).expect("fine");
    assert!(played.done().is_none());
    played.sent(second);
    let done = played.done().expect("both are there");
    assert_eq!((done.outcome, done.buffer.len()), (Outcome::Done, 16_384));
}

#[test]
fn r2ts_beyond_the_command_or_out_of_order_or_too_many_end_the_connection() {
    for (offset, length) in [(0, 0), (4096, 4096), (0, 16_384 + 512)] {
        let mut played = Played::new(Digests::NONE);
        played.write(&[1; 16_384]);
        let grant = R2T::new(0, 1, offset, length, Digests::NONE).emit();
        assert!(rule(played.receive(&grant)).contains("R2T"), "{offset} {length}");
    }
    let mut played = Played::new(Digests::NONE);
    played.write(&[1; 8192]);
    let grant = R2T::new(0, 1, 0, 4096, Digests::NONE).emit();
    assert!(rule(played.receive(&grant)).contains("R2T"), "its data were in the capsule");
    let mut played = Played::new(Digests::NONE);
    played.write(&[1; 65_536]);
    let command = played.batch().expect("the command");
    played.sent(command);
    let grant = |at: u32| R2T::new(0, at as u16, at * 512, 512, Digests::NONE).emit();
    played.receive(&grant(0)).expect("fine");
    let out = played.batch().expect("its answer");
    (1..5).for_each(|at| drop(played.receive(&grant(at)).expect("four may wait")));
    assert!(rule(played.receive(&grant(5))).contains("R2T"));
    played.sent(out);
}

#[test]
fn a_large_read_goes_straight_into_its_buffer_and_a_break_returns_it() {
    let mut played = Played::new(Digests::NONE);
    played.read(131_072);
    let pdu = played.data(0, 0, &vec![5; 131_072], PduFlags::LAST);
    let receive = played.receive(&pdu[..24 + 100]).expect("fine");
    assert_eq!(receive.consumed, 124);
    let Next::Direct(direct) = receive.next else { panic!("{:?}", receive.next) };
    assert_eq!((direct.at, direct.length), (100, 131_072 - 100));
    played.queue.framing.socket = Socket::Closing(ConnectionId::default());
    let lost = played.queue.handle_closed(Some(direct), None, &mut played.disk);
    assert_eq!(lost.len(), 1);
    played.disk.recover(NOW, lost);
    assert!(played.disk.front().is_some(), "it is asked again, with its buffer");
}

#[test]
fn a_command_that_had_not_left_is_not_in_doubt() {
    let mut played = Played::new(Digests::NONE);
    played.write(&[1; 4096]);
    let out = played.batch().expect("the first leaves");
    played.write(&[2; 4096]);
    let lost = played.queue.handle_closed(None, Some(out), &mut played.disk);
    assert_eq!(lost.iter().filter(|(_, left)| *left).count(), 1);
    played.disk.recover(NOW, lost);
    let states = [0, 1].map(|index| played.disk[index].state);
    assert_eq!(states, [JobState::Doubtful(None), JobState::Waiting]);
}

#[test]
fn a_term_req_and_a_host_s_pdu_end_the_connection_with_what_was_said() {
    let mut played = Played::new(Digests::NONE);
    let fes = wire::nvme_tcp::FatalErrorStatus::SEQUENCE_ERROR;
    let mut bytes = [0; TermReq::SIZE_MAX];
    let term = TermReq::new(wire::nvme_tcp::PduType::C2H_TERM_REQ, fes, 0, &[0; 24]);
    let length = term.emit(&mut bytes);
    assert!(rule(played.receive(&bytes[..length])).contains("sequence"));
}

#[test]
fn a_discard_is_every_whole_block_once_in_commands_within_the_limits() {
    for most in [1, 2, 4] {
        let limits =
            Limits { block_shift: 12, ranges: most, range_blocks: 3, discard_blocks: 5, ..LIMITS };
        // Block 1; 4 to 13; none; 16.
        let extents = [(512, 8192), (16_384, 40_960), (57_856, 3584), (65_024, 5120)];
        let extents = extents.map(|(offset, length)| Extent::new(offset, length)).to_vec();
        let mut disk = Disk::default();
        let operation = Operation::Discard { extents };
        let mut request = Request { ticket: Ticket::default(), operation };
        disk.admit(&mut request, NOW + Duration::from_secs(60));
        let index = disk.front().expect("a job waits");
        let mut blocks = Vec::new();
        while let Plan::Command { command, sends } = plan(&mut disk[index], &limits, 1) {
            let job = &mut disk[index];
            let ranges: Vec<DsmRange> = DsmRange::parse_all(&job.wire.ranges).collect();
            let count = ranges.len();
            assert_eq!((count, 16 * count), (DsmRange::count(&command), sends as usize));
            assert!(count <= most as usize && ranges.iter().all(|range| range.blocks <= 3));
            assert!(ranges.iter().map(|range| range.blocks).sum::<u32>() <= 5, "{ranges:?}");
            let all = |range: &DsmRange| range.lba..range.lba + u64::from(range.blocks);
            blocks.extend(ranges.iter().flat_map(all));
            assert!(blocks.len() <= 12, "more than there are: {blocks:?}");
            job.cursor = job.then;
        }
        assert_eq!(blocks, [&[1][..], &(4..14).collect::<Vec<_>>(), &[16]].concat());
    }
}

#[test]
fn no_bytes_make_a_queue_panic() {
    let mut random = block::random::Random::new(11);
    for round in 0..3000 {
        let digests = Digests::from_bits((round % 4) as u8);
        let mut played = Played::new(digests);
        played.read(4096);
        played.write(&[1; 65_536]);
        let mut pdus = played.data(0, 0, &[1; 4096], PduFlags::LAST);
        pdus.extend(R2T::new(1, 3, 0, 4096, digests).emit());
        pdus.extend(played.response(1, Status::SUCCESS));
        for _ in 0..1 + random.below(4) {
            let at = random.below(pdus.len() as u64) as usize;
            pdus[at] = random.next_u64() as u8;
        }
        let mut at = 0;
        while let Ok(receive) = played.receive(&pdus[at..]) {
            at += receive.consumed;
            if receive.consumed == 0 || at == pdus.len() {
                break;
            }
        }
    }
}
