//! A change of one value of what is served: the configuration that results, which is applied like
//! any other. So it is the same steps, and nothing else changes what is served.
//!
//! Errors are for whoever asked: what was expected, and what is there.

use super::model::HiArgs;
use super::size::Size;
use crate::protocols::{ExportConfig, HostConfig, HostWord};

/// A change of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The `size` of a volume; none is all that its disks have.
    Resize { volume: String, bytes: Option<u64> },
    /// Whether a host, by what it is called or by its name, may use the exports of a volume.
    Host { volume: String, host: String, may: bool },
}

impl Edit {
    /// The configuration with it.
    pub(crate) fn of(&self, args: &HiArgs) -> Result<HiArgs, String> {
        let mut args = args.clone();
        match self {
            Edit::Resize { volume, bytes } => {
                let names = volumes(&args);
                let found = args.volumes.iter_mut().find(|one| one.name == *volume);
                found.ok_or_else(|| none(volume, &names))?.size_bytes = *bytes;
            }
            Edit::Host { volume, host, may } => {
                let names = volumes(&args);
                let of_volume: Vec<_> =
                    args.exports.iter().filter(|one| one.volume() == volume).cloned().collect();
                if of_volume.is_empty() {
                    return Err(match names.contains(volume) {
                        true => format!(
                            "volume {volume} is not exported: add an [[export]] of it to the configuration, then: plateway apply FILE"
                        ),
                        false => none(volume, &names),
                    });
                }
                // By each name as far as its protocol goes; one that is there already, or is there
                // no more, fails nothing where another is changed.
                let named = args.hosts.iter().find(|one| one.name == *host);
                let called = named.map_or_else(|| vec![host.clone()], HostConfig::called_at_all);
                let (mut is_known, mut failed) = (false, None);
                for export in &mut args.exports {
                    if !of_volume.iter().any(|one| one.shares_hosts(export)) {
                        continue;
                    }
                    for name in &called {
                        match export.with_host(name, *may) {
                            Some(Ok(changed)) => (*export, is_known) = (changed, true),
                            Some(Err(why)) => failed = Some(why),
                            None => {}
                        }
                    }
                }
                if let Some(why) = failed.filter(|_| !is_known || called.len() == 1) {
                    return Err(format!("volume {volume}: {why}"));
                }
                if !is_known {
                    let seen = match named {
                        Some(_) => {
                            format!("host {host}, which is called {}", called.join(", "))
                        }
                        None => seen(host, &of_volume),
                    };
                    return Err(format!(
                        "expected a host as the exports of volume {volume} name them ({}), or the name of a [[host]] that is called so{}, seen {seen}",
                        kinds(&of_volume).join(", "),
                        all_of(&args.hosts)
                    ));
                }
            }
        }
        Ok(args)
    }

    /// That it changes nothing, as all is so already.
    pub(crate) fn is_so(&self) -> String {
        match self {
            Edit::Resize { volume, .. } => format!("volume {volume} has this size already"),
            Edit::Host { volume, host, .. } => {
                format!("{host} is among the hosts of volume {volume} already")
            }
        }
    }

    /// The command that makes it.
    pub(crate) fn command(&self) -> String {
        match self {
            Edit::Resize { volume, bytes } => {
                let size = bytes.map_or_else(|| "all".to_owned(), |bytes| Size(bytes).to_string());
                format!("volume resize {volume} {size}")
            }
            Edit::Host { volume, host, may: true } => format!("host add {volume} {host}"),
            Edit::Host { volume, host, may: false } => format!("host remove {volume} {host}"),
        }
    }
}

fn volumes(args: &HiArgs) -> Vec<String> {
    args.volumes.iter().map(|volume| volume.name.clone()).collect()
}

fn none(volume: &str, names: &[String]) -> String {
    match names {
        [] => format!("there is no volume {volume}, nor any other"),
        names => format!("there is no volume {volume}: expected one of {}", names.join(", ")),
    }
}

