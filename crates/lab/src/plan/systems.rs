//! The systems of a plan: what each is, and what is known of what holds its blocks.
//!
//! URIs stay opaque. Their scheme says what holds the blocks, if anything does: memory, a file, a
//! device, or nothing; `delay:`, `burn:`, `faulty:` and `model:` stand before another URI, and what a URI of another
//! target has below must be said. Whether two systems are a fair pair is judged in `compare`.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::axes::SIZE_MAX;
use super::check::{Checker, NULL, Named, Table};
use super::files::MEMORY_MIN;
use super::low::{LowNfs, LowPath, LowRival, LowServe, LowSystem, LowTarget};
use super::model::{
    Access, Backing, Client, Digests, Driver, FileSystem, Means, Mounted, Nfs, Program, Protocol,
    Rival, Serve, System, Target,
};
use super::reader::{Low, Many};
use super::words;
use crate::mistake::{Mistake, Span};

/// By which protocols a server reaches the disk of another one beside it: AoE would need an Ethernet between them.
const THROUGH: [(&str, Protocol); 2] = [("iscsi", Protocol::Iscsi), ("nvme", Protocol::Nvme)];

/// From a page of memory to what NFS version 3 has.
const CALLS: RangeInclusive<u64> = 4096..=1 << 20;

/// Keys that say how a system comes to be there.
const WAYS: [&str; 7] = ["disk", "serve", "rival", "target", "folder", "stream", "nfs"];

/// What a URI says of what holds its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Below {
    backing: Option<Backing>,
    bytes: Option<u64>,
    /// Whether a write cache of a model's is before it.
    cached: bool,
}

