//! The pool: a shard's part of the memory budget, counted in pages, and who may have how much of
//! it.
//!
//! Every buffer of the data path comes from here and is counted until it is given back. Nobody is
//! ever refused a legal transfer: who does not get a buffer waits in the shard's line of its class,
//! which is tried from its head whenever buffers came back. Four rules keep that free of deadlock,
//! of hogs and of starvation:
//!
//! - *A grant is whole*: a transfer holds its whole buffer before its first byte is asked for, so
//!   nobody holds memory while waiting for more of it.
//! - *Immediate data* (in the capsule, in the frame) *have a reserve of their own*
//!   ([`Class::Immediate`]): their bytes already wait in a socket, and they are freed by disk
//!   completions alone. Transfers leave an eighth of the pool to them.
//! - *A dynamic share* (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): an account
//!   may hold at most 1/[`POOL_SHARE`] of what is free, and always one transfer of
//!   [`TRANSFER_MAX`](crate::limits::TRANSFER_MAX) while the pool has it. So any number of peers
//!   that never read leave room for the next one: n hogs leave 1/(1 + n/POOL_SHARE) of the pool
//!   free.
//! - *What the head of a line needs is kept for it*: the first that waits although its account is
//!   empty ([`Pool::keep`]). Nobody else is granted what it could have, also who
//!   never stood in line, so that it waits for what is lent out by then and for nothing later. Who
//!   waits and holds something waits for that first: it comes back, and its turn with it.

use crate::buffer::{Buffer, pages_for};
use crate::limits::{POOL_IMMEDIATE_RESERVE, POOL_SHARE};
use crate::memory::Memory;

/// What an account's buffers are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// A read's data, or a write's that the peer sends when asked. Leaves the reserve of immediate
    /// data alone.
    #[default]
    Transfer,
    /// Data that came with their command, and all that waits for disks alone. May use the whole
    /// pool.
    Immediate,
}

impl Class {
    /// Both, in the order in which their lines are served: transfers have no reserve to fall back
    /// on.
    pub const ALL: [Class; 2] = [Class::Transfer, Class::Immediate];
}

/// Pages that one holder (a connection) has from the pool for one class of data.
#[derive(Debug, Default)]
pub struct Account {
    class: Class,
    pages: u32,
}

impl Account {
    pub fn new(class: Class) -> Account {
        Account { class, pages: 0 }
    }

    /// Pages held.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

/// A shard's budget of pages.
#[derive(Clone, Debug)]
pub struct Pool {
    total: u32,
    /// Pages lent out, by class.
    used: [u32; 2],
    /// Pages that are kept for the heads of the lines, by class.
    kept: [u32; 2],
    /// Whether pages came back since the lines were last tried.
    returned: bool,
    used_max: u32,
    /// Grants so far, by class.
    grants: [u64; 2],
    refusals: u64,
}

impl Pool {
    /// A pool of `total` pages.
    pub fn new(total: u32) -> Pool {
        Pool {
            total,
            used: [0; 2],
            kept: [0; 2],
            returned: false,
            used_max: 0,
            grants: [0; 2],
            refusals: 0,
        }
    }

    /// A reserved buffer of `length` bytes at `phase`, charged to `account`, or `None` when it has
    /// to wait.
    #[inline]
    pub fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        let granted = self.grant(account, pages_for(length, phase));
        granted.then(|| Buffer::reserved(length, phase))
    }

    /// Two such buffers in one grant.
    pub fn take_two(
        &mut self,
        account: &mut Account,
        length: u32,
        phase: u32,
    ) -> Option<[Buffer; 2]> {
        let granted = self.grant(account, 2 * pages_for(length, phase));
        granted.then(|| [(); 2].map(|()| Buffer::reserved(length, phase)))
    }

    /// So many of them in one grant.
    pub fn take_several(
        &mut self,
        account: &mut Account,
        length: u32,
        phase: u32,
        count: u32,
    ) -> Option<Vec<Buffer>> {
        let granted = self.grant(account, count * pages_for(length, phase));
        granted.then(|| (0..count).map(|_| Buffer::reserved(length, phase)).collect())
    }

