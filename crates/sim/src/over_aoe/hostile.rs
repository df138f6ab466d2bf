//! A station that means no good: noise, damaged frames, floods, writes to wildcards and from
//! strangers, forged answers and announcements. Nothing of it may reach a block, change a mask,
//! crash a shard or make a client take what is not its disk's.
//!
//! It may forge a client's address, but not for writes and changes: on an Ethernet the address is
//! all that a target goes by.

use aoe::limits::FRAMES_MAX;
use block::Random;
use testkit::aoe::{frame, request};
use wire::aoe::{
    Address, AtaArgument, Command, ConfigArgument, ConfigCommand, ErrorCode, Flags, Header,
    MaskArgument, MaskCommand, MaskError, ReserveArgument, ReserveCommand, VERSION,
};
use wire::ata::Opcode;
use wire::ethernet::MacAddress;

use super::lan::ADDRESS;
use crate::client::SimWorld;

/// What it draws when it asks more than can be answered: beyond all else.
const FLOOD: u64 = 8;

/// The station.
#[derive(Debug)]
pub(crate) struct Hostile {
    random: Random,
    station: usize,
    target: MacAddress,
    vlan: Option<u16>,
    /// Whose addresses it forges.
    clients: Vec<MacAddress>,
    /// Whether it asks more at once than rings and outboxes hold.
    pub(crate) floods: bool,
}

impl Hostile {
    pub(crate) fn new(
        random: Random,
        station: usize,
        target: MacAddress,
        vlan: Option<u16>,
        clients: Vec<MacAddress>,
    ) -> Hostile {
        Hostile { random, station, target, vlan, clients, floods: false }
    }

    fn stranger(&mut self) -> MacAddress {
        let [a, b, c, d, ..] = self.random.next_u64().to_le_bytes();
        MacAddress([6, 6, a, b, c, d])
    }

    fn client(&mut self) -> MacAddress {
        self.clients[self.random.below(self.clients.len() as u64) as usize]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.random.below(most + 1);
        (0..length).map(|_| self.random.next_u64() as u8).collect()
    }

    /// Does its worst, once. Returns how many frames it sent.
    pub(crate) fn send(&mut self, world: &mut SimWorld) -> u64 {
        let is_flood = self.floods && self.random.chance(1, 2);
        let kind = if is_flood { FLOOD } else { self.random.below(FLOOD) };
        let count = match kind {
            FLOOD => FRAMES_MAX as u64 * 3 / 2,
            5.. => 1 + self.random.below(100),
            _ => 1 + self.random.below(8),
        };
        for _ in 0..count {
            let bytes = self.draw(kind);
            world.send_frame(self.station, &bytes);
        }
        // What came for it is not read.
        while world.receive_frame(self.station).is_some() {}
        count
    }

