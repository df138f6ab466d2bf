//! BFD control packets, with their authentication sections.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::bfd::{ControlPacket, State};

fuzz_target!(|input: &[u8]| {
    if let Some(packet) = contract!(ControlPacket, input) {
        assert_eq!(packet.emit(), input[..ControlPacket::SIZE]);
    }
    let (packet, section) = match ControlPacket::receive(input) {
        Ok(received) => received,
        Err(error) => return drop(error.to_string()),
    };
    one_line(&packet);
    assert!(usize::from(packet.length) <= input.len());
    assert!(packet.detect_mult > 0 && packet.my_discriminator > 0);
    assert!(packet.your_discriminator > 0 || packet.state() <= State::DOWN);
    assert_eq!(section.is_some(), packet.state_flags.is_authenticated());
    let Some(section) = section else { return };
    one_line(&section);
    let bytes = packet.emit_with(&section);
    let (again, section_again) = ControlPacket::receive(&bytes).expect("reads what it wrote");
    // A length may have counted bytes behind the section.
    assert_eq!(ControlPacket { length: packet.length, ..again }, packet);
    assert_eq!(section_again, Some(section));
    let known = section.password().is_some() || section.digest().is_some();
    assert_eq!(section.key_id().is_some(), known);
});
