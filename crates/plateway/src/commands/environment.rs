//! Where and with what something was measured: asked of the system, for reports that are read years
//! later.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use lab::report::Environment;

/// The environment of this process; `driver` says how its I/O is done.
pub(crate) fn environment(driver: String) -> Environment {
    Environment {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("PLATEWAY_COMMIT").map(str::to_owned),
        date: rfc3339(seconds_since_1970()),
        kernel: kernel(),
        cpu: cpu_model(),
        cpus: reactor::allowed_cpus(),
        driver,
    }
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    [word(uname.sysname()), word(uname.release()), word(uname.machine())].join(" ")
}

/// The model's name of the first processor; machines that name none (many of ARM) give their
/// architecture alone.
fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// `2026-11-21T17:13:06Z` (RFC 3339), by the algorithm of Hinnant's "chrono-compatible low-level
/// date algorithms".
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_281_186, "2026-11-21T17:13:06Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }
}
