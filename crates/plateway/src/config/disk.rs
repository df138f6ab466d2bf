//! `[[disk]]`: a name for a disk URI.
//!
//! No two disks may lead to the same blocks. In place a `file:` grows and a `null:` gets any size;
//! a `ram:` of another size and a smaller file would lose data. What is behind a URI is known only
//! once somebody looks.

use std::path::Path;

use block::ByteCount;
use contract::Poll;
use toml::Spanned;

use super::file::{NAME, table};
use super::mistake::{Mistake, Span};
use super::plan::Refused;
use super::poll::{POLL, POLL_KEY};
use super::resolve::Resolver;
use super::text::quoted;
use super::thing::{Change, Configured, SIZE_KEY, Thing};
use super::uri::{DiskUri, UriError};
use crate::protocols::pseudowire_title;

table! {
    LowDisk = "[[disk]]" {
        name: String = NAME,
        uri: String = "a disk in quotes, such as \"ram:512MiB\"",
        required: bool = "true or false",
        poll: String = POLL,
    }
}

/// `[[disk]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskConfig {
    /// Unique among disks.
    pub(crate) name: String,
    /// Where its blocks are; never a `volume:`.
    pub(crate) uri: DiskUri,
    /// Whether a start without it is none.
    pub(crate) required: bool,
    /// How long a shard looks for its answers before it sleeps.
    pub(crate) poll: Poll,
    /// Whether nobody writes to it: what `bench` reads, and what `copy` copies.
    pub(crate) read_only: bool,
    /// Whether a file or device is reached through the page cache in any case: what `bench --cached` asks.
    pub(crate) cached: bool,
}

/// What a disk is called in steps.
pub(crate) fn disk_title(name: &str) -> String {
    format!("disk {name}")
}

impl Configured for DiskConfig {
    fn title(&self) -> String {
        disk_title(&self.name)
    }

    fn details(&self) -> String {
        match self.poll {
            poll if poll != Poll::Auto && is_waited_for(&self.uri) => {
                format!(": {}, {POLL_KEY} {poll}", self.uri)
            }
            _ => format!(": {}", self.uri),
        }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let size = match self.uri.innermost() {
            DiskUri::Null { bytes } | DiskUri::File { create_bytes: Some(bytes), .. } => {
                ByteCount(*bytes).to_string()
            }
            _ => "as it is".to_owned(),
        };
        vec![(SIZE_KEY, size), (POLL_KEY, self.poll.to_string())]
    }

    fn stands_on(&self) -> Vec<String> {
        self.pseudowire().map(pseudowire_title).into_iter().collect()
    }

    fn excludes(&self, other: &Thing) -> bool {
        match other {
            Thing::Disk(other) => self.name == other.name || self.uri.same_backing(&other.uri),
            // One that is where it is reached.
            Thing::Export(other) => other.excludes(&Thing::Disk(self.clone())),
            _ => false,
        }
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let to = match to {
            Thing::Disk(to) if self.uri.same_instruments(&to.uri) => to,
            _ => return Ok(Change::Replace),
        };
        let name = self.name.clone();
        let polls_alike = self.poll == to.poll;
        if !polls_alike && matches!(self.uri.innermost(), DiskUri::Remote(_)) {
            return Ok(Change::Replace);
        }
        // Of a disk that is there.
        let otherwise = if polls_alike { Change::None } else { Change::Aside };
        if self.uri == to.uri {
            return Ok(otherwise);
        }
        match (self.uri.innermost(), to.uri.innermost()) {
            // Touched or not, it is there, with what was written to it.
            (DiskUri::Ram { bytes: from, .. }, DiskUri::Ram { bytes: to, .. }) if from == to => {
                Ok(Change::None)
            }
            (DiskUri::Ram { bytes: from_bytes, .. }, DiskUri::Ram { bytes: to_bytes, .. }) => {
                Err(Refused::RamResize { name, from_bytes: *from_bytes, to_bytes: *to_bytes })
            }
            (DiskUri::Null { .. }, DiskUri::Null { .. }) => Ok(Change::InPlace),
            (
                DiskUri::File { path: a, create_bytes: from, tail: was },
                DiskUri::File { path: b, create_bytes: to, tail },
            ) if a == b && was == tail => match (*from, *to) {
                (Some(from_bytes), Some(to_bytes)) if to_bytes < from_bytes => {
                    Err(Refused::FileShrink { name, from_bytes, to_bytes })
                }
                (_, Some(_)) => Ok(Change::InPlace),
                // The file is there: how it would be created no longer matters.
                (_, None) => Ok(otherwise),
            },
            _ => Ok(Change::Replace),
        }
    }

    fn text(&self) -> String {
        let (name, uri) = (quoted(&self.name), quoted(&self.uri.to_string()));
        let required = if self.required { "required = true\n" } else { "" };
        let poll = match is_waited_for(&self.uri) {
            true => format!("{POLL_KEY} = \"{}\"\n", self.poll),
            false => String::new(),
        };
        format!("[[disk]]\nname = {name}\nuri = {uri}\n{required}{poll}")
    }
}