impl Checker<'_> {
    /// Takes all systems and paths; those that are wrong keep their names.
    pub(super) fn things(&mut self, systems: &[LowSystem], paths: &[LowPath]) {
        self.has_nameless = paths.iter().any(|path| path.name.is_none())
            || systems.iter().any(|system| system.name.is_none());
        for low in paths {
            let thing = self.path(low);
            self.paths.extend(named(&low.name, &low.span, thing));
        }
        self.ends_are_the_same();
        for low in systems {
            let thing = self.system(low);
            self.systems.extend(named(&low.name, &low.span, thing));
        }
        let is_null =
            |means: &Means| matches!(means, Means::Disk { uri } if uri.starts_with("null:"));
        let other = self.systems.iter().find(|named| {
            named.name == NULL && named.thing.as_ref().is_some_and(|system| !is_null(&system.means))
        });
        if let Some(span) = other.map(|named| named.span.clone()) {
            let message = "name: \"null\" is what the reference of every round is called";
            self.push(
                Mistake::new(span, message).help("give it another name, or disk = \"null:1GiB\""),
            );
        }
    }

    fn system(&mut self, low: &LowSystem) -> Option<System> {
        let table =
            Table { title: "this [[system]]", span: low.span.clone(), refused: &low.refused };
        let name = self.needed(&low.name, &table, "name = \"...\"").cloned();
        let taken: Vec<(String, Span)> =
            self.systems.iter().map(|named| (named.name.clone(), named.span.clone())).collect();
        let is_named = low.name.as_ref().is_none_or(|name| self.name(name, "system", &taken));
        let means = self.means(low);
        let backing = low.backing.as_ref().map(|word| self.word(word, "backing", Backing::WORDS));
        let (means, below) = means?;
        let mut declared = |key: &str, span: Option<Span>| {
            if let Some(span) = span.filter(|_| below.backing.is_some()) {
                let message = format!("{key} of [[system]] follows from its disk");
                self.push(Mistake::new(span, message).help("leave it out"));
            }
        };
        declared("backing", low.backing.as_ref().map(Spanned::span));
        declared("durable", low.durable.as_ref().map(Spanned::span));
        let flushes = low.mount_options.as_ref().is_none_or(|options| flushes(options.get_ref()));
        let durable = match below.backing {
            Some(backing) => Some(matches!(backing, Backing::File | Backing::Device)),
            None => low.durable.as_ref().map(|durable| *durable.get_ref()),
        };
        let durable = if flushes { durable } else { Some(false) };
        // A word that is none was told already.
        let backing = below.backing.or(backing.flatten());
        if low.backing.is_some() && backing.is_none() || !low.refused.is_empty() {
            return None;
        }
        let (bytes, disks, mounted) = (below.bytes, self.disks(low)?, self.mounted(low)?);
        let initiator = self.initiator(low, &means)?;
        let kernel = self.kernel(low, &means)?;
        if let Some(kind) = low.file_system.as_ref().filter(|_| backing == Some(Backing::Null)) {
            let seen = low.disk.as_ref().map_or("one that forgets it", |disk| disk.get_ref());
            let message = format!(
                "file-system: expected a disk that keeps what is written to it, seen {seen}"
            );
            self.push(Mistake::new(kind.span(), message).help("ram: in place of null:"));
            return None;
        }
        let name = name?;
        let cached = below.cached;
        let system = System {
            name,
            means,
            backing,
            durable,
            cached,
            bytes,
            disks,
            mounted,
            kernel,
            initiator,
        };
        (is_named && self.is_several(low, &system)).then_some(system)
    }

    /// How it comes to be there, which is said in one way exactly.
    fn means(&mut self, low: &LowSystem) -> Option<(Means, Below)> {
        let ways = [
            ("disk", low.disk.as_ref().map(Spanned::span)),
            ("serve", low.serve.as_ref().map(Spanned::span)),
            ("rival", low.rival.as_ref().map(Spanned::span)),
            ("target", low.target.as_ref().map(Spanned::span)),
            ("folder", low.folder.as_ref().map(Spanned::span)),
            ("stream", low.stream.as_ref().map(Spanned::span)),
            ("nfs", low.nfs.as_ref().map(Spanned::span)),
        ];
        let mut said = ways.into_iter().filter_map(|(key, span)| Some((key, span?)));
        let (first, second) = (said.next(), said.next());
        match (first, second) {
            (None, _) if !low.refused.iter().any(|key| WAYS.contains(key)) => {
                let message = "this [[system]] has none of disk, serve, rival, target, folder, stream and nfs";
                let help = "add disk = \"ram:512MiB\" or serve = { protocol = \"nvme\", disk = \"ram:512MiB\" }";
                self.push(Mistake::new(low.span.clone(), message).help(help));
                return None;
            }
            (Some((first, span)), Some((second, other))) => {
                let message = format!(
                    "{second}: expected one of disk, serve, rival, target, folder, stream and nfs in a [[system]], seen {first} as well"
                );
                self.push(Mistake::new(other, message).first(&span).help("leave out one of them"));
                return None;
            }
            _ => {}
        }
        if let Some(disk) = &low.disk {
            let below = self.uri(disk, "disk")?;
            return Some((Means::Disk { uri: disk.get_ref().clone() }, below));
        }
        if let Some(serve) = &low.serve {
            return self.serve(serve.get_ref()).map(|(serve, below)| (Means::Serve(serve), below));
        }
        if let Some(rival) = &low.rival {
            return self.rival(rival.get_ref()).map(|(rival, below)| (Means::Rival(rival), below));
        }
        if let Some(folder) = &low.folder {
            // What is mounted there is seen by whoever runs the plan.
            let folder = self.folder(folder, &low.client, &low.file_system)?;
            return Some((Means::Folder(folder), Below::default()));
        }
        if let Some(stream) = &low.stream {
            let transport = self.stream(stream, low)?;
            return Some((Means::Stream(transport), Below::default()));
        }
        if let Some(nfs) = &low.nfs {
            return self.nfs(nfs.get_ref(), low).map(|(nfs, below)| (Means::Nfs(nfs), below));
        }
        let target = self.target(low.target.as_ref()?.get_ref())?;
        // Whatever its URI says is how it is reached.
        Some((Means::Target(target), Below::default()))
    }

    /// What is made on its disk, and who works in that; `None` if it is wrong, `Some(None)` if nothing is.
    fn mounted(&mut self, low: &LowSystem) -> Option<Option<Mounted>> {
        let of_it = [
            ("fuse", "above which it is", low.fuse.as_ref().map(Spanned::span)),
            ("mount-options", "which is mounted so", low.mount_options.as_ref().map(Spanned::span)),
            ("call-size", "whose calls it bounds", low.call_size.as_ref().map(Spanned::span)),
        ];
        let mut said = of_it.into_iter().filter_map(|(key, what, span)| Some((key, what, span?)));
        if let Some((key, what, span)) = said.next()
            && (low.folder.is_some() || low.file_system.is_none())
        {
            let (seen, help) = match low.folder {
                Some(_) => ("a folder", "leave it out"),
                None => ("none", "add file-system = \"ext4\", or leave it out"),
            };
            let message = format!("{key}: expected a file-system beside it, {what}, seen {seen}");
            self.push(Mistake::new(span, message).help(help));
            return None;
        }
        if low.folder.is_some() {
            return Some(None);
        }
        let Some(kind) = &low.file_system else {
            let Some(client) = &low.client else { return Some(None) };
            let message = "client: expected a folder or a file-system beside it, on whose file it works, seen none";
            let help = "add file-system = \"ext4\", or leave it out";
            self.push(Mistake::new(client.span(), message).help(help));
            return None;
        };
        let kind = self.word(kind, "file-system", FileSystem::WORDS)?;
        let client = self.client(&low.client)?;
        let fuse = low.fuse.as_ref().is_some_and(|fuse| *fuse.get_ref());
        let options = self.said(&low.mount_options, "mount-options", mount_options);
        if low.mount_options.is_some() && options.is_none() {
            return None;
        }
        let options = options.unwrap_or_default();
        let call_bytes = self.call_bytes(low, fuse)?;
        Some(Some(Mounted { kind, options, client, fuse, call_bytes }))
    }

    /// How much a call of NFS or FUSE has at most; `None` if it is wrong, `Some(None)` if the plan does not say.
    fn call_bytes(&mut self, low: &LowSystem, fuse: bool) -> Option<Option<u32>> {
        let Some(written) = &low.call_size else { return Some(None) };
        let bytes = self.scalar(&low.call_size, "call-size", |text| {
            let bytes = words::size(text, CALLS)?;
            let is_whole = bytes.is_multiple_of(*CALLS.start());
            is_whole.then_some(bytes).ok_or_else(|| "whole pages, of 4KiB".to_owned())
        })?;
        if low.nfs.is_none() && !fuse {
            let message = "call-size: expected nfs or fuse = true beside it, whose calls it bounds, seen neither";
            self.push(Mistake::new(written.span(), message).help("leave it out"));
            return None;
        }
        Some(Some(bytes as u32))
    }

    /// What the far end exports by NFS.
    fn nfs(&mut self, low: &LowNfs, system: &LowSystem) -> Option<(Nfs, Below)> {
        let table =
            Table { title: "nfs of [[system]]", span: low.span.clone(), refused: &low.refused };
        self.needed(&low.disk, &table, "disk = \"ram:512MiB\"");
        let mut is_right = true;
        if system.file_system.is_none() && !system.refused.contains(&"file-system") {
            let message = "nfs: expected a file-system beside it, which is exported, seen none";
            self.push(Mistake::new(low.span.clone(), message).help("add file-system = \"ext4\""));
            is_right = false;
        }
        if let Some(fuse) = &system.fuse {
            let message = "fuse: expected a disk or a serve beside it, seen nfs, which comes by FUSE in any case";
            self.push(Mistake::new(fuse.span(), message).help("leave it out"));
            is_right = false;
        }
        let disk = low.disk.as_ref()?;
        let below = self.uri(disk, "disk")?;
        let sync = low.sync.as_ref().is_some_and(|sync| *sync.get_ref());
        let memory =
            self.scalar(&low.memory, "memory", |text| words::size(text, MEMORY_MIN..=SIZE_MAX));
        if let (Some(bytes), Some(low)) = (memory, &low.memory)
            && self.client_memory.is_none()
        {
            // A machine that cannot bound it is told here.
            self.client_memory = (bytes > 0).then(|| low.span());
        }
        is_right &= low.memory.is_none() || memory.is_some();
        let cache = low.cache.as_ref().is_none_or(|cache| *cache.get_ref());
        is_right.then(|| (Nfs { disk: disk.get_ref().clone(), sync, memory, cache }, below))
    }

    /// Who works on a file.
    pub(super) fn client(&mut self, low: &Low<String>) -> Option<Client> {
        match low {
            Some(word) => self.word(word, "client", Client::WORDS),
            None => Some(Client::Bench),
        }
    }

    fn serve(&mut self, low: &LowServe) -> Option<(Serve, Below)> {
        let table =
            Table { title: "serve of [[system]]", span: low.span.clone(), refused: &low.refused };
        self.needed(&low.protocol, &table, "protocol = \"nvme\"");
        self.needed(&low.disk, &table, "disk = \"ram:512MiB\"");
        let protocol =
            low.protocol.as_ref().and_then(|word| self.word(word, "protocol", Protocol::WORDS));
        let driver = low.driver.as_ref().and_then(|word| self.word(word, "driver", Driver::WORDS));
        let shards = self.number(&low.shards, "shards", 1..=block::limits::SHARDS_MAX as u64);
        let poll = low.poll.as_ref().and_then(|poll| match poll.get_ref().parse() {
            Ok(read) => Some(read),
            Err(error) => {
                self.push(Mistake::new(poll.span(), format!("poll: {error}")));
                None
            }
        });
        let digests =
            low.digests.as_ref().and_then(|word| self.word(word, "digests", Digests::WORDS));
        let access = low.access.as_ref().and_then(|word| self.word(word, "access", Access::WORDS));
        let below = low.disk.as_ref().and_then(|disk| self.uri(disk, "disk"));
        let digests = digests.unwrap_or(Digests::None);
        let protocol = protocol?;
        if let Some(low) = low.digests.as_ref().filter(|_| digests != Digests::None)
            && protocol == Protocol::Aoe
        {
            let message = "digests: AoE has none, expected protocol iscsi or nvme with them";
            self.push(Mistake::new(low.span(), message).help("leave it out"));
        }
        if let Some(low) = low.access.as_ref().filter(|_| protocol != Protocol::Aoe) {
            let seen = protocol.word();
            let message =
                format!("access: expected protocol aoe, of whose frames it is, seen {seen}");
            self.push(Mistake::new(low.span(), message).help("leave it out"));
        }
        let through = match &low.through {
            Some(word) => Some(self.word(word, "through", &THROUGH)?),
            None => None,
        };
        let disk = low.disk.as_ref()?.get_ref().clone();
        let shards = shards.map(|shards| shards as u16);
        let serve = Serve { protocol, disk, through, poll, shards, driver, digests, access };
        Some((serve, below?))
    }

    fn rival(&mut self, low: &LowRival) -> Option<(Rival, Below)> {
        let table =
            Table { title: "rival of [[system]]", span: low.span.clone(), refused: &low.refused };
        self.needed(&low.program, &table, "program = \"tgt\"");
        self.needed(&low.disk, &table, "disk = \"ram:512MiB\"");
        let program =
            low.program.as_ref().and_then(|word| self.word(word, "program", Program::WORDS));
        let written = low.disk.as_ref()?;
        let below = self.uri(written, "disk")?;
        let uri = written.get_ref();
        // What a Plateway puts around or into a disk, another target knows nothing of.
        let (path, bytes) = match (below.backing, uri.split_once('?'), below.bytes) {
            (Some(Backing::Ram), None, Some(bytes)) if uri.starts_with("ram:") => {
                (None, Some(bytes))
            }
            (Some(Backing::File), None, _) => (uri.strip_prefix("file:"), None),
            (Some(Backing::File), Some((file, _)), Some(bytes)) => {
                (file.strip_prefix("file:"), Some(bytes))
            }
            (Some(Backing::Device), None, _) => (Some(&**uri), None),
            _ => (None, None),
        };
        if path.is_none() && bytes.is_none() {
            let message = format!(
                "disk: expected what any target can serve, \"ram:SIZE\", \"file:PATH\", \"file:PATH?create=SIZE\" or \"/dev/NAME\", seen {uri:?}"
            );
            self.push(Mistake::new(written.span(), message));
            return None;
        }
        let (disk, path) = (uri.clone(), path.map(str::to_owned));
        Some((Rival { program: program?, disk, path, bytes }, below))
    }

    fn target(&mut self, low: &LowTarget) -> Option<Target> {
        let table =
            Table { title: "target of [[system]]", span: low.span.clone(), refused: &low.refused };
        self.needed(&low.start, &table, "start = [\"COMMAND\", \"ARGUMENT\"]");
        self.needed(&low.uri, &table, "uri = \"iscsi://...\"");
        let start = self.command(&low.start, "start");
        let (ready, stop) = (self.command(&low.ready, "ready"), self.command(&low.stop, "stop"));
        let uri = low.uri.as_ref().filter(|uri| self.uri(uri, "uri").is_some());
        Some(Target { start: start?, ready, stop, uri: uri?.get_ref().clone() })
    }

    /// A command with its arguments, of which only the arguments may be empty.
    pub(super) fn command(&mut self, low: &Low<Many<String>>, key: &str) -> Option<Vec<String>> {
        let words = &low.as_ref()?.get_ref().0;
        let first = words.first()?;
        if first.get_ref().trim().is_empty() {
            let message =
                format!("{key}: expected the name of a command first, seen {:?}", first.get_ref());
            self.push(Mistake::new(first.span(), message));
            return None;
        }
        Some(words.iter().map(|word| word.get_ref().clone()).collect())
    }

    /// What a URI says of what is below it; only its scheme is looked at.
    fn uri(&mut self, written: &Spanned<String>, key: &str) -> Option<Below> {
        let below = below(written.get_ref());
        if below.is_none() {
            let message = format!(
                "{key}: expected a disk such as \"ram:512MiB\", \"/dev/sdb\" or \"nvme+tcp://...\", seen {:?}",
                written.get_ref()
            );
            self.push(Mistake::new(written.span(), message));
        }
        below
    }
}

