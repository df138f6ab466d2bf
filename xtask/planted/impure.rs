//! What a pure crate may not say, a line each: `cargo xtask deps-check` gives this to clippy with
//! the settings of the pure crates and expects an error on every line that is marked. It is no part
//! of any crate.

use std::collections::HashMap; // refused
use std::collections::{BTreeMap, HashSet}; // refused
use std::net::{IpAddr, TcpStream}; // refused
use std::time::{Duration, Instant as Clock}; // refused
use std::{fs, thread};

pub fn now() -> u64 {
    std::time::SystemTime::now().elapsed().map_or(0, |passed| passed.as_secs()) // refused
}

pub fn nap(length: Duration) {
    thread::sleep(length); // refused
    ::std::thread::yield_now(); // refused
}

pub fn load() -> Option<Vec<u8>> {
    println!("loading"); // refused
    let name = std::env::var("NAME").ok()?; // refused
    fs::read(name).ok() // refused
}

pub fn count(words: HashMap<String, u32>) -> BTreeMap<String, u32> { // refused
    words.into_iter().collect()
}

/// What is pure passes: addresses, durations, ordered maps.
pub fn fine(address: IpAddr, map: &BTreeMap<IpAddr, Duration>) -> Option<Duration> {
    map.get(&address).copied()
}

pub type Unused = (HashSet<u8>, TcpStream, Clock); // refused
