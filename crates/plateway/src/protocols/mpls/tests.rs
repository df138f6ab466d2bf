//! What tables of routers mean, that they are written as they are read, which labels are for
//! something else, and what goes in a circle.

use super::loops::circles;
use super::*;
use crate::config::model::HiArgs;
use crate::config::plan::plan;
use crate::config::tests::good;
use crate::config::text::config_text;
use mpls::Via;

/// Two ports, a circuit, and a pseudowire on it.
const LER: &str = r#"
[[router]]
name = "ler1"
[[link]]
ethernet = "eth1"
mpls = true
explicit_null = true
[[link]]
name = "back"
ethernet = "eth3"
vlan = 7
mpls = true
rate = "2500kbit"
[[link]]
name = "wan"
udp = { peer = "192.0.2.7", local = "192.0.2.1" }
poll = "50us"
mpls = true
rate = "1 gbit"
[[link]]
name = "wan6"
udp = { peer = "2001:db8::7" }
mpls = true
explicit_null = true
[[lsp]]
name = "c"
link = "wan"
labels = [130]
backup = { link = "wan6", labels = [900, 130] }
[[circuit]]
ethernet = "eth2.5"
traffic_classes = [0, 0, 0, 0, 4, 4, 6, 6]
poll = "50us"
[[lsp]]
name = "a"
link = "eth1"
next_hop = "02:00:00:00:00:02"
labels = [100, 0]
backup = { link = "back", next_hop = "02:00:00:00:00:03", labels = [900, 100, 0] }
mtu = 1526
[[lsp]]
name = "b"
link = "back"
next_hop = "02:00:00:00:00:03"
labels = []
backup = { link = "eth1", next_hop = "fe80::4", labels = [] }
[[ilm]]
label = 300
fec = "b-a"
pop = true
[[ilm]]
label = 400
from = "back"
link = "eth1"
next_hop = "02:00:00:00:00:02"
labels = [401, 402]
backup = { link = "back", next_hop = "02:00:00:00:00:03", labels = [] }
[[neighbour]]
link = "eth1"
next_hop = "02:00:00:00:00:02"
address = "10.0.1.2"
bfd = { interval = "50ms" }
[[neighbour]]
link = "eth1"
next_hop = "fe80::4"
address = "fe80::4"
[[ilm]]
label = 500
link = "eth1"
next_hop = "10.0.1.2"
labels = [501]
[[pseudowire]]
name = "p"
circuit = "eth2.5"
label_in = 1001
label_out = 2001
lsp = "a"
backup = "b"
bfd = { interval = "3300us", multiplier = 5, revert = "0s" }
from = [{ link = "eth1", tunnel = 2 }, { link = "back", tunnel = 300, backup = true }]
sequence = "off"
[[pseudowire]]
name = "here"
mac = "02:00:00:00:00:09"
label_in = 1002
label_out = 2002
lsp = "a"
from = { link = "eth1", tunnel = 300 }
control_word = false
[[circuit]]
name = "many"
ethernet = "eth4"
split = "aoe"
[[pseudowire]]
name = "near"
circuit = "many"
class = "7.0"
label_in = 1009
label_out = 2009
lsp = "a"
from = { link = "eth1", tunnel = 300 }
sequence = "reorder"
clamp = true
[[tunnel]]
name = "far"
circuit = "many"
class = "7.1"
peer = "192.0.2.2"
gre = { key_in = 7, key_out = 8 }
[[tunnel]]
name = "farther"
circuit = "many"
class = "7.2"
peer = "2001:db8::2"
local = "2001:db8::1"
l2tp = { session_in = 7, session_out = 8, cookie_in = "5eed1234", cookie_out = "0123456789abcdef", peer_port = 1702 }
sequence = "reorder"
"#;

#[test]
fn a_router_written_out_reads_back_as_the_same() {
    let first = good(LER);
    let routing = &first.routing;
    let counts = (routing.ports.len(), routing.circuits.len(), routing.ilms.len());
    assert_eq!((counts, routing.lsps.len(), routing.pseudowires.len()), ((4, 2, 3), 3, 3));
    assert_eq!((routing.tunnels.len(), routing.neighbours.len()), (2, 2));
    assert!(routing.lsps[0].backup.is_some() && routing.ilms[1].backup.is_some());
    assert_eq!(good(&config_text(&first)), first);
}

