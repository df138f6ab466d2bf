//! From a text to a [`DiskUri`]: one pass, every part with its place, so that an error can point at
//! it.
//!
//! In: the text. Out: the value, or a [`UriError`] with what was expected, what was seen and the
//! bytes that are wrong. Sizes in bytes.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use reactor::disk::{BURN_MAX_US, Tail};

use super::super::mistake::nearest;
use super::super::size::parse_size;
use super::modelled::{Base, ModelUri};
use super::{Around, DiskUri, UriError, check_name};
use crate::protocols::RemoteUri;

/// How many instruments (`delay:`, `burn:`, `faulty:`, `model:`) may stand around a disk.
pub(super) const NESTING_MAX: usize = 8;

/// Sizes of disks are multiples of this many bytes, the smallest block.
const SECTOR_BYTES: u64 = 512;

/// The schemes that are built in, as messages list them.
fn schemes() -> Vec<&'static str> {
    let local: &[&str] = &["ram:", "null:", "file:", "delay:", "burn:", "faulty:", "model:"];
    [local, &RemoteUri::SCHEMES, &["volume:"]].concat()
}

/// Schemes of the plan that this program cannot open yet.
const SCHEMES_LATER: [&str; 2] = ["rbd", "nvme+rdma"];

impl FromStr for DiskUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Parser { uri: text }.disk(0, 0)
    }
}

/// Parses one URI; every method takes byte ranges of `uri`, so that each error knows its place.
pub(crate) struct Parser<'a> {
    pub(crate) uri: &'a str,
}

