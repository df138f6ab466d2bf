//! How an association of a raw host ends that nobody ended in order: the target leaves it or gives it
//! up, as it should, or a connection is lost.
//!
//! Errors: the target did what it must not, or not in time; so the run fails. Units: virtual
//! nanoseconds.

use super::line::Line;
use super::{DEAF_MAX, MILLISECOND, PATIENCE, Phase, QUEUE_ENTRIES, QUIESCE, RawHost};
use crate::client::SimWorld;
use crate::network::WINDOW;

impl RawHost {
    /// Asks one queue for more than the network holds, and never reads again.
    pub(super) fn read_no_more(&mut self, world: &mut SimWorld) {
        self.phase = Phase::Deaf(self.now);
        let room = QUEUE_ENTRIES - self.lines[1].host.asked.len();
        for _ in 0..room {
            self.read(world, 1, 0, self.behaviour.span);
        }
    }

    /// Whether the target leaves a host that reads nothing more.
    fn await_leave(&mut self, world: &mut SimWorld, since: u64) -> Result<(), String> {
        if self.lines.iter().any(|line| line.is_over(world)) {
            self.actions.left += 1;
            self.lose(world);
        } else if self.now > since + DEAF_MAX {
            let asked = self.lines[1].read_bytes();
            if self.behaviour.strict && asked > WINDOW + WINDOW / 4 {
                return Err(format!("a host that reads none of {asked} bytes is not left"));
            }
            self.lose(world);
        }
        Ok(())
    }

    /// Whether the target gives a silent host up, and when.
    fn await_expiry(&mut self, world: &mut SimWorld) -> Result<(), String> {
        let over = self.lines.iter().filter(|line| line.is_over(world)).count();
        let is_early = over > 0 && self.now < self.said_at() + self.behaviour.keep_alive;
        let waits = self.lines.iter().any(Line::is_waiting);
        let is_late = over == 0 && !waits && self.now > self.given_up_by();
        if self.behaviour.strict && (is_early || is_late) {
            let when = if is_early { "before" } else { "long after" };
            return Err(format!(
                "a silent host is not given up, or {when} its time: {}",
                self.state()
            ));
        }
        if over == self.lines.len() {
            self.actions.expired += 1;
            self.hang_up(world, false);
        } else if is_late {
            self.lose(world);
        }
        Ok(())
    }

    pub(super) fn notice_losses(&mut self, world: &mut SimWorld) -> Result<(), String> {
        if self.phase == Phase::Silent {
            return self.await_expiry(world);
        }
        if let Phase::Deaf(since) = self.phase {
            return self.await_leave(world, since);
        }
        if self.phase == Phase::Orphaned {
            if self.lines.iter().all(|line| line.is_over(world)) {
                self.hang_up(world, false);
            } else if self.now > self.heard_at + PATIENCE {
                if !self.behaviour.strict {
                    self.lose(world);
                    return Ok(());
                }
                return Err("the queues of a lost admin queue are not closed".to_owned());
            }
            return Ok(());
        }
        let lost = self.lines.iter().any(|line| !line.may_end && line.is_over(world));
        if lost {
            if self.behaviour.strict {
                return Err(format!("the target left a raw host: {}", self.state()));
            }
            self.lose(world);
        }
        Ok(())
    }

    /// Gives an association up that broke.
    pub(super) fn lose(&mut self, world: &mut SimWorld) {
        self.hang_up(world, true);
    }

    /// Leaves: every connection is closed, and what was under way may happen for a while.
    pub(super) fn hang_up(&mut self, world: &mut SimWorld, reset: bool) {
        for mut line in core::mem::take(&mut self.lines) {
            self.abandon(&mut line, self.now + QUIESCE);
            line.hang_up(world, reset);
        }
        self.poll_at = None;
        let rest = self.random.below(500 * MILLISECOND);
        self.phase = if self.stopping { Phase::Done } else { Phase::Resting(self.now + rest) };
    }
}
