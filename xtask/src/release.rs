//! The release binary: built static, and proved to be.
//!
//! The C library is linked in (`crt-static`), so one file runs on any Linux of its architecture.
//! The flag is passed together with an explicit `--target`: cargo then gives it to what runs on the
//! target only, and not to proc-macro crates and build scripts, which the GNU targets cannot link
//! statically. Spec: System V ABI, "Program Header": a dynamic program names its interpreter in a
//! PT_INTERP segment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::record;
use crate::tree::{self, Tree};

/// Builds `plateway` for release; returns the binary's path.
pub(crate) fn build(tree: &Tree) -> Result<PathBuf> {
    tree::must_succeed(&mut command(tree))?;
    Ok(binary(tree))
}

/// Builds what it is measured with; returns the binary's path.
pub(crate) fn build_yardstick(tree: &Tree) -> Result<PathBuf> {
    tree::must_succeed(&mut tree.cargo(&["build", "--release", "--package", "yardstick"]))?;
    Ok(tree.target.join("release/yardstick"))
}

/// The command that [`build`] runs.
pub(crate) fn command(tree: &Tree) -> Command {
    let flags = match std::env::var("RUSTFLAGS") {
        Ok(own) if !own.is_empty() => format!("{own} -C target-feature=+crt-static"),
        _ => "-C target-feature=+crt-static".to_owned(),
    };
    let mut command = tree.cargo(&["build", "--release", "--package", "plateway", "--target"]);
    command.arg(&tree.host).env("RUSTFLAGS", flags);
    command
}

/// Where [`build`] leaves the binary.
pub(crate) fn binary(tree: &Tree) -> PathBuf {
    tree.target.join(&tree.host).join("release/plateway")
}

/// Refuses a program that asks for a dynamic loader.
pub(crate) fn check_static(path: &Path) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        !bytes.windows(record::VARIABLE.len()).any(|some| some == record::VARIABLE.as_bytes()),
        "{} has the record of tests in it",
        path.display()
    );
    match interpreter(&bytes).with_context(|| path.display().to_string())? {
        None => {
            println!("{}: {} bytes, no interpreter", path.display(), bytes.len());
            Ok(())
        }
        Some(loader) => {
            bail!("{} must be static, but it asks for the interpreter {loader}", path.display())
        }
    }
}

/// The path in the PT_INTERP segment of a 64-bit little-endian ELF file, if it has that segment.
fn interpreter(elf: &[u8]) -> Result<Option<String>> {
    const PT_INTERP: u32 = 3;
    ensure!(elf.get(..6) == Some(b"\x7fELF\x02\x01"), "expected a 64-bit little-endian ELF file");
    let table = usize::try_from(u64::from_le_bytes(field(elf, 32)?))?;
    let entry_bytes = usize::from(u16::from_le_bytes(field(elf, 54)?));
    let entries = usize::from(u16::from_le_bytes(field(elf, 56)?));
    for index in 0..entries {
        let header = table + index * entry_bytes;
        if u32::from_le_bytes(field(elf, header)?) != PT_INTERP {
            continue;
        }
        let offset = usize::try_from(u64::from_le_bytes(field(elf, header + 8)?))?;
        let length = usize::try_from(u64::from_le_bytes(field(elf, header + 32)?))?;
        let name = elf
            .get(offset..offset.saturating_add(length))
            .context("the PT_INTERP segment lies beyond the end of the file")?;
        let name = String::from_utf8_lossy(name);
        return Ok(Some(name.trim_end_matches('\0').to_owned()));
    }
    Ok(None)
}

/// `N` bytes at `offset`.
fn field<const N: usize>(elf: &[u8], offset: usize) -> Result<[u8; N]> {
    elf.get(offset..offset.saturating_add(N))
        .and_then(|bytes| bytes.try_into().ok())
        .with_context(|| format!("the ELF file ends before offset {offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of a header and program headers with these types; segment data (for PT_INTERP)
    /// at its end.
    fn elf(types: &[u32]) -> Vec<u8> {
        let loader = b"/lib64/ld.so\0";
        let end = 64 + 56 * types.len();
        let mut file = vec![0; end];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(types.len() as u16).to_le_bytes());
        for (index, kind) in types.iter().enumerate() {
            let at = 64 + 56 * index;
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&(end as u64).to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(loader.len() as u64).to_le_bytes());
        }
        file.extend_from_slice(loader);
        file
    }

    #[test]
    fn program_without_interpreter_is_static() {
        assert_eq!(interpreter(&elf(&[1, 2, 0x6474_e551])).unwrap(), None);
    }

    #[test]
    fn program_with_interpreter_is_refused_by_its_name() {
        let found = interpreter(&elf(&[6, 1, 3])).unwrap();
        assert_eq!(found.as_deref(), Some("/lib64/ld.so"));
    }

    #[test]
    fn truncated_or_foreign_files_are_errors_not_passes() {
        assert!(interpreter(b"#!/bin/sh\n").is_err());
        let whole = elf(&[1, 3]);
        assert!(interpreter(&whole[..100]).is_err());
        assert!(interpreter(&whole[..whole.len() - 1]).is_err());
    }
}
