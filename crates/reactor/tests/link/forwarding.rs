//! Frames that are sent on: from where they came, whatever comes or is in the way meanwhile, and by another
//! interface, over packet sockets and AF_XDP.

use super::*;
use net::silence_ipv6;

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Frames of which those before them told.
static FORETOLD: AtomicU32 = AtomicU32::new(0);

/// Tests start themselves again by their whole names, where they are not root.
fn on_each(name: &str, test: impl Fn(Bench) + Send + Sync) {
    super::on_each(&format!("forwarding::{name}"), test);
}

fn on_all(name: &str, test: impl Fn(Bench) + Send + Sync) {
    super::on_all(&format!("forwarding::{name}"), test);
}

fn on_xdp(name: &str, queues: u32, test: impl Fn(Bench) + Send + Sync) {
    super::on_xdp(&format!("forwarding::{name}"), queues, test);
}

/// A frame to the left that says how long it is and which one, in each of its words.
fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = frame(LEFT_MAC, RIGHT_MAC, &[0, 0]);
    bytes.extend((0..).flat_map(|word: u32| (number ^ word << 20).to_be_bytes()).take(length));
    bytes
}

/// The number of such a frame as it comes back.
fn number_of(bytes: &[u8]) -> u32 {
    let word = bytes[16..20].try_into().expect("a word");
    let number = u32::from_be_bytes(word);
    let sent = numbered(number, bytes.len() - 16);
    assert_eq!(&bytes[..14], header(RIGHT_MAC, LEFT_MAC), "frame {number}");
    assert!(bytes[14..] == sent[14..], "frame {number} of {} bytes is another's", bytes.len());
    number
}

impl Bench {
    /// A link whose frames are sent on, and that over AF_XDP can be as well, as no circuit.
    fn forwarding(&self, interface: &str) -> LinkOptions {
        LinkOptions { forwards: true, ..self.options(interface, None, one(ON_LEFT)) }
    }

    /// The left end forwards, and hears the right one.
    fn begin_to_forward(&self) {
        ["left", "right"].into_iter().for_each(silence_ipv6);
        self.handle.add_link(LEFT, &self.forwarding("left")).unwrap();
        self.wait_up(LEFT);
        self.add_all([(RIGHT, "right", None, one(ON_RIGHT))]);
        self.meet();
    }

    /// What comes to the left from now on goes back, behind a header of another's.
    fn begin_to_send_back(&self, token: u32, between: Option<fn()>) {
        let front = header(RIGHT_MAC, LEFT_MAC);
        let foretold = Some(&FORETOLD);
        let on = SendOn { from: LEFT, to: LEFT, rest_at: front.len(), front, between, foretold };
        self.handle.send(ON_LEFT, Note::Command(Command::SendOn(token, on)));
    }
}

#[test]
fn what_is_sent_on_leaves_as_it_came() {
    on_all("what_is_sent_on_leaves_as_it_came", |bench| {
        bench.begin_to_forward();
        bench.begin_to_send_back(7, None);
        let lengths = [44, 46, 200, 255, 256, 1000, 1484];
        // Few enough for the ring, and more than a turn is shown.
        let sent: Vec<FramePart> = (0..150)
            .map(|number| whole(RIGHT, numbered(number, lengths[number as usize % lengths.len()])))
            .collect();
        bench.send(ON_RIGHT, 1, sent.clone());
        let (mut back, mut left) = (Vec::new(), 0);
        while back.len() < sent.len() || left < sent.len() {
            match bench.next() {
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => back.push(number_of(&bytes)),
                (_, Report::FramesSent(7, count)) => left += count,
                (ON_LEFT, Report::Frame(LEFT, ..)) | (_, Report::FramesSent(1, _)) => {}
                other => panic!("expected frames, saw {other:?}"),
            }
        }
        assert_eq!(back, (0..150).collect::<Vec<u32>>());
        // Of each that came with others in a turn, but for the first.
        assert!(FORETOLD.swap(0, Relaxed) > 0, "no frame was told of by the one before");
    });
}

