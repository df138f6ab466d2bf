//! One line for one command, for traces and dissection.

use core::fmt;

use super::{ByteCheck, Cdb, OpCode, ServiceAction};

impl fmt::Display for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_service_action() {
            return service_action(self, f);
        }
        let opcode = self.opcode();
        write!(f, "{opcode}")?;
        match opcode {
            OpCode::INQUIRY if self.evpd() => write!(f, " page {:#04x}", self.page_code())?,
            OpCode::MODE_SENSE_6 | OpCode::MODE_SENSE_10 => {
                write!(f, " page {:#04x}", self.page_code())?;
                if self.page_control() != 0 {
                    write!(f, " control {}", self.page_control())?;
                }
            }
            OpCode::START_STOP_UNIT => {
                f.write_str(if self.start() { " start" } else { " stop" })?;
            }
            OpCode::UNMAP | OpCode::MODE_SELECT_6 | OpCode::MODE_SELECT_10 => {
                write!(f, " {} bytes", self.parameter_list_length())?;
            }
            _ if has_blocks(opcode) => blocks(self, f)?,
            _ => {}
        }
        if self.naca() {
            f.write_str(" naca")?;
        }
        Ok(())
    }
}

fn service_action(cdb: &Cdb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match cdb.action().name() {
        Some(name) => f.write_str(name)?,
        None => write!(f, "{} action {:#04x}", cdb.opcode(), cdb.service_action())?,
    }
    match cdb.action() {
        ServiceAction::GET_LBA_STATUS => write!(f, " lba {}", cdb.lba()),
        ServiceAction::REPORT_SUPPORTED_OPERATION_CODES if cdb.reporting_options() != 0 => {
            let (opcode, action) = cdb.requested();
            write!(f, " {opcode} {action:#x}")
        }
        _ => Ok(()),
    }
}

const fn has_blocks(opcode: OpCode) -> bool {
    matches!(
        opcode,
        OpCode::READ_6
            | OpCode::READ_10
            | OpCode::READ_12
            | OpCode::READ_16
            | OpCode::WRITE_6
            | OpCode::WRITE_10
            | OpCode::WRITE_12
            | OpCode::WRITE_16
            | OpCode::WRITE_AND_VERIFY_10
            | OpCode::WRITE_AND_VERIFY_12
            | OpCode::WRITE_AND_VERIFY_16
            | OpCode::VERIFY_10
            | OpCode::VERIFY_12
            | OpCode::VERIFY_16
            | OpCode::COMPARE_AND_WRITE
            | OpCode::ORWRITE_16
            | OpCode::WRITE_ATOMIC_16
            | OpCode::WRITE_SAME_10
            | OpCode::WRITE_SAME_16
            | OpCode::PRE_FETCH_10
            | OpCode::PRE_FETCH_16
            | OpCode::SYNCHRONIZE_CACHE_10
            | OpCode::SYNCHRONIZE_CACHE_16
    )
}

fn blocks(cdb: &Cdb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " lba {} blocks {}", cdb.lba(), cdb.blocks())?;
    let flag = |f: &mut fmt::Formatter<'_>, name: &str, set: bool| {
        if set { write!(f, " {name}") } else { Ok(()) }
    };
    match cdb.opcode() {
        OpCode::READ_6 | OpCode::WRITE_6 => return Ok(()),
        OpCode::SYNCHRONIZE_CACHE_10
        | OpCode::SYNCHRONIZE_CACHE_16
        | OpCode::PRE_FETCH_10
        | OpCode::PRE_FETCH_16 => return flag(f, "immed", cdb.immediate()),
        OpCode::WRITE_SAME_10 | OpCode::WRITE_SAME_16 => {
            flag(f, "unmap", cdb.unmap())?;
            flag(f, "anchor", cdb.anchor())?;
            flag(f, "ndob", cdb.ndob())?;
        }
        OpCode::VERIFY_10
        | OpCode::VERIFY_12
        | OpCode::VERIFY_16
        | OpCode::WRITE_AND_VERIFY_10
        | OpCode::WRITE_AND_VERIFY_12
        | OpCode::WRITE_AND_VERIFY_16 => {
            flag(f, "dpo", cdb.dpo())?;
            flag(f, "bytchk", cdb.byte_check() != ByteCheck::MEDIUM)?;
        }
        _ => {
            flag(f, "dpo", cdb.dpo())?;
            flag(f, "fua", cdb.fua())?;
        }
    }
    match cdb.protect() {
        0 => Ok(()),
        protect => write!(f, " protect {protect}"),
    }
}
