//! What an NFS server exports as a [`Store`]: calls of version 3 by TCP (crate `nfs3_client`).
//!
//! A call takes a connection that nobody uses, or opens another, and waits for its answer. Handles of files are kept by their numbers. Which
//! files have something written that the server has not committed is known; if the server says by its verifier that it began
//! anew meanwhile, that is lost, and the commit an error. A connection that fails is closed, and its call an I/O error: nothing is asked
//! again. A server that was silent for as long as it may be is lost: whoever asks it from then on has an error at once, and
//! does not wait as long again. Errors: the system's, by NFS's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::nfs3_types::mount::dirpath;
use nfs3_client::nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, FSSTAT3args, GETATTR3args, LOOKUP3args, MKDIR3args, Nfs3Option,
    Nfs3Result, READ3args, READDIRPLUS3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args,
    WRITE3args, cookieverf3, createhow3, diropargs3, fattr3, ftype3, nfs_fh3, nfsstat3, nfstime3,
    sattr3, sattrguard3, set_atime, set_mtime, stable_how, writeverf3,
};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{MountClient, Nfs3Client, RpcError};
use rustix::io::Errno;

use super::super::far::AGAIN;
use super::store::{Attributes, Change, Named, Result, Store};

/// Bytes of names that are asked for at once.
const NAMES_BYTES: u32 = 32 << 10;
/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(5);
/// How long a server may be silent.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// A connection whose calls block.
#[derive(Debug)]
struct Line(TcpStream);

impl Line {
    fn open(server: SocketAddr) -> io::Result<Line> {
        let stream = TcpStream::connect_timeout(&server, SILENT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENT_MAX))?;
        stream.set_write_timeout(Some(SILENT_MAX))?;
        Ok(Line(stream))
    }

    /// The same of one that may be starting.
    fn open_once_there(server: SocketAddr) -> io::Result<Line> {
        let end = Instant::now() + START_MAX;
        loop {
            match Line::open(server) {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < end =>
                {
                    std::thread::sleep(AGAIN);
                }
                other => return other,
            }
        }
    }
}

impl AsyncRead for Line {
    async fn async_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

impl AsyncWrite for Line {
    async fn async_write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }
}

/// What never waits but in a system call is over when it was looked at once.
fn wait<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a call blocks until it is over"),
    }
}

/// A server's files.
pub(super) struct Remote {
    server: SocketAddr,
    root: u64,
    /// Whether each write is durable when it is answered.
    sync: bool,
    idle: Mutex<Vec<Nfs3Client<Line>>>,
    known: Mutex<Known>,
    calls: AtomicU64,
    /// Whether it was silent for as long as it may be.
    is_lost: AtomicBool,
}

#[derive(Default)]
struct Known {
    handles: BTreeMap<u64, nfs_fh3>,
    /// Files with something that is not committed, and under which verifier that was written.
    unstable: BTreeMap<u64, BTreeSet<[u8; 8]>>,
}

fn errno(status: nfsstat3) -> Errno {
    match status {
        nfsstat3::NFS3ERR_NOTSUPP => Errno::NOTSUP,
        nfsstat3::NFS3ERR_NAMETOOLONG => Errno::NAMETOOLONG,
        nfsstat3::NFS3ERR_NOTEMPTY => Errno::NOTEMPTY,
        nfsstat3::NFS3ERR_DQUOT => Errno::DQUOT,
        nfsstat3::NFS3ERR_STALE | nfsstat3::NFS3ERR_BADHANDLE => Errno::STALE,
        // Up to there NFS has the system's numbers.
        other if (other as i32) < 40 => Errno::from_raw_os_error(other as i32),
        _ => Errno::IO,
    }
}

fn result<T, E>(answer: Nfs3Result<T, E>) -> Result<T> {
    match answer {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(errno(status)),
    }
}

fn attributes(of: &fattr3) -> Result<Attributes> {
    let is_folder = match of.type_ {
        ftype3::NF3REG => false,
        ftype3::NF3DIR => true,
        _ => return Err(Errno::NOTSUP),
    };
    Ok(Attributes {
        id: of.fileid,
        is_folder,
        mode: of.mode & 0o7777,
        links: of.nlink,
        size: of.size,
        used: of.used,
        accessed: of.atime.into(),
        modified: of.mtime.into(),
        changed: of.ctime.into(),
    })
}

fn time(time: SystemTime) -> nfstime3 {
    nfstime3::try_from(time).unwrap_or_default()
}