#[test]
fn a_pseudowire_is_watched_as_usual_unless_told() {
    let args =
        good(&LER.replace(
            "bfd = { interval = \"3300us\", multiplier = 5, revert = \"0s\" }",
            "bfd = {}",
        ));
    let bfd = args.routing.pseudowires[0].bfd.expect("it is watched");
    let times = (bfd.interval.as_millis(), bfd.multiplier, bfd.revert.as_secs());
    assert_eq!((times, args.routing.pseudowires[1].bfd), ((300, 3, 5), None));
}

#[test]
fn a_router_that_nobody_wrote_has_a_name_and_a_minute_of_quarantine() {
    let args = good(&LER.replace("[[router]]\nname = \"ler1\"\n", ""));
    let [RouterConfig { name, quarantine }] = args.routing.routers.as_slice() else {
        panic!("{:?}", args.routing.routers)
    };
    assert_eq!((name.as_str(), quarantine.as_secs()), ("router", 60));
    assert!(good("").routing.routers.is_empty());
}

#[test]
fn things_come_after_what_they_name_and_kinds_in_their_order() {
    let kinds: Vec<usize> = good(LER).routing.things().map(|thing| thing.kind()).collect();
    assert!(kinds.is_sorted() && kinds.last() == Some(&(Routed::KINDS - 1)), "{kinds:?}");
}

