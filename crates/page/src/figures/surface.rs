//! Pictures of a plan: a heat map where two keys of the load vary, a line where one does.
//!
//! The load of a cell is read from what `bench` printed of its trial, and how many disks there were from the
//! trial itself. Keys that vary beyond two, and paths and patterns, have panels of their own. All panels of a
//! figure share their colours, which are those of cividis (Nuñez, Anderton, Renslow 2018), dark for little and light for much, with
//! equal ratios equally far apart. Every cell ran once: there are no intervals and no verdicts.

use lab::kept::Kept;
use lab::plan::{Measure, PictureResult};
use serde_json::Value;

use super::latency::short_time;
use super::{Drawing, capital, provenance};
use crate::scene::{Colours, system_of};
use crate::svg::{Anchor, Panel, Scale, WIDTH};
use crate::table::Table;
use crate::words::{axis_name, quantity, shortened, thousands, three_digits};

/// Keys with an order, as `bench` prints them and as they are called.
const AXES: [(&str, &str); 5] = [
    ("queue_depth", "depth"),
    ("jobs", "jobs"),
    ("block_bytes", "block size"),
    ("rate", "rate"),
    ("disks", "disks"),
];
/// Keys without one.
const KINDS: [&str; 4] = ["pattern", "range_bytes", "sync", "fsync"];

/// A cell with what places it.
struct Spot<'k> {
    cell: &'k PictureResult,
    path: &'k str,
    load: Value,
}

/// What is drawn in one panel, or as one line.
struct Facet<'s, 'k> {
    label: String,
    system: &'k str,
    spots: Vec<&'s Spot<'k>>,
}

pub(super) fn draw(kept: &Kept, colours: &Colours<'_>) -> Vec<Drawing> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &kept.results.pictures {
        if !names.contains(&cell.picture.as_str()) {
            names.push(&cell.picture);
        }
    }
    let of = |name: &&str| {
        let cells = kept.results.pictures.iter().filter(|cell| cell.picture == *name);
        let spots: Vec<Spot<'_>> = cells.map(|cell| Spot::of(kept, cell)).collect();
        picture(kept, name, &spots, colours)
    };
    names.iter().flat_map(of).collect()
}

/// One picture of a plan by one measure, if it ran.
pub(super) fn one(
    kept: &Kept,
    name: &str,
    measure: Measure,
    colours: &Colours<'_>,
) -> Option<Drawing> {
    let cells = kept.results.pictures.iter().filter(|cell| cell.picture == name);
    let spots: Vec<Spot<'_>> = cells.map(|cell| Spot::of(kept, cell)).collect();
    let has = spots.iter().any(|spot| spot.cell.measures.contains_key(&measure));
    has.then(|| by_measure(kept, name, &spots, measure, colours))
}