impl DiskConfig {
    /// A disk of which nothing is said but its name and where its blocks are.
    pub(crate) fn plain(name: String, uri: DiskUri) -> Self {
        Self { name, uri, required: false, poll: Poll::default(), read_only: false, cached: false }
    }

    /// The pseudowire of this process behind which it is.
    pub(crate) fn pseudowire(&self) -> Option<&str> {
        match self.uri.innermost() {
            DiskUri::Remote(uri) => uri.pseudowire(),
            _ => None,
        }
    }

    /// Whether it is the same disk in memory as another, whenever either takes the memory.
    pub(crate) fn is_memory_of(&self, other: &DiskConfig) -> bool {
        let is_same = match (self.uri.innermost(), other.uri.innermost()) {
            (DiskUri::Ram { bytes: a, .. }, DiskUri::Ram { bytes: b, .. }) => a == b,
            _ => false,
        };
        is_same && self.name == other.name && self.uri.same_instruments(&other.uri)
    }

    /// The size from which `apply` grows its file, if it does; a file that has another size by then
    /// is left alone.
    pub(crate) fn grows(&self, to: &DiskConfig) -> Option<u64> {
        let change = self.change(&Thing::Disk(to.clone()));
        match (change, self.uri.innermost(), to.uri.innermost()) {
            (
                Ok(Change::InPlace),
                DiskUri::File { create_bytes: from, .. },
                DiskUri::File { create_bytes: to, .. },
            ) if from != to => *from,
            _ => None,
        }
    }
}

/// Whether a shard waits for its answers; memory gives them at once.
fn is_waited_for(uri: &DiskUri) -> bool {
    !matches!(uri.innermost(), DiskUri::Ram { .. } | DiskUri::Null { .. })
}

/// Whether the name of a block device says which it is, not in which order devices were met.
fn has_a_name_that_stays(path: &Path) -> bool {
    let of_device = path.strip_prefix("/dev").ok();
    let first = of_device.and_then(|name| name.iter().next()).and_then(|name| name.to_str());
    match first {
        Some("disk" | "mapper") => true,
        // Of LVM, ZFS, md and others, a folder with the names that people gave.
        Some(_) => of_device.is_some_and(|name| name.iter().count() > 1),
        None => true,
    }
}

impl Resolver<'_> {
    /// `usual` is the server's way to poll.
    pub(super) fn disks(&mut self, low: &[LowDisk], usual: Poll) -> Vec<DiskConfig> {
        let mut disks: Vec<DiskConfig> = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        for one in low {
            let poll = self.poll(&one.poll);
            let Some(written) = &one.uri else {
                self.missing(&one.span, "[[disk]]", "uri", "uri = \"ram:512MiB\"");
                continue;
            };
            let uri: DiskUri = match written.get_ref().parse() {
                Ok(uri) => uri,
                Err(error) => {
                    self.uri_mistake(written, error);
                    continue;
                }
            };
            if matches!(uri.innermost(), DiskUri::Volume { .. }) {
                let message = "a volume cannot be a disk of the configuration";
                let help = "name the disks of that volume instead";
                self.push(Mistake::error(written.span(), message).help(help));
                continue;
            }
            if let DiskUri::BlockDevice { path } = uri.innermost()
                && !has_a_name_that_stays(path)
            {
                let message = format!("{} may be another device after a boot", path.display());
                let help = "`ls -l /dev/disk/by-id` shows the names that stay with a device";
                self.push(Mistake::warning(written.span(), message).help(help));
            }
            let Some(name) = &one.name else { continue };
            let name = name.get_ref().clone();
            if let Some(first) = disks.iter().position(|disk| disk.uri.same_backing(&uri)) {
                let message = format!(
                    "disks {} and {name} are the same blocks: {}",
                    disks[first].name,
                    uri.innermost()
                );
                self.push(Mistake::error(written.span(), message).first(&spans[first]));
            }
            self.place(disk_title(&name), "", written.span());
            let required = one.required.as_ref().is_some_and(|required| *required.get_ref());
            if let Some(written) = one.poll.as_ref().filter(|_| !is_waited_for(&uri)) {
                let message = format!(
                    "{POLL_KEY} is for disks that are waited for, and {uri} answers at once"
                );
                self.push(Mistake::error(written.span(), message).help("leave it out"));
            }
            let poll = poll.unwrap_or(usual);
            disks.push(DiskConfig { required, poll, ..DiskConfig::plain(name, uri) });
            spans.push(written.span());
        }
        disks
    }

    fn uri_mistake(&mut self, written: &Spanned<String>, error: UriError) {
        let span = self.within(written, error.at.clone());
        self.push(Mistake::error(span, error.message).meant(error.help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_follow_the_order_of_devices_do_not_stay() {
        for (path, stays) in [
            ("/dev/sda", false),
            ("/dev/nvme0n1p2", false),
            ("/dev/loop0", false),
            ("/dev/disk/by-id/nvme-x", true),
            ("/dev/mapper/data", true),
            ("/dev/vg0/data", true),
        ] {
            assert_eq!(has_a_name_that_stays(Path::new(path)), stays, "{path}");
        }
    }
}
