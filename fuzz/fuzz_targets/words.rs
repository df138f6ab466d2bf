//! The words of configurations and commands: disk URIs, sizes, addresses, NQNs, UUIDs. What is
//! checked of each: `plateway::checks::words`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| plateway::checks::words(text));
