//! Commands that return data which are not blocks: what a device says of itself and its units.
//!
//! In: the command, the facts of its unit, if there is one, and those of the device. Out: the data,
//! no longer than the command's allocation length, which is no error and no overflow: how much there
//! would have been is in the data. Errors: the sense data of CHECK CONDITION. INQUIRY is in
//! `inquiry`, MODE SENSE in `mode`, REPORT TARGET PORT GROUPS in `paths`, what copies may be in `copy`. Spec: SPC-4, "REPORT LUNS
//! command", "REQUEST SENSE command", "REPORT SUPPORTED OPERATION CODES command"; SBC-3, "READ
//! CAPACITY (10) command".

use reservation::PathGroup;
use reservation::paths::Path;
use wire::scsi::capacity::{Capacity10, Capacity16, CapacityProvisioning};
use wire::scsi::opcodes::{
    AllCommands, CommandDescriptor, CommandFlags, CommandTimeouts, OneCommand, Support,
};
use wire::scsi::{AdditionalSense, Cdb, Lun, LunList, OpCode, ProtocolId, Sense, ServiceAction};

use crate::commands::{self, Known};
use crate::copy;
use crate::inquiry::inquiry;
use crate::judge::{illegal, invalid_field};
use crate::mode;
use crate::paths;
use crate::unit::LogicalUnit;

/// What a device says beyond its units.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// T10 VENDOR IDENTIFICATION: up to 8 ASCII characters.
    pub vendor: &'a str,
    /// PRODUCT IDENTIFICATION: up to 16 ASCII characters.
    pub product: &'a str,
    /// PRODUCT REVISION LEVEL: up to 4 ASCII characters.
    pub revision: &'a str,
    /// The units that the host may use, ascending.
    pub luns: &'a [u16],
    /// The port by which the host asks.
    pub port: TargetPort<'a>,
    /// The groups of ports of the target, ascending, with their states.
    pub groups: &'a [(PathGroup, Path)],
    /// The unit attention that waits for the unit, which REQUEST SENSE returns
    /// ([`Attentions::take_as_data`](crate::Attentions::take_as_data)); `None` for other commands.
    pub pending: Option<Sense>,
}

/// A target port, as its transport names it.
#[derive(Clone, Copy, Debug)]
pub struct TargetPort<'a> {
    /// The transport.
    pub protocol: ProtocolId,
    /// VERSION DESCRIPTOR of the transport in standard INQUIRY data: 0x0960 for iSCSI.
    pub version: u16,
    /// The SCSI name string of the target device; of iSCSI the target's name.
    pub device_name: &'a str,
    /// The SCSI name string of the port; of iSCSI the target's name, `,t,0x` and the portal group
    /// tag.
    pub port_name: &'a str,
    /// RELATIVE TARGET PORT IDENTIFIER, 1 or more.
    pub relative_id: u16,
    /// TARGET PORT GROUP.
    pub group: u16,
}

/// The data that a command returns, no longer than its allocation length. For commands that
/// [`judge`](crate::judge()) or [`judge_absent`](crate::judge_absent()) calls
/// [`Work::Reply`](crate::Work::Reply); `unit` is `None` where the LUN is not there.
pub fn reply(cdb: &Cdb, unit: Option<&LogicalUnit>, facts: &Facts<'_>) -> Result<Vec<u8>, Sense> {
    let mut data = match (cdb.opcode(), unit) {
        (OpCode::INQUIRY, _) => inquiry(cdb, unit, facts)?,
        (OpCode::REPORT_LUNS, _) => report_luns(cdb, facts)?,
        (OpCode::REQUEST_SENSE, _) => request_sense(cdb, unit, facts),
        (_, None) => return Err(illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)),
        (_, Some(unit)) => of_unit(cdb, unit, facts)?,
    };
    data.truncate(cdb.allocation_length() as usize);
    Ok(data)
}

