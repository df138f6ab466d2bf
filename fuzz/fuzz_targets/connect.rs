//! Fabrics commands: Connect with its data, property accesses, and names of hosts and subsystems.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::nvme::fabrics::{Connect, ConnectData, Property};
use wire::nvme::{Command, Nqn};

fuzz_target!(|input: &[u8]| {
    if let Ok(command) = Command::parse(input) {
        let connect = Connect::from_command(&command);
        one_line(&connect);
        assert_eq!(Connect::from_command(&Command::connect(&connect)), connect);
        let property = Property::from_command(&command);
        one_line(&property);
        let _ = property.is_wide();
    }
    let data = input.get(64..).unwrap_or(input);
    if let Some(data) = contract!(ConnectData, data) {
        one_line(&data);
        for name in data.host.iter().chain([&data.subsystem]) {
            let _ = name.is_discovery();
            assert_eq!(Nqn::new(name.as_str()).as_ref(), Ok(name));
        }
    }
});
