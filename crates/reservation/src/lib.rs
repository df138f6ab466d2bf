//! Reservations: who may use a volume at present, whatever protocol it comes by, and by which paths.
//!
//! What lives here: the [reservation](state) of a volume and what it allows whom; how it is
//! [changed](change), by the rules that all protocols share; the [table](in_force) that a shard asks
//! for every command; which hosts have a [name](named) that counts for all that they come by; the
//! state of the groups of listeners ([`paths`]); and the way in which all shards hold a
//! [copy](replica) of a small value that one of them changes, which config strings and masks take,
//! too. What does not: commands of protocols, who waits and who is answered (the shard), files.
//! Read [`state`] first.

pub mod change;
pub mod in_force;
pub mod named;
pub mod paths;
pub mod replica;
pub mod state;

pub use change::{Applicant, Change, Guard, Listed, Verdict};
pub use in_force::InForce;
pub use named::NamedHosts;
pub use paths::{PathChange, PathGroup, PathState, Paths, SetBy};
pub use replica::{Replicas, Value};
pub use state::{
    Access, Consequences, Hold, Kind, Registrant, Registration, Reservation, TextError, Told,
};
