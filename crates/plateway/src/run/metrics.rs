//! What is counted of a running server, for monitoring: the reports of all shards as metrics, and
//! the address at which they are read.

use std::net::TcpListener;

use super::Running;
use super::error::RunError;
use super::listeners::take_each;
use crate::config::metrics::MetricsConfig;
use crate::control::Asking;
use crate::metrics::{Listener, Seen};

/// Who reads them, and how the control thread is asked for them.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) listener: Option<Listener>,
    asking: Option<Asking>,
}

impl Running {
    /// What monitoring reads, as OpenMetrics.
    pub(crate) fn metrics(&self) -> Result<String, RunError> {
        let reports = self.shards.reports()?;
        let status = self.status_of(&reports);
        let shards = self.shards.handle().stats();
        Ok(crate::metrics::text(&Seen {
            running: self,
            status: &status,
            reports: &reports,
            shards: &shards,
            routers: self.router_statuses()?,
        }))
    }

    /// From now on the control thread answers: those who read metrics are served.
    pub(crate) fn answer_metrics(&mut self, asking: Asking) -> Result<(), RunError> {
        if let Some(listener) = &mut self.metrics.listener {
            listener.answer(&asking)?;
        }
        self.metrics.asking = Some(asking);
        Ok(())
    }

    pub(super) fn add_metrics(&mut self, config: &MetricsConfig) -> Result<(), RunError> {
        let mut had = None;
        take_each(&config.address, |address| {
            // An address for everybody is taken once: this socket takes IPv4, too.
            let address = match &had {
                Some((_, taken)) => return Ok(*taken),
                None => address,
            };
            let socket = TcpListener::bind(address)?;
            let taken = socket.local_addr()?;
            had = Some((socket, taken));
            Ok(taken)
        })
        .map_err(|error| error.within("metrics"))?;
        let (socket, address) = had.expect("an address was taken");
        let mut listener = Listener::new(config.clone(), socket, address);
        if let Some(asking) = &self.metrics.asking {
            listener.answer(asking)?;
        }
        self.metrics.listener = Some(listener);
        Ok(())
    }

    pub(super) fn remove_metrics(&mut self) {
        self.metrics.listener = None;
    }
}
