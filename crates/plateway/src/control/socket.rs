//! The control socket: one server behind each path, and nobody but its owner, and the members of a
//! group where one is named, in front of it.
//!
//! A lock beside the socket (`PATH.lock`) is held for as long as the server lives and ends with it,
//! however it ends; a socket whose lock is free is stale and is replaced. The socket is made with
//! mode 0600, and then given to the group with 0660. Errors name the path, what was seen and what
//! to do.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;

use super::server::{Asking, Serving, serve};
use crate::config::server::Server;
use crate::run::RunError;

/// A socket that listens, and is not answered yet.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    owned: Owned,
}

/// The path and its lock; the socket goes with it.
#[derive(Debug)]
pub(super) struct Owned {
    path: PathBuf,
    _lock: File,
}

impl Owned {
    /// Lets the members of a group use the socket.
    fn give_to(&self, name: &str) -> Result<(), RunError> {
        let path = self.path.display();
        let fail = |doing: &str, seen: &dyn std::fmt::Display| {
            RunError::new(format!("control socket {path}: cannot {doing}: {seen}"))
        };
        let group = group(name)?;
        let seen = fs::metadata(&self.path).map_err(|error| fail("look at it", &error))?;
        if seen.gid() != group.as_raw() {
            chown(&self.path, None, Some(group.as_raw())).map_err(|error| {
                fail(&format!("give it to group {name}"), &error).help(
                    "a server that does not run as root must be a member of the group; under systemd: Group=, or \
                     SupplementaryGroups= and SystemCallFilter=@chown",
                )
            })?;
        }
        let mode = fs::Permissions::from_mode(0o660);
        fs::set_permissions(&self.path, mode).map_err(|error| fail("let its group use it", &error))
    }
}

/// The number of a group that this machine must have.
pub(crate) fn group(name: &str) -> Result<Gid, RunError> {
    let seen = match Group::from_name(name) {
        Ok(Some(group)) => return Ok(group.gid),
        Ok(None) => "none of this name".to_owned(),
        Err(errno) => errno.desc().to_owned(),
    };
    let message = format!("control_group {name}: expected a group of this machine, seen {seen}");
    Err(RunError::new(message)
        .help(format!("`getent group {name}` shows it; groupadd makes one"))
        .key("control_group"))
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Still under the lock: it is ours.
        let _ = fs::remove_file(&self.path);
    }
}

impl ControlSocket {
    /// Makes the socket; an error if another server has it.
    pub(crate) fn open(server: &Server) -> Result<ControlSocket, RunError> {
        let socket = ControlSocket::open_for_owner(&server.control)?;
        if let Some(group) = &server.control_group {
            socket.owned.give_to(group)?;
        }
        Ok(socket)
    }

    fn open_for_owner(path: &Path) -> Result<ControlSocket, RunError> {
        let fail = |doing: &str, error: &dyn std::fmt::Display| {
            RunError::new(format!("control socket {}: cannot {doing}: {error}", path.display()))
                .help("name another one with --control or [server] control")
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|error| fail("make its directory", &error))?;
        }
        let lock_path = path.with_added_extension("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| fail("open its lock", &error))?;
        let taken = || {
            let path = path.display();
            RunError::new(format!("control socket {path}: expected to be the only server, seen another one that answers there"))
                .help(format!(
                    "look at it with: plateway status --control {path}; a second server needs another --control"
                ))
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(taken()),
            Err(errno) => return Err(fail("lock it", &errno)),
        }
        match UnixStream::connect(path) {
            Ok(_) => return Err(taken()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // So does whatever is no socket at all refuse.
                let seen = fs::symlink_metadata(path);
                if !seen.is_ok_and(|seen| seen.file_type().is_socket()) {
                    return Err(fail("replace it", &"expected a socket, seen something else"));
                }
                fs::remove_file(path).map_err(|error| fail("replace a stale one", &error))?;
            }
            Err(error) => return Err(fail("look whether a server answers there", &error)),
        }
        // No other thread makes files yet, so the mask is ours to change.
        let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(mask);
        let listener = listener.map_err(|error| fail("listen there", &error))?;
        let owned = Owned { path: path.to_owned(), _lock: lock };
        Ok(ControlSocket { listener, owned })
    }

    /// Answers from now on, in a thread of its own: `ask` takes each request to the control thread
    /// and says whether it is there.
    pub(crate) fn serve(self, asking: Asking) -> Result<Serving, RunError> {
        let ControlSocket { listener, owned } = self;
        let path = owned.path.clone();
        serve(listener, owned, asking).map_err(|error| {
            RunError::new(format!("control socket {}: cannot answer it: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_and_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/control.sock");
        let first = ControlSocket::open_for_owner(&path).unwrap();
        let error = ControlSocket::open_for_owner(&path).unwrap_err();
        assert!(error.line().contains("another one that answers"), "{}", error.line());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        ControlSocket::open_for_owner(&path).unwrap();
    }

    #[test]
    fn a_group_is_let_in_where_it_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let socket = ControlSocket::open_for_owner(&path).unwrap();
        let own = fs::metadata(&path).unwrap().gid();
        let own = Group::from_gid(own.into()).unwrap().expect("a group with a name");
        // Its own group is not changed, which takes no right.
        socket.owned.give_to(&own.name).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let other = if own.name == "daemon" { "root" } else { "daemon" };
        match socket.owned.give_to(other) {
            Ok(()) => {
                let other = group(other).unwrap().as_raw();
                assert_eq!(fs::metadata(&path).unwrap().gid(), other);
            }
            // Without rights.
            Err(error) => assert!(error.line().contains("give it to group"), "{}", error.line()),
        }
        let error = socket.owned.give_to("no-such-group").unwrap_err();
        assert!(error.line().contains("seen none of this name"), "{}", error.line());
        fs::remove_file(&path).unwrap();
        let error = socket.owned.give_to(&own.name).unwrap_err();
        let gone = format!("control socket {}: cannot look at it: No such file", path.display());
        assert!(error.line().starts_with(&gone), "{}", error.line());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let refused = || {
            let error = ControlSocket::open_for_owner(&path).unwrap_err();
            assert!(error.line().contains("expected a socket, seen"), "{}", error.line());
        };
        fs::create_dir(&path).unwrap();
        refused();
        assert!(path.is_dir());
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "somebody's").unwrap();
        refused();
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(ControlSocket::open_for_owner(&link).is_err());
        assert_eq!((fs::read(&link).unwrap(), link.is_symlink()), (b"somebody's".into(), true));
    }
}
