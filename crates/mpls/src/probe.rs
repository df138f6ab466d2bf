//! How large a frame a path takes: asked by requests as long as the frame that was promised, which
//! the other end answers, and by shorter ones where that is not answered.
//!
//! ```text
//!   the largest wanted --answered--> proved
//!     | silence
//!   the smallest ------silence-----> nobody answers: nothing is known
//!     | answered
//!   halfway between what was answered and what was not, until they are one byte apart
//!     |
//!   the smallest that was not answered, once more --answered--> it was lost for something else
//! ```
//! Each size is asked [`TRIES`] times, and what is lost each time did not fit, if that is so a second time
//! before anybody hears of it: a path may have lost all for less than a detection time. Only an answer
//! shows anything: who knows no probes is never taken for a path that is too narrow. What the port itself
//! takes needs no probe. While a search goes on, what the one before found stays. It is made again after
//! [`CONFIRM`] where all that was promised came through, since a path whose links become narrower stays
//! up and says nothing, and after [`AGAIN`] where not. An answer counts if it gives back what
//! was drawn for the size that is asked now, and one of the numbers that were sent with it.
//! Units: bytes of a frame from its destination address on. No errors: answers to nothing are counted.
//! Spec: none; after RFC 8899 clause 5 (its CONFIRMATION_TIMER is ours, and its PMTU_RAISE_TIMER).

use core::time::Duration;

use block::{Instant, Random, planted};
use contract::counters;
use wire::ethernet::{HEADER_SIZE, PAYLOAD_MIN};
use wire::probe;

use crate::nhlfe::Nhlfe;

/// The smallest frame there is, which every path takes.
const FRAME_MIN: u32 = (HEADER_SIZE + PAYLOAD_MIN) as u32;
/// Requests of one size, one after the other.
const TRIES: u32 = 3;
/// How long the first of them waits for its answer where nothing is known of the path; the next twice
/// as long each.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// Once an answer came, requests wait for four times as long as it took, but not less than this: what
/// queues on the way, 1000 frames at 1 Gbit/s, takes 12 ms at each router.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// When it is asked again whether all that was promised fits, where it did not.
const AGAIN: Duration = Duration::from_secs(60);
/// When it is asked whether it still does: one frame and its answer, so that what no longer fits is lost
/// for seconds.
const CONFIRM: Duration = Duration::from_secs(15);

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Nothing: no probe was answered yet.
    #[default]
    Nothing,
    /// Frames as large as promised came through.
    Whole,
    /// Frames of so many bytes came through, and larger ones did not.
    Only(u32),
}

counters! {
    /// What was asked of the paths of a pseudowire.
    pub struct ProbeCounters {
        /// Requests that were sent, to learn how large a frame a path takes.
        probes: Frames,
        /// Answers to them.
        probe_answers: Frames,
        /// Answers that came too late, or to nothing that was asked.
        probe_answers_stray: Frames,
    }
}

/// What a path is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The path, by its next hop and labels: what was found of another one says nothing.
    pub(crate) nhlfe: Nhlfe,
    /// The largest frame that the circuit was promised.
    pub(crate) promised: u32,
    /// The largest one that its port takes, or else the promised one.
    pub(crate) ceiling: u32,
}

/// A search that goes on.
#[derive(Debug)]
struct Search {
    /// The largest size that was answered, and the smallest that was not.
    fits: Option<u32>,
    too_large: u32,
    /// What is asked now, and what was drawn for it.
    size: u32,
    nonce: u64,
    first_sequence: u32,
    tries: u32,
    /// When the first request of this size left.
    asked_at: Instant,
    wait: Duration,
    /// Whether that is known of the path, or is to be doubled.
    is_measured: bool,
    /// The smallest size that was not answered is asked a second time.
    is_second: bool,
    next_at: Instant,
}

/// A path, and what is known of it.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    question: Option<Question>,
    proof: Proof,
    search: Option<Search>,
    again_at: Option<Instant>,
    /// What people were told of it last: the largest frame of a path that is too narrow.
    told: Option<u32>,
    /// The number of the next request.
    sequence: u32,
    pub(crate) counters: ProbeCounters,
}

impl Prober {
    /// What is known; while a search goes on, by the one before.
    pub(crate) fn proof(&self) -> Proof {
        self.proof
    }

    pub(crate) fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// What people should hear, once: the largest frame that comes through and the one that was
    /// promised, where the first is less, or is so no more.
    pub(crate) fn poll_news(&mut self) -> Option<(u32, u32)> {
        let promised = self.question?.promised;
        let narrow = match self.proof {
            Proof::Nothing => return None,
            Proof::Whole => None,
            Proof::Only(fits) => Some(fits),
        };
        let before = core::mem::replace(&mut self.told, narrow);
        (before != narrow).then_some((narrow.unwrap_or(promised), promised))
    }

