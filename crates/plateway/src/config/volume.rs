//! `[[volume]]`: layouts, their disks, chunk and block sizes.
//!
//! Whether the disks are large enough, and whether what they write atomically allows the block
//! size, is known only once they are open; that is checked there.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use block::ByteCount;
use toml::Spanned;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::disk::disk_title;
use super::file::{LowSize, NAME, SIZE, table};
use super::mistake::{Mistake, Span};
use super::plan::Refused;
use super::resolve::{Names, Resolver};
use super::size::Size;
use super::text::{list, quoted};
use super::thing::{Change, Configured, SIZE_KEY, Thing};

/// `chunk` where none is given.
pub(crate) const CHUNK_DEFAULT: u64 = 64 << 10;
/// The smallest chunk: a page, so that no page of a transfer is split between members.
const CHUNK_MIN: u64 = ::volume::layout::EDGE;
const CHUNK_MAX: u64 = 64 << 20;
/// `block_size` where none is given.
pub(crate) const BLOCK_SIZE_DEFAULT: u32 = 512;

const LAYOUTS: [&str; 3] = ["single", "concat", "stripe"];

table! {
    LowVolume = "[[volume]]" {
        name: String = NAME,
        layout: String = "\"single\", \"concat\" or \"stripe\"",
        disks: Vec<Spanned<String>> = "a list of names such as [\"d0\", \"d1\"]",
        chunk: LowSize = SIZE,
        block_size: LowSize = "512 or 4096",
        uuid: String = "a UUID in quotes",
        size: LowSize = SIZE,
    }
}

/// `[[volume]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeConfig {
    /// Unique among volumes.
    pub(crate) name: String,
    /// Which disks, and how.
    pub(crate) layout: Layout,
    /// 512 or 4096.
    pub(crate) block_size: u32,
    /// The identity to use in place of the stored or drawn one.
    pub(crate) uuid: Option<Uuid>,
    /// The size to cut the volume to, a multiple of `block_size`; all of its disks where `None`.
    pub(crate) size_bytes: Option<u64>,
}

/// How a volume lies on its disks, which are named and exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One disk as it is, without a label.
    Single { disk: String },
    /// Disks end to end; one or more.
    Concat { disks: Vec<String> },
    /// Chunks in turn, on one disk or more; a chunk is a power of two between [`CHUNK_MIN`] and
    /// [`CHUNK_MAX`].
    Stripe { disks: Vec<String>, chunk_bytes: u64 },
}

impl Layout {
    /// The disks in order.
    pub(crate) fn disks(&self) -> &[String] {
        match self {
            Layout::Single { disk } => std::slice::from_ref(disk),
            Layout::Concat { disks } | Layout::Stripe { disks, .. } => disks,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Single { disk } => write!(f, "single on {disk}"),
            Layout::Concat { disks } => write!(f, "concat of {}", disks.join(" ")),
            Layout::Stripe { disks, chunk_bytes } => {
                write!(f, "stripe over {}, chunk {}", disks.join(" "), ByteCount(*chunk_bytes))
            }
        }
    }
}

/// What a volume is called in steps.
pub(crate) fn volume_title(name: &str) -> String {
    format!("volume {name}")
}

impl Configured for VolumeConfig {
    fn title(&self) -> String {
        volume_title(&self.name)
    }

    fn details(&self) -> String {
        let mut text = format!(": {}, blocks of {}", self.layout, self.block_size);
        if let Some(bytes) = self.size_bytes {
            let _ = write!(text, ", size {}", ByteCount(bytes));
        }
        if let Some(uuid) = self.uuid {
            let _ = write!(text, ", uuid {uuid}");
        }
        text
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let all = || "all of its disks".to_owned();
        vec![(SIZE_KEY, self.size_bytes.map_or_else(all, |bytes| ByteCount(bytes).to_string()))]
    }

    fn stands_on(&self) -> Vec<String> {
        self.layout.disks().iter().map(|disk| disk_title(disk)).collect()
    }

    fn follows(&self) -> bool {
        self.size_bytes.is_none()
    }

    fn excludes(&self, other: &Thing) -> bool {
        let Thing::Volume(other) = other else { return false };
        self.name == other.name
            || (self.uuid.is_some() && self.uuid == other.uuid)
            || self.layout.disks().iter().any(|disk| other.layout.disks().contains(disk))
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let resized = |to: &VolumeConfig| Self { size_bytes: to.size_bytes, ..self.clone() } == *to;
        let is_resized = matches!(to, Thing::Volume(to) if resized(to));
        Ok(if is_resized { Change::InPlace } else { Change::Replace })
    }

