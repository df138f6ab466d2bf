//! What only NVMe over Fabrics has: Connect, properties, Disconnect.
//!
//! Connect is a command ([`Connect`]) with 1024 bytes of data ([`ConnectData`]); properties are the
//! registers of PCIe, read and written by command ([`Property`]). Units: KATO in milliseconds,
//! queue sizes 0-based as on the wire. Spec: NVMe base, "Fabrics Command Set", "Controller
//! Properties".

use core::fmt;

use super::command::Command;
use super::nqn::Nqn;
use crate::ParseError;
use crate::field::Field;

codes! {
    /// FCTYPE, byte 4 of a Fabrics command.
    pub struct FabricsType(u8) {
        PROPERTY_SET = 0x00 "Property Set",
        CONNECT = 0x01 "Connect",
        PROPERTY_GET = 0x04 "Property Get",
        AUTHENTICATION_SEND = 0x05 "Authentication Send",
        AUTHENTICATION_RECEIVE = 0x06 "Authentication Receive",
        DISCONNECT = 0x08 "Disconnect",
    }
}

impl FabricsType {
    /// FCTYPE of a Fabrics command.
    #[inline]
    pub const fn of(command: &Command) -> Self {
        Self(command.0[4])
    }
}

bits! {
    /// CATTR: what the host asks of a queue.
    pub struct ConnectAttributes(u8) {
        fields {
            /// Priority class of the queue.
            priority / with_priority: 0, 2;
        }
        flags {
            /// SQ flow control is disabled: SQHD is 0xffff, C2HData may say SUCCESS.
            disable_sq_flow_control / with_disable_sq_flow_control: 2;
        }
    }
}

layout! {
    /// The Connect command's own fields, CDW10 to CDW15; any bits are values, which of them are
    /// accepted is the target's to say.
    pub struct Connect[24] {
        /// RECFMT: 0.
        0 => record_format: u16,
        /// QID: 0 for the admin queue.
        2 => queue_id: u16,
        /// SQSIZE: entries of the queue, less one.
        4 => sq_size: u16,
        /// CATTR.
        6 => attributes: ConnectAttributes,
        /// KATO in milliseconds, 0 for none; admin queue only.
        8 => keep_alive_ms: u32,
    }
}

impl Connect {
    /// Offset of QID in the command.
    pub const OFFSET_QUEUE_ID: u16 = 42;
    /// Offset of SQSIZE in the command.
    pub const OFFSET_SQ_SIZE: u16 = 44;

    pub fn from_command(command: &Command) -> Self {
        Self::get(&command.0, 40)
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "qid {} sqsize {} cattr {:#x} kato {} ms",
            self.queue_id, self.sq_size, self.attributes.0, self.keep_alive_ms
        )
    }
}

/// The data of Connect: who connects to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: [`ConnectData::CONTROLLER_ANY`] on an admin queue, else the controller to join.
    pub controller_id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// HOSTNQN; none where the field is empty, as that of SPDK's `spdk_nvme_perf` is.
    pub host: Option<Nqn>,
}

impl ConnectData {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 1024;
    /// CNTLID of the dynamic controller model: the target chooses.
    pub const CONTROLLER_ANY: u16 = 0xffff;
    /// Offset of CNTLID in the data.
    pub const OFFSET_CONTROLLER_ID: u16 = 16;
    /// Offset of SUBNQN in the data.
    pub const OFFSET_SUBSYSTEM: u16 = 256;
    /// Offset of HOSTNQN in the data.
    pub const OFFSET_HOST: u16 = 512;

    /// Reads 1024 bytes. An error's offset is that of the field in the data, fit for IPO.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self {
            host_id: Field::get(bytes, 0),
            controller_id: Field::get(bytes, 16),
            subsystem: Nqn::parse("SUBNQN", 256, &bytes[256..512])?,
            host: match bytes[512] {
                0 => None,
                _ => Some(Nqn::parse("HOSTNQN", 512, &bytes[512..768])?),
            },
        })
    }

    /// The data as bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        self.host_id.put(&mut bytes, 0);
        self.controller_id.put(&mut bytes, 16);
        bytes[256..512].copy_from_slice(&self.subsystem.emit());
        if let Some(host) = &self.host {
            bytes[512..768].copy_from_slice(&host.emit());
        }
        bytes
    }
}

impl fmt::Display for ConnectData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host}")?,
            None => f.write_str("(no HOSTNQN)")?,
        }
        write!(f, " > {} cntlid {:#06x}", self.subsystem, self.controller_id)
    }
}

bits! {
    /// DW0 of a successful Connect.
    pub struct ConnectResult(u32) {
        fields {
            /// CNTLID of the controller.
            controller_id / with_controller_id: 0, 16;
        }
        flags {
            /// ATR: the host must authenticate.
            authentication_required / with_authentication_required: 17;
            /// ASCR: the host must authenticate and make the channel secure.
            secure_channel_required / with_secure_channel_required: 18;
        }
    }
}

