//! `plateway lab paper NAME`: reruns what a paper measured, and says which of its findings hold here.
//!
//! What the papers found, how it is recreated and what results say of it is [`lab::papers`]'s; plans are
//! run as `lab run` runs them. All plans of a paper are held against this machine before the first trial. A
//! plan that asks for what this version or this machine does not have is not run, and its findings say so. Errors: a name that is
//! no paper's, and those of `lab run`; exit codes as well.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lab::papers::{
    Cause, Listed, NAMES, NotRun, Ours, PaperKept, Reached, Run, SCHEMA_VERSION, Said, Study,
    plan_file, plan_text, quick, without_cpu,
};
use lab::plan::Experiment;
use serde_json::{Value, json};

use super::{Ready, failed, measure, picture, reach};
use crate::cli::LabPaperArgs;
use crate::commands::session::Interrupt;
use crate::commands::{Ended, INTERRUPTED, print, print_json, show};
use crate::log::Event;
use crate::run::replace_file;

/// All papers.
const ALL: &str = "all";

pub(super) fn run(args: &LabPaperArgs) -> miette::Result<()> {
    if args.list {
        return list(args);
    }
    if args.name == ALL {
        return all(args);
    }
    let Some(study) = Study::of(&args.name) else { return Err(unknown(&args.name)) };
    // From here on a signal ends it in order.
    let interrupt = Interrupt::watch()?;
    let usual = || PathBuf::from(file_of(&study));
    let file = args.result.clone().unwrap_or_else(usual);
    may_be_made(&study, &file, args)?;
    let rerun = rerun(args, &study, &interrupt, &file)?;
    if args.json {
        print_json(&rerun.kept)?;
    }
    ended(&interrupt, &file, &rerun.failures)
}

/// Reruns all papers, one after the other, each with a file and a page of its own, and one page over all of
/// them.
fn all(args: &LabPaperArgs) -> miette::Result<()> {
    let interrupt = Interrupt::watch()?;
    let folder = args.result.clone().unwrap_or_else(|| PathBuf::from("."));
    super::make_folder(&folder)?;
    let studies = Study::all();
    let page = folder.join("papers.html");
    picture::may_be_replaced(&page, Path::new(""), "the papers", "--result", args.overwrite)?;
    for study in &studies {
        may_be_made(study, &folder.join(file_of(study)), args)?;
    }
    let (mut kept, mut failures) = (Vec::new(), Vec::new());
    for study in &studies {
        let file = folder.join(file_of(study));
        let rerun = rerun(args, study, &interrupt, &file)?;
        failures.extend(rerun.failures.iter().map(|why| format!("{}: {why}", study.name)));
        kept.push(rerun.kept);
    }
    let overview = page::overview(&kept).map_err(|why| miette::miette!("{why}"))?;
    let written = replace_file(&page, &overview);
    if let Err(error) = &written {
        failures.push(format!("cannot write {}: {error}", page.display()));
    }
    match args.json {
        true => print_json(&kept)?,
        false if written.is_ok() => print(&format!("\nall of them: {}\n", page.display()))?,
        false => {}
    }
    ended(&interrupt, &folder, &failures)
}

/// How it ends: what was interrupted, and what failed first.
fn ended(interrupt: &Interrupt, kept: &Path, failures: &[String]) -> miette::Result<()> {
    if interrupt.is_raised() {
        let words = format!("interrupted: what was measured is in {}", kept.display());
        return Err(Ended::new(INTERRUPTED, words).into());
    }
    failures.first().map_or(Ok(()), |words| Err(miette::miette!("{words}")))
}

/// Where a paper is kept, if nobody says where.
fn file_of(study: &Study) -> String {
    format!("{}.result.json", study.name)
}

fn may_be_made(study: &Study, file: &Path, args: &LabPaperArgs) -> miette::Result<()> {
    let plan = study.runs.first().map(|run| plan_file(&run.plan)).unwrap_or_default();
    picture::may_be_made(file, Path::new(&plan), args.overwrite)
}

fn unknown(name: &str) -> miette::Report {
    let names = NAMES.join(", ");
    miette::miette!("expected a paper, one of {names}, or {ALL}, seen {name:?}")
}

/// Tells what would be rerun.
fn list(args: &LabPaperArgs) -> miette::Result<()> {
    let studies = match Study::of(&args.name) {
        Some(study) => vec![study],
        None if args.name == ALL => Study::all(),
        None => return Err(unknown(&args.name)),
    };
    let lacks = super::machine::lacks();
    let studies: Vec<Study> = studies.into_iter().map(|study| study.here(&lacks)).collect();
    let lists: Vec<Vec<Listed>> = studies.iter().map(Study::list).collect();
    let all: Vec<&Listed> = lists.iter().flatten().collect();
    show(args.json, &all, || {
        let papers = studies.iter().zip(&lists);
        papers.map(|(study, list)| list_of(study, list)).collect()
    })
}

