//! `[[volume]]`: layouts, their disks, chunk and block sizes.
//!
//! Whether the disks are large enough, and whether what they write atomically allows the block size,
//! is known only once they are open; that is checked there.

use std::collections::BTreeMap;

use toml::Spanned;
use uuid::Uuid;

use super::super::file::LowVolume;
use super::super::mistake::{Mistake, Span};
use super::super::model::{
    BLOCK_SIZE_DEFAULT, CHUNK_DEFAULT, CHUNK_MAX, CHUNK_MIN, Layout, VolumeConfig, parse_uuid,
};
use super::super::size::Size;
use super::{Names, Resolver};

const LAYOUTS: [&str; 3] = ["single", "concat", "stripe"];

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
                    let first = first.clone();
                    self.push(Mistake::error(written.span(), message).also(first, "first here"));
                }
                uuids.push((uuid, written.span()));
                Some(uuid)
            }
            Err(expected) => {
                self.error(
                    written.span(),
                    format!("uuid: expected {expected}, seen {:?}", written.get_ref()),
                );
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
                let whose = if other == name {
                    "this volume".to_owned()
                } else {
                    format!("volume {other}")
                };
                let message =
                    format!("disk {} is used twice: {whose} has it already", disk.get_ref());
                let first = first.clone();
                self.push(Mistake::error(disk.span(), message).also(first, "first here"));
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
                self.error(
                    written.span(),
                    format!("block_size: expected 512 or 4096, seen {other}"),
                );
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
                self.missing(
                    &low.span,
                    "[[volume]]",
                    "layout",
                    "layout = \"stripe\", or \"concat\"",
                );
                return None;
            }
        };
        if let Some(chunk) = low.chunk.as_ref().filter(|_| matches!(word, "single" | "concat")) {
            self.push(Mistake::error(
                chunk.span(),
                format!("only a stripe has a chunk, and this volume is a {word}"),
            ));
        }
        match word {
            "single" if count > 1 => {
                let span = low.disks.as_ref().map_or(low.span.clone(), Spanned::span);
                let help = "layout = \"concat\" or \"stripe\" takes several".to_owned();
                self.push(
                    Mistake::error(span, format!("a single volume has one disk, seen {count}"))
                        .help(help),
                );
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
        let below = if bytes < CHUNK_MIN { CHUNK_MIN } else { (1 << bytes.ilog2()).min(CHUNK_MAX) };
        let help = format!("the nearest chunk below is {}", Size(below));
        let help = if bytes < CHUNK_MIN {
            format!("the smallest chunk is {}", Size(CHUNK_MIN))
        } else {
            help
        };
        self.push(
            Mistake::error(
                written.span(),
                format!("chunk: expected {expected}, seen {}", Size(bytes)),
            )
            .help(help),
        );
        None
    }
}