impl Remote {
    /// Asks a server for the root of what it exports, mount protocol and files by one port.
    pub(super) fn connect(server: SocketAddr, sync: bool) -> std::result::Result<Remote, String> {
        let line = Line::open_once_there(server).map_err(|error| error.to_string())?;
        let mut mount = MountClient::new(line);
        let root = wait(mount.mnt(dirpath(Opaque::borrowed(b"/"))));
        let root = root.map_err(|error| format!("MNT of /: {error}"))?;
        let handle = nfs_fh3 { data: Opaque::owned(root.fhandle.0.to_vec()) };
        let (idle, known, calls) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        let is_lost = AtomicBool::new(false);
        let mut remote = Remote { server, root: 0, sync, idle, known, calls, is_lost };
        let seen = remote.ask_attributes(handle.clone());
        let seen = seen.map_err(|error| format!("GETATTR of its root: {error}"))?;
        remote.root = seen.id;
        remote.known().handles.insert(seen.id, handle);
        Ok(remote)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Nfs3Client<Line>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a call made on a connection that nobody uses.
    fn call<T, E>(
        &self,
        make: impl FnOnce(&mut Nfs3Client<Line>) -> std::result::Result<Nfs3Result<T, E>, RpcError>,
    ) -> Result<T> {
        if self.is_lost.load(Relaxed) {
            return Err(Errno::IO);
        }
        let client = self.idle().pop();
        let mut client = match client {
            Some(client) => client,
            None => Nfs3Client::new(Line::open(self.server).map_err(|error| self.failed(&error))?),
        };
        self.calls.fetch_add(1, Relaxed);
        let answer = make(&mut client).map_err(|error| match error {
            RpcError::Io(error) => self.failed(&error),
            _ => Errno::IO,
        })?;
        self.idle().push(client);
        result(answer)
    }

    /// What a call comes to whose connection failed.
    fn failed(&self, error: &io::Error) -> Errno {
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            self.is_lost.store(true, Relaxed);
        }
        Errno::IO
    }

    fn handle(&self, id: u64) -> Result<nfs_fh3> {
        self.known().handles.get(&id).cloned().ok_or(Errno::STALE)
    }

    fn named<'a>(&self, folder: u64, name: &'a OsStr) -> Result<diropargs3<'a>> {
        Ok(diropargs3 { dir: self.handle(folder)?, name: name.as_bytes().into() })
    }

    fn ask_attributes(&self, object: nfs_fh3) -> Result<Attributes> {
        let seen = self.call(|client| wait(client.getattr(&GETATTR3args { object })))?;
        attributes(&seen.obj_attributes)
    }

    /// What was found or made, by its handle; its attributes are asked for where they did not come with it.
    fn found(&self, handle: nfs_fh3, came: Nfs3Option<fattr3>) -> Result<Attributes> {
        let found = match came {
            Nfs3Option::Some(came) => attributes(&came)?,
            Nfs3Option::None => self.ask_attributes(handle.clone())?,
        };
        self.known().handles.insert(found.id, handle);
        Ok(found)
    }

    fn made(&self, handle: Nfs3Option<nfs_fh3>, came: Nfs3Option<fattr3>) -> Result<Attributes> {
        match handle {
            Nfs3Option::Some(handle) => self.found(handle, came),
            Nfs3Option::None => Err(Errno::IO),
        }
    }
}

impl Store for Remote {
    fn root(&self) -> u64 {
        self.root
    }

    fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    fn attributes(&self, id: u64) -> Result<Attributes> {
        self.ask_attributes(self.handle(id)?)
    }

    fn change(&self, id: u64, change: Change) -> Result<Attributes> {
        let Change { mode, size, accessed, modified } = change;
        let mut new_attributes = sattr3::default();
        if let Some(mode) = mode {
            new_attributes.mode = Nfs3Option::Some(mode & 0o7777);
        }
        if let Some(size) = size {
            new_attributes.size = Nfs3Option::Some(size);
        }
        if let Some(at) = accessed {
            new_attributes.atime = set_atime::SET_TO_CLIENT_TIME(time(at));
        }
        if let Some(at) = modified {
            new_attributes.mtime = set_mtime::SET_TO_CLIENT_TIME(time(at));
        }
        let object = self.handle(id)?;
        let args =
            SETATTR3args { object: object.clone(), new_attributes, guard: sattrguard3::None };
        let changed = self.call(|client| wait(client.setattr(&args)))?;
        self.found(object, changed.obj_wcc.after)
    }

    fn find(&self, folder: u64, name: &OsStr) -> Result<Attributes> {
        let args = LOOKUP3args { what: self.named(folder, name)? };
        let found = self.call(|client| wait(client.lookup(&args)))?;
        self.found(found.object, found.obj_attributes)
    }

