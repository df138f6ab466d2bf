//! The disks of a system, as a configuration has them: one as it is, or several like it in a stripe.
//!
//! A served system has them in its server's file; a system that is a disk has them in a file of its
//! trial's, out of which `bench` and `attach` take the volume. Either is of one trial, so its labels are
//! new. Errors: a file that cannot be written, with its name.

use std::fs;
use std::path::{Path, PathBuf};

use lab::plan::{Cell, STRIPE_CHUNK_BYTES, System};

use crate::config::text::quoted;
use crate::config::uri::DiskUri;

/// What the volume is called.
pub(super) const VOLUME: &str = "v0";

/// A disk, and the configuration that has it if it is a volume.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) uri: String,
    pub(super) config: Option<PathBuf>,
}

impl Reached {
    /// One that its URI alone reaches.
    pub(super) fn by(uri: String) -> Reached {
        Reached { uri, config: None }
    }

    /// The disk of a cell that the near end reaches by itself, which has this URI: with several like it, a
    /// volume of a file in `home`.
    pub(super) fn local(
        uri: &str,
        system: &System,
        cell: &Cell,
        home: &Path,
    ) -> miette::Result<Reached> {
        let disks = system.disks_under(&cell.load);
        if disks == 1 {
            return Ok(Reached::by(uri.to_owned()));
        }
        let file = home.join("stripe.toml");
        let path = |name: &str| quoted(&home.join(name).display().to_string());
        let text = format!(
            "[server]\ncontrol = {}\nstate = {}\n{}",
            path("control.sock"),
            path("state"),
            tables(uri, disks)
        );
        fs::write(&file, text)
            .map_err(|error| miette::miette!("cannot write {}: {error}", file.display()))?;
        let uri = DiskUri::Volume { name: VOLUME.to_owned() }.to_string();
        Ok(Reached { uri, config: Some(file) })
    }

    /// What a command of ours is told of it.
    pub(super) fn tell(&self, command: &mut std::process::Command) {
        command.arg(&self.uri);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
    }
}

/// So many disks of this URI, and the volume that they make.
pub(super) fn tables(uri: &str, disks: u32) -> String {
    let names: Vec<String> = (0..disks).map(|disk| quoted(&format!("d{disk}"))).collect();
    let uri = quoted(uri);
    let mut text = String::new();
    for name in &names {
        text += &format!("[[disk]]\nname = {name}\nuri = {uri}\n");
    }
    let layout = match disks {
        1 => "layout = \"single\"".to_owned(),
        _ => format!("layout = \"stripe\"\nchunk = {STRIPE_CHUNK_BYTES}"),
    };
    text + &format!("[[volume]]\nname = \"{VOLUME}\"\n{layout}\ndisks = [{}]\n", names.join(", "))
}

#[cfg(test)]
mod tests {
    use lab::plan::{Experiment, STRIPE_LABEL_BYTES};

    use super::*;
    use crate::config::tests::good;
    use crate::config::volume::Layout;

    const PLAN: &str = "name = \"p\"\n[[system]]\nname = \"ssd\"\ndisk = \"model:ssd,ram:4MiB\"\n\
        [[picture]]\nname = \"s\"\nsystems = [\"ssd\"]\ndisks = [1, 3]\n";

    #[test]
    fn a_label_takes_what_the_lab_says() {
        assert_eq!(STRIPE_LABEL_BYTES, volume::label::LABEL_AREA);
    }

    #[test]
    fn several_disks_are_a_volume_of_a_file_and_one_is_itself() {
        let plan = Experiment::parse("p", PLAN).unwrap();
        let home = testbed::Folder::make("plateway-test-stripe-").unwrap();
        let of = |cell: &Cell| {
            Reached::local("model:ssd,ram:4MiB", &plan.systems[0], cell, home.path()).unwrap()
        };
        let [one, three] = &plan.pictures[0].cells[..] else { panic!("two cells") };
        let single = of(one);
        assert_eq!((&*single.uri, &single.config), ("model:ssd,ram:4MiB", &None));
        let several = of(three);
        let mut command = std::process::Command::new("x");
        several.tell(&mut command);
        let file = home.path().join("stripe.toml");
        let words: Vec<&std::ffi::OsStr> = command.get_args().collect();
        assert_eq!(words, ["volume:v0".as_ref(), "--config".as_ref(), file.as_os_str()]);
        let text = fs::read_to_string(&file).unwrap();
        let args = good(&text);
        assert_eq!(args.disks.len(), 3);
        let disks = ["d0", "d1", "d2"].map(str::to_owned).to_vec();
        assert_eq!(
            args.volumes[0].layout,
            Layout::Stripe { disks, chunk_bytes: STRIPE_CHUNK_BYTES }
        );
        let gone = home.path().join("gone");
        let why = Reached::local("ram:4MiB", &plan.systems[0], three, &gone).unwrap_err();
        assert!(why.to_string().starts_with("cannot write "), "{why}");
    }
}
