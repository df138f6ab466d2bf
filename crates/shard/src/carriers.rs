//! Whoever carries frames of virtual links inside others, or forwards frames of others: named here
//! and in what is ordered and told of it (`mail`), as protocols are in [`crate::protocols`].
//!
//! There is one on a shard: its routers ([`mpls::Forwarder`]), or a machine that was given whole.
//! Units, errors: theirs.

use core::ops::{Deref, DerefMut};

use block::Instant;
use contract::{Misfits, VirtualLinks};
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

impl Deref for Carrier {
    type Target = dyn VirtualLinks;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Carrier::Routers(routers) => &**routers,
            Carrier::Given(other) => &**other,
        }
    }
}

impl DerefMut for Carrier {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Carrier::Routers(routers) => &mut **routers,
            Carrier::Given(other) => &mut **other,
        }
    }
}
