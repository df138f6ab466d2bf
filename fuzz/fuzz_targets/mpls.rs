//! Label stacks, and what a pseudowire has behind them: control words with their sequence numbers,
//! and headers of the associated channel, with probes of the path.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::mpls::{LabelStack, LabelStackEntry};
use wire::probe::{Probe, ProbeKind};
use wire::pseudowire::{AssociatedChannelHeader, ControlWord, Packet};
use wire::sequence::{Arrival, Numbers, PseudowireSequence};

fuzz_target!(|input: &[u8]| {
    if let Some(entry) = contract!(LabelStackEntry, input) {
        one_line(&entry);
        assert_eq!(entry.emit(), input[..LabelStackEntry::SIZE]);
        drop(entry.check().map_err(|error| error.to_string()));
        assert!(entry.outgoing_ttl().is_none_or(|ttl| ttl > 0 && ttl < entry.ttl));
    }
    for depth_max in [0, 1, 16, usize::MAX] {
        stack(input, depth_max);
    }
    if let Some(word) = contract!(ControlWord, input) {
        one_line(&word);
        assert_eq!(word.emit(), input[..ControlWord::SIZE]);
    }
    if let Some(header) = contract!(AssociatedChannelHeader, input) {
        one_line(&header);
    }
    contract!(Probe, input);
    match Probe::receive(input) {
        Ok(probe) => {
            one_line(&probe);
            let is_whole = probe.length as usize <= input.len();
            assert!(is_whole || probe.kind == ProbeKind::ANSWER);
            let answer = probe.answer();
            assert_eq!(Probe::receive(&answer.emit()), Ok(answer));
        }
        Err(error) => drop(error.to_string()),
    }
    if let Some(&[a, b, c, d]) = input.first_chunk() {
        sequence(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    }
});

/// A stack is what popping its entries one by one gives.
fn stack(input: &[u8], depth_max: usize) {
    let stack = match LabelStack::parse(input, depth_max) {
        Ok(stack) => stack,
        Err(error) => return drop(error.to_string()),
    };
    one_line(&stack);
    assert!((1..=depth_max).contains(&stack.depth()));
    let mut rest = input;
    for (index, entry) in stack.entries().enumerate() {
        let (top, below) = LabelStackEntry::pop(rest).expect("as whole as the stack");
        assert_eq!(top, entry);
        assert_eq!(entry.is_bottom, index + 1 == stack.depth());
        rest = below;
    }
    assert_eq!(rest, stack.payload());
    match Packet::parse(rest) {
        Ok(Packet::Data(_, behind) | Packet::Channel(_, behind)) => assert_eq!(behind, &rest[4..]),
        Err(error) => drop(error.to_string()),
    }
}

/// Of two different numbers one is ahead of the other, and that one late to it.
fn sequence(a: u16, b: u16) {
    let (Some(a), Some(b)) = (PseudowireSequence(a).number(), PseudowireSequence(b).number())
    else {
        return;
    };
    let numbers = Numbers::PSEUDOWIRE;
    match (numbers.arrival(Some(a), b), numbers.arrival(Some(b), a)) {
        (Arrival::InOrder, Arrival::InOrder) => assert_eq!(a, b),
        (Arrival::Ahead(missing), Arrival::Late) | (Arrival::Late, Arrival::Ahead(missing)) => {
            assert!((1..0x8000).contains(&missing), "{a} and {b}: {missing}");
        }
        other => panic!("{a} and {b}: {other:?}"),
    }
    let next = numbers.next(a);
    assert!(next != a && PseudowireSequence::new(Some(next)).number() == Some(next));
}
