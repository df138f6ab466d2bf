//! `plateway init`: a first configuration to be edited, which `check` accepts as it is.

use std::fs::OpenOptions;
use std::io::Write;

use crate::cli::InitArgs;

/// What it says.
const FIRST: &str = include_str!("init.toml");

/// Writes it where nothing is.
pub(crate) fn run(args: &InitArgs) -> miette::Result<()> {
    let path = args.file.display();
    let written = OpenOptions::new().write(true).create_new(true).open(&args.file);
    written.and_then(|mut file| file.write_all(FIRST.as_bytes())).map_err(|error| {
        miette::miette!(
            help = "name a file that is not there, in a folder that is: plateway init FILE",
            "cannot write {path}: {error}"
        )
    })?;
    super::print(&format!("{path} is written: edit it, then: plateway check {path}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::good;

    #[test]
    fn it_is_accepted_as_it_is_and_with_its_examples() {
        assert_eq!(good(FIRST).exports.len(), 1);
        let all: String = FIRST
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
            .collect();
        assert!(good(&all).disks.len() > good(FIRST).disks.len());
    }
}
