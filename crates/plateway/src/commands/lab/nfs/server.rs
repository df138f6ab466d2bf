//! A [`Local`] folder, served by NFS version 3 (crate `nfs3_server`) at one port, with its mount protocol and without a port mapper.
//!
//! One thread does the network, and each call goes to a thread of its own while it blocks. What is written unstable
//! stays in the page cache until it is committed. Links, devices and exclusive creation are not supported. Whoever can reach the port may do
//! all: it is in a network namespace of a trial's. Errors: NFS's, by the system's.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::SystemTime;
use std::vec;

use nfs3_server::nfs3_types::nfs3::{
    Nfs3Option, createverf3, fattr3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3,
    set_atime, set_mtime, specdata3, stable_how,
};
use nfs3_server::tcp::{NFSTcp as _, NFSTcpListener};
use nfs3_server::vfs::{
    DirEntryPlus, FileHandleU64, NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator,
};
use rustix::io::Errno;

use super::local::Local;
use super::store::{Attributes, Change, Named, Result as StoreResult, Store as _};

type Result<T> = std::result::Result<T, nfsstat3>;

/// Serves it until the process ends.
pub(super) fn run(local: Local, listen: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let served = Served { local: Arc::new(local) };
        NFSTcpListener::bind(&listen.to_string(), served).await?.handle_forever().await
    })
}

#[derive(Clone)]
struct Served {
    local: Arc<Local>,
}

impl Served {
    /// Has it done where it may block.
    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Local) -> StoreResult<T> + Send + 'static,
    ) -> Result<T> {
        let local = Arc::clone(&self.local);
        let done = tokio::task::spawn_blocking(move || act(&local)).await;
        done.map_err(|_| nfsstat3::NFS3ERR_SERVERFAULT)?.map_err(status)
    }
}

