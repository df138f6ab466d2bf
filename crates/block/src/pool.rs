//! The pool: a shard's part of the memory budget, counted in pages, and who may have how much of it.
//!
//! Every buffer of the data path comes from here and is counted until it is given back. Nobody is ever
//! refused a legal transfer: who does not get a buffer waits, and the shard wakes waiters round robin as
//! buffers come back. Three rules keep that free of deadlock and of hogs:
//!
//! - *A grant is whole*: a transfer holds its whole buffer before its first byte is asked for, so nobody
//!   holds memory while waiting for more of it.
//! - *Immediate data* (in the capsule, in the frame) *have a reserve of their own* ([`Class::Immediate`]): their bytes already wait in a socket, and they
//!   are freed by disk completions alone. Other transfers leave an eighth of the pool to them.
//! - *A dynamic share* (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): an account may hold at
//!   most 1/[`POOL_SHARE`] of what is free, and always one transfer of [`TRANSFER_MAX`](crate::limits::TRANSFER_MAX) while the pool has it. So any number of peers that
//!   never read leave room for the next one: n hogs leave 1/(1 + n/POOL_SHARE) of the pool free.

use crate::buffer::{Buffer, pages_for};
use crate::limits::{POOL_IMMEDIATE_RESERVE, POOL_SHARE};
use crate::memory::Memory;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Data that came with their command. May use the whole pool.
    Immediate,
    /// A read's data, or a write's that the peer sends when asked. Leaves the reserve of immediate data
    /// alone.
    Transfer,
}

/// Pages that one holder (a connection) has from the pool.
#[derive(Debug, Default)]
pub struct Account {
    pages: u32,
}

impl Account {
    /// Pages held.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

/// A shard's budget of pages.
#[derive(Debug)]
pub struct Pool {
    total: u32,
    used: u32,
    used_max: u32,
    refusals: u64,
}

impl Pool {
    /// A pool of `total` pages.
    pub fn new(total: u32) -> Pool {
        Pool { total, used: 0, used_max: 0, refusals: 0 }
    }

    /// A reserved buffer of `length` bytes at `phase`, charged to `account`, or `None` when it has to wait.
    #[inline]
    pub fn take(
        &mut self,
        account: &mut Account,
        class: Class,
        length: u32,
        phase: u32,
    ) -> Option<Buffer> {
        let pages = pages_for(length, phase);
        let free = self.total - self.used;
        let floor = match class {
            Class::Immediate => 0,
            Class::Transfer => self.total / POOL_IMMEDIATE_RESERVE,
        };
        let open = free.saturating_sub(floor);
        let within_share = account.pages == 0 || account.pages + pages <= open / POOL_SHARE;
        if pages > open || !within_share {
            self.refusals += 1;
            return None;
        }
        self.used += pages;
        self.used_max = self.used_max.max(self.used);
        account.pages += pages;
        Some(Buffer::reserved(length, phase))
    }

    /// Takes a buffer back and credits `account` with it.
    #[inline]
    pub fn give(&mut self, account: &mut Account, memory: &mut dyn Memory, buffer: Buffer) {
        self.credit(account, buffer.page_count());
        memory.release(buffer);
    }

    /// Takes buffers back, all of them `account`'s.
    pub fn give_all(
        &mut self,
        account: &mut Account,
        memory: &mut dyn Memory,
        buffers: &mut Vec<Buffer>,
    ) {
        self.credit(account, buffers.iter().map(Buffer::page_count).sum());
        memory.release_all(buffers);
    }

    #[inline]
    fn credit(&mut self, account: &mut Account, pages: u32) {
        assert!(
            account.pages >= pages && self.used >= pages,
            "{pages} pages given back to a pool that lent {} and an account that holds {}",
            self.used,
            account.pages
        );
        account.pages -= pages;
        self.used -= pages;
    }

    /// Pages in all.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Pages lent out.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The most pages that were lent out at once.
    pub fn used_max(&self) -> u32 {
        self.used_max
    }

    /// How often somebody had to wait.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{PAGES_PER_TRANSFER, POOL_PAGES_MIN};

    #[test]
    fn the_smallest_pool_grants_the_largest_transfer() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut account = Account::default();
        assert!(
            pool.take(&mut account, Class::Transfer, crate::limits::TRANSFER_MAX, 512).is_some()
        );
        assert_eq!(account.pages(), PAGES_PER_TRANSFER);
    }

    #[test]
    fn hogs_leave_room_for_the_next() {
        let mut pool = Pool::new(65_536);
        let mut hogs: Vec<Account> = (0..64).map(|_| Account::default()).collect();
        for _ in 0..10_000 {
            for hog in &mut hogs {
                let _ = pool.take(hog, Class::Transfer, 131_072, 0);
            }
        }
        let free = pool.total() - pool.used();
        assert!(free > pool.total() / 4, "{free} of {} left", pool.total());
        let mut late = Account::default();
        assert!(pool.take(&mut late, Class::Transfer, crate::limits::TRANSFER_MAX, 0).is_some());
    }

    #[test]
    fn transfers_leave_immediate_data_their_reserve() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut taken = 0;
        for _ in 0..POOL_PAGES_MIN {
            let mut account = Account::default();
            if pool.take(&mut account, Class::Transfer, 4096, 0).is_some() {
                taken += 1;
            }
        }
        assert!(taken < POOL_PAGES_MIN);
        let mut account = Account::default();
        assert!(pool.take(&mut account, Class::Immediate, 8192, 0).is_some());
    }
}
