//! Errors planted in lines of production code, to see that the simulator finds them.
//!
//! The place says `planted("name")` where it would go wrong, and a list of the names, each with the
//! scenario that must notice, stands in the tests/planted.rs of the crate that plays the scenarios:
//! of `sim`, and of `bfd` and `mpls`, which have simulations of their own. Tests of the whole
//! workspace are built with the feature `planted`, which these tests ask for, and choose at run time
//! which error is in force: none, but where `with` says so. In every other build, and in each
//! without debug assertions whatever features it is given, the question is a constant and its code
//! is gone.

#[cfg(all(feature = "planted", debug_assertions))]
pub use chosen::{planted, with};

/// Whether the error of this name is in force: never.
#[cfg(not(all(feature = "planted", debug_assertions)))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}

#[cfg(all(feature = "planted", debug_assertions))]
mod chosen {
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    /// The hash of the name of the error in force; zero: none is.
    static CHOSEN: AtomicU64 = AtomicU64::new(0);
    /// Whether its place was passed.
    static PASSED: AtomicBool = AtomicBool::new(false);

    /// Whether the error of this name is in force.
    pub fn planted(name: &str) -> bool {
        let chosen = CHOSEN.load(Relaxed);
        let is_it = chosen != 0 && chosen == hash(name);
        if is_it {
            PASSED.store(true, Relaxed);
        }
        is_it
    }

    /// Runs something with an error in force, in the whole process; one at a time. Returns with
    /// what it returned whether the place of the error was passed. `run` must not panic.
    pub fn with<R>(name: &str, run: impl FnOnce() -> R) -> (R, bool) {
        assert_eq!(CHOSEN.swap(hash(name), Relaxed), 0, "two errors are planted at once");
        let result = run();
        CHOSEN.store(0, Relaxed);
        (result, PASSED.swap(false, Relaxed))
    }

    /// FNV-1a.
    fn hash(name: &str) -> u64 {
        name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}
