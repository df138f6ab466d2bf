//! Trying again what is in use: what a killed process held may be held a moment longer.
//!
//! The kernel closes the sockets and files of a ring that died with its process in the background,
//! so a server that is started again at once can find its address in use and its disks locked. It
//! tries again for [`RETRIED_FOR`] before it believes that somebody else has them.

use std::time::{Duration, Instant};

use super::error::RunError;
use crate::log::Event;

/// For how long something in use is tried again.
const RETRIED_FOR: Duration = Duration::from_secs(3);
/// After so much waiting people are told.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Attempts something until it succeeds, fails since something else is wrong, or has been in use
/// for [`RETRIED_FOR`].
pub(super) fn retry_in_use<T>(
    mut attempt: impl FnMut() -> Result<T, RunError>,
) -> Result<T, RunError> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        match attempt() {
            Err(error) if error.is_in_use() && begun.elapsed() < RETRIED_FOR => {
                if begun.elapsed() > PATIENCE && !std::mem::replace(&mut is_told, true) {
                    let words = format!("{error}: trying for {} s", RETRIED_FOR.as_secs());
                    Event::warn(words).tell();
                }
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_is_taken_and_another_error_is_told_at_once() {
        let mut held = 2;
        let taken = retry_in_use(|| {
            held -= 1;
            if held > 0 { Err(RunError::new("in use").in_use()) } else { Ok(7) }
        });
        assert_eq!(taken, Ok(7));
        let mut attempts = 0;
        let refused: Result<(), _> = retry_in_use(|| {
            attempts += 1;
            Err(RunError::new("not permitted"))
        });
        assert!(refused.is_err_and(|error| error.line() == "not permitted"));
        assert_eq!(attempts, 1);
    }
}
