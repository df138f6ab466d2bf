//! One compared measure of one group: what each system came to, and by how much they differ.
//!
//! Left, a bar a system as long as the mean of its rounds, each of which is a dot, the first on top.
//! Right, for each comparison the ratio with the interval that its verdict is read off, and the
//! verdict. Ratios are of how fast: above one is better, whatever the measure; of processor time the
//! axis says how much less or more was spent. A bound that was asked for is a line across its row.

use lab::kept::Kept;
use lab::plan::{Group as Planned, GroupResults, Measure};
use lab::statistics::{Better, Finding, Interval, LogRatio};

use super::{CROWD, Drawing, NAME_MAX, capital, measures, names_width, provenance, upright_grid};
use crate::scene::Colours;
use crate::svg::{Anchor, Panel, Scale, WIDTH};
use crate::table::Table;
use crate::words::{axis_name, mean, quantity, shortened, three_digits, wrapped};

/// Differences that may stand below an axis, in percent, nearest to equal first.
const SLOWER: [f64; 11] =
    [-1.0, -2.0, -5.0, -10.0, -20.0, -30.0, -50.0, -70.0, -90.0, -99.0, -99.9];
const FASTER: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 400.0, 900.0, 9_900.0, 99_900.0];

/// A comparison of this measure.
struct Compared<'k> {
    /// "aoe against nvme"
    label: String,
    finding: &'k Finding,
}

/// What the rounds that a group's intervals are of say of a column: those that count, and where
/// there is no verdict for it, those that never became steady as well.
fn values(group: &GroupResults, column: usize) -> Vec<f64> {
    let mut values: Vec<f64> = group.rounds.iter().map(|round| round[column]).collect();
    if group.analysis.rounds_used > group.rounds.len() {
        values.extend(group.unsteady_rounds.iter().map(|round| round[column]));
    }
    values
}

/// `planned` is the group of the plan, if this version reads it.
pub(super) fn draw(
    kept: &Kept,
    group: &GroupResults,
    measure: Measure,
    planned: Option<&Planned>,
    colours: &Colours<'_>,
) -> Option<Drawing> {
    let compared = compared(group, measure, planned);
    let is_asked = |system: usize| {
        system != group.null
            || planned.is_some_and(|planned| {
                let of = |column: usize| group.columns.get(column);
                let pairs = planned.plan.comparisons.iter();
                pairs.flat_map(|pair| [pair.subject, pair.reference]).any(|column| {
                    of(column).is_some_and(|c| c.system == group.null && c.measure == measure)
                })
            })
    };
    let all: Vec<(usize, Vec<f64>)> = (0..group.columns.len())
        .filter(|column| group.columns[*column].measure == measure)
        .map(|column| (group.columns[column].system, values(group, column)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let shown: Vec<&(usize, Vec<f64>)> =
        all.iter().filter(|(system, _)| is_asked(*system)).collect();
    if shown.is_empty() && compared.is_empty() {
        return None;
    }
    let mut caption =
        "Left: the mean of the rounds that count; each dot is a round, the first on top. \
        Right: "
            .to_owned()
            + &Ways::of(measure).title.to_lowercase()
            + ", with the interval that the verdict is read off.";
    if compared.iter().any(|one| one.finding.bound.is_some()) {
        caption += " A line across a row is the bound that was asked for.";
    }
    if let Some((_, values)) = all.iter().find(|(system, _)| !is_asked(*system)) {
        let value = mean(values).map(|value| quantity(measure, value)).unwrap_or_default();
        caption += &format!(
            " Not drawn: {}, a disk that does nothing, at {value}.",
            group.systems[group.null]
        );
    }
    let said = compared.iter().map(|one| one.finding.to_string());
    Some(Drawing {
        name: String::new(),
        title: format!("{} {}", capital(&measure.to_string()), group.name),
        caption,
        spoken: said.collect::<Vec<_>>().join(". "),
        provenance: provenance(kept, Some(group.analysis.rounds_used)),
        panels: vec![
            bars(group, measure, &shown, colours),
            forest(&compared, planned.map(|planned| planned.plan.margin), measure),
        ],
        table: table(group, measure, &all, &compared),
    })
}

/// The comparisons of a measure: by the plan, or if that cannot be read, by how their names begin.
fn compared<'k>(
    group: &'k GroupResults,
    measure: Measure,
    planned: Option<&Planned>,
) -> Vec<Compared<'k>> {
    let findings = group.analysis.findings.iter();
    let measures = measures(group);
    let each = findings.filter_map(|finding| {
        let pair = planned.and_then(|planned| {
            let pair = planned.plan.comparisons.iter().find(|pair| pair.name == finding.name)?;
            Some((group.columns.get(pair.subject)?, group.columns.get(pair.reference)?))
        });
        let Some((subject, reference)) = pair else {
            let begins = |of: &&Measure| finding.name.starts_with(&format!("{of} of "));
            let found = measures.iter().find(begins).or(measures.first());
            return (found == Some(&measure))
                .then(|| Compared { label: finding.name.clone(), finding });
        };
        let (one, other) = (&group.systems[subject.system], &group.systems[reference.system]);
        let label = format!("{one} against {other}");
        (subject.measure == measure).then_some(Compared { label, finding })
    });
    each.collect()
}

