//! What `make test` runs, cheap before dear: one table, read from top to bottom.
//!
//! To add a step, add a row. A step is a command or a check written here in Rust; what it proves is
//! said in one line, since that is what a reader of the summary wants to know. `needs` names steps
//! without which this one cannot say anything: if one of them failed, this one is not run and counts as
//! failed too. `company` says whether another step may run at the same time.

use std::process::Command;

use anyhow::Result;

use crate::tree::Tree;
use crate::{fuzz, package, record, release, rooms};

/// One row of the table.
pub(crate) struct Step {
    /// The name for `--only` and `--skip`.
    pub(crate) name: &'static str,
    /// What is known when it passes.
    pub(crate) proves: &'static str,
    /// The steps whose product this one uses.
    pub(crate) needs: &'static [&'static str],
    /// Whether another step may run at the same time.
    pub(crate) company: Company,
    /// How it is run.
    pub(crate) run: Run,
}

/// With whom a step runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// Nobody: it measures, or it loads all of the machine.
    Alone,
    /// One other step: it waits for results and not for times, or keeps one processor busy.
    Beside,
}

/// How a step is run.
pub(crate) enum Run {
    /// A command, which passes with code 0 and is skipped with [`NOT_PERMITTED`].
    Command(fn(&Tree) -> Command),
    /// A check of ours, with the words to show for it; it passes with `Ok(true)`.
    Check(&'static str, fn(&Tree) -> Result<bool>),
}

/// The code with which a command says that this machine does not permit what it would do;
/// `interop/run` ends so where it may not make the network that AoE needs, `packaging/test-install`
/// where it may not make a copy of the machine.
pub(crate) const NOT_PERMITTED: i32 = 77;

/// The steps of `make lint`.
pub(crate) const LINT: &[&str] = &["format", "format-fuzz", "rooms", "clippy", "clippy-fuzz"];

/// Executions of each fuzz target in `make test`, after its corpus was replayed: a few seconds
/// each.
const FUZZ_RUNS: u64 = 20_000;

/// What compiles and runs the tests: of libraries, programs and folders `tests`. Examples in comments
/// are none: what one would show, a test beside it shows.
const TESTS: &[&str] = &["test", "--workspace", "--all-targets"];

/// Those beside the code, and folders `tests` of machines without I/O: they wait for nothing, each on a processor or
/// two. All are of the whole workspace, as what was built is.
const OF_MACHINES: &[&str] = &[
    "contract",
    "copying",
    "frames",
    "iscsi_reservations",
    "planted",
    "plants",
    "probes",
    "repair",
    "reservations",
    "seeds",
    "sessions",
    "simulation",
];

/// Those of the program and of the reactor, which are about processes and time.
const OF_PROGRAMS: &[&str] = &[
    "aoe", "attach", "bench", "browser", "copy", "device", "dissect", "hung", "lab", "link",
    "metrics", "peers", "runtime", "server", "sim", "wire",
];

/// What runs tests of these folders, all of them also behind one that fails: a run tells all that it can.
fn tests(tree: &Tree, more: &[&str], folders: &[&str]) -> Command {
    let mut command = tree.cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(more).args(folders.iter().flat_map(|folder| ["--test", folder]));
    if std::env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, test_threads().to_string());
    }
    command
}

/// How many tests of a program run at once, as the harness is told.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// What the names of tests have that measure: beside others they are unsteady, and take several times as long.
const MEASURED: &str = "measured::";

