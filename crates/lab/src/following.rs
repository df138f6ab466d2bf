//! What a client of others' making says of itself while it runs, window by window: the lab's own rule on its figures.
//!
//! In: what it writes, as it comes, in any pieces: fio with `--output-format=json+ --status-interval`, or an initiator
//! of a plan, a line each (docs/plans.md, *An initiator of another kind*). Each
//! status counts from the start, so a window is what came between two of them. Out: whether the trial has
//! settled, by the rule of [`statistics::steady`](crate::statistics::steady), and the figures of its
//! windows in the shape in which `plateway bench` tells its own. Units: requests a second, nanoseconds,
//! seconds since 1970. Errors: what fio says of its jobs, and a status without what is looked for.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Deserialize as _;
use serde_json::Value;

use crate::load::histogram;
use crate::report::{LastSide, LastWindows, Latency, Steady};
use crate::statistics::steady::WINDOWS;
use crate::statistics::{Steadiness, SteadyState};

/// Who tells, and so in which words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teller {
    Fio,
    Initiator,
}

impl Teller {
    /// What it is called in an error.
    pub fn word(self) -> &'static str {
        match self {
            Teller::Fio => "fio",
            Teller::Initiator => "the initiator",
        }
    }
}

/// How long a status may be.
const STATUS_MAX: usize = 16 << 20;
/// How many notes it may have, and how long each may be.
const NOTES_MAX: usize = 8;
const NOTE_MAX: usize = 200;
/// How many requests it may tell of: nine years of a million a second, and few enough for sums of them.
const REQUESTS_MAX: u64 = 1 << 48;

/// Follows a client.
pub struct Following {
    teller: Teller,
    window: Duration,
    warm_up: Duration,
    /// What has come and is no whole status yet.
    bytes: Vec<u8>,
    /// When the first status came.
    first: Option<f64>,
    /// Edges of windows, the end of the warm-up first.
    edges: Vec<Status>,
    iops: Vec<f64>,
    state: SteadyState,
    found: Steadiness,
    version: String,
    /// What it says is to be known of its figures, at last.
    notes: Vec<String>,
}

/// What it had done when it said so.
#[derive(Clone, Debug, Default, PartialEq)]
struct Status {
    at: f64,
    requests: u64,
    /// How many reads, and how many writes, took so many nanoseconds.
    latency: [BTreeMap<u64, u64>; 2],
}

impl Following {
    /// Of one that says so once a window.
    pub fn new(teller: Teller, window: Duration, warm_up: Duration) -> Following {
        Following {
            teller,
            window,
            warm_up,
            bytes: Vec::new(),
            first: None,
            edges: Vec::new(),
            iops: Vec::new(),
            state: SteadyState::new(),
            found: Steadiness::Open,
            version: String::new(),
            notes: Vec::new(),
        }
    }

    /// Takes what it has written since; whether it is over.
    pub fn handle_output(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.bytes.extend_from_slice(bytes);
        loop {
            // Between statuses there may be lines for people.
            let Some(begin) = self.bytes.iter().position(|byte| *byte == b'{') else {
                self.bytes.clear();
                break;
            };
            let mut all = serde_json::Deserializer::from_slice(&self.bytes[begin..]).into_iter();
            let value = match all.next() {
                Some(Ok(value)) => value,
                // The rest of it is to come.
                Some(Err(error)) if error.is_eof() && self.bytes.len() <= STATUS_MAX => break,
                Some(Err(error)) if error.is_eof() => {
                    let who = self.teller.word();
                    return Err(format!(
                        "{who}: expected a status of {STATUS_MAX} bytes at most, seen no end of one"
                    ));
                }
                Some(Err(error)) => {
                    return Err(format!("{} printed no JSON: {error}", self.teller.word()));
                }
                None => break,
            };
            let end = begin + all.byte_offset();
            self.handle_status(&value)?;
            self.bytes.drain(..end);
        }
        Ok(self.is_over())
    }

    /// Whether it has settled, or never will.
    pub fn is_over(&self) -> bool {
        self.found != Steadiness::Open
    }

