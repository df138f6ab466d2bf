//! The parameter data of SCSI commands: lists that hosts send to a target, and data that a target
//! sends to an initiator, neither of which can trust the other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::scsi::LunList;
use wire::scsi::alua::{PortGroups, SetPortGroups};
use wire::scsi::capacity::{Capacity10, Capacity16};
use wire::scsi::copy::{CopyFailureDetails, CopyList, CopyOperatingParameters, CopyStatus};
use wire::scsi::inquiry::StandardInquiry;
use wire::scsi::mode::{ModeData, ModeFormat};
use wire::scsi::opcodes::{AllCommands, OneCommand};
use wire::scsi::persistent::{
    FullStatusList, HeldReservation, RegisterAndMove, ReservationCapabilities, ReservationKeys,
    ReserveOut, TransportId,
};
use wire::scsi::provisioning::{LbaStatusList, UnmapList};
use wire::scsi::vpd::{
    self, BlockCharacteristics, BlockLimits, BlockProvisioning, DesignatorList, ExtendedInquiry,
    ThirdPartyCopy, VpdPage,
};

fuzz_target!(|input: &[u8]| {
    contract!(UnmapList, input);
    contract!(LbaStatusList, input);
    contract!(LunList, input);
    contract!(AllCommands, input);
    contract!(OneCommand, input);
    contract!(PortGroups, input);
    contract!(SetPortGroups, input);
    reservations(input);
    contract!(CopyList, input);
    contract!(CopyOperatingParameters, input);
    contract!(CopyStatus, input);
    contract!(CopyFailureDetails, input);
    contract!(ThirdPartyCopy, input);
    modes(input);
    pages(input);
    if let Some(capacity) = contract!(Capacity10, input) {
        one_line(&capacity);
    }
    if let Ok(capacity) = Capacity16::read(input) {
        one_line(&capacity);
        contract!(Capacity16, &capacity.emit());
    }
});

fn reservations(input: &[u8]) {
    contract!(ReservationKeys, input);
    contract!(HeldReservation, input);
    contract!(ReservationCapabilities, input);
    contract!(FullStatusList, input);
    contract!(ReserveOut, input);
    contract!(RegisterAndMove, input);
    if let Some(id) = contract!(TransportId, input) {
        one_line(&id);
    }
}

fn modes(input: &[u8]) {
    for format in [ModeFormat::Six, ModeFormat::Ten] {
        assert!(format.said(input).len() <= input.len());
        let Ok(data) = ModeData::parse(input, format) else { continue };
        let again = ModeData::parse(&data.emit(format), format).expect("reads what it wrote");
        assert_eq!(data, again);
        let mut end = 0;
        for page in data.pages().map_while(Result::ok) {
            assert_eq!(page.at, end, "pages lie one behind the other");
            end += page.bytes.len();
        }
        assert!(end <= data.pages.len());
    }
}

fn pages(input: &[u8]) {
    if let Ok(data) = StandardInquiry::read(input) {
        one_line(&data);
        contract!(StandardInquiry, &data.emit());
    }
    // Each page as itself, whatever code the input has.
    let mut page = input.to_vec();
    page.resize(page.len().max(vpd::HEADER), 0);
    let mut as_page = |code: VpdPage| {
        page[1] = code.0;
        page.clone()
    };
    let names = as_page(VpdPage::DEVICE_IDENTIFICATION);
    let body = vpd::body(&names, VpdPage::DEVICE_IDENTIFICATION).expect("its own code");
    if let Some(list) = contract!(DesignatorList, body) {
        list.0.iter().for_each(one_line);
        let _ = list.unit_name();
    }
    assert!(BlockLimits::read(&as_page(VpdPage::BLOCK_LIMITS)).is_ok());
    assert!(BlockCharacteristics::read(&as_page(VpdPage::BLOCK_CHARACTERISTICS)).is_ok());
    assert!(BlockProvisioning::read(&as_page(VpdPage::BLOCK_PROVISIONING)).is_ok());
    assert!(ExtendedInquiry::read(&as_page(VpdPage::EXTENDED_INQUIRY)).is_ok());
    contract!(BlockLimits, input);
    contract!(BlockProvisioning, input);
}
