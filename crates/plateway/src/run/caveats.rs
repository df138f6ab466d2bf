//! What is to be known of a disk that can be served all the same: more is promised of it than there
//! is room for, or it looks like an image of another format.
//!
//! For `check`, and for the log when it is opened. Nothing fails here: what cannot be found out is
//! not said. Units: bytes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use block::ByteCount;
use reactor::disk::probe::Probe;

use super::touch;

/// Formats of images, by what they hold at an offset of their first page.
const FORMATS: [(&str, usize, &[u8]); 7] = [
    ("qcow2", 0, b"QFI\xfb"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vpc", 0, b"conectix"),
    ("vdi", 64, &0xbeda_107f_u32.to_le_bytes()),
];

/// Of a file or device that is there.
pub(super) fn of_probe(path: &Path, probe: &Probe) -> Vec<String> {
    let format = probe.read_page(0).ok().and_then(|page| format_of(&page));
    let image = format.map(|format| {
        let name = path.display();
        format!(
            "{name} looks like a {format} image, and what is served are its raw bytes; to serve the disk in it: \
             qemu-img convert -f {format} -O raw {name} {name}.raw"
        )
    });
    let file = fs::metadata(path).ok().filter(|file| file.is_file() && !probe.facts().read_only);
    let wants = file.map_or(0, |file| file.len().saturating_sub(file.blocks() * 512));
    image.into_iter().chain(no_room(path, path, wants)).collect()
}

/// Of a file that is yet to be made with so many bytes.
pub(super) fn of_unmade(path: &Path, bytes: u64) -> Vec<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    no_room(path, folder.unwrap_or(Path::new(".")), bytes).into_iter().collect()
}

/// Of a disk in memory that is yet to be made with so many bytes.
pub(super) fn of_memory(bytes: u64) -> Vec<String> {
    let Some(free) = touch::available() else { return Vec::new() };
    let more = |free| {
        let (bytes, free) = (ByteCount(bytes), ByteCount(free));
        format!("{bytes} of memory where {free} are free: the server is killed once hosts fill it")
    };
    (bytes > free).then(|| more(free)).into_iter().collect()
}

/// Whether `wants` bytes, which a file may still take, are more than its file system has.
fn no_room(path: &Path, on: &Path, wants: u64) -> Option<String> {
    let system = rustix::fs::statvfs(on).ok()?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    (wants > free).then(|| {
        format!(
            "{} may still grow by {}, and its file system has {} free: once that is used, writes fail for want of space",
            path.display(),
            ByteCount(wants),
            ByteCount(free)
        )
    })
}

fn format_of(page: &[u8]) -> Option<&'static str> {
    let is = |(_, at, magic): &&(&str, usize, &[u8])| page[*at..].starts_with(magic);
    FORMATS.iter().find(is).map(|(format, ..)| *format)
}

#[cfg(test)]
mod tests {
    use reactor::disk::Tail;

    use super::*;

    #[test]
    fn an_image_of_another_format_is_known_by_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let said = |bytes: &[u8]| {
            let mut page = vec![0; 8192];
            page[..bytes.len()].copy_from_slice(bytes);
            fs::write(&path, page).unwrap();
            of_probe(&path, &Probe::file(&path, Tail::Refuse).unwrap())
        };
        assert!(said(b"QFI\xfb\0\0\0\x03")[0].contains("a.img looks like a qcow2 image"));
        assert!(said(b"vhdxfile")[0].contains("-f vhdx -O raw"));
        assert!(said(b"KDMV")[0].contains("vmdk"));
        assert_eq!(said(b"\xeb\x63\x90"), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_its_file_system_cannot_hold_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let file = fs::File::create(&path).unwrap();
        let system = rustix::fs::statvfs(&path).unwrap();
        let there = system.f_blocks * system.f_frsize;
        file.set_len(1 << 20).unwrap();
        let said = || of_probe(&path, &Probe::file(&path, Tail::Refuse).unwrap());
        assert_eq!(said(), Vec::<String>::new());
        assert_eq!(of_unmade(&path, 1 << 20), Vec::<String>::new());
        assert!(of_unmade(&path, there * 2)[0].contains("may still grow by"));
        // Not every file system lets a file be so large.
        if file.set_len((there * 2).next_multiple_of(4096)).is_ok() {
            assert!(said()[0].contains("writes fail for want of space"), "{:?}", said());
        }
    }

    #[test]
    fn memory_that_is_not_there_is_told() {
        assert_eq!(of_memory(4096), Vec::<String>::new());
        assert!(of_memory(1 << 60)[0].contains("1 EiB of memory where "));
    }
}