fn bars(
    group: &GroupResults,
    measure: Measure,
    shown: &[&(usize, Vec<f64>)],
    colours: &Colours<'_>,
) -> Panel {
    const ROW: f64 = 62.0;
    const TOP: f64 = 30.0;
    let bottom = TOP + ROW * shown.len() as f64;
    let mut panel = Panel::new(bottom + 30.0);
    let left = names_width(shown.iter().map(|(system, _)| group.systems[*system].as_str()));
    let most = shown.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    let scale = Scale::linear(most, left, WIDTH - 22.0);
    panel.text((0.0, 14.0), Anchor::Start, "soft", &capital(&axis_name(measure)));
    upright_grid(&mut panel, &scale, (TOP, bottom), |tick| quantity(measure, tick));
    for (row, (system, values)) in shown.iter().enumerate() {
        let (y, name) = (TOP + ROW * row as f64, &group.systems[*system]);
        let value = mean(values).unwrap_or_default();
        let told = quantity(measure, value);
        let hint = format!("{name}: {told}, the mean of {} rounds", values.len());
        let fill = format!("f{}", colours.suffix(name));
        panel.rect((left, y + 22.0), (scale.place(value) - left, 34.0), &fill, &hint);
        panel.text((left + 2.0, y + 16.0), Anchor::Start, "ink", &told);
        panel.text((left - 8.0, y + 43.0), Anchor::End, "ink strong", &shortened(name, NAME_MAX));
        let step = 28.0 / values.len().max(2) as f64;
        for (round, value) in values.iter().enumerate() {
            let hint = format!("round {}: {}", round + 1, quantity(measure, *value));
            let y = y + 25.0 + step * (round as f64 + 0.5);
            let (radius, class) =
                if values.len() > CROWD { (1.8, "round crowd") } else { (2.8, "round") };
            panel.dot((scale.place(*value), y), radius, class, &hint);
        }
    }
    panel.line((left, TOP), (left, bottom), "axis");
    panel
}

/// What the two directions of the axis are called.
struct Ways {
    title: &'static str,
    left: &'static str,
    right: &'static str,
    is_cost: bool,
}

impl Ways {
    fn of(measure: Measure) -> Ways {
        match measure.better() {
            Better::Cheaper => Ways {
                title: "How much more or less it costs",
                left: "← costs more",
                right: "costs less →",
                is_cost: true,
            },
            Better::Higher | Better::Lower => Ways {
                title: "How much slower or faster",
                left: "← slower",
                right: "faster →",
                is_cost: false,
            },
        }
    }

