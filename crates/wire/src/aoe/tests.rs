//! Vectors both ways, refusals, and round trips. The vectors are the frames that the Linux driver,
//! iPXE, vblade and aoetools put on the wire for these values, from the byte behind the EtherType
//! on.

use super::*;
use crate::ata::{IdentifyDevice, Status, TrimRange};
use crate::ethernet::MacAddress;

fn text(bytes: &[u8]) -> String {
    Message::parse(bytes).unwrap().to_string()
}

#[test]
fn discovery_of_linux() {
    // Shelf FFFF, slot FF, tag 0; 32 bytes with the Ethernet header.
    let bytes = [0x10, 0, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.header, Header::request(Address::ANY, Command::CONFIG, 0));
    assert_eq!(message.header.emit(), bytes[..10]);
    let Body::Config(argument, string) = message.body else { panic!("{message:?}") };
    assert_eq!((argument.command, argument.length, string), (ConfigCommand::READ, 0, &[][..]));
    assert_eq!(
        text(&bytes),
        "*.* Config tag 0x00000000: read buffers 0 firmware 0x0000 sectors 0 string 0"
    );
}

#[test]
fn answer_of_vblade_to_a_query() {
    let head = [0x18, 0, 0, 7, 0, 1, 0x18, 0xae, 0, 1];
    let argument = ConfigArgument {
        buffer_count: 16,
        firmware: 0x4019,
        sector_count: 2,
        version: 1,
        command: ConfigCommand::READ,
        length: 3,
    };
    assert_eq!(argument.emit(), [0, 16, 0x40, 0x19, 2, 0x10, 0, 3]);
    let bytes = [&head[..], &argument.emit(), b"a\"b", &[0; 22]].concat();
    let header = Header::request(Address::new(7, 0), Command::CONFIG, 0x18ae_0001);
    assert_eq!(header.response(Address::new(7, 0)).emit(), head);
    assert_eq!(
        text(&bytes),
        "7.0 Config tag 0x18ae0001 response: read buffers 16 firmware 0x4019 sectors 2 string 3 \"a\\\"b\""
    );
}

#[test]
fn read_of_linux_and_its_answer() {
    let request = AtaArgument::request(Opcode::READ_SECTORS_EXT, 0x0102_0304_0506, 2, false);
    assert_eq!(request.emit(), [0x40, 0, 2, 0x24, 6, 5, 4, 3, 2, 1, 0, 0]);
    assert_eq!(AtaArgument::parse(&request.emit()), Ok(request));
    assert_eq!(request.lba48(), 0x0102_0304_0506);
    let header = Header::request(Address::new(7, 3), Command::ATA, 0x0001_1234);
    let bytes = [&header.emit()[..], &request.emit()].concat();
    assert_eq!(bytes[..10], [0x10, 0, 0, 7, 3, 0, 0, 1, 0x12, 0x34]);
    assert_eq!(
        text(&bytes),
        "7.3 ATA tag 0x00011234: READ SECTORS EXT lba 1108152157446 count 2 E"
    );
    let answer = AtaArgument { count: 0, command_status: Status::GOOD.0, ..request };
    let header = header.response(header.address);
    let bytes = [&header.emit()[..], &answer.emit(), &[0x55; 1024]].concat();
    assert_eq!(bytes[..14], [0x18, 0, 0, 7, 3, 0, 0, 1, 0x12, 0x34, 0x40, 0, 0, 0x40]);
    assert_eq!(text(&bytes), "7.3 ATA tag 0x00011234 response: status 0x40 DRDY left 0 data 1024");
}

#[test]
fn write_of_ipxe_with_a_short_address() {
    let request = AtaArgument::request(Opcode::WRITE_SECTORS, 0x0abc_def0, 1, true);
    assert_eq!(request.emit(), [0x01, 0, 1, 0x30, 0xf0, 0xde, 0xbc, 0xea, 0, 0, 0, 0]);
    assert_eq!(request.lba28(), 0x0abc_def0);
    let header = Header::request(Address::new(0xfffe, 0xfe), Command::ATA, 0x18ae_0002);
    let bytes = [&header.emit()[..], &request.emit(), &[1; 512], &[0; 9]].concat();
    assert_eq!(
        text(&bytes),
        "65534.254 ATA tag 0x18ae0002: WRITE SECTORS lba 180150000 count 1 W data 512"
    );
}

