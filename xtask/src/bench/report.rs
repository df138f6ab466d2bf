//! The figures of a bench: the table (plain or Markdown), the JSON file.
//!
//! A case has a row for each of its figures. In the first stand the operations a second, the mean
//! latency and the target's CPU an operation of the reference that counts and of Plateway, by their
//! medians; further figures stand in rows of their own. The terminal's table fits 120 columns.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use lab::statistics::Held;
use serde_json::{Value, json};

use super::cases::{Bound, Case};
use super::judge::{Judged, Reference, Rounds, Speed, median};
use super::plan::Plan;
use crate::tree::Tree;

/// From this share of its CPU on a client may be what limits.
const CLIENT_LIMITS: f64 = 0.97;
/// What says so in the table.
const BUSY: &str = " *";
/// What says that a CPU was hardly idle, where the links are to be what limits.
const BOUND: &str = " +";
/// What is said where more than a third of the rounds never became steady.
pub(super) const RESTLESS: &str = "restless";
/// What says that there is a reason to doubt the interval, which stands below.
const DOUBT: &str = " ?";

/// The rows of a case.
pub(super) struct Row {
    name: String,
    /// What stands behind the name: reference, subject, ratio, wanted, verdict.
    lines: Vec<[String; 5]>,
    /// Why there is no figure.
    trouble: Option<String>,
    /// What stood beside.
    beside: Option<String>,
    json: Value,
}

impl Row {
    /// Judges what was measured; a case that could not run says why.
    pub(super) fn new(case: &Case, measured: Result<Rounds>) -> Self {
        let json = json!({"case": case.name, "about": case.about, "wanted": case.wanted()});
        let rounds = match measured {
            Ok(rounds) => rounds,
            Err(error) => {
                let trouble = format!("{error:#}");
                let mut json = json;
                json["verdict"] = "not run".into();
                json["error"] = json!(trouble);
                let alone = case.references.is_empty();
                let line = |bound: &Bound| {
                    ["-", "-", "-", &bound.wanted(alone), "not run"].map(str::to_owned)
                };
                let lines = case.figures.iter().map(line).collect();
                let name = case.name.clone();
                return Self { name, lines, trouble: Some(trouble), beside: None, json };
            }
        };
        let mut row = Self {
            name: case.name.clone(),
            lines: Vec::new(),
            trouble: None,
            beside: compared(case, &rounds),
            json,
        };
        let chosen = rounds.chosen(case);
        let (busy, bound_by_cpu) = (is_client_busy(&rounds), is_cpu_bound(&rounds));
        let mut figures = Vec::new();
        for (at, bound) in case.figures.iter().enumerate() {
            let judged = rounds.judge(case, bound, chosen);
            let [reference, subject] = match at {
                0 => first_cells(case, &rounds, chosen, bound, &judged),
                _ => further_cells(bound, &judged),
            };
            let alone = judged.reference.is_none();
            let ratio = judged.ratio.as_ref();
            let shown_ratio = ratio.map_or_else(|| "-".to_owned(), ToString::to_string);
            let verdict = match judged.held(bound) {
                None => String::new(),
                Some(_) if rounds.is_restless && ratio.is_some() => RESTLESS.to_owned(),
                Some(held) => held.to_string(),
            };
            let mark = [(busy, BUSY), (bound_by_cpu, BOUND), (rounds.doubt.is_some(), DOUBT)];
            let mark: String = mark.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            let shown = format!("{verdict}{mark}");
            row.lines.push([reference, subject, shown_ratio, bound.wanted(alone), shown]);
            figures.push(json!({
                "figure": format!("{:?}", bound.of), "wanted": bound.wanted(alone),
                "reference": judged.reference, "subject": judged.subject,
                "ratios": ratio.map(|ratio| &ratio.values),
                "estimate": ratio.and_then(|ratio| ratio.estimate),
                "verdict": verdict, "rounds_to_settle": to_settle(bound, &judged),
            }));
        }
        row.tell(case, &rounds, chosen, figures);
        row.json["doubt"] = rounds.doubt.clone().into();
        row.json["client_busy"] = busy.into();
        row.json["cpu_bound"] = bound_by_cpu.into();
        row
    }