    /// How many times as fast one is that is so many percent faster, or costs so many more.
    fn speed(&self, percent: f64) -> f64 {
        let ratio = 1.0 + percent / 100.0;
        if self.is_cost { 1.0 / ratio } else { ratio }
    }
}

fn forest(compared: &[Compared<'_>], margin: Option<f64>, measure: Measure) -> Panel {
    const TOP: f64 = 30.0;
    const LINE: f64 = 17.0;
    let words: Vec<(Vec<String>, Vec<String>)> = compared.iter().map(row_words).collect();
    let rows = words.iter().map(|(label, said)| (label.len() + said.len()) as f64 * LINE + 34.0);
    let bottom = TOP + rows.sum::<f64>() + if compared.is_empty() { 30.0 } else { 0.0 };
    let mut panel = Panel::new(bottom + 46.0);
    let ways = Ways::of(measure);
    panel.text((0.0, 14.0), Anchor::Start, "soft", ways.title);
    let bound = |one: &Compared<'_>| Some(one.finding.bound?.lead(measure.better()));
    // Who is equal to whom is asked by none that asks for a bound.
    let margin = margin.filter(|_| compared.iter().any(|one| one.finding.bound.is_none()));
    let estimates = compared.iter().filter_map(|one| one.finding.estimate);
    let widest = estimates.flat_map(|one| [one.corrected.low, one.corrected.high, one.ratio]);
    let far = widest.chain(compared.iter().filter_map(bound)).map(|ratio| ratio.0.abs());
    let shown_margin = margin.map(f64::ln_1p).filter(|margin| *margin < 1.0).unwrap_or(0.0);
    let far = far.fold(shown_margin.max(0.02), f64::max) * 1.12;
    let scale = Scale::log((-far).exp(), far.exp(), 12.0, WIDTH - 22.0);
    axis_of_ratios(&mut panel, &scale, far, (margin, &ways), (TOP, bottom));
    if compared.is_empty() {
        panel.text((12.0, TOP + 18.0), Anchor::Start, "soft", "nothing is compared in this");
    }
    let mut y = TOP;
    for (one, (label, said)) in compared.iter().zip(&words) {
        if let Some((lead, asked)) = bound(one).zip(one.finding.bound) {
            let x = scale.place(lead.ratio());
            let below = y + (label.len() + said.len()) as f64 * LINE;
            panel.rect((x - 1.0, below + 4.0), (2.0, 24.0), "bound", &asked.to_string());
        }
        for (lines, class) in [(label, "ink strong"), (said, "ink")] {
            for line in lines {
                y += LINE;
                backed(&mut panel, (12.0, y), line, class);
            }
        }
        if let Some(estimate) = one.finding.estimate {
            let hint = format!(
                "{}: {}, an interval at {:.4}%",
                one.label,
                one.finding.shown(estimate.corrected),
                estimate.corrected.level * 100.0
            );
            interval(&mut panel, &scale, y + 16.0, estimate.ratio, estimate.corrected);
            let class = if one.finding.primary { "mark" } else { "mark hollow" };
            panel.rect(
                (scale.place(estimate.ratio.ratio()) - 4.5, y + 11.5),
                (9.0, 9.0),
                class,
                &hint,
            );
        }
        y += 34.0;
    }
    panel
}

/// A label, and what is said of it, in lines.
fn row_words(one: &Compared<'_>) -> (Vec<String>, Vec<String>) {
    let label = if one.finding.primary { "" } else { "exploratory: " };
    (wrapped(&format!("{label}{}", one.label), 60), wrapped(&one.finding.said(), 62))
}

/// Words that lines of the grid do not cross.
fn backed(panel: &mut Panel, at: (f64, f64), words: &str, class: &str) {
    let width = words.chars().count() as f64 * 7.6;
    panel.rect((at.0 - 2.0, at.1 - 12.0), (width.min(WIDTH - 20.0), 16.0), "paper veil", "");
    panel.text(at, Anchor::Start, class, words);
}

fn interval(panel: &mut Panel, scale: &Scale, y: f64, ratio: LogRatio, range: Interval) {
    let (low, high) = (range.low.0.min(ratio.0), range.high.0.max(ratio.0));
    let (low, high) = (scale.place(LogRatio(low).ratio()), scale.place(LogRatio(high).ratio()));
    panel.line((low, y), (high, y), "whisker");
    for end in [low, high] {
        panel.line((end, y - 6.0), (end, y + 6.0), "whisker");
    }
}

/// The line at "equal", what is equal within the margin, and round differences on both sides.
fn axis_of_ratios(
    panel: &mut Panel,
    scale: &Scale,
    far: f64,
    (margin, ways): (Option<f64>, &Ways),
    (top, bottom): (f64, f64),
) {
    if let Some(margin) = margin {
        let from = scale.place(1.0 / (1.0 + margin));
        let width = scale.place(1.0 + margin) - from;
        let hint = format!("equal within {}", percent(margin));
        panel.rect((from, top), (width, bottom - top), "margin", &hint);
    }
    for changes in [SLOWER.as_slice(), &FASTER] {
        let mut last = 0.0;
        for change in changes {
            let way = ways.speed(*change).ln().abs();
            if way - last >= far / 4.5 && way < far * 0.97 {
                last = way;
                let x = scale.place(ways.speed(*change));
                panel.line((x, top), (x, bottom), "grid");
                panel.text((x, bottom + 17.0), Anchor::Middle, "soft small", &signed(*change));
            }
        }
    }
    let middle = scale.place(1.0);
    panel.line((middle, top), (middle, bottom), "equal");
    panel.text((middle, bottom + 17.0), Anchor::Middle, "ink small", "equal");
    panel.text((12.0, bottom + 36.0), Anchor::Start, "soft small", ways.left);
    panel.text((WIDTH - 22.0, bottom + 36.0), Anchor::End, "soft small", ways.right);
    if let Some(margin) = margin {
        let words = format!("shaded: equal within {}", percent(margin));
        panel.text((middle, bottom + 36.0), Anchor::Middle, "soft small", &words);
    }
}

/// "+20%"
fn signed(percent: f64) -> String {
    let sign = if percent < 0.0 { '−' } else { '+' };
    format!("{sign}{}%", three_digits(percent.abs()))
}

fn percent(fraction: f64) -> String {
    format!("{}%", three_digits(fraction * 100.0))
}

/// Each round of each system, then each comparison.
fn table(
    group: &GroupResults,
    measure: Measure,
    all: &[(usize, Vec<f64>)],
    compared: &[Compared<'_>],
) -> Table {
    let mut table = Table::new([
        "what",
        "measure",
        "round",
        "value",
        "ratio",
        "low",
        "high",
        "level",
        "low_95",
        "high_95",
        "rounds_effective",
        "verdict",
    ]);
    for (system, values) in all {
        for (round, value) in values.iter().enumerate() {
            let mut row = vec![
                group.systems[*system].clone().into(),
                measure.word().into(),
                (round as f64 + 1.0).into(),
                (*value).into(),
            ];
            row.resize(table.names.len(), None.into());
            table.rows.push(row);
        }
    }
    for Compared { finding, .. } in compared {
        let of = finding.estimate;
        table.push([
            finding.name.as_str().into(),
            measure.word().into(),
            None.into(),
            None.into(),
            of.map(|of| of.ratio.ratio()).into(),
            of.map(|of| of.corrected.low.ratio()).into(),
            of.map(|of| of.corrected.high.ratio()).into(),
            of.map(|of| of.corrected.level).into(),
            of.map(|of| of.interval.low.ratio()).into(),
            of.map(|of| of.interval.high.ratio()).into(),
            of.map(|of| of.rounds_effective).into(),
            finding.answer().into(),
        ]);
    }
    table
}