#[test]
fn failures_of_the_device_and_of_the_protocol() {
    let header = Header::request(Address::new(1, 2), Command::ATA, 9).response(Address::new(1, 2));
    let failed = AtaArgument {
        error_feature: 0x10,
        count: 2,
        command_status: Status::FAILED.0,
        ..AtaArgument::default()
    };
    let bytes = [&header.emit()[..], &failed.emit(), &[0; 24]].concat();
    assert_eq!(
        text(&bytes),
        "1.2 ATA tag 0x00000009 response: status 0x41 DRDY ERR error 0x10 IDNF left 2"
    );
    let refused = header.refused(ErrorCode::RESERVED);
    assert_eq!(refused.emit(), [0x1c, 6, 0, 1, 2, 0, 0, 0, 0, 9]);
    assert_eq!(
        text(&refused.emit()),
        "1.2 ATA tag 0x00000009 response refused: target is reserved"
    );
}

#[test]
fn mask_and_reservation_vectors() {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    let header = Header::request(Address::new(1, 2), Command::MAC_MASK, 1);
    let edit = MaskArgument { command: MaskCommand::EDIT, error: MaskError::NONE, count: 2 };
    assert_eq!(edit.emit(), [0, 1, 0, 2]);
    let add = Directive { command: DirectiveCommand::ADD, mac };
    let delete = Directive { command: DirectiveCommand::DELETE, mac: MacAddress([2; 6]) };
    assert_eq!(add.emit(), [0, 1, 2, 0, 0, 0, 0, 1]);
    let bytes = [&header.emit()[..], &edit.emit(), &add.emit(), &delete.emit()].concat();
    assert_eq!(
        text(&bytes),
        "1.2 MAC mask tag 0x00000001: edit 2 add 02:00:00:00:00:01 delete 02:02:02:02:02:02"
    );
    let stopped = MaskArgument { error: MaskError::FULL, count: 1, ..edit };
    assert_eq!(stopped.to_string(), "edit 1 stopped: list full");
    let header = Header { command: Command::RESERVE, ..header };
    let set = ReserveArgument { command: ReserveCommand::SET, count: 1 };
    let bytes = [&header.emit()[..], &set.emit(), &mac.0, &[0; 20]].concat();
    assert_eq!(text(&bytes), "1.2 Reserve tag 0x00000001: set 1 02:00:00:00:00:01");
}

#[test]
fn codes_that_nobody_knows_survive() {
    let bytes = [0x23, 9, 0, 0, 0, 0xf0, 0, 0, 0, 0, 1, 2, 3];
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.body, Body::Unknown(&[1, 2, 3]));
    assert_eq!(message.header.emit(), bytes[..10]);
    assert_eq!(message.to_string(), "0.0 0xf0 tag 0x00000000 version 2 reserved flags 3");
    let config = ConfigArgument::parse(&[0, 0, 0, 0, 0, 0x2f, 0, 0]).unwrap();
    assert_eq!((config.version, config.command), (2, ConfigCommand(15)));
}

#[test]
fn what_ends_too_early_is_refused() {
    let seen = |bytes: &[u8]| Message::parse(bytes).unwrap_err();
    assert_eq!(seen(&[0x10; 9]), ParseError::short(10, 9));
    let with = |command: u8, length: usize| {
        let mut bytes = vec![0; length];
        (bytes[0], bytes[5]) = (0x10, command);
        Message::parse(&bytes).is_ok()
    };
    for (command, size) in [(0, 22), (1, 18), (2, 14), (3, 12)] {
        assert!(with(command, size) && !with(command, size - 1), "command {command}");
    }
}

