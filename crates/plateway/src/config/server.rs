//! `[server]`: what cannot change while the server runs.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use block::PAGE_SIZE;
use block::limits::{CONNECTIONS_MAX, MEMORY_DEFAULT, POOL_PAGES_MIN};
use contract::Poll;
use toml::Spanned;

use super::defaults::Defaults;
use super::file::{LowSize, NUMBER, SIZE, Written, table};
use super::mistake::{Mistake, Span};
use super::plan::Refused;
use super::poll::{POLL, POLL_KEY};
use super::resolve::Resolver;
use super::size::Size;
use super::text::{Count, quoted};
use crate::log::{Format, Level};

/// The least memory of the data path for each shard.
pub(crate) const MEMORY_PER_SHARD_MIN: u64 = POOL_PAGES_MIN as u64 * PAGE_SIZE as u64;
/// The most that `max_connections` may ask for; each takes a descriptor.
const CONNECTIONS_LIMIT: u64 = 1 << 20;
/// The longest path of a Unix socket: `sun_path` less its terminating zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

table! {
    LowServer = "[server]" {
        shards: Vec<Spanned<i64>> = "a list of CPUs such as [0, 1]",
        memory: LowSize = SIZE,
        control: String = "the path of a socket in quotes",
        control_group: String = "the name of a group in quotes",
        state: String = "the path of a directory in quotes",
        driver: String = "\"auto\", \"io_uring\" or \"epoll\"",
        poll: String = POLL,
        log: String = "\"auto\", \"text\" or \"json\"",
        log_level: String = "\"error\", \"warn\", \"info\" or \"debug\"",
        metrics: String = "an address in quotes, such as \"127.0.0.1:9899\"",
        max_connections: i64 = NUMBER,
        max_connections_per_host: i64 = NUMBER,
    }
}

/// By which its keys are found (`places`).
pub(crate) const SERVER_TITLE: &str = LowServer::TITLE;

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The CPUs to pin shards to, one shard each; never empty.
    pub(crate) shards: Vec<u32>,
    /// The budget of the data path, for all shards together.
    pub(crate) memory_bytes: u64,
    /// The control socket.
    pub(crate) control: PathBuf,
    /// The group that may use it beside its owner.
    pub(crate) control_group: Option<String>,
    /// The directory of identities.
    pub(crate) state: PathBuf,
    /// How effects are performed.
    pub(crate) driver: DriverChoice,
    /// How long shards look for more before they sleep, unless a listener, link or disk says
    /// otherwise.
    pub(crate) poll: Poll,
    /// How the log is written.
    pub(crate) log: Format,
    /// The least grave that is written.
    pub(crate) log_level: Level,
    /// Connections of all listeners together.
    pub(crate) connections_max: u32,
    /// Connections from one remote address.
    pub(crate) connections_per_host_max: u32,
}

/// Which driver performs effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DriverChoice {
    /// io_uring where it works, else epoll; the choice is said at start.
    #[default]
    Auto,
    /// io_uring, or an error.
    #[value(name = "io_uring")]
    IoUring,
    /// epoll and a pool of disk threads.
    Epoll,
}

impl DriverChoice {
    /// Every spelling, in the order of the documentation.
    pub(crate) const NAMES: [(&str, DriverChoice); 3] = [
        ("auto", DriverChoice::Auto),
        ("io_uring", DriverChoice::IoUring),
        ("epoll", DriverChoice::Epoll),
    ];
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Self::NAMES.iter().find(|(_, choice)| choice == self).map_or("auto", |(name, _)| name);
        f.write_str(name)
    }
}