/// Twice as many as there are processors: those that take longest wait most of the time, for a program that is
/// started, or for a moment.
fn test_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Every step, in the order in which they begin. Those that may run beside another stand together.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "format",
        proves: "the sources are formatted",
        needs: &[],
        company: Company::Alone,
        run: Run::Command(|tree| tree.cargo(&["fmt", "--all", "--check"])),
    },
    Step {
        name: "format-fuzz",
        proves: "the fuzz targets are formatted",
        needs: &[],
        company: Company::Alone,
        run: Run::Command(|tree| {
            tree.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
        }),
    },
    Step {
        name: "rooms",
        proves: "crates depend on each other as ARCHITECTURE.md says, and pure ones are pure",
        needs: &[],
        company: Company::Alone,
        run: Run::Check("cargo xtask deps-check", |tree| rooms::check(tree).map(|()| true)),
    },
    Step {
        name: "release",
        proves: "the release binary builds with the C library linked in",
        needs: &[],
        company: Company::Beside,
        run: Run::Command(release::command),
    },
    Step {
        name: "clippy",
        proves: "no warning of the compiler or of clippy",
        needs: &[],
        company: Company::Beside,
        run: Run::Command(|tree| {
            tree.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
        }),
    },
    Step {
        name: "clippy-fuzz",
        proves: "nor in the fuzz targets, which are a workspace of their own",
        needs: &[],
        company: Company::Beside,
        run: Run::Command(|tree| {
            let mut command = tree.cargo(&["clippy", "--manifest-path", "fuzz/Cargo.toml"]);
            command.args(["--", "-D", "warnings"]);
            command
        }),
    },
    Step {
        name: "build",
        proves: "all that has a test compiles",
        needs: &[],
        company: Company::Beside,
        run: Run::Command(|tree| {
            let mut command = tree.cargo(TESTS);
            command.arg("--no-run");
            command
        }),
    },
    Step {
        name: "static",
        proves: "the release binary asks for no dynamic loader, and records nothing",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Check("read its ELF program headers", |tree| {
            release::check_static(&release::binary(tree)).map(|()| true)
        }),
    },
    Step {
        name: "unit",
        proves: "each rule that has a test beside its code, and machines simulated whole",
        needs: &["build"],
        company: Company::Beside,
        run: Run::Command(|tree| {
            let mut command = tests(tree, &["--lib", "--bins"], OF_MACHINES);
            command.env(record::VARIABLE, record::begin(tree));
            command
        }),
    },
    Step {
        name: "fuzz",
        proves: "stored inputs and a short search crash no parser and no machine",
        needs: &[],
        company: Company::Beside,
        run: Run::Check("cargo xtask fuzz --runs 20000", |tree| {
            fuzz::run(tree, &fuzz::Options::short(FUZZ_RUNS))
        }),
    },
    Step {
        name: "programs",
        proves: "the program and its reactor do what they say, to people, peers and disks",
        needs: &["unit"],
        company: Company::Alone,
        run: Run::Command(|tree| {
            let mut command = tests(tree, &[], OF_PROGRAMS);
            command.args(["--", "--skip", MEASURED]);
            command.env(record::VARIABLE, record::file(tree));
            command
        }),
    },
    Step {
        name: "measured",
        proves: "what it measures, one after the other",
        needs: &["unit"],
        company: Company::Alone,
        run: Run::Command(|tree| {
            let mut command = tests(tree, &[], &["lab"]);
            command.args(["--", MEASURED, "--test-threads", "1"]);
            command.env(record::VARIABLE, record::file(tree));
            command
        }),
    },
    Step {
        name: "record",
        proves: "all of those pass through every option, key, route, status, refusal and kind of mail",
        needs: &["programs", "measured"],
        company: Company::Alone,
        run: Run::Check("compare what they recorded with what there is", record::check),
    },
    Step {
        name: "demo",
        proves: "the first command of the README works as an ordinary user runs it",
        needs: &["release"],
        company: Company::Alone,
        run: Run::Command(|tree| program(tree, &["demo"])),
    },
    Step {
        name: "simulator",
        proves: "2,000 seeds of faults lose no promise, and each seed gives the same trace twice",
        needs: &["release"],
        company: Company::Alone,
        run: Run::Command(|tree| {
            program(tree, &["sim", "--seed", "1", "--seeds", "2000", "--twice"])
        }),
    },
    Step {
        name: "package",
        proves: "the package installs, serves as its user and goes again; its unit gives little away; the image runs",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Check(
            "cargo xtask deb, installed into an overlay; cargo xtask container",
            package::check,
        ),
    },
    Step {
        name: "iscsi-suite",
        proves: "libiscsi's test suite ends over iSCSI as docs/conformance.md says, test by test",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-suite")),
    },
    Step {
        name: "iscsi-planted",
        proves: "that suite can fail: a disk that forgets its writes is noticed",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-planted")),
    },
    Step {
        name: "aoe-ipxe",
        proves: "iPXE hooks an AoE export, boots from it, reads and writes it",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "aoe-ipxe")),
    },
    Step {
        name: "iscsi-ipxe",
        proves: "and it does so over iSCSI",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-ipxe")),
    },
    Step {
        name: "iscsi-qemu",
        proves: "QEMU's block layer copies, compares, zeroes and discards on LUNs, and finds it all after a kill",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-qemu")),
    },
    Step {
        name: "iscsi-libvirt",
        proves: "libvirt finds the target, proves who it is, lists, wipes and boots from LUNs of a pool, and sees one grow",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-libvirt")),
    },
    Step {
        name: "guest-epoll",
        proves: "Linux's own initiator verifies its data over the epoll driver and survives a killed target",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "guest-epoll")),
    },
    Step {
        name: "guest-full",
        proves: "the same over io_uring with digests and 4 queues: ext4, kills, resize, nvme-cli",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "guest-full")),
    },
    Step {
        name: "aoe-full",
        proves: "Linux's AoE driver and aoetools: access, ext4 and fio at MTU 9000 with 1% loss, kills, resize",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "aoe-full")),
    },
    Step {
        name: "mpls-guest",
        proves: "Linux's mpls_router and our routers switch each other's labels, and its AoE driver survives silent cuts behind them",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "mpls-guest")),
    },
    Step {
        name: "iscsi-guest",
        proves: "Linux's iSCSI initiator with CHAP both ways and digests: access, ext4, fio, resets, kills, LUNs that come, grow and go",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-guest")),
    },
    Step {
        name: "paths",
        proves: "Linux's multipath over NVMe/TCP, and multipathd over iSCSI, move I/O as an administrator closes and opens paths",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "paths")),
    },
    Step {
        name: "lab-guest",
        proves: "the lab by what a kernel may have: netem delays and loses frames, control groups v2 bound a client of a folder",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "lab-guest")),
    },
    Step {
        name: "guest-boot",
        proves: "the package under systemd: file, device and AoE served, reloads, kills, a hang, a boot, drop-ins, purge",
        needs: &["package"],
        company: Company::Beside,
        run: Run::Command(|tree| {
            let mut command = interop(tree, "guest-boot");
            command.arg("--deb").arg(package::path(tree));
            command
        }),
    },
    Step {
        name: "planted",
        proves: "the guest's checkers notice lost and corrupted data when we plant them",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "planted")),
    },
    Step {
        name: "aoe-planted",
        proves: "so do those of AoE, and they notice a stranger that is heard",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "aoe-planted")),
    },
    Step {
        name: "iscsi-guest-planted",
        proves: "so do those of iSCSI, and they notice a stranger that is let in",
        needs: &["release"],
        company: Company::Beside,
        run: Run::Command(|tree| interop(tree, "iscsi-guest-planted")),
    },
];

