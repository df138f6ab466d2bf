//! What goes on, on standard error: a bar that knows about how long the rest will take.
//!
//! In: what each piece of work is thought to take. Out: a line that is rewritten in place on a
//! terminal, elsewhere one as each piece begins and ends. The rest is estimated by how long what is
//! done has taken against what it was thought to. Times: seconds.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A piece of work: its name, and what it is thought to take.
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) seconds: f64,
}

/// Pieces of work, one after the other.
pub(super) struct Progress {
    bar: ProgressBar,
    pieces: Vec<Piece>,
    /// Which one is under way.
    at: Cell<usize>,
    /// When it began, after the start of all.
    since: Cell<Duration>,
}

impl Progress {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        let whole: f64 = pieces.iter().map(|piece| piece.seconds).sum();
        let bar = ProgressBar::new(whole.ceil() as u64);
        let style = ProgressStyle::with_template("{bar:20} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, pieces, at: Cell::new(0), since: Cell::new(Duration::ZERO) }
    }

    /// The next piece begins.
    pub(super) fn begin(&self) {
        self.since.set(self.bar.elapsed());
        self.bar.set_position(done(&self.pieces, self.at.get()).0 as u64);
        self.show("");
        if self.bar.is_hidden() {
            eprintln!("{}", self.line(""));
        }
    }

    /// What goes on within it.
    pub(super) fn show(&self, what: &str) {
        self.bar.set_message(self.line(what));
    }

    /// It is over.
    pub(super) fn end(&self) {
        let spent = self.bar.elapsed().saturating_sub(self.since.get());
        let piece = &self.pieces[self.at.get()];
        if self.bar.is_hidden() && spent > Duration::from_secs(2) {
            eprintln!("{}: {:.0} s", piece.name, spent.as_secs_f64());
        }
        self.at.set(self.at.get() + 1);
        if self.at.get() == self.pieces.len() {
            self.bar.finish_and_clear();
        }
    }

    fn line(&self, what: &str) -> String {
        let (at, count) = (self.at.get(), self.pieces.len());
        let left = left(&self.pieces, at, self.since.get().as_secs_f64());
        let name = &self.pieces[at].name;
        let what = if what.is_empty() { String::new() } else { format!(": {what}") };
        format!("[{}/{count}] {name}{what}, about {} left", at + 1, duration(left))
    }
}

/// What the pieces before `at` were thought to take, and the others.
fn done(pieces: &[Piece], at: usize) -> (f64, f64) {
    let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.seconds).sum();
    let (before, rest) = pieces.split_at(at);
    (sum(before), sum(rest))
}

/// About how long the pieces from `at` on take, if those before took `spent` together.
fn left(pieces: &[Piece], at: usize, spent: f64) -> f64 {
    let (thought, rest) = done(pieces, at);
    // A few seconds say nothing of the hour to come.
    let factor = if thought < 10.0 { 1.0 } else { (spent / thought).clamp(0.2, 5.0) };
    rest * factor
}

/// A time as one says it.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 99.5 => format!("{short:.0} s"),
        long => format!("{:.0} min", long / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_how_long_the_rest_took() {
        let piece = |seconds| Piece { name: String::new(), seconds };
        let pieces = [piece(20.0), piece(30.0), piece(50.0)];
        assert_eq!(left(&pieces, 0, 0.0), 100.0);
        assert_eq!(left(&pieces, 1, 40.0), 160.0, "twice as long as thought");
        assert_eq!(left(&pieces, 2, 25.0), 25.0);
        assert_eq!(left(&[piece(1.0), piece(9.0)], 1, 5.0), 9.0, "too little is done to say");
    }

    #[test]
    fn a_time_is_said_in_seconds_or_minutes() {
        assert_eq!([12.4, 99.0, 100.0, 4000.0].map(duration), ["12 s", "99 s", "2 min", "67 min"]);
    }
}
