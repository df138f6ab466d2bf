//! The completions of the parts of a request, on their way to become one. The whole ends as the
//! worst of its parts did. Units: bytes of the request's payload.

use crate::buffer::Buffer;
use crate::planted;
use crate::request::Outcome;

/// A request whose parts are waited for.
#[derive(Debug)]
pub struct Join {
    left: u32,
    outcome: Outcome,
    /// The payloads that came back, and where they begin.
    parts: Vec<(u32, Buffer)>,
}

impl Join {
    /// Waits for so many parts.
    pub fn new(parts: usize) -> Join {
        let left = u32::try_from(parts).expect("a request has few parts");
        Join { left, outcome: Outcome::Done, parts: Vec::with_capacity(parts) }
    }

    /// Waits for one more.
    pub fn add(&mut self) {
        self.left += 1;
    }

    /// The part that begins `start` bytes into the payload came back. Returns the whole, once all
    /// have.
    pub fn came_back(
        &mut self,
        start: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) -> Option<(Outcome, Buffer)> {
        let told = if planted("part-that-failed-is-forgotten") { Outcome::Done } else { outcome };
        self.outcome = self.outcome.worse(told.of_part(start));
        self.parts.push((start, buffer));
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.parts.sort_by_key(|(start, _)| *start);
        let mut whole = Buffer::empty();
        self.parts.drain(..).for_each(|(_, part)| whole.append(part));
        Some((self.outcome, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::PageId;

    #[test]
    fn parts_are_joined_in_their_order_and_a_miscompare_counts_from_the_start_of_the_payload() {
        let mut join = Join::new(2);
        let part = |page| {
            let mut buffer = Buffer::reserved(4096, 0);
            buffer.push_page(PageId(page));
            buffer
        };
        assert!(join.came_back(4096, Outcome::Miscompare(7), part(1)).is_none());
        let (outcome, whole) = join.came_back(0, Outcome::Done, part(0)).expect("all are back");
        assert_eq!((outcome, whole.len()), (Outcome::Miscompare(4103), 8192));
        assert_eq!(whole.pages(), [PageId(0), PageId(1)]);
    }
}
