//! Identify: what a controller and its namespaces say of themselves.
//!
//! Values are those that hosts in the field demand (`docs/coverage/nvme.md` names who): asymmetric
//! access, compare, dataset management, write zeroes, verify, copy, fused compare-and-write,
//! reservations. Every answer is 4096 bytes. Errors: an unknown CNS is 0x002, an NSID that
//! cannot be one 0x00B; an NSID without a namespace gives zeros where the specification says so.
//! Spec: NVMe base and NVM command set, "Identify command".

use block::planted;
use reservation::PathGroup;
use wire::ascii_field;
use wire::nvme::command::NSID_ALL;
use wire::nvme::identify::{
    ActiveNamespaces, Cns, CommandSet, DescriptorList, IDENTIFY_SIZE, IdentifyController,
    IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNvmController, LbaFormat,
    NamespaceDescriptor,
};
use wire::nvme::reservation::ReservationCapabilities;
use wire::nvme::{Command, Nqn, Status};

use crate::controllers::Export;
use crate::controllers::controller::Controller;
use crate::controllers::keep_alive::GRANULARITY;
use crate::fabrics::VERSION;
use crate::io;
use crate::limits::{
    ASYNC_EVENT_REQUESTS_MAX, CAPSULE_DATA_MAX, COPY_RANGES_MAX, ERROR_ENTRIES_MAX, MDTS,
    NAMESPACES_MAX, QUEUE_DEPTH_MAX,
};
use crate::paths::{ANACAP, ANATT_S, GROUPS_OF_CONTROLLER};
use crate::subsystem::{MODEL, Namespace, serial};

/// CMIC bit 0: more than one port; bit 1: more than one controller; bit 3: asymmetric access.
const CMIC: u8 = 1 | 1 << 1 | 1 << 3;
/// OAES bit 8: namespace attribute notices.
const OAES_NAMESPACES: u32 = 1 << 8;
/// OAES bit 11: asymmetric namespace access change notices.
const OAES_ACCESS: u32 = 1 << 11;
/// OAES bit 31: discovery log notices.
const OAES_DISCOVERY: u32 = 1 << 31;
/// CTRATT bit 0, 128-bit HOSTID, and bit 6, traffic-based keep alive.
const CTRATT: u32 = 1 | 1 << 6;
/// FRMW: one slot, which is read-only.
const FRMW: u8 = 1 << 1 | 1;
/// LPA bit 1: commands supported and effects; bit 2: NUMD of 32 bits and LPO.
const LPA: u8 = 1 << 1 | 1 << 2;
/// ONCS: compare, dataset management, write zeroes, save and select, reservations, timestamp,
/// verify, copy.
const ONCS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
/// OCFS bit 0: source ranges of format 0.
const OCFS: u16 = 1;
/// FUSES bit 0: compare and write.
const FUSES: u16 = 1;
/// VWC bits 2:1 = 3: a flush of NSID 0xffffffff flushes every namespace.
const VWC_FLUSH_ALL: u8 = 3 << 1;
/// SGLS bits 1:0 = 1: SGLs, byte-aligned; bit 20: an offset in the capsule.
const SGLS: u32 = 1 | 1 << 20;
/// RTD3E, the longest shutdown: hosts wait so many microseconds for the flush.
const SHUTDOWN_US: u32 = 30_000_000;
/// Abort commands at once, less one.
const ACL: u8 = 3;

/// What Identify asks about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) export: Option<&'a Export>,
    /// CNTLIDs of the subsystem's controllers on every shard, ascending.
    pub(crate) controllers: &'a [u16],
}

