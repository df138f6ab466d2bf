//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets};

/// An empty table without lines, as wide as its contents.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    table
}
