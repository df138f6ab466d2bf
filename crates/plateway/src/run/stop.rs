//! Whether the process is to end while it starts: whatever a start waits for or takes long over looks
//! here, and goes on or gives up without having waited.
//!
//! One value for the process, since a signal is one. Only `serve` ever sets it; its control thread
//! hears of the same signal by another way once the start is over.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::error::RunError;

static STOPPED: AtomicBool = AtomicBool::new(false);
/// Wakes a start that waits.
static WAKE: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// The process is to end.
pub(crate) fn stop() {
    STOPPED.store(true, Relaxed);
    WAKE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().inspect(|wake| wake());
}

/// Whether it is to end.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// That it is, to be looked at again and again.
pub(super) fn flag() -> &'static AtomicBool {
    &STOPPED
}

/// Has `wake` called when it is to end.
pub(super) fn wake_by(wake: impl Fn() + Send + 'static) {
    *WAKE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
}

/// Why something was not waited for.
pub(super) fn error(what: &str) -> RunError {
    RunError::new(format!("{what}: a signal came while it was waited for"))
}