#[test]
fn sectors_follow_the_mtu() {
    for (mtu, sectors) in
        [(0, 0), (547, 0), (548, 1), (1500, 2), (4200, 8), (9000, 17), (65_535, 127)]
    {
        assert_eq!(sectors_for_mtu(mtu), sectors, "MTU {mtu}");
    }
}

#[test]
fn addresses_both_ways() {
    assert_eq!("7.0".parse(), Ok(Address::new(7, 0)));
    assert_eq!("65534.254".parse(), Ok(Address::new(65_534, 254)));
    for (text, offset) in
        [("7", 0), ("65535.0", 0), ("7.255", 2), ("7.", 2), ("x.1", 0), ("-1.1", 0), ("+1.1", 0)]
    {
        assert_eq!(text.parse::<Address>().unwrap_err().offset, offset, "{text}");
    }
    let own = Address::new(7, 3);
    for (asked, matches) in [
        (own, true),
        (Address::ANY, true),
        (Address::new(7, 0xff), true),
        (Address::new(0xffff, 3), true),
        (Address::new(7, 4), false),
        (Address::new(0xffff, 4), false),
        (Address::new(8, 0xff), false),
    ] {
        assert_eq!(asked.matches(own), matches, "{asked}");
    }
}

#[test]
fn ranges_of_trim_both_ways() {
    let range = TrimRange { lba: 0x0102_0304_0506, count: 0x0708 };
    assert_eq!(range.emit(), [6, 5, 4, 3, 2, 1, 8, 7]);
    assert_eq!(TrimRange::parse(range.emit()), range);
}

/// 64 bits that look like chance, the same on every run.
fn chance() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn what_is_read_is_written_again() {
    let mut chance = chance();
    for _ in 0..512 {
        let bytes = [chance(), chance()].map(u64::to_le_bytes).concat();
        assert_eq!(Header::parse(&bytes).unwrap().emit(), bytes[..10]);
        assert_eq!(AtaArgument::parse(&bytes).unwrap().emit()[..10], bytes[..10]);
        assert_eq!(ConfigArgument::parse(&bytes).unwrap().emit(), bytes[..8]);
        assert_eq!(MaskArgument::parse(&bytes).unwrap().emit()[1..], bytes[1..4]);
        assert_eq!(Directive::parse(&bytes).unwrap().emit()[1..], bytes[1..8]);
        assert_eq!(ReserveArgument::parse(&bytes).unwrap().emit(), bytes[..2]);
    }
}

#[test]
fn an_address_survives_a_request() {
    let mut chance = chance();
    for _ in 0..512 {
        let (lba, write) = (chance() >> 16, chance() & 1 == 1);
        let long = AtaArgument::request(Opcode::WRITE_SECTORS_EXT, lba, 1, write);
        assert_eq!(AtaArgument::parse(&long.emit()).unwrap().lba48(), lba);
        let short = AtaArgument::request(Opcode::READ_SECTORS, lba, 1, write);
        assert_eq!(AtaArgument::parse(&short.emit()).unwrap().lba28(), lba & 0x0fff_ffff);
    }
}

#[test]
fn a_device_survives_identify() {
    let mut chance = chance();
    for _ in 0..512 {
        let (bits, sectors) = (chance(), chance() >> 16);
        let lba48 = bits & 1 == 1;
        let device = IdentifyDevice {
            serial: core::array::from_fn(|_| chance() as u8),
            firmware: *b"12345678",
            model: core::array::from_fn(|_| chance() as u8),
            sectors: if lba48 { sectors } else { sectors & 0x0fff_ffff },
            lba48,
            flush: bits & 2 == 2,
            flush_ext: bits & 4 == 4,
            write_cache: bits & 8 == 8,
            smart: bits & 16 == 16,
            trim: bits & 32 == 32,
            physical_exponent: (bits >> 60) as u8,
        };
        assert_eq!(IdentifyDevice::parse(&device.emit()), Ok(device));
    }
}
