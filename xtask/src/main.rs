//! The chores of the repository: `cargo xtask help`, or `make` for the short list.
//!
//! Each chore is a module: `steps` is the table of `make test` and `test` walks it, `record` sees
//! what the tests passed by, `rooms` checks the walls between the crates, `release` builds the static
//! binary and proves that it is static, `package` makes the Debian package and `container` the image,
//! `fuzz` runs the fuzz targets, `mutants` looks for bugs that no test notices, `bench` measures,
//! `interop` hands over to the guests in `interop/`. Nothing here is part of the product, so this may
//! use the clock, files and processes freely; errors are `anyhow` and end the program with code 1.

mod bench;
mod container;
mod fuzz;
mod mutants;
mod package;
mod record;
mod release;
mod rooms;
mod steps;
mod test;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use tree::Tree;

/// The chores of Plateway's repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every test, cheap ones first, going on after a failure, and print a table at the end.
    Test(test::Options),
    /// Formatting, clippy with warnings denied, and the walls between the rooms.
    Lint,
    /// Check which crate may use which, and that pure crates have no I/O, clock, threads or hash
    /// order.
    DepsCheck,
    /// Build the static release binary and print its path.
    Release,
    /// Build the static release binary and the Debian package, and print its path.
    Deb,
    /// Build the static release binary and a container image of it, and print the image's name.
    Container,
    /// Build the static release binary and run `plateway demo` with the arguments that follow.
    Demo {
        /// Arguments of `plateway demo`, for instance `--keep`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the static release binary and the yardstick, and run `plateway lab` with the arguments that follow.
    Lab {
        /// Arguments of `plateway lab`, for instance `run plans/quick.toml`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure against the ceiling and print a table (docs/performance.md says what it means).
    Bench(bench::Options),
    /// Replay the stored corpora, then fuzz each target for a while.
    Fuzz(fuzz::Options),
    /// Put one-line bugs into the sources and list those that no test notices (docs/mutants.md).
    Mutants(mutants::Options),
    /// Build the static release binary and run a scenario of interop/run against it.
    Interop {
        /// Arguments of `interop/run`, for instance `guest-full --suite sid`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does one chore; `false` means that it ran and found something wrong, which it has already
/// printed.
fn run(chore: Chore) -> Result<bool> {
    let tree = Tree::find()?;
    match chore {
        Chore::Test(options) => test::run(&tree, &options),
        Chore::Lint => test::run(&tree, &test::Options::only(steps::LINT)),
        Chore::DepsCheck => rooms::check(&tree).map(|()| true),
        Chore::Release => {
            let binary = release::build(&tree)?;
            println!("{}", binary.display());
            Ok(true)
        }
        Chore::Deb => {
            println!("{}", package::build(&tree)?.display());
            Ok(true)
        }
        Chore::Container => {
            println!("{}", container::build(&tree)?);
            Ok(true)
        }
        Chore::Demo { args } => {
            let binary = release::build(&tree)?;
            tree::succeeds(tree.command(binary).arg("demo").args(args))
        }
        Chore::Lab { args } => {
            let binary = release::build(&tree)?;
            // Plans may have the yardstick among their systems and initiators.
            let path = tree::path_with(&release::build_yardstick(&tree)?)?;
            tree::succeeds(tree.command(binary).arg("lab").args(args).env("PATH", path))
        }
        Chore::Bench(options) => bench::run(&tree, &options),
        Chore::Fuzz(options) => fuzz::run(&tree, &options),
        Chore::Mutants(options) => mutants::run(&tree, &options),
        Chore::Interop { args } => {
            let binary = release::build(&tree)?;
            let mut command = tree.command("interop/run");
            tree::succeeds(command.arg("--bin").arg(binary).args(args))
        }
    }
}