impl Parser<'_> {
    pub(crate) fn fail(&self, at: Range<usize>, message: impl Into<String>) -> UriError {
        UriError { uri: self.uri.to_owned(), at, message: message.into(), help: None }
    }

    pub(crate) fn expected(&self, at: Range<usize>, what: &str) -> UriError {
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
            let mut error = self.expected(
                from..end,
                &format!("an absolute path or one of {}", schemes().join(" ")),
            );
            if text.contains(['/', '.']) && !text.contains(char::is_control) {
                error.help = Some(format!("a regular file is file:{text}"));
            }
            return Err(error);
        };
        let body = from + scheme_end + 1..end;
        match &text[..scheme_end] {
            "ram" => self.ram(body),
            "null" => Ok(DiskUri::Null { bytes: self.size(body)? }),
            "file" => self.file(body),
            "volume" => self.volume(body),
            "delay" => {
                let (us, inner) = self.instrument(body, "microseconds", nesting)?;
                Ok(DiskUri::Instrumented { instrument: Around::Delay { us }, inner })
            }
            "burn" => {
                let at = body.clone();
                let (us, inner) = self.instrument(body, "microseconds", nesting)?;
                if us.saturating_add(inner.burn_us()) > BURN_MAX_US {
                    let most = format!(
                        "at most {BURN_MAX_US} microseconds of CPU a request, of all burn: together"
                    );
                    let number = self.uri[at.clone()].find(',').unwrap_or(0);
                    return Err(self.expected(at.start..at.start + number, &most));
                }
                Ok(DiskUri::Instrumented { instrument: Around::Burn { us }, inner })
            }
            "faulty" => {
                let (seed, inner) = self.instrument(body, "a seed", nesting)?;
                Ok(DiskUri::Instrumented { instrument: Around::Faulty { seed }, inner })
            }
            "model" => self.modelled(body, nesting),
            scheme => match RemoteUri::parse(self, scheme, body) {
                Some(uri) => uri.map(DiskUri::Remote),
                None => Err(self.unknown_scheme(from..from + scheme_end, scheme)),
            },
        }
    }

    fn unknown_scheme(&self, at: Range<usize>, scheme: &str) -> UriError {
        let schemes = schemes();
        let known = schemes.join(" ");
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
        let names = schemes.iter().map(|name| name.trim_end_matches(['/', ':']));
        let meant = RemoteUri::meant(scheme).or_else(|| nearest(scheme, names));
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

    fn ram(&self, at: Range<usize>) -> Result<DiskUri, UriError> {
        let (size, query) = self.split_query(at);
        let (bytes, mut touch) = (self.size(size)?, false);
        for (key, value) in self.options(query, &["touch"])? {
            touch = self.number(value, key, 0..=1)? == 1;
        }
        Ok(DiskUri::Ram { bytes, touch })
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
        let (mut create_bytes, mut tail) = (None, Tail::Refuse);
        for (key, value) in self.options(query, &["create", "tail"])? {
            let is_second = create_bytes.is_some() || tail == Tail::Ignore;
            match key {
                _ if is_second => {
                    let message =
                        "create and tail exclude each other: a file that is made has no tail";
                    return Err(self.fail(value, message));
                }
                "create" => create_bytes = Some(self.size(value)?),
                _ if self.uri[value.clone()] == *"ignore" => tail = Tail::Ignore,
                _ => return Err(self.expected(value, "ignore")),
            }
        }
        Ok(DiskUri::File { path, create_bytes, tail })
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
        let number_at = self.up_to_comma(&at, nesting)?;
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
        Ok((value, self.inside(&at, number_at.end, nesting)?))
    }

    /// `NAME[?OPTIONS],URI`.
    fn modelled(&self, at: Range<usize>, nesting: usize) -> Result<DiskUri, UriError> {
        let model_at = self.up_to_comma(&at, nesting)?;
        let model = ModelUri::parse(self, model_at.clone())?;
        let inner = self.inside(&at, model_at.end, nesting).map_err(|mut error| {
            // Where no disk begins behind the comma, and another comma comes, it was one of the path.
            let rest = &self.uri[model_at.end..at.end];
            if matches!(model.base, Base::File(_))
                && error.at.start == model_at.end + 1
                && rest.matches(',').count() > 1
            {
                error.help = Some("write a comma in the path of a model's file as %2C".to_owned());
            }
            error
        })?;
        Ok(DiskUri::Instrumented { instrument: Around::Model(Box::new(model)), inner })
    }

    /// What an instrument says of itself.
    fn up_to_comma(&self, at: &Range<usize>, nesting: usize) -> Result<Range<usize>, UriError> {
        if nesting == NESTING_MAX {
            let message = format!("more than {NESTING_MAX} instruments around a disk");
            return Err(self.fail(at.clone(), message));
        }
        let text = &self.uri[at.clone()];
        Ok(at.start..at.start + text.find(',').unwrap_or(text.len()))
    }

    /// The disk behind the comma of an instrument.
    fn inside(
        &self,
        at: &Range<usize>,
        comma: usize,
        nesting: usize,
    ) -> Result<Box<DiskUri>, UriError> {
        if comma == at.end {
            return Err(self.expected(at.end..at.end, "a comma and the disk inside"));
        }
        Ok(Box::new(self.disk(comma + 1, nesting + 1)?))
    }

    pub(crate) fn number(
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
    pub(crate) fn split_query(&self, at: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
        match self.uri[at.clone()].find('?') {
            Some(mark) => (at.start..at.start + mark, Some(at.start + mark + 1..at.end)),
            None => (at, None),
        }
    }

    /// Whom `discover` asks, which may end in slashes and takes no path.
    pub(crate) fn without_path(
        &self,
        at: Range<usize>,
        form: &str,
    ) -> Result<Range<usize>, UriError> {
        let whole = self.uri[at.clone()].trim_end_matches('/');
        let end = at.start + whole.len();
        let Some(length) = whole.find('/') else { return Ok(at.start..end) };
        let path_at = at.start + length..end;
        let expected = format!("{form} and no path: discover asks a target for all that it has");
        let mut error = self.expected(path_at, &expected);
        error.help = Some(format!("write {:?}", &self.uri[..at.start + length]));
        Err(error)
    }

    pub(crate) fn split(&self, at: Range<usize>, by: char) -> Vec<Range<usize>> {
        let mut from = at.start;
        let mut parts = Vec::new();
        for part in self.uri[at].split(by) {
            parts.push(from..from + part.len());
            from += part.len() + by.len_utf8();
        }
        parts
    }

    /// The options of a query as (key, range of its value): each known, none twice.
    pub(crate) fn options<'k>(
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

    pub(super) fn path(&self, at: Range<usize>) -> Result<PathBuf, UriError> {
        let bytes = self.decode(at.clone())?;
        if bytes.contains(&0) {
            return Err(self.fail(at, "a path holds no zero byte"));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    pub(crate) fn decode(&self, at: Range<usize>) -> Result<Vec<u8>, UriError> {
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