    /// What is stored of a case that was measured.
    fn tell(
        &mut self,
        case: &Case,
        rounds: &Rounds,
        chosen: Option<Reference>,
        figures: Vec<Value>,
    ) {
        let name = |side: usize| match case.references.get(side) {
            Some(reference) => reference.name.as_deref().unwrap_or("reference"),
            None if side == case.references.len() => {
                case.subject.name.as_deref().unwrap_or("plateway")
            }
            None => "beside",
        };
        let sides = 0..rounds.seen.first().map_or(0, Vec::len);
        let told = |side: usize| {
            let Speed { iops, latency_us, cpu_us } = rounds.speed(side);
            json!({"side": name(side), "iops": iops, "latency_us": latency_us,
                   "target_cpu_us_per_op": cpu_us})
        };
        let any = |verdict: &str| figures.iter().any(|figure| figure["verdict"] == verdict);
        let worst = ["short", RESTLESS, "open"].into_iter().find(|verdict| any(verdict));
        self.json["verdict"] = worst.unwrap_or("ok").into();
        self.json["reference"] = by(case, chosen).map(name).collect();
        self.json["sides"] = sides.map(told).collect();
        self.json["figures"] = figures.into();
        self.json["rounds"] = json!(rounds.seen);
        self.json["unsteady_rounds"] = json!(rounds.unsteady);
    }

    /// Why its interval is to be doubted.
    fn doubt(&self) -> Option<&str> {
        self.json["doubt"].as_str()
    }

    /// A row of another table: what stands behind its name, and what is stored of it.
    pub(super) fn of(name: &str, cells: [String; 5], trouble: Option<String>, json: Value) -> Self {
        Self { name: name.to_owned(), lines: vec![cells], trouble, beside: None, json }
    }

    /// What is said of its first line.
    #[cfg(test)]
    pub(super) fn verdict(&self) -> &str {
        &self.lines[0][4]
    }

    #[cfg(test)]
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

/// The sides that a subject is divided by.
fn by(case: &Case, chosen: Option<Reference>) -> core::ops::Range<usize> {
    match chosen {
        Some(Reference::Side(side)) => side..side + 1,
        Some(Reference::Sum) => 0..case.references.len(),
        None => 0..0,
    }
}

/// About how many rounds would decide what is open.
fn to_settle(bound: &Bound, judged: &Judged) -> Option<usize> {
    let ratio = judged.ratio.as_ref()?;
    let estimate = ratio.estimate.as_ref()?;
    let is_open = judged.held(bound) == Some(Held::Open);
    bound.limit().filter(|_| is_open)?.rounds_to_settle(estimate, ratio.values.len())
}

/// Whether the load was busy in any window.
fn is_client_busy(rounds: &Rounds) -> bool {
    let busy = |raw: &Value| raw["client_busy"].as_f64().is_some_and(|busy| busy > CLIENT_LIMITS);
    rounds.seen.iter().flatten().any(busy)
}

/// Whether in any window one of the CPUs was busy on which a network runs.
fn is_cpu_bound(rounds: &Rounds) -> bool {
    rounds.seen.iter().flatten().any(|raw| raw["cpu_bound"] == true)
}

/// Reference and subject in the first row of a case: how fast they were, and the figure if that does
/// not tell it.
fn first_cells(
    case: &Case,
    rounds: &Rounds,
    chosen: Option<Reference>,
    bound: &Bound,
    judged: &Judged,
) -> [String; 2] {
    let [reference, subject] = match bound.of.is_in_every_line() {
        true => [String::new(), String::new()],
        false => further_cells(bound, judged),
    };
    let join = |parts: &[&str]| {
        let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
    };
    let names: Vec<&str> =
        by(case, chosen).filter_map(|side| case.references.get(side)?.name.as_deref()).collect();
    let of_reference = match chosen {
        Some(Reference::Side(side)) => rounds.speed(side).to_string(),
        Some(Reference::Sum) => judged.reference.map_or_else(String::new, |sum| bound.of.show(sum)),
        None => String::new(),
    };
    let of_subject = rounds.speed(case.references.len()).to_string();
    let own = case.subject.name.as_deref().unwrap_or_default();
    [join(&[&names.join("+"), &of_reference, &reference]), join(&[own, &of_subject, &subject])]
}

/// Reference and subject in a further row: the figure, if the first row does not tell it.
fn further_cells(bound: &Bound, judged: &Judged) -> [String; 2] {
    if bound.of.is_in_every_line() {
        return [String::new(), String::new()];
    }
    let reference = judged.reference.map(|reference| bound.of.show(reference));
    [reference.unwrap_or_default(), bound.of.show(judged.subject)]
}

/// What stood beside, and what both sides are of it.
fn compared(case: &Case, rounds: &Rounds) -> Option<String> {
    let figure = case.figures.first()?.of;
    let subject = case.references.len();
    let beside = rounds.of(subject + 1, figure);
    let Some(side) = case.beside.as_ref().filter(|_| !beside.is_empty()) else {
        return rounds.alone.clone();
    };
    let ratio = |side: usize| rounds.ratio(figure, side, Reference::Side(subject + 1));
    let (reference, subject) = (ratio(0)?, ratio(subject)?);
    let bare = case.references.first().and_then(|side| side.server.as_ref());
    let bare = bare.map_or("the reference", Plan::bare);
    Some(format!(
        "{} {}; {bare} {reference} of it, plateway {subject}",
        side.name.as_deref().unwrap_or("beside"),
        figure.show(median(&beside)),
    ))
}

/// As `816k 39.1us 1.23us`: operations a second, mean latency, CPU an operation; nothing of what
/// did no operations.
impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(iops) = self.iops else { return Ok(()) };
        let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), micros);
        write!(f, "{} {} {}", thousands(iops), or_dash(self.latency_us), or_dash(self.cpu_us))
    }
}

