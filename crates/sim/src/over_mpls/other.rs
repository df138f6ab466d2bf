//! The other customer of the network: a host and a disk of AoE ([`Customer`]) with the addresses of the
//! first customer's client and target, and other data. Whatever crosses between the two is seen: what
//! the disk or the host hears must be the other's, with this customer's mark in it. Units: virtual
//! nanoseconds. Errors: what was seen that must not be.

use block::{Instant, Random};
use testkit::aoe::{Customer, frame, open};
use wire::ethernet::MacAddress;

use crate::client::SimWorld;
use crate::over_aoe::ADDRESS;
use crate::run::MILLISECOND;

/// Sectors that it works on: those that clients of the first customer work on most.
const SECTORS: u64 = 4;
/// How often it asks something new, at most.
const REST: u64 = 60 * MILLISECOND;
const HOST: usize = 0;
const DISK: usize = 1;

/// Host and disk, and where they are.
#[derive(Debug)]
pub(super) struct Other {
    random: Random,
    stations: [usize; 2],
    macs: [MacAddress; 2],
    vlan: Option<u16>,
    pub(super) customer: Customer,
    next_at: u64,
    stopping: bool,
}

impl Other {
    pub(super) fn new(
        random: Random,
        stations: [usize; 2],
        macs: [[u8; 6]; 2],
        vlan: Option<u16>,
    ) -> Other {
        let (macs, customer) = (macs.map(MacAddress), Customer::new(ADDRESS));
        Other { random, stations, macs, vlan, customer, next_at: 0, stopping: false }
    }

    /// Begins nothing new.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether nothing is asked any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.stopping && self.customer.is_quiet()
    }

    /// When it wants to be driven.
    pub(super) fn next(&self) -> Option<u64> {
        let again = self.customer.next().map(|Instant(at)| at);
        again.into_iter().chain((!self.stopping).then_some(self.next_at)).min()
    }

    /// Host and disk hear what came, and the host asks.
    pub(super) fn drive(&mut self, world: &mut SimWorld) -> Result<(), String> {
        while let Some(bytes) = world.receive_frame(self.stations[DISK]) {
            let answer = self.of_other(&bytes, HOST).and_then(|asked| self.customer.serve(asked));
            let answer = answer.map_err(|what| format!("the other customer's disk {what}"))?;
            self.send(world, DISK, &answer);
        }
        while let Some(bytes) = world.receive_frame(self.stations[HOST]) {
            let heard = self.of_other(&bytes, DISK).and_then(|answer| self.customer.hear(answer));
            heard.map_err(|what| format!("the other customer's host {what}"))?;
        }
        for message in self.customer.ask_again(world.instant()) {
            self.send(world, HOST, &message);
        }
        if !self.stopping && self.next_at <= world.now {
            self.next_at = world.now + 1 + self.random.below(REST);
            let sector = self.random.below(SECTORS);
            if !self.customer.is_asked(sector) {
                let writes = self.random.chance(2, 3);
                let message = self.customer.begin(world.instant(), sector, writes);
                self.send(world, HOST, &message);
            }
        }
        Ok(())
    }

    fn send(&self, world: &mut SimWorld, from: usize, message: &[u8]) {
        let bytes = frame(self.macs[1 - from], self.macs[from], self.vlan, message);
        world.send_frame(self.stations[from], &bytes);
    }

    /// The message in a frame, which has to come from this end.
    fn of_other<'a>(&self, bytes: &'a [u8], from: usize) -> Result<&'a [u8], String> {
        let message = open(bytes).filter(|(its, _)| *its == self.macs[from]);
        message.map(|(_, message)| message).ok_or_else(|| {
            let first = &bytes[..bytes.len().min(64)];
            format!("heard what this customer never sends: {first:02x?}")
        })
    }
}
