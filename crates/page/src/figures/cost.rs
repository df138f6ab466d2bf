//! What an operation costs: processor time of both ends by task, and bytes and frames on the wire.
//!
//! An end's time is what the file says of it, an operation, beyond what the machine does when idle;
//! its tasks have it in the proportions of their shares. Tasks that differ by a number alone are one.

use std::collections::BTreeMap;

use lab::kept::{End, Kept, Trial};

use super::{Drawing, NAME_MAX, names_width, provenance, upright_grid};
use crate::scene::{Colours, Runs, Scene};
use crate::svg::{Anchor, Panel, Scale, WIDTH};
use crate::table::Table;
use crate::words::{microseconds, shortened, three_digits};

/// Tasks that have a colour of their own; what is left is "other".
const TASKS_MAX: usize = 6;

/// One end of one system: microseconds an operation by task.
struct Bar<'s> {
    system: &'s str,
    end: &'static str,
    us: f64,
    by_task: BTreeMap<String, f64>,
}

pub(super) fn draw(kept: &Kept, scene: &Scene<'_>) -> Option<Drawing> {
    let ends = |runs: &'_ &Runs<'_>| {
        runs.trials.iter().any(|trial| trial.near.is_some() || trial.far.is_some())
    };
    let all: Vec<&Runs<'_>> = scene.runs.iter().filter(ends).collect();
    let bars: Vec<Bar<'_>> = all.iter().flat_map(|runs| bars_of(runs)).collect();
    if bars.is_empty() {
        return None;
    }
    let tasks = tasks(&bars);
    let mut table = Table::new(["system", "end", "task", "cpu_us_per_op"]);
    for bar in &bars {
        for (task, us) in &bar.by_task {
            table.push([bar.system.into(), bar.end.into(), task.as_str().into(), (*us).into()]);
        }
        table.push([bar.system.into(), bar.end.into(), "all".into(), bar.us.into()]);
    }
    let told = bars
        .iter()
        .map(|bar| format!("{} {} end {}", bar.system, bar.end, microseconds(bar.us)))
        .collect::<Vec<_>>();
    Some(Drawing {
        name: String::new(),
        title: format!("Processor time an operation {}", scene.title),
        caption: "Both ends, the mean of the rounds, by task, beyond what the CPUs do when idle."
            .to_owned(),
        spoken: told.join(", "),
        provenance: provenance(kept, all.iter().map(|runs| runs.trials.len()).max()),
        panels: vec![panel(&bars, &tasks)],
        table,
    })
}

fn bars_of<'s>(runs: &&Runs<'s>) -> Vec<Bar<'s>> {
    let near = |trial: &'s Trial| trial.near.as_ref();
    let far = |trial: &'s Trial| trial.far.as_ref();
    let cost = |end: &'s End| Some((end, end.cpu_us_per_op?));
    let near: Vec<_> = runs.trials.iter().copied().filter_map(near).filter_map(cost).collect();
    let far: Vec<_> = runs.trials.iter().copied().filter_map(far).filter_map(cost).collect();
    let bar = |(end, of): (&'static str, Vec<(&End, f64)>)| {
        let count = of.len() as f64;
        let mut by_task: BTreeMap<String, f64> = BTreeMap::new();
        for (end, cost) in &of {
            let all: f64 = end.by_task.iter().map(|(_, share)| share.max(0.0)).sum();
            for (task, share) in end.by_task.iter().filter(|_| all > 0.0) {
                let us = cost * share.max(0.0) / all / count;
                *by_task.entry(kind_of(task)).or_default() += us;
            }
        }
        let us = of.iter().map(|(_, cost)| cost).sum::<f64>() / count;
        (!of.is_empty()).then_some(Bar { system: runs.system, end, us, by_task })
    };
    [("near", near), ("far", far)].into_iter().filter_map(bar).collect()
}

/// Without what tells one of many from the others: "kworker/1:2-events" is "kworker", "shard-0" is "shard".
fn kind_of(task: &str) -> String {
    let kind = task.split(['/', ':']).next().unwrap_or_default();
    let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '.']);
    if kind.is_empty() { task.to_owned() } else { kind.to_owned() }
}

