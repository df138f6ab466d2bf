//! The bytes of a labelled frame: written whole by who sends it, its first 18 changed by a swap.
//!
//! ```text
//!   0          6       12       14              18              22            26
//!   | to       | from  | 0x8847 | top, S=0      | bottom, S=1   | control     | frame of a customer ...
//!                               | label 20, TC 3, S, TTL 8      | word (zero) |
//! ```
//!
//! That is a pseudowire in a tunnel (RFC 3985), of which a router of labels sees the top entry
//! alone. The end of a pseudowire also sees the number in the lower half of the control word; what
//! comes to its other side is the customer's frame alone. Offsets count from the first byte of an untagged frame; everything is big-endian. Specs:
//! RFC 3032 for the entries, RFC 4385 for the control word.

use crate::packet::Mac;

/// EtherType of a labelled packet.
pub(super) const ETHER_TYPE: u16 = 0x8847;
/// The first label that is nobody's already.
pub(super) const FIRST_LABEL: u32 = 16;
/// As many labels as there are from the first on.
pub(super) const LABELS_MAX: u32 = (1 << 20) - FIRST_LABEL;
/// All headers, those of the customer's frame included.
pub(super) const HEADERS: usize = INNER_AT + 14;

const TYPE_AT: usize = 12;
const TOP_AT: usize = 14;
const BOTTOM_AT: usize = 18;
const SEQUENCE_AT: usize = 24;
const INNER_AT: usize = 26;
/// Label of the pseudowire.
const BOTTOM_LABEL: u32 = 1000;
const BOTTOM_OF_STACK: u32 = 1 << 8;
const TTL: u32 = 64;
/// EtherType of the customer's frame: for experiments, so that nobody makes anything of it.
const INNER_TYPE: u16 = 0x88b5;
/// What is added to a label by a swap; any number does.
const STEP: u32 = 100;

/// Writes a frame from end to end; its top label is yet to be drawn.
pub(super) fn build(frame: &mut [u8], to: Mac, from: Mac) {
    assert!(frame.len() >= HEADERS, "{} bytes hold no frame", frame.len());
    frame.fill(0xa5);
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[TYPE_AT..TOP_AT].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    set_label(frame, FIRST_LABEL);
    let bottom = BOTTOM_LABEL << 12 | BOTTOM_OF_STACK | TTL;
    frame[BOTTOM_AT..BOTTOM_AT + 4].copy_from_slice(&bottom.to_be_bytes());
    frame[BOTTOM_AT + 4..INNER_AT].fill(0);
    let inner = &mut frame[INNER_AT..];
    inner[..6].copy_from_slice(&[2, 0, 0, 0, 1, 2]);
    inner[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    inner[12..14].copy_from_slice(&INNER_TYPE.to_be_bytes());
}

/// Writes a customer's frame alone.
pub(super) fn build_plain(frame: &mut [u8], to: Mac, from: Mac) {
    frame.fill(0xa5);
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[TYPE_AT..TOP_AT].copy_from_slice(&INNER_TYPE.to_be_bytes());
}

/// Numbers a frame (RFC 4385, 4.1).
#[inline]
pub(super) fn set_sequence(frame: &mut [u8], number: u16) {
    frame[SEQUENCE_AT..INNER_AT].copy_from_slice(&number.to_be_bytes());
}

/// The number behind one: 0 would say that there is none.
#[inline]
pub(super) fn next_sequence(number: u16) -> u16 {
    number.checked_add(1).unwrap_or(1)
}

/// Writes the top entry.
#[inline]
pub(super) fn set_label(frame: &mut [u8], label: u32) {
    frame[TOP_AT..BOTTOM_AT].copy_from_slice(&(label << 12 | TTL).to_be_bytes());
}

/// Whether a frame has a top entry.
#[inline]
pub(super) fn is_labelled(frame: &[u8]) -> bool {
    frame.len() >= BOTTOM_AT && frame[TYPE_AT..TOP_AT] == ETHER_TYPE.to_be_bytes()
}

/// What a swap writes: both addresses, and the top entry with another label and one hop less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swap {
    addresses: [u8; TYPE_AT],
}

impl Swap {
    pub(super) fn new(to: Mac, from: Mac) -> Self {
        let mut addresses = [0; TYPE_AT];
        addresses[..6].copy_from_slice(&to);
        addresses[6..].copy_from_slice(&from);
        Self { addresses }
    }

    /// Changes a labelled frame where it lies.
    #[inline]
    pub(super) fn apply(&self, frame: &mut [u8]) {
        frame[..TYPE_AT].copy_from_slice(&self.addresses);
        let entry: &mut [u8; 4] = (&mut frame[TOP_AT..BOTTOM_AT]).try_into().expect("four bytes");
        let old = u32::from_be_bytes(*entry);
        let label = (old >> 12).wrapping_add(STEP) << 12;
        // The lowest byte is the TTL; traffic class and S stay.
        *entry = (label | old & 0xf00 | (old & 0xff).wrapping_sub(1) & 0xff).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let mut frame = vec![0; 1078];
        build(&mut frame, [2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 1]);
        frame
    }

    #[test]
    fn a_frame_is_a_pseudowire_in_a_tunnel() {
        let mut frame = frame();
        set_label(&mut frame, 0xabcde);
        let wanted = [
            2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 1, 0x88, 0x47, // Ethernet
            0xab, 0xcd, 0xe0, 64, // the tunnel: S is not set
            0x00, 0x3e, 0x81, 64, // the pseudowire: label 1000, S is set
            0, 0, 0, 0, // control word
            2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 1, 0x88, 0xb5, // the customer's frame
        ];
        assert_eq!(frame[..HEADERS], wanted);
        assert_eq!(frame.len(), 1078);
        assert!(is_labelled(&frame) && !is_labelled(&frame[..17]));
    }

    #[test]
    fn a_number_stands_in_the_control_word_and_is_never_0() {
        let mut numbered = frame();
        set_sequence(&mut numbered, 0xfffe);
        assert_eq!(numbered[22..26], [0, 0, 0xff, 0xfe]);
        assert_eq!((&numbered[..22], &numbered[26..]), (&frame()[..22], &frame()[26..]));
        assert_eq!([0xfffe, 0xffff, 1].map(next_sequence), [0xffff, 1, 2]);
    }

    #[test]
    fn a_plain_frame_has_no_labels() {
        let mut plain = vec![0; 60];
        build_plain(&mut plain, [2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 1]);
        assert_eq!(plain[..14], [2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        assert!(!is_labelled(&plain));
    }

    #[test]
    fn a_swap_changes_addresses_label_and_ttl_and_nothing_else() {
        let (mut swapped, before) = (frame(), frame());
        swapped[16] |= 0x0e; // a traffic class
        Swap::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 0x12]).apply(&mut swapped);
        assert_eq!(swapped[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0x12]);
        assert_eq!(swapped[12..18], [0x88, 0x47, 0x00, 0x07, 0x4e, 63], "label 116");
        assert_eq!(swapped[18..], before[18..]);
    }

    #[test]
    fn the_last_label_and_ttl_0_wrap_and_spill_nowhere() {
        let mut frame = frame();
        frame[TOP_AT..BOTTOM_AT].copy_from_slice(&[0xff, 0xff, 0xf1, 0]);
        Swap::new([0; 6], [0; 6]).apply(&mut frame);
        assert_eq!(frame[TOP_AT..BOTTOM_AT], [0x00, 0x06, 0x31, 255]);
    }
}
