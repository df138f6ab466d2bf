//! Whether to look a little longer before a link is watched.
//!
//! To sleep and be woken costs some 2 us of CPU on each side of a virtual link, so with a window of
//! 8 a shard that sleeps whenever it has caught up pays that for every few frames. Looking for
//! about as long costs no more than it may save; but who asks rarely, or has asked all that its
//! window allows, does not come in that time. So what looking brought is remembered: in vain, it is
//! left out and tried now and then. A link that is quiet costs nothing, since only one that has had
//! frames is looked at.

/// Looks before a link is watched, a pause of the processor before each (40 ns on a Xeon).
const LOOKS: u32 = 40;
/// Where looking was in vain, once in so many times.
const RARELY: u8 = 32;
/// Times in vain before that, at most.
const CREDIT_MAX: u8 = 8;

/// What is remembered of a link.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// Times that may be in vain before it is left out.
    credit: u8,
    left_out: u8,
}

impl Linger {
    /// Looks, if that is worth it, until `has_frame` says so. Returns whether it did.
    #[inline]
    pub(super) fn look(&mut self, has_frame: impl Fn() -> bool) -> bool {
        if self.credit == 0 {
            self.left_out += 1;
            if self.left_out < RARELY {
                return false;
            }
            self.left_out = 0;
        }
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if has_frame() {
                self.credit = (self.credit + 2).min(CREDIT_MAX);
                return true;
            }
        }
        self.credit = self.credit.saturating_sub(1);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn looking_in_vain_is_left_out_and_tried_now_and_then() {
        let mut linger = Linger::default();
        let looks = Cell::new(0);
        let vain = || {
            looks.set(looks.get() + 1);
            false
        };
        for _ in 0..3 * u32::from(RARELY) {
            assert!(!linger.look(vain));
        }
        assert_eq!(looks.get(), 3 * LOOKS);
    }

    #[test]
    fn what_was_worth_it_is_done_again_until_it_was_in_vain_as_often() {
        let mut linger = Linger::default();
        let found = (0..u32::from(RARELY)).filter(|_| linger.look(|| true)).count();
        assert_eq!(found, 1, "the first looks are left out, and one is tried");
        for _ in 0..20 {
            assert!(linger.look(|| true));
        }
        let looks = Cell::new(0);
        let vain = || {
            looks.set(looks.get() + 1);
            false
        };
        for _ in 0..u32::from(CREDIT_MAX + RARELY) - 1 {
            assert!(!linger.look(vain));
        }
        assert_eq!(looks.get(), u32::from(CREDIT_MAX) * LOOKS);
    }
}