/// Three digits with a unit of thousands.
fn thousands(value: f64) -> String {
    match value {
        small if small < 999.5 => format!("{small:.0}"),
        small if small < 9_995.0 => format!("{:.2}k", small / 1e3),
        some if some < 99_950.0 => format!("{:.1}k", some / 1e3),
        many if many < 999_500.0 => format!("{:.0}k", many / 1e3),
        most => format!("{:.2}M", most / 1e6),
    }
}

/// Microseconds in three digits or so.
fn micros(value: f64) -> String {
    match value {
        short if short < 9.995 => format!("{short:.2}us"),
        short if short < 99.95 => format!("{short:.1}us"),
        middle if middle < 999.5 => format!("{middle:.0}us"),
        long => format!("{:.1}ms", long / 1e3),
    }
}

/// The headings of the table, where the ceiling is the reference.
const HEAD: [&str; 6] = ["case", "reference", "plateway", "ratio (95%)", "wanted", "verdict"];

/// What the columns of [`HEAD`] have.
const LEGEND: &str = "Of each side, medians: operations a second, mean latency, CPU of the target an operation. Ratios: geometric means\n\
                      with intervals. ok: all of the interval keeps what is wanted; short: none of it does; open: more rounds would tell;\n\
                      restless: the machine was not ours alone, and nothing can be said.";

