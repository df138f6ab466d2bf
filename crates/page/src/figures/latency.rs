//! How long requests took: the percentiles of each system, in the middle of its rounds.
//!
//! Across, percentiles by how rare what is slower is, so that the tail has room; upwards, latency
//! with equal ratios equally high. An area has all rounds, from the least to the most.

use lab::kept::Kept;
use lab::plan::Measure;
use lab::statistics::median;

use super::{Drawing, provenance};
use crate::scene::{Colours, Runs, Scene};
use crate::svg::{Anchor, Panel, Scale, WIDTH, spread};
use crate::table::Table;
use crate::words::{quantity, shortened};

/// With the part of requests that is slower.
const PERCENTILES: [(Measure, f64); 7] = [
    (Measure::P50, 0.5),
    (Measure::P75, 0.25),
    (Measure::P90, 0.1),
    (Measure::P95, 0.05),
    (Measure::P99, 0.01),
    (Measure::P99_9, 0.001),
    (Measure::P99_99, 0.0001),
];

/// What the rounds of one system say of a percentile.
struct Point {
    percentile: Measure,
    slower: f64,
    low: f64,
    middle: f64,
    high: f64,
}

pub(super) fn draw(kept: &Kept, scene: &Scene<'_>, colours: &Colours<'_>) -> Option<Drawing> {
    let lines: Vec<(&Runs<'_>, Vec<Point>)> =
        scene.runs.iter().map(|runs| (runs, points(runs))).filter(|(_, p)| !p.is_empty()).collect();
    if lines.is_empty() {
        return None;
    }
    let mut table = Table::new(["system", "percentile", "median_ns", "least_ns", "most_ns"]);
    for (runs, points) in &lines {
        for point in points {
            table.push([
                runs.system.into(),
                point.percentile.word().into(),
                point.middle.into(),
                point.low.into(),
                point.high.into(),
            ]);
        }
    }
    let rounds = lines.iter().map(|(runs, _)| runs.trials.len()).max();
    Some(Drawing {
        name: String::new(),
        title: format!("Latency {}", scene.title),
        caption: "Lines: the median over rounds. Areas: from the least to the most of all rounds. \
            Equal ratios are equally high. A percentile is told where every tail has ten requests."
            .to_owned(),
        spoken: spoken(&lines),
        provenance: provenance(kept, rounds),
        panels: vec![panel(&lines, colours)],
        table,
    })
}

fn points(runs: &Runs<'_>) -> Vec<Point> {
    let point = |(percentile, slower): (Measure, f64)| {
        let values = runs.values(percentile);
        // Where a trial had too few requests for it, the others would be a choice.
        let middle = median(&values).filter(|_| values.len() == runs.trials.len())?;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        (low > 0.0).then_some(Point { percentile, slower, low, middle, high })
    };
    PERCENTILES.into_iter().filter_map(point).collect()
}

fn spoken(lines: &[(&Runs<'_>, Vec<Point>)]) -> String {
    let one = |(runs, points): &(&Runs<'_>, Vec<Point>)| {
        let told: Vec<String> = points
            .iter()
            .map(|point| {
                format!("{} {}", point.percentile.word(), quantity(point.percentile, point.middle))
            })
            .collect();
        format!("{}: {}", runs.system, told.join(", "))
    };
    lines.iter().map(one).collect::<Vec<_>>().join(". ")
}

fn panel(lines: &[(&Runs<'_>, Vec<Point>)], colours: &Colours<'_>) -> Panel {
    const TOP: f64 = 26.0;
    const BOTTOM: f64 = 300.0;
    const LEFT: f64 = 58.0;
    const RIGHT: f64 = WIDTH - 78.0;
    let mut panel = Panel::new(BOTTOM + 30.0);
    let all = || lines.iter().flat_map(|(_, points)| points);
    let low = all().map(|point| point.low).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.high).fold(0.0, f64::max);
    let upward = Scale::log(low * 0.85, high * 1.15, BOTTOM, TOP);
    let rarest = all().map(|point| point.slower).fold(0.1, f64::min);
    let across = Scale::log(1.0 / 0.5, 1.0 / rarest, LEFT + 8.0, RIGHT);
    panel.text((0.0, 14.0), Anchor::Start, "soft", "Latency");
    for tick in upward.ticks(7) {
        let y = upward.place(tick);
        panel.line((LEFT, y), (RIGHT, y), "grid");
        panel.text((LEFT - 6.0, y + 4.0), Anchor::End, "soft small", &short_time(tick));
    }
    for (percentile, slower) in PERCENTILES.into_iter().filter(|(_, slower)| *slower >= rarest) {
        let x = across.place(1.0 / slower);
        panel.line((x, BOTTOM), (x, BOTTOM + 4.0), "axis");
        // Three quarters has no room beside its neighbours.
        if !matches!(percentile, Measure::P75 | Measure::P95) {
            let name = percentile.word();
            panel.text((x, BOTTOM + 18.0), Anchor::Middle, "soft small", name);
        }
    }
    panel.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    let place = |slower: f64, value: f64| (across.place(1.0 / slower), upward.place(value));
    for (runs, points) in lines {
        let above = points.iter().map(|point| place(point.slower, point.high));
        let below = points.iter().rev().map(|point| place(point.slower, point.low));
        let area: Vec<(f64, f64)> = above.chain(below).collect();
        panel.path(&area, true, &format!("f{} range", colours.suffix(runs.system)));
    }
    for (runs, points) in lines {
        let (suffix, dash) = (colours.suffix(runs.system), colours.dash(runs.system));
        let way: Vec<_> = points.iter().map(|point| place(point.slower, point.middle)).collect();
        panel.path(&way, false, &format!("l{suffix} thick{dash}"));
        for (point, at) in points.iter().zip(way) {
            let told = quantity(point.percentile, point.middle);
            let hint = format!("{}, {}: {told}", runs.system, point.percentile.word());
            panel.dot(at, 3.5, &format!("f{suffix} edge"), &hint);
        }
    }
    let ends: Vec<f64> = lines
        .iter()
        .map(|(_, points)| points.last().map_or(BOTTOM, |point| upward.place(point.middle)))
        .collect();
    for ((runs, _), y) in lines.iter().zip(spread(&ends, 16.0, TOP, BOTTOM)) {
        labelled(&mut panel, RIGHT, y, runs.system, colours);
    }
    panel
}

/// The name of a line at its end.
pub(super) fn labelled(panel: &mut Panel, x: f64, y: f64, system: &str, colours: &Colours<'_>) {
    let class = format!("f{}", colours.suffix(system));
    panel.rect((x + 8.0, y - 5.0), (9.0, 9.0), &class, "");
    panel.text((x + 21.0, y + 4.0), Anchor::Start, "ink small", &shortened(system, 9));
}

/// "20 us", of a round value.
pub(crate) fn short_time(ns: f64) -> String {
    let steps = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    match steps.into_iter().find(|(step, _)| ns >= step * 0.9995) {
        Some((step, unit)) => format!("{} {unit}", crate::words::three_digits(ns / step)),
        None => format!("{} ns", crate::words::three_digits(ns)),
    }
}