fn list_of(study: &Study, list: &[Listed]) -> String {
    let paper = &study.paper;
    let authors = paper.authors.join(", ");
    let mut text = format!("{}: {} ({authors})\n", study.name, paper.title);
    if let Some(note) = &paper.source_note {
        let _ = writeln!(text, "source: {note}");
    }
    for run in &study.runs {
        let _ = writeln!(text, "plan {}: {}", run.plan, run.scaled);
    }
    for listed in list {
        let _ = write!(text, "\n{listed}");
    }
    let judged = list.iter().filter(|listed| listed.time.is_some()).count();
    let all = list.len();
    let _ = writeln!(text, "\n{judged} of {all} findings are judged by plans here.\n");
    text
}

/// A plan that is to be run.
struct Due<'s> {
    run: &'s Run,
    ready: Ready,
    left_out: Vec<String>,
}

/// What came of a paper.
struct Rerun {
    kept: Value,
    failures: Vec<String>,
}

/// Runs the plans of a paper, keeps and tells what came of it.
fn rerun(
    args: &LabPaperArgs,
    study: &Study,
    interrupt: &Interrupt,
    file: &Path,
) -> miette::Result<Rerun> {
    let (due, mut not_run) = due(args, study, interrupt)?;
    let (mut runs, mut tables, mut failures) = (Vec::new(), String::new(), Vec::new());
    let reached = reached(study, interrupt).unwrap_or_else(|why| {
        let words = format!("whether targets are reached: {}", why.because);
        Event::warn(words.clone()).tell();
        // What this machine lacks is no failure.
        failures.extend((why.cause == Cause::Passed).then_some(words));
        not_run.push(why);
        Vec::new()
    });
    for Due { run, mut ready, mut left_out } in due {
        if interrupt.is_raised() {
            not_run.push(NotRun {
                plan: run.plan.clone(),
                because: "it was stopped before".to_owned(),
                cause: Cause::Passed,
            });
            continue;
        }
        if costs(&ready.experiment) && !ready.is_idle()? {
            let words = "others work on the CPUs, so that nothing is told of processor time";
            Event::warn(format!("{}: {words}", run.plan)).tell();
            let names = without_cpu(&mut ready.experiment).into_iter();
            left_out.extend(names.map(|name| format!("{name} ({words})")));
        }
        Event::info(format!("{}: {}", run.plan, ready.experiment.estimate())).tell();
        let ran = measure(&ready, interrupt, |kept, results, trials| {
            tables += &picture::table(&ready.experiment, results, trials);
            failures.extend(failed(results, trials));
            serde_json::to_value(kept)
        });
        let kept = ran.and_then(|kept| {
            kept.map_err(|error| miette::miette!("cannot keep what came of it: {error}"))
        });
        let result = match kept {
            Ok(result) => result,
            // What the others came to is kept all the same.
            Err(error) => {
                let (plan, because) = (run.plan.clone(), error.to_string());
                failures.push(format!("{plan}: {because}"));
                not_run.push(NotRun { plan, because, cause: Cause::Passed });
                continue;
            }
        };
        runs.push(json!({ "plan": run.plan, "left_out": left_out, "result": result }));
    }
    let kept = json!({ "schema_version": SCHEMA_VERSION, "paper": study.name, "quick": args.quick, "full": args.full,
        "runs": runs, "not_run": not_run, "reached": reached, "lacks": super::machine::lacks() });
    let (kept, lost) = keep_and_tell(args, file, kept, &tables)?;
    // What was measured is told all the same, and the others are run.
    failures.splice(..0, lost);
    Ok(Rerun { kept, failures })
}

/// Whether a plan compares processor time.
fn costs(experiment: &Experiment) -> bool {
    let mut columns = experiment.groups.iter().flat_map(|group| &group.columns);
    columns.any(|column| column.measure.is_of_cpu())
}

/// What is reached, of a paper that asks for it, which every run of it tries; why not.
fn reached(study: &Study, interrupt: &Interrupt) -> Result<Vec<Reached>, NotRun> {
    if !study.reaches() || interrupt.is_raised() {
        return Ok(Vec::new());
    }
    Event::info("whether targets are reached at all: some 15 s".to_owned()).tell();
    reach::run(interrupt)
}

