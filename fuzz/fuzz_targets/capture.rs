//! Captures, and all that `plateway dissect` finds in them. What is checked of each:
//! `plateway::checks::capture`.
//!
//! The first byte is the size of the pieces in which the rest comes the second time.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((&piece, capture)) = input.split_first() {
        plateway::checks::capture(capture, piece.into());
    }
});
