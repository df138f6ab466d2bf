//! The few shapes that figures are made of, and scales for them.
//!
//! A [`Panel`] is a piece of a figure with a size of its own; a page lays panels beside or below
//! each other, as there is room. Units are those of SVG at [`WIDTH`], from the upper left. Colours are
//! classes, whose rules stand in `figure.css`: so they follow the reader's scheme. Coordinates that are not finite are
//! written as zero, so that a strange value of a file cannot break the picture.

use std::fmt::Write as _;

use crate::words::{escaped, wrapped};

/// Of a panel: readable on a phone, on which it is as wide as the screen.
pub(crate) const WIDTH: f64 = 480.0;
/// The rules of all classes, which the page and each picture by itself bring along.
pub(crate) const RULES: &str = include_str!("figure.css");

#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) height: f64,
    pub(crate) body: String,
}

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Panel {
    pub(crate) fn new(height: f64) -> Panel {
        Panel { height, body: String::new() }
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (at(x), at(y), escaped(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        );
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (at(from.0), at(from.1), at(to.0), at(to.1));
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" class=\"{class}\"/>"
        );
    }

    /// With a hint for a pointer that rests on it.
    pub(crate) fn rect(&mut self, from: (f64, f64), size: (f64, f64), class: &str, hint: &str) {
        self.shape(from, size, &format!("class=\"{class}\""), hint);
    }

    /// In a colour of its own, which no scheme changes.
    pub(crate) fn coloured(&mut self, from: (f64, f64), size: (f64, f64), fill: &str, hint: &str) {
        self.shape(from, size, &format!("fill=\"{fill}\""), hint);
    }

    fn shape(&mut self, from: (f64, f64), size: (f64, f64), look: &str, hint: &str) {
        let (x, y, width, height) = (at(from.0), at(from.1), at(size.0.max(0.0)), at(size.1));
        let rect =
            format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {look}");
        self.hinted(&rect, "rect", hint);
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str, hint: &str) {
        let (x, y, radius) = (at(x), at(y), at(radius));
        let dot = format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" class=\"{class}\"");
        self.hinted(&dot, "circle", hint);
    }

    fn hinted(&mut self, start: &str, name: &str, hint: &str) {
        let _ = match hint.is_empty() {
            true => writeln!(self.body, "{start}/>"),
            false => writeln!(self.body, "{start}><title>{}</title></{name}>", escaped(hint)),
        };
    }

    /// A line through points, or around an area.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], is_closed: bool, class: &str) {
        let step = |(place, (x, y)): (usize, &(f64, f64))| {
            format!("{}{} {}", if place == 0 { 'M' } else { 'L' }, at(*x), at(*y))
        };
        let way: String = points.iter().enumerate().map(step).collect();
        let end = if is_closed { "Z" } else { "" };
        let _ = writeln!(self.body, "<path d=\"{way}{end}\" class=\"{class}\"/>");
    }
}

/// Panels below a title, two in a row, as a file of its own.
pub(crate) fn alone(title: &str, foot: &str, panels: &[Panel]) -> String {
    const GAP: f64 = 24.0;
    let columns = panels.len().clamp(1, 2) as f64;
    let width = columns * (WIDTH + GAP) + GAP;
    let mut body = String::new();
    let mut y = 48.0;
    for row in panels.chunks(2) {
        for (panel, x) in row.iter().zip([GAP, WIDTH + 2.0 * GAP]) {
            let _ =
                writeln!(body, "<g transform=\"translate({x} {})\">\n{}</g>", at(y), panel.body);
        }
        y += row.iter().map(|panel| panel.height).fold(0.0, f64::max) + GAP;
    }
    // Of the letters of this size, so many fit into the width.
    let room = ((width - 2.0 * GAP) / 6.9) as usize;
    let lines = |text: &str, class: &str, first: f64| -> String {
        let each = wrapped(text, room).into_iter().enumerate().map(|(at, line)| {
            let (y, line) = (first + 16.0 * at as f64, escaped(&line));
            format!("<text x=\"{GAP}\" y=\"{y}\" class=\"{class}\">{line}</text>\n")
        });
        each.collect()
    };
    let foot_lines = wrapped(foot, room).len() as f64;
    let (heading, below) = (lines(title, "ink strong", 28.0), lines(foot, "soft small", at(y)));
    let (title, height) = (escaped(title), at(y + 16.0 * foot_lines));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" class=\"figure\" role=\"img\">\n<title>{title}</title>\n\
         <style>{RULES}</style>\n<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n\
         {heading}{body}{below}</svg>\n"
    )
}

