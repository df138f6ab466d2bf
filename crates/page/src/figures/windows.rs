//! Operations a second, window by window: a thin line each trial of the rounds that count.
//!
//! A trial ends when it is steady, so lines are of different lengths; a window of a trial is never a
//! value of its own in what is compared.

use lab::kept::Kept;
use lab::plan::Measure;

use super::latency::labelled;
use super::{CROWD, Drawing, provenance};
use crate::scene::{Colours, Runs, Scene};
use crate::svg::{Anchor, Panel, Scale, WIDTH, spread};
use crate::table::Table;
use crate::words::{mean, thousands};

pub(super) fn draw(kept: &Kept, scene: &Scene<'_>, colours: &Colours<'_>) -> Option<Drawing> {
    let has_windows = |runs: &&Runs<'_>| runs.trials.iter().any(|trial| trial.windows.len() > 1);
    let all: Vec<&Runs<'_>> = scene.runs.iter().filter(has_windows).collect();
    let others: Vec<&Runs<'_>> = all.iter().copied().filter(|runs| !runs.is_null).collect();
    let shown = if others.is_empty() { &all } else { &others };
    if shown.is_empty() {
        return None;
    }
    let mut table = Table::new(["system", "round", "window", "operations_per_second"]);
    for runs in &all {
        for trial in &runs.trials {
            let round = trial.round.as_ref().map_or(0, |round| round.number + 1);
            for (at, value) in trial.windows.iter().enumerate() {
                let window = at as f64 + 1.0;
                table.push([
                    runs.system.into(),
                    (round as f64).into(),
                    window.into(),
                    (*value).into(),
                ]);
            }
        }
    }
    let seconds = all[0].trials[0].bench["steady"]["window_seconds"].as_f64();
    let length = seconds.map_or(String::new(), |seconds| format!(" of {seconds} s"));
    let rounds = shown.iter().map(|runs| runs.trials.len()).max();
    let levels = shown.iter().filter_map(|runs| {
        let value = mean(&runs.values(Measure::Iops))?;
        Some(format!("{} about {} a second", runs.system, thousands(value)))
    });
    Some(Drawing {
        name: String::new(),
        title: format!("Operations a second {}, window by window", scene.title),
        caption: format!(
            "A thin line is a trial, from its first window{length} to the one after which it was \
             steady, or was given up. Thick: their mean, as far as half of them have the window."
        ),
        spoken: levels.collect::<Vec<_>>().join(", "),
        provenance: provenance(kept, rounds),
        panels: vec![panel(shown, colours)],
        table,
    })
}

fn panel(shown: &[&Runs<'_>], colours: &Colours<'_>) -> Panel {
    const TOP: f64 = 26.0;
    const BOTTOM: f64 = 300.0;
    const LEFT: f64 = 58.0;
    const RIGHT: f64 = WIDTH - 78.0;
    let mut panel = Panel::new(BOTTOM + 30.0);
    let trials = || shown.iter().flat_map(|runs| &runs.trials);
    let most = trials().flat_map(|trial| &trial.windows).copied().fold(0.0, f64::max);
    let longest = trials().map(|trial| trial.windows.len()).max().unwrap_or(2).max(2);
    let upward = Scale::linear(most * 1.05, BOTTOM, TOP);
    let step = (RIGHT - LEFT - 16.0) / (longest - 1) as f64;
    let place =
        |window: usize, value: f64| (LEFT + 8.0 + step * window as f64, upward.place(value));
    panel.text((0.0, 14.0), Anchor::Start, "soft", "Operations a second");
    for tick in upward.ticks(5) {
        let y = upward.place(tick);
        panel.line((LEFT, y), (RIGHT, y), "grid");
        panel.text((LEFT - 6.0, y + 4.0), Anchor::End, "soft small", &thousands(tick));
    }
    let every = longest.div_ceil(12);
    for window in (0..longest).step_by(every) {
        let x = place(window, 0.0).0;
        panel.text((x, BOTTOM + 18.0), Anchor::Middle, "soft small", &(window + 1).to_string());
    }
    panel.text((RIGHT + 8.0, BOTTOM + 18.0), Anchor::Start, "soft small", "window");
    panel.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    for runs in shown {
        let faint = if runs.trials.len() > CROWD { " crowd" } else { "" };
        let class = format!("l{} thin{faint}", colours.suffix(runs.system));
        for trial in &runs.trials {
            let values = trial.windows.iter().enumerate();
            let way: Vec<_> = values.map(|(window, value)| place(window, *value)).collect();
            panel.path(&way, false, &class);
        }
    }
    let mut ends = Vec::new();
    for runs in shown {
        let means = means(runs, longest);
        let way: Vec<_> = means.iter().enumerate().map(|(at, value)| place(at, *value)).collect();
        let class = format!("l{} thick{}", colours.suffix(runs.system), colours.dash(runs.system));
        panel.path(&way, false, &class);
        ends.push(way.last().map_or(BOTTOM, |(_, y)| *y));
    }
    for (runs, y) in shown.iter().zip(spread(&ends, 16.0, TOP, BOTTOM)) {
        labelled(&mut panel, RIGHT, y, runs.system, colours);
    }
    panel
}

/// Of each window, over the trials that have it, as far as half of them do: a mean of the few that
/// took longest would look like a change.
fn means(runs: &Runs<'_>, longest: usize) -> Vec<f64> {
    let least = runs.trials.len().div_ceil(2);
    let each = (0..longest).map_while(|window| {
        let values: Vec<f64> =
            runs.trials.iter().filter_map(|trial| trial.windows.get(window).copied()).collect();
        mean(&values).filter(|_| values.len() >= least)
    });
    each.collect()
}
