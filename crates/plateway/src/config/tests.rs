//! The configuration as a user meets it: the example of the documentation, the picture of a
//! mistake; and the tables of what is said in which case (`tests/*.txt`), which are judged where
//! what they speak of lives.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::*;
pub(super) use testkit::cases::judge;

const DOCUMENTATION: &str = include_str!("../../../../docs/configuration.md");

/// A good configuration, whose lines cases replace.
pub(super) const GOOD: &str = include_str!("tests/good.toml");

pub(super) fn defaults() -> Defaults {
    let (control, state) = ("/run/p/control.sock".into(), "/var/lib/p".into());
    Defaults { cpus: vec![0, 1, 2, 3], control, state }
}

/// What a text that must be good means.
pub(crate) fn good(text: &str) -> HiArgs {
    match check("p.toml", text, &defaults()) {
        Ok(checked) => checked.args,
        Err(found) => panic!("{:#?}", found.lines().collect::<Vec<_>>()),
    }
}

/// [`GOOD`] with lines replaced.
pub(super) fn text_of(case: &str) -> String {
    testkit::cases::text_of(GOOD, case)
}

#[test]
fn the_documentation_explains_every_key_and_no_other() {
    for (table, keys) in file::keys() {
        let kind = table.split(" of ").next().filter(|kind| !kind.starts_with('['));
        let title = kind.map(|kind| format!("{kind} = {{ ... }}"));
        let heading = format!("### `{}`", title.as_deref().unwrap_or(table));
        let section =
            DOCUMENTATION.split_once(&heading).unwrap_or_else(|| panic!("{heading} is missing")).1;
        // Up to the next heading of any level.
        let section = section.split("\n##").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        assert_eq!(documented, keys, "{table}");
    }
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let blocks =
        DOCUMENTATION.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for block in blocks {
        if let Err(wrong) = check("docs/configuration.md", block, &defaults()) {
            panic!("{:#?}", wrong.lines().collect::<Vec<_>>());
        }
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn the_defaults_of_the_documentation_are_those_of_the_code() {
    for (key, value) in [
        ("memory", size::Size(block::limits::MEMORY_DEFAULT).to_string()),
        ("max_connections", block::limits::CONNECTIONS_MAX.to_string()),
        ("chunk", size::Size(volume::CHUNK_DEFAULT).to_string()),
        ("block_size", volume::BLOCK_SIZE_DEFAULT.to_string()),
        ("driver", server::DriverChoice::default().to_string()),
        ("log", crate::log::Format::default().to_string()),
        ("log_level", crate::log::Level::default().to_string()),
        ("link", link::LinkAccess::default().to_string()),
        ("access", link::LinkAccess::default().to_string()),
        ("buffers", aoe::limits::BUFFERS_DEFAULT.to_string()),
        ("window", crate::protocols::aoe::uri::TargetOptions::default().window.to_string()),
    ] {
        let row = format!("| `{key}` | ");
        let row = DOCUMENTATION.lines().find(|line| line.starts_with(&row)).unwrap();
        assert!(row.contains(&value), "{key}: {value} is not in {row}");
    }
}

#[test]
fn the_bounds_of_the_documentation_are_those_of_the_code() {
    use block::limits as l;
    use size::Size;
    let thousands = |number: u32| format!("{},{:03}", number / 1000, number % 1000);
    let spaced = |bytes: u64| Size(bytes).to_string().replace("KiB", " KiB").replace("MiB", " MiB");
    let large = spaced(l::RECEIVE_BUFFER.into());
    for part in [
        format!("(default {})", spaced(l::MEMORY_DEFAULT)),
        format!("at least {} each", spaced(server::MEMORY_PER_SHARD_MIN)),
        format!("up to {} (MDTS)", spaced(l::TRANSFER_MAX.into())),
        format!("| 1/{} of the pool |", l::POOL_IMMEDIATE_RESERVE),
        format!("| 1/{} of what is free,", l::POOL_SHARE),
        format!("| {} of {large} a shard,", l::RECEIVE_BUFFERS),
        format!("| {} each, as many", spaced(l::RECEIVE_BUFFER_SMALL.into())),
        format!("| {} a queue;", nvme::limits::QUEUE_DEPTH_MAX),
        format!("| {}, and one reply more", spaced(block::limits::REPLY_DATA_MAX.into())),
        format!(
            "| {} in all, {} from one address |",
            thousands(l::CONNECTIONS_MAX),
            thousands(l::CONNECTIONS_PER_HOST_MAX)
        ),
        format!("limited to {} each", spaced(l::SOCKET_BUFFER.into())),
        format!("after {} s without progress", l::SEND_PROGRESS.as_secs()),
    ] {
        let text = include_str!("../../../../docs/memory.md");
        assert!(text.contains(&part), "docs/memory.md does not say {part:?}");
    }
}

#[test]
fn a_mistake_is_shown_at_its_line() {
    let text = "[[disk]]\nname = \"d0\"\nuri = \"ram:12XB\"\n\n[[disk]]\nname = \"d0\"\nuri = \"ram:1MiB\"\n";
    let wrong = check("plateway.toml", text, &defaults()).unwrap_err();
    let mut shown = String::new();
    let handler =
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    handler.render_report(&mut shown, &wrong).unwrap();
    for part in [
        "the configuration has 2 mistakes and 2 warnings",
        "unit \"XB\" of \"12XB\" is not known",
        "[plateway.toml:3:12]",
        "3 │ uri = \"ram:12XB\"",
        "there is a disk \"d0\" already",
        "[plateway.toml:6:8]",
        "first here",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains("plateway.toml:3: "), "the place is said twice\n{shown}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let directory =
        std::env::temp_dir().join(format!("plateway-config-{}-absent", std::process::id()));
    let error = load(&directory.join("p.toml"), &defaults()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration ")
            && error.contains("p.toml: No such file"),
        "{error}"
    );
}
