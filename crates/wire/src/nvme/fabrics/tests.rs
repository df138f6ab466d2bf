//! Vectors and round trips of Connect and the properties; layouts as in Linux include/linux/nvme.h.

use super::*;
use crate::Expected;
use crate::nvme::command::SglDescriptor;

#[test]
fn connect_command_vector() {
    let connect = Connect {
        record_format: 0,
        queue_id: 1,
        sq_size: 127,
        attributes: ConnectAttributes::default().with_disable_sq_flow_control(true),
        keep_alive_ms: 5000,
    };
    let command = Command::connect(&connect);
    assert_eq!(command.0[..5], [0x7f, 0x40, 0, 0, 1]);
    assert_eq!(command.0[40..52], [0, 0, 1, 0, 127, 0, 4, 0, 0x88, 0x13, 0, 0]);
    assert_eq!(command.sgl(), SglDescriptor::in_capsule(1024));
    assert_eq!(Connect::from_command(&command), connect);
    assert_eq!(command.to_string(), "Connect cid 0 qid 1 sqsize 127 cattr 0x4 kato 5000 ms");
}

#[test]
fn connect_data_both_ways() {
    let data = ConnectData {
        host_id: [7; 16],
        controller_id: ConnectData::CONTROLLER_ANY,
        subsystem: Nqn::new("nqn.2024-01.org.example:vol").unwrap(),
        host: Some(Nqn::new("nqn.2014-08.org.nvmexpress:uuid:1").unwrap()),
    };
    let bytes = data.emit();
    assert_eq!(bytes[..20], [&[7; 16][..], &[0xff, 0xff, 0, 0]].concat());
    assert_eq!(&bytes[256..260], b"nqn.");
    assert_eq!(&bytes[512..516], b"nqn.");
    assert_eq!(ConnectData::parse(&bytes), Ok(data.clone()));
    assert_eq!(
        data.to_string(),
        "nqn.2014-08.org.nvmexpress:uuid:1 > nqn.2024-01.org.example:vol cntlid 0xffff"
    );
    let nameless = ConnectData { host: None, ..data };
    assert_eq!(ConnectData::parse(&nameless.emit()), Ok(nameless.clone()));
    assert_eq!(nameless.to_string(), "(no HOSTNQN) > nqn.2024-01.org.example:vol cntlid 0xffff");
}

#[test]
fn connect_data_refusals_carry_the_offset_for_ipo() {
    let good = ConnectData {
        host_id: [0; 16],
        controller_id: 1,
        subsystem: Nqn::discovery(),
        host: Some(Nqn::new("h").unwrap()),
    }
    .emit();
    let mut bytes = good;
    bytes[256] = 0;
    let error = ConnectData::parse(&bytes).unwrap_err();
    assert_eq!((error.field, error.offset), ("SUBNQN", 256));
    let mut bytes = good;
    bytes[512..768].fill(b'a');
    let error = ConnectData::parse(&bytes).unwrap_err();
    assert_eq!((error.field, error.offset), ("HOSTNQN", 512));
    assert_eq!(ConnectData::parse(&good[..1023]), Err(ParseError::short(1024, 1023)));
    assert_eq!(ConnectInvalid::in_data_at(256).0, 0x1_0100);
    assert_eq!(ConnectInvalid::in_command_at(42).0, 42);
}

#[test]
fn names_are_checked() {
    assert_eq!(Nqn::new("").unwrap_err().expected, Expected::Words("a name"));
    assert!(Nqn::new(&"a".repeat(223)).is_ok());
    assert_eq!(Nqn::new(&"a".repeat(224)).unwrap_err().seen, 224);
    assert_eq!(Nqn::new("nqn\n").unwrap_err().offset, 3);
    let mut field = Nqn::new("abc").unwrap().emit();
    field[1] = 0xff;
    let error = Nqn::parse("SUBNQN", 256, &field).unwrap_err();
    assert_eq!((error.offset, error.seen), (257, 0xff));
    for bytes in [&[][..], b"abc", &[b'a'; 300]] {
        assert!(Nqn::parse("SUBNQN", 0, bytes).is_err());
    }
    assert!(Nqn::discovery().is_discovery());
}

#[test]
fn connect_result_bits() {
    let result =
        ConnectResult::default().with_controller_id(0x12).with_authentication_required(true);
    assert_eq!(result.0, 0x2_0012);
    assert_eq!(result.controller_id(), 0x12);
    assert!(!result.secure_channel_required());
}

#[test]
fn properties_both_ways() {
    let get = Command::property_get(Register::CAP.0, true);
    let property = Property::from_command(&get);
    assert_eq!((property.register, property.is_wide()), (Register::CAP, true));
    let set = Command::property_set(Register::CC.0, 0x0046_0001);
    assert_eq!(set.0[40..52], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0]);
    assert_eq!(set.to_string(), "Property Set cid 0 CC = 0x460001");
    let cc = Configuration(Property::from_command(&set).value as u32);
    assert!(cc.enable());
    assert_eq!((cc.iosqes(), cc.iocqes(), cc.shn(), cc.css()), (6, 4, 0, 0));
    assert!(Register::CAP.is_wide() && !Register::CC.is_wide());
}

#[test]
fn registers_lie_where_linux_reads_them() {
    let cap = Capabilities::default()
        .with_mqes(127)
        .with_cqr(true)
        .with_timeout(15)
        .with_css_nvm(true)
        .with_css_io_sets(true)
        .with_mpsmax(1)
        .with_crms(1);
    assert_eq!(cap.0, 127 | 1 << 16 | 15 << 24 | 1 << 37 | 1 << 43 | 1 << 52 | 1 << 59);
    assert_eq!((cap.mqes(), cap.timeout(), cap.css()), (127, 15, 0x41));
    let csts = ControllerStatus::default().with_ready(true).with_shst(2);
    assert_eq!(csts.0, 0b1001);
    // A value too wide for its field leaves its neighbours alone.
    assert_eq!(Capabilities::default().with_timeout(u64::MAX).0, 0xff << 24);
}
