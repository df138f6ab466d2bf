//! Standard INQUIRY data: what a logical unit is.
//!
//! 96 bytes here; units in the field send 36 or more, which [`StandardInquiry::read`] takes as they
//! are. Fields carry the standard's names, and those that neither end uses are left out. Errors: an
//! input that ends before the revision level. Spec: SPC-4, "Standard INQUIRY data".

use core::fmt;

use crate::{ParseError, ascii_text};

bits! {
    /// Byte 0: what kind of device it is, and whether it is there.
    pub struct Peripheral(u8) {
        fields {
            /// PERIPHERAL DEVICE TYPE.
            device_type / with_device_type: 0, 5;
            /// PERIPHERAL QUALIFIER: 0 it is there, 3 there cannot be any under this number.
            qualifier / with_qualifier: 5, 3;
        }
        flags {}
    }
}

impl Peripheral {
    /// A disk that is there.
    pub const DISK: Self = Self(0x00);
    /// No device can be under this number.
    pub const NONE: Self = Self(0x7f);
}

bits! {
    /// Byte 1.
    pub struct Removable(u8) {
        fields {}
        flags {
            /// RMB: the medium can be taken out.
            is_removable / with_removable: 7;
        }
    }
}

bits! {
    /// Byte 3.
    pub struct ResponseFormat(u8) {
        fields {
            /// RESPONSE DATA FORMAT: 2.
            format / with_format: 0, 4;
        }
        flags {
            /// HISUP: LUNs are as REPORT LUNS has them.
            hierarchical / with_hierarchical: 4;
            /// NORMACA: NACA may be set.
            normal_aca / with_normal_aca: 5;
        }
    }
}

bits! {
    /// Byte 5.
    pub struct Capabilities(u8) {
        fields {
            /// TPGS: 0 none, 1 implicit, 2 explicit asymmetric access, 3 both.
            target_port_groups / with_target_port_groups: 4, 2;
        }
        flags {
            /// PROTECT: protection information is there.
            protection / with_protection: 0;
            /// 3PC: third-party copies.
            third_party_copy / with_third_party_copy: 3;
        }
    }
}

bits! {
    /// Bytes 6 and 7.
    pub struct Queueing(u16) {
        fields {}
        flags {
            /// MULTIP: it has several ports.
            multiple_ports / with_multiple_ports: 12;
            /// CMDQUE: it takes several commands at once.
            command_queue / with_command_queue: 1;
        }
    }
}

layout! { big_endian:
    /// Standard INQUIRY data.
    pub struct StandardInquiry[96] {
        /// What it is.
        0 => peripheral: Peripheral,
        /// Whether its medium can be taken out.
        1 => removable: Removable,
        /// VERSION: 5 is SPC-3, 6 SPC-4, 7 SPC-5.
        2 => version: u8,
        /// How these data are to be read.
        3 => format: ResponseFormat,
        /// ADDITIONAL LENGTH: bytes behind this one.
        4 => additional_length: u8,
        /// What it can do.
        5 => capabilities: Capabilities,
        /// How it takes commands.
        6 => queueing: Queueing,
        /// T10 VENDOR IDENTIFICATION, ASCII padded with spaces.
        8 => vendor: [u8; 8],
        /// PRODUCT IDENTIFICATION, ASCII padded with spaces.
        16 => product: [u8; 16],
        /// PRODUCT REVISION LEVEL, ASCII padded with spaces.
        32 => revision: [u8; 4],
        /// VERSION DESCRIPTORS: the standards it claims, zero for none.
        58 => versions: [u16; 8],
    }
}

impl StandardInquiry {
    /// VERSION DESCRIPTOR of SAM-5.
    pub const SAM_5: u16 = 0x00a0;
    /// VERSION DESCRIPTOR of SPC-4.
    pub const SPC_4: u16 = 0x0460;
    /// VERSION DESCRIPTOR of SBC-3.
    pub const SBC_3: u16 = 0x04c0;
    /// VERSION DESCRIPTOR of iSCSI.
    pub const ISCSI: u16 = 0x0960;
    /// Bytes that every unit sends.
    pub const SIZE_MIN: usize = 36;

    /// Reads what is there: 36 bytes or more, as many of them as ADDITIONAL LENGTH says; the rest
    /// is zero.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::SIZE_MIN {
            return Err(ParseError::short(Self::SIZE_MIN, bytes.len()));
        }
        let said = (5 + usize::from(bytes[4])).max(Self::SIZE_MIN);
        let there = bytes.len().min(Self::SIZE).min(said);
        let mut all = [0; Self::SIZE];
        all[..there].copy_from_slice(&bytes[..there]);
        Self::parse(&all)
    }
}

impl fmt::Display for StandardInquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peripheral.qualifier() != 0 {
            return write!(f, "no device (peripheral {:#04x})", self.peripheral.0);
        }
        write!(
            f,
            "device type {:#04x} {} {} {} version {}",
            self.peripheral.device_type(),
            ascii_text(&self.vendor),
            ascii_text(&self.product),
            ascii_text(&self.revision),
            self.version
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii_field;

    #[test]
    fn a_disk_both_ways() {
        let disk = StandardInquiry {
            version: 6,
            format: ResponseFormat(2).with_hierarchical(true),
            additional_length: 91,
            queueing: Queueing(0).with_command_queue(true).with_multiple_ports(true),
            vendor: ascii_field("PLATEWAY"),
            product: ascii_field("volume"),
            revision: ascii_field("1.0"),
            versions: [0x00a0, 0x0960, 0x0460, 0x04c0, 0, 0, 0, 0],
            ..StandardInquiry::default()
        };
        let bytes = disk.emit();
        assert_eq!(bytes[..8], [0, 0, 6, 0x12, 91, 0, 0x10, 0x02]);
        assert_eq!(&bytes[8..36], b"PLATEWAYvolume          1.0 ");
        assert_eq!(bytes[58..66], [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]);
        assert_eq!(StandardInquiry::parse(&bytes), Ok(disk));
        assert_eq!(disk.to_string(), "device type 0x00 PLATEWAY volume 1.0 version 6");
    }

    #[test]
    fn data_of_36_bytes_are_enough_and_what_lies_behind_their_end_is_not_read() {
        let mut bytes = [0xff; 96];
        bytes[4] = 31;
        let short = StandardInquiry::read(&bytes[..36]).expect("36 bytes");
        assert_eq!(short.versions, [0; 8]);
        assert_eq!(StandardInquiry::read(&bytes), Ok(short));
        assert!(StandardInquiry::read(&bytes[..35]).is_err());
    }

    #[test]
    fn an_absent_device_says_so() {
        let none = StandardInquiry { peripheral: Peripheral::NONE, ..StandardInquiry::default() };
        assert_eq!((none.peripheral.qualifier(), none.peripheral.device_type()), (3, 0x1f));
        assert_eq!(none.to_string(), "no device (peripheral 0x7f)");
    }
}
