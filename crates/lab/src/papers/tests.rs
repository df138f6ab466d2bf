//! That the files are whole: all findings, each with one way, and each way with comparisons that are there.

use std::collections::BTreeSet;

use super::*;

#[test]
fn all_five_papers_are_read_with_their_109_findings() {
    let counts: Vec<(&str, usize)> =
        Study::all().iter().map(|study| (study.name, study.paper.findings.len())).collect();
    let expected =
        [("rocha", 25), ("technomages", 11), ("landowski", 17), ("goncalves", 42), ("sarkar", 14)];
    assert_eq!(counts, expected);
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 109);
    assert!(Study::of("nobody").is_none());
}

#[test]
fn each_finding_has_one_way_and_what_is_not_rerun_says_why() {
    for study in Study::all() {
        assert_eq!(study.how.len(), study.paper.findings.len(), "{}", study.name);
        for (finding, how) in study.paper.findings.iter().zip(&study.how) {
            if let How::Not { because, .. } = how {
                assert!(because.len() > 20, "{}: {because}", finding.id);
            }
        }
    }
}

#[test]
fn what_a_machine_lacks_comes_before_what_is_not_built() {
    let study = || Study::of("goncalves").unwrap();
    let word = |study: &Study, id: &str| {
        let at = study.paper.findings.iter().position(|finding| finding.id == id).unwrap();
        match &study.how[at] {
            How::Not { word, because, .. } => format!("{word}: {because}"),
            other => panic!("{other:?}"),
        }
    };
    let lacks = BTreeMap::from([(Need::Guests, "there is no /dev/kvm here".to_owned())]);
    let without = study().here(&lacks);
    assert_eq!(
        word(&without, "p2p-vs-nat"),
        "cannot be tested here: it needs virtual machines that run and reach a network by the kernel, and there is no /dev/kvm here"
    );
    for (study, id) in [(&without, "smt"), (&study().here(&BTreeMap::new()), "p2p-vs-nat")] {
        assert!(word(study, id).starts_with("not rerun yet: "), "{}", word(study, id));
    }
    // Nothing else is another one's.
    let kept =
        |study: &Study| study.how.iter().filter(|how| !matches!(how, How::Not { .. })).count();
    assert_eq!(kept(&without), kept(&study()));
}

/// The plans that this version reads: all of them, which the test below holds.
fn readable(study: &Study) -> impl Iterator<Item = (&Run, Experiment)> {
    study.runs.iter().filter_map(|run| Some((run, run.experiment().ok()?)))
}

#[test]
fn each_comparison_that_is_named_is_a_primary_one_of_its_plan() {
    let mut plans = BTreeSet::new();
    for study in Study::all() {
        for (run, experiment) in readable(&study) {
            plans.insert(run.plan.clone());
            assert_eq!(experiment.name, run.plan);
            let comparisons = || experiment.groups.iter().flat_map(|group| &group.plan.comparisons);
            let is_primary = |name: &String| {
                comparisons().any(|one| one.name == *name && one.primary && one.bound.is_none())
            };
            for name in &run.quick {
                assert!(is_primary(name), "{name}");
            }
            let is_picture =
                |name: &String| experiment.pictures.iter().any(|one| one.name == *name);
            for name in &run.quick_pictures {
                assert!(is_picture(name), "{name}");
            }
            for (finding, how) in study.paper.findings.iter().zip(&study.how) {
                let How::Recreated(one) = how else { continue };
                if one.plan != run.plan {
                    continue;
                }
                for name in one.comparisons.iter().chain(&one.over).chain(&one.controls) {
                    assert!(is_primary(name), "{}: {name}", finding.id);
                }
                for name in &one.beside {
                    assert!(comparisons().any(|one| one.name == *name), "{}: {name}", finding.id);
                }
                for (disk, without) in &one.sees.without_disk {
                    for system in [disk, without] {
                        assert!(experiment.systems.iter().any(|one| one.name == *system));
                    }
                }
            }
            for figure in study.figures.iter().filter(|figure| figure.plan == run.plan) {
                for name in &figure.groups {
                    assert!(experiment.groups.iter().any(|one| one.name == *name), "{name}");
                }
                assert!(figure.picture.iter().all(is_picture), "{}", figure.title);
            }
        }
    }
    assert!(plans.contains("rocha-micro"), "{plans:?}");
}