/// Those that cost most, over all bars.
fn tasks(bars: &[Bar<'_>]) -> Vec<String> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (task, us) in bars.iter().flat_map(|bar| &bar.by_task) {
        *sums.entry(task).or_default() += us;
    }
    let all: f64 = sums.values().sum();
    let mut tasks: Vec<(&str, f64)> =
        sums.into_iter().filter(|(_, us)| *us > all * 0.002).collect();
    tasks.sort_by(|a, b| b.1.total_cmp(&a.1));
    tasks.into_iter().take(TASKS_MAX).map(|(task, _)| task.to_owned()).collect()
}

fn panel(bars: &[Bar<'_>], tasks: &[String]) -> Panel {
    const ROW: f64 = 30.0;
    const TOP: f64 = 30.0;
    let bottom = TOP + ROW * bars.len() as f64 + 6.0;
    let legend_rows = (tasks.len() + 1).div_ceil(3) as f64;
    let mut panel = Panel::new(bottom + 34.0 + legend_rows * 19.0);
    let names: Vec<String> = bars
        .iter()
        .map(|bar| format!("{}, {}", shortened(bar.system, NAME_MAX - 6), bar.end))
        .collect();
    let left = names_width(names.iter().map(String::as_str));
    let most = bars.iter().map(|bar| bar.us).fold(0.0, f64::max);
    let scale = Scale::linear(most, left, WIDTH - 70.0);
    panel.text((0.0, 14.0), Anchor::Start, "soft", "Microseconds of a CPU, each end");
    upright_grid(&mut panel, &scale, (TOP, bottom), three_digits);
    for (row, (bar, name)) in bars.iter().zip(&names).enumerate() {
        let y = TOP + ROW * row as f64 + 6.0;
        let class = if bar.end == "near" { "ink strong" } else { "ink" };
        panel.text((left - 8.0, y + 14.0), Anchor::End, class, name);
        let mut sum = 0.0;
        let mut piece = |panel: &mut Panel, name: &str, us: f64, class: &str| {
            let (from, to) = (scale.place(sum), scale.place(sum + us));
            let hint = format!("{}, {} end, {name}: {}", bar.system, bar.end, microseconds(us));
            panel.rect((from, y), (to - from, 20.0), class, &hint);
            sum += us;
        };
        for (place, task) in tasks.iter().enumerate() {
            let us = bar.by_task.get(task).copied().unwrap_or(0.0);
            if us > 0.0 {
                piece(&mut panel, task, us, &format!("t{place} edge"));
            }
        }
        let rest = bar.us - sum_of(bar, tasks);
        if rest > bar.us * 1e-6 {
            piece(&mut panel, "other", rest, "tn edge");
        }
        let end = scale.place(bar.us);
        panel.text((end + 6.0, y + 14.0), Anchor::Start, "ink small", &microseconds(bar.us));
    }
    panel.line((left, TOP), (left, bottom), "axis");
    legend(&mut panel, tasks, bottom + 36.0);
    panel
}

fn sum_of(bar: &Bar<'_>, tasks: &[String]) -> f64 {
    tasks.iter().filter_map(|task| bar.by_task.get(task)).sum()
}

fn legend(panel: &mut Panel, tasks: &[String], top: f64) {
    const COLUMN: f64 = (WIDTH - 12.0) / 3.0;
    for (place, name) in tasks.iter().map(String::as_str).chain(["other"]).enumerate() {
        let (x, y) = ((place % 3) as f64 * COLUMN + 12.0, top + (place / 3) as f64 * 19.0);
        let class = if place < tasks.len() { format!("t{place}") } else { "tn".to_owned() };
        panel.rect((x, y - 10.0), (11.0, 11.0), &class, "");
        panel.text((x + 17.0, y), Anchor::Start, "ink small", &shortened(name, 18));
    }
}

/// What is drawn of the wire: its title, its column, and what a trial has of it.
type Counted = (&'static str, &'static str, fn(&Trial) -> Option<f64>);

const COUNTED: [Counted; 4] = [
    ("Bytes an operation", "wire_bytes_per_op", |trial| trial.wire_bytes_per_op),
    ("Frames an operation", "frames_per_op", |trial| trial.frames_per_op),
    ("Bytes an operation in the core", "core_bytes_per_op", |trial| trial.core_bytes_per_op),
    ("Frames lost of a hundred", "lost_percent", |trial| Some(trial.lost_share? * 100.0)),
];

/// What one of them came to: a value each system.
struct Block<'s> {
    title: &'static str,
    rows: Vec<(&'s str, f64)>,
}

impl Block<'_> {
    fn of(&self, system: &str) -> Option<f64> {
        self.rows.iter().find(|(named, _)| *named == system).map(|(_, value)| *value)
    }
}

