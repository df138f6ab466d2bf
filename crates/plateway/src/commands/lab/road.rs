//! The road of a trial: what a path of a plan becomes on this machine.
//!
//! ```text
//!   direct           near ======================= far
//!   mpls             near --- ler1 ====== lsr --- ler2 --- far      Plateway routers, three processes
//!   gre, l2tp,
//!   mpls-udp         near --- ler1 ====== ip ---- ler2 --- far      two, and the kernel's IP between
//!   nat              near --- nat ======= far                       the kernel masquerades near
//! ```
//! Each is a namespace, `plateway-lab-PID-N-near` and so on. The span (===) has the path's rate, loss
//! and delay, each way by itself. Loss is `tc netem`'s where the kernel has it, else that of rules at
//! the receiving interface; delay netem's, or a [relay](super::relay) in a namespace within the span
//! holds every frame. A rate is a token bucket of the kernel's, and over MPLS the routers' own. Each
//! end receives on its own CPUs (RPS), the near one where the path says so on another than its client's. What runs between them is on their CPUs, too: on the near
//! end's last the first router, on the far end's last all others.
//!
//! The MTU of the path is that of both ends; the core has [`CORE_MORE`] bytes more for headers. Where
//! offloads are off, every frame that an end receives is held against it. All of it ends with the
//! value, and with this process however it ends. Errors: those of the testbed; what runs between and
//! does not come up; and frames that were not as the path says, once the trial is over.

pub(super) mod customers;
mod routers;

use std::net::Ipv4Addr;
use std::path::{Path as File, PathBuf};
use std::time::Instant;

use lab::plan::{CORE_MORE, Path, PathKind, Softirqs};
use testbed::interface::TokenBucket;
use testbed::network::{Cable, End};
use testbed::{
    Abilities, Counters, Impairment, Interface, Loss, Namespace, Network, Server, process,
};

use super::core_port::Recorder;
use super::seen::Ours;
use super::trial::tell;
use super::{Ends, far};
use crate::commands::session::Interrupt;

/// Interfaces of both ends, and the addresses by which they reach each other.
pub(super) const NEAR: &str = "lab-near";
pub(super) const FAR: &str = "lab-far";
const NEAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(super) const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Both ends: node and interface.
const ENDS: [(&str, &str); 2] = [("near", NEAR), ("far", FAR)];
/// Of an Ethernet, where the plan does not say.
const MTU: u32 = 1500;
/// Behind a gateway the near end has this address, and the gateway this one; to the far end it has
/// the near end's.
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 2), Ipv4Addr::new(10, 78, 0, 1)];
/// The relay's node, and its interfaces towards the near and the far end.
const RELAY: (&str, [&str; 2]) = ("relay", ["relay-near", "relay-far"]);
/// What may wait in a relay each way: half a second of 1 Gbit/s.
const RELAY_BYTES: usize = 64 << 20;
/// A part of all frames that may leave a relay late before that is noted.
const LATE_MAX: f64 = 0.01;

/// A path as it lies.
pub(super) struct Road {
    /// What runs between the ends, by its name; it goes before its namespaces do.
    between: Vec<(&'static str, Server)>,
    network: Network,
    /// Where what runs between the ends has its files.
    home: PathBuf,
    kind: PathKind,
    mtu: u32,
    offloads: bool,
    /// Of the near end's client.
    client_cpus: Vec<usize>,
    /// Interfaces where frames are lost, and how it is found out how many were.
    lossy: Vec<(&'static str, &'static str, LossOf)>,
    /// Whether frames are held against the MTU; else, why not.
    watched: Result<(), String>,
}

/// How many frames an interface lost.
type LossOf = for<'a> fn(&Interface<'a>) -> testbed::Result<Loss>;

/// What a road needs of its trial.
pub(super) struct Site<'a> {
    pub(super) ends: &'a Ends,
    pub(super) abilities: &'a Abilities,
    /// A folder for logs and configurations.
    pub(super) home: &'a File,
    pub(super) interrupt: &'a Interrupt,
}

/// An end of the span: a node, its interface, and the address of that where routers know it.
#[derive(Clone, Copy)]
struct SpanEnd<'a> {
    node: &'static str,
    interface: &'static str,
    mac: Option<&'a str>,
}

