//! An attached disk against a volume in memory: every request is answered once, with what the disk has.

use block::Failure;

use super::*;
use crate::fake::Bench;

/// Who keeps his answers.
#[derive(Clone, Debug)]
struct Asker {
    number: usize,
    answers: Arc<Mutex<Vec<(usize, Said)>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Read(Vec<u8>),
    Done,
    Failed(Outcome),
}

impl Asker {
    fn say(self, said: Said) {
        lock(&self.answers).push((self.number, said));
    }
}

impl Answer for Asker {
    fn read(self, bytes: &[u8]) {
        self.say(Said::Read(bytes.to_vec()));
    }

    fn done(self) {
        self.say(Said::Done);
    }

    fn failed(self, outcome: Outcome) {
        self.say(Said::Failed(outcome));
    }
}

/// Has the wishes carried out; what was answered, by number.
fn ask(bench: &mut Bench, wishes: Vec<Wish>) -> Vec<Said> {
    let answers: Arc<Mutex<Vec<(usize, Said)>>> = Arc::default();
    let (inbox, progress) = (Arc::new(Inbox::default()), Arc::new(Progress::default()));
    let count = wishes.len();
    let mut told = false;
    for (number, wish) in wishes.into_iter().enumerate() {
        let asked = Asked { wish, answer: Asker { number, answers: answers.clone() } };
        // The shard is told of the first of those that nobody took.
        assert_eq!(inbox.push(asked), !std::mem::replace(&mut told, true));
    }
    assert_eq!(inbox.standing(), (0, count as u64));
    // It ends once all is answered.
    progress.stop();
    bench.run(Attached::new(Place(0), inbox.clone(), progress));
    assert_eq!(inbox.standing(), (count as u64, 0));
    let mut answers = lock(&answers).clone();
    answers.sort_by_key(|(number, _)| *number);
    assert!(answers.iter().map(|(number, _)| *number).eq(0..count), "each is answered once");
    answers.into_iter().map(|(_, said)| said).collect()
}

fn write(offset: u64, length: usize, byte: u8) -> Wish {
    Wish::Write { offset, bytes: vec![byte; length] }
}

#[test]
fn what_was_written_is_read_and_a_flush_reaches_the_disk() {
    let mut bench = Bench::new(&[1 << 20]);
    let said = ask(&mut bench, vec![write(4096, 8192, 7), write(65536 + 512, 512, 9)]);
    assert_eq!(said, [Said::Done, Said::Done]);
    let reads = vec![
        Wish::Read(Extent::new(4096 + 512, 4096)),
        Wish::Flush,
        Wish::Read(Extent::new(65536, 1536)),
    ];
    let said = ask(&mut bench, reads);
    let mut around = vec![0; 1536];
    around[512..1024].fill(9);
    assert_eq!(said, [Said::Read(vec![7; 4096]), Said::Done, Said::Read(around)]);
    assert_eq!(bench.flushes, 1);
    assert_eq!(bench.durable_writes, 0, "a kernel asks for durability by a flush");
}

#[test]
fn a_large_clear_is_many_requests_and_one_answer() {
    let size = 3 * CLEAR_MAX as usize;
    let mut bench = Bench::new(&[size]);
    bench.volumes[0].fill(1);
    let extent = Extent::new(4096, 2 * CLEAR_MAX + 4096);
    let said = ask(&mut bench, vec![Wish::Clear { extent, deallocate: true }]);
    assert_eq!(said, [Said::Done]);
    let volume = &bench.volumes[0];
    let (from, to) = (extent.offset.0 as usize, extent.end().0 as usize);
    assert!(volume[from..to].iter().all(|byte| *byte == 0));
    assert!(volume[..from].iter().chain(&volume[to..]).all(|byte| *byte == 1));
}

#[test]
fn a_failure_is_told_as_it_is_and_ends_a_clear() {
    let mut bench = Bench::new(&[3 * CLEAR_MAX as usize]);
    bench.fail_at = Some(4096);
    let wishes = vec![Wish::Read(Extent::new(0, 8192)), write(4096, 512, 1), write(0, 512, 1)];
    let said = ask(&mut bench, wishes);
    let read = Said::Failed(Outcome::NotDone(Failure::MediumRead));
    let written = Said::Failed(Outcome::NotDone(Failure::MediumWrite));
    assert_eq!(said, [read, written, Said::Done]);
    bench.clears = false;
    let extent = Extent::new(0, 3 * CLEAR_MAX);
    let said = ask(&mut bench, vec![Wish::Clear { extent, deallocate: false }]);
    assert_eq!(said, [Said::Failed(Outcome::NotDone(Failure::Unsupported))]);
}

#[test]
fn more_requests_than_jobs_and_more_bytes_than_memory_wait_their_turn() {
    let mut bench = Bench::new(&[64 << 20]);
    let large = REQUEST_MAX as usize;
    let large_ones = (0..64).map(|at| write(at * large as u64, large, at as u8 + 1));
    let said = ask(&mut bench, large_ones.collect());
    assert!(said.iter().all(|said| *said == Said::Done));
    for (at, part) in bench.volumes[0].chunks(large).enumerate() {
        assert!(part.iter().all(|byte| *byte == at as u8 + 1), "MiB {at}");
    }
    let reads = (0..2_000u64).map(|at| Wish::Read(Extent::new(at * 512, 512)));
    let said = ask(&mut bench, reads.collect());
    assert!(said.iter().all(|said| *said == Said::Read(vec![1; 512])));
    assert!(bench.depth_seen <= DEPTH as usize, "{} at once", bench.depth_seen);
}

#[test]
fn without_a_wish_to_stop_it_waits_for_more() {
    let (inbox, progress) = (Arc::new(Inbox::<Asker>::default()), Arc::new(Progress::default()));
    let mut attached = Attached::new(Place(0), inbox, progress.clone());
    let mut bench = Bench::new(&[4096]);
    attached.handle_turn(&mut bench);
    assert_eq!((attached.phase(), attached.poll_timeout()), (Phase::Measuring, None));
    progress.stop();
    attached.handle_turn(&mut bench);
    assert_eq!(attached.phase(), Phase::Done);
}

#[test]
fn memory_of_writes_is_used_again_but_not_kept_without_end() {
    let inbox = Inbox::<Asker>::default();
    inbox.keep(vec![1; 4096]);
    let spare = inbox.spare();
    assert!(spare.is_empty() && spare.capacity() >= 4096);
    assert_eq!(inbox.spare().capacity(), 0, "there was one");
    (0..2 * SPARES_MAX).for_each(|_| inbox.keep(vec![1; 512]));
    assert_eq!(lock(&inbox.spares).len(), SPARES_MAX);
}