bits! {
    /// DW0 of a Connect refused with "connect invalid parameters".
    pub struct ConnectInvalid(u32) {
        fields {
            /// IPO: offset of the bad parameter.
            offset / with_offset: 0, 16;
        }
        flags {
            /// The offset counts in the data, not in the command.
            in_data / with_in_data: 16;
        }
    }
}

impl ConnectInvalid {
    /// The parameter at `offset` of the command is bad.
    pub const fn in_command_at(offset: u16) -> Self {
        Self(offset as u32)
    }

    /// The parameter at `offset` of the data is bad.
    pub const fn in_data_at(offset: u16) -> Self {
        Self(offset as u32 | 1 << 16)
    }
}

codes! {
    /// Offsets of the properties.
    pub struct Register(u32) {
        CAP = 0x00 "CAP",
        VS = 0x08 "VS",
        CC = 0x14 "CC",
        CSTS = 0x1c "CSTS",
        NSSR = 0x20 "NSSR",
        CRTO = 0x68 "CRTO",
    }
}

impl Register {
    /// True for a property of 8 bytes.
    pub const fn is_wide(self) -> bool {
        self.0 == Self::CAP.0
    }
}

/// A Property Get or Property Set; `value` is meaningless in a Get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// OFST: which property.
    pub register: Register,
    /// ATTRIB bits 2:0: 0 for 4 bytes, 1 for 8, others reserved.
    pub size_code: u8,
    /// VALUE, of a Set.
    pub value: u64,
}

impl Property {
    /// Reads the fields of a Property Get or Set.
    pub fn from_command(command: &Command) -> Self {
        Self {
            register: Register(command.cdw(11)),
            size_code: command.0[40] & 7,
            value: u64::get(&command.0, 48),
        }
    }

    /// True for an access of 8 bytes.
    pub const fn is_wide(&self) -> bool {
        self.size_code == 1
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:#x}", self.register, self.value)
    }
}

bits! {
    /// CAP: what the controller can do.
    pub struct Capabilities(u64) {
        fields {
            /// MQES: most entries of a queue, less one.
            mqes / with_mqes: 0, 16;
            /// TO: longest wait for RDY, in units of 500 ms.
            timeout / with_timeout: 24, 8;
            /// CSS: command sets; see the flags `css_nvm` and `css_io_sets`.
            css / with_css: 37, 8;
            /// MPSMIN: smallest page is 4096 << MPSMIN.
            mpsmin / with_mpsmin: 48, 4;
            /// MPSMAX: largest page is 4096 << MPSMAX.
            mpsmax / with_mpsmax: 52, 4;
            /// CRMS: controller ready modes; bit 0 makes hosts read CRTO.
            crms / with_crms: 59, 2;
        }
        flags {
            /// CQR: queues must be contiguous, always set over fabrics.
            cqr / with_cqr: 16;
            /// CSS bit 0: the NVM command set.
            css_nvm / with_css_nvm: 37;
            /// CSS bit 6: one or more I/O command sets, chosen by CC.CSS 110b.
            css_io_sets / with_css_io_sets: 43;
        }
    }
}

bits! {
    /// CC: what the host wants.
    pub struct Configuration(u32) {
        fields {
            /// CSS: chosen command set; 0 NVM, 6 all supported, 7 admin only.
            css / with_css: 4, 3;
            /// MPS: page size is 4096 << MPS.
            mps / with_mps: 7, 4;
            /// AMS: arbitration mechanism.
            ams / with_ams: 11, 3;
            /// SHN: shutdown; 0 none, 1 normal, 2 abrupt.
            shn / with_shn: 14, 2;
            /// IOSQES: submission queue entries are 1 << IOSQES bytes, 6.
            iosqes / with_iosqes: 16, 4;
            /// IOCQES: completion queue entries are 1 << IOCQES bytes, 4.
            iocqes / with_iocqes: 20, 4;
        }
        flags {
            /// EN: enable.
            enable / with_enable: 0;
            /// CRIME: controller ready independent of media.
            crime / with_crime: 24;
        }
    }
}

bits! {
    /// CSTS: what the controller is.
    pub struct ControllerStatus(u32) {
        fields {
            /// SHST: shutdown; 0 none, 1 in progress, 2 complete.
            shst / with_shst: 2, 2;
        }
        flags {
            /// RDY: ready.
            ready / with_ready: 0;
            /// CFS: fatal.
            fatal / with_fatal: 1;
            /// PP: processing paused.
            paused / with_paused: 5;
        }
    }
}

bits! {
    /// VS and VER: version of the specification.
    pub struct Version(u32) {
        fields {
            /// Major.
            major / with_major: 16, 16;
            /// Minor.
            minor / with_minor: 8, 8;
            /// Tertiary.
            tertiary / with_tertiary: 0, 8;
        }
        flags {}
    }
}

impl Version {
    /// 2.0.0.
    pub const V2_0: Self = Self(0x0002_0000);
}

#[cfg(test)]
mod tests;