/// What a plan refuses on the way from `LER` to it with one text replaced.
fn refused(from: &str, to: &str) -> Vec<String> {
    assert!(LER.contains(from), "{from}");
    let plan = plan(&good(LER), &good(&LER.replace(from, to)));
    plan.map_or_else(|refused| refused.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

#[test]
fn a_label_becomes_nothing_else_at_once() {
    for (from, to) in [
        ("fec = \"b-a\"", "fec = \"c-a\""),
        ("labels = [401, 402]", "labels = [403]"),
        ("circuit = \"eth2.5\"\nlabel_in", "label_in"),
        ("name = \"here\"", "name = \"there\""),
    ] {
        let refused = refused(from, to);
        let [why] = refused.as_slice() else { panic!("{to}: {refused:?}") };
        assert!(why.contains("packets for it may be on their way"), "{why}");
    }
    for (from, to) in [
        ("fec = \"b-a\"\n", ""),
        ("label_in = 1002", "label_in = 1003"),
        ("labels = [100, 0]", "labels = []"),
        // What is beside a path is no part of what its label is for.
        ("backup = { link = \"back\", next_hop = \"02:00:00:00:00:03\", labels = [] }\n", ""),
        ("label_out = 2001", "label_out = 2003"),
        ("control_word = false", "control_word = true"),
    ] {
        assert_eq!(refused(from, to), [""; 0], "{to}");
    }
}

/// The circles of routers whose ports have these addresses.
fn found(text: &str, addresses: &[(&str, &str)]) -> Vec<String> {
    let args: HiArgs = good(text);
    let addresses_of = |link: &str| -> Vec<Via> {
        let its = addresses.iter().filter(|(name, _)| *name == link);
        let parsed = its.map(|(_, text)| match text.parse() {
            Ok(ip) => Via::Ip(ip),
            Err(_) => Via::Mac(text.parse().expect("an address")),
        });
        parsed.collect()
    };
    circles(&args.routing, addresses_of).into_iter().map(|circle| circle.words).collect()
}

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";

fn ilm(label: u32, next_hop: &str, labels: &str) -> String {
    format!(
        "[[ilm]]\nlabel = {label}\nlink = \"eth1\"\nnext_hop = \"{next_hop}\"\nlabels = {labels}\n"
    )
}

#[test]
fn labels_that_lead_back_to_where_they_were_are_a_circle() {
    let ports =
        "[[link]]\nethernet = \"eth1\"\nmpls = true\n[[link]]\nethernet = \"eth3\"\nmpls = true\n";
    let here = [("eth1", A), ("eth3", B)];
    let swapped = ports.to_owned() + &ilm(200, B, "[201]") + &ilm(201, A, "[200]");
    let said = "packets go in a circle: ilm 200 -> ilm 201 -> ilm 200";
    assert_eq!(found(&swapped, &here), [said]);
    // The next router is another machine, as far as is seen.
    assert_eq!(found(&swapped, &[("eth1", A)]), [""; 0]);
    let itself = ports.to_owned() + &ilm(200, A, "[200]");
    assert_eq!(found(&itself, &here), ["packets go in a circle: ilm 200 -> ilm 200"]);
    // The same by addresses of IP.
    let ip = ports.to_owned() + &ilm(200, "10.0.3.1", "[201]") + &ilm(201, A, "[200]");
    let here_by_ip = [("eth1", A), ("eth3", B), ("eth3", "fd00::3"), ("eth3", "10.0.3.1")];
    assert_eq!(found(&ip, &here_by_ip), [said]);
    assert_eq!(found(&ip, &here), [""; 0]);
    // A label that is popped shows the one below, which is followed.
    let below =
        ports.to_owned() + &ilm(200, B, "[300, 200]") + "[[ilm]]\nlabel = 300\npop = true\n";
    assert_eq!(found(&below, &here), ["packets go in a circle: ilm 300 -> ilm 200 -> ilm 300"]);
    // Each round takes one label off, and there were two.
    let ends = ports.to_owned() + &ilm(200, B, "[]");
    assert_eq!(found(&ends, &here), [""; 0]);
    // What gets deeper each time does not end.
    let deeper = ports.to_owned() + &ilm(200, B, "[200, 16]");
    assert_eq!(found(&deeper, &here), ["packets go in a circle: ilm 200 -> ilm 200"]);
    // A link's own label goes before that of all.
    let own = ports.to_owned()
        + &ilm(200, B, "[200]")
        + "[[ilm]]\nlabel = 200\nfrom = \"eth3\"\nlink = \"eth3\"\nnext_hop = \"02:00:00:00:00:0c\"\nlabels = [7]\n";
    let own = own.replace("labels = [7]", "labels = [700]");
    assert_eq!(found(&own, &here), [""; 0]);
    // What goes elsewhere, and comes back while that fails.
    let around = ports.to_owned()
        + &ilm(200, "02:00:00:00:00:0c", "[700]")
        + &format!("backup = {{ link = \"eth3\", next_hop = \"{A}\", labels = [200] }}\n");
    assert_eq!(found(&around, &here), ["packets go in a circle: ilm 200 -> ilm 200"]);
}

#[test]
fn labels_that_lead_back_in_udp_are_a_circle_where_both_ends_are_here_and_say_so() {
    let link = |name: &str, udp: &str| {
        format!("[[link]]\nname = \"{name}\"\nudp = {{ {udp} }}\nmpls = true\n")
    };
    let ilm = |label: u32, link: &str, next: u32| {
        format!("[[ilm]]\nlabel = {label}\nlink = \"{link}\"\nlabels = [{next}]\n")
    };
    let labels = ilm(200, "one", 201) + &ilm(201, "two", 200);
    let [one, two] = ["127.0.0.1", "127.0.0.2"];
    let ends = |one_says: &str, two_says: &str| {
        link("one", &format!("peer = \"{two}\"{one_says}"))
            + &link("two", &format!("peer = \"{one}\"{two_says}"))
            + &labels
    };
    let (from_one, from_two) = (format!(", local = \"{one}\""), format!(", local = \"{two}\""));
    let said = "packets go in a circle: ilm 200 -> ilm 201 -> ilm 200";
    assert_eq!(found(&ends(&from_one, &from_two), &[]), [said]);
    // What one does not say is not seen.
    assert_eq!(found(&ends(&from_one, ""), &[]), [""; 0]);
    assert_eq!(found(&ends("", ""), &[]), [""; 0]);
    let itself = link("one", &format!("peer = \"{one}\"{from_one}")) + &ilm(200, "one", 200);
    assert_eq!(found(&itself, &[]), ["packets go in a circle: ilm 200 -> ilm 200"]);
}