fn picture(kept: &Kept, name: &str, spots: &[Spot<'_>], colours: &Colours<'_>) -> Vec<Drawing> {
    let has = |measure: &Measure| spots.iter().any(|spot| spot.cell.measures.contains_key(measure));
    let everywhere = spots.iter().all(|spot| spot.cell.measures.contains_key(&Measure::P99));
    let latency = if everywhere { Measure::P99 } else { Measure::LatencyMean };
    let measures = [Measure::Iops, latency].into_iter().filter(has);
    measures.map(|measure| by_measure(kept, name, spots, measure, colours)).collect()
}

fn by_measure(
    kept: &Kept,
    name: &str,
    spots: &[Spot<'_>],
    measure: Measure,
    colours: &Colours<'_>,
) -> Drawing {
    let varying: Vec<(&str, &str)> =
        AXES.into_iter().filter(|(key, _)| levels(spots.iter(), key).len() > 1).collect();
    let axes = &varying[..varying.len().min(2)];
    let facets = facets(spots, axes);
    let panels = match axes {
        [across, upward] => {
            let range = range(spots, measure);
            let panel = |facet| heat_map(facet, measure, *across, *upward, spots, range);
            facets.iter().map(panel).collect()
        }
        _ => vec![lines(&facets, measure, axes.first().copied(), spots, colours)],
    };
    let note = if spots.iter().all(|spot| spot.cell.is_steady) {
        ""
    } else {
        " A star: its trial never became steady."
    };
    Drawing {
        name: String::new(),
        title: format!("{}: {}", capital(name), measure),
        caption: format!(
            "Every cell ran once, in an order drawn by the seed: no intervals, no verdicts.{note}"
        ),
        spoken: format!("{} cells of {}", spots.len(), measure),
        provenance: provenance(kept, None),
        panels,
        table: table(spots),
    }
}

impl<'k> Spot<'k> {
    fn of(kept: &'k Kept, cell: &'k PictureResult) -> Spot<'k> {
        // A trial of a round has the same load, should the picture's own be missing.
        let mut trials = kept.trials.iter().filter(|trial| trial.cell == cell.cell);
        let trial = trials.find(|trial| trial.bench.is_object());
        let mut load = trial.map_or(Value::Null, |trial| trial.bench.clone());
        if let Some(disks) = trial.and_then(|trial| trial.disks) {
            load["disks"] = disks.into();
        }
        let reached = cell.cell.split(", ").next().unwrap_or_default();
        let path = reached.split_once(" over ").map_or("", |(_, path)| path);
        Spot { cell, path, load }
    }

    fn level(&self, key: &str) -> Option<u64> {
        self.load[key].as_u64()
    }
}

/// The values of a key with an order, least first.
fn levels<'s, 'k: 's>(spots: impl Iterator<Item = &'s Spot<'k>>, key: &str) -> Vec<u64> {
    let mut levels: Vec<u64> = spots.filter_map(|spot| spot.level(key)).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Cells that differ in nothing but the axes, in the order of the plan.
fn facets<'s, 'k>(spots: &'s [Spot<'k>], axes: &[(&str, &str)]) -> Vec<Facet<'s, 'k>> {
    let others = AXES.into_iter().filter(|axis| !axes.contains(axis));
    let kinds = KINDS.into_iter().map(|key| (key, key)).chain(others);
    let varies = |key: &str| spots.iter().any(|spot| spot.load[key] != spots[0].load[key]);
    let kinds: Vec<(&str, &str)> = kinds.filter(|(key, _)| varies(key)).collect();
    let has_paths = spots.iter().any(|spot| spot.path != spots[0].path);
    let mut facets: Vec<Facet<'s, 'k>> = Vec::new();
    for spot in spots {
        let system = system_of(&spot.cell.cell);
        let mut label = system.to_owned();
        if has_paths && !spot.path.is_empty() {
            label += &format!(" over {}", spot.path);
        }
        for (key, name) in &kinds {
            match &spot.load[*key] {
                Value::String(text) => label += &format!(", {text}"),
                Value::Null | Value::Bool(false) => {}
                Value::Bool(true) => label += &format!(", {name}"),
                other => label += &format!(", {name} {other}"),
            }
        }
        match facets.iter_mut().find(|facet| facet.label == label) {
            Some(facet) => facet.spots.push(spot),
            None => facets.push(Facet { label, system, spots: vec![spot] }),
        }
    }
    facets
}

