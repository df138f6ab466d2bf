//! The page of a plan that ran, or of a paper that was rerun: from a result file of the lab to one HTML file
//! that opens anywhere.
//!
//! In comes the JSON of a result file (`schema_version` 1, docs/plans.md), out comes text: the page,
//! and each of its figures as SVG with its data as CSV. Units are those of the file: nanoseconds,
//! bytes, operations a second, microseconds of processor time. What lives here: what is drawn and
//! how. What does not: files, clocks, and what anything means; verdicts and intervals are the lab's,
//! and so are their words. The page loads nothing and runs no script; colours follow the reader's
//! scheme, which a charting library that writes fixed colours cannot: so figures are written by
//! hand, of the few shapes in `svg`. Read [`lab::kept`] for what comes in, `figures` for what is drawn,
//! `html` for the page. Errors: what was expected and seen.

mod figures;
mod html;
mod overview;
mod paper;
mod scene;
mod svg;
mod table;
mod words;

use lab::kept::Kept;
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

/// Draws the page of what was kept of a plan, or of a paper.
pub fn page(kept: &Value) -> Result<Page, String> {
    if lab::papers::is_of_a_paper(kept) {
        return paper::page(kept);
    }
    let kept = Kept::read(kept)?;
    let drawings = figures::all(&kept);
    let html = html::page(&kept, &drawings);
    let figures = drawings.into_iter().map(figures::Drawing::finish).collect();
    Ok(Page { html, figures })
}

/// Draws the page over several papers, of what was kept of each; their own pages are beside it, called as
/// their files are.
pub fn overview(kept: &[Value]) -> Result<String, String> {
    overview::page(kept)
}

#[cfg(test)]
mod tests;
