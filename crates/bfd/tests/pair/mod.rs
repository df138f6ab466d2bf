//! The pair of machines that tests run: two ends with a session on each of three carriers, a network
//! between them that loses, delays, repeats, leads astray and cuts, and a clock that is turned by hand.
//!
//! ```text
//!   end 0                            end 1
//!   active   ---- carrier 0 ----   active
//!   active   ---- carrier 1 ----   passive
//!   active   ==== carrier 2 ====   active    both take packets by this carrier alone
//! ```
//! A run has a storm, in which anything may happen to the network, the ends and what is wanted of
//! them, a calm, in which all comes up again, and a drizzle, in which packets are lost, but never as
//! many in a row as the receiver waits for.

mod oracle;
mod world;

use bfd::{Role, Settings};
use block::Random;

pub(crate) use world::run;

const CARRIERS: usize = 3;
/// Whose sessions take packets by their own carrier alone.
const BOUND: [usize; 1] = [2];

/// The longest interval that anybody wants, and the largest multiplier.
const INTERVALS_MS: [u32; 6] = [10, 20, 50, 200, 1000, 2000];
const MULTS: [u8; 4] = [1, 2, 3, 5];

fn draw_settings(random: &mut Random, end: usize, carrier: usize) -> Settings {
    let mut interval_us = || INTERVALS_MS[random.below(INTERVALS_MS.len() as u64) as usize] * 1000;
    Settings {
        role: if (end, carrier) == (1, 1) { Role::Passive } else { Role::Active },
        desired_min_tx_interval_us: interval_us(),
        required_min_rx_interval_us: interval_us(),
        detect_mult: MULTS[random.below(MULTS.len() as u64) as usize],
        is_carrier_bound: BOUND.contains(&carrier),
    }
}