/// The least and the most of a measure.
fn range(spots: &[Spot<'_>], measure: Measure) -> (f64, f64) {
    let values = || spots.iter().filter_map(|spot| spot.cell.measures.get(&measure).copied());
    (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
}

fn heat_map(
    facet: &Facet<'_, '_>,
    measure: Measure,
    across: (&str, &str),
    upward: (&str, &str),
    spots: &[Spot<'_>],
    (low, high): (f64, f64),
) -> Panel {
    const LEFT: f64 = 70.0;
    const TOP: f64 = 30.0;
    const ROW: f64 = 44.0;
    let (columns, rows) = (levels(spots.iter(), across.0), levels(spots.iter(), upward.0));
    let width = (WIDTH - LEFT - 12.0) / columns.len() as f64;
    let bottom = TOP + ROW * rows.len() as f64;
    let mut panel = Panel::new(bottom + 44.0);
    panel.text((0.0, 14.0), Anchor::Start, "ink strong", &shortened(&facet.label, 58));
    for (place, row) in rows.iter().rev().enumerate() {
        let y = TOP + ROW * (place as f64 + 0.5) + 4.0;
        panel.text((LEFT - 8.0, y), Anchor::End, "soft small", &level_name(upward.0, *row));
    }
    panel.text((0.0, bottom + 18.0), Anchor::Start, "soft small", &format!("↑ {}", upward.1));
    for (place, column) in columns.iter().enumerate() {
        let x = LEFT + width * (place as f64 + 0.5);
        let name = level_name(across.0, *column);
        panel.text((x, bottom + 18.0), Anchor::Middle, "soft small", &name);
    }
    panel.text(
        (WIDTH - 12.0, bottom + 38.0),
        Anchor::End,
        "soft small",
        &format!("{} →", across.1),
    );
    let shade = Scale::log(low, high, 0.0, 1.0);
    for spot in &facet.spots {
        let places = spot.level(across.0).zip(spot.level(upward.0));
        let Some((column, row)) = places.and_then(|(across, upward)| {
            let column = columns.iter().position(|level| *level == across)?;
            Some((column, rows.iter().position(|level| *level == upward)?))
        }) else {
            continue;
        };
        let Some(value) = spot.cell.measures.get(&measure) else { continue };
        let part = if low < high { shade.place(*value) } else { 0.5 };
        let (fill, ink) = cividis(part);
        let x = LEFT + width * column as f64;
        let y = TOP + ROW * (rows.len() - 1 - row) as f64;
        let told = quantity(measure, *value);
        let hint = format!("{}: {told}", spot.cell.cell);
        panel.coloured((x + 1.0, y + 1.0), (width - 2.0, ROW - 2.0), &fill, &hint);
        let star = if spot.cell.is_steady { "" } else { "*" };
        let middle = (x + width / 2.0, y + ROW / 2.0 + 4.5);
        panel.text(middle, Anchor::Middle, ink, &format!("{told}{star}"));
    }
    panel
}

/// What lines are drawn in: above, below, on the left and on the right.
const TOP: f64 = 26.0;
const BOTTOM: f64 = 260.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 16.0;

/// One line each facet, over what varies; equally far apart, whatever the steps.
fn lines(
    facets: &[Facet<'_, '_>],
    measure: Measure,
    axis: Option<(&str, &str)>,
    spots: &[Spot<'_>],
    colours: &Colours<'_>,
) -> Panel {
    let mut panel = Panel::new(BOTTOM + 48.0 + 19.0 * facets.len().div_ceil(2) as f64);
    let columns = axis.map_or(Vec::new(), |(key, _)| levels(spots.iter(), key));
    let step = (RIGHT - LEFT - 40.0) / (columns.len().max(2) - 1) as f64;
    let place = |column: usize| LEFT + 20.0 + step * column as f64;
    let upward = Scale::linear(range(spots, measure).1 * 1.05, BOTTOM, TOP);
    frame(&mut panel, measure, &upward);
    for (column, level) in columns.iter().enumerate() {
        let name = level_name(axis.map_or("", |(key, _)| key), *level);
        panel.text((place(column), BOTTOM + 18.0), Anchor::Middle, "soft small", &name);
    }
    if let Some((_, name)) = axis {
        panel.text((RIGHT, BOTTOM + 36.0), Anchor::End, "soft small", &format!("{name} →"));
    }
    for (at, facet) in facets.iter().enumerate() {
        let mut points: Vec<(f64, f64, String)> = Vec::new();
        for spot in &facet.spots {
            let level = axis.and_then(|(key, _)| spot.level(key));
            let column = columns.iter().position(|column| Some(*column) == level).unwrap_or(0);
            let Some(value) = spot.cell.measures.get(&measure) else { continue };
            let star = if spot.cell.is_steady { "" } else { ", never steady" };
            let hint = format!("{}: {}{star}", spot.cell.cell, quantity(measure, *value));
            points.push((place(column), upward.place(*value), hint));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let way: Vec<(f64, f64)> = points.iter().map(|(x, y, _)| (*x, *y)).collect();
        // Lines of the same system, over other paths or with other patterns, have dashes.
        let is_second = facets[..at].iter().any(|other| other.system == facet.system);
        let dash = if is_second { " dash" } else { colours.dash(facet.system) };
        let suffix = colours.suffix(facet.system);
        let class = format!("l{suffix} thick{dash}");
        panel.path(&way, false, &class);
        for (x, y, hint) in &points {
            panel.dot((*x, *y), 4.0, &format!("f{suffix} edge"), hint);
        }
        let (x, y) = ((at % 2) as f64 * WIDTH / 2.0, BOTTOM + 58.0 + 19.0 * (at / 2) as f64);
        panel.line((x, y - 4.0), (x + 24.0, y - 4.0), &class);
        let name = shortened(&facet.label, 29);
        panel.text((x + 30.0, y), Anchor::Start, "ink small", &name);
    }
    panel
}

/// The grid of lines, with what it measures.
fn frame(panel: &mut Panel, measure: Measure, upward: &Scale) {
    panel.text((0.0, 14.0), Anchor::Start, "soft", &capital(&axis_name(measure)));
    for tick in upward.ticks(5) {
        let y = upward.place(tick);
        panel.line((LEFT, y), (RIGHT, y), "grid");
        let name = match measure.whole() {
            Measure::Iops => thousands(tick),
            _ => short_time(tick),
        };
        panel.text((LEFT - 6.0, y + 4.0), Anchor::End, "soft small", &name);
    }
    panel.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
}

/// "4 KiB", "32".
fn level_name(key: &str, level: u64) -> String {
    match key {
        "block_bytes" if level >= 1 << 20 => {
            format!("{} MiB", three_digits(level as f64 / f64::from(1 << 20)))
        }
        "block_bytes" if level >= 1024 => format!("{} KiB", three_digits(level as f64 / 1024.0)),
        "block_bytes" => format!("{level} B"),
        "rate" => thousands(level as f64),
        _ => level.to_string(),
    }
}

/// The colour of a part from 0 to 1, and the class of text that is readable on it.
fn cividis(part: f64) -> (String, &'static str) {
    const STOPS: [[f64; 3]; 6] = [
        [0.0, 34.0, 78.0],
        [53.0, 69.0, 108.0],
        [102.0, 105.0, 112.0],
        [148.0, 142.0, 119.0],
        [200.0, 184.0, 102.0],
        [254.0, 232.0, 56.0],
    ];
    let along = part.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let from = (along.floor() as usize).min(STOPS.len() - 2);
    let mix = |channel: usize| {
        let (one, other) = (STOPS[from][channel], STOPS[from + 1][channel]);
        (one + (other - one) * (along - from as f64)).round() as u8
    };
    let ink = if part < 0.47 { "on-dark" } else { "on-light" };
    (format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2)), ink)
}

fn table(spots: &[Spot<'_>]) -> Table {
    let mut table = Table::new([
        "cell",
        "disks",
        "depth",
        "jobs",
        "block_bytes",
        "rate",
        "iops",
        "read_iops",
        "write_iops",
        "bytes_per_second",
        "latency_mean_ns",
        "read_latency_mean_ns",
        "write_latency_mean_ns",
        "p50_ns",
        "p99_ns",
        "cpu_us_per_op",
        "steady",
    ]);
    for spot in spots {
        let level = |key: &str| spot.level(key).map(|level| level as f64).into();
        let value = |measure: Measure| spot.cell.measures.get(&measure).copied().into();
        table.push([
            spot.cell.cell.as_str().into(),
            level("disks"),
            level("queue_depth"),
            level("jobs"),
            level("block_bytes"),
            level("rate"),
            value(Measure::Iops),
            value(Measure::ReadIops),
            value(Measure::WriteIops),
            value(Measure::Throughput),
            value(Measure::LatencyMean),
            value(Measure::ReadLatencyMean),
            value(Measure::WriteLatencyMean),
            value(Measure::P50),
            value(Measure::P99),
            value(Measure::CpuPerOp),
            (if spot.cell.is_steady { "yes" } else { "no" }).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_on_a_shade_are_readable() {
        // Relative luminance, and contrast of at least 4.5 to 1 (WCAG 2).
        let linear = |byte: u8| {
            let part = f64::from(byte) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        for step in 0..=50 {
            let (fill, ink) = cividis(f64::from(step) / 50.0);
            let byte = |at: usize| u8::from_str_radix(&fill[at..at + 2], 16).expect("hex");
            let light =
                0.2126 * linear(byte(1)) + 0.7152 * linear(byte(3)) + 0.0722 * linear(byte(5));
            let contrast =
                if ink == "on-dark" { 1.05 / (light + 0.05) } else { (light + 0.05) / 0.05 };
            assert!(contrast >= 4.5, "{step}: {fill} {ink} {contrast:.1}");
        }
    }
}
