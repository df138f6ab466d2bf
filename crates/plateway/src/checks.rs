//! What has to hold of any configuration, of any word of one and of any capture, whoever wrote it.
//! The fuzz targets ask for it; it is here because it looks inside. A breach is a panic.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use miette::{GraphicalReportHandler, GraphicalTheme};

use crate::commands::dissect::shown;
use crate::config::address::HostPort;
use crate::config::defaults::Defaults;
use crate::config::mistake::Mistakes;
use crate::config::model::HiArgs;
use crate::config::plan::plan;
use crate::config::quick::Flags;
use crate::config::size::{Size, parse_fio_size, parse_size};
use crate::config::text::config_text;
use crate::config::thing::{Change, Step, Thing};
use crate::config::uri::{DiskUri, UriError, model_of};
use crate::config::{self, Checked};
use crate::protocols::{check_words, parse_target};

/// A configuration, or two with a NUL between them: every mistake can be shown, on one line and in
/// a report with the text around it; one that is written out reads back as the same; there is
/// nothing to do from it to itself; and the steps from one to the other can be carried out in their
/// order, lead to the other, and lead back when undone.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut texts = text.splitn(2, '\0').filter_map(read);
    let Some(from) = texts.next() else { return };
    assert!(plan(&from, &from).is_ok_and(|plan| plan.steps.is_empty()), "a change to itself");
    if let Some(to) = texts.next() {
        difference(&from, &to);
        difference(&to, &from);
    }
}

/// Disk URIs, files of models, sizes, addresses, NQNs and UUIDs: what parses is printed on one line and parses back
/// to the same, and is printed the same then; a mistake names a place within the text and can be
/// shown.
pub fn words(text: &str) {
    match round_trip::<DiskUri>(text) {
        Ok(uri) => {
            let leads_to_blocks =
                !matches!(uri.innermost(), DiskUri::Ram { .. } | DiskUri::Null { .. });
            assert!(uri.same_backing(&uri) || !leads_to_blocks, "{uri} is not itself");
        }
        Err(error) => show_in(text, &error),
    }
    if let Err(error) = parse_target(text) {
        show_in(text, &error);
    }
    if let Err(mistakes) = model_of("m.toml", text) {
        show(&mistakes);
    }
    if let Err(error) = round_trip::<HostPort>(text) {
        assert!(text.get(error.offset..).is_some(), "{error} at {}", error.offset);
    }
    check_words(text);
    let _ = round_trip::<uuid::Uuid>(text);
    match (parse_size(text), parse_fio_size(text)) {
        (Ok(bytes), fio) => {
            assert_eq!(parse_size(&Size(bytes).to_string()), Ok(bytes));
            assert_eq!(fio, Ok(bytes), "fio's dialect has all sizes of the configuration");
        }
        (Err(error), fio) => {
            one_line(&error);
            if let Ok(bytes) = fio {
                assert_eq!(parse_fio_size(&Size(bytes).to_string()), Ok(bytes));
            }
        }
    }
}

/// A capture: `dissect` says the same of it whether it comes whole or in pieces of so many bytes,
/// and to people as much as in JSON, a line for each: nothing in a packet begins a line.
pub fn capture(capture: &[u8], piece: usize) {
    let whole = shown(capture, capture.len(), false);
    assert_eq!(whole, shown(capture, piece.max(1), false), "in pieces of {piece} bytes");
    let (lines, ended) = whole;
    let (objects, ended_too) = shown(capture, capture.len(), true);
    assert_eq!(ended, ended_too);
    let mut totals = lines.lines().skip(objects.lines().count());
    assert!(totals.all(|line| line.contains(" packets")), "{lines}\n{objects}");
}

/// Reads a text and checks what was made of it.
fn read(text: &str) -> Option<HiArgs> {
    let defaults =
        Defaults { cpus: vec![0, 1], control: "/run/p.sock".into(), state: "/var/p".into() };
    let check = |text: &str| config::check_with_flags("a.toml", text, &Flags::default(), &defaults);
    let Checked { args, warnings, places } = match check(text) {
        Ok(checked) => checked,
        Err(mistakes) => {
            show(&mistakes);
            assert!(mistakes.lines().next().is_some(), "refused for no reason");
            return None;
        }
    };
    show(&warnings);
    for thing in args.things().filter(|one| matches!(one, Thing::Disk(_) | Thing::Volume(_))) {
        let shown = text.get(places.find(&thing.title(), "")).unwrap_or_default();
        assert!(!shown.is_empty(), "no place of {}", thing.title());
    }
    let written = config_text(&args);
    match check(&written) {
        Ok(again) => assert_eq!(args, again.args, "written and read again:\n{written}"),
        Err(mistakes) => {
            let lines: Vec<String> = mistakes.lines().collect();
            panic!("it refuses what it wrote: {lines:#?}\n{written}");
        }
    }
    Some(args)
}

