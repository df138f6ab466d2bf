//! What a command takes of a configuration for a pseudowire that it uses.

use crate::config::tests::good;

const ROUTER: &str = "
[[link]]
ethernet = \"eth1\"
mpls = true
[[link]]
ethernet = \"eth3\"
mpls = true
[[link]]
ethernet = \"eth4\"
mpls = true
[[circuit]]
name = \"serv1\"
ethernet = \"eth2\"
[[lsp]]
name = \"a\"
link = \"eth1\"
next_hop = \"02:00:00:00:00:02\"
labels = [100]
backup = { link = \"eth3\", next_hop = \"02:00:00:00:00:03\", labels = [500, 100] }
[[lsp]]
name = \"b\"
link = \"eth4\"
next_hop = \"02:00:00:00:00:04\"
labels = [110]
[[neighbour]]
link = \"eth1\"
next_hop = \"02:00:00:00:00:02\"
address = \"10.0.1.2\"
[[neighbour]]
link = \"eth4\"
next_hop = \"02:00:00:00:00:04\"
address = \"10.0.4.2\"
[[ilm]]
label = 300
pop = true
[[ilm]]
label = 301
pop = true
[[ilm]]
label = 400
link = \"eth4\"
next_hop = \"02:00:00:00:00:04\"
labels = [401]
[[pseudowire]]
name = \"serv1-lx\"
circuit = \"serv1\"
label_in = 1001
label_out = 2001
lsp = \"b\"
from = { link = \"eth4\", tunnel = 301 }
[[pseudowire]]
name = \"store\"
label_in = 1002
label_out = 2002
lsp = \"a\"
from = { link = \"eth1\", tunnel = 300 }
[[pseudowire]]
name = \"other\"
label_in = 1003
label_out = 2003
lsp = \"b\"
from = { link = \"eth4\", tunnel = 301 }
[[disk]]
name = \"d0\"
uri = \"aoe://pw:store/7.0\"
[[disk]]
name = \"d1\"
uri = \"aoe://pw:other/7.0\"
";

fn titles(names: &[&str]) -> Option<Vec<String>> {
    let routing = good(ROUTER).routing.of_ends(names)?;
    Some(routing.things().map(|thing| thing.title()).collect())
}

#[test]
fn a_command_has_of_a_router_what_its_pseudowire_needs() {
    let alone = [
        "port eth1",
        "port eth3",
        "ilm 300",
        "lsp a",
        "pseudowire store",
        "neighbour 10.0.1.2 on eth1",
    ];
    let found = titles(&["store"]).expect("it ends here");
    assert_eq!(found[1..], alone, "and its router, which is first");
    assert!(found[0].starts_with("router "), "{found:?}");
    // Whom the file knows by an address of IP may be the one that a path knows by its MAC address.
    let by_ip = "next_hop = \"10.0.1.9\"\naddress = \"10.0.1.2\"";
    let by_mac = "next_hop = \"02:00:00:00:00:02\"\naddress = \"10.0.1.2\"";
    assert!(ROUTER.contains(by_mac));
    let routing = good(&ROUTER.replace(by_mac, by_ip)).routing.of_ends(&["store"]);
    assert_eq!(routing.expect("it ends here").neighbours.len(), 1);
    let both = titles(&["other", "store"]).expect("they end here");
    let added: Vec<&String> = both.iter().filter(|one| !found.contains(one)).collect();
    assert_eq!(added, ["port eth4", "ilm 301", "lsp b", "pseudowire other"]);
}

#[test]
fn one_with_a_circuit_is_a_customer_s() {
    assert_eq!(titles(&["serv1-lx"]), None);
    assert_eq!(titles(&["store", "nobody"]), None);
}