    fn text(&self) -> String {
        let (word, chunk) = match &self.layout {
            Layout::Single { .. } => ("single", None),
            Layout::Concat { .. } => ("concat", None),
            Layout::Stripe { chunk_bytes, .. } => ("stripe", Some(*chunk_bytes)),
        };
        let (name, disks) = (quoted(&self.name), list(self.layout.disks()));
        let mut text = format!("[[volume]]\nname = {name}\nlayout = \"{word}\"\ndisks = {disks}\n");
        if let Some(chunk) = chunk {
            let _ = writeln!(text, "chunk = \"{}\"", Size(chunk));
        }
        let _ = writeln!(text, "block_size = {}", self.block_size);
        if let Some(uuid) = self.uuid {
            let _ = writeln!(text, "uuid = \"{uuid}\"");
        }
        if let Some(bytes) = self.size_bytes {
            let _ = writeln!(text, "size = \"{}\"", Size(bytes));
        }
        text
    }
}

/// Reads a UUID as RFC 9562 writes it; the error is what was expected.
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, &'static str> {
    match text.parse::<Hyphenated>() {
        Ok(uuid) if uuid.as_uuid().is_nil() => Err("a UUID that is not all zeros"),
        Ok(uuid) => Ok(uuid.into_uuid()),
        Err(_) => Err("a UUID such as f81d4fae-7dec-41d0-a765-00a0c91e6bf6"),
    }
}

/// Where disks are used, by name: the volume, the place.
type Uses = BTreeMap<String, (String, Span)>;

