//! Sessions of hosts, closed by a person: a host that is gone without its connections, or that is
//! to connect anew. It may come again; who is to stay out is taken from the export's hosts.

use shard::{Answer, Order};

use super::Running;
use super::error::RunError;
use super::shards::ORDER_LIMIT;

impl Running {
    /// Closes the sessions of a host. Returns what was done.
    pub(crate) fn close_sessions(&self, host: &str) -> Result<String, RunError> {
        let what = format!("close the sessions of {host}");
        let order = || Order::CloseSessions { host: host.to_owned() };
        let answers = self.shards.order(&what, ORDER_LIMIT, order)?;
        let closed = |answer: &Answer| match answer {
            Answer::Closed(count) => *count,
            _ => 0,
        };
        match answers.iter().map(closed).sum() {
            0u32 => {
                let mut known: Vec<String> =
                    self.status()?.protocols.sessions().into_iter().map(|one| one.host).collect();
                known.sort();
                known.dedup();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(RunError::new(format!(
                    "host {host}: expected one that has a session, seen none; hosts that have are: {known}"
                )))
            }
            1 => Ok(format!("closed the session of {host}, which may connect again")),
            count => Ok(format!("closed {count} sessions of {host}, which may connect again")),
        }
    }
}
