//! Where the data of reads land, and by what they are summed up: what an adapter would save a host, one by one.
//!
//! In: which way is asked for, headers, and received bytes. Out: where the next receive goes ([`Landing::room`]), and data
//! in the pages of their command. *Left* in the inbox they cost nothing more; *copied* from there they cost what a host
//! pays whose network does not know whose data they are; *placed*, they are received straight into the pages, as an adapter
//! that knows iSCSI puts them there. For that the answer is foreseen: one command is outstanding, whose data follow a
//! header. What comes instead is taken back into the inbox, so that no answer is misunderstood. Units: bytes. Errors: more
//! than one command at once, and an inbox without room for what came instead.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use super::pdu::DIGEST_LEN;
use crate::inbox::Inbox;
use crate::load::Room;
use crate::memory::Area;

/// What is done with data of reads.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Handling {
    /// Where data that were read land: left where they were received, copied from there to pages of their command, or
    /// placed there by the receive itself, which takes one command at a time.
    #[arg(long, value_enum, default_value = "left")]
    pub(super) receive: Receive,
    /// How digests of data that were read are computed.
    #[arg(long, value_enum, default_value = "simd")]
    digest_by: DigestBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receive {
    Left,
    Copied,
    Placed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DigestBy {
    /// By the processor's instructions for it.
    Simd,
    /// By a table of 256 entries, a byte at a time.
    Table,
}

static TABLE: crc::Crc<u32, crc::Table<1>> =
    crc::Crc::<u32, crc::Table<1>>::new(&crc::CRC_32_ISCSI);

/// A digest on its way.
#[expect(clippy::large_enum_variant, reason = "each session has one, which is begun for each read")]
enum Sum {
    Simd(crc_fast::Digest),
    Table(crc::Digest<'static, u32, crc::Table<1>>),
}

impl Sum {
    #[inline]
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Simd(sum) => sum.update(bytes),
            Self::Table(sum) => sum.update(bytes),
        }
    }

    /// As it is sent.
    fn bytes(self) -> [u8; DIGEST_LEN] {
        let sum = match self {
            Self::Simd(sum) => sum.finalize() as u32,
            Self::Table(sum) => sum.finalize(),
        };
        sum.to_le_bytes()
    }
}

/// The data of a session's reads.
pub(super) struct Landing {
    handling: Handling,
    /// Pages of each slot's command; of nobody if data are left.
    pages: Area,
    /// Bytes of a command's pages.
    size: usize,
    /// Bytes of the present data segment that are still to come, and where in the pages they go, if they do.
    left: usize,
    into: Option<usize>,
    /// Sums them up, if their digest follows.
    sum: Option<Sum>,
    /// Where the receive that is posted goes, if it goes to two places.
    two: Box<[libc::iovec; 2]>,
    posted: Posted,
    /// Bytes that were received into the pages and that no header has spoken for, and where they begin.
    early: (usize, usize),
}

/// Where a receive goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Inbox,
    /// A header into the inbox, and what follows into the pages.
    HeadFirst,
    /// What is left of a data segment into the pages, and what follows into the inbox.
    DataFirst,
}