impl Road {
    /// Makes it, and waits until what runs between the ends does.
    pub(super) fn lay(path: &Path, site: &Site<'_>) -> miette::Result<Road> {
        let mut nodes = vec!["near", "far"];
        nodes.extend(routers::nodes(path.kind));
        let is_relayed = is_relayed(path, site.abilities);
        nodes.extend(is_relayed.then_some(RELAY.0));
        let mut road = Road {
            between: Vec::new(),
            network: Network::make(far::PREFIX, &nodes).map_err(tell)?,
            home: site.home.to_owned(),
            kind: path.kind,
            mtu: path.mtu.unwrap_or(MTU),
            offloads: path.offloads,
            client_cpus: site.ends.near_over(path).0.to_vec(),
            lossy: Vec::new(),
            watched: site.abilities.rules.clone(),
        };
        road.lay_cables(path, site.abilities).map_err(tell)?;
        road.set_ends(path, site.ends).map_err(tell)?;
        if is_relayed {
            road.start_relay(path, site)?;
        }
        for (name, text) in routers::configurations(&road.network, path) {
            let server = routers::start(name, &text, road.network.at(name), site)?;
            road.between.push((name, server));
        }
        Ok(road)
    }

    pub(super) fn near(&self) -> &Namespace {
        self.network.at("near")
    }

    pub(super) fn far(&self) -> &Namespace {
        self.network.at("far")
    }

    /// Where the near end's client runs.
    pub(super) fn client_cpus(&self) -> &[usize] {
        &self.client_cpus
    }

    /// Whose work in a trial over it is the trial's.
    pub(super) fn ours(&self) -> Ours {
        let between = self.between.iter().map(|(name, server)| (server.pid(), *name));
        Ours { networks: self.network.numbers(), between: between.collect() }
    }

    /// What the first router's interface to the core has counted; where there is a core.
    pub(super) fn core_counters(&self) -> Option<Counters> {
        let [(node, interface), _] = routers::SPAN;
        let (_, router) = self.between.iter().find(|(name, _)| *name == node)?;
        Counters::seen_by(router.pid(), interface)
    }

    /// Counts what the first router sends to the core from now on; where there is a router with a port there.
    pub(super) fn recorder(&self) -> Option<Recorder> {
        let [(node, interface), _] = routers::SPAN;
        let control = routers::control(&self.home.join(node));
        (self.kind == PathKind::Mpls).then(|| Recorder::start(&control, interface))
    }

    /// An error if what runs between the ends has ended: then whatever else failed follows from that.
    pub(super) fn is_up(&self) -> miette::Result<()> {
        self.between.iter().try_for_each(|(name, server)| server.is_up(name).map_err(tell))
    }

    fn lay_cables(&mut self, path: &Path, abilities: &Abilities) -> testbed::Result<()> {
        let cable = Cable { mtu: self.mtu, rate: None, offloads: path.offloads };
        let [near, far] = ENDS.map(|(node, interface)| SpanEnd { node, interface, mac: None });
        match path.kind {
            // What is between two machines is there.
            PathKind::Machines => Ok(()),
            PathKind::Direct => self.span([near, far], cable, path, abilities),
            PathKind::Nat => {
                let end = |interface| SpanEnd { node: "nat", interface, mac: None };
                self.network.cable([near, end("inner")].map(SpanEnd::of_cable), cable)?;
                self.span([end("outer"), far], cable, path, abilities)?;
                self.masquerade()
            }
            PathKind::Mpls | PathKind::Gre | PathKind::L2tp | PathKind::MplsUdp => {
                routers::lay_customers(&self.network, cable)?;
                let core = Cable { mtu: self.mtu + CORE_MORE, ..cable };
                let macs = routers::span_macs(&self.network);
                let [(one, to), (other, from)] = routers::SPAN;
                let ends = [
                    SpanEnd { node: one, interface: to, mac: Some(&macs[0]) },
                    SpanEnd { node: other, interface: from, mac: Some(&macs[1]) },
                ];
                self.span(ends, core, path, abilities)?;
                routers::lay_rest(&self.network, path.kind, core)
            }
        }
    }

