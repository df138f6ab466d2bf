//! What an initiator does because time has passed: deadlines of steps and requests, Keep Alive, sends without progress, silence. Times: shard clock.

use block::{Failure, Instant};

use super::admin::Purpose;
use super::bring_up::Step;
use super::link::Fault;
use super::{Initiator, Phase};

impl Initiator {
    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.step_by) {
            let what = self.step.map_or("its greeting or a Connect", Step::name);
            let why = format!("no answer to {what} in time");
            self.break_off(now, None, &Fault::Reason(why));
        }
        if due(self.ask_again_at) {
            self.ask_again_at = None;
            match self.step {
                Some(Step::Disabled) => self.ask_disabled(now),
                _ => self.ask_ready(),
            }
        }
        self.keep_alive(now);
        self.listen(now);
        if self.links().any(|link| due(link.overdue_at())) {
            let why = "the target takes no more bytes".to_owned();
            self.break_off(now, None, &Fault::Reason(why));
        }
        let stuck = self.disk.handle_timeout(now);
        if stuck.into_iter().any(|(_, why)| why == Failure::TimedOut) {
            let why = format!("a command was not answered within {:?}", self.settings.deadline);
            self.break_off(now, None, &Fault::Reason(why));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let rest = match self.phase {
            Phase::Resting(until) => Some(until),
            _ => None,
        };
        let fixed = [
            rest,
            self.step_by,
            self.ask_again_at,
            self.keep_alive_at,
            self.keep_alive_by,
            self.disk.poll_timeout(),
            self.admin.link.overdue_at(),
        ];
        let overdue = self.queues.iter().map(|queue| queue.link.overdue_at());
        let patience = self.silences.patience();
        let is_live = self.phase == Phase::Live;
        let quiet = self.queues.iter().map(|queue| queue.quiet_at(patience).filter(|_| is_live));
        fixed.into_iter().chain(overdue).chain(quiet).flatten().min()
    }

    /// The Keep Alive timer, twice per KATO. A period in which a command was made and answered needs no Keep Alive if
    /// the controller counts traffic (TBKAS); then the next period is half as long.
    fn keep_alive(&mut self, now: Instant) {
        if self.keep_alive_by.is_some_and(|by| by <= now) {
            self.keep_alive_by = None;
            if self.admin.is_under_way(Purpose::KeepAlive) {
                let why = "the target does not answer Keep Alive".to_owned();
                return self.break_off(now, None, &Fault::Reason(why));
            }
        }
        if self.keep_alive_at.is_none_or(|at| at > now) {
            return;
        }
        if self.phase == Phase::Resetting {
            // A controller that is not enabled takes no Keep Alive.
            self.keep_alive_at = None;
            return;
        }
        let answered = self.queues.iter().any(|queue| queue.answered_period == self.period);
        self.period = self.period.wrapping_add(1);
        let counts = answered && self.controller.counts_traffic();
        // The command may have been at the beginning of the period: another half would make a whole KATO of silence.
        self.keep_alive_at = Some(now + self.settings.keep_alive / if counts { 4 } else { 2 });
        if !counts && !self.admin.is_under_way(Purpose::KeepAlive) {
            self.admin.send(Purpose::KeepAlive, wire::nvme::Command::keep_alive(), &[]);
            self.keep_alive_by = Some(now + self.settings.keep_alive);
        }
    }
}