/// Bytes and frames on the wire, and in a core where there is one, and what a path lost on purpose.
pub(super) fn draw_wire(kept: &Kept, scene: &Scene<'_>, colours: &Colours<'_>) -> Option<Drawing> {
    let is_seen = |runs: &&Runs<'_>| COUNTED.iter().any(|(_, _, of)| runs.median(of).is_some());
    let all: Vec<&Runs<'_>> = scene.runs.iter().filter(is_seen).collect();
    let payload = all.first()?.trials[0].bench["block_bytes"].as_f64();
    let (mut columns, mut blocks, mut told) = (vec!["system"], Vec::new(), Vec::new());
    for (title, column, of) in COUNTED {
        let values = all.iter().filter_map(|runs| Some((runs.system, runs.median(of)?)));
        let rows: Vec<(&str, f64)> = values.collect();
        if rows.is_empty() {
            continue;
        }
        let each = rows.iter().map(|(system, value)| format!("{system} {}", three_digits(*value)));
        told.push(format!("{title}: {}", each.collect::<Vec<_>>().join(", ")));
        columns.push(column);
        blocks.push(Block { title, rows });
    }
    let mut table = Table::new(columns);
    for runs in &all {
        let mut row = vec![runs.system.into()];
        row.extend(blocks.iter().map(|block| block.of(runs.system).into()));
        table.rows.push(row);
    }
    let payload = payload.map_or(String::new(), |bytes| format!(", of which {bytes} are payload"));
    Some(Drawing {
        name: String::new(),
        title: format!("On the wire {}", scene.title),
        caption: format!("The median over rounds, both ways together{payload}."),
        spoken: told.join("; "),
        provenance: provenance(kept, all.iter().map(|runs| runs.trials.len()).max()),
        panels: vec![wire_panel(&blocks, colours)],
        table,
    })
}

fn wire_panel(blocks: &[Block<'_>], colours: &Colours<'_>) -> Panel {
    const ROW: f64 = 28.0;
    let height = |block: &Block<'_>| 68.0 + ROW * block.rows.len() as f64;
    let mut panel = Panel::new(blocks.iter().map(height).sum());
    let systems = blocks.iter().flat_map(|block| block.rows.iter().map(|(system, _)| *system));
    let left = names_width(systems);
    let mut above = 0.0;
    for block in blocks {
        let (top, bottom) = (above + 26.0, above + 30.0 + ROW * block.rows.len() as f64);
        let most = block.rows.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let scale = Scale::linear(most, left, WIDTH - 70.0);
        panel.text((0.0, above + 14.0), Anchor::Start, "soft", block.title);
        upright_grid(&mut panel, &scale, (top, bottom), three_digits);
        for (row, (system, value)) in block.rows.iter().enumerate() {
            let y = top + ROW * row as f64 + 5.0;
            let class = format!("f{}", colours.suffix(system));
            let told = four_digits(*value);
            let hint = format!("{system}: {told}");
            panel.rect((left, y), (scale.place(*value) - left, 20.0), &class, &hint);
            let name = shortened(system, NAME_MAX);
            panel.text((left - 8.0, y + 14.0), Anchor::End, "ink strong", &name);
            panel.text((scale.place(*value) + 6.0, y + 14.0), Anchor::Start, "ink small", &told);
        }
        panel.line((left, top), (left, bottom), "axis");
        above += height(block);
    }
    panel
}

/// Whole bytes, or hundredths of what is few.
fn four_digits(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_differ_by_a_number_alone_are_one() {
        assert_eq!(kind_of("shard-0"), "shard");
        assert_eq!(kind_of("kworker/1:2-events_power_efficient"), "kworker");
        assert_eq!(kind_of("kdamond.0"), "kdamond");
        assert_eq!(kind_of("interrupts"), "interrupts");
        assert_eq!(kind_of("42"), "42");
    }
}
