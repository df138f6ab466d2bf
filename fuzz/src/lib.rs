//! What the fuzz targets share.
//!
//! A parser's contract, which every target checks for every structure: it never panics; what it accepts can be
//! shown; and what it understood survives being written and read again (reserved bytes may differ, meaning may not).
#![forbid(unsafe_code)]

/// Checks the contract of a structure with `parse`, `emit` and `Debug` on these bytes; evaluates to the parsed value, if any.
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
