//! The Debian package: the static binary with its symbols apart (`plateway.debug`), manual pages,
//! completions, the unit and what belongs to it, put together by cargo-deb as
//! `crates/plateway/Cargo.toml` says; and what is checked of it, with an installation into a copy
//! of this machine that is thrown away.
//!
//! Pages and completions are made by the binary itself. cargo-deb is taken from `PATH`, or
//! installed once below the target directory, in the version that is named here.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::steps::NOT_PERMITTED;
use crate::tree::{self, Tree};
use crate::{container, release};

const CARGO_DEB: &str = "cargo-deb@3.8.0";

/// The worst exposure that `systemd-analyze security` may find in the unit, times ten.
const EXPOSURE_MAX: &str = "29";

/// What an installation must find, as `dpkg-deb --contents` shows it.
const FILES: &[&str] = &[
    "./etc/plateway/plateway.toml",
    "./usr/bin/plateway",
    "./usr/lib/sysusers.d/plateway.conf",
    "./usr/lib/systemd/system/plateway.service",
    "./usr/lib/udev/rules.d/70-plateway.rules",
    "./usr/share/bash-completion/completions/plateway",
    "./usr/share/fish/vendor_completions.d/plateway.fish",
    "./usr/share/man/man1/plateway-serve.1.gz",
    "./usr/share/man/man1/plateway.1.gz",
    "./usr/share/zsh/vendor-completions/_plateway",
];

/// Builds the release binary and the package; returns the package's path.
pub(crate) fn build(tree: &Tree) -> Result<PathBuf> {
    release::build(tree)?;
    assemble(tree)
}

/// Puts the package together from the release binary that is there, and checks it.
pub(crate) fn check(tree: &Tree) -> Result<bool> {
    let package = assemble(tree)?;
    let listed = output(Command::new("dpkg-deb").arg("--contents").arg(&package))?;
    for file in FILES {
        ensure!(listed.lines().any(|line| line.ends_with(file)), "the package lacks {file}");
    }
    let unpacked = tree.root.join("target/package/unpacked");
    let _ = fs::remove_dir_all(&unpacked);
    output(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked))?;
    let binary = unpacked.join("usr/bin/plateway");
    release::check_static(&binary)?;
    ensure!(output(Command::new(&binary).arg("--version"))?.starts_with("plateway "));
    output(Command::new(&binary).arg("check").arg(unpacked.join("etc/plateway/plateway.toml")))
        .context("the configuration that comes with the package")?;
    check_unit(&unpacked.join("usr/lib/systemd/system/plateway.service"))?;
    println!("{}: {} files looked for and there", package.display(), FILES.len());
    let mut install = tree.command("packaging/test-install");
    match tree::exit_code(install.arg(&package))? {
        Some(0) => {}
        Some(NOT_PERMITTED) => {
            println!("it was not installed: this machine does not permit the copy of itself");
        }
        _ => return Ok(false),
    }
    container::check(tree)?;
    Ok(true)
}

/// The package that was built last; where there is none, the folder that it would be in.
pub(crate) fn path(tree: &Tree) -> PathBuf {
    let folder = tree.target.join("debian");
    let packages = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let packages = packages.filter(|path| path.extension().is_some_and(|end| end == "deb"));
    let built = |path: &PathBuf| path.metadata().and_then(|about| about.modified()).ok();
    packages.max_by_key(built).unwrap_or(folder)
}

/// How exposed the unit is, where systemd is there to say it.
fn check_unit(unit: &Path) -> Result<()> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("the unit was not looked at: there is no systemd-analyze here");
        return Ok(());
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE_MAX]);
    let exposure = output(command.arg(unit))?;
    println!("{}", exposure.lines().last().unwrap_or_default().trim());
    Ok(())
}

fn assemble(tree: &Tree) -> Result<PathBuf> {
    let staged = tree.root.join("target/package");
    let _ = fs::remove_dir_all(&staged);
    let pages = staged.join("man");
    fs::create_dir_all(&pages).with_context(|| format!("cannot make {}", pages.display()))?;
    let binary = release::binary(tree);
    let packages = tree.target.join("debian");
    fs::create_dir_all(&packages)?;
    strip(&binary, &staged.join("plateway"), Some(&packages.join("plateway.debug")))?;
    tree::must_succeed(Command::new(&binary).arg("man").arg(&pages))?;
    for (shell, file) in
        [("bash", "plateway.bash"), ("zsh", "_plateway"), ("fish", "plateway.fish")]
    {
        let file = File::create(staged.join(file))?;
        tree::must_succeed(Command::new(&binary).args(["completions", shell]).stdout(file))?;
    }
    let mut command = cargo_deb(tree)?;
    command.args(["--package", "plateway", "--no-build", "--no-strip", "--output"]);
    command.arg(&packages);
    let written = output(&mut command)?;
    let path = written.lines().last().context("cargo-deb names no package")?;
    Ok(PathBuf::from(path))
}

/// Takes the symbols out of a program, and leaves them in a file that debuggers find by its name.
pub(crate) fn strip(program: &Path, stripped: &Path, symbols: Option<&Path>) -> Result<()> {
    let objcopy = || Command::new("objcopy");
    let mut command = objcopy();
    command.arg("--strip-all");
    if let Some(symbols) = symbols {
        output(objcopy().arg("--only-keep-debug").arg(program).arg(symbols))?;
        command.arg("--add-gnu-debuglink").arg(symbols);
    }
    output(command.arg(program).arg(stripped)).map(drop)
}

/// `cargo deb`, installed where it is not there.
fn cargo_deb(tree: &Tree) -> Result<Command> {
    let own = tree.target.join("tools");
    let path = format!("{}/bin:{}", own.display(), std::env::var("PATH").unwrap_or_default());
    let deb = || {
        let mut command = tree.cargo(&["deb"]);
        command.env("PATH", &path);
        command
    };
    if !deb().arg("--version").output().is_ok_and(|ended| ended.status.success()) {
        println!("installing {CARGO_DEB}, once, below {}", own.display());
        let arguments = ["install", "--quiet", "--locked", CARGO_DEB, "--root"];
        let mut command = tree.cargo(&arguments);
        // It runs for seconds: what builds fast is done first.
        let profile = [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")];
        for (key, value) in profile {
            command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
        }
        tree::must_succeed(command.arg(&own))?;
    }
    Ok(deb())
}

/// What a command prints; with any code but 0, an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let ended = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !ended.status.success() {
        let said = [ended.stdout, ended.stderr].concat();
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&said));
    }
    Ok(String::from_utf8(ended.stdout)?)
}