/// All plans that can be run here, each held against this machine, and those that are not run; an error where
/// this machine can run none.
fn due<'s>(
    args: &LabPaperArgs,
    study: &'s Study,
    interrupt: &Interrupt,
) -> miette::Result<(Vec<Due<'s>>, Vec<NotRun>)> {
    let (mut due, mut not_run, mut refused) = (Vec::new(), Vec::new(), None);
    for run in &study.runs {
        let mut experiment = match run.experiment() {
            Ok(experiment) => experiment,
            Err(mistakes) => {
                let because = format!(
                    "its plan {} asks for what this version does not have ({})",
                    run.plan,
                    mistakes.to_string().lines().next().unwrap_or_default()
                );
                Event::warn(format!("not run: {because}")).tell();
                not_run.push(NotRun { plan: run.plan.clone(), because, cause: Cause::Lacking });
                continue;
            }
        };
        if run.full && !args.full {
            let because = "it is run by --full alone".to_owned();
            not_run.push(NotRun { plan: run.plan.clone(), because, cause: Cause::Full });
            continue;
        }
        let left_out = if args.quick { quick(&mut experiment, run) } else { Vec::new() };
        if args.full {
            // As many rounds as its differences take.
            (experiment.time, experiment.rounds) = (None, None);
        }
        if experiment.groups.is_empty() && experiment.pictures.is_empty() {
            let because = "it is left out by --quick".to_owned();
            not_run.push(NotRun { plan: run.plan.clone(), because, cause: Cause::Passed });
            continue;
        }
        let text = plan_text(&run.plan).unwrap_or_default().to_owned();
        let file = PathBuf::from(plan_file(&run.plan));
        match Ready::of(&file, text, experiment, interrupt) {
            Ok(ready) => due.push(Due { run, ready, left_out }),
            Err(error) => {
                let because = what_is_missing(&error.to_string());
                Event::warn(format!("{} is not run: {because}", run.plan)).tell();
                not_run.push(NotRun { plan: run.plan.clone(), because, cause: Cause::Machine });
                refused.get_or_insert(error);
            }
        }
    }
    match refused {
        Some(error) if due.is_empty() && args.name != ALL => Err(error),
        // Of all papers together each has its page.
        _ => Ok((due, not_run)),
    }
}

/// What a plan needs and is not here, in a line: what stands below the line that says so, once each.
fn what_is_missing(error: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in error.lines().skip(usize::from(error.lines().count() > 1)) {
        // Several systems need the same.
        let line = line
            .split_once(": ")
            .filter(|(who, _)| who.starts_with("system "))
            .map_or(line, |(_, what)| what);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("; ")
}

/// Adds verdicts, and keeps and tells all of it, JSON by who asked; why it was not kept, if it was not.
fn keep_and_tell(
    args: &LabPaperArgs,
    file: &Path,
    mut kept: Value,
    tables: &str,
) -> miette::Result<(Value, Option<String>)> {
    let read = PaperKept::read(&kept).map_err(|why| miette::miette!("{why}"))?;
    let verdicts = read.judge();
    kept["verdicts"] = json!(verdicts);
    let lost = picture::keep(file, &kept).err().map(|why| why.to_string());
    if !args.json {
        print(&format!("{tables}{}", text(&read, &verdicts)))?;
        if lost.is_none() {
            let page = picture::page_of(file);
            print(&format!("\nkept: {}, page: {}\n", file.display(), page.display()))?;
        }
    }
    Ok((kept, lost))
}

/// Each finding with what is said of it.
fn text(kept: &PaperKept, verdicts: &[Said]) -> String {
    let paper = &kept.study.paper;
    let mut text = format!("\n{}\n", paper.title);
    for (finding, said) in paper.findings.iter().zip(verdicts) {
        let _ = write!(text, "\n{}: {}\n  {}\n", said.id, said.answer, finding.claim());
        if let Some(ours) = &said.ours {
            let size = said.size.map_or(String::new(), |size| format!("; size: {size}"));
            let modelled = if said.is_modelled { "; modelled" } else { "" };
            let _ = writeln!(text, "  here: {}{size}{modelled}", ours);
        }
        for cell in said.cells.iter().filter(|_| said.cells.len() > 1) {
            let ours = cell.ours.as_ref().map_or(String::new(), |one| format!(", {}", one));
            let _ = writeln!(text, "  {}: {}{ours}", cell.name, cell.answer);
        }
        // Of a finding that is decided by what is reached, that is all there is.
        for seen in said.seen.iter().filter(|_| said.ours.is_none()) {
            let _ = writeln!(text, "  seen: {seen}");
        }
        for cell in &said.beside {
            let ours = cell.ours.as_ref().map_or("not measured".to_owned(), Ours::to_string);
            let _ = writeln!(text, "  beside it, {}: {ours}", cell.name);
        }
    }
    let left_out: Vec<&str> = kept.left_out().collect();
    if !left_out.is_empty() {
        let _ = writeln!(text, "\nleft out:");
        left_out.iter().for_each(|name| {
            let _ = writeln!(text, "  {name}");
        });
    }
    text
}