    #[inline]
    fn grant(&mut self, account: &mut Account, pages: u32) -> bool {
        if !self.would_grant(account, pages) {
            self.refusals += 1;
            return false;
        }
        self.used[account.class as usize] += pages;
        self.grants[account.class as usize] += 1;
        self.used_max = self.used_max.max(self.used());
        account.pages += pages;
        true
    }

    /// Whether `account` could have so many pages more now.
    #[inline]
    pub fn would_grant(&self, account: &Account, pages: u32) -> bool {
        let open = self.open(account.class);
        pages <= open && (account.pages == 0 || account.pages + pages <= open / POOL_SHARE)
    }

    /// Pages that are free for a class.
    #[inline]
    fn open(&self, class: Class) -> u32 {
        let reserve = self.total / POOL_IMMEDIATE_RESERVE;
        let [transfers, immediate] = [0, 1].map(|class| self.used[class] + self.kept[class]);
        match class {
            Class::Transfer => self.total.saturating_sub(transfers + immediate.max(reserve)),
            // Transfers never use the reserve, whatever is kept for them.
            Class::Immediate => {
                let beyond = self.total.saturating_sub(transfers + immediate);
                beyond.max(reserve.saturating_sub(immediate))
            }
        }
    }

    /// Somebody in line needs nothing any more: they are to be tried as if pages had come back.
    pub fn try_lines(&mut self) {
        self.returned = true;
    }

    /// Whether pages came back since the lines were last tried: then its head may be served.
    #[inline]
    pub fn has_returned(&self) -> bool {
        self.returned
    }

    /// The lines are about to be tried, each from its head: nothing is kept for anybody.
    pub fn begin_line(&mut self) {
        self.kept = [0; 2];
        self.returned = false;
    }

    /// Who stands in line was just refused so many pages. They are kept for it from now on, until
    /// the lines are tried again, if it is the first of its class that does not wait for its own.
    pub fn keep(&mut self, account: &Account, pages: u32) {
        let kept = &mut self.kept[account.class as usize];
        if account.pages == 0 && *kept == 0 {
            *kept = pages;
        }
    }

    /// Pages that are kept for the heads of the lines: of transfers, and of immediate data.
    pub fn kept(&self) -> [u32; 2] {
        self.kept
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
        let used = &mut self.used[account.class as usize];
        assert!(
            account.pages >= pages && *used >= pages,
            "{pages} pages given back to a pool that lent {used} and an account that holds {}",
            account.pages
        );
        account.pages -= pages;
        *used -= pages;
        // Who gives nothing back serves nobody: a line would be tried by its own head for ever.
        self.returned |= pages > 0;
    }

    /// Pages in all.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Pages lent out.
    #[inline]
    pub fn used(&self) -> u32 {
        self.used[0] + self.used[1]
    }

    /// The most pages that were lent out at once.
    pub fn used_max(&self) -> u32 {
        self.used_max
    }

    /// How often somebody got something.
    pub fn grants(&self, class: Class) -> u64 {
        self.grants[class as usize]
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
    fn lines_are_due_once_pages_came_back_and_not_for_nothing() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut account = immediate();
        pool.credit(&mut account, 0);
        assert!(!pool.has_returned());
        pool.take(&mut account, 4096, 0).expect("a page");
        pool.credit(&mut account, 1);
        assert!(pool.has_returned());
    }

    const LARGE: u32 = crate::limits::TRANSFER_MAX;

    fn immediate() -> Account {
        Account::new(Class::Immediate)
    }

    /// Accounts that hold one page each, until nothing is left of their class.
    fn drain(pool: &mut Pool, class: Class) -> Vec<(Account, Buffer)> {
        let take = || {
            let mut account = Account::new(class);
            pool.take(&mut account, 4096, 0).map(|buffer| (account, buffer))
        };
        core::iter::from_fn(take).collect()
    }

    fn give_some(pool: &mut Pool, held: &mut Vec<(Account, Buffer)>, count: usize) {
        for (mut account, buffer) in held.drain(..count) {
            pool.credit(&mut account, buffer.page_count());
        }
    }

