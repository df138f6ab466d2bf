//! Disk URIs: one spelling for anything that holds blocks, local or remote.
//!
//! ```text
//! ram:SIZE    null:SIZE    file:PATH[?create=SIZE]    /dev/...    volume:NAME
//! delay:US,URI    faulty:SEED,URI
//! nvme+tcp://host[:port]/NQN/NSID[?queues=N&depth=D&hdgst=0|1&ddgst=0|1&host_nqn=NQN
//!                                  &keep_alive_ms=N&deadline_s=N&quiesce_ms=N]
//! ```
//!
//! Odd characters: in a path or an NQN, `%XX` is the byte XX. `%` and `?` must be written so (in an NQN
//! also `/` and `&`); everything else may stand as it is, blanks and commas included, since `delay:` and
//! `faulty:` end at their first comma and their inner URI takes the rest.
//! `Display` is the canonical spelling, which parses back to the same value; options at their default
//! are left out. Units: bytes, microseconds, or what the option's name ends in.
//! Errors: what was expected, what was seen, and the column. Not here: opening a disk.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::address::HostPort;
use super::mistake::nearest;
use super::nqn::Nqn;
use super::size::{Size, parse_size};

/// The port of NVMe/TCP, which every listener of ours answers discovery on as well.
pub(crate) const NVME_TCP_PORT: u16 = 4420;

/// How many instruments (`delay:`, `faulty:`) may stand around a disk.
const NESTING_MAX: usize = 8;

/// Sizes of disks are multiples of this many bytes, the smallest block.
const SECTOR_BYTES: u64 = 512;

/// The schemes that are built in, as messages list them.
const SCHEMES: [&str; 7] =
    ["ram:", "null:", "file:", "delay:", "faulty:", "nvme+tcp://", "volume:"];

/// Schemes of the plan that this program cannot open yet.
const SCHEMES_LATER: [&str; 4] = ["aoe", "iscsi", "rbd", "nvme+rdma"];

/// A disk, as a command or a configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskUri {
    /// Memory of this process.
    Ram {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// Discards writes and reads as zeros: the instrument that measures everything above it.
    Null {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// A regular file.
    File {
        /// Relative to the working directory of the process unless absolute.
        path: PathBuf,
        /// Size of the sparse file to create where there is none.
        create_bytes: Option<u64>,
    },
    /// A block device, by its absolute path.
    BlockDevice {
        /// Such as `/dev/nvme0n1` or a link below `/dev/disk/by-id`.
        path: PathBuf,
    },
    /// A disk whose completions come later.
    Delay {
        /// Added to each completion, in microseconds.
        delay_us: u64,
        /// The disk that does the work.
        inner: Box<DiskUri>,
    },
    /// A disk that fails by a seed.
    Faulty {
        /// Draws the faults; the same seed and requests give the same faults.
        seed: u64,
        /// The disk that does the work.
        inner: Box<DiskUri>,
    },
    /// A namespace of a remote (or our own) NVMe/TCP target.
    NvmeTcp(NvmeTcpUri),
    /// A volume of the configuration given with `--config`, opened without a network.
    Volume {
        /// The `name` of a `[[volume]]`.
        name: String,
    },
}

/// How to reach a namespace over NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeTcpUri {
    /// The target's listener.
    pub(crate) address: HostPort,
    /// The subsystem to connect to.
    pub(crate) subsystem: Nqn,
    /// The namespace: 1 to FFFFFFFEh.
    pub(crate) nsid: u32,
    /// I/O queues, one connection each: 1 to 128.
    pub(crate) queues: u16,
    /// Commands in flight on a queue: 1 to 1024.
    pub(crate) depth: u16,
    /// Whether to ask for a CRC32C of each header.
    pub(crate) header_digest: bool,
    /// Whether to ask for a CRC32C of each payload.
    pub(crate) data_digest: bool,
    /// Who we say we are; one is made of the machine's identity where this is `None`.
    pub(crate) host_nqn: Option<Nqn>,
    /// Keep-alive timeout asked for at Connect, in milliseconds.
    pub(crate) keep_alive_ms: u32,
    /// How long to reconnect before requests end in an error, in seconds.
    pub(crate) deadline_s: u32,
    /// Beyond the keep-alive timeout, how long a lost association may still write, in milliseconds.
    pub(crate) quiesce_ms: u32,
}

