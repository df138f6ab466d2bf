//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets};

/// An empty table without lines, as wide as its contents.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    table
}

/// A column: its title, and what is in the row of one thing.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// A table with a row for each thing.
pub(crate) fn table_of<T>(things: &[T], columns: &[Column<T>]) -> Table {
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let mut table = table(&titles);
    table.add_rows(
        things.iter().map(|one| columns.iter().map(|(_, cell)| cell(one)).collect::<Vec<_>>()),
    );
    table
}