fn status(error: Errno) -> nfsstat3 {
    match error {
        Errno::PERM => nfsstat3::NFS3ERR_PERM,
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        Errno::ACCESS => nfsstat3::NFS3ERR_ACCES,
        Errno::EXIST => nfsstat3::NFS3ERR_EXIST,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::ISDIR => nfsstat3::NFS3ERR_ISDIR,
        Errno::INVAL => nfsstat3::NFS3ERR_INVAL,
        Errno::FBIG => nfsstat3::NFS3ERR_FBIG,
        Errno::NOSPC => nfsstat3::NFS3ERR_NOSPC,
        Errno::ROFS => nfsstat3::NFS3ERR_ROFS,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => nfsstat3::NFS3ERR_NOTEMPTY,
        Errno::STALE => nfsstat3::NFS3ERR_STALE,
        Errno::NOTSUP => nfsstat3::NFS3ERR_NOTSUPP,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

fn shown(of: Attributes) -> fattr3 {
    let time = |time: SystemTime| nfstime3::try_from(time).unwrap_or_default();
    fattr3 {
        type_: if of.is_folder { ftype3::NF3DIR } else { ftype3::NF3REG },
        mode: of.mode,
        nlink: of.links,
        uid: 0,
        gid: 0,
        size: of.size,
        used: of.used,
        rdev: specdata3::default(),
        fsid: 1,
        fileid: of.id,
        atime: time(of.accessed),
        mtime: time(of.modified),
        ctime: time(of.changed),
    }
}

fn some<
    T: nfs3_server::nfs3_types::xdr_codec::Pack + nfs3_server::nfs3_types::xdr_codec::Unpack,
>(
    option: Nfs3Option<T>,
) -> Option<T> {
    match option {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}

fn change(asked: sattr3) -> Change {
    let accessed = match asked.atime {
        set_atime::DONT_CHANGE => None,
        set_atime::SET_TO_SERVER_TIME => Some(SystemTime::now()),
        set_atime::SET_TO_CLIENT_TIME(time) => Some(time.into()),
    };
    let modified = match asked.mtime {
        set_mtime::DONT_CHANGE => None,
        set_mtime::SET_TO_SERVER_TIME => Some(SystemTime::now()),
        set_mtime::SET_TO_CLIENT_TIME(time) => Some(time.into()),
    };
    Change { mode: some(asked.mode), size: some(asked.size), accessed, modified }
}

fn name(of: &filename3<'_>) -> std::ffi::OsString {
    OsStr::from_bytes(of.as_ref()).to_owned()
}

/// Bytes of a read at most: what the crate says of itself (`rtmax`), and holds nobody to.
const READ_MAX: u32 = 1 << 20;
/// Names that are looked at together: fewer than an answer has room for.
const TOGETHER: usize = 64;

/// Names of a folder, from one on. A cookie is the number of the file of a name, so that nobody is left out where names
/// before it are removed meanwhile. Of two names of one file in one folder, which nobody can make here, one may be.
struct Names {
    served: Served,
    folder: u64,
    rest: vec::IntoIter<Named>,
    /// The next ones. What is gone by now has a name and nothing else.
    found: vec::IntoIter<(Named, Option<Attributes>)>,
}

impl ReadDirPlusIterator<FileHandleU64> for Names {
    async fn next(&mut self) -> NextResult<DirEntryPlus<FileHandleU64>> {
        if self.found.as_slice().is_empty() {
            let (folder, next) =
                (self.folder, self.rest.by_ref().take(TOGETHER).collect::<Vec<_>>());
            let found = self.served.with(move |local| {
                let look = |named: Named| (local.find(folder, &named.name).ok(), named);
                let found = next.into_iter().map(look).map(|(found, named)| (named, found));
                Ok(found.collect::<Vec<_>>())
            });
            match found.await {
                Ok(found) => self.found = found.into_iter(),
                Err(why) => return NextResult::Err(why),
            }
        }
        let Some((named, found)) = self.found.next() else { return NextResult::Eof };
        NextResult::Ok(DirEntryPlus {
            fileid: named.id,
            name: named.name.as_bytes().to_vec().into(),
            cookie: named.id,
            name_attributes: found.map(shown),
            name_handle: found.map(|found| FileHandleU64::new(found.id)),
        })
    }
}

impl NfsReadFileSystem for Served {
    type Handle = FileHandleU64;

    fn root_dir(&self) -> FileHandleU64 {
        FileHandleU64::new(self.local.root())
    }

    async fn lookup(
        &self,
        folder: &FileHandleU64,
        filename: &filename3<'_>,
    ) -> Result<FileHandleU64> {
        let (folder, name) = (folder.as_u64(), name(filename));
        let found = self.with(move |local| local.find(folder, &name)).await?;
        Ok(FileHandleU64::new(found.id))
    }

    async fn getattr(&self, id: &FileHandleU64) -> Result<fattr3> {
        let id = id.as_u64();
        self.with(move |local| local.attributes(id)).await.map(shown)
    }

    async fn read(&self, id: &FileHandleU64, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let (id, count) = (id.as_u64(), count.min(READ_MAX));
        self.with(move |local| {
            let bytes = local.read(id, offset, count)?;
            let is_end = bytes.len() < count as usize;
            Ok((bytes, is_end))
        })
        .await
    }

    async fn readdirplus(
        &self,
        folder: &FileHandleU64,
        cookie: u64,
    ) -> Result<impl ReadDirPlusIterator<FileHandleU64>> {
        let folder = folder.as_u64();
        let mut all = self.with(move |local| local.list(folder)).await?;
        all.retain(|named| named.id > cookie);
        let (rest, found) = (all.into_iter(), Vec::new().into_iter());
        Ok(Names { served: self.clone(), folder, rest, found })
    }

    async fn readlink(&self, _: &FileHandleU64) -> Result<nfspath3<'_>> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }
}

impl NfsFileSystem for Served {
    async fn setattr(&self, id: &FileHandleU64, asked: sattr3) -> Result<fattr3> {
        let (id, change) = (id.as_u64(), change(asked));
        self.with(move |local| local.change(id, change)).await.map(shown)
    }

    async fn write(
        &self,
        id: &FileHandleU64,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<(fattr3, stable_how)> {
        let (id, bytes, durable) = (id.as_u64(), data.to_vec(), stable != stable_how::UNSTABLE);
        let written = self.with(move |local| {
            local.write(id, offset, &bytes, durable)?;
            local.attributes(id)
        });
        let reached = if durable { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
        Ok((shown(written.await?), reached))
    }

    async fn create(
        &self,
        folder: &FileHandleU64,
        filename: &filename3<'_>,
        asked: sattr3,
    ) -> Result<(FileHandleU64, fattr3)> {
        let (folder, name, change) = (folder.as_u64(), name(filename), change(asked));
        let made = self.with(move |local| {
            let made = local.create(folder, &name, change.mode.unwrap_or(0o644))?;
            match change.size {
                Some(_) => local.change(made.id, Change { mode: None, ..change }),
                None => Ok(made),
            }
        });
        let made = made.await?;
        Ok((FileHandleU64::new(made.id), shown(made)))
    }

    async fn create_exclusive(
        &self,
        _: &FileHandleU64,
        _: &filename3<'_>,
        _: createverf3,
    ) -> Result<FileHandleU64> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn mkdir(
        &self,
        folder: &FileHandleU64,
        filename: &filename3<'_>,
    ) -> Result<(FileHandleU64, fattr3)> {
        let (folder, name) = (folder.as_u64(), name(filename));
        let made = self.with(move |local| local.make_folder(folder, &name, 0o755)).await?;
        Ok((FileHandleU64::new(made.id), shown(made)))
    }

    async fn remove(&self, folder: &FileHandleU64, filename: &filename3<'_>) -> Result<()> {
        let (folder, name) = (folder.as_u64(), name(filename));
        self.with(move |local| match local.remove(folder, &name) {
            // The crate has one call for both.
            Err(Errno::ISDIR | Errno::PERM) => local.remove_folder(folder, &name),
            other => other,
        })
        .await
    }

    async fn rename<'a>(
        &self,
        from: &FileHandleU64,
        from_name: &filename3<'a>,
        to: &FileHandleU64,
        to_name: &filename3<'a>,
    ) -> Result<()> {
        let (from, to) = ((from.as_u64(), name(from_name)), (to.as_u64(), name(to_name)));
        self.with(move |local| local.rename((from.0, &from.1), (to.0, &to.1))).await
    }

    async fn symlink<'a>(
        &self,
        _: &FileHandleU64,
        _: &filename3<'a>,
        _: &nfspath3<'a>,
        _: &sattr3,
    ) -> Result<(FileHandleU64, fattr3)> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn commit(&self, id: &FileHandleU64, _: u64, _: u32) -> Result<()> {
        let id = id.as_u64();
        self.with(move |local| local.commit(id)).await
    }
}
