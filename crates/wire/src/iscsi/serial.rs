//! Sequence numbers of 32 bits that start again at 0: which comes first, and which lie in a window.
//!
//! CmdSN, StatSN, DataSN and R2TSN are such numbers. Of two numbers that are exactly 2^31 apart
//! none precedes the other: the standard leaves that open, and no window is so wide. Spec: RFC 1982
//! as RFC 7143 clause 4.2.2.1 uses it.

/// Whether `a` comes before `b`.
#[inline]
pub const fn precedes(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) as i32 > 0
}

/// How many numbers there are from `first` to `last`, both included; none where `last` precedes
/// `first`, as MaxCmdSN does by one while a target takes no commands.
#[inline]
pub const fn window(first: u32, last: u32) -> u32 {
    let size = last.wrapping_sub(first).wrapping_add(1);
    if size as i32 > 0 { size } else { 0 }
}

/// Whether `number` is one of those from `first` to `last`.
#[inline]
pub const fn is_within(number: u32, first: u32, last: u32) -> bool {
    number.wrapping_sub(first) < window(first, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = 1 << 31;

    #[test]
    fn order_goes_round_at_the_end_of_the_numbers() {
        assert!(precedes(1, 2) && !precedes(2, 1) && !precedes(7, 7));
        assert!(precedes(u32::MAX, 0) && !precedes(0, u32::MAX));
        assert!(precedes(0xffff_fff0, 0x10));
        assert!(precedes(5, 5 + (HALF - 1)) && !precedes(5 + (HALF - 1), 5));
    }

    #[test]
    fn numbers_half_the_way_apart_have_no_order() {
        for number in [0, 1, HALF, u32::MAX] {
            assert!(!precedes(number, number.wrapping_add(HALF)));
            assert!(!precedes(number.wrapping_add(HALF), number));
        }
    }

    #[test]
    fn a_window_holds_both_its_ends() {
        for first in [0, 100, u32::MAX - 3, HALF - 2] {
            let last = first.wrapping_add(7);
            assert_eq!(window(first, last), 8);
            for step in 0..8 {
                assert!(is_within(first.wrapping_add(step), first, last));
            }
            assert!(!is_within(first.wrapping_sub(1), first, last));
            assert!(!is_within(last.wrapping_add(1), first, last));
            assert!(!is_within(first.wrapping_add(HALF), first, last));
        }
    }

    #[test]
    fn a_closed_window_holds_nothing() {
        for first in [0, 1, HALF, u32::MAX] {
            for behind in [1, 2, 1000] {
                let last = first.wrapping_sub(behind);
                assert_eq!(window(first, last), 0, "{first} {behind}");
                for number in [first, last, first.wrapping_add(1), first.wrapping_add(HALF)] {
                    assert!(!is_within(number, first, last), "{number} of {first} {behind}");
                }
            }
        }
    }
}
