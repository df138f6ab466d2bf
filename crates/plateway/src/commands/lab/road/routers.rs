//! What is between the ends of a road that has a core: its nodes, their cables, and what each
//! Plateway router is told.
//!
//! ```text
//!   near --- cust| ler1 |core ======= ler1| core |ler2 ------- core| ler2 |cust --- far
//! ```
//! Both edges carry the customer's Ethernet as it is: in a pseudowire with a control word, in GRE
//! with a key and numbers, in L2TPv3 over UDP with its default sublayer, or in a pseudowire over MPLS
//! in UDP. The core is a label switching router of ours, or the kernel's IP. Labels are the same in
//! every trial. Errors: those of the testbed, and a router that does not come up, with its words.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path as File, PathBuf};

use lab::plan::{Path, PathKind};
use testbed::network::{Cable, End};
use testbed::{Namespace, Network, Server, process};

use super::{FAR, NEAR, Site, last};
use crate::commands::lab::{far, program, trial};
use crate::config::text::quoted;

pub(super) const LER1: &str = "ler1";
pub(super) const CORE: &str = "core";
pub(super) const LER2: &str = "ler2";
/// An edge's interface to its end.
const CUSTOMER: &str = "cust";
/// The cables of the core, each with the interface at either node; the span is the first.
pub(super) const SPAN: [(&str, &str); 2] = [(LER1, CORE), (CORE, LER1)];
const REST: [(&str, &str); 2] = [(CORE, LER2), (LER2, CORE)];
/// Where the core is IP: addresses at both ends of the span, then of the rest.
const SPAN_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
const REST_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 1, 2), Ipv4Addr::new(10, 79, 1, 1)];
/// The edges' addresses.
const EDGES: [Ipv4Addr; 2] = [SPAN_ADDRESSES[0], REST_ADDRESSES[1]];

/// What a path has between its ends.
pub(super) fn nodes(kind: PathKind) -> &'static [&'static str] {
    match kind {
        PathKind::Direct | PathKind::Machines => &[],
        PathKind::Nat => &["nat"],
        PathKind::Mpls | PathKind::Gre | PathKind::L2tp | PathKind::MplsUdp => &[LER1, CORE, LER2],
    }
}

/// The addresses of both interfaces of the span.
pub(super) fn span_macs(network: &Network) -> [String; 2] {
    SPAN.map(|(node, towards)| network.address(node, towards))
}

/// The cables between ends and edges.
pub(super) fn lay_customers(network: &Network, cable: Cable<'_>) -> testbed::Result<()> {
    for (end, interface, edge) in [("near", NEAR, LER1), ("far", FAR, LER2)] {
        let ends = [(end, interface), (edge, CUSTOMER)];
        network.cable(ends.map(|(node, interface)| End { node, interface, mac: None }), cable)?;
    }
    Ok(())
}

/// The other cable of the core, and addresses and routes where it is IP.
pub(super) fn lay_rest(network: &Network, kind: PathKind, cable: Cable<'_>) -> testbed::Result<()> {
    network.core_cable([CORE, LER2], cable)?;
    if kind == PathKind::Mpls {
        return Ok(());
    }
    let addressed = [(SPAN, SPAN_ADDRESSES), (REST, REST_ADDRESSES)];
    for (ends, addresses) in addressed {
        for ((node, interface), address) in ends.into_iter().zip(addresses) {
            network.at(node).interface(interface).add_address(&format!("{address}/24"))?;
        }
    }
    network.at(CORE).forward()?;
    let ways = [(LER1, EDGES[1], SPAN_ADDRESSES[1]), (LER2, EDGES[0], REST_ADDRESSES[0])];
    for (edge, to, by) in ways {
        network.at(edge).add_route(&format!("{to}/32"), &by.to_string())?;
    }
    Ok(())
}

/// What each router is told, in the order in which they are started; none where there is none.
pub(super) fn configurations(network: &Network, path: &Path) -> Vec<(&'static str, String)> {
    match path.kind {
        PathKind::Direct | PathKind::Nat | PathKind::Machines => Vec::new(),
        PathKind::Mpls => {
            let rate = path.rate.map(|bits| format!("rate = \"{}kbit\"\n", bits / 1000));
            let rate = rate.unwrap_or_default();
            let hop = |of: &str, towards: &str| network.address(of, towards);
            let lsr = format!(
                "{}{}{}{}",
                port(LER1, &rate),
                port(LER2, ""),
                swap(100, LER1, LER2, &hop(LER2, CORE), 101),
                swap(310, LER2, LER1, &hop(LER1, CORE), 300),
            );
            let edge = |at, rate: &str, labels| {
                let next = format!("next_hop = \"{}\"\n", hop(CORE, at));
                port(CORE, rate) + &pseudowire(CORE, &next, labels)
            };
            vec![(CORE, lsr), (LER1, edge(LER1, &rate, ONE)), (LER2, edge(LER2, "", OTHER))]
        }
        PathKind::MplsUdp => {
            let edge = |peer, labels| {
                format!("[[link]]\nname = \"wan\"\nudp = {{ peer = \"{peer}\" }}\nmpls = true\n")
                    + &pseudowire("wan", "", labels)
            };
            vec![
                (LER1, edge(EDGES[1], Labels { tunnel_in: 310, ..ONE })),
                (LER2, edge(EDGES[0], Labels { tunnel_in: 100, ..OTHER })),
            ]
        }
        PathKind::Gre => tunnels(["gre = { key = 7 }"; 2]),
        PathKind::L2tp => tunnels([
            "l2tp = { session_in = 7, session_out = 8 }",
            "l2tp = { session_in = 8, session_out = 7 }",
        ]),
    }
}

