//! Log pages, the report of a reservation and asynchronous events, as an initiator reads them from a
//! target that it cannot trust.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::nvme::Command;
use wire::nvme::log::{
    AnaLog, ChangedNamespaces, CommandEffects, DiscoveryEntry, DiscoveryHeader, ErrorEntry,
    FirmwareSlots, GetLog, Smart,
};
use wire::nvme::reservation::{Report, ReservationNotification};

fuzz_target!(|input: &[u8]| {
    let mut page = input.to_vec();
    page.resize(4096, 0);
    contract!(DiscoveryHeader, &page);
    for entry in input.chunks(DiscoveryEntry::SIZE) {
        if let Some(entry) = contract!(DiscoveryEntry, entry) {
            let _ = entry.subsystem();
            one_line(&entry.address_text());
            one_line(&entry.service_text());
        }
    }
    contract!(Smart, &page);
    if let Some(entry) = contract!(ErrorEntry, &page) {
        let _ = entry.status();
    }
    contract!(FirmwareSlots, &page);
    contract!(CommandEffects, &page);
    if let Some(notification) = contract!(ReservationNotification, &page) {
        one_line(&notification);
    }
    if let Some(report) = contract!(Report, input) {
        one_line(&report);
    }
    if let Ok(log) = AnaLog::parse(input) {
        assert_eq!(AnaLog::parse(&log.emit()), Ok(log));
    }
    assert!(ChangedNamespaces::parse(&page).count() <= 1024);
    if let Ok(command) = Command::parse(input) {
        let log = GetLog::from_command(&command);
        one_line(&log);
        assert_eq!(GetLog::from_command(&log.to_command(command.nsid())), log);
    }
});
