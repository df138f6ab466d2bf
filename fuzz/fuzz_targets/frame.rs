//! AoE messages and what they carry, as a frame behind its Ethernet header; and the texts of
//! addresses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::aoe::{
    Address, AtaArgument, ConfigArgument, Directive, Header, MaskArgument, Message, ReserveArgument,
};
use wire::ata::{IdentifyDevice, TrimRange};
use wire::clamp::Clamp;
use wire::ethernet::{EtherType, MacAddress};

fuzz_target!(|input: &[u8]| {
    contract!(Header, input);
    if let Ok(message) = Message::parse(input) {
        one_line(&message);
        drop(format!("{message:?}"));
        assert!(message.data_length() <= input.len());
    }
    clamp(input);
    let body = input.get(Header::SIZE..).unwrap_or_default();
    if let Some(argument) = contract!(AtaArgument, body) {
        one_line(&argument);
        one_line(&argument.as_result());
        assert!(argument.lba28() <= argument.lba48() && argument.lba48() < 1 << 48);
    }
    if let Some(argument) = contract!(ConfigArgument, body) {
        one_line(&argument);
    }
    contract!(MaskArgument, body);
    contract!(Directive, body);
    contract!(ReserveArgument, body);
    let data = body.get(AtaArgument::SIZE..).unwrap_or_default();
    if let Some(device) = contract!(IdentifyDevice, data) {
        one_line(&device);
    }
    if let Some(range) = data.first_chunk() {
        assert_eq!(TrimRange::parse(TrimRange::parse(*range).emit()), TrimRange::parse(*range));
    }
    if let Ok(text) = core::str::from_utf8(input) {
        if let Ok(address) = text.parse::<Address>() {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        if let Ok(mac) = text.parse::<MacAddress>() {
            assert_eq!(mac.to_string().parse(), Ok(mac));
        }
        if let Ok(control) = text.parse::<aoe::Control>() {
            assert_eq!(control.to_string().parse(), Ok(control));
        }
        if let Ok(reservation) = text.parse::<reservation::Reservation>() {
            assert_eq!(reservation.to_string().parse(), Ok(reservation));
        }
    }
});

/// Of a frame one byte may be lowered, where its sector count is, to what fits.
fn clamp(input: &[u8]) {
    let frame = [&[2; 12][..], &EtherType::AOE.0.to_be_bytes(), input].concat();
    for fits in [0, 60, 1514, 9014, u32::MAX] {
        let Some(lowered) = Clamp::AoeSectors.lower(None, &frame, || Some(fits)) else { continue };
        let mut changed = frame.clone();
        changed[lowered.at] = lowered.value;
        let argument = |frame: &[u8]| ConfigArgument::parse(&frame[14 + Header::SIZE..]);
        let (Ok(before), Ok(after)) = (argument(&frame), argument(&changed)) else {
            panic!("it is one of Config")
        };
        assert!(after.sector_count < before.sector_count && after.sector_count > 0);
        assert!(36 + 512 * u32::from(after.sector_count) <= fits);
        assert_eq!(after, ConfigArgument { sector_count: after.sector_count, ..before });
        assert_eq!(Clamp::AoeSectors.lower(None, &changed, || Some(fits)), None);
    }
}