impl NvmeTcpUri {
    /// I/O queues where the URI names none.
    pub(crate) const QUEUES_DEFAULT: u16 = 1;
    /// Depth of a queue where the URI names none.
    pub(crate) const DEPTH_DEFAULT: u16 = 128;
    /// What Linux asks for (`nvme_core.admin_timeout` aside): 5 s.
    pub(crate) const KEEP_ALIVE_MS_DEFAULT: u32 = 5_000;
    /// Reconnect for a minute, as long as a disk may be stuck before it is given up.
    pub(crate) const DEADLINE_S_DEFAULT: u32 = 60;
    /// A disk is slow after 5 s; a target that lost us should have drained by then.
    pub(crate) const QUIESCE_MS_DEFAULT: u32 = 5_000;

    /// The namespace with every option at its default.
    pub(crate) fn new(address: HostPort, subsystem: Nqn, nsid: u32) -> Self {
        Self {
            address,
            subsystem,
            nsid,
            queues: Self::QUEUES_DEFAULT,
            depth: Self::DEPTH_DEFAULT,
            header_digest: true,
            data_digest: true,
            host_nqn: None,
            keep_alive_ms: Self::KEEP_ALIVE_MS_DEFAULT,
            deadline_s: Self::DEADLINE_S_DEFAULT,
            quiesce_ms: Self::QUIESCE_MS_DEFAULT,
        }
    }
}

/// A text that is no disk URI; `Display` says where and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriError {
    /// The whole text.
    pub(crate) uri: String,
    /// The bytes of `uri` that are wrong; empty where something is missing.
    pub(crate) at: Range<usize>,
    /// What is wrong, in full, without the position.
    pub(crate) message: String,
    /// What to write instead, where that can be guessed.
    pub(crate) help: Option<String>,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.uri[..self.at.start].chars().count() + 1;
        write!(f, "disk {:?}, column {column}: {}", self.uri, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UriError {}

impl DiskUri {
    /// The disk inside all instruments: itself, unless it is a `delay:` or `faulty:`.
    pub(crate) fn innermost(&self) -> &DiskUri {
        match self {
            DiskUri::Delay { inner, .. } | DiskUri::Faulty { inner, .. } => inner.innermost(),
            other => other,
        }
    }

    /// Whether two URIs lead to the same bytes, so that only one disk may own them.
    pub(crate) fn same_backing(&self, other: &DiskUri) -> bool {
        match (self.innermost(), other.innermost()) {
            (
                DiskUri::File { path: a, .. } | DiskUri::BlockDevice { path: a },
                DiskUri::File { path: b, .. } | DiskUri::BlockDevice { path: b },
            ) => a == b,
            (DiskUri::NvmeTcp(a), DiskUri::NvmeTcp(b)) => {
                a.address == b.address && a.subsystem == b.subsystem && a.nsid == b.nsid
            }
            (DiskUri::Volume { name: a }, DiskUri::Volume { name: b }) => a == b,
            _ => false,
        }
    }
}

impl FromStr for DiskUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Parser { uri: text }.disk(0, 0)
    }
}

/// Parses the address of a target for `discover`: `nvme+tcp://host[:port]`, port 4420 unless named.
pub(crate) fn parse_target(text: &str) -> Result<HostPort, UriError> {
    let parser = Parser { uri: text };
    let Some(rest) = text.strip_prefix("nvme+tcp://") else {
        return Err(parser.expected(0..text.len(), "a target such as nvme+tcp://127.0.0.1:4420"));
    };
    let at = text.len() - rest.len();
    parser.address(at..at + rest.trim_end_matches('/').len())
}

