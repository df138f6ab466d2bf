//! The picture of a bench: how latencies are distributed, and what came back in each second.
//!
//! An SVG of two charts, one above the other. In: what was counted. Errors: those of drawing, as
//! text.

use lab::load::{Side, Tally};
use lab::report::Nanoseconds;
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 720);
/// Points of a distribution.
const STEPS: u32 = 200;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The text of the picture.
pub(super) fn draw(title: &str, tally: &Tally) -> Result<String, String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let drawn = root
        .fill(&WHITE)
        .map_err(|error| error.to_string())
        .and_then(|()| root.titled(title, ("sans-serif", 18)).map_err(|error| error.to_string()))
        .and_then(|area| {
            let (above, below) = area.split_vertically(SIZE.1 / 2);
            distribution(&above, tally)?;
            series(&below, tally)
        })
        .and_then(|()| root.present().map_err(|error| error.to_string()));
    drop(root);
    drawn.map(|()| text)
}

/// Which part of requests took at most so long.
fn distribution(area: &Area<'_>, tally: &Tally) -> Result<(), String> {
    let sides = [
        ("reads", &tally.reads, BLUE),
        ("writes", &tally.writes, RED),
        ("trims", &tally.trims, GREEN),
        ("flushes", &tally.flushes, MAGENTA),
    ];
    let sides: Vec<_> = sides.into_iter().filter(|(_, side, _)| side.requests() > 0).collect();
    let longest = sides.iter().map(|(_, side, _)| side.latency.max()).max().unwrap_or(1);
    let shortest = sides.iter().map(|(_, side, _)| side.latency.min()).min().unwrap_or(1);
    let range = (shortest.max(1) as f64 * 0.9)..(longest.max(2) as f64 * 1.1);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(range.log_scale(), 0.0..1.0)
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .x_desc("latency")
        .y_desc("part of requests")
        .x_label_formatter(&|ns| Nanoseconds(*ns).to_string())
        .draw()
        .map_err(|error| error.to_string())?;
    for (name, side, colour) in &sides {
        let line = LineSeries::new(points(side), colour);
        let drawn = chart.draw_series(line).map_err(|error| error.to_string())?;
        let colour = *colour;
        drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    let labels = &mut chart.configure_series_labels();
    labels.border_style(BLACK).background_style(WHITE).position(SeriesLabelPosition::LowerRight);
    labels.draw().map_err(|error| error.to_string())
}

fn points(side: &Side) -> impl Iterator<Item = (f64, f64)> + '_ {
    (0..=STEPS).map(|step| {
        let part = f64::from(step) / f64::from(STEPS);
        (side.latency.value_at_quantile(part) as f64, part)
    })
}

/// What came back in each second, without the last one if it is not whole.
fn series(area: &Area<'_>, tally: &Tally) -> Result<(), String> {
    let whole = tally.window().as_secs() as usize;
    let seconds = &tally.series[..whole.max(1).min(tally.series.len())];
    let most = seconds.iter().map(|second| second.requests).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..(seconds.len().max(1) as f64), 0.0..(most.max(1) as f64 * 1.1))
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .x_desc("second")
        .y_desc("requests a second")
        .draw()
        .map_err(|error| error.to_string())?;
    // A step for each second: nothing is known of what is between.
    let steps = seconds.iter().enumerate().flat_map(|(at, second)| {
        let height = second.requests as f64;
        [(at as f64, height), (at as f64 + 1.0, height)]
    });
    chart.draw_series(LineSeries::new(steps, &BLUE)).map_err(|error| error.to_string())?;
    Ok(())
}

/// What came back in each second, for a spreadsheet.
pub(super) fn log(tally: &Tally) -> String {
    let mut text = "second,requests,bytes,errors,latency_mean_ns,latency_max_ns\n".to_owned();
    // Seconds at the end in which nothing came back are as true as the others.
    let whole = tally.window().as_secs();
    for at in 0..whole.max(tally.series.len() as u64) {
        let second = tally.series.get(at as usize).copied().unwrap_or_default();
        let mean = second.latency_sum_ns.checked_div(second.requests).unwrap_or(0);
        text += &format!(
            "{at},{},{},{},{},{}\n",
            second.requests, second.bytes, second.errors, mean, second.latency_max_ns
        );
    }
    text
}
