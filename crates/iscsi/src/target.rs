//! What is exported: targets, their logical units and the hosts that may use them.
//!
//! Plain values that the configuration makes; each shard holds a copy, and
//! [`Targets`](crate::targets::Targets) is told of changes. A host sees of a target the LUNs that
//! name it (LUN masking); one that no LUN names is refused at login. Spec: RFC 7143, 4.2.7; SAM-5,
//! 4.7.

use block::BlockSize;
use reservation::PathGroup;
pub use scsi::{LogicalUnit, ModeState};
use wire::iscsi::IscsiName;

use crate::auth::Required;

/// VENDOR IDENTIFICATION of every unit; our initiators know our targets by it.
pub(crate) const VENDOR: &str = "PLATEWAY";

/// What a listener is to hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portal {
    /// The group of listeners that it is of: its portal group, which has the same number.
    pub group: PathGroup,
    /// The address, `host:port`, by which hosts that came by another listener are told of it; `None`
    /// where there is no one address that works for all.
    pub address: Option<String>,
    /// Whether hosts that came by this listener, too, are told that address and not the one that
    /// they used: it stands behind a translation of addresses.
    pub is_advertised: bool,
    /// Who may ask which targets there are; `None`: everybody.
    pub required: Option<Required>,
}

/// A target: a name and its logical units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: IscsiName,
    /// Who may log in and by what they prove who they are; `None`: nobody has to prove anything.
    pub required: Option<Required>,
    /// In ascending order of their LUNs.
    pub units: Vec<Unit>,
}

/// A logical unit under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// 0 to [`LUN_MAX`](scsi::limits::LUN_MAX).
    pub lun: u16,
    /// Who may use it.
    pub hosts: Hosts,
    pub unit: LogicalUnit,
}

/// Whose blocks they are and how they are counted: while this is the same, an LBA names the same
/// place. Not the volume's number, which is a new one when a removal is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    pub block_size: BlockSize,
}

impl UnitIdentity {
    /// That of a unit, whatever its LUN.
    #[inline]
    pub fn of(unit: &LogicalUnit) -> UnitIdentity {
        UnitIdentity { uuid: unit.uuid, block_size: unit.block_size }
    }
}

/// Which hosts may use a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// The initiators of these names and no other; an empty list admits nobody.
    List(Vec<IscsiName>),
}

impl Hosts {
    /// Whether the host of this name may use it.
    pub fn allow(&self, host: &IscsiName) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::List(hosts) => hosts.contains(host),
        }
    }
}

impl Target {
    /// A target without logical units.
    pub fn new(name: IscsiName) -> Target {
        Target { name, required: None, units: Vec::new() }
    }

    /// With this unit added, or put in the place of one with the same LUN.
    pub fn with_unit(mut self, unit: Unit) -> Target {
        match self.units.binary_search_by_key(&unit.lun, |other| other.lun) {
            Ok(at) => self.units[at] = unit,
            Err(at) => self.units.insert(at, unit),
        }
        self
    }

    /// The LUNs that a host may use, in ascending order.
    pub fn luns_of(&self, host: &IscsiName) -> impl Iterator<Item = u16> {
        self.units.iter().filter(|unit| unit.hosts.allow(host)).map(|unit| unit.lun)
    }
}