#[test]
fn this_version_reads_every_plan() {
    for study in Study::all() {
        for run in &study.runs {
            run.experiment().unwrap_or_else(|mistakes| panic!("{mistakes}"));
        }
    }
}

#[test]
fn a_paper_takes_an_hour_but_for_what_is_of_a_full_run_and_a_quick_run_eight_minutes() {
    for study in Study::all() {
        let plans = readable(&study).collect::<Vec<_>>();
        let usual = plans.iter().filter(|(run, _)| !run.full);
        let time: u64 = usual.map(|(_, one)| one.time.expect("a time of its own").as_secs()).sum();
        assert!(time <= 3_600, "{}: {time} s", study.name);
        for (run, _) in plans.iter().filter(|(run, _)| run.full) {
            assert!(run.quick.is_empty(), "{}: what is longest is in no quick run", run.plan);
        }
        let quick: u64 = study.runs.iter().map(|run| run.quick_seconds).sum();
        assert!(quick <= 470, "{}: ten seconds are for what is around trials", study.name);
        for (run, mut experiment) in plans {
            let count = |of: &Experiment| -> usize {
                let of_groups: usize =
                    of.groups.iter().map(|group| group.plan.comparisons.len()).sum();
                of_groups + of.pictures.len()
            };
            let all = count(&experiment);
            let left_out = super::quick(&mut experiment, run);
            assert_eq!(experiment.primaries(), run.quick.len());
            assert_eq!(left_out.len(), all - count(&experiment), "{left_out:?}");
            let least = experiment.estimate().least.as_secs();
            assert!(least <= run.quick_seconds, "{}: {least} s", run.plan);
            assert_eq!(experiment.groups.is_empty(), run.quick.is_empty(), "{}", run.plan);
            assert_eq!(experiment.pictures.len(), run.quick_pictures.len(), "{}", run.plan);
        }
    }
}

#[test]
fn a_list_names_each_finding_with_its_way_and_its_time() {
    let study = Study::of("rocha").expect("a paper");
    let list = study.list();
    assert_eq!(list.len(), 25);
    let first = list[0].to_string();
    for words in [
        "rocha seq-read-uncached\n",
        "throughput: aoe has more than iscsi (1.20 times); sequential read, no cache, either MTU (+20%)",
        "aoe against iscsi",
        "precondition: cost of the network layers",
        "in every cell: the disk is memory",
        "plan:         rocha-micro",
        "at least 120 trials in 5min 36s, at most 13min",
    ] {
        assert!(first.contains(words), "{words}\n{first}");
    }
    let varmail = list.iter().find(|one| one.id == "varmail").expect("it is there").to_string();
    let cell = "IOPS of aoe against iscsi over mtu-1500, varmail, 16MiB of files, 4 jobs, client memory 64MiB";
    assert!(varmail.contains("plan:         rocha-macro\n") && varmail.contains(cell), "{varmail}");
    let equal = list.iter().find(|one| one.id == "webserver-4g").expect("it is there");
    assert!(equal.claim.contains("equal within 1.0% (1.00 to 1.01 times)"), "{}", equal.claim);
}

fn refused_facts(change: impl FnOnce(String) -> String) -> String {
    facts::read(&change(FILES[0].1.to_owned())).expect_err("it is wrong")
}

#[test]
fn facts_are_read_strictly() {
    let unknown = refused_facts(|text| text.replacen("metric =", "metrik =", 1));
    assert!(unknown.contains("unknown field `metrik`"), "{unknown}");
    let twice = refused_facts(|text| text.replacen("rand-read-uncached", "seq-read-uncached", 1));
    assert_eq!(twice, "seq-read-uncached: expected an id that no other finding has");
    let margin = refused_facts(|text| text.replacen("margin = 0.05", "", 1));
    assert_eq!(
        margin,
        "rand-read-uncached: expected a margin of what is equal, and of nothing else"
    );
    let wide = refused_facts(|text| text.replacen("margin = 0.05", "margin = 1.5", 1));
    assert!(wide.ends_with("expected a margin from 0 to 1"), "{wide}");
    let bound =
        refused_facts(|text| text.replacen("ratio = 1.20", "ratio_bound = \"at least\"", 1));
    assert!(bound.ends_with("expected a ratio, of which ratio_bound speaks"), "{bound}");
    let order = refused_facts(|text| text.replacen("ratio = 1.20", "ratio = [3, 2]", 1));
    assert!(order.contains("two of them in their order"), "{order}");
    let table = "[[table]]\nid = \"I\"\ncaption = \"c\"\ncolumns = [\"a\"]\nrows = [[1, 2]]\n";
    let long = refused_facts(|text| text + table);
    assert_eq!(long, "table I: expected no row with more than its columns");
}

