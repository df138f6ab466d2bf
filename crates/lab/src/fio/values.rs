//! What stands behind a key: sizes, counts, times, and fio's words, each understood as fio does.
//!
//! Units: `k`, `m`, `g`, `t`, `p`, with or without `b` and in either case, are powers of 1024, also of
//! counts; `kib`, `mib` and so on are powers of 1000, which is fio's `kb_base=1024`. Times are in seconds
//! unless they have a unit. Errors: what was expected; who calls adds the key and what was seen.

use std::time::Duration;

use crate::words::Pattern;
use crate::workload::{SIZES_MAX, THETAS};

/// A value that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    Number(u64),
    Text(String),
    Time(Duration),
    Amount(Amount),
    Rw(Pattern),
    /// For reads, writes and trims.
    Each([Option<u64>; 3]),
    /// Sizes with their percentages, for reads, writes and trims.
    Splits([Vec<(u32, u8)>; 3]),
    /// A theta, or none of it where every block is as likely.
    Distribution(Option<f64>),
    /// Whether an engine waits for each request.
    Engine {
        waits: bool,
    },
}

/// So many bytes, or so many of a hundred of the disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    Percent(u8),
}

/// What a value was expected to be.
pub(super) type Expected = String;

/// The longest time that is taken.
pub(super) const TIME_MAX: Duration = Duration::from_secs(86_400);
/// The largest request.
const REQUEST_MAX: u64 = 1 << 20;

pub(super) fn bytes(text: &str) -> Result<u64, Expected> {
    let expected = || "a number such as 4096 or 4k".to_owned();
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| expected());
    }
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = lower.split_at(digits);
    let (letter, base) = match unit.as_bytes() {
        [] | [b'b'] => (b' ', 1_u64),
        [letter] | [letter, b'b'] => (*letter, 1024),
        [letter, b'i', b'b'] => (*letter, 1000),
        [b'k' | b'm' | b'g' | b't' | b'p', b'i'] => {
            // fio's documentation says the one, and fio does the other.
            let plain = &unit[..1];
            return Err(format!(
                "{number}{plain} (a power of 1024) or {number}{unit}b (of 1000), as {unit} is neither to fio"
            ));
        }
        _ => return Err(expected()),
    };
    let power = b" kmgtp".iter().position(|one| *one == letter).ok_or_else(expected)?;
    let number: u64 = number.parse().map_err(|_| match digits {
        0 => expected(),
        _ => format!("at most {}", u64::MAX),
    })?;
    let factor = base.pow(power as u32);
    number.checked_mul(factor).ok_or_else(|| format!("at most {}", u64::MAX))
}

fn within(text: &str, least: u64, most: u64) -> Result<u64, Expected> {
    bytes(text).ok().filter(|number| (least..=most).contains(number)).ok_or_else(|| match most {
        u64::MAX => format!("a whole number from {least} on"),
        most => format!("a whole number from {least} to {most}"),
    })
}

pub(super) fn iodepth(text: &str) -> Result<Value, Expected> {
    within(text, 1, 1024).map(Value::Number)
}

pub(super) fn numjobs(text: &str) -> Result<Value, Expected> {
    within(text, 1, super::JOBS_MAX as u64).map(Value::Number)
}

pub(super) fn percent(text: &str) -> Result<Value, Expected> {
    within(text, 0, 100).map(Value::Number)
}

pub(super) fn number(text: &str) -> Result<Value, Expected> {
    within(text, 0, u64::MAX).map(Value::Number)
}

pub(super) fn count(text: &str) -> Result<Value, Expected> {
    within(text, 0, u64::from(u32::MAX)).map(Value::Number)
}

pub(super) fn kb_base(text: &str) -> Result<Value, Expected> {
    within(text, 1024, 1024).map(Value::Number).map_err(|_| "1024, by which k is 1024".to_owned())
}

pub(super) fn flag(text: &str) -> Result<Value, Expected> {
    match text {
        "0" => Ok(Value::Flag(false)),
        "1" => Ok(Value::Flag(true)),
        _ => Err("0 or 1".to_owned()),
    }
}

