//! PostMark: what it is asked for, how far it has come, and the line of values in its end.
//!
//! ```text
//!   Creating files...Done
//!   Performing transactions..........Done      a point as each tenth of them begins
//!   Deleting files...Done
//!   26 25 8000.00 3861.69 ...                  the terse report
//! ```
//! PostMark counts time in whole seconds. So its points are followed as they come ([`Running`]), and rates are of the time
//! between them; what it did in that time is what it reports ([`Told`]), each rate of its own times its own seconds. In: its standard output, in any
//! pieces, each with when it came. Units: bytes, operations, durations. Errors: what was expected there, and
//! what was seen.

use std::time::Duration;

/// Bytes of a file, least and most, as its own defaults: evenly distributed between them.
const FILE_BYTES: [u64; 2] = [500, 10_000];
/// Files of this many bytes together are a hundred.
pub const BYTES_MIN: u64 = 100 * (FILE_BYTES[0] + FILE_BYTES[1]) / 2;
/// Transactions for each file.
const TRANSACTIONS_EACH: u64 = 10;
/// It makes points of tenths.
const TENTHS: u64 = 10;
/// Values of a terse report.
const FIELDS: usize = 13;
/// More than it prints, whatever it is asked for.
const PRINTED_MAX: usize = 1 << 16;
/// How many of what it says it did each second may differ from what it was asked for, as it rounds to hundredths.
const ROUNDED: f64 = 0.005;

/// What it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Files that there are at first.
    pub files: u64,
    pub transactions: u64,
    pub seed: u64,
}

impl Asked {
    /// Files of so many bytes together.
    pub fn of(size: u64, seed: u64) -> Asked {
        let mean = (FILE_BYTES[0] + FILE_BYTES[1]) / 2;
        let files = (size / mean / TENTHS).max(1) * TENTHS;
        // It reads a number of C's.
        Asked { files, transactions: files * TRANSACTIONS_EACH, seed: seed % (1 << 31) }
    }

    /// The commands by which it is asked, on its standard input.
    pub fn commands(&self) -> String {
        let ([least, most], Asked { files, transactions, seed }) = (FILE_BYTES, self);
        format!(
            "set number {files}\nset transactions {transactions}\nset size {least} {most}\nset seed {seed}\nset report terse\nrun\nquit\n"
        )
    }
}

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Creating,
    Performing,
    Deleting,
    Reporting,
}

/// Follows one as it runs.
#[derive(Debug)]
pub struct Running {
    stage: Stage,
    /// What has come and was not looked at.
    text: String,
    began: Duration,
    /// When each tenth of its transactions began, and behind them when the last was over.
    marks: Vec<Duration>,
    ended: Duration,
    version: String,
}

impl Default for Running {
    fn default() -> Running {
        let zero = Duration::ZERO;
        let (stage, text, marks) = (Stage::Starting, String::new(), Vec::new());
        Running { stage, text, began: zero, marks, ended: zero, version: "PostMark".to_owned() }
    }
}

impl Running {
    /// Takes what it printed since, and when that came.
    pub fn handle_output(&mut self, bytes: &[u8], at: Duration) -> Result<(), String> {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        if self.text.len() > PRINTED_MAX {
            return Err(format!(
                "PostMark: expected {PRINTED_MAX} bytes at most between its points, seen more"
            ));
        }
        while self.step(at)? {}
        Ok(())
    }

    /// Looks whether it came to a next stage, or a tenth further.
    fn step(&mut self, at: Duration) -> Result<bool, String> {
        match self.stage {
            Stage::Starting => {
                let version = self.text.lines().next().and_then(|line| line.split(" :").next());
                let version =
                    version.filter(|words| words.starts_with("PostMark")).map(str::to_owned);
                let begins = self.passes("Creating files...");
                if begins {
                    (self.stage, self.began) = (Stage::Creating, at);
                    self.version = version.unwrap_or("PostMark".to_owned());
                }
                Ok(begins)
            }
            Stage::Creating => {
                let begins = self.passes("Performing transactions");
                if begins {
                    self.stage = Stage::Performing;
                }
                Ok(begins)
            }
            Stage::Performing => self.step_through(at),
            Stage::Deleting => {
                let ends = self.passes("Deleting files...Done");
                if ends {
                    (self.stage, self.ended) = (Stage::Reporting, at);
                }
                Ok(ends)
            }
            Stage::Reporting => Ok(false),
        }
    }