    /// Asks from the beginning.
    pub(crate) fn ask(&mut self, now: Instant, question: Question, random: &mut Random) {
        if self.question.as_ref() != Some(&question) {
            self.proof = Proof::Nothing;
        }
        if question.ceiling < question.promised && self.proof == Proof::Nothing {
            self.proof = Proof::Only(question.ceiling);
        }
        (self.question, self.again_at, self.search) = (Some(question), None, None);
        // A port that takes no frame at all has nobody to be asked.
        if question.ceiling >= FRAME_MIN {
            self.search = Some(Search {
                fits: None,
                too_large: question.ceiling + 1,
                size: question.ceiling,
                nonce: random.next_u64(),
                first_sequence: self.sequence,
                tries: 0,
                asked_at: now,
                wait: WAIT_FIRST,
                is_measured: false,
                is_second: false,
                next_at: now,
            });
        }
    }

    /// Asks no more until the next `ask`. What was found stays.
    pub(crate) fn stop(&mut self) {
        (self.search, self.again_at) = (None, None);
    }

    /// There is no such path any more: another one is asked, and told of, as if this one never was.
    pub(crate) fn forget(&mut self) {
        *self = Self { sequence: self.sequence, counters: self.counters, ..Self::default() };
    }

    /// When to call `handle_timeout`.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.search.as_ref().map(|search| search.next_at).or(self.again_at)
    }

    /// The moment of `poll_timeout` may have come. Returns a request that is to be sent; then it is to
    /// be called again.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        random: &mut Random,
    ) -> Option<probe::Probe> {
        if let Some(question) = self.question.filter(|_| self.again_at.is_some_and(|at| at <= now))
        {
            self.ask(now, question, random);
        }
        while let Some(search) = self.search.as_mut().filter(|search| search.next_at <= now) {
            if search.tries < TRIES {
                search.next_at = now + search.wait;
                if !search.is_measured {
                    search.wait = (search.wait * 2).min(WAIT_MAX);
                }
                search.tries += 1;
                let request = probe::Probe::request(search.size, self.sequence, search.nonce);
                self.sequence = self.sequence.wrapping_add(1);
                self.counters.probes += 1;
                return Some(request);
            }
            search.too_large = search.size;
            self.go_on(now, random);
        }
        None
    }

    /// An answer came by this path. Returns whether it is one to what is asked.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        answer: &probe::Probe,
        random: &mut Random,
    ) -> bool {
        let search = self.search.as_mut().filter(|search| {
            let of_this_size = answer.sequence.wrapping_sub(search.first_sequence) < search.tries;
            let is_ours = answer.nonce == search.nonce && of_this_size;
            (is_ours || planted("answer-of-before-counts")) && answer.length == search.size
        });
        let Some(search) = search else {
            self.counters.probe_answers_stray += 1;
            return false;
        };
        search.fits = Some(search.size);
        if search.size >= search.too_large {
            // It was not its size for which it was lost.
            let ceiling = self.question.map_or(search.size, |question| question.ceiling);
            (search.too_large, search.is_second) = (ceiling + 1, false);
        }
        search.wait = (now.since(search.asked_at) * 4).clamp(WAIT_MIN, WAIT_MAX);
        search.is_measured = true;
        self.counters.probe_answers += 1;
        self.go_on(now, random);
        true
    }

    /// The next size, or the end.
    fn go_on(&mut self, now: Instant, random: &mut Random) {
        let (Some(question), Some(search)) = (self.question, &mut self.search) else { return };
        let size = match search.fits {
            None if search.too_large > FRAME_MIN => FRAME_MIN,
            // Silence shows nothing.
            None => return self.end(now, self.proof),
            Some(fits) if fits >= question.promised => return self.end(now, Proof::Whole),
            Some(fits) if fits + 1 >= search.too_large => {
                let is_asked = search.too_large <= question.ceiling;
                let is_over = search.is_second || planted("lost-once-is-too-large");
                if !is_asked || is_over {
                    return self.end(now, Proof::Only(fits));
                }
                search.is_second = true;
                search.too_large
            }
            Some(fits) => fits + (search.too_large - fits) / 2,
        };
        (search.size, search.nonce, search.tries) = (size, random.next_u64(), 0);
        (search.first_sequence, search.asked_at, search.next_at) = (self.sequence, now, now);
        if !search.is_measured {
            search.wait = WAIT_FIRST;
        }
    }

    fn end(&mut self, now: Instant, proof: Proof) {
        self.search = None;
        self.proof = proof;
        let is_whole = proof == Proof::Whole;
        self.again_at = match is_whole && planted("whole-path-is-asked-no-more") {
            true => None,
            false => Some(now + if is_whole { CONFIRM } else { AGAIN }),
        };
    }
}