fn of_unit(cdb: &Cdb, unit: &LogicalUnit, facts: &Facts<'_>) -> Result<Vec<u8>, Sense> {
    match cdb.opcode() {
        OpCode::MODE_SENSE_6 | OpCode::MODE_SENSE_10 => mode::sense(cdb, unit),
        OpCode::READ_CAPACITY_10 => {
            Ok(Capacity10::of(unit.blocks.0, unit.block_bytes()).emit().to_vec())
        }
        _ => match cdb.action() {
            ServiceAction::READ_CAPACITY_16 => Ok(capacity(unit).emit().to_vec()),
            ServiceAction::REPORT_SUPPORTED_OPERATION_CODES => opcodes(cdb, unit),
            ServiceAction::REPORT_TARGET_PORT_GROUPS => paths::report(cdb, facts.groups),
            ServiceAction::RECEIVE_COPY_OPERATING_PARAMETERS => {
                Ok(copy::operating_parameters(unit))
            }
            _ => Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
        },
    }
}

/// SELECT REPORT: 0 those that are no well-known ones, 1 the well-known ones, of which there are
/// none, 2 both.
fn report_luns(cdb: &Cdb, facts: &Facts<'_>) -> Result<Vec<u8>, Sense> {
    let luns = match cdb.select_report() {
        0 | 2 => facts.luns,
        1 => &[],
        _ => return Err(invalid_field(2, 7)),
    };
    Ok(LunList(luns.iter().map(|&lun| Lun::of(lun)).collect()).emit())
}

fn request_sense(cdb: &Cdb, unit: Option<&LogicalUnit>, facts: &Facts<'_>) -> Vec<u8> {
    let sense = match unit {
        Some(_) => facts.pending.unwrap_or(Sense::NONE),
        None => illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
    };
    sense.emit(cdb.descriptors())
}

fn capacity(unit: &LogicalUnit) -> Capacity16 {
    let provisioning = CapacityProvisioning(0)
        .with_managed(unit.discards)
        .with_reads_zeros(unit.discards && unit.discard_zeroes);
    Capacity16 {
        last_lba: unit.blocks.0.saturating_sub(1),
        block_length: unit.block_bytes(),
        physical_exponent: unit.physical_blocks().ilog2() as u8,
        provisioning,
        ..Capacity16::default()
    }
}

/// No times are promised: they are the disk's below.
fn timeouts(cdb: &Cdb) -> Option<CommandTimeouts> {
    cdb.timeouts().then(|| CommandTimeouts::new(0, 0))
}

fn opcodes(cdb: &Cdb, unit: &LogicalUnit) -> Result<Vec<u8>, Sense> {
    let (opcode, action) = cdb.requested();
    let is_wrong = match cdb.reporting_options() {
        0 => return Ok(all_opcodes(cdb, unit)),
        1 => commands::has_action(opcode),
        2 => !commands::has_action(opcode) && commands::find(unit, opcode, 0).is_some(),
        3 => false,
        _ => true,
    };
    if is_wrong {
        return Err(invalid_field(2, 2));
    }
    let known = match cdb.reporting_options() {
        // Without service actions the requested one has to be 0.
        3 if !commands::has_action(opcode) && action != 0 => None,
        _ => commands::find(unit, opcode, action),
    };
    let one = match known {
        Some(known) => OneCommand {
            support: Support::SUPPORTED,
            usage: known.usage(unit),
            timeouts: timeouts(cdb),
        },
        None => OneCommand { support: Support::NOT_SUPPORTED, ..OneCommand::default() },
    };
    Ok(one.emit())
}

fn all_opcodes(cdb: &Cdb, unit: &LogicalUnit) -> Vec<u8> {
    let row = |known: &Known| {
        let descriptor = CommandDescriptor {
            opcode: known.opcode(),
            action: known.action.unwrap_or(0),
            flags: CommandFlags(0).with_service_action(known.action.is_some()),
            cdb_length: known.usage(unit).len() as u16,
        };
        (descriptor, timeouts(cdb))
    };
    AllCommands(commands::all(unit).map(row).collect()).emit()
}

#[cfg(test)]
mod tests;
