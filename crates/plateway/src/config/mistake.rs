//! Mistakes in what the user wrote: collected, not thrown, and shown each at its line.
//!
//! A [`Mistake`] holds a span into the *sources*: the configuration file and the command line laid
//! end to end, so that every value knows where it came from whichever way it was given.
//! [`Mistakes`] is what a caller shows: a `miette` diagnostic for a terminal, [`Mistakes::lines`]
//! for a log or a socket. Units: spans are byte offsets; lines and columns count from 1.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use block::record::passed_here;
use miette::{Diagnostic, LabeledSpan, NamedSource, Severity};

use super::text::Count;

/// Bytes of the sources.
pub(crate) type Span = Range<usize>;

/// One thing that is wrong, or (a warning) that is probably not what was meant.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    /// Whether the configuration can still be used.
    pub(crate) severity: Severity,
    /// What is wrong: the object, what was expected, what was seen.
    pub(crate) message: String,
    pub(crate) span: Span,
    /// A second place that explains the first: the other of two duplicates.
    also: Option<(Span, &'static str)>,
    /// What was meant, or what to do.
    help: Option<String>,
}

impl Mistake {
    /// A mistake that makes the configuration unusable.
    #[track_caller]
    pub(crate) fn error(span: Span, message: impl Into<String>) -> Self {
        passed_here("refusal");
        let (severity, message) = (Severity::Error, message.into());
        Self { severity, message, span, also: None, help: None }
    }

    /// Something that works but is probably not what was meant.
    #[track_caller]
    pub(crate) fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Adds a second place.
    pub(crate) fn also(mut self, span: &Span, label: &'static str) -> Self {
        self.also = Some((span.clone(), label));
        self
    }

    /// Adds the place where the same was written first.
    pub(crate) fn first(self, span: &Span) -> Self {
        self.also(span, "first here")
    }

    /// Adds what was meant or what to do.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what was meant, where that can be guessed.
    pub(crate) fn meant(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }
}

/// One text that values were read from.
#[derive(Debug)]
struct Source {
    text: Arc<NamedSource<String>>,
    from: usize,
    to: usize,
}

/// The texts that spans point into, end to end.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    /// Adds a text under the name that messages give it; returns the offset of its first byte.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> usize {
        let from = self.0.last().map_or(0, |source| source.to + 1);
        let named = Arc::new(NamedSource::new(name, text.to_owned()));
        self.0.push(Source { text: named, from, to: from + text.len() });
        from
    }

    /// The source that holds a span, and the span within it.
    fn locate(&self, span: &Span) -> Option<(&Source, Span)> {
        let mut sources = self.0.iter();
        let source = sources.find(|source| (source.from..=source.to).contains(&span.start))?;
        let end = span.end.min(source.to).max(span.start);
        Some((source, span.start - source.from..end - source.from))
    }
}

/// Everything found wrong with one configuration, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    located: Vec<Located>,
}

impl Mistakes {
    /// Puts each mistake at its place.
    pub(crate) fn locate(sources: &Sources, mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        let located = mistakes.into_iter().map(|mistake| Located::new(sources, mistake));
        Self { located: located.collect() }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.located.is_empty()
    }

    /// One line for each, as compilers print them: `plateway.toml:12: error: message (help)`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.located.iter().map(Located::line)
    }

    /// The lines of what can only be errors, without that word.
    pub(crate) fn plain_lines(&self) -> Vec<String> {
        self.located.iter().map(Located::plain_line).collect()
    }

    /// The lines, each with how grave it is.
    pub(crate) fn graded(&self) -> impl Iterator<Item = (Severity, String)> + '_ {
        self.located.iter().map(|located| (located.severity, located.line()))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.located.iter().filter(|one| one.severity == Severity::Error).count();
        let mistakes = Count(errors, "mistake");
        let warnings = Count(self.located.len() - errors, "warning");
        match (mistakes.0, warnings.0) {
            (0, _) => write!(f, "the configuration has {warnings}"),
            (_, 0) => write!(f, "the configuration has {mistakes}"),
            _ => write!(f, "the configuration has {mistakes} and {warnings}"),
        }
    }
}

