//! What the fuzz targets share.
//!
//! A parser's contract, which every target checks for every structure: it never panics; what it
//! accepts can be shown; and what it understood survives being written and read again (reserved
//! bytes may differ, meaning may not).
//!
//! A machine's contract, which the targets named `*_play` check while an input chooses what happens
//! next ([`Choices`]): it never panics; every request and every command is answered once; no buffer
//! is lost; each byte is the one that was asked for. What such a target needs around the machine is
//! in `testkit` and here: [`host`] is an NVMe/TCP host that knows what it may hear, [`target`]
//! serving connections with volumes that answer later, [`peer`] what lies between those and a
//! machine that asks. [`iscsi_host`] and [`iscsi_target`] are the same for iSCSI. [`ether`] is an AoE
//! target with its volumes, and batches of frames as bytes.
#![forbid(unsafe_code)]

pub mod choices;
pub mod content;
pub mod ether;
pub mod host;
pub mod iscsi_host;
pub mod iscsi_target;
pub mod peer;
pub mod target;

pub use choices::Choices;

/// Checks the contract of a structure with `parse`, `emit` and `Debug` on these bytes; evaluates to
/// the parsed value, if any.
#[macro_export]
macro_rules! contract {
    ($type:ty, $bytes:expr) => {{
        let parsed = <$type>::parse($bytes);
        match &parsed {
            Ok(value) => {
                let _ = format!("{value:?}");
                let again = <$type>::parse(&value.emit()).expect("reads what it wrote");
                assert_eq!(*value, again, "written and read again");
            }
            // An error is for people: it can be shown.
            Err(error) => drop(format!("{error} {error:?}")),
        }
        parsed.ok()
    }};
}

/// Checks that a value can be shown on one line, whatever the bytes were.
pub fn one_line(value: &impl std::fmt::Display) {
    let text = value.to_string();
    assert!(!text.contains(['\n', '\r']), "more than one line: {text:?}");
}
