//! Checklist 21 and 22: the structures of Identify, and what real hosts demand of their values.

use wire::nvme::identify::{
    ActiveNamespaces, Cns, DescriptorList, IdentifyController, IdentifyNamespace,
    IdentifyNamespaceIndependent, NamespaceDescriptor,
};

use super::*;

fn identify(world: &mut World, line: Line, cns: Cns, nsid: u32) -> Result<Vec<u8>, Status> {
    let reply = world.admin(line, &Command::identify(cns, nsid));
    if reply.status.is_success() {
        assert_eq!(reply.data.len(), 4096);
        Ok(reply.data.bytes)
    } else {
        assert!(reply.data.is_empty());
        Err(reply.status)
    }
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

#[test]
fn the_controller_says_what_hosts_demand() {
    let (mut world, line, view) = World::ready_on(1);
    let data = identify(&mut world, line, Cns::CONTROLLER, 0).expect("a controller");
    let id = IdentifyController::parse(&data).expect("a controller");
    assert_eq!(id.cntlid, view.controller);
    assert_eq!((id.cntrltype, id.ver.0, id.mdts), (1, 0x0002_0000, 8));
    assert_eq!((id.sqes, id.cqes, id.maxcmd), (0x66, 0x44, 1024));
    assert_eq!((id.ioccsz, id.iorcsz, id.icdoff, id.msdbd), (516, 1, 0, 1));
    assert_eq!(id.sgls & 3, 1);
    // Compare, DSM, write zeroes, save, reservations, timestamp, verify, copy.
    assert_eq!((id.oncs, id.ocfs), (0x1fd, 1));
    assert_eq!((id.fuses, id.cmic), (1, 0b1011), "ports, controllers, asymmetric access");
    // Linux: MNAN is 1 to NN, or there is no asymmetric access; a group is 1 to ANAGRPMAX.
    assert_eq!((id.anacap, id.anatt, id.anagrpmax, id.nanagrpid), (0x57, 255, 255, 1));
    assert_eq!((id.acl, id.aerl, id.kas), (3, 3, 10));
    assert_eq!(usize::from(id.elpe) + 1, crate::limits::ERROR_ENTRIES_MAX, "0's based");
    assert_eq!(id.frmw >> 1 & 7, 1, "the slot that the firmware log says is active");
    assert_eq!(id.ctratt, 0x41, "128-bit HOSTID, TBKAS");
    assert_eq!(id.oaes, 1 << 8 | 1 << 11);
    assert_eq!(id.vwc, 7, "present, flush of all namespaces");
    assert!(id.nn >= 1 && id.mnan <= id.nn && id.mnan > 0);
    assert_eq!(id.subsystem().expect("a name"), nqn(SUBSYSTEM));
    let printable = |field: &[u8]| field.iter().all(|byte| (b' '..=b'~').contains(byte));
    assert!(printable(&id.sn) && printable(&id.mn) && printable(&id.fr));
}

#[test]
fn the_cache_bit_follows_the_namespaces() {
    let mut world = World::new(1);
    world.put([durable(1)]);
    let (line, _) = world.ready(&Ask::default());
    let data = identify(&mut world, line, Cns::CONTROLLER, 0).expect("a controller");
    assert_eq!(IdentifyController::parse(&data).expect("a controller").vwc, 6);
    let get = Command::get_features(6, 0, 0);
    world.refuses(line, &get, Status::INVALID_FIELD);
}

#[test]
fn a_namespace_says_its_size_and_names_alike_everywhere() {
    let (mut world, line, _) = World::ready_on(1);
    let data = identify(&mut world, line, Cns::NAMESPACE, 1).expect("a namespace");
    let id = IdentifyNamespace::parse(&data).expect("a namespace");
    assert_eq!((id.nsze, id.ncap, id.block_bytes()), (2048, 2048, Some(512)));
    assert_eq!((id.nmic, id.rescap, id.dlfeat, id.nsattr), (1, 0xff, 9, 0));
    assert_eq!(id.nsfeat, 1 << 4 | 1, "the hints below hold; deallocation gives space back");
    assert_eq!((id.npwg, id.npwa), (7, 7), "eight blocks of 512 make a physical one");
    assert_eq!((id.mssrl, id.mcl, id.msrc), (65_535, 131_072, 127), "a copy of 64 MiB");
    assert_eq!(id.nguid, [1; 16]);
    let list = identify(&mut world, line, Cns::NAMESPACE_DESCRIPTORS, 1).expect("descriptors");
    let names = DescriptorList::parse(&list).expect("descriptors");
    assert!(names.contains(&NamespaceDescriptor::Uuid([1; 16])));
    assert!(names.contains(&NamespaceDescriptor::Nguid(id.nguid)));
    assert!(names.contains(&NamespaceDescriptor::Eui64(id.eui64)));
    // CAP offers I/O command sets, so the CSI has to be named.
    let csi = NamespaceDescriptor::CommandSet(wire::nvme::identify::CommandSet::NVM);
    assert!(names.contains(&csi));
    let data = identify(&mut world, line, Cns::NAMESPACE_INDEPENDENT, 1).expect("a namespace");
    let id = IdentifyNamespaceIndependent::parse(&data).expect("a namespace");
    assert_eq!((id.nstat & 1, id.nmic), (1, 1), "NRDY, or Linux leaves the namespace out");
}

#[test]
fn a_namespace_says_what_cannot_be_done_to_it() {
    let mut world = World::new(1);
    world.put([Namespace {
        read_only: true,
        discards: false,
        discard_zeroes: false,
        ..namespace(1)
    }]);
    let (line, _) = world.ready(&Ask::default());
    let data = identify(&mut world, line, Cns::NAMESPACE, 1).expect("a namespace");
    let id = IdentifyNamespace::parse(&data).expect("a namespace");
    assert_eq!((id.nsattr, id.dlfeat, id.nsfeat), (1, 0, 1 << 4), "write protected");
}

#[test]
fn a_number_without_a_namespace_gives_zeros_and_an_impossible_one_an_error() {
    let (mut world, line, _) = World::ready_on(1);
    let invalid = Err(Status::INVALID_NAMESPACE.with_dnr());
    let by_nsid = [
        Cns::NAMESPACE,
        Cns::ALLOCATED_NAMESPACE,
        Cns::IO_SET_NAMESPACE,
        Cns::NAMESPACE_INDEPENDENT,
    ];
    for cns in by_nsid {
        assert!(is_zero(&identify(&mut world, line, cns, 2).expect("zeros")), "{cns}");
        for nsid in [0, 1025, u32::MAX] {
            assert_eq!(identify(&mut world, line, cns, nsid), invalid, "{cns} {nsid}");
        }
    }
    for cns in [Cns::NAMESPACE_DESCRIPTORS, Cns::NAMESPACE_CONTROLLERS] {
        for nsid in [0, 2, 1025, u32::MAX] {
            assert_eq!(identify(&mut world, line, cns, nsid), invalid, "{cns} {nsid}");
        }
    }
}

#[test]
fn lists_hold_the_namespaces_beyond_the_given_one() {
    let mut world = World::new(1);
    world.put([3, 1024].map(namespace));
    let (line, _) = world.ready(&Ask::default());
    for cns in [Cns::ACTIVE_NAMESPACES, Cns::IO_SET_ACTIVE_NAMESPACES, Cns::ALLOCATED_NAMESPACES] {
        for (nsid, expected) in [(0, &[1, 3, 1024][..]), (1, &[3, 1024]), (1024, &[])] {
            let data = identify(&mut world, line, cns, nsid).expect("a list");
            let seen: Vec<u32> = ActiveNamespaces::parse(&data).collect();
            assert_eq!(seen, expected, "{cns} {nsid}");
        }
        let invalid = Err(Status::INVALID_NAMESPACE.with_dnr());
        assert_eq!(identify(&mut world, line, cns, 0xffff_fffe), invalid);
    }
}

#[test]
fn controllers_of_all_shards_are_listed() {
    let (mut world, first, a) = World::ready_on(2);
    let (second, b) = world.ready(&Ask { shard: 1, ..Ask::default() });
    world.settle();
    let list = |world: &mut World, from: u16| {
        let command = Command::identify(Cns::SUBSYSTEM_CONTROLLERS, 0);
        let command = command.with_cdw(10, u32::from(from) << 16 | 0x13);
        let data = world.admin(first, &command).data.bytes;
        let ids: Vec<u16> =
            data.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
        ids[1..=usize::from(ids[0])].to_vec()
    };
    let mut both = vec![a.controller, b.controller];
    both.sort_unstable();
    assert_eq!(list(&mut world, 0), both);
    assert_eq!(list(&mut world, both[0] + 1), both[1..]);
    world.lose(second);
    world.settle();
    assert_eq!(list(&mut world, 0), [a.controller]);
}

#[test]
fn what_there_is_not_is_an_invalid_field() {
    let (mut world, line, _) = World::ready_on(1);
    for cns in [0x04, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1d, 0xff] {
        let refused = identify(&mut world, line, Cns(cns), 1);
        assert_eq!(refused, Err(Status::INVALID_FIELD.with_dnr()), "{cns:#x}");
    }
    for cns in [5, 6, 7] {
        let zoned = Command::identify(Cns(cns), 1).with_cdw(11, 2 << 24);
        world.refuses(line, &zoned, Status::INVALID_FIELD);
    }
    let sets = identify(&mut world, line, Cns::IO_COMMAND_SETS, 0).expect("command sets");
    assert_eq!(sets[0], 1);
    assert!(is_zero(&sets[1..]));
    identify(&mut world, line, Cns::IO_SET_CONTROLLER, 0).expect("the NVM command set");
    let small = Command::identify(Cns::CONTROLLER, 0)
        .with_sgl(wire::nvme::command::SglDescriptor::transport(4095));
    world.refuses(line, &small, Status::INVALID_SGL_LENGTH);
}