/// Parses one URI; every method takes byte ranges of `uri`, so that each error knows its place.
struct Parser<'a> {
    uri: &'a str,
}

impl Parser<'_> {
    fn fail(&self, at: Range<usize>, message: impl Into<String>) -> UriError {
        UriError { uri: self.uri.to_owned(), at, message: message.into(), help: None }
    }

    fn expected(&self, at: Range<usize>, what: &str) -> UriError {
        let seen = &self.uri[at.clone()];
        let seen = if seen.is_empty() { "nothing".to_owned() } else { format!("{seen:?}") };
        self.fail(at, format!("expected {what}, seen {seen}"))
    }

    fn disk(&self, from: usize, nesting: usize) -> Result<DiskUri, UriError> {
        let text = &self.uri[from..];
        let end = self.uri.len();
        if text.starts_with('/') {
            return self.device(from..end);
        }
        let scheme_end = text.find([':', '/', ',']).filter(|at| text[*at..].starts_with(':'));
        let Some(scheme_end) = scheme_end else {
            let mut error = self
                .expected(from..end, &format!("an absolute path or one of {}", SCHEMES.join(" ")));
            if text.contains(['/', '.']) {
                error.help = Some(format!("a regular file is file:{text}"));
            }
            return Err(error);
        };
        let body = from + scheme_end + 1..end;
        match &text[..scheme_end] {
            "ram" => Ok(DiskUri::Ram { bytes: self.size(body)? }),
            "null" => Ok(DiskUri::Null { bytes: self.size(body)? }),
            "file" => self.file(body),
            "volume" => self.volume(body),
            "delay" => {
                let (delay_us, inner) = self.instrument(body, "microseconds", nesting)?;
                Ok(DiskUri::Delay { delay_us, inner })
            }
            "faulty" => {
                let (seed, inner) = self.instrument(body, "a seed", nesting)?;
                Ok(DiskUri::Faulty { seed, inner })
            }
            "nvme+tcp" => self.nvme_tcp(body),
            scheme => Err(self.unknown_scheme(from..from + scheme_end, scheme)),
        }
    }

    fn unknown_scheme(&self, at: Range<usize>, scheme: &str) -> UriError {
        let known = SCHEMES.join(" ");
        if SCHEMES_LATER.contains(&scheme) {
            return self.fail(
                at,
                format!("{scheme} is not built in; this program opens {known} and block devices"),
            );
        }
        let mut error = self.fail(
            at,
            format!("scheme {scheme:?} is not known; expected an absolute path or {known}"),
        );
        let names = SCHEMES.map(|name| name.trim_end_matches(['/', ':']));
        let meant = if matches!(scheme, "nvme" | "tcp" | "nvmf") {
            Some("nvme+tcp")
        } else {
            nearest(scheme, names)
        };
        error.help = meant.map(|name| format!("did you mean {name}?"));
        error
    }

    /// A size of a disk: a multiple of 512 that is not zero.
    fn size(&self, at: Range<usize>) -> Result<u64, UriError> {
        let bytes =
            parse_size(&self.uri[at.clone()]).map_err(|e| self.fail(at.clone(), e.to_string()))?;
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(self.expected(at, "a multiple of 512 bytes that is not zero"));
        }
        Ok(bytes)
    }

    fn device(&self, at: Range<usize>) -> Result<DiskUri, UriError> {
        if let Some(mark) = self.uri[at.clone()].find('?') {
            let mut error = self.fail(at.start + mark..at.end, "a block device takes no options");
            error.help =
                Some("write a ? in a path as %3F, or file:PATH?create=SIZE for a file".to_owned());
            return Err(error);
        }
        Ok(DiskUri::BlockDevice { path: self.path(at)? })
    }

    fn file(&self, at: Range<usize>) -> Result<DiskUri, UriError> {
        let (mut path_at, query) = self.split_query(at);
        let text = &self.uri[path_at.clone()];
        if let Some(rest) = text.strip_prefix("//") {
            // The `file://` form of RFC 8089: an empty host, then an absolute path.
            if !rest.starts_with('/') {
                let host = path_at.start..path_at.start + 2 + rest.find('/').unwrap_or(rest.len());
                return Err(self.expected(host, "a path without a host, as in file:/srv/a.img"));
            }
            path_at.start += 2;
        }
        if path_at.is_empty() {
            return Err(self.expected(path_at, "a path, as in file:/srv/a.img"));
        }
        let path = self.path(path_at)?;
        let mut create_bytes = None;
        for (key, value) in self.options(query, &["create"])? {
            debug_assert_eq!(key, "create");
            create_bytes = Some(self.size(value)?);
        }
        Ok(DiskUri::File { path, create_bytes })
    }

    fn volume(&self, at: Range<usize>) -> Result<DiskUri, UriError> {
        let name = &self.uri[at.clone()];
        check_name(name).map_err(|expected| self.expected(at, expected))?;
        Ok(DiskUri::Volume { name: name.to_owned() })
    }

    /// `NUMBER,URI`, the form of the instruments.
    fn instrument(
        &self,
        at: Range<usize>,
        what: &str,
        nesting: usize,
    ) -> Result<(u64, Box<DiskUri>), UriError> {
        if nesting == NESTING_MAX {
            return Err(self.fail(at, format!("more than {NESTING_MAX} instruments around a disk")));
        }
        let text = &self.uri[at.clone()];
        let comma = text.find(',').unwrap_or(text.len());
        let number_at = at.start..at.start + comma;
        let number = &self.uri[number_at.clone()];
        let parsed = match number.strip_prefix("0x") {
            Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                u64::from_str_radix(hex, 16).ok()
            }
            None if number.bytes().all(|b| b.is_ascii_digit()) => number.parse().ok(),
            _ => None,
        };
        let Some(value) = parsed else {
            return Err(
                self.expected(number_at, &format!("{what} as a whole number, a comma and a disk"))
            );
        };
        if comma == text.len() {
            return Err(self.expected(at.end..at.end, "a comma and the disk inside"));
        }
        Ok((value, Box::new(self.disk(at.start + comma + 1, nesting + 1)?)))
    }

    fn nvme_tcp(&self, at: Range<usize>) -> Result<DiskUri, UriError> {
        const FORM: &str = "nvme+tcp://host:port/NQN/NSID";
        let Some(rest) = self.uri[at.clone()].strip_prefix("//") else {
            return Err(self.expected(at, &format!("// and a host: {FORM}")));
        };
        let start = at.end - rest.len();
        let (whole, query) = self.split_query(start..at.end);
        let mut parts = self.split(whole.clone(), '/');
        let address = self.address(parts.remove(0))?;
        if parts.len() != 2 {
            let mut error = self.expected(whole, &format!("three parts: {FORM}"));
            error.help = (parts.len() > 2).then(|| "write a / in an NQN as %2F".to_owned());
            return Err(error);
        }
        let (nqn_at, nsid_at) = (parts[0].clone(), parts[1].clone());
        let subsystem = self.nqn(nqn_at)?;
        let nsid = u32::try_from(self.number(nsid_at, "a namespace", 1..=0xffff_fffe)?)
            .unwrap_or(u32::MAX);
        let mut uri = NvmeTcpUri::new(address, subsystem, nsid);
        const KEYS: [&str; 8] = [
            "queues",
            "depth",
            "hdgst",
            "ddgst",
            "host_nqn",
            "keep_alive_ms",
            "deadline_s",
            "quiesce_ms",
        ];
        for (key, value) in self.options(query, &KEYS)? {
            let number = |range| self.number(value.clone(), key, range);
            // The ranges fit their types, so the casts below cannot cut.
            match key {
                "queues" => uri.queues = number(1..=128)? as u16,
                "depth" => uri.depth = number(1..=1024)? as u16,
                "hdgst" => uri.header_digest = number(0..=1)? == 1,
                "ddgst" => uri.data_digest = number(0..=1)? == 1,
                "host_nqn" => uri.host_nqn = Some(self.nqn(value)?),
                "keep_alive_ms" => uri.keep_alive_ms = number(100..=3_600_000)? as u32,
                "deadline_s" => uri.deadline_s = number(1..=86_400)? as u32,
                _ => uri.quiesce_ms = number(0..=3_600_000)? as u32,
            }
        }
        Ok(DiskUri::NvmeTcp(uri))
    }

    fn address(&self, at: Range<usize>) -> Result<HostPort, UriError> {
        HostPort::parse(&self.uri[at.clone()], Some(NVME_TCP_PORT))
            .map_err(|e| self.fail(at.start + e.offset..at.end, e.message))
    }

    fn nqn(&self, at: Range<usize>) -> Result<Nqn, UriError> {
        let bytes = self.decode(at.clone())?;
        let text =
            String::from_utf8(bytes).map_err(|_| self.expected(at.clone(), "an NQN in UTF-8"))?;
        text.parse().map_err(|e: super::nqn::NqnError| {
            // Offsets hold only where nothing was encoded.
            let plain = !self.uri[at.clone()].contains('%');
            let from = if plain { (at.start + e.offset).min(at.end) } else { at.start };
            self.fail(from..at.end, e.message)
        })
    }

    fn number(
        &self,
        at: Range<usize>,
        what: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, UriError> {
        let text = &self.uri[at.clone()];
        let number =
            if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        number.filter(|n| range.contains(n)).ok_or_else(|| {
            self.expected(at, &format!("{what} of {} to {}", range.start(), range.end()))
        })
    }

    /// Cuts `PATH?QUERY` in two; the second is `None` where there is no `?`.
    fn split_query(&self, at: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
        match self.uri[at.clone()].find('?') {
            Some(mark) => (at.start..at.start + mark, Some(at.start + mark + 1..at.end)),
            None => (at, None),
        }
    }

    fn split(&self, at: Range<usize>, by: char) -> Vec<Range<usize>> {
        let mut from = at.start;
        let mut parts = Vec::new();
        for part in self.uri[at].split(by) {
            parts.push(from..from + part.len());
            from += part.len() + by.len_utf8();
        }
        parts
    }

    /// The options of a query as (key, range of its value): each known, none twice.
    fn options<'k>(
        &self,
        query: Option<Range<usize>>,
        known: &[&'k str],
    ) -> Result<Vec<(&'k str, Range<usize>)>, UriError> {
        let mut found: Vec<(&str, Range<usize>)> = Vec::new();
        for option in query.map_or(Vec::new(), |query| self.split(query, '&')) {
            let text = &self.uri[option.clone()];
            let Some(equals) = text.find('=') else {
                return Err(self.expected(option, &format!("an option such as {}=...", known[0])));
            };
            let key_at = option.start..option.start + equals;
            let Some(key) = known.iter().find(|key| **key == &text[..equals]) else {
                let mut error =
                    self.expected(key_at, &format!("one of the options {}", known.join(", ")));
                error.help = nearest(&text[..equals], known.iter().copied())
                    .map(|key| format!("did you mean {key}?"));
                return Err(error);
            };
            if found.iter().any(|(other, _)| other == key) {
                return Err(self.fail(key_at, format!("option {key} is given twice")));
            }
            found.push((key, option.start + equals + 1..option.end));
        }
        Ok(found)
    }

    fn path(&self, at: Range<usize>) -> Result<PathBuf, UriError> {
        let bytes = self.decode(at.clone())?;
        if bytes.contains(&0) {
            return Err(self.fail(at, "a path holds no zero byte"));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    fn decode(&self, at: Range<usize>) -> Result<Vec<u8>, UriError> {
        let text = self.uri[at.clone()].as_bytes();
        let mut bytes = Vec::with_capacity(text.len());
        let mut i = 0;
        while i < text.len() {
            if text[i] != b'%' {
                bytes.push(text[i]);
                i += 1;
                continue;
            }
            let digit = |k: usize| text.get(k).and_then(|b| char::from(*b).to_digit(16));
            let (Some(high), Some(low)) = (digit(i + 1), digit(i + 2)) else {
                let mut error = self.fail(
                    at.start + i..at.start + i + 1,
                    "expected two hexadecimal digits after %",
                );
                error.help = Some("write a % itself as %25".to_owned());
                return Err(error);
            };
            bytes.push((high * 16 + low) as u8);
            i += 3;
        }
        Ok(bytes)
    }
}

/// Checks the name of a disk or volume; the error is what was expected.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if starts_well && name.len() <= 64 && name.bytes().all(legal) {
        Ok(())
    } else {
        Err("a name of 1 to 64 letters, digits, -, _ or . that begins with a letter or digit")
    }
}

