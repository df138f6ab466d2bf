//! Round trips of the Identify structures, and offsets where Linux include/linux/nvme.h has them.

use super::*;
use crate::{Expected, ascii_field};

#[test]
fn controller_both_ways_with_linux_offsets() {
    let mut controller = IdentifyController {
        sn: ascii_field("PW0001"),
        mn: ascii_field("Plateway"),
        fr: ascii_field("0.1"),
        cmic: 0x0a,
        mdts: 8,
        cntlid: 0x1234,
        ver: Version::V2_0,
        oaes: 0x100,
        ctratt: 0x41,
        cntrltype: 1,
        kas: 10,
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: 128,
        nn: 1024,
        oncs: 0x8d,
        vwc: 7,
        ocfs: 1,
        sgls: 0x10_0001,
        mnan: 1024,
        ioccsz: 4 + 8192 / 16,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    };
    controller.subnqn = Nqn::new("nqn.2024-01.org.example:vol").unwrap().emit();
    let bytes = controller.emit();
    for (at, expected) in [
        (4, &b"PW0001      "[..]),
        (76, &[0x0a, 8, 0x34, 0x12]),
        (80, &[0, 0, 2, 0]),
        (92, &[0, 1, 0, 0]),
        (96, &[0x41, 0]),
        (111, &[1]),
        (320, &[10, 0]),
        (512, &[0x66, 0x44, 128, 0, 0, 4, 0, 0, 0x8d, 0]),
        (525, &[7]),
        (534, &[1, 0]),
        (536, &[1, 0, 0x10, 0, 0, 4, 0, 0]),
        (768, b"nqn.2024"),
        (1792, &[4, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        assert_eq!(&bytes[at..at + expected.len()], expected, "offset {at}");
    }
    assert_eq!(IdentifyController::parse(&bytes), Ok(controller));
    let name = controller.subsystem().unwrap();
    assert_eq!(name.as_str(), "nqn.2024-01.org.example:vol");
    assert_eq!(IdentifyController::parse(&bytes[..4095]), Err(ParseError::short(4096, 4095)));
}

#[test]
fn namespace_both_ways_with_linux_offsets() {
    let mut namespace = IdentifyNamespace {
        nsze: 1 << 40,
        ncap: 1 << 40,
        nsfeat: 0x10,
        nmic: 1,
        dlfeat: 9,
        npwg: 7,
        mssrl: 0x0102,
        mcl: 0x0304_0506,
        msrc: 127,
        anagrpid: 1,
        nsattr: 1,
        nguid: [0xab; 16],
        eui64: [0xcd; 8],
        ..IdentifyNamespace::default()
    };
    namespace.lbaf[0].lbads = 12;
    let bytes = namespace.emit();
    assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!((bytes[24], bytes[30], bytes[33], bytes[64]), (0x10, 1, 9, 7));
    assert_eq!(bytes[74..81], [2, 1, 6, 5, 4, 3, 127]);
    assert_eq!((bytes[92], bytes[99]), (1, 1));
    assert_eq!((bytes[104], bytes[119], bytes[120]), (0xab, 0xab, 0xcd));
    assert_eq!(bytes[128..132], [0, 0, 12, 0]);
    assert_eq!(IdentifyNamespace::parse(&bytes), Ok(namespace));
    assert_eq!(namespace.block_bytes(), Some(4096));
    assert_eq!(IdentifyNamespace::default().block_bytes(), None);
    namespace.lbaf[0].lbads = 255;
    assert_eq!(namespace.block_bytes(), None);
}

#[test]
fn smaller_structures_both_ways() {
    let independent = IdentifyNamespaceIndependent { nmic: 1, nstat: 1, ..Default::default() };
    assert_eq!(independent.emit()[14], 1);
    let bytes = independent.emit();
    assert_eq!(IdentifyNamespaceIndependent::parse(&bytes), Ok(independent));
    let limits = IdentifyNvmController { wzsl: 5, dmrsl: 0x01020304, ..Default::default() };
    assert_eq!(limits.emit()[..8], [0, 5, 0, 0, 4, 3, 2, 1]);
    assert_eq!(IdentifyNvmController::parse(&limits.emit()), Ok(limits));
}

#[test]
fn active_list_ends_at_zero_or_1024() {
    let bytes = ActiveNamespaces::emit([1, 2, 0x1_0000]);
    assert_eq!(bytes[..16], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert!(ActiveNamespaces::parse(&bytes).eq([1, 2, 0x1_0000]));
    let full = ActiveNamespaces::emit(1..=2000);
    assert!(ActiveNamespaces::parse(&full).eq(1..=1024));
    assert_eq!(ActiveNamespaces::parse(&[1, 0, 0]).count(), 0);
}

#[test]
fn descriptors_both_ways() {
    let names = [
        NamespaceDescriptor::Uuid([1; 16]),
        NamespaceDescriptor::Nguid([2; 16]),
        NamespaceDescriptor::Eui64([3; 8]),
        NamespaceDescriptor::CommandSet(CommandSet::NVM),
    ];
    let bytes = DescriptorList::emit(&names);
    assert_eq!(bytes[..5], [3, 16, 0, 0, 1]);
    assert_eq!(bytes[20..25], [2, 16, 0, 0, 2]);
    assert_eq!(bytes[40..45], [1, 8, 0, 0, 3]);
    assert_eq!(bytes[52..57], [4, 1, 0, 0, 0]);
    assert_eq!(DescriptorList::parse(&bytes), Ok(names.to_vec()));
    assert_eq!(names[2].to_string(), "eui64 0303030303030303");
    assert_eq!(names[3].to_string(), "csi NVM");
}

#[test]
fn descriptor_refusals_and_unknown_kinds() {
    let error = DescriptorList::parse(&[2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err();
    assert_eq!((error.field, error.offset), ("NIDL", 1));
    assert_eq!(error.expected, Expected::Exactly(16));
    let error = DescriptorList::parse(&[9, 200, 0, 0, 1]).unwrap_err();
    assert_eq!(error.expected, Expected::AtMost(1));
    let skipped = [9, 2, 0, 0, 1, 1, 4, 1, 0, 0, 2];
    let csi = NamespaceDescriptor::CommandSet(CommandSet::ZONED);
    assert_eq!(DescriptorList::parse(&skipped), Ok(vec![csi]));
    assert_eq!(DescriptorList::parse(&[]), Ok(vec![]));
}