impl std::error::Error for Mistakes {}

impl Diagnostic for Mistakes {
    fn severity(&self) -> Option<Severity> {
        self.located.iter().map(|one| one.severity).max()
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.located.iter().map(|one| one as &dyn Diagnostic)))
    }
}

/// A mistake together with the text around it.
#[derive(Debug)]
struct Located {
    severity: Severity,
    message: String,
    /// `name:line`, or nothing where the place is in no text.
    place: String,
    source: Option<Arc<NamedSource<String>>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl Located {
    fn new(sources: &Sources, mistake: Mistake) -> Self {
        let Mistake { severity, message, span, also, mut help } = mistake;
        let Some((source, local)) = sources.locate(&span) else {
            let (place, labels) = (String::new(), Vec::new());
            return Self { severity, message, place, source: None, labels, help };
        };
        let place = place_of(source, &local);
        let mut labels = vec![LabeledSpan::new_primary_with_span(Some("here".to_owned()), local)];
        let also = also.and_then(|(span, label)| Some((sources.locate(&span)?, label)));
        if let Some(((other_source, other), label)) = also {
            if Arc::ptr_eq(&other_source.text, &source.text) {
                labels.push(LabeledSpan::new_with_span(Some(label.to_owned()), other));
            } else {
                let there = format!("{label}: {}", place_of(other_source, &other));
                let both = help.map(|help| format!("{help}; {there}"));
                help = both.or(Some(there));
            }
        }
        Self { severity, message, place, source: Some(source.text.clone()), labels, help }
    }
}

impl Located {
    fn line(&self) -> String {
        let word = if self.severity == Severity::Error { "error: " } else { "warning: " };
        self.line_with(word)
    }

    fn plain_line(&self) -> String {
        self.line_with("")
    }

    fn line_with(&self, word: &str) -> String {
        let place = if self.place.is_empty() { String::new() } else { format!("{}: ", self.place) };
        let help = self.help.as_ref().map_or(String::new(), |help| format!(" ({help})"));
        format!("{place}{word}{}{help}", self.message)
    }
}

/// `name:line`
fn place_of(source: &Source, local: &Span) -> String {
    let before = &source.text.inner().as_bytes()[..local.start];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("{}:{line}", source.text.name())
}

// A graphical report draws the place itself, so this is the bare message; see `line` for logs.
impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Located {}

impl Diagnostic for Located {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.source.as_ref().map(|source| source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// The candidate that was probably meant: the fewest edits away, and no more than a third of the
/// word (at least one), so that `vol0` is offered for `vol1` but `a` is not offered for `b`.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = if word.chars().count() < 2 { 0 } else { (word.chars().count() / 3).max(1) };
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = strsim::osa_distance(&word.to_lowercase(), &candidate.to_lowercase());
            (distance, candidate)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_offered() {
        assert_eq!(nearest("memmory", ["shards", "memory"]), Some("memory"));
        assert_eq!(nearest("d1", ["d0", "data"]), Some("d0"));
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("listen", ["chunk", "layout"]), None);
    }

    #[test]
    fn a_span_belongs_to_its_source() {
        let mut sources = Sources::default();
        assert_eq!(sources.add("a.toml", "one\ntwo\n"), 0);
        let base = sources.add("command line", "serve ram:x");
        let found = vec![
            Mistake::error(base + 6..base + 11, "bad size").also(&(4..7), "first"),
            Mistake::warning(4..7, "odd word").help("say three"),
        ];
        let mistakes = Mistakes::locate(&sources, found);
        let lines: Vec<String> = mistakes.lines().collect();
        assert_eq!(
            lines,
            [
                "a.toml:2: warning: odd word (say three)",
                "command line:1: error: bad size (first: a.toml:2)"
            ]
        );
        assert_eq!(mistakes.to_string(), "the configuration has 1 mistake and 1 warning");
    }
}