/// How exports name hosts, each way once.
fn kinds(exports: &[ExportConfig]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for export in exports {
        let kind = format!("{} over {}", export.host_word(), export.protocol());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// What was written in place of a host of these exports.
fn seen(host: &str, exports: &[ExportConfig]) -> String {
    match HostWord::of(host) {
        Some(HostWord { wrong: Some(why), .. }) => why,
        Some(HostWord { word, protocol, .. })
            if exports.iter().all(|export| export.protocol() != protocol) =>
        {
            format!("{host:?}, {word}: over {protocol} it is not exported")
        }
        _ => format!("{host:?}"),
    }
}

/// The hosts that have names.
fn all_of(hosts: &[HostConfig]) -> String {
    let names: Vec<&str> = hosts.iter().map(|host| &*host.name).collect();
    if names.is_empty() {
        " (there is none)".to_owned()
    } else {
        format!(" ({})", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::good;
    use super::*;

    #[test]
    fn a_host_is_named_in_one_lun_of_a_target_and_not_in_the_others() {
        let export = |volume: &str, lun: u16, hosts: &str| {
            format!(
                "[[disk]]\nname = \"{volume}\"\nuri = \"ram:1MiB\"\n[[volume]]\nname = \"{volume}\"\ndisks = [\"{volume}\"]\n\
                 [[export]]\nvolume = \"{volume}\"\niscsi = {{ target = \"iqn.2026-11.a:t\", lun = {lun}, hosts = {hosts} }}\n\
                 nvme = {{ subsystem = \"nqn.2026-11.a:{volume}\", nsid = 1, hosts = [] }}\n"
            )
        };
        let args = good(&[export("a", 0, "[\"iqn.2026-11.a:h\"]"), export("b", 1, "[]")].concat());
        let edit = |host: &str, may| Edit::Host { volume: "a".into(), host: host.into(), may };
        let hosts = |args: &HiArgs| -> Vec<String> {
            args.exports.iter().map(|export| export.values()[0].1.clone()).collect()
        };
        let h = "iqn.2026-11.a:h";
        assert_eq!(hosts(&args), ["none", "none", h, "none"]);
        let more = edit("IQN.2026-11.A:I", true).of(&args).unwrap();
        assert_eq!(hosts(&more), ["none", "none", "iqn.2026-11.a:h, iqn.2026-11.a:i", "none"]);
        assert_eq!(edit("iqn.2026-11.a:i", false).of(&more).unwrap(), args);
        let both = edit("nqn.2026-11.a:h", true).of(&args).unwrap();
        assert_eq!(hosts(&both), ["nqn.2026-11.a:h", "none", h, "none"]);
        for (host, words) in [
            ("me", "(an NQN over NVMe/TCP, an IQN over iSCSI), or the name"),
            ("me", "(there is none), seen \"me\""),
            ("nqn.me", "seen NQN \"nqn.me\": expected"),
            ("02:00:00:00:00:01", "a MAC address: over AoE it is not exported"),
        ] {
            let error = edit(host, true).of(&args).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let bare = good(
            "[[disk]]\nname = \"d\"\nuri = \"ram:1MiB\"\n[[volume]]\nname = \"a\"\ndisks = [\"d\"]\n",
        );
        let error = edit(h, true).of(&bare).unwrap_err();
        assert!(error.starts_with("volume a is not exported: add an [[export]]"), "{error}");
        let error = edit(h, true).of(&good("")).unwrap_err();
        assert_eq!(error, "there is no volume a, nor any other");
    }

    #[test]
    fn a_host_is_named_in_all_exports_of_its_subsystem_and_in_no_other() {
        let export = |volume: &str, subsystem: &str, nsid: u32| {
            format!(
                "[[disk]]\nname = \"{volume}\"\nuri = \"ram:1MiB\"\n[[volume]]\nname = \"{volume}\"\ndisks = [\"{volume}\"]\n\
                 [[export]]\nvolume = \"{volume}\"\nnvme = {{ subsystem = \"nqn.2026-11.a:{subsystem}\", nsid = {nsid}, hosts = [\"nqn.2026-11.a:h\"] }}\n"
            )
        };
        let args = good(&[export("a", "s", 1), export("b", "s", 2), export("c", "t", 1)].concat());
        let edit = |host: &str, may| Edit::Host { volume: "a".into(), host: host.into(), may };
        let hosts = |args: &HiArgs| -> Vec<String> {
            args.exports.iter().map(|export| export.values()[0].1.clone()).collect()
        };
        let (h, both) = ("nqn.2026-11.a:h", "nqn.2026-11.a:h, nqn.2026-11.a:i");
        let more = edit("nqn.2026-11.a:i", true).of(&args).unwrap();
        assert_eq!(hosts(&more), [both, both, h]);
        assert_eq!(edit("nqn.2026-11.a:i", true).of(&more), Ok(more.clone()), "twice");
        let less = edit("nqn.2026-11.a:i", false).of(&more).unwrap();
        assert_eq!(less, args);
        let none = edit(h, false).of(&args).unwrap();
        assert_eq!(hosts(&none), ["none", "none", h]);
        for (edit, why) in [
            (edit("nqn.2026-11.a:x", false), "is not among the hosts"),
            (edit("02:00:00:00:00:01", true), "expected a host as the exports"),
            (Edit::Resize { volume: "x".into(), bytes: None }, "expected one of a, b, c"),
        ] {
            let error = edit.of(&args).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
