//! Whether an interface's queueing disciplines have what is urgent wait. Which of them do is the `netlink`
//! crate's knowledge.
//!
//! Looking takes no right and changes nothing. Errors: the system's. Spec: tc(8).

use std::io;

use netlink::{discipline, kind};

use super::interface;
use super::netlink::ask;

/// The queueing discipline of an interface that has frames of a high priority wait behind others, by
/// its name; `None`: there is none. Errors: there is no such interface, or the system's.
pub fn delays_what_is_first(interface: &str) -> io::Result<Option<String>> {
    let found = interface::find(interface)?.ok_or_else(interface::missing)?;
    let mut all = Vec::new();
    ask(&discipline::dump(found.index), |of, body| {
        if of == kind::NEWQDISC {
            all.extend(discipline::of(body, found.index));
        }
    })?;
    Ok(discipline::delaying(&all).map(str::to_owned))
}
