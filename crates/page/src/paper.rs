//! The page of a paper that was rerun: its findings with what is said of each, its tables, its figures from our
//! data, and below them all that the page of a plan has, for each plan.
//!
//! In comes the result file of a paper, whose verdicts are judged anew; words are the lab's. Units and rules
//! are those of a plan's page.

use std::fmt::Write as _;

use lab::papers::{Answer, CellSaid, Finding, How, PaperKept, RunKept, Said, Table};
use serde_json::Value;

use crate::Page;
use crate::figures::{self, Drawing, provenance};
use crate::html;
use crate::words::{escaped, slug};

/// Draws the page of what was kept of a paper.
pub(crate) fn page(file: &Value) -> Result<Page, String> {
    let kept = PaperKept::read(file)?;
    let verdicts = kept.judge();
    let drawings = drawings(&kept, &verdicts);
    let html = document(&kept, &verdicts, &drawings);
    let all = drawings.of_paper.into_iter().chain(drawings.of_runs.into_iter().flatten());
    Ok(Page { html, figures: all.map(Drawing::finish).collect() })
}

/// Figures of the paper, and of each of its plans.
struct Drawings {
    of_paper: Vec<Drawing>,
    of_runs: Vec<Vec<Drawing>>,
}

fn drawings(kept: &PaperKept, verdicts: &[Said]) -> Drawings {
    let redrawn = kept.study.figures.iter().filter_map(|drawn| {
        let run = kept.runs.iter().find(|run| run.plan == drawn.plan)?;
        figures::redrawn(run, drawn)
    });
    let mut of_paper: Vec<Drawing> =
        figures::ratios(kept, verdicts).into_iter().chain(redrawn).collect();
    for drawing in &mut of_paper {
        drawing.name = slug(&format!("paper {}", drawing.title));
    }
    let of_run = |run: &RunKept| {
        let mut its = figures::all(&run.kept);
        for drawing in &mut its {
            drawing.name = format!("{}-{}", run.plan, drawing.name);
        }
        its
    };
    Drawings { of_paper, of_runs: kept.runs.iter().map(of_run).collect() }
}

fn document(kept: &PaperKept, verdicts: &[Said], drawings: &Drawings) -> String {
    let mut body = String::new();
    let of_paper: String = drawings.of_paper.iter().map(html::figure).collect();
    let _ =
        writeln!(body, "<section class=\"figures\" aria-label=\"Figures\">\n{of_paper}</section>");
    body += &findings(kept, verdicts);
    kept.study.paper.tables.iter().for_each(|table| body += &published(table));
    body += &left_out(kept);
    for (run, its) in kept.runs.iter().zip(&drawings.of_runs) {
        let figures: String = its.iter().map(html::figure).collect();
        let plan = escaped(&run.plan);
        let _ = writeln!(
            body,
            "<section><h2>Plan {plan}</h2>\n{}<div class=\"figures\">\n{figures}</div></section>\n{}",
            scaled(kept, run),
            html::of_run(&run.kept)
        );
    }
    html::document(&kept.study.paper.title, &header(kept), &body)
}

fn header(kept: &PaperKept) -> String {
    let paper = &kept.study.paper;
    let mut text = format!("<header>\n<h1>{}</h1>\n", escaped(&paper.title));
    let year = paper.year.map_or(String::new(), |year| format!(", {year}"));
    let venue = paper.venue.as_ref().map_or(String::new(), |venue| format!(", {venue}"));
    let authors = paper.authors.join(", ") + &venue + &year;
    let _ = writeln!(text, "<p class=\"about\">{}, rerun</p>", escaped(&authors));
    if kept.is_quick {
        let words = "A quick run: the primary comparisons alone, in short windows.";
        let _ = writeln!(text, "<p class=\"about\">{words}</p>");
    }
    if let Some(note) = &paper.source_note {
        let _ = writeln!(text, "<p class=\"quiet\">{}</p>", escaped(note));
    }
    for run in &kept.runs {
        let words = provenance(&run.kept, figures::rounds(&run.kept));
        let _ = writeln!(text, "<p class=\"quiet\">{}</p>", escaped(&words));
    }
    text + "</header>"
}

/// What was scaled, of a plan.
fn scaled(kept: &PaperKept, run: &RunKept) -> String {
    let its = kept.study.run(&run.plan);
    its.map_or(String::new(), |run| format!("<p class=\"quiet\">{}</p>\n", escaped(&run.scaled)))
}

