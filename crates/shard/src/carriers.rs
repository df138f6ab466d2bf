//! Whoever carries frames of virtual links inside others, or forwards frames of others: named here
//! and in what is ordered and told of it (`mail`), as protocols are in [`crate::protocols`].
//!
//! There is one on a shard: its routers ([`mpls::Forwarder`]), or a machine that was given whole.
//! Units, errors: theirs.

use block::{Instant, Memory};
use contract::{FrameBatch, InFrame, LinkFacts, LinkId, Misfits, VirtualLinks};
pub(crate) use mpls::Change;
use mpls::{Event, Forwarder, RouterReport};
pub use mpls::{RouterId, Subject, Way};

/// What carries.
#[derive(Debug)]
pub(crate) enum Carrier {
    Routers(Box<Forwarder>),
    Given(Box<dyn VirtualLinks>),
}

impl Carrier {
    /// Routers, of which there is none yet.
    pub(crate) fn routers(seed: u64) -> Self {
        Self::Routers(Box::new(Forwarder::new(seed)))
    }

    /// Changes a router.
    pub(crate) fn route(
        &mut self,
        now: Instant,
        id: RouterId,
        change: Change,
    ) -> Result<(), String> {
        match self {
            Carrier::Routers(routers) => {
                routers.change(now, id, change).map_err(|why| why.to_string())
            }
            Carrier::Given(other) => panic!("virtual links are carried by {other:?}, no router"),
        }
    }

    /// What became of a pseudowire, for people.
    pub(crate) fn poll_event(&mut self) -> Option<(RouterId, Event)> {
        match self {
            Carrier::Routers(routers) => routers.poll_event(),
            Carrier::Given(_) => None,
        }
    }

    /// What came on ports towards other routers and was for nobody.
    pub(crate) fn misfits(&self) -> Misfits {
        match self {
            Carrier::Routers(routers) => *routers.misfits(),
            Carrier::Given(_) => Misfits::default(),
        }
    }

    /// How things are with a router.
    pub(crate) fn report(&self, now: Instant, id: RouterId) -> Option<RouterReport> {
        match self {
            Carrier::Routers(routers) => routers.report(now, id),
            Carrier::Given(_) => None,
        }
    }
}

/// Asks whoever it is. Routers are called as what they are, since they are on the way of each frame.
macro_rules! ask {
    ($carrier:expr, $it:ident => $call:expr) => {
        match $carrier {
            Carrier::Routers($it) => $call,
            Carrier::Given($it) => $call,
        }
    };
}

impl VirtualLinks for Carrier {
    fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        ask!(self, it => it.handle_link(now, link, facts));
    }

    #[inline]
    fn poll_link(&mut self) -> Option<(LinkId, Option<LinkFacts>)> {
        ask!(self, it => it.poll_link())
    }

    #[inline]
    fn takes(&self, link: LinkId) -> bool {
        ask!(self, it => it.takes(link))
    }

    #[inline]
    fn receive<'a>(&mut self, now: Instant, frame: &InFrame<'a>) -> Option<InFrame<'a>> {
        ask!(self, it => it.receive(now, frame))
    }

    #[inline]
    fn poll_received(&mut self) -> Option<(LinkId, Vec<u8>)> {
        ask!(self, it => it.poll_received())
    }

    #[inline]
    fn encapsulate(&mut self, now: Instant, batch: &mut FrameBatch, memory: &dyn Memory) {
        ask!(self, it => it.encapsulate(now, batch, memory));
    }

    #[inline]
    fn poll_batch(&mut self) -> Option<FrameBatch> {
        ask!(self, it => it.poll_batch())
    }

    #[inline]
    fn handle_sent(&mut self, batch: FrameBatch) {
        ask!(self, it => it.handle_sent(batch));
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        ask!(self, it => it.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        ask!(self, it => it.handle_timeout(now));
    }
}