pub(super) fn text(text: &str) -> Result<Value, Expected> {
    match (1..=255).contains(&text.len()) && !text.chars().any(char::is_control) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err("1 to 255 printable characters".to_owned()),
    }
}

pub(super) fn filename(path: &str) -> Result<Value, Expected> {
    if path.starts_with('/') && path.replace("\\:", "").contains(':') {
        return Err("one disk, and not several with : between them".to_owned());
    }
    text(path)
}

pub(super) fn time(text: &str) -> Result<Value, Expected> {
    let expected = || "a time such as 30, 500ms, 2m or 1h, up to 24h".to_owned();
    let lower = text.to_ascii_lowercase();
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = lower.split_at(digits);
    let microseconds = match unit {
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(expected()),
    };
    let whole = number.parse().ok().and_then(|number: u64| number.checked_mul(microseconds));
    let time = whole.map(Duration::from_micros).filter(|time| *time <= TIME_MAX);
    time.map(Value::Time).ok_or_else(expected)
}

pub(super) fn amount(text: &str) -> Result<Value, Expected> {
    let amount = match text.strip_suffix('%') {
        Some(percent) => match percent.parse() {
            Ok(percent @ 0..=100) => Amount::Percent(percent),
            _ => return Err("0% to 100%".to_owned()),
        },
        None => Amount::Bytes(bytes(text)?),
    };
    Ok(Value::Amount(amount))
}

pub(super) fn rw(text: &str) -> Result<Value, Expected> {
    const WORDS: &str = "read, write, trim, randread, randwrite, randtrim, rw, readwrite or randrw";
    if let Some((_, behind)) = text.split_once(':') {
        return Err(format!(
            "{WORDS}; how many requests follow each other, as in :{behind}, is not taken"
        ));
    }
    let is_word = !text.contains('=');
    text.parse().ok().filter(|_| is_word).map(Value::Rw).ok_or_else(|| WORDS.to_owned())
}

/// One part for reads, writes and trims; `A,B` are for reads and for the others; a part may be empty.
fn each<T: Clone>(
    text: &str,
    part: impl Fn(&str) -> Result<T, Expected>,
) -> Result<[Option<T>; 3], Expected> {
    let parts: Vec<&str> = text.split(',').collect();
    let part = |at: usize| match parts[at].trim() {
        "" => Ok(None),
        text => part(text).map(Some),
    };
    match parts.len() {
        1 if text.is_empty() => Err("a value".to_owned()),
        1 => part(0).map(|all| [all.clone(), all.clone(), all]),
        2 => part(0).and_then(|reads| part(1).map(|rest| [reads, rest.clone(), rest])),
        3 => Ok([part(0)?, part(1)?, part(2)?]),
        _ => Err("at most three parts, for reads, writes and trims".to_owned()),
    }
}

/// The size of a request.
fn request(text: &str) -> Result<u64, Expected> {
    let bytes = bytes(text)?;
    match bytes > 0 && bytes.is_multiple_of(512) && bytes <= REQUEST_MAX {
        true => Ok(bytes),
        false => Err(format!("a multiple of 512 bytes up to 1m, and not {bytes}")),
    }
}

pub(super) fn bs(text: &str) -> Result<Value, Expected> {
    each(text, request).map(Value::Each)
}

pub(super) fn rates(text: &str) -> Result<Value, Expected> {
    each(text, |text| within(text, 0, u64::from(u32::MAX))).map(Value::Each)
}

pub(super) fn bssplit(text: &str) -> Result<Value, Expected> {
    let [reads, writes, trims] = each(text, split)?;
    let expected = || "sizes for each of reads, writes and trims that is named".to_owned();
    let default = vec![(4096, 100)];
    if [&reads, &writes, &trims].iter().all(|part| part.is_none()) {
        return Err(expected());
    }
    let or_default = |part: Option<Vec<(u32, u8)>>| part.unwrap_or_else(|| default.clone());
    Ok(Value::Splits([or_default(reads), or_default(writes), or_default(trims)]))
}

