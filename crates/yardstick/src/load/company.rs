//! Connections that do nothing but be there, kept alive by a thread of their own.
//!
//! In: sessions that know how to say that they are there ([`KeepAlive`]), and the time between two
//! times that one says so. Out: how often that was answered, and at the end how many were lost. All
//! live until dropped.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A session that can say that it is still there.
pub(crate) trait KeepAlive: Send + 'static {
    /// Says so and waits for the answer.
    fn keep_alive(&mut self) -> anyhow::Result<()>;
}

/// Idle connections and the thread that keeps them alive.
pub(crate) struct Idle {
    stop: Arc<AtomicBool>,
    /// Keep alives that were answered.
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<usize>>,
    _held: Vec<TcpStream>,
}

impl Idle {
    /// Each of the sessions says once in a `period` that it is there; never if that is zero. `held`
    /// are further connections, which say nothing.
    pub(crate) fn new<S: KeepAlive>(
        sessions: Vec<S>,
        held: Vec<TcpStream>,
        period: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let (seen, count) = (Arc::clone(&stop), Arc::clone(&answered));
        let thread = std::thread::spawn(move || keep_alive(sessions, period, &seen, &count));
        Self { stop, answered, thread: Some(thread), _held: held }
    }

    /// Keep alives that were answered so far.
    pub(super) fn answered(&self) -> &AtomicU64 {
        &self.answered
    }

    /// Ends the thread; how many sessions had been lost.
    pub(super) fn finish(mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("taken only here");
        thread.thread().unpark();
        thread.join().unwrap_or(usize::MAX)
    }
}

/// Sends keep alives evenly over the period; returns how many sessions broke.
fn keep_alive<S: KeepAlive>(
    mut sessions: Vec<S>,
    period: Duration,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> usize {
    let mut lost = 0;
    if period.is_zero() || sessions.is_empty() {
        while !stop.load(Ordering::Acquire) {
            std::thread::park();
        }
        return lost;
    }
    let step = period / sessions.len() as u32;
    let mut due = Instant::now();
    let mut at = 0;
    while !stop.load(Ordering::Acquire) && !sessions.is_empty() {
        due += step;
        while let Some(left) = due.checked_duration_since(Instant::now())
            && !stop.load(Ordering::Acquire)
        {
            std::thread::park_timeout(left);
        }
        at = (at + 1) % sessions.len();
        if sessions[at].keep_alive().is_err() {
            sessions.swap_remove(at);
            lost += 1;
            at = 0;
        } else {
            answered.fetch_add(1, Ordering::Release);
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;

    /// Tells each time; an end of who listens is an end of the session.
    struct Told(Sender<()>);

    impl KeepAlive for Told {
        fn keep_alive(&mut self) -> anyhow::Result<()> {
            Ok(self.0.send(())?)
        }
    }

    #[test]
    fn sessions_say_again_and_again_that_they_are_there_and_lost_ones_are_counted() {
        let (tell, told) = mpsc::channel();
        let (lost, gone) = mpsc::channel();
        drop(gone);
        let sessions = vec![Told(tell), Told(lost)];
        let idle = Idle::new(sessions, Vec::new(), Duration::from_millis(2));
        for _ in 0..3 {
            told.recv().expect("it goes on without the lost one");
        }
        // What is told is counted a moment later, but for the last of three.
        assert!(idle.answered().load(Ordering::Acquire) >= 2);
        assert_eq!(idle.finish(), 1);
    }

    #[test]
    fn without_a_period_nothing_is_said() {
        let (tell, told) = mpsc::channel();
        let idle = Idle::new(vec![Told(tell)], Vec::new(), Duration::ZERO);
        assert_eq!(idle.finish(), 0);
        assert!(told.try_recv().is_err());
    }
}