/// A row each finding: the claim, both values, both verdicts, and what to know of them.
fn findings(kept: &PaperKept, verdicts: &[Said]) -> String {
    let mut rows = String::new();
    for ((finding, how), said) in
        kept.study.paper.findings.iter().zip(&kept.study.how).zip(verdicts)
    {
        let ours = said.ours.map_or("-".to_owned(), |ours| ours.to_string());
        let size = said.size.map_or("-".to_owned(), |size| size.to_string());
        let modelled = if said.is_modelled { "<br><b>modelled</b>" } else { "" };
        let published = finding.ratio.map_or("-".to_owned(), |ratio| ratio.to_string());
        let _ = writeln!(
            rows,
            "<tr id=\"finding-{id}\"><td>{id}<br>{claim}</td><td>{expect}<br>{published}</td><td>{ours}{modelled}</td>\
             <td class=\"{class}\">{answer}</td><td>{size}</td><td>{notes}</td></tr>",
            id = escaped(&finding.id),
            claim = escaped(&finding.claim()),
            expect = escaped(&finding.expect),
            published = escaped(&published),
            ours = escaped(&ours),
            class = if said.answer == Answer::Refuted { "failed" } else { "said" },
            answer = escaped(&said.answer.to_string()),
            notes = notes(finding, how, said),
        );
    }
    format!(
        "<section class=\"findings\"><h2>Findings</h2>\n<p class=\"quiet\">Ratios are metric(a) by metric(b), of all \
         cells their geometric mean. Direction: on which side of 1 the interval lies, or whether it lies within the margin. \
         Size: whether it meets what the paper saw, or a tenth around it.</p>\n\
         <table><thead><tr><th>finding</th><th>paper</th><th>here</th><th>direction</th><th>size</th><th>to know</th></tr></thead>\
         <tbody>\n{rows}</tbody></table></section>\n"
    )
}

/// What to know of a verdict: its precondition and what was seen of it, its cells, doubts.
fn notes(finding: &Finding, how: &How, said: &Said) -> String {
    let mut notes = vec![format!("the paper's precondition: {}", finding.precondition)];
    if let How::Exact(exact) = how {
        notes.push(format!("exact, by arithmetic: {}", exact.recreated));
    }
    if let How::Reach(reach) = how {
        notes.push(format!("decided by what was reached: {}", reach.recreated));
        notes.extend(said.seen.iter().map(|seen| format!("seen: {seen}")));
    }
    if let How::Recreated(one) = how {
        notes.push(format!("recreated, {}: {}", one.judge, one.recreated));
        notes.extend(one.unseen.as_ref().map(|unseen| format!("nothing looked at: {unseen}")));
        notes.extend(said.seen.iter().map(|seen| format!("seen: {seen}")));
        if said.answer == Answer::Refuted {
            let explains = one.explains.as_ref();
            notes.extend(explains.map(|explains| format!("what may explain it: {explains}")));
        }
    }
    if said.cells.len() > 1 {
        notes.extend(said.cells.iter().map(|cell| of_cell("cell", cell)));
    }
    notes.extend(said.beside.iter().map(|cell| of_cell("beside it", cell)));
    let suspect = finding.suspect.as_ref();
    notes.extend(suspect.map(|why| format!("the published value is in doubt: {why}")));
    notes.iter().map(|note| format!("<p>{}</p>", escaped(note))).collect()
}

fn of_cell(what: &str, cell: &CellSaid) -> String {
    match cell.ours {
        Some(ours) if what == "cell" => format!("{what} {}: {}, {ours}", cell.name, cell.answer),
        Some(ours) => format!("{what} {}: {ours}", cell.name),
        None => format!("{what} {}: {}", cell.name, cell.answer),
    }
}

/// A table of the paper, as it prints it.
fn published(table: &Table) -> String {
    let head: String =
        table.columns.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    let mut rows = String::new();
    for row in &table.rows {
        let cells: String =
            row.iter().map(|datum| format!("<td>{}</td>", escaped(&datum.to_string()))).collect();
        let _ = writeln!(rows, "<tr>{cells}</tr>");
    }
    let mut doubts: Vec<String> = table.note.iter().cloned().collect();
    for suspect in &table.suspect {
        let place = match (&suspect.row, &suspect.column) {
            (Some(row), Some(column)) => format!("{row}, {column}: "),
            (Some(one), None) | (None, Some(one)) => format!("{one}: "),
            (None, None) => String::new(),
        };
        doubts.push(format!("in doubt: {place}{}", suspect.why));
    }
    let doubts: String =
        doubts.iter().map(|doubt| format!("<p class=\"quiet\">{}</p>\n", escaped(doubt))).collect();
    format!(
        "<section><h2>Table {}: {}</h2>\n<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\
         </tbody></table></div>\n{doubts}</section>\n",
        escaped(&table.id),
        escaped(&table.caption)
    )
}

/// What did not run.
fn left_out(kept: &PaperKept) -> String {
    let not_run =
        kept.not_run.iter().map(|one| format!("all of plan {}: {}", one.plan, one.because));
    let items: Vec<String> = kept.left_out().map(str::to_owned).chain(not_run).collect();
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
    format!("<section><h2>Left out</h2>\n<ul class=\"notes\">\n{items}</ul></section>\n")
}

#[cfg(test)]
mod tests;
