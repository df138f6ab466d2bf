//! The container image of `packaging/Containerfile`: the static binary, put into an image by podman,
//! buildah or docker, whichever is found first; and what is checked of it. Nothing is fetched, so
//! that an image is made without a network.
//!
//! Errors are those of the builder, with what it printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::tree::Tree;
use crate::{package, release};

const FILE: &str = "packaging/Containerfile";
const BUILDERS: [&str; 3] = ["podman", "buildah", "docker"];
/// What every builder can make where it can make anything.
const LEAST: &str = "FROM scratch\nCOPY Containerfile /\n";

/// Builds the release binary and the image; returns the image's name.
pub(crate) fn build(tree: &Tree) -> Result<String> {
    let binary = release::build(tree)?;
    let version = package::output(Command::new(&binary).arg("--version"))?;
    let version = version.split_whitespace().last().context("the binary's version")?;
    let image = format!("plateway:{version}");
    let builder = builder(tree)?
        .context("no builder works here: one of podman, buildah or docker is needed")?;
    builder.build(&tree.root.join(FILE), &context(tree, &binary)?, &image)?;
    Ok(image)
}

/// What a linter and a builder say, where they are found: the image is built, its program runs, and
/// the image goes again.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    match Command::new("hadolint").arg(tree.root.join(FILE)).output() {
        Err(_) => println!("{FILE} was not linted: there is no hadolint here"),
        Ok(_) => {
            package::output(tree.command("hadolint").args(["--failure-threshold", "style", FILE]))?;
            println!("{FILE}: hadolint finds nothing");
        }
    }
    let Some(builder) = builder(tree)? else {
        println!("no image was built: no podman, buildah or docker works here");
        return Ok(());
    };
    let image = format!("plateway-test-{}", std::process::id());
    builder.build(&tree.root.join(FILE), &context(tree, &release::binary(tree))?, &image)?;
    let ran = builder.run(&image, &["/plateway", "--version"]);
    package::output(Command::new(builder.0).args(["rmi", &image]))?;
    ensure!(ran?.starts_with("plateway "), "the image runs something else");
    println!("the image was built by {} and its program runs", builder.0);
    Ok(())
}

/// The folder with the program alone, without its symbols.
fn context(tree: &Tree, binary: &Path) -> Result<PathBuf> {
    let folder = fresh(tree, "container")?;
    package::strip(binary, &folder.join("plateway"), None)?;
    Ok(folder)
}

/// An empty folder below the target directory.
fn fresh(tree: &Tree, name: &str) -> Result<PathBuf> {
    let folder = tree.target.join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The first that can build anything here: docker may be there without its daemon.
fn builder(tree: &Tree) -> Result<Option<Builder>> {
    let folder = fresh(tree, "container-probe")?;
    let file = folder.join("Containerfile");
    fs::write(&file, LEAST)?;
    let image = format!("plateway-probe-{}", std::process::id());
    let works = |builder: &Builder| {
        let built = builder.build(&file, &folder, &image).is_ok();
        built && package::output(Command::new(builder.0).args(["rmi", &image])).is_ok()
    };
    Ok(BUILDERS.into_iter().map(Builder).find(works))
}

struct Builder(&'static str);

impl Builder {
    fn build(&self, file: &Path, context: &Path, image: &str) -> Result<()> {
        let mut command = Command::new(self.0);
        command.args(["build", "--quiet", "--tag", image, "--file"]).arg(file).arg(context);
        package::output(&mut command).map(drop)
    }

    /// What a program of an image prints.
    fn run(&self, image: &str, program: &[&str]) -> Result<String> {
        let mut command = Command::new(self.0);
        if self.0 != "buildah" {
            let [entry, arguments @ ..] = program else { unreachable!("there is a program") };
            command.args(["run", "--rm", "--network", "none", "--entrypoint", entry, image]);
            return package::output(command.args(arguments));
        }
        let container = package::output(command.args(["from", image]))?;
        let container = container.trim();
        let mut command = Command::new(self.0);
        command.args(["run", "--isolation", "chroot", container, "--"]).args(program);
        let printed = package::output(&mut command);
        package::output(Command::new(self.0).args(["rm", container]))?;
        printed
    }
}
