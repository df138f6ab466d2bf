//! The keys of a job file: which are understood, which are accepted and mean nothing here, and which of
//! fio's are refused, each with the reason.
//!
//! A key that is in none of these lists is unknown. Errors: a key that is refused or unknown, a value
//! that is not what its key takes.

use super::text::Section;
use super::values::{self, Expected, Value};
use crate::mistake::{Mistake, Span};

/// What a section has for a key.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) value: Value,
    /// Of the value.
    pub(super) span: Span,
}

/// What a key is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It means what it means to fio.
    Understood,
    /// It may stand there, and changes nothing that a disk is asked for.
    Idle,
    /// fio knows it, and a file that has it is refused.
    Refused,
}

/// A key that is understood.
struct Key {
    name: &'static str,
    alias: Option<&'static str>,
    /// Whether it may stand alone, which is 1.
    alone: bool,
    parse: fn(&str) -> Result<Value, Expected>,
}

const fn key(name: &'static str, parse: fn(&str) -> Result<Value, Expected>) -> Key {
    Key { name, alias: None, alone: false, parse }
}

impl Key {
    const fn or(self, alias: &'static str) -> Key {
        Key { alias: Some(alias), ..self }
    }

    const fn alone(self) -> Key {
        Key { alone: true, ..self }
    }
}

const UNDERSTOOD: [Key; 31] = [
    key("name", values::text),
    key("filename", values::filename),
    key("ioengine", values::engine),
    key("rw", values::rw).or("readwrite"),
    key("rwmixread", values::percent),
    key("rwmixwrite", values::percent),
    key("bs", values::bs).or("blocksize"),
    key("bssplit", values::bssplit),
    key("iodepth", values::iodepth),
    key("numjobs", values::numjobs),
    key("size", values::amount),
    key("offset", values::amount).or("fileoffset"),
    key("offset_increment", values::amount),
    key("io_size", values::amount).or("io_limit"),
    key("loops", values::count),
    key("runtime", values::time),
    key("time_based", values::flag).alone(),
    key("ramp_time", values::time),
    key("stonewall", values::flag).or("wait_for_previous").alone(),
    key("rate_iops", values::rates),
    key("rate_process", values::process),
    key("random_distribution", values::distribution),
    key("norandommap", values::flag).alone(),
    key("randseed", values::number),
    key("randrepeat", values::flag),
    key("sync", values::sync),
    key("fsync", values::count),
    key("fdatasync", values::count),
    key("verify", values::verify),
    key("do_verify", values::do_verify),
    key("kb_base", values::kb_base),
];

/// Keys with a reason that they share.
type Reasons = &'static [(&'static str, &'static [&'static str])];

const IDLE: Reasons = &[
    ("words for people", &["description"]),
    (
        "whether a cache is passed by is the disk's: its URI says so",
        &["direct", "buffered", "invalidate"],
    ),
    (
        "jobs are carried by threads of the bench",
        &["thread", "nrfiles", "openfiles", "file_service_type"],
    ),
    (
        "clones of a job are told together, and reads, writes and trims apart and together",
        &["group_reporting", "new_group", "unified_rw_reporting", "stats"],
    ),
    (
        "which CPUs and how much memory a process gets is said to the process, as with taskset",
        &[
            "cpus_allowed",
            "cpumask",
            "cpus_allowed_policy",
            "numa_cpu_nodes",
            "numa_mem_policy",
            "nice",
            "prio",
            "prioclass",
            "mem",
            "iomem",
            "lockmem",
            "hugepage-size",
        ],
    ),
    ("each write has data of its own anyway", &["refill_buffers", "scramble_buffers"]),
    (
        "a disk is there already, and is written where it holds data only with --overwrite",
        &[
            "fallocate",
            "fadvise_hint",
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "overwrite",
            "allow_file_create",
            "allow_mounted_write",
            "unlink",
            "unlink_each_loop",
            "unique_filename",
        ],
    ),
    ("a disk is flushed when it is closed", &["end_fsync", "fsync_on_close"]),
    (
        "what fails is counted and told, and the exit code says so",
        &["continue_on_error", "ignore_error", "error_dump", "exitall_on_error", "verify_fatal"],
    ),
    (
        "every read is verified, and at the end all that was written",
        &[
            "verify_interval",
            "header_interval",
            "verify_dump",
            "verify_async",
            "verify_async_cpus",
            "verify_backlog",
            "verify_backlog_batch",
            "verify_state_save",
        ],
    ),
    ("all numbers are drawn by one generator", &["allrandrepeat", "random_generator"]),
    ("a rate is kept request by request", &["rate_cycle", "rate_ignore_thinktime"]),
    (
        "the report is that of the bench",
        &[
            "gtod_reduce",
            "gtod_cpu",
            "clocksource",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw_measurement",
            "disable_bw",
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "percentile_list",
            "significant_figures",
            "disk_util",
            "unit_base",
            "block_error_percentiles",
        ],
    ),
    (
        "seconds are logged by --log, and drawn by --svg",
        &[
            "write_bw_log",
            "write_lat_log",
            "write_iops_log",
            "write_hist_log",
            "per_job_logs",
            "bwavgtime",
            "iopsavgtime",
            "log_avg_msec",
            "log_hist_msec",
            "log_hist_coarseness",
            "log_max_value",
            "log_offset",
            "log_prio",
            "log_entries",
            "log_compression",
            "log_compression_cpus",
            "log_store_compressed",
            "log_unix_epoch",
            "log_alternate_epoch",
            "log_alternate_epoch_clock_id",
        ],
    ),
    (
        "how an engine of fio talks to the kernel",
        &[
            "userspace_reap",
            "hipri",
            "hipri_percentage",
            "fixedbufs",
            "registerfiles",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "nonvectored",
            "uncached",
            "force_async",
        ],
    ),
];