    /// Lays the span, with what the path does to its frames.
    fn span(
        &mut self,
        ends: [SpanEnd<'_>; 2],
        cable: Cable<'_>,
        path: &Path,
        abilities: &Abilities,
    ) -> testbed::Result<()> {
        let [one, other] = ends.map(SpanEnd::of_cable);
        if is_relayed(path, abilities) {
            let [near, far] = RELAY.1.map(|interface| End { node: RELAY.0, interface, mac: None });
            self.network.cable([one, near], cable)?;
            self.network.cable([far, other], cable)?;
        } else {
            self.network.cable([one, other], cable)?;
        }
        for SpanEnd { node, interface, .. } in ends {
            let loss = impair(path, abilities, self.network.at(node).interface(interface))?;
            self.lossy.extend(loss.map(|loss| (node, interface, loss)));
        }
        Ok(())
    }

    /// Addresses of both ends, on which CPUs they receive, and the look at what they receive.
    fn set_ends(&self, path: &Path, ends: &Ends) -> testbed::Result<()> {
        let near = if self.kind == PathKind::Nat { INNER[0] } else { NEAR_ADDRESS };
        let all = [(near, ends.near_over(path).1), (FAR_ADDRESS, ends.far[0])];
        for ((node, name), (address, cpu)) in ENDS.into_iter().zip(all) {
            let interface = self.network.at(node).interface(name);
            self.network.at(node).interface("lo").up()?;
            interface.add_address(&format!("{address}/24"))?;
            interface.steer(cpu)?;
            if !self.offloads && self.watched.is_ok() {
                interface.watch(self.mtu)?;
            }
        }
        if self.kind == PathKind::Nat {
            self.near().add_route(&format!("{FAR_ADDRESS}/32"), &INNER[1].to_string())?;
        }
        Ok(())
    }

    /// Has the gateway put its own address in place of the near end's.
    fn masquerade(&self) -> testbed::Result<()> {
        let gateway = self.network.at("nat");
        gateway.interface("inner").add_address(&format!("{}/24", INNER[1]))?;
        gateway.interface("outer").add_address(&format!("{NEAR_ADDRESS}/24"))?;
        gateway.forward()?;
        gateway.masquerade("outer")
    }

    fn start_relay(&mut self, path: &Path, site: &Site<'_>) -> miette::Result<()> {
        let delay_us = path.delay.unwrap_or_default().as_micros().to_string();
        let cpu = last(&site.ends.far);
        let mut command =
            process::command(Some(self.network.at(RELAY.0)), &cpu, &super::program()?);
        command.args(["lab", "relay"]).args(RELAY.1).args(["--delay-us", &delay_us]);
        command.args(["--bytes-max", &RELAY_BYTES.to_string()]);
        let server = Server::start(command, &site.home.join("relay.log")).map_err(tell)?;
        let end = Instant::now() + far::START;
        // It tells what it has done as soon as it can do something.
        while relayed(&server.words()).is_none() {
            server.is_up("the relay").map_err(tell)?;
            if Instant::now() > end {
                return Err(miette::miette!("the relay does not begin: {}", server.words()));
            }
            far::pause(site.interrupt)?;
        }
        self.between.push((RELAY.0, server));
        Ok(())
    }

    /// Holds what was seen against what the path says, once a trial is over: an error if its frames
    /// were others, or if what runs between has ended.
    pub(super) fn judge(&self) -> miette::Result<Judged> {
        let mut judged = Judged::default();
        self.is_up()?;
        for (name, server) in &self.between {
            if *name == RELAY.0 {
                judged.notes.extend(complaints(&server.words()).map(str::to_owned));
            }
        }
        if !self.offloads {
            let interfaces = ENDS.map(|(node, name)| (name, self.network.at(node).interface(name)));
            for (name, interface) in &interfaces {
                judge_offloads(name, interface)?;
            }
            match &self.watched {
                Err(why) => judged.notes.push(format!("no frame was held against the MTU: {why}")),
                Ok(()) => {
                    for (name, interface) in &interfaces {
                        judge_lengths(name, interface, self.mtu)?;
                    }
                }
            }
        }
        let (mut came, mut lost) = (0, 0);
        for (node, name, loss_of) in &self.lossy {
            let loss = loss_of(&self.network.at(node).interface(name)).map_err(tell)?;
            (came, lost) = (came + loss.came, lost + loss.lost);
        }
        judged.lost_share = (came > 0).then_some(lost as f64 / came as f64);
        Ok(judged)
    }
}

/// An end of a road without offloads has none when it is over.
fn judge_offloads(name: &str, interface: &Interface<'_>) -> miette::Result<()> {
    let on = interface.offloads().map_err(tell)?.on();
    if on.is_empty() {
        return Ok(());
    }
    let on = on.join(", ");
    Err(miette::miette!(
        "{name}: expected no offloads, as they were switched off, seen {on} once it was over"
    ))
}

/// Nor did it receive a frame that only they make, whatever is on by now.
fn judge_lengths(name: &str, interface: &Interface<'_>, mtu: u32) -> miette::Result<()> {
    let count = interface.oversized().map_err(tell)?;
    if count == 0 {
        return Ok(());
    }
    Err(miette::miette!(
        "{name}: expected frames within the MTU of {mtu} bytes, seen {count} longer ones: something switched an offload on"
    ))
}

impl<'a> SpanEnd<'a> {
    fn of_cable(self) -> End<'a> {
        End { node: self.node, interface: self.interface, mac: self.mac }
    }
}

