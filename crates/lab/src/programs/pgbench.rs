//! pgbench: what it is asked for, and the log of its transactions, window by window, by the lab's own rule.
//!
//! ```text
//!   0 199 2241 0 1795923093 995998        client, transaction, microseconds, script, and when it was over:
//!                                         seconds since 1970, and microseconds of them
//! ```
//! It writes a line for each transaction as it ends (pgbench(1), "Per-Transaction Logging"), in pieces of some KiB, so
//! that lines are seen late; windows are of the moments that they name, so nothing is measured late. In: the log in any
//! pieces. Out: whether the load has settled, by [`statistics::steady`](crate::statistics::steady), and its figures.
//! What is said here of transactions is pgbench's "TPC-B (sort of)", which is no TPC benchmark. Units: transactions a
//! second, nanoseconds, seconds since 1970. Errors: what was expected of a line, and what was seen; that what is in
//! the database in the end is not what transactions did that were told of.

use std::time::Duration;

use crate::load::WindowLatencies;
use crate::report::{LastWindows, Latency, Steady};
use crate::statistics::steady::WINDOWS;
use crate::statistics::{Steadiness, SteadyState};

/// Bytes for which there is one unit of scale: 100,000 accounts, with their index.
pub const UNIT_BYTES: u64 = 16 << 20;
/// Tellers of a unit of scale.
const TELLERS: u64 = 10;
/// What the server has beside the tables and what was written ahead: catalogues of three databases, and a log that
/// was begun.
const SERVER_BYTES: u64 = 48 << 20;
/// The most that is written ahead before the tables are written back.
const LOG_MAX: u64 = 64 << 20;
/// Of the tables, what part the server keeps by itself, in place of 128 MiB whatever they are: pages of the rest are
/// in the page cache.
const BUFFERS_PART: u64 = 8;
/// The least that it takes.
const BUFFERS_MIN: u64 = 1 << 20;
/// A line is no longer.
const LINE_MAX: usize = 256;
/// A transaction takes no longer, and none ends later than this, in seconds since 1970.
const MICROSECONDS_MAX: u64 = 1 << 45;
const SECONDS_MAX: u64 = 1 << 40;
/// How much earlier than the one before it a transaction may have ended, by a clock that is set meanwhile.
const BACKWARDS_MAX: f64 = 1.0;

/// How large its tables are.
pub fn scale(size: u64) -> u64 {
    (size / UNIT_BYTES).max(1)
}

/// Bytes of a disk that tables of so many take, with what the server has beside them.
pub fn room(size: u64) -> u64 {
    // Each change leaves the row as it was behind, until somebody cleans up.
    size / 2 * 3 + SERVER_BYTES + 2 * LOG_MAX
}