/// Starts one, and waits until it answers.
pub(super) fn start(
    name: &'static str,
    text: &str,
    at: &Namespace,
    site: &Site<'_>,
) -> miette::Result<Server> {
    let home = site.home.join(name);
    let tell = |error| miette::miette!("cannot write what {name} is told: {error}");
    fs::create_dir_all(&home).map_err(tell)?;
    let cpu = last(if name == LER1 { &site.ends.near } else { &site.ends.far });
    let own = |file: &str| quoted(&home.join(file).display().to_string());
    let control = quoted(&control(&home).display().to_string());
    let state = own("state");
    let server =
        format!("[server]\nshards = [{cpu}]\ncontrol = {control}\nstate = {state}\n{text}");
    let file = home.join("router.toml");
    fs::write(&file, server).map_err(tell)?;
    let mut command = process::command(Some(at), &cpu, &program()?);
    command.args(["route", "--config"]).arg(&file).env("XDG_STATE_HOME", &home);
    let router = Server::start(command, &home.join("router.log")).map_err(trial::tell)?;
    far::wait_until_ready(&router, name, &home, site.interrupt)?;
    Ok(router)
}

/// Where a router is asked, whose files are there.
pub(super) fn control(home: &File) -> PathBuf {
    home.join("control.sock")
}

/// The labels of an edge: of tunnels out and in, and of the pseudowire.
#[derive(Clone, Copy)]
struct Labels {
    tunnel_out: u32,
    tunnel_in: u32,
    wire_out: u32,
    wire_in: u32,
}

/// Of the near and of the far edge, with a router that swaps between: 100 to 101, and 310 to 300.
const ONE: Labels = Labels { tunnel_out: 100, tunnel_in: 300, wire_out: 1002, wire_in: 1001 };
const OTHER: Labels = Labels { tunnel_out: 310, tunnel_in: 101, wire_out: 1001, wire_in: 1002 };

pub(super) fn port(interface: &str, rate: &str) -> String {
    format!("[[link]]\nethernet = \"{interface}\"\nmpls = true\n{rate}")
}

pub(super) fn swap(label: u32, from: &str, to: &str, next_hop: &str, other: u32) -> String {
    format!(
        "[[ilm]]\nlabel = {label}\nfrom = \"{from}\"\nlink = \"{to}\"\nnext_hop = \"{next_hop}\"\nlabels = [{other}]\n"
    )
}

/// The customer's circuit, in a pseudowire by a port.
fn pseudowire(link: &str, next_hop: &str, labels: Labels) -> String {
    let Labels { tunnel_out, tunnel_in, wire_out, wire_in } = labels;
    format!(
        "{CIRCUIT}[[lsp]]\nname = \"out\"\nlink = \"{link}\"\n{next_hop}labels = [{tunnel_out}]\n\
         [[ilm]]\nlabel = {tunnel_in}\npop = true\n\
         [[pseudowire]]\nname = \"w\"\ncircuit = \"c\"\nlabel_in = {wire_in}\nlabel_out = {wire_out}\n\
         lsp = \"out\"\nfrom = {{ link = \"{link}\", tunnel = {tunnel_in} }}\n"
    )
}

const CIRCUIT: &str = "[[circuit]]\nname = \"c\"\nethernet = \"cust\"\n";

/// Both edges of a tunnel through IP, each with what is its own.
fn tunnels([one, other]: [&str; 2]) -> Vec<(&'static str, String)> {
    let edge = |local, peer, more: &str| {
        format!(
            "{CIRCUIT}[[tunnel]]\nname = \"t\"\ncircuit = \"c\"\nlocal = \"{local}\"\npeer = \"{peer}\"\n{more}\n"
        )
    };
    vec![(LER1, edge(EDGES[0], EDGES[1], one)), (LER2, edge(EDGES[1], EDGES[0], other))]
}