    #[test]
    fn the_smallest_pool_grants_the_largest_transfer() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut account = Account::default();
        assert!(pool.take(&mut account, LARGE, 512).is_some());
        assert_eq!(account.pages(), PAGES_PER_TRANSFER);
    }

    #[test]
    fn hogs_leave_room_for_the_next() {
        let mut pool = Pool::new(65_536);
        let mut hogs: Vec<Account> = (0..64).map(|_| Account::default()).collect();
        for _ in 0..10_000 {
            for hog in &mut hogs {
                let _ = pool.take(hog, 131_072, 0);
            }
        }
        let free = pool.total() - pool.used();
        assert!(free > pool.total() / 4, "{free} of {} left", pool.total());
        assert!(pool.take(&mut Account::default(), LARGE, 0).is_some());
    }

    #[test]
    fn transfers_leave_immediate_data_their_reserve() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let taken = drain(&mut pool, Class::Transfer).len() as u32;
        let reserve = POOL_PAGES_MIN / POOL_IMMEDIATE_RESERVE;
        assert_eq!(taken, POOL_PAGES_MIN - reserve);
        assert_eq!(drain(&mut pool, Class::Immediate).len() as u32, reserve);
    }

    /// What immediate data use of their reserve is not taken from transfers once more.
    #[test]
    fn immediate_data_within_their_reserve_leave_transfers_theirs() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let reserve = POOL_PAGES_MIN / POOL_IMMEDIATE_RESERVE;
        for _ in 0..reserve {
            assert!(pool.take(&mut immediate(), 4096, 0).is_some());
        }
        assert_eq!(drain(&mut pool, Class::Transfer).len() as u32, POOL_PAGES_MIN - reserve);
        assert!(pool.take(&mut immediate(), 4096, 0).is_none());
    }

    #[test]
    fn what_the_head_of_the_line_needs_is_kept_from_all_others() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut held = drain(&mut pool, Class::Transfer);
        let mut head = Account::default();
        assert!(pool.take(&mut head, LARGE, 0).is_none());
        pool.begin_line();
        pool.keep(&head, 256);
        // The second in line has nothing kept, however little it needs.
        pool.keep(&Account::default(), 1);
        assert_eq!(pool.kept(), [256, 0]);
        give_some(&mut pool, &mut held, 255);
        assert!(pool.take(&mut Account::default(), 4096, 0).is_none(), "it is the head's");
        // The reserve goes on without it, and nothing beyond.
        let reserve = drain(&mut pool, Class::Immediate);
        assert_eq!(reserve.len() as u32, POOL_PAGES_MIN / POOL_IMMEDIATE_RESERVE);
        give_some(&mut pool, &mut held, 1);
        pool.begin_line();
        assert!(pool.take(&mut head, LARGE, 0).is_some());
    }

    #[test]
    fn a_capsule_at_the_head_of_the_line_is_not_overtaken_by_smaller_ones() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let transfers = drain(&mut pool, Class::Transfer);
        let mut capsules = drain(&mut pool, Class::Immediate);
        let mut head = immediate();
        pool.keep(&head, 3);
        give_some(&mut pool, &mut capsules, 2);
        assert!(pool.take(&mut immediate(), 4096, 0).is_none());
        give_some(&mut pool, &mut capsules, 1);
        pool.begin_line();
        assert!(pool.take(&mut head, 8192, 512).is_some());
        drop(transfers);
    }

    #[test]
    fn who_waits_for_its_own_has_nothing_kept() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let mut hog = Account::default();
        assert!(pool.take(&mut hog, LARGE, 0).is_some());
        assert!(pool.take(&mut hog, LARGE, 0).is_none(), "its share");
        pool.keep(&hog, 256);
        assert_eq!(pool.kept(), [0, 0]);
    }

    #[test]
    fn two_buffers_are_one_grant() {
        let mut pool = Pool::new(POOL_PAGES_MIN);
        let held = drain(&mut pool, Class::Transfer);
        let mut capsules = drain(&mut pool, Class::Immediate);
        give_some(&mut pool, &mut capsules, 1);
        let mut account = immediate();
        assert!(pool.take_two(&mut account, 4096, 0).is_none());
        assert_eq!(account.pages(), 0);
        give_some(&mut pool, &mut capsules, 1);
        assert!(pool.take_two(&mut account, 4096, 0).is_some());
        assert_eq!((account.pages(), pool.used()), (2, POOL_PAGES_MIN));
        drop(held);
    }
}