    /// A point, or the end of what has points.
    fn step_through(&mut self, at: Duration) -> Result<bool, String> {
        const END: &str = "Done";
        if self.text.starts_with('.') {
            self.text.remove(0);
            self.marks.push(at);
            return Ok(true);
        }
        if self.text.starts_with(END) {
            self.text.drain(..END.len());
            self.marks.push(at);
            self.stage = Stage::Deleting;
            return Ok(true);
        }
        if END.starts_with(&*self.text) {
            return Ok(false);
        }
        let seen: String = self.text.chars().take(80).collect();
        Err(format!("PostMark: expected a point or \"Done\" among its transactions, seen {seen:?}"))
    }

    /// Whether a text has come, which is dropped with what is before it.
    fn passes(&mut self, text: &str) -> bool {
        let found = self.text.find(text);
        if let Some(begin) = found {
            self.text.drain(..begin + text.len());
        }
        found.is_some()
    }

    /// What it came to, once it has ended.
    pub fn end(self, asked: &Asked) -> Result<Told, String> {
        if self.stage != Stage::Reporting {
            let seen: String = self.text.trim().chars().take(80).collect();
            return Err(format!("PostMark: ended before it reported, seen {seen:?}"));
        }
        if self.marks.len() as u64 != TENTHS + 1 {
            let seen = self.marks.len() - 1;
            return Err(format!(
                "PostMark: expected {TENTHS} points among its transactions, seen {seen}"
            ));
        }
        let Reported { read_bytes, written_bytes } = Reported::parse(&self.text, asked)?;
        let total = self.ended.saturating_sub(self.began);
        let Running { marks, version, .. } = self;
        Ok(Told {
            version,
            marks,
            total,
            transactions: asked.transactions,
            read_bytes,
            written_bytes,
        })
    }
}

/// Bytes of a terse report.
struct Reported {
    read_bytes: f64,
    written_bytes: f64,
}

impl Reported {
    fn parse(text: &str, asked: &Asked) -> Result<Reported, String> {
        let line = text.trim();
        let values: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
        let values = values.filter(|values| values.len() == FIELDS).ok_or_else(|| {
            let seen: String = line.chars().take(160).collect();
            format!("PostMark: expected a report of {FIELDS} values, seen {seen:?}")
        })?;
        let [total, transacting, rate, ..] = values[..] else { unreachable!("they were counted") };
        let (seen, wanted) = (rate * transacting, asked.transactions as f64);
        if (seen - wanted).abs() > ROUNDED * transacting + 1e-6 * wanted {
            return Err(format!("PostMark: expected {wanted} transactions, seen {seen}"));
        }
        let [read_bytes, written_bytes] = [values[FIELDS - 2] * total, values[FIELDS - 1] * total];
        Ok(Reported { read_bytes, written_bytes })
    }
}

/// What no number of a report reaches: more bytes a second than any machine's, for longer than anybody waits.
const NUMBER_MAX: f64 = 1e18;

/// A number that a report may hold.
fn number(word: &str) -> Option<f64> {
    let is_one = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    word.parse().ok().filter(|value: &f64| is_one && *value < NUMBER_MAX)
}

/// What it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// As it calls itself.
    pub version: String,
    /// When each tenth of its transactions began, and when the last was over.
    pub marks: Vec<Duration>,
    /// From when it began to create files until the last was deleted.
    pub total: Duration,
    pub transactions: u64,
    /// Of all of it.
    pub read_bytes: f64,
    pub written_bytes: f64,
}