const REFUSED: Reasons = &[
    (
        "the disk is the one of the command line",
        &[
            "directory",
            "filename_format",
            "opendir",
            "lockfile",
            "filesize",
            "file_append",
            "fill_device",
            "fill_fs",
        ],
    ),
    (
        "sizes are those of bs or bssplit, and requests begin at multiples of the smallest",
        &[
            "ba",
            "blockalign",
            "bsrange",
            "blocksize_range",
            "bs_unaligned",
            "blocksize_unaligned",
            "offset_align",
        ],
    ),
    (
        "a rate is in requests a second: rate_iops",
        &["rate", "rate_min", "ratemin", "rate_iops_min", "rate_iopsmin"],
    ),
    (
        "a request leaves as soon as there is room for it",
        &[
            "thinktime",
            "thinktime_spin",
            "thinktime_blocks",
            "thinktime_blocks_type",
            "thinktime_iotime",
            "iodepth_batch",
            "iodepth_batch_submit",
            "iodepth_batch_complete",
            "iodepth_batch_complete_min",
            "iodepth_batch_complete_max",
            "iodepth_low",
            "serialize_overlap",
            "io_submit_mode",
            "flow",
            "flow_id",
            "flow_sleep",
            "flow_watermark",
        ],
    ),
    (
        "requests are in order, or at random by random_distribution",
        &["percentage_random", "rw_sequencer"],
    ),
    (
        "jobs begin together, or behind a stonewall, and each ends by itself",
        &["startdelay", "start_delay", "wait_for", "exitall", "exit_what", "number_ios"],
    ),
    (
        "a disk is not searched for a load that it can bear: --steady of a bench without a job file measures until it is steady",
        &[
            "max_latency",
            "latency_target",
            "latency_window",
            "latency_percentile",
            "latency_run",
            "steadystate",
            "ss",
            "steadystate_duration",
            "ss_dur",
            "steadystate_ramp_time",
            "ss_ramp",
        ],
    ),
    (
        "what is written is marked our way, so that it can be verified",
        &[
            "zero_buffers",
            "buffer_pattern",
            "buffer_compress_percentage",
            "buffer_compress_chunk",
            "dedupe_percentage",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dedupe_global",
            "verify_pattern",
            "verify_offset",
            "verify_only",
            "experimental_verify",
            "verify_state_load",
            "trim_percentage",
            "trim_verify_zero",
            "trim_backlog",
            "trim_backlog_batch",
        ],
    ),
    (
        "a flush is for all of the disk, and a write is durable with sync=1",
        &["write_barrier", "sync_file_range", "atomic", "write_hint"],
    ),
    (
        "nothing is replayed",
        &[
            "write_iolog",
            "read_iolog",
            "read_iolog_chunked",
            "replay_no_stall",
            "replay_redirect",
            "replay_scale",
            "replay_align",
            "replay_time_scale",
            "replay_skip",
            "merge_blktrace_file",
            "merge_blktrace_scalars",
            "merge_blktrace_iters",
        ],
    ),
    (
        "a disk has no zones here",
        &[
            "zonemode",
            "zonesize",
            "zonecapacity",
            "zonerange",
            "zoneskip",
            "read_beyond_wp",
            "max_open_zones",
            "job_max_open_zones",
            "ignore_zone_limits",
            "zone_reset_threshold",
            "zone_reset_frequency",
        ],
    ),
    (
        "it is done by hand, before or after",
        &[
            "exec_prerun",
            "exec_postrun",
            "ioscheduler",
            "pre_read",
            "create_only",
            "profile",
            "cgroup",
            "cgroup_nodelete",
            "cgroup_weight",
            "uid",
            "gid",
        ],
    ),
];