/// What the server is told in place of its defaults, for tables of so many bytes and so many clients: its memory in proportion, what
/// it writes ahead bounded, nobody reached but over a socket that has this name. It is as durable as it is by default.
pub fn server_settings(size: u64, clients: u32, socket: &str) -> Vec<String> {
    let buffers = (size / BUFFERS_PART).max(BUFFERS_MIN) >> 10;
    let log = LOG_MAX >> 20;
    let settings = [
        "listen_addresses=".to_owned(),
        format!("unix_socket_directories={socket}"),
        format!("max_connections={}", clients + 8),
        format!("shared_buffers={buffers}kB"),
        format!("min_wal_size={}MB", log / 2),
        format!("max_wal_size={log}MB"),
        "wal_level=minimal".to_owned(),
        "max_wal_senders=0".to_owned(),
        "dynamic_shared_memory_type=mmap".to_owned(),
    ];
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// What makes the tables.
pub fn make_arguments(size: u64) -> Vec<String> {
    ["--initialize", "--quiet", "--scale", &scale(size).to_string()].map(str::to_owned).to_vec()
}

/// What works on them, for a time at most, and writes a line for each transaction to files of this name and more.
pub fn run_arguments(clients: u32, seed: u64, time_max: Duration, log: &str) -> Vec<String> {
    let (clients, seed) = (clients.to_string(), seed.to_string());
    let seconds = time_max.as_secs().max(1).to_string();
    [
        "--no-vacuum",
        "--client",
        &clients,
        "--jobs",
        "1",
        "--random-seed",
        &seed,
        "--time",
        &seconds,
        "--log",
        "--log-prefix",
        log,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Asks what is in the tables in the end; [`check`] judges it.
pub const QUESTION: &str = "select (select count(*) from pgbench_history), \
    (select coalesce(sum(delta), 0) from pgbench_history), \
    (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), \
    (select count(*) from pgbench_tellers)";

/// Judges an answer to [`QUESTION`], its values with `|` between them: each transaction moved one amount, and is in the
/// history. So many were told of.
pub fn check(answer: &str, size: u64, told: u64) -> Result<(), String> {
    let values: Option<Vec<i64>> =
        answer.trim().split('|').map(|value| value.parse().ok()).collect();
    let Some([count, moved, tellers, branches, teller_count]) = values.as_deref() else {
        return Err(format!("pgbench: expected five sums of its tables, seen {:?}", shown(answer)));
    };
    if *teller_count != (scale(size) * TELLERS) as i64 {
        let expected = scale(size) * TELLERS;
        return Err(format!("pgbench: expected {expected} tellers, seen {teller_count}"));
    }
    if moved != tellers || moved != branches {
        return Err(format!(
            "pgbench: expected tables that agree about what was moved, seen {moved} in the history, {tellers} at tellers and {branches} at branches"
        ));
    }
    if u64::try_from(*count).is_ok_and(|count| count >= told) {
        return Ok(());
    }
    Err(format!("pgbench: expected the {told} transactions that it told of, seen {count}"))
}

/// Words of somebody else, as far as they are told.
fn shown(words: &str) -> String {
    words.trim().chars().take(80).collect()
}

/// Follows the log as it is written.
pub struct Running {
    window: f64,
    warm_up: f64,
    /// What has come and is no whole line yet.
    text: Vec<u8>,
    /// When the first transaction ended, and when the last.
    first: Option<f64>,
    last: f64,
    /// When the present window began; where windows are counted.
    began: f64,
    in_window: u64,
    /// All that were told of.
    transactions: u64,
    edges: Vec<f64>,
    rates: Vec<f64>,
    latencies: WindowLatencies,
    state: SteadyState,
    found: Steadiness,
}

impl Running {
    /// Of one that has so long to warm up, in windows of this length.
    pub fn new(window: Duration, warm_up: Duration) -> Running {
        Running {
            window: window.max(Duration::from_millis(1)).as_secs_f64(),
            warm_up: warm_up.as_secs_f64(),
            text: Vec::new(),
            first: None,
            last: 0.0,
            began: 0.0,
            in_window: 0,
            transactions: 0,
            edges: Vec::new(),
            rates: Vec::new(),
            latencies: WindowLatencies::default(),
            state: SteadyState::new(),
            found: Steadiness::Open,
        }
    }

    /// Takes what was written since.
    pub fn handle_log(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.text.extend_from_slice(bytes);
        let text = core::mem::take(&mut self.text);
        let mut rest = &text[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = core::str::from_utf8(&rest[..end]).ok();
            let transaction = line.and_then(Transaction::parse).ok_or_else(|| {
                let seen = shown(&String::from_utf8_lossy(&rest[..end]));
                format!(
                    "pgbench: expected a transaction as six numbers or more, the third microseconds, the fifth and sixth when it was over, seen {seen:?}"
                )
            })?;
            self.count(&transaction)?;
            rest = &rest[end + 1..];
        }
        if rest.len() > LINE_MAX {
            return Err(format!(
                "pgbench: expected a line of {LINE_MAX} bytes at most, seen no end of one"
            ));
        }
        self.text = rest.to_vec();
        Ok(())
    }

    /// Whether it has settled, or never will.
    pub fn is_over(&self) -> bool {
        self.found != Steadiness::Open
    }

    /// All transactions that were told of.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    fn count(&mut self, transaction: &Transaction) -> Result<(), String> {
        self.transactions += 1;
        let at = transaction.at;
        if at + BACKWARDS_MAX < self.last {
            return Err(format!(
                "pgbench: expected transactions in the order in which they were over, seen one of {at} behind one of {}",
                self.last
            ));
        }
        self.last = self.last.max(at);
        let first = *self.first.get_or_insert(at);
        if at < first + self.warm_up || self.is_over() {
            return Ok(());
        }
        if self.edges.is_empty() {
            self.began = first + self.warm_up;
            self.begin_window();
        }
        // Of a window in which nothing ended the rate is none.
        while at >= self.began + self.window && !self.is_over() {
            let rate = self.in_window as f64 / self.window;
            self.rates.push(rate);
            self.found = self.state.handle_window(rate);
            self.began += self.window;
            self.begin_window();
        }
        if !self.is_over() {
            self.in_window += 1;
            self.latencies.count(transaction.latency_ns);
        }
        Ok(())
    }

    fn begin_window(&mut self) {
        self.in_window = 0;
        self.edges.push(self.began);
        self.latencies.begin(self.edges.len() as u64);
    }

    /// The figures of its windows, of which there are fewer if it has not settled.
    pub fn report(&self) -> Steady {
        let rates = &self.rates[self.rates.len().saturating_sub(WINDOWS)..];
        let latency = self.latencies.last();
        Steady {
            is_steady: matches!(self.found, Steadiness::Steady(_)),
            window_seconds: self.window,
            iops: rates.iter().sum::<f64>() / rates.len().max(1) as f64,
            windows: self.rates.clone(),
            edges_unix: self.edges.clone(),
            last: LastWindows {
                requests: latency.len(),
                latency_ns: Latency::of(&latency),
                read: None,
                write: None,
            },
        }
    }
}

/// A line of the log.
struct Transaction {
    latency_ns: u64,
    /// When it was over.
    at: f64,
}

impl Transaction {
    /// Nothing of one that failed, whose third word says so, and of what is no line.
    fn parse(line: &str) -> Option<Transaction> {
        let words: Vec<&str> = line.split(' ').collect();
        // Of retries, or of lateness, there may be more behind.
        let [_, _, took, _, seconds, microseconds, ..] = words[..] else { return None };
        let number = |word: &str, max: u64| {
            let is_one = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            word.parse::<u64>().ok().filter(|value| is_one && *value < max)
        };
        let seconds = number(seconds, SECONDS_MAX)?;
        let at = seconds as f64 + number(microseconds, 1_000_000)? as f64 / 1e6;
        Some(Transaction { latency_ns: number(took, MICROSECONDS_MAX)? * 1_000, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The log of so many transactions in each second from a moment on, spread over it, each of so many microseconds.
    fn log(begin: u64, rates: &[u64], took: u64) -> String {
        let mut log = String::new();
        for (second, rate) in (begin..).zip(rates) {
            for one in 0..*rate {
                log += &format!("0 {one} {took} 0 {second} {:06}\n", one * 1_000_000 / rate);
            }
        }
        log
    }

    fn followed(log: &str, piece: usize, warm_up: Duration) -> Running {
        let mut running = Running::new(SECOND, warm_up);
        for bytes in log.as_bytes().chunks(piece) {
            running.handle_log(bytes).unwrap();
        }
        running
    }

    #[test]
    fn five_windows_alike_are_steady_whatever_pieces_the_log_comes_in() {
        let log = log(1_795_923_093, &[900, 50, 100, 100, 101, 99, 100, 1, 1], 2_500);
        for piece in [1, 7, 4096, log.len()] {
            let running = followed(&log, piece, SECOND * 2);
            assert!(running.is_over());
            let report = running.report();
            assert!(report.is_steady, "{report:?}");
            assert_eq!((report.windows.len(), report.iops), (5, 100.0));
            assert_eq!(report.edges_unix[0], 1_795_923_095.0);
            assert_eq!((report.edges_unix.len(), report.last.requests), (6, 500));
            // Histograms keep three digits.
            let p50 = report.last.latency_ns.percentile("p50") as f64;
            assert!((p50 / 2_500_000.0 - 1.0).abs() < 0.002, "{p50}");
            // What came behind them was told, too.
            assert_eq!(running.transactions(), 1_452);
        }
    }

    #[test]
    fn a_window_in_which_nothing_ended_is_one_of_nothing() {
        let running = followed(&log(1_000, &[10, 0, 0, 10, 10], 10), 4096, Duration::ZERO);
        assert!(!running.is_over());
        assert_eq!(running.report().windows, [10.0, 0.0, 0.0, 10.0]);
    }

    #[test]
    fn what_never_settles_ends() {
        let rates: Vec<u64> = (0..30).map(|at| 10 + at % 2 * 10).collect();
        let report = followed(&log(1_000, &rates, 10), 4096, Duration::ZERO).report();
        assert_eq!((report.is_steady, report.windows.len()), (false, 25));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |text: &str| {
            Running::new(SECOND, Duration::ZERO).handle_log(text.as_bytes()).unwrap_err()
        };
        for line in [
            "",
            "0 1 2 3 4",
            "0 199 failed 0 1795923093 995998",
            "0 199 -1 0 1795923093 995998",
            "0 199 2241 0 1795923093 1000000",
            "0 199 2241 0 9999999999999 0",
            "0 199 99999999999999 0 1795923093 0",
        ] {
            let why = refused(&format!("{line}\n"));
            assert!(why.ends_with(&format!("seen {line:?}")), "{why}");
        }
        assert!(refused(&"7".repeat(LINE_MAX + 1)).contains("no end of one"));
        let why = refused("0 1 2 0 1000 0\n0 2 2 0 998 0\n");
        assert!(why.contains("seen one of 998 behind one of 1000"), "{why}");
        // With what some versions append.
        assert!(Transaction::parse("0 199 2241 0 1795923093 995998 17 0").is_some());
    }

    #[test]
    fn tables_agree_with_each_other_and_have_what_was_told() {
        let size = 3 * UNIT_BYTES;
        assert_eq!(check("120|-45|-45|-45|30\n", size, 120), Ok(()));
        // The last ones may not have been told.
        assert_eq!(check("121|7|7|7|30", size, 120), Ok(()));
        for (answer, words) in [
            ("119|-45|-45|-45|30", "expected the 120 transactions that it told of, seen 119"),
            ("120|-45|-44|-45|30", "seen -45 in the history, -44 at tellers and -45 at branches"),
            ("120|-45|-45|45|30", "and 45 at branches"),
            ("120|-45|-45|-45|20", "expected 30 tellers, seen 20"),
            ("120|-45|-45|-45", "expected five sums of its tables, seen \"120|-45|-45|-45\""),
            ("", "expected five sums"),
        ] {
            let why = check(answer, size, 120).unwrap_err();
            assert!(why.starts_with("pgbench: ") && why.contains(words), "{why}");
        }
    }

    #[test]
    fn the_server_has_memory_in_proportion_and_stays_durable() {
        let settings = server_settings(160 * UNIT_BYTES, 4, "@here").join(" ");
        assert!(settings.contains("-c shared_buffers=327680kB -c"), "{settings}");
        assert!(settings.contains("-c max_connections=12 "), "{settings}");
        for durable in ["fsync", "synchronous_commit", "full_page_writes"] {
            assert!(!settings.contains(durable), "{settings}");
        }
        assert_eq!(scale(160 * UNIT_BYTES), 160);
        let args = run_arguments(4, 7, SECOND * 90, "/x/log").join(" ");
        assert!(args.contains("--client 4 --jobs 1 --random-seed 7 --time 90 "), "{args}");
    }
}
