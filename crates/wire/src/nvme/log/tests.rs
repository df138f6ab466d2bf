//! Vectors and round trips of Get Log Page and the log structures.

use super::*;
use crate::nvme::log::discovery::{AddressFamily, DiscoverySubtype};
use crate::nvme::{Nqn, Status};

#[test]
fn get_log_both_ways() {
    let get = GetLog {
        id: LogId::DISCOVERY,
        specific: 0x7f,
        retain_event: true,
        bytes: 4 * 0x2_0003,
        offset: 0x5_0000_0400,
    };
    let command = get.to_command(0);
    assert_eq!(command.cdw(10), 0x0002_ff70);
    assert_eq!((command.cdw(11), command.cdw(12), command.cdw(13)), (2, 0x400, 5));
    assert_eq!(GetLog::from_command(&command), get);
    assert_eq!(get.to_string(), "discovery offset 21474837504 bytes 524300 lsp 0x7f rae");
    // NUMD is 32 bits, less one: the largest request is 16 GiB and does not overflow.
    let all = Command::new(2).with_cdw(10, u32::MAX).with_cdw(11, u32::MAX);
    assert_eq!(GetLog::from_command(&all).bytes, 16 << 30);
}

#[test]
fn discovery_log_both_ways() {
    let header = DiscoveryHeader { generation: 3, records: 2, record_format: 0 };
    assert_eq!(DiscoveryHeader::parse(&header.emit()), Ok(header));
    let name = Nqn::new("nqn.2024-01.org.example:vol").unwrap();
    let entry = DiscoveryEntry::tcp(
        DiscoverySubtype::NVM,
        AddressFamily::IPV4,
        "192.0.2.1",
        4420,
        1,
        &name,
    );
    let bytes = entry.emit();
    assert_eq!(bytes[..12], [3, 1, 2, 6, 1, 0, 0xff, 0xff, 32, 0, 0, 0]);
    assert_eq!(&bytes[32..38], b"4420  ");
    assert_eq!(&bytes[512..523], b"192.0.2.1  ");
    assert_eq!(DiscoveryEntry::parse(&bytes), Ok(entry));
    assert_eq!(entry.subsystem(), Ok(name));
    assert!(DiscoveryEntry::default().subsystem().is_err());
}

#[test]
fn health_logs_both_ways() {
    let smart = Smart {
        composite_temperature: 300,
        available_spare: 100,
        host_reads: 1 << 70,
        ..Smart::default()
    };
    let bytes = smart.emit();
    assert_eq!(bytes[..4], [0, 44, 1, 100]);
    assert_eq!(bytes[64..80], (1u128 << 70).to_le_bytes());
    assert_eq!(Smart::parse(&bytes), Ok(smart));
    let error = ErrorEntry {
        error_count: 1,
        queue_id: 2,
        command_id: 3,
        status_word: Status::WRITE_FAULT.to_word(),
        ..ErrorEntry::default()
    };
    assert_eq!(ErrorEntry::parse(&error.emit()), Ok(error));
    assert_eq!(error.status(), Status::WRITE_FAULT);
    let mut slots = FirmwareSlots { active: 1, ..FirmwareSlots::default() };
    slots.revisions[0] = *b"0.1     ";
    assert_eq!(&slots.emit()[..16], b"\x01\0\0\0\0\0\0\x000.1     ");
    assert_eq!(FirmwareSlots::parse(&slots.emit()), Ok(slots));
}

#[test]
fn effects_lie_by_opcode() {
    let mut effects = CommandEffects::default();
    effects.admin[usize::from(AdminOpcode::IDENTIFY.0)] = CommandEffects::SUPPORTED;
    effects.io[1] = CommandEffects::SUPPORTED | CommandEffects::CHANGES_BLOCKS;
    let bytes = effects.emit();
    assert_eq!((bytes[24], bytes[1028]), (1, 3));
    assert_eq!(CommandEffects::parse(&bytes), Ok(effects));
}

#[test]
fn changed_list_overflows_as_all_ones() {
    let list = ChangedNamespaces::emit(&[1, 9]);
    assert!(ChangedNamespaces::parse(&list).eq([1, 9]));
    let many: Vec<u32> = (1..=1025).collect();
    let list = ChangedNamespaces::emit(&many);
    assert!(ChangedNamespaces::parse(&list).eq([ChangedNamespaces::OVERFLOW]));
}
