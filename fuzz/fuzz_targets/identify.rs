//! Identify data, as an initiator reads them from a target that it cannot trust.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::contract;
use wire::nvme::identify::{
    ActiveNamespaces, DescriptorList, IdentifyController, IdentifyNamespace,
    IdentifyNamespaceIndependent, IdentifyNvmController,
};

fuzz_target!(|input: &[u8]| {
    // Most inputs are short; what is missing of a structure reads as zeros, so that all fields are
    // reached.
    let mut page = input.to_vec();
    page.resize(4096, 0);
    contract!(IdentifyController, &page);
    contract!(IdentifyNamespace, &page);
    contract!(IdentifyNamespaceIndependent, &page);
    contract!(IdentifyNvmController, &page);
    let mut before = 0;
    for nsid in ActiveNamespaces::parse(&page) {
        assert_ne!(nsid, 0, "zero ends the list");
        before += 1;
    }
    assert!(before <= 1024);
    for bytes in [input, &page] {
        match DescriptorList::parse(bytes) {
            Ok(names) if names.len() <= 200 => {
                let again = DescriptorList::parse(&DescriptorList::emit(&names))
                    .expect("reads what it wrote");
                assert_eq!(names, again);
            }
            Ok(_) => {}
            Err(error) => drop(error.to_string()),
        }
    }
});
