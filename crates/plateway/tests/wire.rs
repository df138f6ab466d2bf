//! `plateway wire`: rows for programs and a table for people, at any MTU and block size.

#[allow(unreachable_pub)]
mod common;

use common::{plateway, text};
use serde_json::Value;

fn rows(args: &[&str]) -> Vec<Value> {
    let output = plateway().arg("wire").args(args).arg("--json").output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a list of rows")
}

fn row<'a>(rows: &'a [Value], stack: &str) -> &'a Value {
    rows.iter().find(|row| row["stack"] == stack).expect("a row")
}

#[test]
fn each_stack_is_a_row_with_the_paper_s_number_and_the_reason() {
    let rows = rows(&[]);
    for (stack, bytes, paper) in [
        ("AoE", 36, 32),
        ("AoE/MPLS", 54, 50),
        ("AoE/GRE", 74, 80),
        ("AoE/GRE/MPLS", 92, 98),
        ("AoE/L2TP", 86, 86),
        ("iSCSI", 102, 102),
        ("iSCSI/MPLS", 120, 120),
        ("iFCP", 118, 82),
        ("FCIP", 118, 82),
    ] {
        let row = row(&rows, stack);
        assert_eq!((&row["header_bytes"], &row["paper_bytes"]), (&bytes.into(), &paper.into()));
    }
    for row in &rows {
        assert!(!row["why"].as_str().expect("a text").is_empty(), "{row}");
        let headers = row["headers"].as_array().expect("a list").iter();
        let sum: u64 = headers.map(|one| one["bytes"].as_u64().expect("a number")).sum();
        assert_eq!(row["header_bytes"], sum, "{row}");
    }
    assert_eq!(row(&rows, "AoE/MPLS/UDP")["paper_bytes"], Value::Null);
    assert_eq!(row(&rows, "AoE")["headers"][1]["name"], "AoE");
}

#[test]
fn the_share_is_for_the_mtu_and_the_block_that_are_asked_for() {
    let rows = rows(&["--mtu", "9000", "--block", "1KiB"]);
    let aoe = row(&rows, "AoE");
    assert_eq!((&aoe["mtu"], &aoe["block_bytes"]), (&9000.into(), &1024.into()));
    assert_eq!((&aoe["frames"], &aoe["wire_bytes"]), (&1.into(), &(36 + 1024 + 24).into()));
    let percent = aoe["data_percent"].as_f64().expect("a number");
    assert!((percent - 100.0 * 1024.0 / 1084.0).abs() < 1e-9, "{percent}");
}

#[test]
fn people_get_a_table() {
    let output = plateway().arg("wire").output().expect("it runs");
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("AoE/L2TP, sublayer, cookie"), "{shown}");
    assert!(shown.contains("header bytes: from the Ethernet header on"), "{shown}");
}
