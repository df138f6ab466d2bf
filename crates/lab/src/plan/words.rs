//! The words of a plan file: sizes, times, counts, parts and rates, as people write them.
//!
//! Sizes are in `bench`'s dialect: `4k`, `1m` and `1g` are powers of 1024, as `KiB`, `MiB` and
//! `GiB` are, and `kB`, `MB`, `GB` powers of 1000. Errors are what was expected; who asks knows
//! what was seen.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::words;

/// What was expected in place of a word.
pub(super) type Expected = String;

/// Bytes, within a range of multiples of 512.
pub(super) fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, Expected> {
    const UNITS: [(&str, u64); 17] = [
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("k", 1 << 10),
        ("K", 1 << 10),
        ("m", 1 << 20),
        ("M", 1 << 20),
        ("g", 1 << 30),
        ("G", 1 << 30),
        ("t", 1 << 40),
    ];
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    let bytes = number.parse::<u64>().ok().zip(unit);
    let bytes = bytes.and_then(|(number, (_, factor))| number.checked_mul(*factor));
    let is_one = |bytes: &u64| range.contains(bytes) && bytes.is_multiple_of(512);
    bytes.filter(is_one).ok_or_else(|| {
        let (least, most) = (Bytes(*range.start()), Bytes(*range.end()));
        format!("a multiple of 512 bytes from {least} to {most}, such as 4k")
    })
}

/// A whole number.
pub(super) fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, Expected> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
}

/// A number of at least one, with `k` for thousands and `m` for millions.
pub(super) fn count(text: &str, most: u64) -> Result<u64, Expected> {
    let number = words::count(text).filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {most}, such as 500 or 10k"))
}

/// A time: a number of seconds, or one with a unit.
pub(super) fn time(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Expected> {
    words::time(text).filter(|time| range.contains(time)).ok_or_else(|| {
        let (least, most) = (Span(*range.start()), Span(*range.end()));
        format!("a time from {least} to {most}, such as 500ms, 10s or 2m")
    })
}

/// A part of something: percent, or a fraction of one.
pub(super) fn part(text: &str, range: RangeInclusive<f64>) -> Result<f64, Expected> {
    let part = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0),
        // 10 is more likely 10% than 1000%.
        None => text.parse::<f64>().ok().filter(|part| *part <= 1.0),
    };
    part.filter(|part| range.contains(part)).ok_or_else(|| {
        let (least, most) = (range.start() * 100.0, range.end() * 100.0);
        format!("{least}% to {most}%, such as \"10%\" or 0.1")
    })
}

/// How many times as much as something else: a number, or percent of it.
pub(super) fn ratio(text: &str) -> Result<f64, Expected> {
    let ratio = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse::<f64>().ok(),
    };
    // 90 is more likely 90% than 90 times as much.
    let ratio = ratio.filter(|ratio| (0.01..=20.0).contains(ratio));
    ratio.ok_or_else(|| "a ratio from 0.01 to 20, such as 0.9 or \"90%\"".to_owned())
}

/// Bits a second.
pub(super) fn bit_rate(text: &str) -> Result<u64, Expected> {
    let units = [("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];
    let split = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let bits = split
        .and_then(|(number, factor)| number.trim_end().parse::<u64>().ok()?.checked_mul(*factor));
    let bits = bits.filter(|bits| (64_000..=400_000_000_000).contains(bits));
    bits.ok_or_else(|| "a rate from 64kbit to 400Gbit, such as 1Gbit".to_owned())
}

/// A part of all frames, in millionths.
pub(super) fn loss(text: &str) -> Result<u32, Expected> {
    let millionths = part(text, 0.0..=0.5).ok().map(|part| (part * 1e6).round() as u32);
    let millionths = millionths.filter(|millionths| *millionths > 0);
    millionths.ok_or_else(|| "0.0001% to 50%, such as \"1%\" or 0.01".to_owned())
}

/// Bytes as the largest binary unit that divides them: `64KiB`, `1536MiB`.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let fits = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match units.iter().find(|(_, shift)| fits(*shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A time for people: `500ms`, `10s`, `4min 30s`, `2h 5min`.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64().round() as u64;
        let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
            0 => format!("{large}{unit}"),
            small => format!("{large}{unit} {small}{smaller}"),
        };
        f.write_str(&match seconds {
            0 if self.0.is_zero() => "0s".to_owned(),
            _ if self.0.as_millis() < 1_000 => format!("{}ms", self.0.as_millis()),
            // A window of 1.5 s is not 2 s.
            ..10 => format!("{}s", self.0.as_millis() as f64 / 1e3),
            10..60 => format!("{seconds}s"),
            60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
            _ => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_dialect_of_bench() {
        let size = |text| size(text, 512..=1 << 40).ok();
        assert_eq!(size("4k"), Some(4096));
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("1m"), size("1MiB"));
        assert_eq!(size("512kB"), Some(512_000));
        for wrong in ["", "k", "0", "4kb", "-1", "1.5m", "100", "2t", "99999999999999999999"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_and_parts_have_units_or_their_usual_one() {
        let time = |text| time(text, Duration::from_millis(1)..=Duration::from_secs(86_400)).ok();
        assert_eq!(time("5m"), Some(Duration::from_secs(300)));
        assert_eq!(time("1.5"), time("1500ms"));
        assert_eq!([time("0"), time("25h"), time("1d"), time("m"), time("1e999s")], [None; 5]);
        let part = |text| part(text, 0.001..=10.0).ok();
        assert_eq!([part("10%"), part("0.1"), part("200%")], [Some(0.1), Some(0.1), Some(2.0)]);
        assert_eq!([part("10"), part("0"), part("%"), part("nan")], [None; 4]);
    }

    #[test]
    fn a_ratio_is_a_number_or_percent() {
        let ratio = |text| ratio(text).ok();
        assert_eq!([ratio("0.9"), ratio("90%"), ratio("1.15")], [Some(0.9), Some(0.9), Some(1.15)]);
        assert_eq!([ratio("90"), ratio("0"), ratio("-1"), ratio("%"), ratio("nan")], [None; 5]);
    }

    #[test]
    fn counts_and_rates_are_bounded() {
        assert_eq!(count("10k", 1_000_000), Ok(10_000));
        assert!(count("0", 9).is_err() && count("2m", 1_000_000).is_err());
        assert_eq!(bit_rate("1Gbit"), Ok(1_000_000_000));
        assert_eq!(bit_rate("100 Mbit"), Ok(100_000_000));
        assert!(bit_rate("1G").is_err() && bit_rate("1bit").is_err());
        assert_eq!([loss("1%"), loss("0.5"), loss("0.0001%")], [Ok(10_000), Ok(500_000), Ok(1)]);
        assert!(["0", "0.00001%", "51%", "1", "some"].iter().all(|text| loss(text).is_err()));
    }

    #[test]
    fn times_and_sizes_read_well() {
        let said = |seconds: f64| Span(Duration::from_secs_f64(seconds)).to_string();
        assert_eq!([0.5, 1.0, 1.5, 59.0].map(said), ["500ms", "1s", "1.5s", "59s"]);
        assert_eq!([270.0, 120.0, 7500.0].map(said), ["4min 30s", "2min", "2h 5min"]);
        assert_eq!(
            [4096, 1 << 20, 1000].map(|bytes| Bytes(bytes).to_string()),
            ["4KiB", "1MiB", "1000"]
        );
    }
}
