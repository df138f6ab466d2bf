//! A remote disk that changes its size: what stands on it follows, through as many servers as there
//! are.

use std::path::Path;

use crate::common::{Server, configuration};
use serde_json::Value;

fn folder(directory: &Path, name: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

fn remote(server: &Server, volume: &str) -> String {
    format!("nvme+tcp://{}/nqn.2026-11.net.plateway:{volume}/1?ddgst=0", server.address)
}

fn volume_bytes(bytes: u64) -> impl Fn(&Value) -> bool {
    move |status| status["volumes"][0]["bytes"] == bytes
}

#[test]
fn a_volume_follows_its_remote_disk_to_the_last_host() {
    let directory = tempfile::tempdir().unwrap();
    let here = folder(directory.path(), "below");
    let sized = |uri: &str| configuration(&[("n", uri)], &[("v0", "disks = [\"n\"]")]);
    let below = Server::configured(&here, &sized("null:64MiB"));
    let uri = remote(&below, "v0");
    let above = Server::of(directory.path(), "above", &uri);
    // A host of the second server, which is told by an event.
    let top = Server::of(directory.path(), "top", &remote(&above, "v0"));
    assert_eq!(top.status()["volumes"][0]["bytes"], 64 << 20);
    for (size, bytes) in [("256MiB", 256 << 20), ("32MiB", 32 << 20), ("48MiB", 48 << 20)] {
        below.apply(&sized(&format!("null:{size}")));
        above.wait_for("the size above", volume_bytes(bytes));
        let status = top.wait_for("the size at the top", volume_bytes(bytes));
        assert_eq!(status["disks"][0]["bytes"], bytes);
        assert_eq!(status["volumes"][0]["problem"], Value::Null);
    }
    let told = above.wait_for_log("-> 32 MiB, as it is now");
    assert!(told.contains("disk d0: 64 MiB -> 256 MiB, as it is now"), "{told}");
}

#[test]
fn a_member_that_became_too_small_is_told_and_nothing_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let here = folder(directory.path(), "below");
    let disks = |size: &str| {
        let volumes =
            [("v0", "disks = [\"n\"]".to_owned()), ("v1", format!("disks = [\"m\"]{size}"))];
        let volumes: Vec<(&str, &str)> = volumes.iter().map(|(n, v)| (*n, v.as_str())).collect();
        configuration(&[("n", "ram:16MiB"), ("m", "ram:16MiB")], &volumes)
    };
    let below = Server::configured(&here, &disks(""));
    let (x, y) = (remote(&below, "v0"), remote(&below, "v1"));
    let own = [("x", x.as_str()), ("y", y.as_str())];
    let stripe = ("s", "layout = \"stripe\"\ndisks = [\"x\", \"y\"]");
    let above = Server::configured(directory.path(), &configuration(&own, &[stripe]));
    assert_eq!(above.status()["volumes"][0]["bytes"], 30 << 20);
    below.apply(&disks("\nsize = \"8MiB\""));
    let status = above.wait_for("the problem", |status| !status["volumes"][0]["problem"].is_null());
    let problem = status["volumes"][0]["problem"].as_str().unwrap();
    assert!(
        problem.contains("disk y is too small: expected at least 16 MiB, seen 8 MiB"),
        "{problem}"
    );
    assert_eq!(status["volumes"][0]["bytes"], 30 << 20);
    assert!(above.ask(&["status"]).contains(problem));
    above.wait_for_log(problem);
    below.apply(&disks(""));
    above.wait_for("the end of it", |status| status["volumes"][0]["problem"].is_null());
    assert_eq!(above.status()["volumes"][0]["bytes"], 30 << 20);
}
