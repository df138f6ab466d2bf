//! The data of a figure: names and rows, as a table of the page and as CSV.
//!
//! Numbers are written with the digits that they have; units stand in the names.

use crate::words::escaped;

/// Rows that a page shows of a table: a browser is slow with a hundred thousand.
const ROWS_MAX: usize = 2_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) names: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Datum>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Datum {
    Text(String),
    Number(f64),
    /// It was not measured.
    Absent,
}

impl From<&str> for Datum {
    fn from(text: &str) -> Datum {
        Datum::Text(text.to_owned())
    }
}

impl From<String> for Datum {
    fn from(text: String) -> Datum {
        Datum::Text(text)
    }
}

impl From<f64> for Datum {
    fn from(number: f64) -> Datum {
        Datum::Number(number)
    }
}

impl From<Option<f64>> for Datum {
    fn from(number: Option<f64>) -> Datum {
        number.map_or(Datum::Absent, Datum::Number)
    }
}

impl Table {
    pub(crate) fn new(names: impl Into<Vec<&'static str>>) -> Table {
        Table { names: names.into(), rows: Vec::new() }
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [Datum; N]) {
        self.rows.push(row.to_vec());
    }

    /// RFC 4180, with line feeds.
    pub(crate) fn csv(&self) -> String {
        let mut text = self.names.join(",") + "\n";
        for row in &self.rows {
            let fields: Vec<String> = row.iter().map(Datum::field).collect();
            text += &(fields.join(",") + "\n");
        }
        text
    }

    /// With its first rows, if there are many: the CSV has all.
    pub(crate) fn html(&self) -> String {
        let is_number = |column: usize| {
            let mut data = self.rows.iter().filter_map(|row| row.get(column));
            data.any(|datum| matches!(datum, Datum::Number(_)))
        };
        let head = |(column, name): (usize, &&str)| {
            let class = if is_number(column) { " class=\"n\"" } else { "" };
            format!("<th{class}>{name}</th>")
        };
        let head: String = self.names.iter().enumerate().map(head).collect();
        let mut text =
            format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n");
        for row in self.rows.iter().take(ROWS_MAX) {
            let cells: String = row.iter().map(Datum::cell).collect();
            text += &format!("<tr>{cells}</tr>\n");
        }
        text += "</tbody></table></div>";
        if self.rows.len() > ROWS_MAX {
            text += &format!("\n<p class=\"quiet\">The first {ROWS_MAX}; the CSV has all.</p>");
        }
        text
    }
}

impl Datum {
    fn field(&self) -> String {
        match self {
            Datum::Number(number) => number.to_string(),
            Datum::Absent => String::new(),
            Datum::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Datum::Text(text) => text.clone(),
        }
    }

    fn cell(&self) -> String {
        match self {
            Datum::Number(number) => format!("<td class=\"n\">{}</td>", short(*number)),
            Datum::Absent => "<td></td>".to_owned(),
            Datum::Text(text) => format!("<td>{}</td>", escaped(text)),
        }
    }
}

/// With five digits that count; CSV has them all.
fn short(number: f64) -> String {
    if number == 0.0 || number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let decimals = (4.0 - number.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        let mut table = Table::new(["cell", "iops", "p99_ns"]);
        table.push(["a over b, \"c\"".into(), 1.5.into(), None.into()]);
        assert_eq!(table.csv(), "cell,iops,p99_ns\n\"a over b, \"\"c\"\"\",1.5,\n");
    }

    #[test]
    fn a_long_table_is_whole_as_csv() {
        let mut table = Table::new(["window"]);
        for row in 0..ROWS_MAX + 1 {
            table.push([(row as f64).into()]);
        }
        assert_eq!(table.csv().lines().count(), ROWS_MAX + 2);
        let html = table.html();
        assert_eq!(html.matches("<td").count(), ROWS_MAX);
        assert!(html.contains("the CSV has all"), "it says so");
    }

    #[test]
    fn a_table_of_the_page_has_no_markup_of_the_file() {
        let mut table = Table::new(["cell", "iops"]);
        table.push(["<b>".into(), 127_798.462_84.into()]);
        let html = table.html();
        assert!(html.contains("<th>cell</th><th class=\"n\">iops</th>"), "{html}");
        assert!(html.contains("<td>&lt;b&gt;</td><td class=\"n\">127798</td>"), "{html}");
    }
}