    fn draw(&mut self, kind: u64) -> Vec<u8> {
        let (target, vlan) = (self.target, self.vlan);
        let all = MacAddress::BROADCAST;
        let to = if self.random.chance(1, 3) { all } else { target };
        let tag = self.random.next_u64() as u32;
        match kind {
            0 => {
                let (from, noise) = (self.stranger(), self.bytes(1500));
                frame(to, from, vlan, &noise)
            }
            // Reads and queries of a client, with bytes changed or cut off: a damaged one may not
            // become a write.
            1 => {
                let from = self.client();
                let mut message = read(ADDRESS, tag);
                if self.random.chance(1, 2) {
                    message.truncate(self.random.below(message.len() as u64) as usize);
                    let mut bytes = frame(to, from, vlan, &[]);
                    bytes.truncate(if vlan.is_some() { 18 } else { 14 });
                    bytes.extend(message);
                    return bytes;
                }
                // Not the command byte, nor the code of the ATA command.
                let at = [0, 1, 2, 3, 4, 6, 7, 11, 12, 14, 15, 16][self.random.below(12) as usize];
                message[at] = self.random.next_u64() as u8;
                frame(to, from, vlan, &message)
            }
            // A write to any disk, or to ours from who is no host.
            2 => {
                let address = match self.random.below(4) {
                    0 => ADDRESS,
                    1 => Address::ANY,
                    2 => Address::new(ADDRESS.shelf, Address::ANY_SLOT),
                    _ => Address::new(Address::ANY_SHELF, ADDRESS.slot),
                };
                let is_forged = address.is_wildcard() && self.random.chance(1, 2);
                let from = if is_forged { self.client() } else { self.stranger() };
                let lba = self.random.below(64);
                let argument = AtaArgument::request(Opcode::WRITE_SECTORS_EXT, lba, 2, true);
                let body = [&argument.emit()[..], &[0x66; 1024]].concat();
                frame(to, from, vlan, &request(address, Command::ATA.0, tag, &body))
            }
            // Changes that a stranger may not make, and that nobody may make of all disks.
            3 => {
                let is_wild = self.random.chance(1, 2);
                let address = if is_wild { Address::ANY } else { ADDRESS };
                let from = self.stranger();
                let (command, body) = match self.random.below(3) {
                    0 => {
                        let argument = ConfigArgument::request(ConfigCommand::FORCE, 5);
                        (Command::CONFIG, [&argument.emit()[..], b"owned"].concat())
                    }
                    1 => {
                        let (command, error, count) = (MaskCommand::EDIT, MaskError::NONE, 1);
                        let argument = MaskArgument { command, error, count };
                        (Command::MAC_MASK, [&argument.emit()[..], &[0, 1], &from.0].concat())
                    }
                    _ => {
                        let argument = ReserveArgument { command: ReserveCommand::FORCE, count: 1 };
                        (Command::RESERVE, [&argument.emit()[..], &from.0].concat())
                    }
                };
                frame(to, from, vlan, &request(address, command.0, tag, &body))
            }
            // Somebody says that it has our address, or refuses in the target's name, or answers
            // what nobody asked.
            4 => {
                let header = Header::request(ADDRESS, Command::CONFIG, tag).response(ADDRESS);
                let is_announced = self.random.chance(1, 2);
                let header = Header { tag: if is_announced { 0 } else { tag }, ..header };
                let from = self.stranger();
                let to = if self.random.chance(1, 2) { all } else { self.client() };
                let argument = ConfigArgument {
                    buffer_count: self.random.below(4) as u16,
                    firmware: 1,
                    sector_count: self.random.next_u64() as u8,
                    version: VERSION,
                    command: ConfigCommand::READ,
                    length: 0,
                };
                frame(to, from, vlan, &[&header.emit()[..], &argument.emit()].concat())
            }
            // Floods: queries of everybody's, reads of strangers, reads and answers with a forged
            // address.
            5 => {
                let body = ConfigArgument::request(ConfigCommand::READ, 0).emit();
                let from = self.stranger();
                frame(all, from, vlan, &request(Address::ANY, Command::CONFIG.0, tag, &body))
            }
            6 => {
                let is_forged = self.random.chance(1, 2);
                let from = if is_forged { self.client() } else { self.stranger() };
                frame(target, from, vlan, &read(ADDRESS, tag))
            }
            // Queries of our disk in a client's name, which are answered at once, if the config string
            // is the one that is asked for.
            FLOOD => {
                let is_other = self.random.chance(1, 8);
                let (command, string) = match is_other {
                    true => (ConfigCommand::TEST, &b"another"[..]),
                    false => (ConfigCommand::READ, &b""[..]),
                };
                let argument = ConfigArgument::request(command, string.len() as u16);
                let body = [&argument.emit()[..], string].concat();
                frame(target, self.client(), vlan, &request(ADDRESS, Command::CONFIG.0, tag, &body))
            }
            _ => {
                let header = Header {
                    flags: Flags(0).with_response(true),
                    error: ErrorCode(self.random.below(8) as u8),
                    ..Header::request(ADDRESS, Command(self.random.below(5) as u8), tag)
                };
                let (to, from, body) = (self.client(), self.stranger(), self.bytes(1000));
                frame(to, from, vlan, &[&header.emit()[..], &body].concat())
            }
        }
    }
}

fn read(address: Address, tag: u32) -> Vec<u8> {
    let argument = AtaArgument::request(Opcode::READ_SECTORS_EXT, u64::from(tag % 64), 2, false);
    request(address, Command::ATA.0, tag, &argument.emit())
}
