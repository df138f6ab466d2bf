//! Figures of a paper's page: our ratios beside the paper's, and its own figures drawn from our cells.
//!
//! Ratios are metric(a) / metric(b) of values as they were measured, on a logarithmic axis; the interval is the
//! one that the verdict is read off, and what the paper saw is a hollow mark, or a band over its span.
//! Bars are means of the rounds that count, as those of a plan's page.

use lab::papers::{Claim, Drawn, Finding, PaperKept, Ratio, RunKept, Said};
use lab::plan::GroupResults;

use super::surface;
use super::{Drawing, capital, names_width, provenance, rounds, upright_grid};
use crate::scene::Colours;
use crate::svg::{Anchor, Panel, Scale, WIDTH};
use crate::table::Table;
use crate::words::{axis_name, mean, quantity, shortened, three_digits, wrapped};

/// A finding of which there is a ratio of ours.
type Held<'p> = (&'p Finding, &'p Said);

/// Our ratios beside the paper's; nothing where there is none of ours.
pub(crate) fn ratios(kept: &PaperKept, verdicts: &[Said]) -> Option<Drawing> {
    let pairs = kept.study.paper.findings.iter().zip(verdicts);
    let held: Vec<Held<'_>> = pairs.filter(|(_, said)| said.ours.is_some()).collect();
    if held.is_empty() {
        return None;
    }
    let spoken = held.iter().map(|(finding, said)| format!("{}: {}", finding.id, said.answer));
    Some(Drawing {
        name: String::new(),
        title: "Our ratios beside the paper's".to_owned(),
        caption: "Filled: metric(a) by metric(b) here, the geometric mean over a finding's cells, with the interval \
            that its verdict is read off. Hollow: what the paper saw. Shaded: a margin within which both are equal."
            .to_owned(),
        spoken: spoken.collect::<Vec<_>>().join(". "),
        provenance: kept.runs.first().map(|run| provenance(&run.kept, rounds(&run.kept))).unwrap_or_default(),
        panels: vec![forest(&held)],
        table: table(&held),
    })
}

fn forest(held: &[Held<'_>]) -> Panel {
    const TOP: f64 = 12.0;
    const ROW: f64 = 62.0;
    let bottom = TOP + ROW * held.len() as f64;
    let mut panel = Panel::new(bottom + 30.0);
    let ends = held.iter().flat_map(|(finding, said)| {
        let ours = said.ours.into_iter().flat_map(|one| [one.interval.low.0, one.interval.high.0]);
        let theirs = positive(finding).into_iter().flat_map(|(low, high)| [low.ln(), high.ln()]);
        ours.chain(theirs)
    });
    let far = ends.map(f64::abs).fold(0.1, f64::max) * 1.1;
    let scale = Scale::log((-far).exp(), far.exp(), 12.0, WIDTH - 22.0);
    upright_grid(&mut panel, &scale, (TOP, bottom), |tick| format!("{}x", three_digits(tick)));
    let middle = scale.place(1.0);
    panel.line((middle, TOP), (middle, bottom), "equal");
    panel.text((middle, bottom + 17.0), Anchor::Middle, "ink small", "1x");
    for (at, (finding, said)) in held.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        if let (Claim::Equal, Some(margin)) = (finding.direction, finding.margin) {
            let from = scale.place(1.0 - margin);
            let width = scale.place(1.0 + margin) - from;
            panel.rect((from, y + 32.0), (width, 24.0), "margin", "equal within its margin");
        }
        let words = format!("{}: {}", finding.id, said.answer);
        let label = wrapped(&words, 64);
        for (line, words) in label.iter().take(2).enumerate() {
            panel.text((12.0, y + 14.0 + 15.0 * line as f64), Anchor::Start, "ink small", words);
        }
        row(&mut panel, &scale, y + 44.0, (finding, said));
    }
    panel
}

fn row(panel: &mut Panel, scale: &Scale, y: f64, (finding, said): Held<'_>) {
    if let Some((low, high)) = positive(finding) {
        let (from, to) = (scale.place(low), scale.place(high));
        let hint = format!("the paper: {} to {}", three_digits(low), three_digits(high));
        panel.rect((from - 4.5, y - 4.5), (to - from + 9.0, 9.0), "mark hollow", &hint);
    }
    let Some(ours) = said.ours else { return };
    let (low, high) = (ours.interval.low.ratio(), ours.interval.high.ratio());
    panel.line((scale.place(low), y), (scale.place(high), y), "whisker");
    for end in [low, high] {
        panel.line((scale.place(end), y - 6.0), (scale.place(end), y + 6.0), "whisker");
    }
    panel.dot((scale.place(ours.ratio.ratio()), y), 4.0, "mark", &format!("here: {ours}"));
}

/// What the paper saw, where that has a logarithm.
fn positive(finding: &Finding) -> Option<(f64, f64)> {
    finding.ratio.map(Ratio::ends).filter(|(low, _)| *low > 0.0)
}