/// The data of an Identify command.
pub(crate) fn identify(command: &Command, context: Context<'_>) -> Result<Vec<u8>, Status> {
    let cns = Cns::of(command);
    let Some(export) = context.export else {
        return match cns {
            Cns::CONTROLLER => Ok(discovery_controller(context.controller).emit().to_vec()),
            _ => Err(Status::INVALID_FIELD),
        };
    };
    let (nsid, group) = (command.nsid(), context.controller.group);
    let by_set = matches!(
        cns,
        Cns::IO_SET_NAMESPACE | Cns::IO_SET_CONTROLLER | Cns::IO_SET_ACTIVE_NAMESPACES
    );
    if by_set && Cns::command_set_of(command) != CommandSet::NVM {
        return Err(Status::INVALID_FIELD);
    }
    match cns {
        Cns::NAMESPACE | Cns::ALLOCATED_NAMESPACE => {
            let namespace = find(export, nsid)?;
            let told = |found| io_namespace(found, group).emit().to_vec();
            Ok(namespace.map_or_else(zeros, told))
        }
        Cns::CONTROLLER => Ok(io_controller(context.controller, export).emit().to_vec()),
        Cns::ACTIVE_NAMESPACES | Cns::ALLOCATED_NAMESPACES | Cns::IO_SET_ACTIVE_NAMESPACES => {
            if nsid >= NSID_ALL - 1 {
                return Err(Status::INVALID_NAMESPACE);
            }
            let nsids = export.namespaces().map(|namespace| namespace.nsid);
            Ok(ActiveNamespaces::emit(nsids.filter(|&other| other > nsid)).to_vec())
        }
        Cns::NAMESPACE_DESCRIPTORS => {
            let namespace = find(export, nsid)?.ok_or(Status::INVALID_NAMESPACE)?;
            Ok(descriptors(namespace))
        }
        // PIC and the extended formats are all zero without protection information.
        Cns::IO_SET_NAMESPACE => find(export, nsid).map(|_| zeros()),
        // Write Zeroes and Verify move no data, so MDTS does not bind them: any count that NLB can
        // say is taken.
        Cns::IO_SET_CONTROLLER => Ok(IdentifyNvmController::default().emit().to_vec()),
        Cns::NAMESPACE_INDEPENDENT => {
            let namespace = find(export, nsid)?;
            let told = |found| independent(found, group).emit().to_vec();
            Ok(namespace.map_or_else(zeros, told))
        }
        Cns::NAMESPACE_CONTROLLERS => {
            find(export, nsid)?.ok_or(Status::INVALID_NAMESPACE)?;
            Ok(controller_list(command, context.controllers))
        }
        Cns::SUBSYSTEM_CONTROLLERS => Ok(controller_list(command, context.controllers)),
        Cns::IO_COMMAND_SETS => {
            // One combination, with bit 0: the NVM command set.
            let mut sets = zeros();
            sets[0] = 1;
            Ok(sets)
        }
        _ => Err(Status::INVALID_FIELD),
    }
}

fn zeros() -> Vec<u8> {
    vec![0; IDENTIFY_SIZE]
}

/// The namespace of a number; an error for one that no namespace can have. The broadcast NSID is
/// one of these, since there is no Namespace Management whose common capabilities it could ask for.
fn find(export: &Export, nsid: u32) -> Result<Option<&Namespace>, Status> {
    if nsid == 0 || nsid > NAMESPACES_MAX {
        return Err(Status::INVALID_NAMESPACE);
    }
    Ok(export.namespace(nsid))
}

/// What every controller says.
fn common(controller: &Controller, subsystem: &Nqn, serial: [u8; 20]) -> IdentifyController {
    IdentifyController {
        sn: serial,
        mn: ascii_field(MODEL),
        fr: ascii_field(env!("CARGO_PKG_VERSION")),
        mdts: MDTS,
        cntlid: controller.name.id,
        ver: VERSION,
        rtd3e: SHUTDOWN_US,
        ctratt: CTRATT,
        acl: ACL,
        aerl: ASYNC_EVENT_REQUESTS_MAX as u8 - 1,
        frmw: FRMW,
        lpa: LPA,
        elpe: ERROR_ENTRIES_MAX as u8 - 1,
        kas: GRANULARITY,
        maxcmd: QUEUE_DEPTH_MAX as u16,
        sgls: SGLS,
        subnqn: subsystem.emit(),
        ioccsz: (Command::SIZE as u32 + CAPSULE_DATA_MAX) / 16,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    }
}

fn discovery_controller(controller: &Controller) -> IdentifyController {
    let nqn = Nqn::discovery();
    IdentifyController {
        oaes: OAES_DISCOVERY,
        cntrltype: 2,
        lpa: LPA & !(1 << 1),
        ..common(controller, &nqn, serial(&nqn))
    }
}

