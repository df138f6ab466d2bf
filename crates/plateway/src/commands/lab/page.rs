//! `lab page RESULT`: the page of a result file drawn anew, and its figures as files of their own.
//!
//! What is drawn is the `page` crate's. Errors: a file that is no result file, and files that are
//! there already or cannot be written; then none of what was there is lost.

use std::path::PathBuf;

use super::picture::{may_be_replaced, page_of};
use super::read_result;
use crate::cli::LabPageArgs;
use crate::commands::print;
use crate::run::replace_file;

pub(super) fn run(args: &LabPageArgs) -> miette::Result<()> {
    let drawn = page::page(&read_result(&args.result)?)
        .map_err(|why| miette::miette!("{}: {why}", args.result.display()))?;
    let to = args.to.clone().unwrap_or_else(|| page_of(&args.result));
    let mut files: Vec<(PathBuf, &str)> = vec![(to, &drawn.html)];
    for figure in &drawn.figures {
        let Some(folder) = &args.figures else { break };
        let file = |ending: &str| folder.join(format!("{}.{ending}", figure.name));
        files.extend([(file("svg"), &*figure.svg), (file("csv"), &*figure.csv)]);
    }
    for (at, (file, _)) in files.iter().enumerate() {
        let option = if at == 0 { "--to" } else { "--figures" };
        may_be_replaced(file, &args.result, "the result file", option, args.overwrite)?;
    }
    if let Some(folder) = &args.figures {
        super::make_folder(folder)?;
    }
    for (file, text) in &files {
        replace_file(file, text)
            .map_err(|error| miette::miette!("cannot write {}: {error}", file.display()))?;
    }
    let lines: String = files.iter().map(|(file, _)| format!("{}\n", file.display())).collect();
    print(&lines)
}