    /// How it calls itself; empty before its first status.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it says is to be known of its figures.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn handle_status(&mut self, value: &Value) -> Result<(), String> {
        if self.is_over() {
            return Ok(());
        }
        let (status, version) = match self.teller {
            Teller::Fio => (Status::of_fio(value)?, &value["fio version"]),
            Teller::Initiator => {
                self.notes = notes(&value["notes"])?;
                (Status::of_line(value)?, &value["client"])
            }
        };
        self.version = version.as_str().unwrap_or(self.teller.word()).to_owned();
        let first = *self.first.get_or_insert(status.at);
        // The first one comes when a window is over.
        let spent = status.at - first + self.window.as_secs_f64();
        if spent < self.warm_up.as_secs_f64() {
            return Ok(());
        }
        if let Some(before) = self.edges.last() {
            let seconds = status.at - before.at;
            if seconds < self.window.as_secs_f64() / 2.0 {
                // The last one, which comes with its end.
                return Ok(());
            }
            let iops = status.requests.saturating_sub(before.requests) as f64 / seconds;
            self.iops.push(iops);
            self.found = self.state.handle_window(iops);
        }
        self.edges.push(status);
        Ok(())
    }

    /// What came of it, in the last five windows or what there was of them.
    pub fn report(&self) -> Steady {
        let rates = &self.iops[self.iops.len().saturating_sub(WINDOWS)..];
        let edges = &self.edges[self.edges.len().saturating_sub(WINDOWS + 1)..];
        let latency = match edges {
            [first, .., last] => last.since(first),
            _ => Default::default(),
        };
        let all = counted(&latency);
        let [read, write] = [0, 1].map(|side| LastSide::of(&counted(&latency[side..=side])));
        Steady {
            is_steady: matches!(self.found, Steadiness::Steady(_)),
            window_seconds: self.window.as_secs_f64(),
            iops: rates.iter().sum::<f64>() / rates.len().max(1) as f64,
            windows: self.iops.clone(),
            edges_unix: self.edges.iter().map(|edge| edge.at).collect(),
            last: LastWindows { requests: all.len(), latency_ns: Latency::of(&all), read, write },
        }
    }
}

impl Status {
    fn of_fio(value: &Value) -> Result<Status, String> {
        let at = time(Teller::Fio, value)?;
        let job = value["jobs"].get(0).ok_or_else(|| missing(Teller::Fio, "jobs"))?;
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            return Err(format!("a request of fio's failed, with error {error} of the system"));
        }
        let bins = ["read", "write"].map(|side| &job[side]["lat_ns"]["bins"]);
        Status::counted(Teller::Fio, at, bins)
    }

    fn of_line(value: &Value) -> Result<Status, String> {
        let at = time(Teller::Initiator, value)?;
        let sides = ["read", "write"];
        if let Some(side) = sides.into_iter().find(|side| !value[side].is_object()) {
            return Err(missing(Teller::Initiator, side));
        }
        Status::counted(Teller::Initiator, at, sides.map(|side| &value[side]))
    }

    /// How many took so many nanoseconds of each side, when it said so.
    fn counted(teller: Teller, at: f64, sides: [&Value; 2]) -> Result<Status, String> {
        let mut status = Status { at, ..Status::default() };
        for (bins, latency) in sides.into_iter().zip(&mut status.latency) {
            for (ns, count) in bins.as_object().into_iter().flatten() {
                let ns: u64 = ns.parse().map_err(|_| missing(teller, "nanoseconds"))?;
                let count = count.as_u64().ok_or_else(|| missing(teller, "counts"))?;
                status.requests = status.requests.saturating_add(count);
                let counted = latency.entry(ns).or_default();
                *counted = counted.saturating_add(count);
            }
        }
        if status.requests > REQUESTS_MAX {
            return Err(format!(
                "{}: expected {REQUESTS_MAX} requests at most in its status, seen {}",
                teller.word(),
                status.requests
            ));
        }
        Ok(status)
    }

    /// How many took so long since an earlier one.
    fn since(&self, earlier: &Status) -> [BTreeMap<u64, u64>; 2] {
        [0, 1].map(|side| {
            let before = |ns: &u64| earlier.latency[side].get(ns).copied().unwrap_or(0);
            let each = self.latency[side].iter();
            each.map(|(ns, count)| (*ns, count.saturating_sub(before(ns)))).collect()
        })
    }
}

/// When it said so, in seconds since 1970.
fn time(teller: Teller, value: &Value) -> Result<f64, String> {
    let ms = value["timestamp_ms"].as_f64().ok_or_else(|| missing(teller, "timestamp_ms"))?;
    Ok(ms / 1e3)
}

/// The notes of a line; none if it has none.
fn notes(value: &Value) -> Result<Vec<String>, String> {
    let is_note = |note: &str| note.chars().count() <= NOTE_MAX;
    match Option::<Vec<String>>::deserialize(value) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(notes)) if notes.len() <= NOTES_MAX && notes.iter().all(|note| is_note(note)) => {
            Ok(notes)
        }
        _ => Err(format!(
            "{}: expected {NOTES_MAX} notes at most in its status, texts of {NOTE_MAX} characters at most, seen others",
            Teller::Initiator.word()
        )),
    }
}