fn table(held: &[Held<'_>]) -> Table {
    let mut table = Table::new([
        "finding",
        "paper low",
        "paper high",
        "ratio",
        "low",
        "high",
        "level",
        "rounds",
        "verdict",
        "size",
    ]);
    for (finding, said) in held {
        let (paper, ours) = (positive(finding), said.ours);
        table.push([
            finding.id.as_str().into(),
            paper.map(|(low, _)| low).into(),
            paper.map(|(_, high)| high).into(),
            ours.map(|one| one.ratio.ratio()).into(),
            ours.map(|one| one.interval.low.ratio()).into(),
            ours.map(|one| one.interval.high.ratio()).into(),
            ours.map(|one| one.interval.level).into(),
            ours.map(|one| one.rounds as f64).into(),
            said.answer.to_string().into(),
            said.size.map_or(String::new(), |size| size.to_string()).into(),
        ]);
    }
    table
}

/// A figure of the paper, of those of its cells that ran.
pub(crate) fn redrawn(run: &RunKept, drawn: &Drawn) -> Option<Drawing> {
    if let Some(picture) = &drawn.picture {
        return surface_of(run, drawn, picture);
    }
    let ran = |name: &String| run.kept.results.groups.iter().find(|group| group.name == *name);
    let groups: Vec<&GroupResults> = drawn.groups.iter().filter_map(ran).collect();
    let rows: Vec<Row<'_>> = groups.into_iter().flat_map(|group| rows(group, drawn)).collect();
    if rows.is_empty() {
        return None;
    }
    let Drawn { title, shown_as, plan, measure, .. } = drawn;
    let missing = drawn.groups.iter().filter(|name| ran(name).is_none()).count();
    let missing = match missing {
        0 => String::new(),
        some => format!(" {some} of its {} groups did not run.", drawn.groups.len()),
    };
    let mut table = Table::new(["group", "system", "measure", "mean", "rounds"]);
    for row in &rows {
        table.push([
            row.group.into(),
            row.system.into(),
            measure.word().into(),
            row.value.into(),
            (row.rounds as f64).into(),
        ]);
    }
    Some(Drawing {
        name: String::new(),
        title: title.clone(),
        caption: format!(
            "In place of the paper's {shown_as}: {measure}, the mean of the rounds that count, by plan {plan}.{missing}"
        ),
        spoken: String::new(),
        provenance: provenance(&run.kept, rows.iter().map(|row| row.rounds).max()),
        panels: vec![bars(&rows, drawn, &Colours::of(&run.kept))],
        table,
    })
}

/// A picture of a plan in place of a figure, if it ran.
fn surface_of(run: &RunKept, drawn: &Drawn, picture: &str) -> Option<Drawing> {
    let Drawn { title, shown_as, plan, measure, .. } = drawn;
    let surface = surface::one(&run.kept, picture, *measure, &Colours::of(&run.kept))?;
    let caption = format!(
        "In place of the paper's {shown_as}: {measure}, by plan {plan}. {}",
        surface.caption
    );
    Some(Drawing { title: title.clone(), caption, ..surface })
}

/// A bar.
struct Row<'k> {
    group: &'k str,
    system: &'k str,
    value: f64,
    rounds: usize,
}

fn rows<'k>(group: &'k GroupResults, drawn: &Drawn) -> Vec<Row<'k>> {
    let columns = group.columns.iter().enumerate();
    let its = columns
        .filter(|(_, column)| column.measure == drawn.measure && column.system != group.null);
    its.filter_map(|(at, column)| {
        let values: Vec<f64> = group.rounds.iter().map(|round| round[at]).collect();
        let (value, rounds) = (mean(&values)?, values.len());
        Some(Row { group: &group.name, system: &group.systems[column.system], value, rounds })
    })
    .collect()
}

fn bars(rows: &[Row<'_>], drawn: &Drawn, colours: &Colours<'_>) -> Panel {
    const TOP: f64 = 24.0;
    const BAR: f64 = 24.0;
    const HEAD: f64 = 22.0;
    let heads = rows.chunk_by(|one, other| one.group == other.group).count();
    let bottom = TOP + BAR * rows.len() as f64 + HEAD * heads as f64;
    let mut panel = Panel::new(bottom + 30.0);
    let left = names_width(rows.iter().map(|row| row.system));
    let most = rows.iter().map(|row| row.value).fold(0.0, f64::max);
    let scale = Scale::linear(most, left, WIDTH - 90.0);
    panel.text((0.0, 14.0), Anchor::Start, "soft", &capital(&axis_name(drawn.measure)));
    upright_grid(&mut panel, &scale, (TOP, bottom), |tick| quantity(drawn.measure, tick));
    let mut y = TOP;
    for group in rows.chunk_by(|one, other| one.group == other.group) {
        panel.text((left + 2.0, y + 16.0), Anchor::Start, "ink small", group[0].group);
        y += HEAD;
        for row in group {
            let told = quantity(drawn.measure, row.value);
            let hint = format!("{}: {told}, the mean of {} rounds", row.system, row.rounds);
            let fill = format!("f{}", colours.suffix(row.system));
            let width = scale.place(row.value) - left;
            panel.rect((left, y + 3.0), (width, BAR - 6.0), &fill, &hint);
            let name = shortened(row.system, super::NAME_MAX);
            panel.text((left - 8.0, y + 17.0), Anchor::End, "ink", &name);
            panel.text((left + width + 6.0, y + 17.0), Anchor::Start, "ink small", &told);
            y += BAR;
        }
    }
    panel.line((left, TOP), (left, bottom), "axis");
    panel
}
