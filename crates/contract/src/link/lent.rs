//! Frames that are lent until a turn ends, so that whoever sends one on names it and copies nothing.
//!
//! ```text
//!   show_frames    the driver keeps a frame where the kernel put it, shows it, and gives it a name
//!   settle         a batch names it: what goes in front lies in the batch, the rest where the frame lies
//!                  the driver sends both, and copies what has to wait for room
//!   end of turn    the driver has its places back; a name of before is none any more
//! ```
//! A frame is named once, since it may be changed where it lies when it is sent. Drivers and simulated ones
//! keep their frames by this. Errors: a name of another turn is a mistake of the machine that kept it, and panics.

/// The name of a frame that its driver lends until the turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    turn: u32,
    number: u32,
}

/// Bytes of a frame that came, and where in it they begin, if it is lent for a whole turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub bytes: &'a [u8],
    pub(super) lent: Option<(Lent, u32)>,
}

impl<'a> Part<'a> {
    /// These bytes of a frame that begins with `whole`; others, which are no part of it, are to be copied.
    #[inline]
    pub(super) fn of(whole: &[u8], lent: Option<Lent>, bytes: &'a [u8]) -> Part<'a> {
        let at = bytes.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        let is_within = at <= whole.len() && bytes.len() <= whole.len() - at;
        Part { bytes, lent: lent.filter(|_| is_within).map(|lent| (lent, at as u32)) }
    }
}

/// Bytes that have to be copied.
impl<'a> From<&'a [u8]> for Part<'a> {
    fn from(bytes: &'a [u8]) -> Part<'a> {
        Part { bytes, lent: None }
    }
}

/// The frames that are lent in a turn: where each lies.
#[derive(Debug)]
pub struct LentFrames<F> {
    turn: u32,
    frames: Vec<F>,
    /// Which were sent on, where somebody keeps count.
    sent: Vec<bool>,
}

impl<F> Default for LentFrames<F> {
    fn default() -> Self {
        LentFrames { turn: 0, frames: Vec::new(), sent: Vec::new() }
    }
}

impl<F> LentFrames<F> {
    /// A frame that lies there is lent.
    #[inline]
    pub fn lend(&mut self, frame: F) -> Lent {
        self.frames.push(frame);
        Lent { turn: self.turn, number: self.frames.len() as u32 - 1 }
    }

    /// Where a frame lies.
    #[inline]
    pub fn get(&self, lent: Lent) -> &F {
        assert_eq!(lent.turn, self.turn, "a frame is named in the turn in which it was lent");
        &self.frames[lent.number as usize]
    }

    /// Counts a frame as sent on, for simulated drivers: a real one may send it from where it came, and
    /// that once.
    pub(super) fn send(&mut self, lent: Lent) {
        self.sent.resize(self.frames.len(), false);
        let before = std::mem::replace(&mut self.sent[lent.number as usize], true);
        assert!(!before, "a frame that is lent is sent on once");
    }

    /// Whether none is lent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The turn ends, and with it all names.
    #[inline]
    pub fn end_turn(&mut self) {
        if !self.frames.is_empty() {
            self.frames.clear();
            self.sent.clear();
            self.turn = self.turn.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_frame_is_known_by_where_it_lies() {
        let whole: Vec<u8> = (0..100).collect();
        let lent = LentFrames::default().lend(());
        let at = |bytes| Part::of(&whole, Some(lent), bytes).lent.map(|(_, at)| at);
        assert_eq!(
            [&whole[..], &whole[18..], &whole[12..40], &whole[100..]].map(at),
            [0, 18, 12, 100].map(Some)
        );
        let other = whole.clone();
        assert_eq!(at(&other[18..]), None, "the same bytes, elsewhere");
        assert_eq!(Part::of(&whole, None, &whole[18..]), Part::from(&whole[18..]));
        // What begins in it and ends behind it is no part of it.
        assert_eq!(Part::of(&whole[..50], Some(lent), &whole[18..]).lent, None);
    }

    #[test]
    #[should_panic(expected = "in the turn in which it was lent")]
    fn a_name_ends_with_its_turn() {
        let mut frames = LentFrames::default();
        let lent = frames.lend(1);
        assert_eq!(*frames.get(lent), 1);
        frames.end_turn();
        assert_ne!(frames.lend(2), lent);
        frames.get(lent);
    }
}
