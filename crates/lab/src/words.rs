//! The words of a load, as the command line and plans have them: fio's for what a job does, times and
//! counts.
//!
//! Units: seconds, requests. Errors: what was expected and seen; of a time or count there is none, and
//! who asks knows its bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a job does: in order or at random, and which share of it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Whether offsets are drawn at random.
    pub random: bool,
    /// Of a hundred requests, how many read: 0 to 100.
    pub read_percent: u8,
    /// Of a hundred requests, how many trim; the rest writes.
    pub trim_percent: u8,
}

impl Pattern {
    /// Whether some of its requests read.
    pub fn reads(self) -> bool {
        self.read_percent > 0
    }

    /// Whether some of its requests trim.
    pub fn trims(self) -> bool {
        self.trim_percent > 0
    }

    /// Whether some of its requests change what is there.
    pub fn writes(self) -> bool {
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

/// A time: a number of seconds, or one with a unit.
pub fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// A number, with `k` for thousands and `m` for millions.
pub fn count(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (number, factor) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(number), _) => (number, 1_000),
        (_, Some(number)) => (number, 1_000_000),
        _ => (&*lower, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_written_as_they_are_read() {
        for text in ["read", "randwrite", "trim", "randtrim", "rw=75", "randrw=70,10"] {
            assert_eq!(text.parse::<Pattern>().expect(text).to_string(), text);
        }
        assert_eq!("randrw".parse::<Pattern>().expect("a mix").read_percent, 50);
        assert_eq!("readwrite=75".parse::<Pattern>(), "rw=75".parse());
        for wrong in ["", "rand", "randreadwrite", "randread=5", "rw=101", "rw=60,50", "rw=1,2,3"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }
}
