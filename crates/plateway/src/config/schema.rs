//! JSON Schema of `plateway.toml`, for editors: which keys there are, of which types, which are
//! needed and which words they take.
//!
//! It is made by the readers of the tables themselves (`file`), which say what they would take;
//! what hangs on other keys or on the machine only `plateway check` knows. Not by a derive: values
//! carry their places, and readers name what they expect.

use serde_json::{Map, Value, json};
use toml::Spanned;

use super::file::{LowArgs, LowSize, LowWords, Written, wanted};
use super::link::LinkAccess;
use super::server::DriverChoice;
use super::volume::LAYOUTS;
use crate::log::{Format, Level};
use crate::protocols::{SEQUENCES, SPLITS};

/// The keys without which a table is a mistake, whatever else it holds.
const REQUIRED: [(&str, &[&str]); 20] = [
    ("[[disk]]", &["name", "uri"]),
    ("[[volume]]", &["name", "disks"]),
    ("[[router]]", &["name"]),
    ("udp of [[link]]", &["peer"]),
    ("[[circuit]]", &["ethernet"]),
    ("[[ilm]]", &["label"]),
    // By a link in UDP there is no `next_hop`.
    ("[[lsp]]", &["name", "link", "labels"]),
    ("[[pseudowire]]", &["name", "label_in", "label_out", "lsp", "from"]),
    ("from of [[pseudowire]]", &["link"]),
    ("[[tunnel]]", &["name", "circuit", "peer"]),
    ("l2tp of [[tunnel]]", &["session_in", "session_out"]),
    ("[[neighbour]]", &["link", "next_hop", "address"]),
    ("backup", &["link", "labels"]),
    ("[[host]]", &["name"]),
    ("[[export]]", &["volume"]),
    ("nvme of [[export]]", &["subsystem", "nsid"]),
    ("iscsi of [[export]]", &["target", "lun"]),
    ("aoe of [[export]]", &["shelf", "slot"]),
    ("chap", &["user"]),
    ("mutual of chap", &["user"]),
];

/// Tables of which all of one of these lists of keys is there at least.
const ONE_OF: [(&str, &[&[&str]]); 7] = [
    ("[[link]]", &[&["ethernet"], &["udp"]]),
    ("[[listener]]", &[&["nvme"], &["iscsi"], &["aoe"]]),
    ("[[ilm]]", &[&["pop"], &["link", "labels"]]),
    ("[[tunnel]]", &[&["gre"], &["l2tp"]]),
    ("[[host]]", &[&["nvme"], &["iscsi"], &["aoe"]]),
    ("[[export]]", &[&["nvme"], &["iscsi"], &["aoe"]]),
    ("aoe of [[export]]", &[&["link"], &["interface"]]),
];

/// The whole.
pub(crate) fn schema() -> Value {
    let mut schema = table_schema::<LowArgs>();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "plateway.toml".into();
    schema
}

/// What a table may hold.
pub(super) fn table_schema<T: Written>() -> Value {
    let mut keys: Map<String, Value> =
        wanted::<T>().into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    for (key, words) in words(T::TITLE) {
        keys[key]["enum"] = words.into();
    }
    let mut schema = json!({ "type": "object", "properties": keys, "additionalProperties": false });
    if let Some((_, keys)) = REQUIRED.iter().find(|(title, _)| *title == T::TITLE) {
        schema["required"] = json!(keys);
    }
    if let Some((_, lists)) = ONE_OF.iter().find(|(title, _)| *title == T::TITLE) {
        schema["anyOf"] = lists.iter().map(|keys| json!({ "required": keys })).collect();
    }
    schema
}

/// The words that keys of a table take, where they are few.
pub(crate) fn words(title: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let accesses = || LinkAccess::NAMES.iter().map(|(name, _)| *name).collect();
    match title {
        "[server]" => {
            vec![
                ("driver", DriverChoice::NAMES.iter().map(|(name, _)| *name).collect()),
                ("log", Format::NAMES.iter().map(|(name, _)| *name).collect()),
                ("log_level", Level::NAMES.iter().map(|(name, _)| *name).collect()),
            ]
        }
        "[[volume]]" => vec![("layout", LAYOUTS.to_vec())],
        "[[link]]" => vec![("access", accesses())],
        "[[listener]]" => vec![("link", accesses())],
        "[[circuit]]" => vec![("split", SPLITS.to_vec())],
        "[[pseudowire]]" | "[[tunnel]]" => vec![("sequence", SEQUENCES.to_vec())],
        _ => Vec::new(),
    }
}

/// A type of values.
pub(crate) trait Valued {
    fn schema() -> Value;
}

impl Valued for String {
    fn schema() -> Value {
        json!({ "type": "string" })
    }
}

impl Valued for i64 {
    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 0 })
    }
}

impl Valued for bool {
    fn schema() -> Value {
        json!({ "type": "boolean" })
    }
}

impl Valued for LowSize {
    fn schema() -> Value {
        json!({ "type": ["string", "integer"], "minimum": 0, "pattern": "^[0-9]+ *([KMGTP]i?B|kB|B)?$" })
    }
}

impl Valued for LowWords {
    fn schema() -> Value {
        json!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

impl<T: Valued> Valued for Vec<Spanned<T>> {
    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::tests::{GOOD, judge, text_of};
    use super::*;

    fn refused(text: &str) -> Vec<String> {
        let judged = jsonschema::validator_for(&schema()).expect("a schema");
        let value: Value = toml::from_str(text).expect("TOML");
        judged.iter_errors(&value).map(|error| error.to_string()).collect()
    }

    #[test]
    fn the_examples_are_right() {
        let page = include_str!("../../../../docs/configuration.md");
        let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let package = include_str!("../../../../packaging/plateway.toml");
        for text in blocks.chain([GOOD, package]) {
            assert_eq!(refused(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn mistakes_that_a_schema_can_know_are_refused_and_what_is_none_is_not() {
        let known = Cell::new(0);
        let table = include_str!("tests/mistakes.txt");
        judge(table, |case| {
            // What is said of it stands below the case, which `judge` keeps to itself.
            let at = table.find(&format!("\n{case}\n    ")).expect("it is of the table");
            let told = table[at + case.len() + 2..].split("\n\n").next().expect("lines");
            let told = told.trim_end();
            let text = text_of(case);
            if toml::from_str::<Value>(&text).is_ok() {
                let knows = |line: &str| {
                    line.contains("is not a key of")
                        // A set alone needs a layout, and what goes by a split circuit a class.
                        || line.contains(" has no ")
                            && !line.contains("has no layout")
                            && !line.contains("has no class")
                            // Which a link in UDP has none of, and has a name.
                            && !line.contains("has no next_hop")
                            && !line.contains("[[link]] has no name")
                        || line.contains(": expected a") && line.contains("], seen a")
                };
                let refused = refused(&text);
                if told.lines().any(knows) {
                    known.set(known.get() + 1);
                    assert!(!refused.is_empty(), "{case}\n{told}");
                } else if !told.contains("error: ") {
                    assert_eq!(refused, [""; 0], "{case}");
                }
            }
            told.lines().map(|line| line.trim_start().to_owned()).collect()
        });
        assert!(known.get() > 10, "{}", known.get());
    }
}