/// Every key, what it is here, and of those that are not understood the reason.
pub fn table() -> Vec<(&'static str, Standing, &'static str)> {
    let understood = UNDERSTOOD.iter().map(|key| (key.name, Standing::Understood, ""));
    let of = |reasons: Reasons, standing| {
        reasons
            .iter()
            .flat_map(move |(why, keys)| keys.iter().map(move |key| (*key, standing, *why)))
    };
    understood.chain(of(IDLE, Standing::Idle)).chain(of(REFUSED, Standing::Refused)).collect()
}

/// Takes a key of a section with its value.
pub(super) fn take(
    section: &mut Section,
    name: &str,
    key_span: &Span,
    value: Option<&str>,
    span: &Span,
    mistakes: &mut Vec<Mistake>,
) {
    let find = |key: &&Key| key.name == name || key.alias == Some(name);
    if let Some(key) = UNDERSTOOD.iter().find(find) {
        match understood(key, value, span) {
            Ok(parsed) => {
                let misleads = value.filter(|text| text.to_ascii_lowercase().ends_with("ib"));
                let told = |text: &str| {
                    (
                        span.start,
                        format!(
                            "{text} is {} bytes, as to fio: units with an i are powers of 1000, and k, m, g of 1024",
                            values::bytes(text).unwrap_or(0)
                        ),
                    )
                };
                section
                    .notes
                    .extend(misleads.filter(|_| matches!(parsed, Value::Amount(_))).map(told));
                give(section, key.name, Given { value: parsed, span: span.clone() });
            }
            Err(mistake) => {
                section.refused.push(key.name);
                mistakes.push(mistake);
            }
        }
        return;
    }
    let other = table().into_iter().find(|(key, ..)| *key == name);
    match other {
        Some((key, Standing::Idle, _)) => section.idle.push(key),
        Some((key, _, why)) => {
            let message = format!("{key} is a key of fio that is not taken here: {why}");
            mistakes.push(Mistake::at(key_span, message).help("leave it out, or see docs/fio.md"));
        }
        None => mistakes.push(unknown(name, key_span)),
    }
}

fn understood(key: &Key, value: Option<&str>, span: &Span) -> Result<Value, Mistake> {
    let name = key.name;
    let text = match value {
        None if key.alone => "1",
        None => {
            return Err(Mistake::at(
                span,
                format!("{name}: expected a value, as in {name}=..., seen none"),
            ));
        }
        Some(text) => text,
    };
    let quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    (key.parse)(text).map_err(|expected| {
        let mistake = Mistake::at(span, format!("{name}: expected {expected}, seen {text:?}"));
        match quoted {
            true => {
                Mistake { help: Some("fio knows no quotes: leave them out".to_owned()), ..mistake }
            }
            false => mistake,
        }
    })
}

/// The last of several counts; of the shares of a mix the last says both, as to fio.
fn give(section: &mut Section, name: &'static str, given: Given) {
    match name {
        "rwmixread" => section.given.remove("rwmixwrite"),
        "rwmixwrite" => section.given.remove("rwmixread"),
        _ => None,
    };
    section.given.insert(name, given);
}

fn unknown(name: &str, span: &Span) -> Mistake {
    let known = table().into_iter().filter(|(_, standing, _)| *standing == Standing::Understood);
    Mistake::at(span, format!("{name:?} is no key of a job file")).meant(
        name,
        known.map(|(key, ..)| key),
        "understood",
    )
}

/// A note on the keys that were accepted and mean nothing here.
pub(super) fn idle_seen(sections: &[Section]) -> Option<String> {
    let mut seen: Vec<&str> = sections.iter().flat_map(|one| one.idle.iter().copied()).collect();
    seen.sort_unstable();
    seen.dedup();
    let mean = if seen.len() == 1 { "means" } else { "mean" };
    (!seen.is_empty()).then(|| format!("{} {mean} nothing here (docs/fio.md)", seen.join(", ")))
}
