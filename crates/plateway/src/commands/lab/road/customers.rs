//! Two customers over one core, as Landowski and Curran had them: each has a pseudowire of its own, by a bottom label
//! that the core never looks at, in a tunnel that both share.
//!
//! ```text
//!   near1 --- cust1| ler1 |core ====== ler1| core |ler2 ====== core| ler2 |cust1 --- far1
//!   near2 --- cust2|                                                     |cust2 --- far2
//! ```
//! No link of it has a rate. All of it ends with the value. Errors: those of the testbed, and a router that does not
//! come up, with its words.

use testbed::network::{Cable, End};
use testbed::{Namespace, Network, Server};

use super::routers::{self, CORE, LER1, LER2, port, swap};
use super::{FAR, NEAR, Site};
use crate::commands::lab::far;
use crate::commands::lab::trial::tell;

const MTU: u32 = 1500;
/// The nodes of each customer.
const NEARS: [&str; 2] = ["near1", "near2"];
const FARS: [&str; 2] = ["far1", "far2"];
/// Their interfaces at either edge.
const CIRCUITS: [&str; 2] = ["cust1", "cust2"];
/// The bottom labels of their pseudowires, towards the far edge and back.
const WIRES: [[u32; 2]; 2] = [[1002, 1001], [2002, 2001]];

/// Both customers' ends, and what is between them.
pub(in crate::commands::lab) struct Customers {
    /// They go before their namespaces do.
    _routers: Vec<Server>,
    network: Network,
}

impl Customers {
    pub(in crate::commands::lab) fn lay(site: &Site<'_>) -> miette::Result<Customers> {
        let nodes = [&NEARS[..], &FARS[..], &[LER1, CORE, LER2]].concat();
        let network = Network::make(far::PREFIX, &nodes).map_err(tell)?;
        let cable = Cable { mtu: MTU, rate: None, offloads: false };
        for (nodes, interface, edge) in [(NEARS, NEAR, LER1), (FARS, FAR, LER2)] {
            for (node, circuit) in nodes.into_iter().zip(CIRCUITS) {
                let ends = [(node, interface), (edge, circuit)];
                let ends = ends.map(|(node, interface)| End { node, interface, mac: None });
                network.cable(ends, cable).map_err(tell)?;
            }
        }
        let core = Cable { mtu: MTU + lab::plan::CORE_MORE, ..cable };
        for ends in [[LER1, CORE], [CORE, LER2]] {
            network.core_cable(ends, core).map_err(tell)?;
        }
        let mut routers = Vec::new();
        for (name, text) in configurations(&network) {
            routers.push(routers::start(name, &text, network.at(name), site)?);
        }
        Ok(Customers { _routers: routers, network })
    }

    /// Where the server of a customer is, from 0.
    pub(in crate::commands::lab) fn near(&self, customer: usize) -> &Namespace {
        self.network.at(NEARS[customer])
    }

    /// Where its target is.
    pub(in crate::commands::lab) fn far(&self, customer: usize) -> &Namespace {
        self.network.at(FARS[customer])
    }
}

/// What each router is told: a tunnel of labels 100 and 101 one way, 310 and 300 the other.
fn configurations(network: &Network) -> [(&'static str, String); 3] {
    let hop = |of: &str, towards: &str| network.address(of, towards);
    let lsr = [
        port(LER1, ""),
        port(LER2, ""),
        swap(100, LER1, LER2, &hop(LER2, CORE), 101),
        swap(310, LER2, LER1, &hop(LER1, CORE), 300),
    ];
    let edge = |at: &str, [out, back]: [u32; 2], is_near: bool| {
        let next = hop(CORE, at);
        let mut text = port(CORE, "");
        text += &format!(
            "[[lsp]]\nname = \"out\"\nlink = \"{CORE}\"\nnext_hop = \"{next}\"\nlabels = [{out}]\n\
             [[ilm]]\nlabel = {back}\npop = true\n"
        );
        for (circuit, [to_far, to_near]) in CIRCUITS.into_iter().zip(WIRES) {
            let (label_out, label_in) = if is_near { (to_far, to_near) } else { (to_near, to_far) };
            text += &format!(
                "[[circuit]]\nname = \"{circuit}\"\nethernet = \"{circuit}\"\n\
                 [[pseudowire]]\nname = \"of-{circuit}\"\ncircuit = \"{circuit}\"\nlabel_in = {label_in}\n\
                 label_out = {label_out}\nlsp = \"out\"\nfrom = {{ link = \"{CORE}\", tunnel = {back} }}\n"
            );
        }
        text
    };
    [
        (CORE, lsr.concat()),
        (LER1, edge(LER1, [100, 300], true)),
        (LER2, edge(LER2, [310, 101], false)),
    ]
}
