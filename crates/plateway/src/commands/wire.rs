//! `plateway wire`: the bytes of headers that each stack of protocols has around data, beside what a
//! paper says of them, and which share of the wire is left for data.
//!
//! All of it is computed by [`wire::overhead`] from frames that it encodes; here it is only shown.

use serde::Serialize;
use wire::overhead::{STACKS, Stack};

use crate::cli::WireArgs;
use crate::config::size::Size;
use crate::control::table_of;

pub(super) fn run(args: &WireArgs) -> miette::Result<()> {
    let rows: Vec<Row> = STACKS.iter().map(|stack| Row::of(stack, args)).collect();
    super::show(args.json, &rows, || text(&rows, args))
}

/// A stack of protocols.
#[derive(Debug, Serialize)]
struct Row {
    /// Its protocols from the data on, and what is special about it.
    stack: &'static str,
    /// Bytes of a frame that are not data.
    header_bytes: usize,
    /// Bytes that the paper counts, if it has the stack in this form.
    paper_bytes: Option<usize>,
    /// Why the paper has another number, or what this form is.
    why: &'static str,
    /// What `header_bytes` adds up, outermost first.
    headers: Vec<Header>,
    /// What the share below is for.
    mtu: u16,
    block_bytes: u64,
    /// What carries a block; nothing where the MTU leaves no room for data.
    frames: Option<usize>,
    wire_bytes: Option<usize>,
    data_percent: Option<f64>,
}

/// A header, or what stands behind the data.
#[derive(Debug, Serialize)]
struct Header {
    name: &'static str,
    bytes: usize,
}

impl Row {
    fn of(stack: &Stack, args: &WireArgs) -> Row {
        // At most 1 MiB, as the command line takes it.
        let share = stack.share(args.mtu.into(), args.block as usize);
        let parts = stack.parts().into_iter();
        Row {
            stack: stack.name,
            header_bytes: stack.header_bytes(),
            paper_bytes: stack.paper_bytes,
            why: stack.why,
            headers: parts.map(|part| Header { name: part.name, bytes: part.bytes }).collect(),
            mtu: args.mtu,
            block_bytes: args.block,
            frames: share.map(|share| share.frames),
            wire_bytes: share.map(|share| share.wire_bytes),
            data_percent: share.map(|share| share.data_percent()),
        }
    }
}

fn text(rows: &[Row], args: &WireArgs) -> String {
    let table = table_of(
        rows,
        &[
            ("stack", |row| row.stack.to_owned()),
            ("header bytes", |row| row.header_bytes.to_string()),
            ("paper", |row| row.paper_bytes.map_or("-".to_owned(), |bytes| bytes.to_string())),
            ("data", |row| {
                row.data_percent.map_or("-".to_owned(), |percent| format!("{percent:.1}%"))
            }),
            ("why", |row| row.why.to_owned()),
        ],
    );
    format!(
        "{table}\n\n\
        header bytes: from the Ethernet header on, without VLAN tags\n\
        paper: Landowski and Curran on AoE over MPLS, Table I; - where it does not have the stack in this form\n\
        data: of what the frames of {} take on the wire at an MTU of {}, each with 24 more (preamble 8, check \
        sequence 4, gap 12)\n",
        Size(args.block),
        args.mtu
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mtu: u16, block: u64) -> String {
        let args = WireArgs { mtu, block, json: false };
        let rows: Vec<Row> = STACKS.iter().map(|stack| Row::of(stack, &args)).collect();
        text(&rows, &args)
    }

    /// The cells of a stack's line, which two spaces or more divide.
    fn cells(text: &str, stack: &str) -> Vec<String> {
        let cells = |line: &str| -> Vec<String> {
            line.split("  ").map(|cell| cell.trim().to_owned()).filter(|c| !c.is_empty()).collect()
        };
        let mut lines = text.lines().map(cells);
        lines.find(|line| line.first().is_some_and(|first| first == stack)).expect("a line")
    }

    #[test]
    fn a_line_has_both_numbers_the_share_and_the_reason() {
        let text = shown(1500, 4096);
        let line = cells(&text, "AoE/MPLS");
        assert_eq!(line[..4], ["AoE/MPLS", "54", "50", "92.9%"]);
        assert!(line[4].contains("though its experiment pushes two labels"), "{line:?}");
        assert_eq!(cells(&text, "NVMe/TCP")[..4], ["NVMe/TCP", "78", "-", "94.1%"]);
        assert!(text.contains("the frames of 4KiB take on the wire at an MTU of 1500"), "{text}");
    }

    #[test]
    fn where_no_data_fit_no_share_is_shown() {
        let text = shown(68, 512);
        assert_eq!(cells(&text, "AoE")[..4], ["AoE", "36", "32", "-"]);
        assert_ne!(cells(&text, "iSCSI")[3], "-");
    }
}
