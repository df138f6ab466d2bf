//! What a load of files counted: operations by kind, bytes, and latencies of the last windows.
//!
//! Every operation of a list counts as one, whatever it is: opening a file as much as reading it, as filebench counts.
//! In: deeds with their latencies in nanoseconds, and that a window began. Out: of the last five windows that are over,
//! operations and bytes by kind, and latencies. Errors: none.

use serde::Serialize;

use super::hand::Deed;
use crate::load::WindowLatencies;
use crate::report::{LastWindows, Latency};
use crate::statistics::steady::WINDOWS;

/// Operations by their kind, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub open: u64,
    pub create: u64,
    pub read: u64,
    pub write: u64,
    pub append: u64,
    pub fsync: u64,
    pub close: u64,
    pub delete: u64,
    pub stat: u64,
    pub read_bytes: u64,
    /// Those of appends as well.
    pub written_bytes: u64,
}

impl Counted {
    fn add(&mut self, deed: &Deed) {
        let (kind, bytes) = match deed {
            Deed::Open => (&mut self.open, 0),
            Deed::Create => (&mut self.create, 0),
            Deed::Read(part) | Deed::ReadAt(part) => {
                self.read_bytes += part.bytes;
                (&mut self.read, 0)
            }
            Deed::Write(part) | Deed::WriteAt(part) => (&mut self.write, part.bytes),
            Deed::Append { part, .. } => (&mut self.append, part.bytes),
            Deed::Sync => (&mut self.fsync, 0),
            Deed::Close => (&mut self.close, 0),
            Deed::Delete => (&mut self.delete, 0),
            Deed::Stat { .. } => (&mut self.stat, 0),
        };
        *kind += 1;
        self.written_bytes += bytes;
    }

    /// What came since an earlier moment.
    fn since(&self, earlier: &Counted) -> Counted {
        Counted {
            open: self.open - earlier.open,
            create: self.create - earlier.create,
            read: self.read - earlier.read,
            write: self.write - earlier.write,
            append: self.append - earlier.append,
            fsync: self.fsync - earlier.fsync,
            close: self.close - earlier.close,
            delete: self.delete - earlier.delete,
            stat: self.stat - earlier.stat,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }

    /// Of all kinds.
    pub fn operations(&self) -> u64 {
        let Counted { open, create, read, write, append, fsync, close, delete, stat, .. } = self;
        open + create + read + write + append + fsync + close + delete + stat
    }
}

/// Counts.
#[derive(Debug, Default)]
pub struct Count {
    all: Counted,
    /// What there was when each window began.
    edges: Vec<Counted>,
    windows: WindowLatencies,
}

impl Count {
    /// Something was done; what was before the first window is not counted.
    pub fn add(&mut self, deed: &Deed, latency_ns: u64) {
        if self.edges.is_empty() {
            return;
        }
        self.all.add(deed);
        self.windows.count(latency_ns);
    }

    /// A window begins, and the one before it is over.
    pub fn begin_window(&mut self) {
        self.edges.push(self.all);
        self.windows.begin(self.edges.len() as u64);
    }

    /// The last five windows that are over, or what there was of them.
    pub fn last(&self) -> (Counted, LastWindows) {
        let edges = &self.edges[self.edges.len().saturating_sub(WINDOWS + 1)..];
        let counted = match edges {
            [first, .., last] => last.since(first),
            _ => Counted::default(),
        };
        let latency = self.windows.last();
        let (requests, latency_ns) = (latency.len(), Latency::of(&latency));
        // An operation is no read or write of a disk.
        (counted, LastWindows { requests, latency_ns, read: None, write: None })
    }
}
