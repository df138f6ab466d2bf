//! A file to which a client writes how far it is: what came since is read whenever somebody looks.
//!
//! It is there once something was written. Units: bytes. Errors: that it cannot be read, with its name.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;

pub(super) struct Growing {
    path: PathBuf,
    file: Option<File>,
}

impl Growing {
    pub(super) fn new(path: PathBuf) -> Growing {
        Growing { path, file: None }
    }

    /// What was written since the last look.
    pub(super) fn read(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = match &mut self.file {
            Some(file) => file.read_to_end(&mut bytes),
            none => match File::open(&self.path) {
                Ok(file) => none.insert(file).read_to_end(&mut bytes),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error),
            },
        };
        let told =
            |error| format!("cannot read {}, which the client wrote: {error}", self.path.display());
        read.map(|_| bytes).map_err(told)
    }
}
