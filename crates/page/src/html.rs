//! The page: figures, verdicts in words, all cells, what to know before believing, and the plan.
//!
//! One file, which loads nothing and runs nothing: rules stand in its head, figures in its body,
//! and files of them in addresses of their own (`data:`). Text of the result file is escaped wherever
//! it is written. On paper, what is folded stays away.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lab::kept::{Kept, Trial};
use lab::plan::{GroupResults, Measure, SystemMoved};
use lab::statistics::{Moved, median};

use crate::figures::{Drawing, provenance, rounds};
use crate::scene::{Runs, scenes, system_of};
use crate::svg::{RULES, WIDTH};
use crate::table::Table;
use crate::words::{escaped, percent_encoded};

const PAGE_RULES: &str = include_str!("page.css");

pub(crate) fn page(kept: &Kept, drawings: &[Drawing]) -> String {
    let figures: String = drawings.iter().map(figure).collect();
    let body = format!(
        "<section class=\"figures\" aria-label=\"Figures\">\n{figures}</section>\n{verdicts}{rest}",
        verdicts = verdicts(kept),
        rest = of_run(kept),
    );
    document(&kept.results.plan, &header(kept), &body)
}

/// All cells of a plan, what to know before believing it, what failed, and its file.
pub(crate) fn of_run(kept: &Kept) -> String {
    cells(kept) + &notes(kept) + &failures(kept) + &plan(kept)
}

/// A whole file.
pub(crate) fn document(title: &str, header: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
         <style>\n{RULES}{PAGE_RULES}</style>\n</head>\n<body>\n{header}\n<main>\n\
         {body}</main>\n</body>\n</html>\n"
    )
}

/// What it was about, where and when.
fn header(kept: &Kept) -> String {
    let mut text = format!("<header>\n<h1>{}</h1>\n", escaped(&kept.results.plan));
    if let Ok(Some(about)) = kept.experiment().map(|experiment| experiment.about) {
        let _ = writeln!(text, "<p class=\"about\">{}</p>", escaped(&about));
    }
    let rounds = rounds(kept);
    let spent = spent(kept.results.spent.as_secs_f64());
    let _ = writeln!(
        text,
        "<p class=\"quiet\">{} · took {spent}</p>",
        escaped(&provenance(kept, rounds))
    );
    text + "</header>"
}

/// Every comparison as the terminal says it, with what casts doubt on it.
fn verdicts(kept: &Kept) -> String {
    let groups = kept.results.groups.iter();
    let mut items = String::new();
    for finding in groups.flat_map(|group| &group.analysis.findings) {
        let (name, said) = (finding.label(), finding.said());
        let _ = writeln!(items, "<li>{} <b>{}</b></li>", escaped(&name), escaped(&said));
    }
    if items.is_empty() {
        return items;
    }
    format!("<section><h2>In words</h2>\n<ul class=\"verdicts\">\n{items}</ul></section>\n")
}