impl Landing {
    /// Of commands of `size` bytes in so many slots.
    pub(super) fn new(handling: Handling, slots: u16, size: usize) -> Result<Self> {
        ensure!(
            handling.receive != Receive::Placed || slots == 1,
            "--receive placed: expected --iodepth 1, so that whose data come next is known, seen {slots}"
        );
        let pages = if handling.receive == Receive::Left { 0 } else { usize::from(slots) * size };
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            handling,
            pages: Area::new(pages.max(4096), true)?,
            size,
            left: 0,
            into: None,
            sum: None,
            two: Box::new([nothing; 2]),
            posted: Posted::Inbox,
            early: (0, 0),
        })
    }

    /// Where the next receive goes: `head` bytes are the rest of a header, of a command's data so many have come.
    pub(super) fn room(&mut self, inbox: &Inbox, head: usize, moved: usize) -> Room<'_> {
        let (free, len) = inbox.room(usize::MAX);
        let is_foreseen = self.left == 0 && self.sum.is_none() && head > 0 && moved < self.size;
        let (posted, at, data, first) = match (self.handling.receive, self.into) {
            (Receive::Placed, Some(into)) if self.left > 0 => {
                (Posted::DataFirst, into, self.left, len)
            }
            (Receive::Placed, _) if is_foreseen && len > head => {
                (Posted::HeadFirst, moved, self.size - moved, head)
            }
            _ => {
                self.posted = Posted::Inbox;
                return Room::One(free, len);
            }
        };
        let pages = self.pages.at(at, data).expect("the pages are as long as a command");
        let place = |base: *mut u8, iov_len| libc::iovec { iov_base: base.cast(), iov_len };
        let (inbox, pages) = (place(free, first), place(pages, data));
        *self.two = if posted == Posted::HeadFirst { [inbox, pages] } else { [pages, inbox] };
        (self.posted, self.early.1) = (posted, at);
        Room::Two(&self.two)
    }

    /// So many bytes have come where [`Landing::room`] said.
    pub(super) fn fill(&mut self, inbox: &mut Inbox, got: usize) {
        let first = got.min(self.two[0].iov_len);
        match self.posted {
            Posted::Inbox => inbox.fill(got),
            Posted::HeadFirst => {
                inbox.fill(first);
                self.early.0 = got - first;
            }
            Posted::DataFirst => {
                self.landed(first);
                inbox.fill(got - first);
            }
        }
    }

    /// So many of the data have come into the pages where they go.
    fn landed(&mut self, len: usize) {
        let Some(into) = &mut self.into else { return };
        if let Some(sum) = &mut self.sum {
            sum.update(self.pages.bytes(*into, *into + len));
        }
        self.left -= len;
        *into += len;
    }

    /// A header says that `len` bytes of data follow it, and a digest of them if `digest`; of a read they are those from
    /// `at` on of a slot's command.
    pub(super) fn begin(&mut self, len: usize, digest: bool, read: Option<(u16, usize)>) {
        self.left = len;
        self.sum = (digest && len > 0).then(|| match self.handling.digest_by {
            DigestBy::Simd => Sum::Simd(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)),
            DigestBy::Table => Sum::Table(TABLE.digest()),
        });
        let lands = read.filter(|_| self.handling.receive != Receive::Left);
        self.into = lands.map(|(slot, at)| usize::from(slot) * self.size + at);
    }

    /// Settles what came into the pages behind that header, which is the last of the inbox: the header's own data are
    /// where they belong, anything else goes to the inbox.
    pub(super) fn settle(&mut self, inbox: &mut Inbox) -> Result<()> {
        let (came, at) = std::mem::take(&mut self.early);
        let own = if self.into == Some(at) { came.min(self.left) } else { 0 };
        self.landed(own);
        let fits = inbox.take(self.pages.bytes(at + own, at + came));
        ensure!(fits, "no room for {} bytes that came in place of data", came - own);
        Ok(())
    }

    /// Passes over data in the inbox from `at` on; where they end, as far as they have come.
    #[inline]
    pub(super) fn pass(&mut self, inbox: &Inbox, at: usize) -> usize {
        let end = at + self.left.min(inbox.filled() - at);
        let bytes = inbox.bytes(at, end);
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
        if let Some(into) = &mut self.into {
            let fits = self.pages.store(*into, bytes);
            assert!(fits, "data beyond their command, which was looked at");
            *into += bytes.len();
        }
        self.left -= bytes.len();
        end
    }

    /// Whether data are still to come.
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Whether a digest is.
    pub(super) fn is_summed(&self) -> bool {
        self.sum.is_some()
    }

    /// The digest of what has come.
    pub(super) fn take_sum(&mut self) -> Option<[u8; DIGEST_LEN]> {
        self.sum.take().map(Sum::bytes)
    }

    /// What a slot's command read.
    #[cfg(test)]
    pub(super) fn pages(&self, slot: u16) -> &[u8] {
        let at = usize::from(slot) * self.size;
        self.pages.bytes(at, at + self.size)
    }
}
