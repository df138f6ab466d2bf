//! Every personality on a folder of this machine, and each thing that a file system may do wrong.

use std::fs;
use std::path::PathBuf;

use clap::Parser as _;
use lab::file_load::Personality;
use tempfile::TempDir;

use super::*;
use crate::cli::{Cli, Command, LabAction};

/// As the lab asks for it.
fn args(folder: &TempDir, load: &str, size: &str, more: &str) -> LabFilesArgs {
    let folder = folder.path().display();
    let line = format!("plateway lab files {folder} --load {load} --size {size} {more}");
    match Cli::try_parse_from(line.split(' ').filter(|word| !word.is_empty())).unwrap().command {
        Command::Lab(lab) => match lab.action {
            LabAction::Files(args) => args,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A folder where files can be opened past the page cache.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// Works on files that are there; what is printed, or what was wrong.
fn work(args: &LabFilesArgs) -> Result<Report, String> {
    let set = FileSet::new(args.load, args.size, args.seed);
    let store = Store::new(&args.folder, &set);
    let work = Work::new(Register::new(set.clone()));
    let interrupt = Interrupt::watch().unwrap();
    let steady = work.carry_out(args, &store, &interrupt).map_err(|why| why.to_string())?;
    if let Some(why) = lock(&work.trouble).take() {
        return Err(why);
    }
    Ok(work.report(args, &set, steady))
}

#[test]
fn every_personality_works_on_what_was_made_and_finds_it_as_it_was_written() {
    for (word, personality) in Personality::WORDS {
        let folder = folder();
        run(&args(&folder, word, "8m", "--jobs 3 --make")).unwrap();
        let report = match work(&args(&folder, word, "8m", "--jobs 3 --steady 100ms --warmup 0")) {
            Ok(report) => report,
            Err(why) if *personality == Personality::Oltp && why.contains("Invalid argument") => {
                testkit::skipped(why);
                continue;
            }
            Err(why) => panic!("{word}: {why}"),
        };
        assert!(report.counted.operations() > 100, "{word}");
        assert!(report.steady.windows.len() >= 5 && report.steady.iops > 0.0, "{word}");
        assert_eq!(report.steady.last.requests, report.counted.operations(), "{word}");
        assert!(report.looked.reads > 0 && report.looked.zeros == 0, "{word}");
        assert!(report.bytes_per_op > report.read_bytes_per_op, "{word}: something is written");
        assert!(report.counted.read > 0 && report.read_bytes_per_op > 0.0, "{word}");
    }
}

/// All files of a web server that are read.
fn web_files(folder: &TempDir, size: u64) -> Vec<PathBuf> {
    let set = FileSet::new(Personality::Webserver, size, 1);
    (0..set.count()).map(|file| folder.path().join(set.path(file))).collect()
}

#[test]
fn what_is_not_as_it_was_written_ends_it_with_its_file() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 3] = [
        ("what was written there, seen zeros", |bytes| bytes.fill(0)),
        ("what was written there, seen something else", |bytes| bytes[0] ^= 1),
        ("bytes, seen its end after", |bytes| bytes.truncate(bytes.len() - 1)),
    ];
    for (words, change) in changes {
        let folder = folder();
        run(&args(&folder, "webserver", "1m", "--make")).unwrap();
        for file in web_files(&folder, 1 << 20) {
            let mut bytes = fs::read(&file).unwrap();
            change(&mut bytes);
            fs::write(&file, &bytes).unwrap();
        }
        let why = work(&args(&folder, "webserver", "1m", "--steady 1s --warmup 1s")).unwrap_err();
        assert!(why.contains(words) && why.contains("/000000"), "{why}");
    }
}

#[test]
fn what_cannot_be_done_ends_it_with_its_file_and_why() {
    let folder = folder();
    run(&args(&folder, "webserver", "1m", "--make")).unwrap();
    let again = run(&args(&folder, "webserver", "1m", "--make")).unwrap_err().to_string();
    assert!(again.contains("cannot make") && again.contains("File exists"), "{again}");
    web_files(&folder, 1 << 20).iter().for_each(|file| fs::remove_file(file).unwrap());
    let args = args(&folder, "webserver", "1m", "--steady 1s");
    let why = work(&args).unwrap_err();
    assert!(why.contains("cannot open") && why.contains("No such file"), "{why}");
    let why = run(&args).unwrap_err().to_string();
    assert!(why.contains("cannot open"), "{why}");
    fs::remove_file(folder.path().join("log")).unwrap();
    let why = run(&args).unwrap_err().to_string();
    assert!(why.contains("cannot open") && why.contains("/log: No such file"), "{why}");
}
