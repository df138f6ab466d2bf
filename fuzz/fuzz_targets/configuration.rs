//! Configurations as somebody may write them: from the text to what it means, back to a text, and
//! from one to another.
//!
//! The input is one text, or two with a NUL between them. What is checked:
//! `plateway::checks::configuration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| plateway::checks::configuration(input));
