//! Plans as people write them: what is said of each mistake (`tests/mistakes.txt`), what a good one
//! means, and that docs/plans.md explains what there is.

use std::time::Duration;

use super::*;
use crate::statistics::Bound;
use testkit::cases::{judge, text_of};

const GOOD: &str = include_str!("tests/good.toml");
const MISTAKES: &str = include_str!("tests/mistakes.txt");
const DOCUMENTATION: &str = include_str!("../../../../docs/plans.md");

/// What a text that must be good means.
pub(super) fn good(text: &str) -> Experiment {
    Experiment::parse("plan.toml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn the_plans_of_the_repository_are_good() {
    let rivals = good(include_str!("../../../../plans/rivals.toml"));
    assert!(rivals.estimate().least < rivals.time.unwrap());
    let engine = good(include_str!("../../../../plans/bench/engine.toml"));
    // Two figures at each of two depths, each with a floor and a ceiling.
    assert_eq!((engine.primaries(), engine.groups.len()), (8, 2));
    let quick = good(include_str!("../../../../plans/quick.toml"));
    // What is printed before it begins, and what bounds it.
    assert!(quick.estimate().least < quick.time.unwrap() && quick.time.unwrap().as_secs() <= 300);
    assert_eq!((quick.primaries(), quick.systems.len(), quick.pictures.len()), (2, 4, 1));
}

#[test]
fn the_plans_of_the_bench_are_good_and_ask_for_bounds() {
    for (name, text) in [
        ("nvme-4k", include_str!("../../../../plans/bench/nvme-4k.toml")),
        ("nvme-16k", include_str!("../../../../plans/bench/nvme-16k.toml")),
        ("nvme-128k", include_str!("../../../../plans/bench/nvme-128k.toml")),
        ("iscsi-4k", include_str!("../../../../plans/bench/iscsi-4k.toml")),
        ("iscsi-128k", include_str!("../../../../plans/bench/iscsi-128k.toml")),
        ("aoe", include_str!("../../../../plans/bench/aoe.toml")),
        ("vblade", include_str!("../../../../plans/bench/vblade.toml")),
        ("own", include_str!("../../../../plans/bench/own.toml")),
    ] {
        let plan = good(text);
        assert_eq!(plan.name, name, "as its file is called");
        let all = plan.groups.iter().flat_map(|group| &group.plan.comparisons);
        let wrong = all.filter(|one| one.primary && one.bound.is_none());
        assert_eq!(wrong.count(), 0, "{name}: what is wanted is said");
    }
}

/// Every error of a text, without the name of the file.
fn said(text: &str) -> Vec<String> {
    let told = |line: String| line.strip_prefix("p.toml:").expect("the file's name").to_owned();
    match Experiment::parse("p.toml", text) {
        Ok(_) => vec!["nothing".to_owned()],
        Err(mistakes) => mistakes.lines().map(told).collect(),
    }
}

#[test]
fn mistakes_are_said_as_the_table_has_them() {
    judge(MISTAKES, |case| said(&text_of(GOOD, case.trim_end())));
}

#[test]
fn cells_and_comparisons_have_names_that_say_what_they_are() {
    let plan = good(GOOD);
    let cells: Vec<String> = plan.cells().iter().map(|cell| plan.cell_name(cell)).collect();
    assert_eq!(
        cells[..6],
        [
            "iscsi over lan, 4KiB randread, depth 32",
            "nvme over lan, 4KiB randread, depth 32",
            "null, 4KiB randread, depth 32",
            "iscsi over lan, 4KiB randread, depth 1",
            "nvme over lan, 4KiB randread, depth 1",
            "far over lan, 4KiB randread, depth 1",
        ]
    );
    assert_eq!(cells.len(), 3 + 2 * 4 + 2 * 6 - 2, "two of the picture are compared as well");
    let first = &plan.groups[0].plan.comparisons[0];
    assert_eq!(first.name, "IOPS of nvme against iscsi over lan, 4KiB randread, depth 32");
    assert_eq!(plan.groups[1].plan.comparisons.len(), 4);
    assert_eq!(plan.primaries(), 9);
}

#[test]
fn what_shares_path_and_load_shares_its_rounds_and_holds_null() {
    let plan = good(GOOD);
    let group = &plan.groups[1];
    let names = |cell: &Cell| plan.systems[cell.system].name.as_str();
    assert_eq!(group.cells.iter().map(names).collect::<Vec<_>>(), ["iscsi", "nvme", "far", "null"]);
    assert_eq!(group.name, "over lan, 4KiB randread, depth 1");
    assert_eq!((group.null, group.columns.len(), group.plan.systems), (3, 8, 4));
    assert!(plan.groups.iter().all(|group| group.plan.check().is_ok()));
    let mut seeds: Vec<u64> = plan.groups.iter().map(|group| group.plan.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), plan.groups.len(), "each has an order of its own");
    let null = &plan.systems[plan.null];
    assert_eq!(null.means, Means::Disk { uri: "null:1GiB".to_owned() });
}