/// "2 min 25 s"
fn spent(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

pub(crate) fn figure(drawing: &Drawing) -> String {
    let Drawing { name, title, caption, spoken, provenance, panels, table } = drawing;
    let wide = if panels.len() > 1 { " class=\"wide\"" } else { "" };
    let label = escaped(&format!("{title}. {spoken}"));
    let mut drawn = String::new();
    for (place, panel) in panels.iter().enumerate() {
        // What is told once need not be told for each panel.
        let spoken = match place {
            0 => format!("role=\"img\" aria-label=\"{label}\""),
            _ => "aria-hidden=\"true\"".to_owned(),
        };
        let _ = writeln!(
            drawn,
            "<svg class=\"figure\" viewBox=\"0 0 {WIDTH} {:.0}\" {spoken}>\n{}</svg>",
            panel.height, panel.body
        );
    }
    let svg = percent_encoded(&drawing.svg());
    let csv = percent_encoded(&table.csv());
    let (title, caption, provenance) = (escaped(title), escaped(caption), escaped(provenance));
    format!(
        "<figure id=\"{name}\"{wide}>\n<figcaption><h3>{title}</h3><p>{caption}</p></figcaption>\n\
         <div class=\"panels\">\n{drawn}</div>\n<p class=\"provenance\">{provenance}</p>\n\
         <details><summary>Data, {rows} rows\
         <a download=\"{name}.csv\" href=\"data:text/csv;charset=utf-8,{csv}\">CSV</a>\
         <a download=\"{name}.svg\" href=\"data:image/svg+xml;charset=utf-8,{svg}\">SVG</a></summary>\n\
         {data}</details>\n</figure>\n",
        rows = table.rows.len(),
        data = table.html(),
    )
}

/// A row each cell, medians over the rounds that count.
fn cells(kept: &Kept) -> String {
    let mut table = Table::new([
        "cell", "trials", "IOPS", "MB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "CPU us",
        "near us", "far us", "frames", "bytes", "core", "lost %",
    ]);
    for scene in &scenes(kept) {
        for runs in &scene.runs {
            let trials = runs.trials.as_slice();
            table.rows.push(cell_row(&runs.cell, trials));
        }
    }
    for cell in &kept.results.pictures {
        let trial = |trial: &&Trial| trial.cell == cell.cell && trial.round.is_none();
        let trials: Vec<&Trial> = kept.trials.iter().filter(trial).collect();
        table.rows.push(cell_row(&cell.cell, &trials));
    }
    let html = table.html();
    format!(
        "<section class=\"cells\"><h2>All cells</h2>\n<p class=\"quiet\">Medians over the rounds that count; a cell of \
         a picture ran once. CPU (of both ends, and of each), frames and bytes on the wire and in a core are an operation's; lost are frames that a path loses on purpose.</p>\n{html}</section>\n"
    )
}

fn cell_row(cell: &str, trials: &[&Trial]) -> Vec<crate::table::Datum> {
    let runs = Runs {
        system: system_of(cell),
        cell: cell.to_owned(),
        is_null: false,
        trials: trials.to_vec(),
    };
    let of = |measure: Measure, unit: f64| median(&runs.values(measure)).map(|v| rounded(v / unit));
    let end = |value: Option<f64>| value.map(rounded);
    vec![
        cell.into(),
        (trials.len() as f64).into(),
        of(Measure::Iops, 1.0).map(f64::round).into(),
        of(Measure::Throughput, 1e6).into(),
        of(Measure::LatencyMean, 1e3).into(),
        of(Measure::P50, 1e3).into(),
        of(Measure::P99, 1e3).into(),
        of(Measure::P99_9, 1e3).into(),
        of(Measure::CpuPerOp, 1.0).into(),
        end(runs.median(|trial| trial.near.as_ref()?.cpu_us_per_op)).into(),
        end(runs.median(|trial| trial.far.as_ref()?.cpu_us_per_op)).into(),
        end(runs.median(|trial| trial.frames_per_op)).into(),
        end(runs.median(|trial| trial.wire_bytes_per_op)).into(),
        end(runs.median(|trial| trial.core_bytes_per_op)).into(),
        end(runs.median(|trial| Some(trial.lost_share? * 100.0))).into(),
    ]
}

/// With four digits that count.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let places = 10_f64.powf((3.0 - value.abs().log10().floor()).clamp(0.0, 9.0));
    (value * places).round() / places
}

/// What to know before believing it: of rounds, of who moved, and what trials said.
fn notes(kept: &Kept) -> String {
    let mut notes: Vec<String> = kept.results.groups.iter().flat_map(notes_of).collect();
    notes.extend(notes_of_trials(kept));
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note))).collect();
    format!(
        "<section><h2>To know before believing</h2>\n<ul class=\"notes\">\n{items}</ul></section>\n"
    )
}

fn notes_of(group: &GroupResults) -> Vec<String> {
    let analysis = &group.analysis;
    let mut notes = vec![format!(
        "{}: {} of {} planned rounds count; {} were run, repeats included, and {} never became steady",
        group.name,
        analysis.rounds_used,
        analysis.rounds_planned.map_or("no".to_owned(), |rounds| rounds.to_string()),
        analysis.rounds_run,
        analysis.rounds_unsteady,
    )];
    let unsteady = group.systems.iter().zip(&analysis.unsteady_trials);
    let unsteady: Vec<String> = unsteady
        .filter(|(_, trials)| **trials > 0)
        .map(|(system, trials)| format!("{system} {trials}"))
        .collect();
    if !unsteady.is_empty() {
        notes.push(format!("{}: trials that were not steady: {}", group.name, unsteady.join(", ")));
    }
    for SystemMoved { column, moved } in &group.moved {
        if *moved != Moved::Neither {
            let system = &group.systems[column.system];
            notes.push(format!("{}: {} of {system}: {moved}", group.name, column.measure));
        }
    }
    notes
}

