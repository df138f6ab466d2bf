//! Keep alive, based on traffic (TBKAS): any command on any queue of a controller shows that its
//! host lives.
//!
//! A command only stores the time. When a controller's time may be over, its owner looks at what it
//! heard itself and then asks the shards that have I/O queues of it; only if none has heard a
//! command within KATO is the controller failed. A queue that goes leaves behind when it was last
//! heard. A queue whose stream we have stopped, for want of memory or because its host does not
//! read, is not silent: what it says waits unread. So an I/O costs one store, and a controller one
//! timer each KATO. A Keep Alive sets the timer back, so that a shard whose hosts have nothing else
//! to say wakes up for what they say alone. A discovery controller without KATO has two minutes.
//! Spec: NVMe base, "Keep Alive".

use core::time::Duration;

use block::{Instant, ShardId, planted};

use super::controller::{Controller, Phase};
use super::{CloseReason, ControllerRef, Controllers, Message, Timer};
use crate::limits::DISCOVERY_SILENCE_MAX;

/// KAS: keep-alive times are rounded up to a multiple of this many 100 ms.
pub(crate) const GRANULARITY: u16 = 10;

impl Controller {
    /// How long its host may be silent, if not for ever.
    fn silence_max(&self) -> Option<Duration> {
        match self.features.keep_alive_ms() {
            0 => self.is_discovery().then_some(DISCOVERY_SILENCE_MAX),
            keep_alive_ms => Some(timeout(keep_alive_ms)),
        }
    }

    /// While it is being reset its host waits for us, and is not asked for signs of life.
    pub(super) fn excuse(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Resetting { .. }) {
            self.heard = self.heard.max(now);
        }
    }

    /// Whether that time is over.
    fn is_silent(&self, now: Instant) -> bool {
        self.silence_max().is_some_and(|limit| self.heard + limit <= now)
    }
}

/// The moment so long before now.
pub(super) fn earlier(now: Instant, time: Duration) -> Instant {
    Instant(now.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// KATO in milliseconds as it is kept: rounded up to the granularity.
fn timeout(keep_alive_ms: u32) -> Duration {
    let unit = u64::from(GRANULARITY) * 100;
    Duration::from_millis(u64::from(keep_alive_ms).div_ceil(unit) * unit)
}

impl Controllers {
    /// Sets the timer of a controller to KATO after it was last heard, or takes it away where there
    /// is no limit.
    pub(crate) fn arm_keep_alive(&mut self, name: ControllerRef) {
        let Some(controller) = self.controllers.get_mut(&name.id) else { return };
        if let Some(at) = controller.keep_alive_at.take() {
            self.timers.remove(&(at, Timer::KeepAlive(name)));
        }
        if let Some(limit) = controller.silence_max()
            && controller.phase != Phase::Failed
        {
            let at = controller.heard + limit;
            controller.keep_alive_at = Some(at);
            self.timers.insert((at, Timer::KeepAlive(name)));
        }
    }

    /// A controller's host says that it lives.
    pub(super) fn keep_alive(&mut self, now: Instant, name: ControllerRef) {
        let Some(controller) = self.controllers.get_mut(&name.id) else { return };
        controller.heard = controller.heard.max(now);
        self.arm_keep_alive(name);
    }

    /// The timer of a controller is over: was it heard since it was set?
    pub(super) fn keep_alive_due(&mut self, now: Instant, name: ControllerRef) {
        let Some(controller) = self.controller_mut(name) else { return };
        controller.keep_alive_at = None;
        let queues = controller.local_queues().into_iter().chain(controller.admin);
        let heard = queues.filter_map(|slot| self.queues.get(slot));
        let latest = heard.map(|queue| queue.heard(now)).max();
        let controller = self.controllers.get_mut(&name.id).expect("just seen");
        controller.heard = controller.heard.max(latest.unwrap_or(Instant::ZERO));
        controller.excuse(now);
        if !controller.is_silent(now) {
            return self.arm_keep_alive(name);
        }
        let shards: Vec<ShardId> = controller.remote_shards().into_iter().collect();
        if shards.is_empty() {
            return self.fail(now, name, CloseReason::KeepAliveExpired);
        }
        if controller.heard_asked == 0 {
            controller.heard_asked = shards.len() as u32;
            for shard in shards {
                self.send(shard, Message::HeardAsk { controller: name });
            }
        }
    }

    /// How long no queue of another shard's controller has been heard here.
    pub(super) fn quiet(&self, now: Instant, name: ControllerRef) -> Option<Duration> {
        let slots = self.foreign.get(&name)?;
        let heard =
            slots.iter().filter_map(|slot| self.queues.get(*slot)).map(|queue| queue.heard(now));
        Some(now.since(heard.max()?))
    }

    /// A shard said when it last heard a controller of ours. The last answer decides.
    pub(super) fn heard_answered(
        &mut self,
        now: Instant,
        name: ControllerRef,
        quiet: Option<Duration>,
    ) {
        let Some(controller) = self.controller_mut(name) else { return };
        controller.heard_asked -= 1;
        if let Some(quiet) = quiet.filter(|_| !planted("heard-elsewhere-is-forgotten")) {
            controller.heard = controller.heard.max(earlier(now, quiet));
        }
        controller.excuse(now);
        // Another timer runs if KATO was set anew in the meantime.
        if controller.heard_asked > 0 || controller.keep_alive_at.is_some() {
            return;
        }
        if controller.is_silent(now) {
            self.fail(now, name, CloseReason::KeepAliveExpired);
        } else {
            self.arm_keep_alive(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_time_is_rounded_up_to_the_granularity() {
        assert_eq!(timeout(5000), Duration::from_secs(5));
        assert_eq!(timeout(1), Duration::from_secs(1));
        assert_eq!(timeout(u32::MAX), Duration::from_millis(4_294_968_000));
    }
}
