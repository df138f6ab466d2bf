//! How long a shard looks for more before it sleeps: what a source of work (a listener, a link, an
//! import, a disk) is granted.
//!
//! Written `auto`, `never`, or a time such as `50us`. Errors: a text that is none of these.

use std::fmt;
use std::str::FromStr;

/// The longest time that may be asked for, in microseconds: beyond it a processor is simply not
/// shared.
pub const POLL_US_MAX: u32 = 10_000;

/// How long a shard looks for more from a source before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// As long as it has paid lately, and never where that takes the processor from another.
    #[default]
    Auto,
    /// It sleeps at once.
    Never,
    /// So many microseconds after each activity, whoever else wants the processor.
    Fixed(u32),
}

impl Poll {
    /// For so many microseconds; none is never.
    pub fn microseconds(count: u32) -> Poll {
        if count == 0 { Poll::Never } else { Poll::Fixed(count) }
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Poll::Auto => f.write_str("auto"),
            Poll::Never => f.write_str("never"),
            Poll::Fixed(count) => write!(f, "{count}us"),
        }
    }
}

/// A text that is no [`Poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollError {
    seen: String,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PollError { seen } = self;
        write!(
            f,
            "expected \"auto\", \"never\" or microseconds from \"1us\" to \"{POLL_US_MAX}us\", seen {seen:?}"
        )
    }
}

impl std::error::Error for PollError {}

impl FromStr for Poll {
    type Err = PollError;

    fn from_str(text: &str) -> Result<Poll, PollError> {
        let wrong = || PollError { seen: text.to_owned() };
        match text {
            "auto" => Ok(Poll::Auto),
            "never" => Ok(Poll::Never),
            _ => {
                let digits = text.strip_suffix("us").ok_or_else(wrong)?;
                let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                let count: u32 = digits.parse().map_err(|_| wrong())?;
                let is_one = is_plain && (1..=POLL_US_MAX).contains(&count);
                if is_one { Ok(Poll::Fixed(count)) } else { Err(wrong()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for poll in [Poll::Auto, Poll::Never, Poll::Fixed(1), Poll::Fixed(POLL_US_MAX)] {
            assert_eq!(poll.to_string().parse(), Ok(poll));
        }
        assert_eq!([0, 50].map(Poll::microseconds), [Poll::Never, Poll::Fixed(50)]);
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_was_expected() {
        for wrong in ["", "50", "us", "0us", "+5us", "10001us", "5ms", "Auto", "99999999999us"] {
            let error = wrong.parse::<Poll>().unwrap_err().to_string();
            assert!(
                error.contains("\"never\"") && error.contains(&format!("{wrong:?}")),
                "{error}"
            );
        }
    }
}
