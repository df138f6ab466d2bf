//! The figures of a bench: medians, the table (plain or Markdown), the JSON file.
//!
//! A ratio is taken within a round, so that a drift of the machine cancels; of the ratios the
//! median counts, with the lowest and highest beside it. Limits are shown by the same columns.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::cases::{Case, Figure};
use crate::tree::Tree;

/// From this share of its CPU on a client may be what limits.
const CLIENT_LIMITS: f64 = 0.97;
/// What the bare AoE responder has to be of vblade, to be worth the name.
const BARE_BY_VBLADE: f64 = 1.8;

/// What the rounds of a case gave.
#[derive(Default)]
pub(super) struct Measured {
    reference: Vec<f64>,
    subject: Vec<f64>,
    beside: Vec<f64>,
    /// Why nothing stood beside, where something should.
    pub(super) alone: Option<String>,
    client_busy: f64,
    pub(super) raw: Vec<Value>,
}

impl Measured {
    /// Adds a round: reference, then subject.
    pub(super) fn add(&mut self, pair: [f64; 2]) {
        self.reference.push(pair[0]);
        self.subject.push(pair[1]);
    }

    /// Adds what stood beside in the same round.
    pub(super) fn add_beside(&mut self, figure: f64) {
        self.beside.push(figure);
    }

    /// Remembers how busy the load was.
    pub(super) fn note(&mut self, raw: &Value) {
        let busy = raw["client_busy"].as_f64().unwrap_or(0.0);
        self.client_busy = self.client_busy.max(busy);
    }

    fn ratios(&self) -> Vec<f64> {
        ratios(&self.subject, &self.reference)
    }

    /// What stood beside, and what both sides are of it.
    fn compared(&self, figure: Figure) -> Option<String> {
        if self.beside.is_empty() {
            return self.alone.clone();
        }
        let reference = ratios(&self.reference, &self.beside);
        let subject = ratios(&self.subject, &self.beside);
        let verdict = if median(&reference) >= BARE_BY_VBLADE { "ok" } else { "short" };
        Some(format!(
            "vblade {}; the bare responder {} of it (wanted >= {BARE_BY_VBLADE:.2}: {verdict}), plateway {}",
            figure.show(median(&self.beside)),
            spread(&reference),
            spread(&subject),
        ))
    }
}

/// A line of the table.
pub(super) struct Row {
    name: String,
    wanted: String,
    reference: String,
    subject: String,
    ratio: String,
    verdict: String,
    /// Why there is no figure.
    trouble: Option<String>,
    /// What stood beside.
    beside: Option<String>,
    json: Value,
}

impl Row {
    /// Judges what was measured; a case that could not run says why.
    pub(super) fn new(case: &Case, measured: Result<Measured>) -> Self {
        let mut row = Self {
            name: case.name.clone(),
            wanted: case.wanted(),
            reference: "-".to_owned(),
            subject: "-".to_owned(),
            ratio: "-".to_owned(),
            verdict: String::new(),
            trouble: None,
            beside: None,
            json: json!({"case": case.name, "about": case.about, "wanted": case.wanted()}),
        };
        let measured = match measured {
            Ok(measured) => measured,
            Err(error) => {
                row.verdict = "not measured".to_owned();
                row.trouble = Some(format!("{error:#}"));
                row.json["verdict"] = json!(row.verdict);
                row.json["error"] = json!(row.trouble);
                return row;
            }
        };
        let subject = median(&measured.subject);
        let (values, judged) = match case.reference {
            Some(_) => {
                row.reference = case.figure.show(median(&measured.reference));
                let ratios = measured.ratios();
                let middle = median(&ratios);
                row.ratio = spread(&ratios);
                row.beside = measured.compared(case.figure);
                (ratios, middle)
            }
            None => (measured.subject.clone(), subject),
        };
        row.subject = case.figure.show(subject);
        row.verdict = match case.met(judged) {
            None => "",
            Some(true) => "ok",
            Some(false) => "short",
        }
        .to_owned();
        if measured.client_busy > CLIENT_LIMITS {
            row.verdict += ", the client was busy all the time";
        }
        row.json["figure"] = json!(format!("{:?}", case.figure));
        row.json["reference"] = json!(measured.reference);
        row.json["subject"] = json!(measured.subject);
        row.json["judged"] = json!({"median": judged, "values": values});
        row.json["verdict"] = json!(row.verdict);
        row.json["beside"] = json!(measured.beside);
        row.json["rounds"] = json!(measured.raw);
        row
    }