impl Server {
    /// As a file has it, key by key.
    fn values(&self) -> [(&'static str, Option<String>); 11] {
        let path = |path: &Path| quoted(&path.display().to_string());
        [
            ("shards", Some(format!("{:?}", self.shards))),
            ("memory", Some(quoted(&Size(self.memory_bytes).to_string()))),
            ("control", Some(path(&self.control))),
            ("control_group", self.control_group.as_deref().map(quoted)),
            ("state", Some(path(&self.state))),
            ("driver", Some(quoted(&self.driver.to_string()))),
            (POLL_KEY, Some(quoted(&self.poll.to_string()))),
            ("log", Some(quoted(&self.log.to_string()))),
            ("log_level", Some(quoted(&self.log_level.to_string()))),
            ("max_connections", Some(self.connections_max.to_string())),
            ("max_connections_per_host", Some(self.connections_per_host_max.to_string())),
        ]
    }

    /// What another one would take a restart for.
    pub(super) fn changes(&self, to: &Server) -> Vec<Refused> {
        let pairs = self.values().into_iter().zip(to.values());
        let changed = pairs.filter(|((_, from), (_, to))| from != to);
        let plain = |value: Option<String>| {
            value.map_or_else(|| "none".to_owned(), |value| value.trim_matches('"').to_owned())
        };
        changed
            .map(|((key, from), (_, to))| Refused::NeedsRestart {
                key,
                from: plain(from),
                to: plain(to),
            })
            .collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::from("[server]\n");
        for (key, value) in self.values() {
            let _ = value.map(|value| writeln!(text, "{key} = {value}"));
        }
        text
    }
}

impl Resolver<'_> {
    pub(super) fn server(&mut self, low: &LowServer, defaults: &Defaults) -> Server {
        let memory_bytes = low
            .memory
            .as_ref()
            .and_then(|size| self.size(size, "memory"))
            .unwrap_or(MEMORY_DEFAULT);
        let shards = match &low.shards {
            Some(cpus) => self.shards(cpus, defaults),
            None => {
                // One a core, but no more than the budget can feed.
                let fed = usize::try_from(memory_bytes / MEMORY_PER_SHARD_MIN)
                    .unwrap_or(usize::MAX)
                    .max(1);
                defaults.cpus.iter().copied().take(fed).collect()
            }
        };
        let needed = MEMORY_PER_SHARD_MIN * shards.len().max(1) as u64;
        if let Some(memory) = low.memory.as_ref().filter(|_| memory_bytes < needed) {
            let count = Count(shards.len().max(1), "shard");
            let (needed, seen, each) =
                (Size(needed), Size(memory_bytes), Size(MEMORY_PER_SHARD_MIN));
            let message = format!(
                "memory is too small: expected at least {needed} for {count} ({each} each), seen {seen}"
            );
            self.error(memory.span(), message);
        } else if memory_bytes < needed {
            let span = low.shards.as_ref().map_or(low.span.clone(), Spanned::span);
            let message =
                format!("{} shards need memory = \"{}\" or more", shards.len(), Size(needed));
            self.error(span, format!("{message}, and the default is {}", Size(MEMORY_DEFAULT)));
        }
        let control =
            self.path(&low.control, "control").unwrap_or_else(|| defaults.control.clone());
        if let Some(written) =
            low.control.as_ref().filter(|_| control.as_os_str().len() > SOCKET_PATH_MAX)
        {
            let seen = control.as_os_str().len();
            let message =
                format!("the path of a socket has at most {SOCKET_PATH_MAX} bytes, seen {seen}");
            self.error(written.span(), message);
        }
        let control_group = low.control_group.as_ref().map(|written| {
            self.place(SERVER_TITLE.to_owned(), "control_group", written.span());
            written.get_ref().clone()
        });
        self.place(SERVER_TITLE.to_owned(), "", low.span.clone());
        if let Some(written) = &low.state {
            self.place(SERVER_TITLE.to_owned(), "state", written.span());
        }
        let limit = 1..=CONNECTIONS_LIMIT;
        let connections_max =
            self.number(&low.max_connections, "max_connections", limit).unwrap_or(CONNECTIONS_MAX);
        let limit = 1..=u64::from(connections_max);
        // Three quarters: one host, however it behaves, leaves room for others.
        let connections_per_host_max = self
            .number(&low.max_connections_per_host, "max_connections_per_host", limit)
            .unwrap_or((connections_max / 4 * 3).max(1));
        Server {
            shards,
            memory_bytes,
            control,
            control_group,
            state: self.path(&low.state, "state").unwrap_or_else(|| defaults.state.clone()),
            driver: self.word(&low.driver, "driver", &DriverChoice::NAMES),
            poll: self.poll(&low.poll).unwrap_or_default(),
            log: self.word(&low.log, "log", &Format::NAMES),
            log_level: self.word(&low.log_level, "log_level", &Level::NAMES),
            connections_max,
            connections_per_host_max,
        }
    }

    fn shards(&mut self, cpus: &Spanned<Vec<Spanned<i64>>>, defaults: &Defaults) -> Vec<u32> {
        if cpus.get_ref().is_empty() {
            let message =
                "shards is empty: expected at least one CPU, or no key at all for one shard a core";
            self.error(cpus.span(), message);
        }
        let mut shards: Vec<(u32, Span)> = Vec::new();
        for cpu in cpus.get_ref() {
            let span = cpu.span();
            let number =
                u32::try_from(*cpu.get_ref()).ok().filter(|number| defaults.cpus.contains(number));
            let Some(number) = number else {
                let (seen, expected) = (cpu.get_ref(), cpu_list(&defaults.cpus));
                let message =
                    format!("this process cannot run on CPU {seen}: expected one of {expected}");
                self.error(span, message);
                continue;
            };
            if let Some((_, first)) = shards.iter().find(|(other, _)| *other == number) {
                let message = format!("CPU {number} has a shard already");
                self.push(Mistake::error(span, message).first(first));
                continue;
            }
            shards.push((number, span));
        }
        shards.into_iter().map(|(number, _)| number).collect()
    }
}

/// CPUs as Linux lists them: `0-3,8`.
fn cpu_list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}