#[test]
fn another_difference_has_rounds_of_its_own() {
    let text = format!(
        "{GOOD}\n[[compare]]\nname = \"fine\"\nsystems = [\"far\"]\nreference = \"iscsi\"\nof = \"iops\"\ndifference = \"2%\"\n"
    );
    let plan = good(&text);
    let fine = plan.groups.last().expect("groups");
    assert_eq!((fine.plan.difference, fine.plan.margin), (0.02, 0.02));
    assert_eq!(fine.plan.comparisons[0].name, "fine");
    assert!(fine.name.ends_with("depth 32, for 2.0% and equal within 2.0%"), "{}", fine.name);
}

#[test]
fn what_is_held_against_itself_shares_its_rounds_and_says_what_is_changed() {
    let text = "name = \"changed\"\ndifference = \"10%\"\n\
        [[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"ram:100MiB\" }\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:100MiB\" }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n[[path]]\nname = \"jumbo\"\nmtu = 9000\n\
        [load]\nsize = \"50MiB\"\n"
        .to_owned();
    let compare = |systems: &str, rest: &str| {
        format!("[[compare]]\nsystems = [{systems}]\npath = \"lan\"\nof = \"iops\"\n{rest}\n")
    };
    let both = "\"aoe\", \"nvme\"";
    let plan = good(
        &(text
            + &compare("\"aoe\"", "reference = \"nvme\"")
            + &compare(both, "against = { path = \"jumbo\" }")
            + &compare(both, "against = { cache = true, client-memory = \"64MiB\", rate = 500 }")),
    );
    let [group] = plan.groups.as_slice() else {
        panic!("one path and one load: {:?}", plan.groups)
    };
    let changed = "500 a second, through the page cache, client memory 64MiB";
    let expected = [
        "nvme".to_owned(),
        "aoe".to_owned(),
        "aoe (over jumbo)".to_owned(),
        "nvme (over jumbo)".to_owned(),
        format!("aoe ({changed})"),
        format!("nvme ({changed})"),
        "null".to_owned(),
    ];
    assert_eq!(group.names, expected);
    let [lan, jumbo] = [Some(0), Some(1)];
    let paths: Vec<Option<usize>> = group.cells.iter().map(|cell| cell.path).collect();
    assert_eq!(paths, [lan, lan, jumbo, jumbo, lan, lan, None]);
    let (usual, other, null) = (group.cells[0].load, group.cells[4].load, group.cells[6].load);
    assert!(other.cache && other.client_memory == Some(64 << 20) && other.size == usual.size);
    assert_eq!(other.pace, Pace::Open { rate: 500, arrivals: Arrivals::Fixed });
    assert_eq!((null, group.cells[2].load), (usual, usual), "null is loaded as the group says");
    let comparison = &group.plan.comparisons[1];
    assert_eq!(
        comparison.name,
        "IOPS of aoe against aoe (over jumbo) over lan, 4KiB randread, depth 32, within 50MiB"
    );
    let column = |at: usize| group.columns[at].system;
    assert_eq!((column(comparison.subject), column(comparison.reference)), (1, 2));
    assert_eq!((plan.primaries(), plan.cells().len()), (5, 7));
}

