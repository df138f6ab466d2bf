//! One line for one command, for traces and dissection.

use core::fmt;

use super::{AdminOpcode, Command, CopyDword, DsmRange, Fuse, IoOpcode};
use crate::nvme::fabrics::{Connect, FabricsType, Property};
use crate::nvme::feature::FeatureId;
use crate::nvme::identify::Cns;
use crate::nvme::log::GetLog;
use crate::nvme::reservation::{ReportRequest, ReservationDword};

/// A command with its queue known; see [`Command::describe`].
#[derive(Clone, Copy, Debug)]
pub struct Describe<'a> {
    command: &'a Command,
    admin: bool,
}

impl Command {
    /// The command as one line, its opcode read as the queue demands.
    pub const fn describe(&self, admin: bool) -> Describe<'_> {
        Describe { command: self, admin }
    }
}

impl fmt::Display for Describe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command;
        if command.is_fabrics() {
            let kind = FabricsType::of(command);
            write!(f, "{kind} cid {}", command.command_id())?;
            return match kind {
                FabricsType::CONNECT => write!(f, " {}", Connect::from_command(command)),
                FabricsType::PROPERTY_GET => {
                    write!(f, " {}", Property::from_command(command).register)
                }
                FabricsType::PROPERTY_SET => write!(f, " {}", Property::from_command(command)),
                _ => Ok(()),
            };
        }
        if self.admin { admin(command, f) } else { io(command, f) }
    }
}

fn admin(command: &Command, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let opcode = command.admin_opcode();
    write!(f, "{opcode} cid {}", command.command_id())?;
    match opcode {
        AdminOpcode::IDENTIFY => {
            write!(f, " {} nsid {}", Cns::of(command), command.nsid())
        }
        AdminOpcode::GET_LOG_PAGE => write!(f, " {}", GetLog::from_command(command)),
        AdminOpcode::GET_FEATURES => write!(f, " {}", FeatureId::of(command)),
        AdminOpcode::SET_FEATURES => {
            write!(f, " {} = {:#x}", FeatureId::of(command), command.cdw(11))
        }
        AdminOpcode::ABORT => {
            let (queue, victim) = (command.cdw(10) & 0xffff, command.cdw(10) >> 16);
            write!(f, " queue {queue} cid {victim}")
        }
        AdminOpcode::KEEP_ALIVE | AdminOpcode::ASYNC_EVENT_REQUEST => Ok(()),
        _ => write!(f, " nsid {} cdw10 {:#x}", command.nsid(), command.cdw(10)),
    }
}

fn io(command: &Command, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let opcode = command.io_opcode();
    write!(f, "{opcode} cid {} nsid {}", command.command_id(), command.nsid())?;
    match opcode {
        IoOpcode::FLUSH => {}
        IoOpcode::DATASET_MANAGEMENT => {
            write!(f, " {} ranges", DsmRange::count(command))?;
            if DsmRange::is_deallocate(command) {
                f.write_str(" deallocate")?;
            }
        }
        IoOpcode::COPY => {
            let dword = CopyDword::of(command);
            write!(f, " {} ranges to lba {}", dword.count(), command.lba())?;
            if dword.format() != 0 {
                write!(f, " format {}", dword.format())?;
            }
            if dword.force_unit_access() {
                f.write_str(" fua")?;
            }
        }
        IoOpcode::READ
        | IoOpcode::WRITE
        | IoOpcode::COMPARE
        | IoOpcode::WRITE_ZEROES
        | IoOpcode::VERIFY
        | IoOpcode::WRITE_UNCORRECTABLE => {
            write!(f, " lba {} blocks {}", command.lba(), command.blocks())?;
            if command.force_unit_access() {
                f.write_str(" fua")?;
            }
            if opcode == IoOpcode::WRITE_ZEROES && command.deallocate() {
                f.write_str(" deallocate")?;
            }
        }
        IoOpcode::RESERVATION_REGISTER
        | IoOpcode::RESERVATION_ACQUIRE
        | IoOpcode::RESERVATION_RELEASE => reservation(command, f)?,
        IoOpcode::RESERVATION_REPORT => {
            let ReportRequest { bytes, extended } = ReportRequest::of(command);
            write!(f, " bytes {bytes}{}", if extended { " extended" } else { "" })?;
        }
        _ => write!(f, " cdw10 {:#x}", command.cdw(10))?,
    }
    if command.fuse() != Fuse::NONE {
        write!(f, " {}", command.fuse())?;
    }
    if command.sgl().length != 0 {
        write!(f, ", {}", command.sgl())?;
    }
    Ok(())
}

/// A command that changes a reservation: what it does, and with what.
fn reservation(command: &Command, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let dword = ReservationDword::of(command);
    let is_register = command.io_opcode() == IoOpcode::RESERVATION_REGISTER;
    match command.io_opcode() {
        IoOpcode::RESERVATION_REGISTER => write!(f, " {}", dword.register_action())?,
        IoOpcode::RESERVATION_ACQUIRE => write!(f, " {}", dword.acquire_action())?,
        _ => write!(f, " {}", dword.release_action())?,
    }
    if !is_register {
        write!(f, " {}", dword.reservation_type())?;
    }
    if dword.ignores_key() {
        f.write_str(" iekey")?;
    }
    if is_register && dword.persist() != 0 {
        write!(f, " cptpl {}", dword.persist())?;
    }
    Ok(())
}