fn refused_rerun(change: impl FnOnce(String) -> String) -> String {
    refused_rerun_of(0, change)
}

/// Of a paper by its place.
fn refused_rerun_of(at: usize, change: impl FnOnce(String) -> String) -> String {
    let paper = facts::read(FILES[at].1).expect("a paper");
    rerun::read(&change(FILES[at].2.to_owned()), &paper).expect_err("it is wrong")
}

#[test]
fn ways_are_read_strictly() {
    let unknown = refused_rerun(|text| text.replacen("of = [\"overall\"]", "of = [\"overal\"]", 1));
    assert_eq!(unknown, "overal: expected a finding of the paper");
    let twice =
        refused_rerun(|text| text.replacen("of = [\"mtu\"]", "of = [\"mtu\", \"overall\"]", 1));
    assert_eq!(twice, "overall: expected one entry, seen two");
    let none = refused_rerun(|text| text.replacen("of = [\"mtu\"]", "of = []", 1));
    assert_eq!(none, "mtu: expected an entry, seen none");
    let key = refused_rerun(|text| text.replacen("judge =", "judges =", 1));
    assert!(key.contains("unknown field `judges`"), "{key}");
    // Of this paper all is rerun, and of the fourth some is not.
    let word = refused_rerun_of(3, |text| {
        text.replacen("word = \"not rerun yet\"", "word = \"no time\"", 1)
    });
    assert!(word.contains("unknown variant `no time`"), "{word}");
    let both = refused_rerun(|text| text.replacen("judge =", "because = \"b\"\njudge =", 1));
    assert!(both.ends_with(
        "expected a plan with comparisons, stacks, ways (reach), or a word with because"
    ));
    let gain = refused_rerun(|text| text.replacen("judge =", "over = \"b\"\njudge =", 1));
    assert!(
        gain.ends_with("expected one comparison beside over, by whose ratio it is divided"),
        "{gain}"
    );
    let figure =
        refused_rerun(|text| text.replacen("shown-as =", "picture = \"p\"\nshown-as =", 1));
    assert_eq!(figure, "figure Figure 2 (a), sequential: expected either groups or a picture");
    let other = refused_rerun(|text| {
        text.replacen("plan = \"rocha-micro\"\ncomparisons", "plan = \"other\"\ncomparisons", 1)
    });
    assert_eq!(other, "seq-read-uncached: expected a plan of a [[run]], seen \"other\"");
}

#[test]
fn without_processor_time_the_rest_of_a_plan_stays() {
    let study = Study::of("rocha").expect("a paper");
    let run = study.run("rocha-macro").expect("a plan");
    let mut experiment = run.experiment().expect("a plan");
    let (cells, all) = (experiment.cells(), experiment.primaries());
    let left_out = without_cpu(&mut experiment);
    // Of each workload two of AoE against iSCSI, and of each protocol one of memory.
    assert_eq!(left_out.len(), 4 * 4);
    assert!(left_out.iter().all(|name| name.starts_with("CPU of the near end per operation of ")));
    assert_eq!((experiment.primaries(), experiment.cells()), (all - left_out.len(), cells));
    for group in &experiment.groups {
        assert!(group.columns.iter().all(|column| !column.measure.is_of_cpu()), "{}", group.name);
        let compared = |at: usize| group.columns[at].measure;
        for one in &group.plan.comparisons {
            assert_eq!(compared(one.subject), compared(one.reference), "{}", one.name);
            assert!(one.name.starts_with(&compared(one.subject).to_string()), "{}", one.name);
        }
    }
    assert!(without_cpu(&mut experiment).is_empty(), "there is none any more");
}
