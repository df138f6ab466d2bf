//! `poll`: how long a shard looks for more before it sleeps. `[server]` has it for all; a listener,
//! link or disk may say otherwise. `poll_us` of a listener, and `--poll-us`, are its former
//! spelling.

use contract::{POLL_US_MAX, Poll};

use super::file::Low;
use super::mistake::Mistake;
use super::resolve::Resolver;

/// What a message expects where something else is seen.
pub(crate) const POLL: &str = "\"auto\", \"never\" or microseconds such as \"50us\"";
/// The key of values that a change tells.
pub(crate) const POLL_KEY: &str = "poll";

impl Resolver<'_> {
    /// What was written, if anything was.
    pub(crate) fn poll(&mut self, low: &Low<String>) -> Option<Poll> {
        let written = low.as_ref()?;
        match written.get_ref().parse() {
            Ok(poll) => Some(poll),
            Err(error) => {
                self.error(written.span(), format!("{POLL_KEY}: {error}"));
                None
            }
        }
    }

    /// The same where the former spelling may stand instead.
    pub(super) fn poll_or_us(&mut self, poll: &Low<String>, poll_us: &Low<i64>) -> Option<Poll> {
        let us = self.number(poll_us, "poll_us", 0..=u64::from(POLL_US_MAX));
        let Some(written) = poll_us else { return self.poll(poll) };
        if let Some(poll) = poll {
            let message = "poll and poll_us say the same thing: one of them is enough";
            self.push(Mistake::error(written.span(), message).also(&poll.span(), "and this"));
        }
        let us = us?;
        let meant = Poll::microseconds(us);
        let message = format!("poll_us = {us} is understood as poll = \"{meant}\"");
        let help = "left out, a shard decides for itself, which is seldom slower";
        self.push(Mistake::warning(written.span(), message).help(help));
        Some(meant)
    }
}
