//! An edge: one circuit, and what its frames go by; what it is told and which frames it is sent.
//!
//! ```text
//!   push, GRE, L2TP   customer's frames -> mpls-in (circuit)    mpls-out (core, or IP) -> sink
//!   pop               numbered packets  -> mpls-in (core port)  mpls-out (circuit)     -> sink
//! ```
//!
//! Frames have 1,078 bytes where they have labels and 1,052 where they have none, so that the
//! customer's are the same everywhere. All ends number what they send and look at the numbers of
//! what comes, as is the default.

use super::{Plan, Role};
use crate::bench::lan::{ROUTER_IN, ROUTER_OUT, SINK_MAC};

/// Addresses of the router and of where its tunnels end.
pub(super) const OWN: &str = "192.0.2.1";
pub(super) const PEER: &str = "192.0.2.2";
/// Labels of what the generator sends: the tunnel's, and the pseudowire's.
const TUNNEL: u32 = 16;
const BOTTOM: u32 = 1000;

/// How the generator is to make frames for a router of this plan.
pub(super) fn frames(plan: &Plan) -> &'static [&'static str] {
    // Two labels and a control word are 12 bytes, the header around the customer's frame 14.
    const LABELLED: &[&str] = &["--size=1078"];
    const NUMBERED: &[&str] = &["--size=1078", "--sequence"];
    const PLAIN: &[&str] = &["--size=1052", "--plain"];
    match plan.role {
        Role::Swap => LABELLED,
        Role::Pop => NUMBERED,
        Role::Push | Role::Gre | Role::L2tp => PLAIN,
    }
}

/// What an edge is told; nothing of a router that is none.
pub(super) fn configuration(role: Role) -> Option<String> {
    let circuit =
        |interface: &str| format!("[[circuit]]\nname = \"c\"\nethernet = \"{interface}\"\n");
    let tunnel = |more: &str| {
        circuit(ROUTER_IN)
            + &format!(
                "[[tunnel]]\nname = \"t\"\ncircuit = \"c\"\npeer = \"{PEER}\"\nlocal = \"{OWN}\"\n{more}\n"
            )
    };
    Some(match role {
        Role::Swap => return None,
        Role::Push => pseudowire(ROUTER_OUT) + &circuit(ROUTER_IN),
        Role::Pop => pseudowire(ROUTER_IN) + &circuit(ROUTER_OUT),
        Role::Gre => tunnel("gre = { key = 7 }"),
        Role::L2tp => tunnel("l2tp = { session_in = 7, session_out = 8 }"),
    })
}

/// The circuit's pseudowire both ways by one core port.
fn pseudowire(core: &str) -> String {
    format!(
        "[[link]]\nethernet = \"{core}\"\nmpls = true\n\
         [[lsp]]\nname = \"out\"\nlink = \"{core}\"\nnext_hop = \"{SINK_MAC}\"\nlabels = [100]\n\
         [[ilm]]\nlabel = {TUNNEL}\npop = true\n\
         [[pseudowire]]\nname = \"w\"\ncircuit = \"c\"\nlabel_in = {BOTTOM}\nlabel_out = 2000\n\
         lsp = \"out\"\nfrom = {{ link = \"{core}\", tunnel = {TUNNEL} }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_has_a_circuit_at_one_side_and_the_core_at_the_other() {
        assert_eq!(configuration(Role::Swap), None);
        for (role, circuit, other) in [
            (Role::Push, ROUTER_IN, "[[pseudowire]]"),
            (Role::Pop, ROUTER_OUT, "[[pseudowire]]"),
            (Role::Gre, ROUTER_IN, "gre = { key = 7 }"),
            (Role::L2tp, ROUTER_IN, "session_in = 7"),
        ] {
            let text = configuration(role).unwrap();
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table["circuit"][0]["ethernet"].as_str(), Some(circuit), "{text}");
            assert!(text.contains(other), "{text}");
        }
    }
}