impl Told {
    /// When each of so many windows of its transactions began, and when the last was over, which divide its tenths evenly.
    pub fn edges<const WINDOWS: usize>(&self) -> Vec<Duration> {
        let tenths = self.marks.len() - 1;
        (0..=WINDOWS).map(|window| self.marks[window * tenths / WINDOWS]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostMark v1.51 printed it, with when each piece came, in milliseconds.
    const PRINTED: [(&str, u64); 12] = [
        (
            "PostMark v1.51 : 8/14/01\nReading configuration from file '/dev/stdin'\nCreating files...",
            0,
        ),
        ("Done\nPerforming transactions.", 87),
        (".", 2373),
        (".", 4847),
        (".", 7379),
        (".", 9951),
        (".", 12260),
        (".", 14763),
        (".", 18379),
        (".", 21481),
        (".", 23553),
        (
            "Done\nDeleting files...Done\n26 25 8000.00 3861.69 500.00 3996.16 3991.12 3962.00 3861.69 308.00 4003.84 26187358.00 26348366.00\n",
            25871,
        ),
    ];
    const ASKED: Asked = Asked { files: 500, transactions: 200_000, seed: 42 };

    fn run(pieces: &[(&str, u64)], asked: &Asked) -> Result<Told, String> {
        let mut running = Running::default();
        for (piece, at) in pieces {
            running.handle_output(piece.as_bytes(), Duration::from_millis(*at))?;
        }
        running.end(asked)
    }

    #[test]
    fn rates_are_of_the_time_between_its_points() {
        let told = run(&PRINTED, &ASKED).unwrap();
        assert_eq!(told.version, "PostMark v1.51");
        assert_eq!((told.marks.len(), told.total), (11, Duration::from_millis(25_871)));
        let edges: Vec<u128> = told.edges::<5>().iter().map(Duration::as_millis).collect();
        assert_eq!(edges, [87, 4847, 9951, 14_763, 21_481, 25_871]);
        assert_eq!(
            (told.read_bytes, told.written_bytes),
            (26_187_358.0 * 26.0, 26_348_366.0 * 26.0)
        );
    }

    #[test]
    fn it_is_the_same_in_whatever_pieces_it_comes() {
        let whole = PRINTED.map(|(text, _)| text).concat();
        let (mut whole_told, mut running) = (Running::default(), Running::default());
        whole_told.handle_output(whole.as_bytes(), Duration::from_secs(1)).unwrap();
        for byte in whole.bytes() {
            running.handle_output(&[byte], Duration::from_secs(1)).unwrap();
        }
        assert_eq!(running.end(&ASKED).unwrap(), whole_told.end(&ASKED).unwrap());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let with = |from: &str, to: &str| {
            let pieces = PRINTED.map(|(text, at)| (text.replace(from, to), at));
            let pieces: Vec<(&str, u64)> = pieces.iter().map(|(text, at)| (&**text, *at)).collect();
            run(&pieces, &ASKED).unwrap_err()
        };
        assert_eq!(
            run(&PRINTED[..5], &ASKED).unwrap_err(),
            "PostMark: ended before it reported, seen \"\""
        );
        let why = with("Done\nDeleting", "Error: no room\nDeleting");
        assert!(why.starts_with("PostMark: expected a point or \"Done\" among its transactions, seen \"Error: no room"), "{why}");
        assert!(
            with(" 26348366.00", "")
                .starts_with("PostMark: expected a report of 13 values, seen \"26 25 ")
        );
        assert!(with("26348366.00", "many").ends_with("26187358.00 many\""));
        assert_eq!(
            with("8000.00", "7999.00"),
            "PostMark: expected 200000 transactions, seen 199975"
        );
        assert_eq!(
            with("transactions.", "transactions"),
            "PostMark: expected 10 points among its transactions, seen 9"
        );
        let (mut running, much) = (Running::default(), vec![b'x'; PRINTED_MAX + 1]);
        assert!(running.handle_output(&much, Duration::ZERO).is_err());
    }

    #[test]
    fn files_and_transactions_follow_from_the_size() {
        let asked = Asked::of(5 << 20, 1 << 31 | 3);
        assert_eq!(asked, Asked { files: 990, transactions: 9900, seed: 3 });
        assert_eq!(Asked::of(1, 1).files, 10);
        let commands = asked.commands();
        assert!(commands.starts_with(
            "set number 990\nset transactions 9900\nset size 500 10000\nset seed 3\n"
        ));
    }
}