    fn create(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes> {
        let how = sattr3 { mode: Nfs3Option::Some(mode & 0o7777), ..sattr3::default() };
        let args =
            CREATE3args { where_: self.named(folder, name)?, how: createhow3::UNCHECKED(how) };
        let made = self.call(|client| wait(client.create(&args)))?;
        self.made(made.obj, made.obj_attributes)
    }

    fn make_folder(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes> {
        let attributes = sattr3 { mode: Nfs3Option::Some(mode & 0o7777), ..sattr3::default() };
        let args = MKDIR3args { where_: self.named(folder, name)?, attributes };
        let made = self.call(|client| wait(client.mkdir(&args)))?;
        self.made(made.obj, made.obj_attributes)
    }

    fn remove(&self, folder: u64, name: &OsStr) -> Result<()> {
        let args = REMOVE3args { object: self.named(folder, name)? };
        self.call(|client| wait(client.remove(&args))).map(|_| ())
    }

    fn remove_folder(&self, folder: u64, name: &OsStr) -> Result<()> {
        let args = RMDIR3args { object: self.named(folder, name)? };
        self.call(|client| wait(client.rmdir(&args))).map(|_| ())
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<()> {
        let args = RENAME3args { from: self.named(from.0, from.1)?, to: self.named(to.0, to.1)? };
        self.call(|client| wait(client.rename(&args))).map(|_| ())
    }

    fn read(&self, id: u64, offset: u64, length: u32) -> Result<Vec<u8>> {
        let args = READ3args { file: self.handle(id)?, offset, count: length };
        let read = self.call(|client| wait(client.read(&args)))?;
        let bytes = read.data.0.into_owned();
        if bytes.len() > length as usize || bytes.len() < length as usize && !read.eof {
            return Err(Errno::IO);
        }
        Ok(bytes)
    }

    fn write(&self, id: u64, offset: u64, bytes: &[u8], durable: bool) -> Result<()> {
        let file = self.handle(id)?;
        let mut done = 0;
        while done < bytes.len() {
            let left = &bytes[done..];
            let stable =
                if durable || self.sync { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
            let args = WRITE3args {
                file: file.clone(),
                offset: offset + done as u64,
                count: left.len() as u32,
                stable,
                data: Opaque::borrowed(left),
            };
            let written = self.call(|client| wait(client.write(&args)))?;
            if written.count == 0 || written.count as usize > left.len() {
                return Err(Errno::IO);
            }
            if written.committed == stable_how::UNSTABLE {
                let writeverf3(verifier) = written.verf;
                self.known().unstable.entry(id).or_default().insert(verifier);
            }
            done += written.count as usize;
        }
        Ok(())
    }

    fn commit(&self, id: u64) -> Result<()> {
        // Written meanwhile, it is committed by the next one.
        let Some(written) = self.known().unstable.remove(&id) else { return Ok(()) };
        let args = COMMIT3args { file: self.handle(id)?, offset: 0, count: 0 };
        let committed = self.call(|client| wait(client.commit(&args)))?;
        let writeverf3(verifier) = committed.verf;
        if written.iter().any(|under| *under != verifier) {
            return Err(Errno::IO);
        }
        Ok(())
    }

    fn settle(&self, id: u64) -> Result<()> {
        self.commit(id)
    }

    fn list(&self, folder: u64) -> Result<Vec<Named>> {
        let dir = self.handle(folder)?;
        let (mut all, mut cookie, mut cookieverf) = (Vec::new(), 0, cookieverf3::default());
        loop {
            let (dircount, maxcount) = (NAMES_BYTES / 4, NAMES_BYTES);
            let args =
                READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
            let came = self.call(|client| wait(client.readdirplus(&args)))?;
            cookieverf = came.cookieverf;
            let is_over = came.reply.eof || came.reply.entries.0.is_empty();
            for entry in came.reply.entries.0 {
                cookie = entry.cookie;
                let name = OsStr::from_bytes(entry.name.as_ref()).to_owned();
                if name == "." || name == ".." {
                    continue;
                }
                let found = match (entry.name_handle, entry.name_attributes) {
                    (Nfs3Option::Some(handle), came) => self.found(handle, came)?,
                    (Nfs3Option::None, _) => self.find(folder, &name)?,
                };
                all.push(Named { name, id: found.id, is_folder: found.is_folder });
            }
            if is_over {
                return Ok(all);
            }
        }
    }

    fn room(&self) -> Result<(u64, u64)> {
        let args = FSSTAT3args { fsroot: self.handle(self.root)? };
        let room = self.call(|client| wait(client.fsstat(&args)))?;
        Ok((room.tbytes, room.abytes))
    }
}