/// Bytes with every one of `special`, control characters and what is not UTF-8 written as `%XX`.
struct Encoded<'a>(&'a [u8], &'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '%' || c.is_ascii_control() || self.1.contains(c) {
                    write!(f, "%{:02X}", u32::from(c))?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(f, "{}", Encoded(path.as_os_str().as_bytes(), "?"))
}

impl fmt::Display for DiskUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskUri::Ram { bytes } => write!(f, "ram:{}", Size(*bytes)),
            DiskUri::Null { bytes } => write!(f, "null:{}", Size(*bytes)),
            DiskUri::File { path, create_bytes } => {
                f.write_str("file:")?;
                // A path that begins with two slashes would read as the form with a host.
                if path.as_os_str().as_bytes().starts_with(b"//") {
                    f.write_str("//")?;
                }
                write_path(f, path)?;
                create_bytes.map_or(Ok(()), |bytes| write!(f, "?create={}", Size(bytes)))
            }
            DiskUri::BlockDevice { path } => write_path(f, path),
            DiskUri::Delay { delay_us, inner } => write!(f, "delay:{delay_us},{inner}"),
            DiskUri::Faulty { seed, inner } => write!(f, "faulty:{seed},{inner}"),
            DiskUri::NvmeTcp(uri) => uri.fmt(f),
            DiskUri::Volume { name } => write!(f, "volume:{name}"),
        }
    }
}

impl fmt::Display for NvmeTcpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subsystem = Encoded(self.subsystem.as_str().as_bytes(), "/?");
        write!(f, "nvme+tcp://{}/{subsystem}/{}", self.address, self.nsid)?;
        let numbers = [
            ("queues", u32::from(self.queues), u32::from(Self::QUEUES_DEFAULT)),
            ("depth", u32::from(self.depth), u32::from(Self::DEPTH_DEFAULT)),
            ("hdgst", u32::from(self.header_digest), 1),
            ("ddgst", u32::from(self.data_digest), 1),
            ("keep_alive_ms", self.keep_alive_ms, Self::KEEP_ALIVE_MS_DEFAULT),
            ("deadline_s", self.deadline_s, Self::DEADLINE_S_DEFAULT),
            ("quiesce_ms", self.quiesce_ms, Self::QUIESCE_MS_DEFAULT),
        ];
        let mut mark = '?';
        for (key, value, _) in numbers.into_iter().filter(|(_, value, default)| value != default) {
            write!(f, "{mark}{key}={value}")?;
            mark = '&';
        }
        match &self.host_nqn {
            Some(nqn) => write!(f, "{mark}host_nqn={}", Encoded(nqn.as_str().as_bytes(), "&?")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
