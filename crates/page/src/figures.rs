//! Every figure of a page, in its order: comparisons first, then latency, windows, what operations
//! cost, and pictures.
//!
//! A [`Drawing`] has its panels, which the page lays out, and its data; [`Drawing::finish`] makes of
//! it a file of its own. What has no data has no figure.

mod compare;
mod cost;
mod latency;
mod paper;
mod surface;
mod windows;

use std::collections::BTreeSet;

use lab::kept::Kept;
use lab::plan::{GroupResults, Measure};

use crate::Figure;
use crate::scene::{Colours, scenes};
use crate::svg::{self, Anchor, Panel};
use crate::table::Table;
use crate::words::slug;

pub(crate) use paper::{ratios, redrawn};

/// A figure before it is put anywhere.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) name: String,
    pub(crate) title: String,
    /// What is drawn how, in a sentence or two.
    pub(crate) caption: String,
    /// What somebody who does not see it is to know.
    pub(crate) spoken: String,
    pub(crate) provenance: String,
    pub(crate) panels: Vec<Panel>,
    pub(crate) table: Table,
}

/// The measures that a group compares, each once, in the order of the plan.
fn measures(group: &GroupResults) -> Vec<Measure> {
    let mut measures = Vec::new();
    for column in &group.columns {
        if !measures.contains(&column.measure) {
            measures.push(column.measure);
        }
    }
    measures
}

/// All of them, each with a name of its own.
pub(crate) fn all(kept: &Kept) -> Vec<Drawing> {
    let colours = Colours::of(kept);
    let experiment = kept.experiment().ok();
    let mut drawings = Vec::new();
    for group in &kept.results.groups {
        let planned = experiment.as_ref().and_then(|plan| {
            let mut planned = plan.groups.iter().filter(|planned| planned.name == group.name);
            planned.find_map(|planned| planned.as_run(group))
        });
        for measure in measures(group) {
            drawings.extend(compare::draw(kept, group, measure, planned.as_ref(), &colours));
        }
    }
    for scene in scenes(kept) {
        let of_scene = [
            latency::draw(kept, &scene, &colours),
            windows::draw(kept, &scene, &colours),
            cost::draw(kept, &scene),
            cost::draw_wire(kept, &scene, &colours),
        ];
        drawings.extend(of_scene.into_iter().flatten());
    }
    drawings.extend(surface::draw(kept, &colours));
    let mut names = BTreeSet::new();
    for (place, drawing) in drawings.iter_mut().enumerate() {
        drawing.name = slug(&drawing.title);
        if drawing.name.is_empty() || !names.insert(drawing.name.clone()) {
            drawing.name = format!("{}-figure-{}", drawing.name, place + 1);
            names.insert(drawing.name.clone());
        }
    }
    drawings
}

impl Drawing {
    pub(crate) fn finish(self) -> Figure {
        Figure { svg: self.svg(), csv: self.table.csv(), name: self.name, title: self.title }
    }

    /// As a file of its own.
    pub(crate) fn svg(&self) -> String {
        svg::alone(&self.title, &self.provenance, &self.panels)
    }
}

/// The most rounds that count, of all groups.
pub(crate) fn rounds(kept: &Kept) -> Option<usize> {
    kept.results.groups.iter().map(|group| group.analysis.rounds_used).max()
}

/// Where, when and with what it was measured, in one line. `rounds` are those that count.
pub(crate) fn provenance(kept: &Kept, rounds: Option<usize>) -> String {
    let environment = &kept.environment;
    let cpus = |cpus: &[usize]| {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        if list.is_empty() { "none".to_owned() } else { list.join(", ") }
    };
    let rounds = match rounds {
        Some(1) => "1 round".to_owned(),
        Some(rounds) => format!("{rounds} rounds"),
        None => "one trial a cell".to_owned(),
    };
    [
        format!("plan {}", kept.results.plan),
        environment.date.clone(),
        format!("plateway {}", environment.version),
        environment.kernel.clone(),
        environment.cpu.clone(),
        format!("near CPU {}, far CPU {}", cpus(&kept.near_cpus), cpus(&kept.far_cpus)),
        rounds,
        format!("seed {}", kept.results.seed),
    ]
    .join(" · ")
}

/// More rounds than this are drawn fainter, since they lie on each other.
const CROWD: usize = 40;
/// Letters of a name that a row begins with.
const NAME_MAX: usize = 18;

/// Horizontal room for the names of systems, before bars begin.
fn names_width<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0).min(NAME_MAX);
    (longest as f64 * 8.4 + 12.0).max(52.0)
}

/// Lines of the grid with their names below, between two heights.
fn upright_grid(
    panel: &mut Panel,
    scale: &svg::Scale,
    (top, bottom): (f64, f64),
    name: impl Fn(f64) -> String,
) {
    for tick in scale.ticks(4) {
        let x = scale.place(tick);
        panel.line((x, top), (x, bottom), "grid");
        panel.text((x, bottom + 17.0), Anchor::Middle, "soft small", &name(tick));
    }
}
/// Its first letter large, as titles begin; "p99" has none.
fn capital(text: &str) -> String {
    if text.starts_with("p9") || text.starts_with("p5") || text.starts_with("p7") {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
