//! What a configuration means, and what is said of one that is wrong.

use super::super::check;
use super::super::link::LinkConfig;
use super::super::server::DriverChoice;
use super::super::tests::{GOOD, defaults, good, judge, text_of};
use super::super::volume::Layout;
use super::*;
use crate::protocols::ExportConfig;

/// Every error and warning of a text, with `p.toml:` cut off.
fn found(text: &str) -> Vec<String> {
    let found = check("p.toml", text, &defaults());
    let found = found.map_or_else(|wrong| wrong, |checked| checked.warnings);
    found.lines().map(|line| line.strip_prefix("p.toml:").unwrap_or(&line).to_owned()).collect()
}

#[test]
fn every_mistake_is_said_at_its_line_and_nothing_else_is() {
    judge(include_str!("../tests/mistakes.txt"), |case| match found(&text_of(case)) {
        none if none.is_empty() => vec!["nothing".to_owned()],
        lines => lines,
    });
}

#[test]
fn a_text_that_is_no_toml_is_said_at_its_line_and_nothing_is_guessed() {
    let syntax = found("[server]\nmemory = \n[[disk]]\n");
    assert!(syntax.len() == 1 && syntax[0].starts_with("2: error: "), "{syntax:?}");
}

#[test]
fn everything_is_defaulted() {
    let args = good(GOOD);
    assert_eq!(found(GOOD), [""; 0]);
    assert_eq!((args.server.memory_bytes, args.server.driver), (256 << 20, DriverChoice::Auto));
    assert_eq!(
        (args.server.connections_max, args.server.connections_per_host_max),
        (16_384, 12_288)
    );
    assert_eq!(args.server.control, PathBuf::from("/run/p/control.sock"));
    let volume = &args.volumes[0];
    let disks = vec!["d0".to_owned(), "d1".to_owned()];
    assert_eq!(volume.layout, Layout::Stripe { disks, chunk_bytes: 65_536 });
    assert_eq!((volume.block_size, volume.uuid, volume.size_bytes), (512, None, None));
    assert_eq!(
        (args.listeners[0].poll, args.listeners[0].connections_max),
        (contract::Poll::Auto, 16_384)
    );
    assert_eq!(args.disks[1].uri.to_string(), "ram:512MiB");
    assert_eq!(good("").server.shards, [0, 1, 2, 3]);
}

#[test]
fn the_number_of_shards_fits_the_memory() {
    assert_eq!(good("[server]\nmemory = \"32MiB\"").server.shards, [0, 1]);
    assert_eq!(good("[server]\nmemory = 16777216").server.shards, [0]);
}

#[test]
fn one_host_may_have_the_only_connection() {
    assert_eq!(good(&text_of("@2 max_connections = 1")).server.connections_per_host_max, 1);
}

#[test]
fn a_volume_has_one_disk_unless_told_and_blocks_and_sizes_are_taken() {
    let alone =
        "[[disk]]\nname = \"d0\"\nuri = \"null:1TiB\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]";
    assert_eq!(good(alone).volumes[0].layout, Layout::Single { disk: "d0".to_owned() });
    assert_eq!(good(&text_of("@13 block_size = 4096")).volumes[0].block_size, 4096);
    let sized = good(&text_of("@13 block_size = \"4KiB\"\nsize = \"1MiB\""));
    assert_eq!(sized.volumes[0].size_bytes, Some(1 << 20));
}

/// An export of `v0` over AoE.
fn aoe(keys: &str) -> String {
    format!("aoe = {{ {keys}, shelf = 7, slot = 0, hosts = [\"02:00:00:00:00:0A\"] }}\n")
}

/// The links on which the AoE export of a configuration is, and all links.
fn links_of(args: &HiArgs) -> (Vec<&str>, Vec<String>) {
    let export = args.exports.iter().find_map(ExportConfig::as_aoe).expect("an export");
    let link = |one: &LinkConfig| format!("{}: {} {}", one.name, one.ethernet, one.access);
    (export.links.iter().map(String::as_str).collect(), args.links.iter().map(link).collect())
}

#[test]
fn an_aoe_export_has_an_address_stations_and_links() {
    let args = good(&text_of(&("@18 ".to_owned() + &aoe("interface = [\"eth1\", \"eth2\"]"))));
    let [ExportConfig::Aoe(export)] = args.exports.as_slice() else { panic!("{:?}", args.exports) };
    assert_eq!((export.address.to_string(), export.buffers), ("7.0".into(), 64));
    assert_eq!(export.hosts.to_string(), "02:00:00:00:00:0a");
    let (on, all) = links_of(&args);
    assert_eq!(
        (on, all),
        (
            vec!["eth1", "eth2"],
            vec!["eth1: eth1 packet".to_owned(), "eth2: eth2 packet".to_owned()]
        )
    );
}

#[test]
fn the_vlan_of_an_export_is_that_of_its_listener() {
    let listener = |more: &str| format!("[[listener]]\naoe = \"eth1\"\n{more}\n");
    let tagged = listener("vlan = 5");
    let both = tagged.clone() + &listener("");
    for (listeners, keys, on, links) in [
        ("", "interface = \"eth1\"", "eth1", 1),
        (&tagged, "interface = \"eth1\"", "eth1 vlan 5", 1),
        (&tagged, "interface = \"eth1\", vlan = 6", "eth1 vlan 6", 2),
        (&both, "interface = \"eth1\"", "eth1", 2),
    ] {
        let args = good(&text_of(&("@19 ".to_owned() + &aoe(keys) + listeners)));
        let (found, all) = links_of(&args);
        assert_eq!((found.as_slice(), all.len()), (&[on][..], links), "{keys} {listeners}");
    }
}

#[test]
fn links_have_a_name_and_interfaces_lead_to_them() {
    let links = "[[link]]\nname = \"san\"\nethernet = \"eth1\"\nvlan = 5\naccess = \"xdp\"\n[[link]]\nethernet = \"eth2\"\n";
    for (keys, wanted) in
        [("link = [\"san\", \"eth2\"]", &["san", "eth2"][..]), ("interface = [\"eth1\"]", &["san"])]
    {
        let args = good(&text_of(&("@19 ".to_owned() + &aoe(keys) + links)));
        let (on, all) = links_of(&args);
        assert_eq!(on, wanted, "{keys}");
        assert_eq!(all, ["san: eth1 vlan 5 xdp", "eth2: eth2 packet"]);
    }
}