fn missing(teller: Teller, what: &str) -> String {
    format!("{}: expected {what} in its status, seen none", teller.word())
}

fn counted(sides: &[BTreeMap<u64, u64>]) -> Histogram<u64> {
    let mut histogram = histogram();
    for (ns, count) in sides.iter().flatten() {
        histogram.saturating_record_n(*ns, *count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    /// A status after so many seconds, with so many reads of 1 us and writes of 3 us.
    fn status(at: f64, reads: u64, writes: u64) -> Vec<u8> {
        let side = |ns: &str, count: u64| json!({ "lat_ns": { "bins": { ns: count } } });
        let status = json!({ "fio version": "fio-3.33", "timestamp_ms": 1e12 + at * 1e3, "jobs": [
            { "error": 0, "read": side("1000", reads), "write": side("3000", writes) }] });
        format!("a line for people\n{status:#}\n\n").into_bytes()
    }

    /// Follows one with so many reads in each second.
    fn follow(rates: &[u64], warm_up: Duration) -> Following {
        let mut running = Following::new(Teller::Fio, WINDOW, warm_up);
        let mut reads = 0;
        for (at, rate) in rates.iter().enumerate() {
            reads += rate;
            let over = running.handle_output(&status(at as f64, reads, 0)).unwrap();
            assert_eq!(over, running.is_over());
        }
        running
    }

    #[test]
    fn reads_and_writes_are_told_apart() {
        let mut running = Following::new(Teller::Fio, WINDOW, Duration::ZERO);
        for second in 0..8 {
            running.handle_output(&status(second as f64, 300 * second, 100 * second)).unwrap();
        }
        let last = running.report().last;
        let [read, write] = [last.read, last.write].map(|side| side.expect("both"));
        assert_eq!([last.requests, read.requests, write.requests], [2000, 1500, 500]);
        assert_eq!([read, write].map(|side| side.latency_ns.percentile("p50")), [1000, 3001]);
    }

    #[test]
    fn windows_are_what_came_between_two_statuses_and_settle_by_the_lab_s_rule() {
        // What came before the first edge is in no window.
        let running = follow(&[9999, 100, 500, 500, 505, 495, 500, 7], Duration::ZERO);
        let steady = running.report();
        assert!(steady.is_steady && running.version() == "fio-3.33");
        assert_eq!(steady.windows, [100.0, 500.0, 500.0, 505.0, 495.0, 500.0]);
        assert_eq!((steady.iops, steady.last.requests), (500.0, 2500));
        assert_eq!((steady.edges_unix.len(), steady.edges_unix[1]), (7, 1e9 + 1.0));
    }

    #[test]
    fn a_warm_up_is_in_no_window() {
        let running = follow(&[1, 2, 3, 500, 500, 500, 500, 500], Duration::from_millis(2500));
        assert_eq!(running.report().windows, [500.0; 5]);
        assert!(running.is_over());
    }

    #[test]
    fn what_never_settles_is_over_after_25_windows() {
        let rates: Vec<u64> = (0..40).map(|at| 1000 + at % 2 * 900).collect();
        let running = follow(&rates, Duration::ZERO);
        assert!(running.is_over() && !running.report().is_steady);
        assert_eq!(running.report().windows.len(), 25);
    }

    #[test]
    fn percentiles_are_of_the_last_five_windows_alone_and_of_reads_and_writes() {
        let mut running = Following::new(Teller::Fio, WINDOW, Duration::ZERO);
        for at in 0..6 {
            // Slow writes were before the first edge.
            let (reads, writes) = (at * 75, 1000 + at * 25);
            running.handle_output(&status(at as f64, reads, writes)).unwrap();
        }
        let last = running.report().last;
        assert_eq!((last.requests, last.latency_ns.percentile("p50")), (500, 1000));
        assert!(last.latency_ns.percentile("p90") >= 2999, "{last:?}");
        assert!((last.latency_ns.mean - 1500.0).abs() < 10.0, "{last:?}");
    }

    #[test]
    fn output_is_taken_in_any_pieces_and_what_is_no_status_is_told() {
        let mut running = Following::new(Teller::Fio, WINDOW, Duration::ZERO);
        let all: Vec<u8> =
            (0..7).flat_map(|at| status(f64::from(at), 100 * at as u64, 0)).collect();
        for piece in all.chunks(7) {
            running.handle_output(piece).unwrap();
        }
        assert_eq!(running.report().windows, [100.0; 5]);
        let said =
            |text: &str| Following::new(Teller::Fio, WINDOW, WINDOW).handle_output(text.as_bytes());
        assert!(said("{]").unwrap_err().contains("fio printed no JSON"));
        assert!(said("{}").unwrap_err().contains("expected timestamp_ms"));
        let failed = r#"{"timestamp_ms": 1, "jobs": [{"error": 5}]}"#;
        assert!(said(failed).unwrap_err().contains("with error 5"));
        assert_eq!(said("fio: a line"), Ok(false));
    }

    #[test]
    fn a_status_without_end_or_of_more_requests_than_there_are_is_refused() {
        let mut following = Following::new(Teller::Initiator, WINDOW, WINDOW);
        let why = following.handle_output(&vec![b'{'; STATUS_MAX + 1]);
        // What is none is told at once, and what has no end before it takes all memory.
        assert!(why.is_err());
        let mut following = Following::new(Teller::Initiator, WINDOW, WINDOW);
        following.handle_output(b"a line for people\n").unwrap();
        assert!(following.bytes.is_empty(), "and no more of it");
        following.handle_output(b"{\"client\": \"").unwrap();
        let why = following.handle_output(&vec![b'x'; STATUS_MAX]).unwrap_err();
        assert!(why.contains("seen no end of one"), "{why}");
        let line = |at: u64, count: u64| {
            let longest = u64::MAX;
            format!(
                "{{\"timestamp_ms\": {at}e3, \"read\": {{\"{longest}\": {count}, \"01\": {count}}}, \"write\": {{\"1\": {count}}}}}"
            )
        };
        let mut following = Following::new(Teller::Initiator, WINDOW, Duration::ZERO);
        for at in 0..40 {
            following.handle_output(line(at, REQUESTS_MAX / 3 / 40 * at).as_bytes()).unwrap();
        }
        let report = following.report();
        assert!(following.is_over() && report.last.requests > REQUESTS_MAX / 40, "{report:?}");
        for count in [REQUESTS_MAX / 3 + 1, u64::MAX] {
            let mut following = Following::new(Teller::Initiator, WINDOW, Duration::ZERO);
            let why = following.handle_output(line(0, count).as_bytes()).unwrap_err();
            assert!(why.contains("expected 281474976710656 requests at most"), "{why}");
        }
    }

    #[test]
    fn an_initiator_tells_the_same_in_a_line_and_what_is_missing_there_is_told() {
        let mut following = Following::new(Teller::Initiator, WINDOW, Duration::ZERO);
        for second in 0..8 {
            let line = json!({ "client": "other 1.0", "timestamp_ms": 1e12 + f64::from(second) * 1e3,
                "read": { "1000": 300 * second }, "write": { "3000": 100 * second } });
            following.handle_output(format!("{line}\n").as_bytes()).unwrap();
        }
        let report = following.report();
        assert_eq!((report.iops, report.last.requests), (400.0, 2000));
        assert_eq!(following.version(), "other 1.0");
        let [read, write] = [report.last.read, report.last.write].map(|side| side.expect("both"));
        assert_eq!([read, write].map(|side| side.latency_ns.percentile("p50")), [1000, 3001]);
        assert!(following.notes().is_empty());
        let said = |text: &str| {
            Following::new(Teller::Initiator, WINDOW, WINDOW).handle_output(text.as_bytes())
        };
        let why = "the initiator: expected write in its status, seen none";
        assert_eq!(said(r#"{"timestamp_ms": 1, "read": {}}"#), Err(why.to_owned()));
        let why = "the initiator: expected timestamp_ms in its status, seen none";
        assert_eq!(said(r#"{"read": {}, "write": {}}"#), Err(why.to_owned()));
        assert!(said(r#"{"timestamp_ms": 1, "read": {"x": 1}, "write": {}}"#).is_err());
    }

    #[test]
    fn what_an_initiator_says_of_its_figures_is_taken_as_it_says_it_last() {
        let mut following = Following::new(Teller::Initiator, WINDOW, WINDOW);
        let mut said = |notes: Value| {
            let line = json!({ "timestamp_ms": 1, "read": {}, "write": {}, "notes": notes });
            let taken = following.handle_output(format!("{line}\n").as_bytes());
            taken.map(|_| following.notes().to_vec())
        };
        assert_eq!(said(json!(["it was copied"])), Ok(vec!["it was copied".to_owned()]));
        assert_eq!(said(json!(null)), Ok(Vec::new()));
        for others in [json!("one"), json!([1]), json!(["x".repeat(201)]), json!(vec!["x"; 9])] {
            let why = said(others).unwrap_err();
            assert!(why.starts_with("the initiator: expected 8 notes at most"), "{why}");
        }
    }
}