fn named<T>(name: &Low<String>, span: &Span, thing: Option<T>) -> Option<Named<T>> {
    let name = name.as_ref()?;
    let span = if name.get_ref().is_empty() { span.clone() } else { name.span() };
    Some(Named { name: name.get_ref().clone(), span, thing })
}

/// Schemes of disks that do not say what is below them.
const ELSEWHERE: [&str; 4] = ["aoe", "iscsi", "nvme+tcp", "volume"];

/// What a URI says of what is below it; nothing where it has no scheme of a disk.
fn below(mut uri: &str) -> Option<Below> {
    let mut cached = false;
    while let Some(wrapped) =
        ["delay:", "burn:", "faulty:", "model:"].iter().find_map(|around| uri.strip_prefix(around))
    {
        let (instrument, inner) = wrapped.split_once(',')?;
        cached |= has_cache(instrument);
        uri = inner;
    }
    let on = |backing, bytes| Below { backing: Some(backing), bytes, cached };
    if uri.starts_with("/dev/") {
        return Some(on(Backing::Device, None));
    }
    let (scheme, rest) = uri.split_once(':')?;
    if rest.is_empty() {
        return None;
    }
    let size = |text: &str| words::size(text.split('?').next()?, 512..=u64::MAX).ok();
    Some(match scheme {
        "ram" => on(Backing::Ram, size(rest)),
        "null" => on(Backing::Null, size(rest)),
        "file" => {
            let created = rest.split_once("?create=").and_then(|(_, created)| size(created));
            on(Backing::File, created)
        }
        scheme if ELSEWHERE.contains(&scheme) => Below::default(),
        _ => return None,
    })
}

