//! What travels with every SCSI command: its descriptor block, the LUN, and sense data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::scsi::{Cdb, Lun, Sense};

fuzz_target!(|input: &[u8]| {
    if let Some(cdb) = contract!(Cdb, input) {
        one_line(&cdb);
        one_line(&cdb.opcode());
        assert!([6, 10, 12, 16].contains(&cdb.length()));
        // No more than its field can say.
        assert!(cdb.length() == 16 || cdb.lba() <= u64::from(u32::MAX));
        assert!(cdb.length() != 6 || (1..=256).contains(&cdb.blocks()));
        assert!(cdb.length() != 10 || cdb.blocks() <= 0xffff);
        let _ = (cdb.action(), cdb.requested(), cdb.byte_check(), cdb.ndob());
        let _ = (cdb.allocation_length(), cdb.parameter_list_length(), cdb.naca());
    }
    let behind = input.get(Cdb::SIZE..).unwrap_or(input);
    if let Some(bytes) = behind.first_chunk() {
        let lun = Lun(*bytes);
        one_line(&lun);
        if let Some(number) = lun.number() {
            assert_eq!(Lun::of(number).number(), Some(number));
        }
    }
    match Sense::parse(behind) {
        Ok(sense) => {
            one_line(&sense);
            // The descriptor format has room for all of it, the fixed one for most.
            assert_eq!(Sense::parse(&sense.emit(true)), Ok(sense));
            let fixed = Sense::parse(&sense.emit(false)).expect("reads what it wrote");
            assert_eq!((fixed.key, fixed.code), (sense.key, sense.code));
        }
        Err(error) => drop(format!("{error}")),
    }
});
