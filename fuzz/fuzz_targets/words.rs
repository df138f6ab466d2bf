//! The words of configurations and commands: disk URIs, sizes, addresses, NQNs, UUIDs.
//!
//! Checked for each: what parses is printed on one line and parses back to the same, and is printed the same then; a mistake names a place
//! within the text and can be shown.
#![no_main]

// The program has no library: its configuration is compiled here as it stands, and not all of it is used.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/plateway/src/config/mod.rs"]
mod config;

use std::fmt::{Debug, Display};
use std::str::FromStr;

use config::address::HostPort;
use config::model::Uuid;
use config::nqn::Nqn;
use config::size::{Size, parse_fio_size, parse_size};
use config::uri::{DiskUri, UriError, parse_target};
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::one_line;

fuzz_target!(|text: &str| {
    match round_trip::<DiskUri>(text) {
        Ok(uri) => {
            assert!(uri.same_backing(&uri) || !leads_to_blocks(&uri), "{uri} is not itself");
        }
        Err(error) => show(text, &error),
    }
    match parse_target(text) {
        Ok(target) => {
            let again = target.to_string();
            assert_eq!(parse_target(&again).as_ref(), Ok(&target), "{again}");
        }
        Err(error) => show(text, &error),
    }
    if let Err(error) = round_trip::<HostPort>(text) {
        assert!(text.get(error.offset..).is_some(), "{error} at {}", error.offset);
    }
    if let Err(error) = round_trip::<Nqn>(text) {
        assert!(text.get(error.offset..).is_some(), "{error} at {}", error.offset);
    }
    let _ = round_trip::<Uuid>(text);
    match (parse_size(text), parse_fio_size(text)) {
        (Ok(bytes), fio) => {
            assert_eq!(parse_size(&Size(bytes).to_string()), Ok(bytes));
            assert_eq!(fio, Ok(bytes), "fio's dialect has all sizes of the configuration");
        }
        (Err(error), fio) => {
            one_line(&error);
            if let Ok(bytes) = fio {
                assert_eq!(parse_fio_size(&Size(bytes).to_string()), Ok(bytes));
            }
        }
    }
});

/// Parses, prints, and parses and prints again.
fn round_trip<T: FromStr<Err: Display> + Display + PartialEq + Debug>(
    text: &str,
) -> Result<T, T::Err> {
    let value: T = text.parse()?;
    one_line(&value);
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) => {
            assert_eq!(value, again, "{text:?} is printed as {printed:?}");
            assert_eq!(printed, again.to_string());
        }
        Err(error) => panic!("{text:?} is printed as {printed:?}, and that is refused: {error}"),
    }
    Ok(value)
}

/// Whether blocks lie there that another disk could lie on as well.
fn leads_to_blocks(uri: &DiskUri) -> bool {
    !matches!(uri.innermost(), DiskUri::Ram { .. } | DiskUri::Null { .. })
}

fn show(text: &str, error: &UriError) {
    one_line(error);
    assert!(text.get(error.at.clone()).is_some(), "{:?} of {text:?}", error.at);
}
