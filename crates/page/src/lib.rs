//! The page of a plan that ran: from a result file of the lab to one HTML file that opens anywhere.
//!
//! In comes the JSON of a result file (`schema_version` 1, docs/plans.md), out comes text: the page,
//! and each of its figures as SVG with its data as CSV. Units are those of the file: nanoseconds,
//! bytes, operations a second, microseconds of processor time. What lives here: what is drawn and
//! how. What does not: files, clocks, and what anything means; verdicts and intervals are the lab's,
//! and so are their words. The page loads nothing and runs no script; colours follow the reader's
//! scheme, which a charting library that writes fixed colours cannot: so figures are written by
//! hand, of the few shapes in `svg`. Read [`kept`] for what comes in, `figures` for what is drawn,
//! `html` for the page. Errors: [`Error`], with what was expected and seen.

mod figures;
mod html;
mod kept;
mod scene;
mod svg;
mod table;
mod words;

use std::fmt;

use lab::plan::SCHEMA_VERSION;
use serde::Deserialize as _;
use serde_json::Value;

/// What becomes of a result file.
#[derive(Clone, Debug)]
pub struct Page {
    /// One file, which loads nothing.
    pub html: String,
    /// In the order of the page.
    pub figures: Vec<Figure>,
}

/// A figure by itself.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What its files may be called, of letters, digits and dashes; no two of a page are the same.
    pub name: String,
    pub title: String,
    /// With its own colours, light and dark.
    pub svg: String,
    /// What it shows, with a line of names first.
    pub csv: String,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file says that it is of another kind.
    Version { seen: String },
    /// Something in it is not what a result file has.
    Shape { why: String },
}

/// Draws the page of what was kept of a plan.
pub fn page(kept: &Value) -> Result<Page, Error> {
    match kept.get("schema_version").and_then(Value::as_u64) {
        Some(SCHEMA_VERSION) => {}
        _ => {
            let seen = kept.get("schema_version").map_or("none".to_owned(), Value::to_string);
            return Err(Error::Version { seen });
        }
    }
    let kept =
        kept::Kept::deserialize(kept).map_err(|error| Error::Shape { why: error.to_string() })?;
    kept.results.check().map_err(|why| Error::Shape { why })?;
    let drawings = figures::all(&kept);
    let html = html::page(&kept, &drawings);
    let figures = drawings.into_iter().map(figures::Drawing::finish).collect();
    Ok(Page { html, figures })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Version { seen } => write!(
                f,
                "expected the result file of a plan, with schema_version {SCHEMA_VERSION}, seen {seen}"
            ),
            Error::Shape { why } => write!(f, "expected the result file of a plan: {why}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