/// With a decimal, as pictures need no more.
fn at(value: f64) -> f64 {
    if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 }
}

/// From values to places along an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From zero to a little beyond `most`.
    pub(crate) fn linear(most: f64, from: f64, to: f64) -> Scale {
        let high = if most > 0.0 && most.is_finite() { most } else { 1.0 };
        Scale { is_log: false, low: 0.0, high, from, to }
    }

    /// Around positive values, in which equal ratios are equally long.
    pub(crate) fn log(low: f64, high: f64, from: f64, to: f64) -> Scale {
        let is_range = low > 0.0 && high > low && high.is_finite();
        let (low, high) = if is_range { (low, high) } else { (0.5, 2.0) };
        Scale { is_log: true, low: low.ln(), high: high.ln(), from, to }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// Round values, about so many.
    pub(crate) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.is_log { self.log_ticks(about) } else { linear_ticks(self.high, about) }
    }

    /// Powers of ten, with two and five between them where there is room.
    fn log_ticks(&self, about: usize) -> Vec<f64> {
        let decades = |value: f64| (value / std::f64::consts::LN_10).floor() as i32;
        let range = decades(self.low)..=decades(self.high);
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let all = range.clone().flat_map(|power| {
                steps.iter().map(move |step| step * 10_f64.powi(power)).collect::<Vec<_>>()
            });
            all.filter(|tick| (self.low..=self.high).contains(&tick.ln())).collect()
        };
        let choices = [ticks(&[1.0, 2.0, 5.0]), ticks(&[1.0, 3.0]), ticks(&[1.0])];
        let few = choices.iter().find(|choice| choice.len() <= about + 2);
        few.unwrap_or(&choices[2]).clone()
    }
}

fn linear_ticks(high: f64, about: usize) -> Vec<f64> {
    let rough = high / about.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|s| *s >= rough);
    let step = step.unwrap_or(rough);
    (0..=about * 3).map(|at| at as f64 * step).take_while(|tick| *tick <= high * 1.0001).collect()
}

/// Places for labels that want to stand at `wanted`, at least `gap` apart and within the bounds.
pub(crate) fn spread(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = wanted.to_vec();
    let mut least = top;
    for at in &order {
        places[*at] = places[*at].max(least);
        least = places[*at] + gap;
    }
    let mut most = bottom;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(most);
        most = places[*at] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(linear_ticks(127.0, 5), [0.0, 50.0, 100.0]);
        assert_eq!(linear_ticks(1.0, 4), [0.0, 0.5, 1.0]);
        let scale = Scale::log(9.0, 1_100.0, 0.0, 1.0);
        assert_eq!(scale.ticks(6), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
    }

    #[test]
    fn a_value_that_is_no_number_does_not_break_a_picture() {
        let mut panel = Panel::new(10.0);
        panel.line((f64::NAN, f64::INFINITY), (1.0, 2.0), "axis");
        assert!(panel.body.contains("x1=\"0\" y1=\"0\""), "{}", panel.body);
        assert!(Scale::linear(f64::NAN, 0.0, 1.0).place(0.5).is_finite());
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let places = spread(&[10.0, 11.0, 99.0], 12.0, 0.0, 100.0);
        assert_eq!(places, [10.0, 22.0, 99.0]);
        assert_eq!(spread(&[98.0, 99.0], 12.0, 0.0, 100.0), [88.0, 100.0]);
    }
}