/// It is written where the frame lies if there is room; else beside it.
#[test]
fn what_is_new_in_front_may_be_longer_or_shorter_than_what_was_there() {
    on_all("what_is_new_in_front_may_be_longer_or_shorter_than_what_was_there", |bench| {
        bench.begin_to_forward();
        let sent: Vec<Vec<u8>> = (0..20).map(|number| numbered(number, 300)).collect();
        let ways = [
            (14, 0),
            (0, 0),
            (0, 20),
            (0, 21),
            (0, 241),
            (0, 242),
            (0, 900),
            (40, 26),
            (60, 0),
            (14, 400),
        ];
        for (token, (rest_at, more)) in (7..).zip(ways) {
            let mut front = header(RIGHT_MAC, LEFT_MAC);
            front.extend((0..more).map(|at| at as u8 | 1));
            let on = SendOn {
                from: LEFT,
                to: LEFT,
                front: front.clone(),
                rest_at,
                between: None,
                foretold: None,
            };
            bench.handle.send(ON_LEFT, Note::Command(Command::SendOn(token, on)));
            bench.send(ON_RIGHT, 1, sent.iter().map(|bytes| whole(RIGHT, bytes.clone())).collect());
            let mut back = Vec::new();
            while back.len() < sent.len() {
                match bench.next() {
                    (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => back.push(bytes),
                    (ON_LEFT, Report::Frame(LEFT, ..)) | (_, Report::FramesSent(..)) => {}
                    other => panic!("expected frames, saw {other:?}"),
                }
            }
            for (sent, back) in sent.iter().zip(back) {
                let whole = [&front[..], &sent[rest_at..]].concat();
                assert!(
                    back == whole,
                    "{} bytes in front of those from {rest_at} on: {back:x?}",
                    front.len()
                );
            }
        }
    });
}

/// What was shown stays as it was until it has left, whatever comes meanwhile.
#[test]
fn what_is_sent_on_is_not_written_over_before_it_has_left() {
    static GATE: Mutex<()> = Mutex::new(());
    on_all("what_is_sent_on_is_not_written_over_before_it_has_left", |bench| {
        bench.begin_to_forward();
        let closed = GATE.lock().unwrap();
        bench.begin_to_send_back(7, Some(|| drop(GATE.lock().unwrap())));
        let send = |numbers: std::ops::Range<u32>| {
            bench.send(ON_RIGHT, 1, numbers.map(|at| whole(RIGHT, numbered(at, 1484))).collect());
        };
        send(0..10);
        // Both ways to receive have fewer places than that.
        let begin = Clock::now();
        let before = bench.counted(LEFT).dropped;
        let mut number = 10;
        while bench.counted(LEFT).dropped == before {
            send(number..number + 500);
            number += 500;
            assert!(begin.elapsed() < HANG, "nothing is dropped: {:#?}", bench.stats());
        }
        drop(closed);
        let mut back = Vec::new();
        while back.len() < 10 {
            match bench.next() {
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => back.push(number_of(&bytes)),
                (ON_LEFT, Report::Frame(LEFT, ..)) | (_, Report::FramesSent(..)) => {}
                other => panic!("expected frames, saw {other:?}"),
            }
        }
        assert_eq!(back, (0..10).collect::<Vec<u32>>());
    });
}

const OUT: LinkId = LinkId(5);
const FAR: LinkId = LinkId(6);

impl Bench {
    /// A second cable, with as many queues, by whose near end leaves what comes to the left.
    /// `before`: what happens before there are links that send frames on.
    fn begin_to_send_out(&self, (queues, mtu): (u32, u32), before: impl FnOnce()) {
        assert!(make_pair("out", "far", queues));
        ["left", "right", "out", "far"].into_iter().for_each(|name| set_mtu(name, mtu));
        set_mac("far", STRANGER);
        ["out", "far"].into_iter().for_each(silence_ipv6);
        ["left", "right"].into_iter().for_each(silence_ipv6);
        ["out", "far"].into_iter().for_each(|name| set_up(name, true));
        let [right, far] = [(RIGHT, "right"), (FAR, "far")];
        self.add_all([right, far].map(|(link, name)| (link, name, None, one(ON_RIGHT))));
        before();
        for (link, name) in [(LEFT, "left"), (OUT, "out")] {
            self.handle.add_link(link, &self.forwarding(name)).unwrap();
            self.wait_up(link);
        }
        let front = header(STRANGER, LEFT_MAC);
        let (rest_at, foretold) = (front.len(), Some(&FORETOLD));
        let on = SendOn { from: LEFT, to: OUT, rest_at, front, between: None, foretold };
        self.handle.send(ON_LEFT, Note::Command(Command::SendOn(7, on)));
    }

    /// Frames of this length go that way, until a hundred have come as they were sent.
    fn until_they_come_out(&self, length: usize, first: u32) {
        let (begin, mut came, mut number) = (Clock::now(), 0, first);
        while came < 100 {
            let frames = (number..number + 50).map(|at| whole(RIGHT, numbered(at, length)));
            self.send(ON_RIGHT, 1, frames.collect());
            number += 50;
            loop {
                match self.next() {
                    (ON_RIGHT, Report::Frame(FAR, None, mut bytes)) => {
                        bytes[..14].copy_from_slice(&header(RIGHT_MAC, LEFT_MAC));
                        assert!((first..number).contains(&number_of(&bytes)));
                        assert_eq!(bytes.len(), length + 16);
                        came += 1;
                    }
                    (_, Report::FramesSent(1, _)) => break,
                    (_, Report::FramesSent(7, _) | Report::Frame(..)) => {}
                    other => panic!("expected frames, saw {other:?}"),
                }
            }
            assert!(begin.elapsed() < HANG, "{came} came: {:#?}", self.stats());
        }
    }
}

/// Over AF_XDP two such links share memory, also when one of them was away; more often than that memory has
/// room for somebody new.
#[test]
fn what_came_by_one_interface_leaves_by_another_that_comes_and_goes() {
    let name = "what_came_by_one_interface_leaves_by_another_that_comes_and_goes";
    on_all(name, |bench| {
        bench.begin_to_send_out((1, 1500), || ());
        for turn in 0..12 {
            bench.until_they_come_out(1484, turn * 100_000);
            for is_up in [false, true] {
                set_up("out", is_up);
                // Both ends of the cable.
                let mut told = 0;
                while told < 2 {
                    match bench.next() {
                        (_, Report::LinkDown(OUT | FAR)) if !is_up => told += 1,
                        (_, Report::LinkUp(OUT | FAR, _)) if is_up => told += 1,
                        (_, Report::FramesSent(..) | Report::Frame(..)) => {}
                        other => panic!("expected news of a link, saw {other:?}"),
                    }
                }
            }
        }
    });
}

/// Frames that lie in several chunks, of interfaces that share memory.
#[test]
fn long_frames_leave_by_another_interface_as_they_came() {
    on_all("long_frames_leave_by_another_interface_as_they_came", |bench| {
        bench.begin_to_send_out((1, 9000), || ());
        bench.until_they_come_out(8984, 0);
    });
}

#[test]
fn every_queue_of_an_interface_sends_on_by_every_other() {
    let name = "every_queue_of_an_interface_sends_on_by_every_other";
    on_xdp(name, 3, |bench| {
        bench.begin_to_send_out((3, 1500), || ());
        bench.until_they_come_out(1484, 0);
    });
}

/// So little that the memory of several links cannot be, and that of each can.
#[test]
fn where_little_memory_may_be_locked_each_link_has_its_own() {
    let name = "where_little_memory_may_be_locked_each_link_has_its_own";
    on_xdp(name, 1, |bench| {
        bench.begin_to_send_out((1, 1500), || net::lock_at_most(5 << 20));
        bench.until_they_come_out(1484, 0);
    });
}

/// A queue that is slow keeps frames for longer than the turn in which they were lent.
#[test]
fn what_is_sent_on_and_finds_no_room_leaves_later_as_it_came() {
    on_each("what_is_sent_on_and_finds_no_room_leaves_later_as_it_came", |bench| {
        if !slows("left") {
            return;
        }
        bench.begin_to_forward();
        bench.begin_to_send_back(7, None);
        let before = bench.counted(LEFT);
        let (begin, mut number) = (Clock::now(), 0);
        let (mut shown, mut left, mut batches) = (0, 0, 0);
        // Until something had to wait, and then until all of it has left.
        while bench.counted(LEFT).send_waits == before.send_waits || left < shown || batches > 0 {
            if bench.counted(LEFT).send_waits == before.send_waits {
                let frames = (number..number + 100).map(|at| whole(RIGHT, numbered(at, 1484)));
                bench.send(ON_RIGHT, 1, frames.collect());
                (number, batches) = (number + 100, batches + 1);
            }
            match bench.next() {
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => {
                    assert!(number_of(&bytes) < number)
                }
                (ON_LEFT, Report::Frame(LEFT, ..)) => shown += 1,
                (_, Report::FramesSent(7, count)) => left += count,
                (_, Report::FramesSent(1, _)) => batches -= 1,
                other => panic!("expected frames, saw {other:?}"),
            }
            assert!(begin.elapsed() < HANG, "{left} of {shown} left: {:#?}", bench.stats());
        }
        assert_eq!(bench.counted(LEFT).send_failed, 0);
        // What waits when the link goes comes back.
        bench.handle.remove_link(LEFT);
        bench.nothing_is_lent_beside_frames(ON_LEFT);
    });
}