impl Resolver<'_> {
    pub(super) fn volumes(&mut self, low: &[LowVolume], disk_names: &Names) -> Vec<VolumeConfig> {
        let mut used = Uses::new();
        let mut uuids: Vec<(Uuid, Span)> = Vec::new();
        let volumes = low
            .iter()
            .filter_map(|one| self.volume(one, disk_names, &mut used, &mut uuids))
            .collect();
        for (name, span) in &disk_names.list {
            if !used.contains_key(name) {
                self.push(Mistake::warning(span.clone(), format!("disk {name} is in no volume")));
            }
        }
        volumes
    }

    fn volume(
        &mut self,
        low: &LowVolume,
        disk_names: &Names,
        used: &mut Uses,
        uuids: &mut Vec<(Uuid, Span)>,
    ) -> Option<VolumeConfig> {
        let name = low.name.as_ref().map(|name| name.get_ref().clone()).unwrap_or_default();
        let disks = self.members(low, &name, disk_names, used);
        let block_size = self.block_size(low);
        let layout = self.layout(low, disks, block_size);
        let uuid = low.uuid.as_ref().and_then(|written| match parse_uuid(written.get_ref()) {
            Ok(uuid) => {
                if let Some((_, first)) = uuids.iter().find(|(other, _)| *other == uuid) {
                    let message =
                        "two volumes cannot have one UUID: hosts would take them for one disk";
                    self.push(Mistake::error(written.span(), message).first(first));
                }
                uuids.push((uuid, written.span()));
                Some(uuid)
            }
            Err(expected) => {
                let message = format!("uuid: expected {expected}, seen {:?}", written.get_ref());
                self.error(written.span(), message);
                None
            }
        });
        let size_bytes = low.size.as_ref().and_then(|written| {
            let bytes = self.size(written, "size")?;
            if bytes == 0 || !bytes.is_multiple_of(u64::from(block_size)) {
                let message = format!(
                    "size: expected a multiple of block_size {block_size}, not zero; seen {bytes}"
                );
                self.error(written.span(), message);
            }
            Some(bytes)
        });
        let title = volume_title(&name);
        let at = low.name.as_ref().map_or(low.span.clone(), Spanned::span);
        self.place(title.clone(), "", at);
        let keys = [("block_size", &low.block_size), ("size", &low.size)];
        for (key, written) in keys.into_iter().filter_map(|(key, low)| Some((key, low.as_ref()?))) {
            self.place(title.clone(), key, written.span());
        }
        for disk in low.disks.iter().flat_map(Spanned::get_ref) {
            self.place(title.clone(), &disk_title(disk.get_ref()), disk.span());
        }
        Some(VolumeConfig { name, layout: layout?, block_size, uuid, size_bytes })
    }

    /// The disks of a volume: each known, none used before.
    fn members(
        &mut self,
        low: &LowVolume,
        name: &str,
        disk_names: &Names,
        used: &mut Uses,
    ) -> Vec<String> {
        let Some(list) = &low.disks else {
            self.missing(&low.span, "[[volume]]", "disks", "disks = [\"d0\"]");
            return Vec::new();
        };
        if list.get_ref().is_empty() {
            self.error(list.span(), "disks is empty: a volume needs at least one disk");
        }
        for disk in list.get_ref() {
            if !disk_names.has(disk.get_ref()) {
                self.unknown_name(disk, "disk", disk_names);
                continue;
            }
            if let Some((other, first)) = used.get(disk.get_ref()) {
                let whose = match other == name {
                    true => "this volume",
                    false => &volume_title(other),
                };
                let message =
                    format!("disk {} is used twice: {whose} has it already", disk.get_ref());
                self.push(Mistake::error(disk.span(), message).first(first));
                continue;
            }
            used.insert(disk.get_ref().clone(), (name.to_owned(), disk.span()));
        }
        list.get_ref().iter().map(|disk| disk.get_ref().clone()).collect()
    }

    fn block_size(&mut self, low: &LowVolume) -> u32 {
        let Some(written) = &low.block_size else { return BLOCK_SIZE_DEFAULT };
        match self.size(written, "block_size") {
            Some(512) => 512,
            Some(4096) => 4096,
            Some(other) => {
                let message = format!("block_size: expected 512 or 4096, seen {other}");
                self.error(written.span(), message);
                BLOCK_SIZE_DEFAULT
            }
            None => BLOCK_SIZE_DEFAULT,
        }
    }

    fn layout(&mut self, low: &LowVolume, disks: Vec<String>, block_size: u32) -> Option<Layout> {
        let count = disks.len();
        let word = match &low.layout {
            Some(written) => written.get_ref().as_str(),
            None if count == 1 => "single",
            None => {
                let example = "layout = \"stripe\", or \"concat\"";
                self.missing(&low.span, "[[volume]]", "layout", example);
                return None;
            }
        };
        if let Some(chunk) = low.chunk.as_ref().filter(|_| matches!(word, "single" | "concat")) {
            let message = format!("only a stripe has a chunk, and this volume is a {word}");
            self.error(chunk.span(), message);
        }
        match word {
            "single" if count > 1 => {
                let span = low.disks.as_ref().map_or(low.span.clone(), Spanned::span);
                let message = format!("a single volume has one disk, seen {count}");
                let help = "layout = \"concat\" or \"stripe\" takes several";
                self.push(Mistake::error(span, message).help(help));
                None
            }
            "single" => disks.into_iter().next().map(|disk| Layout::Single { disk }),
            "concat" => Some(Layout::Concat { disks }),
            "stripe" => {
                let chunk_bytes = self.chunk(low, block_size)?;
                Some(Layout::Stripe { disks, chunk_bytes })
            }
            _ => {
                if let Some(written) = &low.layout {
                    self.unknown_word(written, "layout", &LAYOUTS);
                }
                None
            }
        }
    }

    fn chunk(&mut self, low: &LowVolume, block_size: u32) -> Option<u64> {
        let Some(written) = &low.chunk else { return Some(CHUNK_DEFAULT) };
        let bytes = self.size(written, "chunk")?;
        let expected = if bytes < u64::from(block_size) {
            format!("at least one block of {block_size} bytes")
        } else if !bytes.is_multiple_of(CHUNK_MIN) {
            "a multiple of 4KiB".to_owned()
        } else if !bytes.is_power_of_two() {
            "a power of two".to_owned()
        } else if bytes > CHUNK_MAX {
            format!("at most {}", Size(CHUNK_MAX))
        } else {
            return Some(bytes);
        };
        let help = match bytes {
            ..CHUNK_MIN => format!("the smallest chunk is {}", Size(CHUNK_MIN)),
            _ => {
                let below = (1 << bytes.ilog2()).min(CHUNK_MAX);
                format!("the nearest chunk below is {}", Size(below))
            }
        };
        let message = format!("chunk: expected {expected}, seen {}", Size(bytes));
        self.push(Mistake::error(written.span(), message).help(help));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_round_trip_and_nil_is_refused() {
        let text = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
        assert_eq!(parse_uuid(text).unwrap().to_string(), text);
        for wrong in [
            "",
            "f81d4fae7dec41d0a76500a0c91e6bf6",
            "00000000-0000-0000-0000-000000000000",
            "f81d4fae-7dec-41d0-a765-00a0c91e6bfg",
        ] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }
}