/// Carries out the steps from one configuration to the other, and undoes them.
fn difference(from: &HiArgs, to: &HiArgs) {
    let steps = match plan(from, to) {
        Ok(plan) => plan.steps,
        Err(refused) => {
            assert!(!refused.is_empty());
            refused.iter().for_each(one_line);
            return;
        }
    };
    for step in &steps {
        one_line(step);
        assert_eq!(step.inverse().inverse(), *step, "undone twice");
    }
    let there = perform(from.things().collect(), &steps);
    are(&there, &to.things().collect::<Vec<_>>());
    let back: Vec<Step> = steps.iter().rev().map(Step::inverse).collect();
    are(&perform(there, &back), &from.things().collect::<Vec<_>>());
}

/// Carries steps out on values, each of which must find what it needs: the things that result, by
/// title.
pub(crate) fn perform(mut things: Vec<Thing>, steps: &[Step]) -> Vec<Thing> {
    for step in steps {
        let stands = |title: &String| things.iter().any(|thing| thing.title() == *title);
        match step.clone() {
            Step::Add(new) => {
                assert!(new.stands_on().iter().all(stands), "{step} before what it stands on");
                let taken = things.iter().find(|old| new.excludes(old));
                assert!(taken.is_none(), "{step} beside {taken:?}");
                things.push(new);
            }
            Step::Remove(old) => {
                let is_on = |other: &Thing| other.stands_on().contains(&old.title());
                assert!(!things.iter().any(is_on), "{step} before what stands on it");
                let before = things.len();
                things.retain(|thing| *thing != old);
                assert_eq!(things.len() + 1, before, "{step}");
            }
            Step::Change { from, to } => {
                let found = things.iter_mut().find(|thing| **thing == from);
                *found.unwrap_or_else(|| panic!("{step}: there is none")) = to;
            }
            Step::Renew(_) | Step::Resize { .. } => panic!("{step}: no configuration says so"),
        }
    }
    things.sort_by_key(|thing| thing.title());
    things
}

/// Whether these are the wanted ones, in whatever order; what says nothing of a thing that is there
/// does not matter.
fn are(seen: &[Thing], wanted: &[Thing]) {
    assert_eq!(seen.len(), wanted.len(), "{seen:#?} {wanted:#?}");
    for one in wanted {
        let is = |other: &Thing| {
            other == one
                || other.title() == one.title() && matches!(other.change(one), Ok(Change::None))
        };
        assert!(seen.iter().any(is), "{one:#?} is not in {seen:#?}");
    }
}

/// Parses, prints, and parses and prints again.
pub(crate) fn round_trip<T: FromStr<Err: Display> + Display + PartialEq + Debug>(
    text: &str,
) -> Result<T, T::Err> {
    let value: T = text.parse()?;
    one_line(&value);
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) => {
            assert_eq!(value, again, "{text:?} is printed as {printed:?}");
            assert_eq!(printed, again.to_string());
        }
        Err(error) => panic!("{text:?} is printed as {printed:?}, and that is refused: {error}"),
    }
    Ok(value)
}

fn show_in(text: &str, error: &UriError) {
    one_line(error);
    assert!(text.get(error.at.clone()).is_some(), "{:?} of {text:?}", error.at);
}

fn show(mistakes: &Mistakes) {
    mistakes.lines().for_each(|line| one_line(&line));
    let mut report = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    handler.render_report(&mut report, mistakes).expect("a mistake can be shown");
}

fn one_line(value: &impl Display) {
    let text = value.to_string();
    assert!(!text.contains(['\n', '\r']), "more than one line: {text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "[[disk]]\nname = \"d\"\nuri = \"ram:1MiB\"\n\
        [[volume]]\nname = \"v\"\nlayout = \"single\"\ndisks = [\"d\"]\n";

    #[test]
    fn configurations_that_differ_lead_to_each_other() {
        let other = SERVER.replace("ram:1MiB", "null:2MiB").replace("\"v\"", "\"w\"");
        configuration(format!("{SERVER}\0{other}").as_bytes());
        configuration(b"[[disk]]\nname = 3\n\0nonsense = \xff");
    }

    #[test]
    #[should_panic(expected = "is not in")]
    fn a_thing_that_is_missing_is_noticed() {
        let args = read(SERVER).expect("a configuration");
        let mut things: Vec<Thing> = args.things().collect();
        let last = things.pop().expect("a volume");
        are(&[things.clone(), things.clone()].concat(), &[things, vec![last]].concat());
    }

    #[test]
    fn a_capture_holds_in_pieces() {
        // Little-endian, microseconds, raw IP: a packet too short to be anything.
        let words: [u32; 12] =
            [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 18, 101, 1, 2, 4, 4, 0x45, 0xa1b2_c3d4];
        let bytes = words.map(u32::to_le_bytes).concat();
        capture(&bytes, 7);
        let (lines, ended) = shown(&bytes, 3, false);
        assert_eq!(lines, "1 packets, 0 connections, 0 PDUs\n");
        assert!(ended.unwrap_err().contains("seen 4 bytes of it"));
    }

    #[test]
    fn words_hold() {
        for text in ["ram:1GiB", "file:/a?create=1MiB", "nvme+tcp://[::1]:4420/nqn.a/1", "10k", ""]
        {
            words(text);
        }
    }
}