/// The table for a terminal or for docs/performance.md.
pub(super) fn table(rows: &[Row], environment: &Value, markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(HEAD);
    for row in rows {
        for (at, cells) in row.lines.iter().enumerate() {
            let name = if at == 0 || markdown { row.name.as_str() } else { "" };
            table.add_row([name].into_iter().chain(cells.iter().map(String::as_str)));
        }
    }
    if !markdown {
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let marked = |mark| rows.iter().flat_map(|row| &row.lines).any(|cells| cells[4].contains(mark));
    text += &format!("\n{LEGEND}\n");
    if marked(BUSY) {
        text += "* The client was busy all the time, and may be what limits.\n";
    }
    if marked(BOUND) {
        text += "+ CPU-bound: routers or ends had less than a fifth of a CPU idle.\n";
    }
    for row in rows {
        if let Some(trouble) = &row.trouble {
            text += &format!("\n{}: {trouble}\n", row.name);
        }
    }
    for (name, doubt) in rows.iter().filter_map(|row| Some((&row.name, row.doubt()?))) {
        text += &format!("\n{name}?: {doubt}\n");
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
    use super::super::judge::tests::{case, rounds, rounds_of};
    use super::*;

    #[test]
    fn the_table_is_of_words_in_columns_or_markdown() {
        let cells = ["1", "2", "0.5", "stated", ""].map(str::to_owned);
        let rows = [Row::of("a-case", cells, Some("it rained".to_owned()), Value::Null)];
        let text = |markdown| table(&rows, &json!({"commit": "abc"}), markdown);
        assert!(text(true).contains("\n| a-case | 1         | 2        |"), "{}", text(true));
        let plain = text(false);
        assert!(plain.lines().nth(1).is_some_and(|line| line.trim().starts_with("a-case 1 ")));
        assert!(plain.contains("\na-case: it rained\n") && plain.contains("Commit abc"), "{plain}");
    }

    #[test]
    fn a_row_says_how_fast_both_are_and_names_the_reference() {
        let case = case("128k-rfill-read-32");
        let seen: [&[f64]; 2] = [&[400_000.0, 800_000.0, 760_000.0], &[1.0, 800_000.0, 750_000.0]];
        let row = Row::new(&case, Ok(rounds(&case, &seen)));
        assert_eq!(row.json["reference"], json!(["spin50"]));
        assert_eq!(row.json["sides"][2]["iops"], 755_000.0);
        assert_eq!(row.json["figures"][1]["verdict"], "open", "of two rounds: {}", row.json);
        assert_eq!(row.json["verdict"], "open");
        let text = table(&[row], &Value::Null, false);
        assert!(text.contains("spin50 800k 1.25us"), "{text}");
        assert!(text.contains("0.944 (") && text.contains("iops >= 0.95"), "{text}");
    }

    #[test]
    fn the_table_of_all_cases_fits_a_terminal() {
        let seen = json!({
            "ops": 100, "iops": 123_456.0, "latency_us": {"mean": 1234.0, "p50": 1234.0}, "load_cpu_us_per_op": 2.34,
            "mb_per_second": 1234.0, "start_seconds": 12.34, "forwarded_share": 0.1, "flood_by_peak": 2.0, "idle_connections": 1, "hog_loops": 1234.0,
            "to_backup_ms": {"median": 123.4, "max": 1234.5}, "stall_more_ms": {"max": 123.4}, "errors": 0, "moves": 0,
            "early": 0, "cpu_us_per_frame": 12.3, "overload_share": 0.1, "after_share": 0.1, "keep_alives": 100, "client_busy": 1.0,
            "target": {"ops_per_cpu_second": 1e6, "busy": 1.0, "voluntary_switches": 12_345,
                       "cpu_seconds": 0.001, "resident": 12_345_678, "resident_before": 345_678},
        });
        let cases = super::super::cases::all().unwrap();
        let row = |case: &Case| {
            let mut seen = seen.clone();
            // Who is idle does no operations.
            if case.references.is_empty() || case.name.contains("idle") {
                seen["iops"] = Value::Null;
            }
            let round = vec![seen; case.sides().count()];
            if case.references.is_empty() {
                return Row::new(case, Ok(Rounds { seen: vec![round], ..Rounds::default() }));
            }
            Row::new(case, Ok(rounds_of(case, vec![round; 6])))
        };
        let mut rows: Vec<Row> = cases.iter().map(row).collect();
        rows.extend(cases.iter().map(|case| Row::new(case, Err(anyhow::anyhow!("no")))));
        rows.iter_mut().for_each(|row| row.beside = None);
        let text = table(&rows, &Value::Null, false);
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 120, "{}: {widest}", widest.chars().count());
    }

    #[test]
    fn of_a_restless_machine_nothing_is_said_but_why() {
        let case = case("128k-rfill-read-32");
        let mut seen = rounds(&case, &[&[1e6, 8e5, 9.9e5], &[1e6, 8e5, 9.8e5]]);
        (seen.is_restless, seen.doubt) = (true, Some("somebody else was there".to_owned()));
        let row = Row::new(&case, Ok(seen));
        assert_eq!(row.json["verdict"], RESTLESS);
        let text = table(&[row], &Value::Null, false);
        assert!(text.contains("128k-rfill-read-32?: somebody else was there"), "{text}");
    }

    #[test]
    fn a_sum_stands_in_the_place_of_the_reference() {
        let seen = |us: f64| json!({"iops": 1e6 / us, "latency_us": {"mean": us}});
        let case = case("file-4k-read-1");
        let rounds = rounds_of(&case, vec![[80.0, 20.0, 120.0].map(seen).to_vec()]);
        let row = Row::new(&case, Ok(rounds));
        assert_eq!(row.lines[0][..2], ["fio+RAM 100.00us", "8.33k 120us -"]);
        assert_eq!(row.lines[0][4], "short");
    }

    #[test]
    fn a_case_that_was_not_measured_says_why() {
        let row = Row::new(&case("initiator"), Err(anyhow::anyhow!("no")));
        assert_eq!((row.lines[0][4].as_str(), row.trouble.as_deref()), ("not run", Some("no")));
    }

    #[test]
    fn numbers_keep_three_digits() {
        let all = [7.4, 8_333.0, 83_333.0, 999_400.0, 1_234_000.0].map(thousands);
        assert_eq!(all, ["7", "8.33k", "83.3k", "999k", "1.23M"]);
        assert_eq!(
            [1.234, 12.34, 123.4, 12_340.0].map(micros),
            ["1.23us", "12.3us", "123us", "12.3ms"]
        );
    }

    #[test]
    fn what_stands_beside_is_compared_within_a_round_too() {
        let case = case("mpls-swap-ring");
        let seen: [&[f64]; 2] = [&[200e3, 190e3, 100e3], &[20e3, 19e3, 10e3]];
        let text = compared(&case, &rounds(&case, &seen)).expect("something beside");
        assert!(text.contains("the bare forwarder 2.000 (2.000..2.000) of it"), "{text}");
        assert!(text.ends_with("plateway 1.900 (1.900..1.900)"), "{text}");
        assert_eq!(compared(&case, &rounds(&case, &[&[200e3, 190e3]])), None);
    }
}
