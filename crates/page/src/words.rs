//! Numbers with their units, and text that is safe within HTML, SVG and `data:` addresses.
//!
//! In: values in the units of a result file (operations and bytes a second, nanoseconds,
//! microseconds of processor time). Whatever comes from a file passes [`escaped`] before it is
//! written.

use std::fmt::Write as _;

use lab::plan::Measure;
use lab::report::Nanoseconds;

/// As text within HTML and SVG, and within double quotes of their attributes. Characters that XML
/// may not hold become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            control if control.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            plain => safe.push(plain),
        }
    }
    safe
}

/// As the rest of an address (RFC 3986): all but what needs no escape.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 3 / 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(byte as char),
            b'-' | b'_' | b'.' | b'~' | b'/' | b';' | b'=' | b',' | b'(' | b')' => {
                encoded.push(byte as char);
            }
            other => {
                let _ = write!(encoded, "%{other:02X}");
            }
        }
    }
    encoded
}

/// For the name of a file and of a place in the page: letters, digits and dashes.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.truncate(60);
    slug.trim_end_matches('-').to_owned()
}

/// At most so many characters, the last of them dots if it was longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// In lines of at most so many characters, where words allow it.
pub(crate) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shortened(word, most)),
        }
    }
    lines
}

/// A value of a measure with its unit.
pub(crate) fn quantity(measure: Measure, value: f64) -> String {
    match measure.whole() {
        Measure::Iops => thousands(value),
        Measure::Throughput => format!("{}B/s", thousands_apart(value)),
        of_cpu if of_cpu.is_of_cpu() => microseconds(value),
        Measure::WireBytesPerOp | Measure::CoreBurstiness => {
            format!("{}B", thousands_apart(value))
        }
        Measure::CoreQueue => format!("{value:.0} frames"),
        _ => Nanoseconds(value).to_string(),
    }
}

/// The unit of an axis, where [`quantity`] does not say it.
pub(crate) fn axis_name(measure: Measure) -> String {
    match measure {
        Measure::Iops => "operations a second".to_owned(),
        Measure::ReadIops => "reads a second".to_owned(),
        Measure::WriteIops => "writes a second".to_owned(),
        Measure::Throughput => "bytes of payload a second".to_owned(),
        Measure::CpuPerOp => "processor time an operation, both ends".to_owned(),
        Measure::CpuNearPerOp => "processor time an operation, near end".to_owned(),
        Measure::CpuFarPerOp => "processor time an operation, far end".to_owned(),
        Measure::WireBytesPerOp => "bytes on the wire an operation, both ways".to_owned(),
        Measure::CoreBurstiness => {
            "burstiness at the core: variance by mean of the bytes of a millisecond".to_owned()
        }
        Measure::CoreQueue => "frames that waited for the core at most".to_owned(),
        other => other.to_string(),
    }
}

/// "6.26 us", of processor time.
pub(crate) fn microseconds(value: f64) -> String {
    format!("{} us", three_digits(value))
}

/// "127k", "2.96M".
pub(crate) fn thousands(value: f64) -> String {
    thousands_apart(value).replace(' ', "")
}

/// "481 M", for a unit to follow.
fn thousands_apart(value: f64) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // What rounds up to the next step is said in it.
    match steps.into_iter().find(|(step, _)| value.abs() >= step * 0.9995) {
        Some((step, letter)) => format!("{} {letter}", three_digits(value / step)),
        None => format!("{} ", three_digits(value)),
    }
}

/// Three digits that count, without zeros at the end: "6.26", "120", "0.5".
pub(crate) fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(escaped("<a b=\"c\">&'\u{1}"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}");
        assert_eq!(percent_encoded("<a b>\"#%é"), "%3Ca%20b%3E%22%23%25%C3%A9");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!(thousands(127_798.4), "128k");
        assert_eq!(thousands(2_963_968.0), "2.96M");
        assert_eq!(thousands(999_900.0), "1M");
        assert_eq!(thousands(250.0), "250");
        assert_eq!(quantity(Measure::Throughput, 481_090_123.0), "481 MB/s");
        assert_eq!(quantity(Measure::P99, 509_439.0), "509 us");
        assert_eq!(quantity(Measure::WriteP99, 509_439.0), "509 us");
        assert_eq!(quantity(Measure::ReadIops, 12_500.0), quantity(Measure::Iops, 12_500.0));
        assert_eq!(quantity(Measure::WireBytesPerOp, 4_512.4), "4.51 kB");
        assert_eq!(quantity(Measure::WireBytesPerOp, 84.0), "84 B");
        for cost in [Measure::CpuPerOp, Measure::CpuNearPerOp, Measure::CpuFarPerOp] {
            assert_eq!(quantity(cost, 6.263), "6.26 us");
        }
    }

    #[test]
    fn long_texts_are_wrapped_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(slug("IOPS over lan, 4KiB"), "iops-over-lan-4kib");
    }
}
