//! What stands behind a flag and is no plain number: times, counts, sizes, and fio's words for what a
//! job does. Errors say what was expected.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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

/// What `bench` does: in order or at random, and which share of it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Whether offsets are drawn at random.
    pub(crate) random: bool,
    /// Of a hundred requests, how many read: 0 to 100.
    pub(crate) read_percent: u8,
    /// Of a hundred requests, how many trim; the rest writes.
    pub(crate) trim_percent: u8,
}

impl Pattern {
    /// Whether anything is changed.
    pub(crate) fn writes(self) -> bool {
        self.read_percent < 100
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, share) =
            text.split_once('=').map_or((text, None), |(word, share)| (word, Some(share)));
        let (random, read_percent, trim_percent) = match word {
            "read" => (false, 100, 0),
            "write" => (false, 0, 0),
            "trim" => (false, 0, 100),
            "randread" => (true, 100, 0),
            "randwrite" => (true, 0, 0),
            "randtrim" => (true, 0, 100),
            "rw" | "readwrite" => (false, 50, 0),
            "randrw" => (true, 50, 0),
            _ => {
                return Err(format!(
                    "expected read, write, trim, randread, randwrite, randtrim, rw=75 or randrw=75, seen {text:?}"
                ));
            }
        };
        let Some(share) = share else { return Ok(Self { random, read_percent, trim_percent }) };
        if read_percent != 50 {
            return Err(format!("only rw and randrw take a percentage, seen {text:?}"));
        }
        let (reads, trims) =
            share.split_once(',').map_or((share, None), |(reads, trims)| (reads, Some(trims)));
        let percent = |what: &str, text: &str| match text.parse() {
            Ok(percent @ 0..=100) => Ok(percent),
            _ => Err(format!("expected {what} of 0 to 100 percent, seen {text:?}")),
        };
        let read_percent = percent("reads", reads)?;
        let trim_percent = trims.map_or(Ok(0), |trims| percent("trims", trims))?;
        match read_percent + trim_percent {
            0..=100 => Ok(Self { random, read_percent, trim_percent }),
            sum => Err(format!("expected at most 100 percent together, seen {sum}")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = if self.random { "rand" } else { "" };
        match (self.read_percent, self.trim_percent) {
            (100, _) => write!(f, "{random}read"),
            (_, 100) => write!(f, "{random}trim"),
            (0, 0) => write!(f, "{random}write"),
            (reads, 0) => write!(f, "{random}rw={reads}"),
            (reads, trims) => write!(f, "{random}rw={reads},{trims}"),
        }
    }
}

/// A time of at least so many milliseconds and at most a day: a number of seconds, or one with a
/// unit.
pub(super) fn time(text: &str, least_ms: u64) -> Result<Duration, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => -1.0,
    };
    let number: f64 = number.parse().unwrap_or(-1.0);
    let (least, time) = (least_ms as f64 / 1e3, number * seconds);
    match number >= 0.0 && seconds > 0.0 && (least..=86_400.0).contains(&time) {
        true => Ok(Duration::from_secs_f64(time)),
        false => Err(format!("expected a time such as 10s, 2m or 500ms, up to 24h, seen {text:?}")),
    }
}

/// A number of at least one, with `k` for thousands and `m` for millions.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (number, factor) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(number), _) => (number, 1_000),
        (_, Some(number)) => (number, 1_000_000),
        _ => (&*lower, 1),
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number
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
