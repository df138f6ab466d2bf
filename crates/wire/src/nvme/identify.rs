//! Identify: what a controller and its namespaces are.
//!
//! Each structure is a plain value that the target emits and the initiator parses; fields carry the
//! specification's names, and those that neither end uses are left out. All are 4096 bytes but the
//! lists' elements. Sizes of transfers are in the units the field names: MDTS a power of two of 4
//! KiB, IOCCSZ and IORCSZ in 16 bytes, NSZE in logical blocks. Spec: NVMe base, "Identify command";
//! NVM command set, "Identify Namespace".

use super::command::Command;
use super::nqn::Nqn;
use crate::ParseError;

pub use super::fabrics::Version;

mod controller;
mod lists;
mod namespace;

pub use controller::IdentifyController;
pub use lists::{ActiveNamespaces, DescriptorList, NamespaceDescriptor, NamespaceIdType};
pub use namespace::{
    IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNvmController, LbaFormat,
};

/// Size of every Identify data structure, in bytes.
pub const IDENTIFY_SIZE: usize = 4096;

codes! {
    /// CNS: which structure is asked for.
    pub struct Cns(u8) {
        NAMESPACE = 0x00 "namespace",
        CONTROLLER = 0x01 "controller",
        ACTIVE_NAMESPACES = 0x02 "active namespace list",
        NAMESPACE_DESCRIPTORS = 0x03 "namespace identification descriptors",
        NVM_SET_LIST = 0x04 "NVM set list",
        IO_SET_NAMESPACE = 0x05 "I/O command set namespace",
        IO_SET_CONTROLLER = 0x06 "I/O command set controller",
        IO_SET_ACTIVE_NAMESPACES = 0x07 "I/O command set active namespace list",
        NAMESPACE_INDEPENDENT = 0x08 "I/O command set independent namespace",
        ALLOCATED_NAMESPACES = 0x10 "allocated namespace list",
        ALLOCATED_NAMESPACE = 0x11 "allocated namespace",
        NAMESPACE_CONTROLLERS = 0x12 "controllers of a namespace",
        SUBSYSTEM_CONTROLLERS = 0x13 "controllers of the subsystem",
        PRIMARY_CONTROLLER = 0x14 "primary controller capabilities",
        SECONDARY_CONTROLLERS = 0x15 "secondary controller list",
        NAMESPACE_GRANULARITY = 0x16 "namespace granularity list",
        UUID_LIST = 0x17 "UUID list",
        DOMAIN_LIST = 0x18 "domain list",
        ENDURANCE_GROUPS = 0x19 "endurance group list",
        IO_COMMAND_SETS = 0x1c "I/O command sets",
    }
}

codes! {
    /// CSI: an I/O command set.
    pub struct CommandSet(u8) {
        NVM = 0 "NVM",
        KEY_VALUE = 1 "key value",
        ZONED = 2 "zoned namespace",
    }
}

impl Cns {
    /// CNS of an Identify command.
    pub const fn of(command: &Command) -> Self {
        Self(command.0[40])
    }

    /// CNTID of an Identify command, CDW10 31:16.
    pub fn controller_id_of(command: &Command) -> u16 {
        (command.cdw(10) >> 16) as u16
    }

    /// CSI of an Identify command, CDW11 31:24.
    pub fn command_set_of(command: &Command) -> CommandSet {
        CommandSet((command.cdw(11) >> 24) as u8)
    }
}

impl IdentifyController {
    /// SUBNQN as a name.
    pub fn subsystem(&self) -> Result<Nqn, ParseError> {
        Nqn::parse("SUBNQN", 768, &self.subnqn)
    }
}

#[cfg(test)]
mod tests;