/// Notes of a cell that differ in numbers alone are one, with how often it was said.
fn notes_of_trials(kept: &Kept) -> Vec<String> {
    let mut said: BTreeMap<(&str, String), Vec<Vec<u64>>> = BTreeMap::new();
    for trial in &kept.trials {
        for note in &trial.notes {
            let (pattern, numbers) = numbers_of(note);
            said.entry((&trial.cell, pattern)).or_default().push(numbers);
        }
    }
    let mut trials: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in &kept.trials {
        *trials.entry(&trial.cell).or_default() += 1;
    }
    let each = said.into_iter().map(|((cell, pattern), all)| {
        let note = with_ranges(&pattern, &all);
        format!("{cell}: {note} ({} of {} trials)", all.len(), trials[cell])
    });
    each.collect()
}

/// A note with a mark where numbers stood, and these.
fn numbers_of(note: &str) -> (String, Vec<u64>) {
    let (mut pattern, mut numbers) = (String::new(), Vec::new());
    let mut rest = note;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[start..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        match digits[..end].parse() {
            Ok(number) => {
                pattern += &rest[..start];
                pattern.push(MARK);
                numbers.push(number);
            }
            // More digits than a number has are text.
            Err(_) => pattern += &rest[..start + end],
        }
        rest = &digits[end..];
    }
    (pattern + rest, numbers)
}

/// Of a place where a number stood: no text has it, since it is no character.
const MARK: char = '\u{fdd0}';

fn with_ranges(pattern: &str, all: &[Vec<u64>]) -> String {
    let mut text = String::new();
    for (place, piece) in pattern.split(MARK).enumerate() {
        if let Some(place) = place.checked_sub(1) {
            let values = || all.iter().filter_map(|numbers| numbers.get(place).copied());
            let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
            text += &low.to_string();
            if low < high {
                let _ = write!(text, " to {high}");
            }
        }
        text += piece;
    }
    text
}

fn failures(kept: &Kept) -> String {
    let failed = kept.results.failures.iter().map(|failure| (&failure.cell, &failure.why));
    let of_trials =
        kept.trials.iter().filter_map(|trial| Some((&trial.cell, trial.failed.as_ref()?)));
    let mut all: Vec<(&String, &String)> = failed.collect();
    all.extend(of_trials.filter(|failure| {
        !kept.results.failures.iter().any(|known| (&known.cell, &known.why) == *failure)
    }));
    if all.is_empty() {
        return String::new();
    }
    let items: String = all
        .into_iter()
        .map(|(cell, why)| {
            format!("<li><span class=\"failed\">{}</span>: {}</li>\n", escaped(cell), escaped(why))
        })
        .collect();
    format!("<section><h2>What failed</h2>\n<ul class=\"notes\">\n{items}</ul></section>\n")
}

fn plan(kept: &Kept) -> String {
    let text = escaped(&kept.plan);
    format!(
        "<section class=\"plan\"><h2>The plan</h2>\n<details><summary>Its file, word for word</summary>\n\
         <pre>{text}</pre></details></section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_differ_in_numbers_alone_are_one() {
        let notes = ["busy for 92% of 1 window", "busy for 100% of 1 window"].map(numbers_of);
        assert_eq!(notes[0].0, notes[1].0);
        let all = notes.clone().map(|(_, numbers)| numbers);
        assert_eq!(with_ranges(&notes[0].0, &all), "busy for 92 to 100% of 1 window");
        let endless = "9".repeat(40);
        assert_eq!(numbers_of(&endless), (endless.clone(), vec![]));
    }

    #[test]
    fn a_time_is_told_in_two_units_at_most() {
        assert_eq!(spent(145.1), "2 min 25 s");
        assert_eq!(spent(7_261.0), "2 h 1 min");
        assert_eq!(spent(-1.0), "0 s");
    }
}