/// Whether a model's options give it a write cache; what its file says nobody knows here.
fn has_cache(instrument: &str) -> bool {
    let (_, options) = instrument.split_once('?').unwrap_or_default();
    let mut sizes = options.split('&').filter_map(|option| option.strip_prefix("cache_mib="));
    sizes.any(|mebibytes| mebibytes != "0")
}

/// Whether a file system that is mounted so has its disk flush where it is to be durable.
fn flushes(options: &str) -> bool {
    options.split(',').fold(true, |flushes, option| match option {
        "barrier=0" | "nobarrier" => false,
        "barrier" | "barrier=1" => true,
        _ => flushes,
    })
}

/// Options of a file system, as they are handed to `mount`.
fn mount_options(text: &str) -> Result<String, String> {
    let is_one = |option: &str| {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"_=.:-".contains(&byte);
        !option.is_empty() && option.bytes().all(is_right) && !option.starts_with(['-', '='])
    };
    match text.split(',').all(is_one) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected options such as \"noatime,commit=20\", seen {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_says_what_holds_the_blocks() {
        let plain = Below { backing: Some(Backing::Ram), bytes: Some(1 << 20), cached: false };
        let ram = Some(plain);
        let cached = |uri| below(uri).expect("a URI").cached;
        assert!(cached("delay:5,model:ssd?seed=1&cache_mib=8,ram:1MiB"));
        assert!(cached("model:ssd?cache_mib=8,model:ssd,file:/srv/a"));
        assert!(!cached("model:ssd?cache_mib=0&cache_us=5,ram:1MiB"));
        assert_eq!(below("ram:1MiB"), ram);
        assert_eq!(below("ram:1MiB?touch=1"), ram);
        assert_eq!(below("delay:5,burn:1,faulty:7,ram:1MiB"), ram);
        assert_eq!(below("model:hdd-10k?channels=2&seed=7,delay:5,ram:1MiB"), ram);
        assert_eq!(below("model:/srv/a%2Cb.toml,ram:1MiB"), ram);
        // A comma ends an instrument: what follows this one is no disk.
        assert_eq!(below("model:/srv/a,b.toml,ram:1MiB"), None);
        let backing = |uri| below(uri).expect("a URI").backing;
        assert_eq!(backing("file:/srv/a"), Some(Backing::File));
        assert_eq!(below("file:/srv/a?create=1MiB").expect("a URI").bytes, Some(1 << 20));
        assert_eq!(backing("/dev/sdb"), Some(Backing::Device));
        assert_eq!(backing("null:1GiB"), Some(Backing::Null));
        assert_eq!(backing("nvme+tcp://h:4420/nqn.x/1"), None);
        for wrong in
            ["", "ram", "/srv/a", "Ram:1MiB", ":x", "ram:", "delay:5", "7x:1", "a b:c", "ramm:1MiB"]
        {
            assert_eq!(below(wrong), None, "{wrong}");
        }
    }
}