/// What there is to say of a road once a trial is over.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Of the frames that came to both ends of the span, how many it lost; where it is to lose some.
    pub(super) lost_share: Option<f64>,
    pub(super) notes: Vec<String>,
}

/// Whether a path's delay is a relay's.
pub(super) fn is_relayed(path: &Path, abilities: &Abilities) -> bool {
    path.delay.is_some() && abilities.netem.is_err()
}

/// Whether something else works on an end's CPUs: what is between the ends, or the other end. Then what one costs is not
/// known.
pub(super) fn is_shared(path: &Path, abilities: &Abilities, ends: &Ends) -> bool {
    let is_bare = matches!(path.kind, PathKind::Direct | PathKind::Machines);
    !is_bare || is_relayed(path, abilities) || receives_at_far_end(path, ends)
}

/// Whether what the near end receives is dealt with on a CPU of the far end's, since it has one alone.
pub(super) fn receives_at_far_end(path: &Path, ends: &Ends) -> bool {
    path.softirqs == Some(Softirqs::Apart) && !ends.near.contains(&ends.near_over(path).1)
}

/// Gives an end of the span its rate, loss and delay; how its loss is found out, if it has one.
fn impair(
    path: &Path,
    abilities: &Abilities,
    interface: Interface<'_>,
) -> testbed::Result<Option<LossOf>> {
    let delay_us = path.delay.map_or(0, |delay| delay.as_micros() as u32);
    let loss_ppm = path.loss_ppm.unwrap_or(0);
    let has_netem = abilities.netem.is_ok() && (loss_ppm > 0 || delay_us > 0);
    if has_netem {
        interface.impair(&Impairment { delay_us, loss_ppm })?;
    } else if loss_ppm > 0 {
        interface.lose(loss_ppm)?;
    }
    // A router of MPLS shapes by itself.
    let bits = path.rate.filter(|_| path.kind != PathKind::Mpls);
    if let Some(rate) = bits.map(|bits| format!("{bits}bit")) {
        let bucket = TokenBucket::of(&rate);
        match has_netem {
            true => interface.shape_behind(&bucket)?,
            false => interface.shape(&bucket)?,
        }
    }
    let loss_of: LossOf = if has_netem { |it| it.lost_by_netem() } else { |it| it.lost_by_rules() };
    Ok((loss_ppm > 0).then_some(loss_of))
}

/// The last of some CPUs, as `taskset` takes it.
fn last(cpus: &[usize]) -> String {
    cpus.last().map(usize::to_string).unwrap_or_default()
}

/// What a relay has said last: frames sent, dropped and late.
fn relayed(words: &str) -> Option<[u64; 3]> {
    let line = words.rsplit(" | ").next()?;
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok().filter(|_| line.starts_with("relayed "))
}

/// What of it is to be known before a trial is believed.
fn complaints(words: &str) -> impl Iterator<Item = &'static str> {
    let [sent, dropped, late] = relayed(words).unwrap_or_default();
    let is_late = late as f64 > sent as f64 * LATE_MAX;
    let dropped = (dropped > 0).then_some("the relay of the delay dropped frames");
    let late = is_late.then_some("the relay of the delay sent more than 1% of the frames late");
    dropped.into_iter().chain(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_relay_says_last_is_read() {
        let words = "relayed 0 dropped 0 late 0 | relayed 200 dropped 1 late 3";
        assert_eq!(relayed(words), Some([200, 1, 3]));
        assert_eq!(complaints(words).count(), 2);
        assert_eq!(complaints("relayed 200 dropped 0 late 2").count(), 0);
        assert_eq!([relayed(""), relayed("Error: no such interface 1 2 3")], [None; 2]);
    }
}