#[test]
fn what_is_all_in_the_rounds_of_others_is_compared_there() {
    let text = "name = \"shared\"\ndifference = \"10%\"\n\
        [[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"ram:200MiB\" }\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:200MiB\" }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n[load]\nfiles = \"varmail\"\nsize = \"50MiB\"\n\
        [[compare]]\nsystems = [\"aoe\"]\nreference = \"nvme\"\nclient-memory = [\"64MiB\", \"256MiB\", \"512MiB\"]\nof = \"iops\"\n\
        [[compare]]\nsystems = [\"aoe\", \"nvme\"]\nclient-memory = \"256MiB\"\nagainst = { client-memory = \"64MiB\" }\nof = [\"iops\", \"wire-bytes-per-op\"]\n";
    let plan = good(text);
    let [shared, alone] = plan.groups.as_slice() else {
        panic!("those with 64 MiB are in the rounds of 256, and 512 are not: {:?}", plan.groups)
    };
    assert!(shared.name.ends_with("client memory 256MiB") && alone.name.ends_with("512MiB"));
    let small = "(client memory 64MiB)";
    let names = ["nvme", "aoe", &format!("aoe {small}"), &format!("nvme {small}"), "null"];
    assert_eq!(shared.names, names);
    let iops = |system: &str, memory: &str| {
        format!(
            "IOPS of aoe against {system} over lan, varmail, 50MiB of files, client memory {memory}"
        )
    };
    let comparison = |name: String| {
        let found = shared.plan.comparisons.iter().find(|one| one.name == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {:?}", shared.plan.comparisons));
        [found.subject, found.reference].map(|at| {
            let Column { system, measure } = shared.columns[at];
            (shared.names[system].as_str(), measure)
        })
    };
    // It is of the same cells, and has its own name.
    let both = [(names[2], Measure::Iops), (names[3], Measure::Iops)];
    assert_eq!(comparison(iops("nvme", "64MiB")), both);
    assert_eq!(
        comparison(iops("nvme", "256MiB")),
        [("aoe", Measure::Iops), ("nvme", Measure::Iops)]
    );
    assert_eq!(shared.plan.comparisons.len() + alone.plan.comparisons.len(), 3 + 4);
    assert_eq!(shared.null, 4);
    // Another difference wants other rounds.
    let apart = text.replacen("of = \"iops\"", "of = \"iops\"\ndifference = \"5%\"", 1);
    assert_eq!(good(&apart).groups.len(), 4);
}

#[test]
fn a_load_of_many_files_is_called_by_whose_they_are_and_null_has_none() {
    let text = "name = \"files\"\ndifference = \"10%\"\n\
        [[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"ram:200MiB\" }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n[load]\ndepth = 7\nblock-size = \"8k\"\nsize = \"50MiB\"\njobs = 4\n\
        [[compare]]\nsystems = [\"aoe\"]\nfiles = [\"webserver\", \"oltp\"]\nclient-memory = \"64MiB\"\n\
        against = { client-memory = \"256MiB\", size = \"40MiB\" }\nof = \"iops\"\n";
    let plan = good(text);
    let [web, oltp] = plan.groups.as_slice() else { panic!("two loads: {:?}", plan.groups) };
    assert_eq!(web.name, "over lan, webserver, 50MiB of files, 4 jobs, client memory 64MiB");
    assert_eq!(oltp.name, "over lan, oltp, 50MiB of files, 4 jobs, client memory 64MiB");
    assert_eq!(web.names, ["aoe (40MiB of files, client memory 256MiB)", "aoe", "null"]);
    // A database is past the page cache, and what is said of requests is of no load of many files.
    let load = web.cells[1].load;
    assert!(load.cache && !oltp.cells[1].load.cache);
    assert_eq!((load.block_bytes, load.pace), (4096, Pace::Closed { depth: 1 }));
    assert_eq!(load.room(), Some((50 << 20) / 3 * 4 + (50 << 20)), "with a log");
    assert_eq!(oltp.cells[1].load.room(), Some((50 << 20) / 3 * 4));
    let null = web.cells[2];
    assert!(null.load.files.is_none() && !null.load.cache && null.load.client_memory.is_none());
    assert_eq!(plan.cell_name(&null), "null, 4KiB randread, depth 1, 4 jobs, within 50MiB");
    // Of both groups null is the same cell.
    assert_eq!(null, oltp.cells[2]);
}

#[test]
fn each_bound_of_a_pair_is_a_question_beside_whether_there_is_a_difference() {
    let table = "\n[[compare]]\nname = \"floor\"\nsystems = [\"nvme\"]\nreference = \"iscsi\"\nof = [\"iops\", \"p99\"]\n\
        at-least = \"90%\"\nat-most = 1.15\n";
    let plan = good(&format!("{GOOD}{table}"));
    let group = &plan.groups[0].plan;
    let asked: Vec<Option<Bound>> = group.comparisons.iter().map(|one| one.bound).collect();
    let both = [Some(Bound::AtLeast(0.9)), Some(Bound::AtMost(1.15))];
    assert_eq!(asked, [[None].as_slice(), &both, &both].concat(), "they share their rounds");
    assert_eq!(plan.primaries(), 9 + 4, "and each is corrected for");
    assert!(group.comparisons[1].name.starts_with("floor: IOPS of nvme"));
}

#[test]
fn null_has_a_near_end_and_no_far_one_nor_a_wire() {
    let of = GOOD.replacen(
        "of = \"iops\"",
        "of = [\"cpu-near-per-op\", \"cpu-far-per-op\", \"wire-bytes-per-op\"]",
        1,
    );
    let plan = good(&of);
    let group = &plan.groups[0];
    let of_null = group.columns.iter().filter(|column| column.system == group.null);
    let measures: Vec<Measure> = of_null.map(|column| column.measure).collect();
    assert_eq!((measures, group.columns.len()), (vec![Measure::CpuNearPerOp], 3 * 2 + 1));
}

#[test]
fn a_null_of_the_plan_is_the_reference() {
    let text = "name = \"planted\"\ndifference = 0.03\n\
        [[system]]\nname = \"still\"\ndisk = \"null:1GiB\"\n\
        [[system]]\nname = \"late\"\ndisk = \"delay:200,null:1GiB\"\n\
        [[compare]]\nsystems = [\"late\"]\nreference = \"still\"\nof = \"p50\"\ndepth = 1\n";
    let plan = good(text);
    assert_eq!((plan.null, plan.systems.len()), (0, 2));
    assert_eq!((plan.groups[0].null, plan.groups[0].cells.len()), (0, 2));
    assert_eq!(plan.groups[0].name, "4KiB randread, depth 1");
}

#[test]
fn a_plan_says_how_long_it_takes_at_least_and_at_most() {
    let plan = good(GOOD);
    let estimate = plan.estimate();
    // Trials of 7 s: 11 rounds of 3 systems, 11 to 13 of 4 twice (blocks of 6 and of 4), 12 cells.
    assert_eq!(estimate.trials_min, 3 * 11 + 2 * 4 * 13 + 12);
    assert_eq!(estimate.least, Duration::from_secs(7) * estimate.trials_min as u32);
    assert_eq!(estimate.trials_max, (3 + 2 * 4) * 2 * 65 + 12);
    assert!(estimate.most > estimate.least * 10);
}

#[test]
fn files_and_devices_have_longer_windows() {
    let text = "name = \"file\"\n[[system]]\nname = \"f\"\ndisk = \"file:/srv/a\"\n\
        [[picture]]\nname = \"p\"\nsystems = [\"f\"]\ndepth = [1, 4]\n";
    let window = |text: &str| {
        let plan = good(text);
        plan.window_of(&plan.cells()[0])
    };
    assert_eq!(window(text), Duration::from_secs(60));
    assert_eq!(window(&format!("window = \"2s\"\n{text}")), Duration::from_secs(2));
}

#[test]
fn the_documentation_explains_every_key_and_no_other() {
    for (table, keys) in low::tables() {
        let heading = match table {
            "the plan" => "### The plan".to_owned(),
            table => format!("### `{table}`"),
        };
        let section = DOCUMENTATION.split_once(&heading);
        let section = section.unwrap_or_else(|| panic!("{heading} is missing")).1;
        let section = section.split("\n##").next().expect("a section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let explained: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        assert_eq!(explained, keys, "{table}");
    }
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let blocks = DOCUMENTATION.split("```toml\n").skip(1).map(|rest| rest.split("```").next());
    let plans: Vec<Experiment> = blocks.map(|block| good(block.expect("a block"))).collect();
    assert!(!plans.is_empty() && plans.iter().all(|plan| !plan.groups.is_empty()));
}

#[test]
fn every_measure_of_the_documentation_is_known() {
    for measure in Measure::ALL {
        let word = format!("`{}`", measure.word());
        assert!(DOCUMENTATION.contains(&word), "{word} is missing");
    }
}