    /// A line of another table: what stands behind its name, and what is stored of it.
    pub(super) fn of(name: &str, cells: [String; 5], trouble: Option<String>, json: Value) -> Self {
        let [reference, subject, ratio, wanted, verdict] = cells;
        let name = name.to_owned();
        Self { name, wanted, reference, subject, ratio, verdict, trouble, beside: None, json }
    }

    fn cells(&self) -> [&str; 6] {
        [&self.name, &self.reference, &self.subject, &self.ratio, &self.wanted, &self.verdict]
    }
}

/// The headings of the table, where the ceiling is the reference.
pub(super) const HEAD: [&str; 6] =
    ["case", "reference", "plateway", "ratio: median (min..max)", "wanted", "verdict"];

/// Pair by pair, the first by the second.
fn ratios(of: &[f64], by: &[f64]) -> Vec<f64> {
    of.iter().zip(by).map(|(of, by)| of / by).collect()
}

/// The median with the lowest and the highest.
fn spread(values: &[f64]) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.3} ({lowest:.3}..{highest:.3})", median(values))
}

/// The median; the mean of the middle two of an even number, NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// The table for a terminal or for docs/performance.md.
pub(super) fn table(head: [&str; 6], rows: &[Row], environment: &Value, markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(head).add_rows(rows.iter().map(Row::cells));
    let mut text = format!("{}\n", table.trim_fmt());
    for row in rows {
        if let Some(trouble) = &row.trouble {
            text += &format!("\n{}: {trouble}\n", row.name);
        }
    }
    for row in rows {
        if let Some(beside) = &row.beside {
            let bullet = if markdown { "- " } else { "" };
            text += &format!("\n{bullet}{}: {beside}\n", row.name);
        }
    }
    let say = |name: &str| environment[name].as_str().unwrap_or("unknown").to_owned();
    let _ = write!(
        text,
        "\nCommit {}, Linux {}, {} CPUs ({}).\n",
        say("commit"),
        say("kernel"),
        environment["cpus"],
        say("cpu")
    );
    text
}

/// What the figures depend on: commit, kernel, processor.
pub(super) fn environment(tree: &Tree) -> Value {
    let says = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(&tree.root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "commit": says("git", &["describe", "--always", "--dirty"]),
        "kernel": says("uname", &["-r"]),
        "cpu": model.map(|(_, name)| name),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "load_average": fs::read_to_string("/proc/loadavg").ok().map(|text| text.trim().to_owned()),
    })
}

/// Writes the figures to a file of their own and to `latest.json`.
pub(super) fn store(
    tree: &Tree,
    plan: &Value,
    environment: &Value,
    rows: &[Row],
) -> Result<PathBuf> {
    let dir = tree.target.join("bench");
    fs::create_dir_all(&dir)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let cases: Vec<&Value> = rows.iter().map(|row| &row.json).collect();
    let value = json!({"time": seconds, "plan": plan, "environment": environment, "cases": cases});
    let text = serde_json::to_string_pretty(&value)?;
    let path = dir.join(format!("{seconds}.json"));
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::write(dir.join("latest.json"), text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_of_words_in_columns_or_markdown() {
        let cells = ["1", "2", "0.5", "stated", ""].map(str::to_owned);
        let rows = [Row::of("a-case", cells, Some("it rained".to_owned()), Value::Null)];
        let text = |markdown| table(HEAD, &rows, &json!({"commit": "abc"}), markdown);
        assert!(text(true).contains("\n| a-case | 1         | 2        |"), "{}", text(true));
        let plain = text(false);
        assert!(plain.lines().nth(1).is_some_and(|line| line.trim().starts_with("a-case  1 ")));
        assert!(plain.contains("\na-case: it rained\n") && plain.contains("Commit abc"), "{plain}");
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_ratio_is_taken_within_a_round_and_then_the_median() {
        let mut measured = Measured::default();
        for pair in [[100.0, 90.0], [10.0, 9.5], [1000.0, 850.0]] {
            measured.add(pair);
        }
        assert!((median(&measured.ratios()) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn what_stands_beside_is_compared_within_a_round_too() {
        let mut measured = Measured::default();
        assert_eq!(measured.compared(Figure::Iops), None);
        for (pair, beside) in
            [([200_000.0, 190_000.0], 100_000.0), ([20_000.0, 18_000.0], 10_000.0)]
        {
            measured.add(pair);
            measured.add_beside(beside);
        }
        let text = measured.compared(Figure::Iops).expect("something beside");
        assert!(text.contains("2.000 (2.000..2.000) of it (wanted >= 1.80: ok)"), "{text}");
        assert!(text.ends_with("plateway 1.850 (1.800..1.900)"), "{text}");
    }
}