/// `4k/60:8k/40`; those without a percentage share what is left.
fn split(text: &str) -> Result<Vec<(u32, u8)>, Expected> {
    let mut sizes: Vec<(u32, Option<u8>)> = Vec::new();
    for part in text.split(':') {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        let bytes = request(size.trim())?;
        let percent = match percent.trim().trim_end_matches('%') {
            "" => None,
            text => match text.parse() {
                Ok(percent @ 0..=100) => Some(percent),
                _ => return Err(format!("0 to 100 percent of {}, and not {text:?}", size.trim())),
            },
        };
        sizes.push((bytes as u32, percent));
    }
    if sizes.len() > SIZES_MAX {
        return Err(format!("at most {SIZES_MAX} sizes, and not {}", sizes.len()));
    }
    let sum: u64 = sizes.iter().filter_map(|(_, percent)| *percent).map(u64::from).sum();
    let silent = sizes.iter().filter(|(_, percent)| percent.is_none()).count() as u64;
    if sum > 100 || (sum < 100 && silent == 0) {
        return Err(format!("100 percent together, and not {sum}"));
    }
    // The first of them take what does not divide.
    let mut rest = (100 - sum, silent);
    let mut share = || {
        let share = rest.0.div_ceil(rest.1);
        rest = (rest.0 - share, rest.1 - 1);
        share as u8
    };
    let percents =
        sizes.into_iter().map(|(bytes, percent)| (bytes, percent.unwrap_or_else(&mut share)));
    Ok(percents.filter(|(_, percent)| *percent > 0).collect())
}

pub(super) fn distribution(text: &str) -> Result<Value, Expected> {
    let (least, most) = (THETAS.start(), THETAS.end());
    let expected = || format!("random, or zipf:THETA with a theta from {least} to {most}");
    let theta = match text.split_once(':') {
        None if text == "random" => None,
        // fio's own.
        None if text == "zipf" => Some(1.1),
        Some(("zipf", theta)) => Some(theta.parse().map_err(|_| expected())?),
        _ => return Err(expected()),
    };
    match theta.is_none_or(|theta| THETAS.contains(&theta)) {
        true => Ok(Value::Distribution(theta)),
        false => Err(expected()),
    }
}

pub(super) fn process(text: &str) -> Result<Value, Expected> {
    match text {
        "linear" => Ok(Value::Flag(false)),
        "poisson" => Ok(Value::Flag(true)),
        _ => Err("linear or poisson".to_owned()),
    }
}

pub(super) fn sync(text: &str) -> Result<Value, Expected> {
    match text {
        "0" | "none" => Ok(Value::Flag(false)),
        "1" | "sync" | "dsync" => Ok(Value::Flag(true)),
        _ => Err("0, none, 1, sync or dsync".to_owned()),
    }
}

/// Ways of fio to mark what it writes, each of which asks for our own.
const VERIFIES: [&str; 16] = [
    "md5",
    "crc64",
    "crc32c",
    "crc32c-intel",
    "crc32",
    "crc16",
    "crc7",
    "xxhash",
    "sha512",
    "sha256",
    "sha1",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "meta",
];

pub(super) fn verify(text: &str) -> Result<Value, Expected> {
    match text {
        "0" => Ok(Value::Flag(false)),
        word if VERIFIES.contains(&word) => Ok(Value::Flag(true)),
        _ => {
            Err("0, crc32c or another checksum of fio's (what is written is marked our way)"
                .to_owned())
        }
    }
}

pub(super) fn do_verify(text: &str) -> Result<Value, Expected> {
    flag(text).ok().filter(|flag| *flag == Value::Flag(true)).ok_or_else(|| "1".to_owned())
}

/// Engines that keep requests in flight ...
const KEEPS: [&str; 8] =
    ["libaio", "io_uring", "io_uring_cmd", "posixaio", "windowsaio", "libblkio", "sg", "null"];
/// ... and those that wait for each.
const WAITS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

pub(super) fn engine(text: &str) -> Result<Value, Expected> {
    match (KEEPS.contains(&text), WAITS.contains(&text)) {
        (false, false) => Err(format!(
            "an engine that reads and writes a disk: {}, {}",
            KEEPS.join(", "),
            WAITS.join(", ")
        )),
        (_, waits) => Ok(Value::Engine { waits }),
    }
}
