//! What is exported: volumes at shelf.slot, on which links, and to whom. Plain values that the
//! configuration makes; each shard holds a copy.
//!
//! Units: sectors of 512 bytes; the physical block in bytes. What initiators see of a volume's
//! identity is derived from its UUID, so that it survives restarts and is the same on every link.

use block::{ByteCount, VolumeId, planted};
use contract::LinkId;
use wire::aoe::{Address, SECTOR};
use wire::ascii_field;
use wire::ata::IdentifyDevice;
use wire::ata::identify::SECTORS_48_MAX;
use wire::ethernet::MacAddress;

use crate::limits::BUFFERS_DEFAULT;

/// Model of every export, in ASCII.
pub const MODEL: &str = "Plateway";
/// The firmware version in answers to queries: anything but what is known of others would do.
pub const FIRMWARE: u16 = 0x5057;

/// An export, named by whoever configured it; every shard knows it by the same number. Small
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(pub u32);

/// Which stations may use an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every station.
    Any,
    /// These and no other; an empty list admits nobody.
    List(Vec<MacAddress>),
}

/// A volume under a shelf.slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Where it is: no wildcard.
    pub address: Address,
    /// The links on which it answers.
    pub links: Vec<LinkId>,
    /// The volume that holds the sectors.
    pub volume: VolumeId,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Size in sectors.
    pub sectors: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a completed write may be lost with the power until it is flushed. Then writes are
    /// flushed before they are answered.
    pub cache_volatile: bool,
    /// Whether the volume gives space back.
    pub discards: bool,
    /// Bytes that are written atomically.
    pub physical_block: u32,
    /// Who may use it.
    pub hosts: Hosts,
    /// Commands that it holds at once; what exceeds them is dropped.
    pub buffers: u16,
}

impl Export {
    /// An export of `size` bytes of a volume, to everybody, with usual settings. What is no whole
    /// sector at the end is left out.
    pub fn new(address: Address, links: &[LinkId], volume: VolumeId, size: ByteCount) -> Export {
        Export {
            address,
            links: links.to_vec(),
            volume,
            uuid: [0; 16],
            sectors: (size.0 / SECTOR as u64).min(SECTORS_48_MAX),
            read_only: false,
            cache_volatile: false,
            discards: false,
            physical_block: SECTOR as u32,
            hosts: Hosts::Any,
            buffers: BUFFERS_DEFAULT,
        }
    }

    /// What IDENTIFY DEVICE says. The serial number is made of the first ten bytes of the UUID.
    pub(crate) fn identify(&self) -> IdentifyDevice {
        let mut serial = [b'0'; 20];
        for (at, byte) in self.uuid[..10].iter().enumerate() {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            (serial[2 * at], serial[2 * at + 1]) = (digit(byte >> 4), digit(byte & 0xf));
        }
        if planted("serial-changes-with-size") {
            serial[19] ^= self.sectors.count_ones() as u8 & 7;
        }
        let physical = self.physical_block.max(SECTOR as u32) / SECTOR as u32;
        IdentifyDevice {
            serial,
            firmware: ascii_field(env!("CARGO_PKG_VERSION")),
            model: ascii_field(MODEL),
            sectors: self.sectors,
            lba48: true,
            flush: true,
            flush_ext: true,
            // What is answered is durable.
            write_cache: false,
            smart: true,
            trim: self.discards,
            physical_exponent: (physical.ilog2() as u8).min(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_number_is_made_of_the_uuid() {
        let mut export = Export::new(Address::new(7, 1), &[], VolumeId(0), ByteCount(51_200));
        assert_eq!(export.identify().physical_exponent, 0);
        export.uuid = [0xab; 16];
        export.uuid[0] = 0x01;
        (export.discards, export.physical_block) = (true, 4096);
        let device = export.identify();
        assert_eq!(&device.serial, b"01ababababababababab");
        assert_eq!((device.physical_exponent, device.sectors, device.trim), (3, 100, true));
    }
}