/// The release binary with arguments.
fn program(tree: &Tree, args: &[&str]) -> Command {
    let mut command = tree.command(release::binary(tree));
    command.args(args);
    command
}

/// A scenario of `interop/run` against the release binary.
fn interop(tree: &Tree, scenario: &str) -> Command {
    let mut command = tree.command("interop/run");
    command.arg("--bin").arg(release::binary(tree)).arg(scenario);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_needs_come_earlier() {
        for (index, step) in STEPS.iter().enumerate() {
            let earlier = &STEPS[..index];
            assert!(
                earlier.iter().all(|other| other.name != step.name),
                "two steps are named {}",
                step.name
            );
            for needed in step.needs {
                assert!(
                    earlier.iter().any(|other| other.name == *needed),
                    "{} needs {needed}, which does not come before it",
                    step.name
                );
            }
        }
    }

    #[test]
    fn every_folder_of_tests_is_run_by_one_step() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let folders =
            std::fs::read_dir(crates).unwrap().map(|one| one.unwrap().path().join("tests"));
        let all =
            folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        let is_one = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").exists()
        };
        let mut there: Vec<String> = all
            .map(|one| one.path())
            .filter(is_one)
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        there.sort_unstable();
        there.dedup();
        let mut named = [OF_MACHINES, OF_PROGRAMS].concat();
        named.sort_unstable();
        assert_eq!(there, named);
    }

    #[test]
    fn lint_names_steps_that_exist() {
        for name in LINT {
            assert!(STEPS.iter().any(|step| step.name == *name), "no step {name}");
        }
    }
}
