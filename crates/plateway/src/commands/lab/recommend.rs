//! `plateway lab recommend`: which system to take for each path and load of a result file.
//!
//! What is advised is [`lab::recommend`]'s; here it is read and drawn. Units are those of
//! `lab run`'s table. Errors: a file that cannot be read, or is none of results that this version
//! knows.

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use lab::plan::Measure;
use lab::recommend::{Advice, Candidate, Choice, recommend, shown};

use super::read_result;
use crate::cli::LabRecommendArgs;
use crate::commands::show;

pub(super) fn run(args: &LabRecommendArgs) -> miette::Result<()> {
    let advice = recommend(&read_result(&args.result)?, args.by)
        .map_err(|why| miette::miette!("{}: {why}", args.result.display()))?;
    show(args.json, &advice, || text(&advice))
}

fn text(advice: &Advice) -> String {
    let mut text = advice.plan.clone();
    if !advice.environment.is_empty() {
        let _ = write!(text, ", measured by {}", advice.environment);
    }
    text.push('\n');
    advice.choices.iter().for_each(|choice| of_choice(&mut text, choice));
    advice.left_out().for_each(|said| {
        let _ = writeln!(text, "\n{said}");
    });
    text
}

fn of_choice(text: &mut String, choice: &Choice) {
    let _ = writeln!(text, "\n{}\n  {}\n", choice.load, choice.headline());
    // What counts first, and then what is told of every load.
    let mut measures = vec![choice.by, Measure::Iops, Measure::P99, Measure::CpuPerOp];
    let mut seen = Vec::new();
    measures.retain(|measure| {
        !seen.contains(measure) && {
            seen.push(*measure);
            true
        }
    });
    let heads = measures.iter().map(ToString::to_string);
    let heads: Vec<String> = [String::new()]
        .into_iter()
        .chain(heads)
        .chain(["B/op on the wire".to_owned(), "shown to be behind".to_owned()])
        .collect();
    let mut table = crate::control::table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for Candidate { system, figures, behind } in &choice.candidates {
        let value = |measure: &Measure| {
            figures.of_measure(*measure).map_or("-".to_owned(), |value| shown(*measure, value))
        };
        let wire = figures.wire_bytes_per_op.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        let behind = behind.clone().unwrap_or_else(|| "-".to_owned());
        table.add_row(
            [format!("  {system}")]
                .into_iter()
                .chain(measures.iter().map(value))
                .chain([wire, behind]),
        );
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}\n\n  Medians of the rounds that count. Verdicts:");
    choice.said.iter().for_each(|said| {
        let _ = writeln!(text, "    {said}");
    });
    if !choice.turns.is_empty() {
        text.push_str("  What would change it, or may:\n");
    }
    choice.turns.iter().for_each(|turn| {
        let _ = writeln!(text, "    {turn}");
    });
}
