//! What stands behind a flag and is no plain number: times, counts and sizes; fio's words for what a job
//! does are the lab's. Errors say what was expected.

use std::time::Duration;

use lab::words;
pub(super) use lab::words::Pattern;

use crate::config::size::{parse_fio_size, parse_size};

/// A size, or all that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllOr(pub(crate) Option<u64>);

pub(super) fn size_or_all(text: &str) -> Result<AllOr, String> {
    match text {
        "all" => Ok(AllOr(None)),
        size => parse_size(size).map(|bytes| AllOr(Some(bytes))).map_err(|error| error.to_string()),
    }
}

/// A time of at least so many milliseconds and at most a day: a number of seconds, or one with a
/// unit.
pub(super) fn time(text: &str, least_ms: u64) -> Result<Duration, String> {
    let range = Duration::from_millis(least_ms)..=Duration::from_secs(86_400);
    words::time(text).filter(|time| range.contains(time)).ok_or_else(|| {
        let least = if least_ms > 1 { format!("from {least_ms}ms ") } else { String::new() };
        format!("expected a time such as 10s, 2m or 500ms, {least}up to 24h, seen {text:?}")
    })
}

/// A number of at least one, with `k` for thousands and `m` for millions.
pub(super) fn count(text: &str) -> Result<u64, String> {
    words::count(text)
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("expected a number such as 500 or 10k, seen {text:?}"))
}

/// The size of a request: a multiple of 512 bytes, at most 1 MiB.
pub(super) fn block_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_fio_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(512) || bytes > 1 << 20 {
        return Err(format!("expected a multiple of 512 bytes up to 1m, seen {text:?}"));
    }
    Ok(bytes)
}
