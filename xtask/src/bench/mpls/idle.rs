//! A router that nobody sends anything: what its threads cost, and for each frame if its paths are
//! watched.
//!
//! The CPU is the run time of the process's threads. Where no interrupts are accounted, that has the
//! softirqs that ran in them. Frames are those that its core ports sent and received; with nobody at
//! either end they are BFD's alone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::cpu::run_time;

use super::roads::EDGES;
use crate::bench::process::{Place, Server};

/// What comes with a start is over: labels, paths, how large a frame they carry.
const BEFORE: Duration = Duration::from_secs(3);
/// A shorter look than that sees nothing.
const SECONDS_MIN: f64 = 3.0;

/// Looks at a router, or at the first edge of a network.
pub(in crate::bench) fn look(server: &Server, seconds: f64) -> Result<Value> {
    let (pid, ports) = match &server.place {
        Place::Road(road) => {
            let edge = road.router(EDGES[0].0)?;
            (edge.server.process.pid(), Some((&road.network, &edge.ports)))
        }
        _ => (server.process.pid(), None),
    };
    let frames = || match ports {
        Some((network, ports)) => {
            let counters = network.at(EDGES[0].0).counters(ports)?;
            Ok(counters.iter().map(|one| one.rx_packets + one.tx_packets).sum::<u64>())
        }
        None => anyhow::Ok(0),
    };
    std::thread::sleep(BEFORE);
    let (frames_before, from, before) = (frames()?, Instant::now(), run_time(pid));
    ensure!(before > 0, "the router has ended: {}", server.process.words());
    std::thread::sleep(Duration::from_secs_f64(seconds.max(SECONDS_MIN)));
    let (spent, time) = (run_time(pid) - before, from.elapsed());
    let frames = frames()? - frames_before;
    let mut value = json!({
        "target": {"busy": spent as f64 / time.as_nanos() as f64, "cpu_seconds": spent as f64 / 1e9},
        "frames": frames, "frames_per_second": frames as f64 / time.as_secs_f64(),
    });
    if frames > 0 {
        value["cpu_us_per_frame"] = json!(spent as f64 / 1e3 / frames as f64);
    }
    Ok(value)
}