fn io_controller(controller: &Controller, export: &Export) -> IdentifyController {
    let subsystem = &export.subsystem;
    IdentifyController {
        cmic: CMIC,
        oaes: OAES_NAMESPACES | OAES_ACCESS,
        anatt: ANATT_S,
        anacap: ANACAP,
        anagrpmax: PathGroup::MAX.into(),
        nanagrpid: GROUPS_OF_CONTROLLER,
        cntrltype: 1,
        sqes: 0x66,
        cqes: 0x44,
        nn: NAMESPACES_MAX,
        mnan: NAMESPACES_MAX,
        oncs: ONCS,
        fuses: FUSES,
        ocfs: OCFS,
        vwc: VWC_FLUSH_ALL | u8::from(export.is_cache_volatile()),
        ..common(controller, &subsystem.nqn, subsystem.serial)
    }
}

/// NSFEAT: bit 0, thin provisioning, says that deallocation gives space back; bit 4 that the hints
/// below hold.
fn features(namespace: &Namespace) -> u8 {
    u8::from(namespace.discards) | 1 << 4
}

fn io_namespace(namespace: &Namespace, group: PathGroup) -> IdentifyNamespace {
    let blocks = namespace.blocks.0;
    // Blocks of the physical block, 0-based: what is written without reading first.
    let granularity = u64::from(namespace.physical_block) / namespace.block_size.bytes();
    let granularity = granularity.clamp(1, 1 << 16) as u32 - 1;
    let granularity = granularity as u16;
    let mut lbaf = [LbaFormat::default(); 16];
    lbaf[0].lbads = namespace.block_size.shift();
    let mut nguid = namespace.nguid();
    if planted("nguid-changes-with-size") {
        nguid[0] ^= blocks.count_ones() as u8;
    }
    let copies = io::copy_limits(namespace);
    IdentifyNamespace {
        nsze: blocks,
        ncap: blocks,
        nuse: blocks,
        nsfeat: features(namespace),
        nmic: 1,
        rescap: ReservationCapabilities::ALL.0,
        dlfeat: u8::from(namespace.discard_zeroes) | u8::from(namespace.discards) << 3,
        npwg: granularity,
        npwa: granularity,
        npdg: granularity,
        npda: granularity,
        mssrl: copies.range,
        mcl: copies.total,
        msrc: (COPY_RANGES_MAX - 1) as u8,
        anagrpid: group.number().into(),
        nsattr: u8::from(namespace.read_only),
        nguid,
        eui64: namespace.eui64(),
        lbaf,
        ..IdentifyNamespace::default()
    }
}

/// NSTAT.NRDY has to be 1: Linux leaves out a namespace that is not ready, without a word.
fn independent(namespace: &Namespace, group: PathGroup) -> IdentifyNamespaceIndependent {
    IdentifyNamespaceIndependent {
        nsfeat: features(namespace),
        nmic: 1,
        rescap: ReservationCapabilities::ALL.0,
        anagrpid: group.number().into(),
        nsattr: u8::from(namespace.read_only),
        nstat: 1,
        ..IdentifyNamespaceIndependent::default()
    }
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let names = [
        NamespaceDescriptor::Uuid(namespace.uuid),
        NamespaceDescriptor::Nguid(namespace.nguid()),
        NamespaceDescriptor::Eui64(namespace.eui64()),
        NamespaceDescriptor::CommandSet(CommandSet::NVM),
    ];
    DescriptorList::emit(&names).to_vec()
}

/// A controller list: a count and CNTLIDs from CDW10's CNTID on, ascending, at most 2047.
fn controller_list(command: &Command, controllers: &[u16]) -> Vec<u8> {
    let first = Cns::controller_id_of(command);
    let listed = controllers.iter().filter(|&&id| id >= first).take(IDENTIFY_SIZE / 2 - 1);
    let mut data = zeros();
    let mut count = 0_u16;
    for (slot, id) in data[2..].as_chunks_mut::<2>().0.iter_mut().zip(listed) {
        *slot = id.to_le_bytes();
        count += 1;
    }
    data[..2].copy_from_slice(&count.to_le_bytes());
    data
}
