//! Counters add up: what came to a router left it again, was a message for itself, or was dropped for
//! a reason that it names; what left by a port came to the other end, or the link made something of it.
//!
//! ```text
//!   by all ports:  received + own messages  =  sent + dropped + messages that came
//!   by a link:     sent - its queue was full + repeated  =  received + lost + unseen + on the way
//! ```
//! Asked while nobody sends, so that no frame waits for others in a router.

use contract::Counters;
use mpls::pseudowire::PseudowireCounters;
use mpls::{PortReport, RouterReport};

use super::orders::R;
use super::running::Network;
use super::topology::*;

impl Network {
    /// What a pseudowire counted is kept, before it is removed.
    pub(super) fn keep_counters(&mut self, me: usize, wire: &Wire) {
        let report = self.routers[me].report(self.now, R).expect("it was configured");
        let its = report.pseudowires.iter().find(|one| one.id == wire.id());
        let Some(its) = its else { return };
        let (counters, forgotten) = self.gone.entry(me).or_default();
        *counters += its.counters;
        *forgotten += its.drops.no_circuit;
    }

    /// All counters of all routers add up.
    pub(super) fn check_balance(&mut self) -> Result<(), String> {
        let report = |me: usize| self.routers[me].report(self.now, R).expect("it was configured");
        let reports: Vec<RouterReport> = (0..ROUTERS).map(report).collect();
        for (me, report) in reports.iter().enumerate() {
            self.check_router(me, report)?;
        }
        let ports: Vec<&PortReport> = reports.iter().flat_map(|report| &report.ports).collect();
        for port in &ports {
            if port.link >= circuit(0, 0) {
                continue;
            }
            let other = ports.iter().find(|other| other.link.0 == port.link.0 ^ 1);
            self.check_link(port, other.expect("a link has two ends"))?;
        }
        Ok(())
    }

    fn check_router(&self, me: usize, report: &RouterReport) -> Result<(), String> {
        let ports = &report.ports;
        let received: u64 = ports.iter().map(|port| port.counters.received).sum();
        let sent: u64 = ports.iter().map(|port| port.counters.sent).sum();
        let dropped = ports.iter().map(|port| port.drops).chain([report.strays]);
        let dropped: u64 = dropped.map(|drops| drops.values().sum::<u64>()).sum();
        let pseudowires = &report.pseudowires;
        let (gone, forgotten) = self.gone.get(&me).copied().unwrap_or_default();
        let now: PseudowireCounters = pseudowires.iter().map(|one| one.counters).sum();
        let PseudowireCounters { channel_messages, channel_messages_sent, delivered, .. } =
            [gone, now].into_iter().sum();
        let (came, own) = (channel_messages, channel_messages_sent);
        // Frames that waited for others when their circuit was another's.
        let forgotten_now: u64 = pseudowires.iter().map(|one| one.drops.no_circuit).sum();
        let dropped = dropped + forgotten + forgotten_now;
        if received + own != sent + dropped + came {
            return Err(format!(
                "router {me} received {received} and made {own}, \
                 but sent {sent}, dropped {dropped} and took {came}"
            ));
        }
        let is_circuit = |port: &&PortReport| port.link >= circuit(0, 0);
        let left: u64 = ports.iter().filter(is_circuit).map(|port| port.counters.sent).sum();
        let by_tunnels: u64 = report.tunnels.iter().map(|one| one.counters.delivered).sum();
        let delivered = delivered + by_tunnels;
        if left != delivered {
            return Err(format!("router {me} delivered {delivered}, of which {left} left"));
        }
        Ok(())
    }

    fn check_link(&mut self, port: &PortReport, other: &PortReport) -> Result<(), String> {
        let fate = *self.links.fate(port.link);
        let left = port.counters.sent - port.queue.queue_full;
        let unseen = self.unseen.get(&other.link).copied().unwrap_or(0) + self.in_ring(other.link);
        let came = other.counters.received + unseen + fate.on_the_way + fate.lost;
        if left != fate.launched || fate.launched + fate.repeated != came {
            let seen = other.counters.received;
            return Err(format!(
                "{} sent {left}: {fate:?}, {seen} received and {unseen} not shown",
                port.link
            ));
        }
        Ok(())
    }
}
