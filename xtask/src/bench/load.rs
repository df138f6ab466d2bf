//! The loads: the bare client, `plateway bench`, fio, and the hog that competes with a target.
//!
//! Each runs for one window and comes back with JSON in which [`super::figure`] finds the figures.
//! Errors name the program, and carry what it wrote to standard error and what the server said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use testbed::process::read_all;

use super::aoe;
use super::mpls::{self, roads::Road};
use super::plan::{server_table, volume};
use super::process::{Bench, Done, Place, Server, output};

impl Bench {
    /// Waits until what came before has been cleared away by the server: it uses no CPU any more.
    pub(super) fn settle(&self, server: &Server) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let before = server.process.run_time();
            std::thread::sleep(Duration::from_millis(60));
            let spent = server.process.run_time().saturating_sub(before);
            if spent < 600_000 || Instant::now() > deadline {
                return Ok(());
            }
        }
    }

    /// The bare client against a server, for one window.
    pub(super) fn client(&self, server: &Server, args: &[&str], seconds: f64) -> Result<Value> {
        let own = self.load_cpu.to_string();
        let cpus = server.load_cpus.as_ref().unwrap_or(&own);
        let mut command = self.command(cpus, &self.yardstick);
        match &server.place {
            Place::Lan(_) => {
                return aoe::client(self, server, aoe::ADDRESS, args, seconds)
                    .map_err(|error| server.blame(error));
            }
            Place::Router { .. } => {
                return mpls::client(self, server, args, seconds)
                    .map_err(|error| server.blame(error));
            }
            Place::Road(_) | Place::OnRoad => bail!("no bare client is at a network's end"),
            Place::Nvme { address, subsystem } => {
                command.args(["client", "--connect", &address.to_string(), "--nqn", subsystem])
            }
            Place::Iscsi { address, target, luns } => command
                .args(["client-iscsi", "--connect", &address.to_string()])
                .args(["--target", target, "--lun", luns]),
        };
        command
            .arg("--json")
            .args(["--seconds", &seconds.to_string()])
            .args(["--target-pid", &server.process.pid().to_string()])
            .args(["--target-cpus", &server.cpus])
            .args(args);
        let mut value = output(command, seconds).map_err(|error| server.blame(error))?.value;
        ensure!(server.is_scraped(), "nothing reads the server's metrics any more");
        value["load_cpu_us_per_op"] = value["client_cpu_us_per_op"].clone();
        Ok(value)
    }

    /// `plateway bench` against a server, or in process on the stripe over four files.
    pub(super) fn initiator(
        &self,
        server: Option<&Server>,
        args: &[&str],
        seconds: f64,
    ) -> Result<Value> {
        let cpu = if server.is_some() { self.load_cpu } else { self.target_cpu };
        let command = match server.map(|server| (server, &server.place)) {
            Some((server, Place::Lan(_))) => aoe::initiator(self, server)?,
            Some((_, Place::Road(road))) => road.initiator(self),
            Some((_, Place::Router { .. } | Place::OnRoad)) => bail!("no initiator asks a router"),
            Some((_, Place::Iscsi { .. })) => bail!("no case asks with an initiator over iSCSI"),
            Some((_, Place::Nvme { address, subsystem })) => {
                let mut command = self.command(&cpu.to_string(), &self.plateway);
                command.arg("bench").arg(format!(
                    "nvme+tcp://{address}/{subsystem}/1?hdgst=0&ddgst=0&queues=1&depth=32"
                ));
                command
            }
            None => {
                let mut command = self.command(&cpu.to_string(), &self.plateway);
                command.args(["bench", "volume:v0", "--config"]).arg(self.stripe_of_files()?);
                command
            }
        };
        let road = server.and_then(|server| server.road().ok());
        let (before, from) = (road.map(Road::run_times), Instant::now());
        let done = ask(command, args, seconds)?;
        let (after, time) = (road.map(Road::run_times), from.elapsed().as_nanos() as f64);
        let mut value = done.value;
        if let (Some(road), Some(before), Some(after)) = (road, before, after) {
            value["idle"] = json!(done.idle);
            value["cpu_bound"] = road.is_bound(&done.idle).into();
            let busy = after.iter().zip(&before).map(|((name, after), (_, before))| {
                (name.to_string(), Value::from(after.saturating_sub(*before) as f64 / time))
            });
            value["routers_busy"] = Value::Object(busy.collect());
        }
        Ok(value)
    }

    /// fio on the four files of the stripe.
    pub(super) fn fio_on_stripe(&self, args: &[&str], seconds: f64) -> Result<Value> {
        has_fio()?;
        self.stripe_of_files()?;
        let names: Vec<PathBuf> = (0..4).map(|n| self.member(n)).collect();
        self.fio(&names, &[args, &["--readonly"]].concat(), seconds)
    }

    /// fio on the file that servers export.
    pub(super) fn fio_on_file(&self, args: &[&str], seconds: f64) -> Result<Value> {
        has_fio()?;
        self.fio(&[self.work_file()?.to_owned()], args, seconds)
    }

    /// fio with the io_uring engine on some files, past the page cache.
    fn fio(&self, files: &[PathBuf], args: &[&str], seconds: f64) -> Result<Value> {
        let names: Vec<String> =
            files.iter().map(|file| file.to_string_lossy().replace(':', "\\:")).collect();
        let whole = seconds.ceil().max(2.0);
        let mut command = self.command(&self.target_cpu.to_string(), Path::new("fio"));
        command
            .args(["--name=files", "--ioengine=io_uring", "--direct=1", "--time_based"])
            .args(["--output-format=json", "--allow_file_create=0", "--lat_percentiles=1"])
            .arg(format!("--filename={}", names.join(":")))
            .arg(format!("--runtime={whole}"))
            .args(args);
        let value = output(command, whole)?.value;
        fio_figures(&value).context("fio prints jobs/0 with iops and lat_ns/mean")
    }

    fn member(&self, number: usize) -> PathBuf {
        self.dir.join(format!("member-{number}"))
    }

    /// The configuration of a stripe over four files, whose every block has been written.
    fn stripe_of_files(&self) -> Result<PathBuf> {
        let file = self.dir.join("files.toml");
        if file.exists() {
            return Ok(file);
        }
        let unfinished = self.dir.join("files-unfinished.toml");
        let disks: Vec<String> =
            (0..4).map(|n| format!("file:{}?create=256MiB", self.member(n).display())).collect();
        let own = self.dir.join("files");
        fs::create_dir_all(&own)?;
        let text = server_table(&self.target_cpu.to_string(), &own) + &volume(&disks);
        fs::write(&unfinished, text)?;
        let mut command = self.command(&self.target_cpu.to_string(), &self.plateway);
        command
            .args(["bench", "volume:v0", "--rw", "write", "--bs", "1m", "--iodepth", "8"])
            .args(["--time", "8", "--overwrite", "--json", "--config"])
            .arg(&unfinished);
        output(command, 8.0).context("filling the files")?;
        fs::rename(&unfinished, &file)?;
        Ok(file)
    }
}

fn has_fio() -> Result<()> {
    let found = Command::new("fio").arg("--version").output();
    ensure!(found.is_ok(), "skipped: fio is not on PATH");
    Ok(())
}

/// What fio prints of reads or of writes, whichever it did, by our names.
fn fio_figures(value: &Value) -> Option<Value> {
    let part = ["/jobs/0/read", "/jobs/0/write"]
        .into_iter()
        .filter_map(|path| value.pointer(path))
        .find(|part| part["iops"].as_f64().is_some_and(|iops| iops > 0.0))?;
    let mean_ns = part.pointer("/lat_ns/mean")?.as_f64()?;
    let p50_ns = part.pointer("/lat_ns/percentile/50.000000").and_then(Value::as_f64);
    let p50 = p50_ns.map(|ns| ns / 1e3);
    Some(json!({"iops": part["iops"], "latency_us": {"mean": mean_ns / 1e3, "p50": p50}}))
}

/// One job of `plateway bench`, whose disk the command names; what it printed is put in our names.
fn ask(mut command: Command, args: &[&str], seconds: f64) -> Result<Done> {
    // Long enough to look at its CPU time twice in mid-run, whatever it does at start and end.
    let whole = seconds.ceil().max(2.0);
    command.args(args).args(["--numjobs=1", "--time", &whole.to_string(), "--json"]);
    let mut done = output(command, whole)?;
    done.value = initiator_figures(&done.value, args, done.cpu_share)
        .context("plateway bench prints iops and latency_ns with mean and p50")?;
    Ok(done)
}

/// What `plateway bench` prints, by the same names, and what it used of a CPU.
fn initiator_figures(value: &Value, args: &[&str], cpu_share: f64) -> Option<Value> {
    let iops = value["iops"].as_f64()?;
    let us = |name: &str| Some(value["latency_ns"][name].as_f64()? / 1e3);
    let size = args.iter().find_map(|arg| arg.strip_prefix("--bs=")).and_then(bytes);
    Some(json!({
        "iops": iops, "load_cpu_us_per_op": cpu_share * 1e6 / iops,
        "latency_us": {"mean": us("mean")?, "p50": us("p50")?},
        "mb_per_second": size.map(|size| iops * size / 1e6), "printed": value,
    }))
}

/// A hog on the target's CPU; it ends when it is dropped.
pub(super) struct Hog {
    child: Child,
    printed: Option<JoinHandle<String>>,
}

impl Hog {
    pub(super) fn start(bench: &Bench) -> Result<Self> {
        let cpu = bench.target_cpu.to_string();
        let mut command = bench.command(&cpu, &bench.yardstick);
        command.args(["hog", "--json", "--seconds=300", "--cpu", &cpu]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the hog")?;
        let printed = child.stdout.take().map(read_all);
        Ok(Self { child, printed })
    }

    /// Ends it, and adds to what a client saw how far the hog got in the client's window.
    pub(super) fn finish(mut self, raw: &mut Value) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        let printed = self.printed.take().and_then(|printed| printed.join().ok());
        let value: Value = serde_json::from_str(printed.unwrap_or_default().trim())
            .context("the JSON of the hog")?;
        let notes: Vec<[f64; 2]> =
            serde_json::from_value(value["notes"].clone()).context("the hog's notes")?;
        let ends: [f64; 2] = serde_json::from_value(raw["window_ns"].clone())
            .context("the ends of the client's window")?;
        let [from, to] = ends.map(|end| loops_at(&notes, end));
        let loops = to.zip(from).map(|(to, from)| to - from);
        let loops = loops.context("the hog did not run for the whole window")?;
        raw["hog_loops"] = loops.into();
        raw["hog_loops_per_second"] = (loops * 1e9 / (ends[1] - ends[0])).into();
        Ok(())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It has ended, if it was finished.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many loops the hog had done at a time, between its notes of (time, loops) in a straight line.
fn loops_at(notes: &[[f64; 2]], time: f64) -> Option<f64> {
    let after = notes.partition_point(|[at, _]| *at <= time);
    let ([from, before], [to, then]) = (*notes.get(after.checked_sub(1)?)?, *notes.get(after)?);
    Some(before + (then - before) * (time - from) / (to - from))
}

/// A size such as `4k`, in bytes.
fn bytes(size: &str) -> Option<f64> {
    let (digits, unit) = size.strip_suffix('k').map_or((size, 1.0), |digits| (digits, 1024.0));
    Some(digits.parse::<f64>().ok()? * unit)
}

/// The first number called `name`, at any depth.
pub(super) fn find(value: &Value, name: &str) -> Option<f64> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(Value::as_f64)
            .or_else(|| fields.values().find_map(|inner| find(inner, name))),
        Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::*;

    #[test]
    fn a_number_is_found_at_any_depth() {
        let value = json!({"read": [{"iops": 7.5}]});
        assert_eq!(find(&value, "iops"), Some(7.5));
        assert_eq!(find(&value, "bytes"), None);
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!(["4k", "512", "x"].map(bytes), [Some(4096.0), Some(512.0), None]);
    }

    #[test]
    fn what_fio_did_is_what_it_counted() {
        let none = json!({"iops": 0.0, "lat_ns": {"mean": 0.0}});
        let some = json!({"iops": 9.0, "lat_ns": {"mean": 1500.0}});
        let wrote = fio_figures(&json!({"jobs": [{"read": none, "write": some}]})).unwrap();
        assert_eq!((find(&wrote, "iops"), find(&wrote, "mean")), (Some(9.0), Some(1.5)));
        assert_eq!(fio_figures(&json!({"jobs": [{"read": none, "write": none}]})), None);
    }

    #[test]
    fn what_our_bench_did_is_in_the_names_of_all_loads() {
        let printed = json!({"iops": 1e5, "latency_ns": {"mean": 2e3, "p50": 1e3},
                             "read": {"iops": 7e4, "latency_ns": {"mean": 9e9}}});
        let value = initiator_figures(&printed, &["--bs=4k"], 0.5).unwrap();
        let of = |figure: Figure| figure.measured(&value).unwrap();
        assert_eq!((of(Figure::Iops), of(Figure::LoadCpu)), (1e5, 5.0));
        assert_eq!(of(Figure::Latency), 2.0);
        assert_eq!(of(Figure::Megabytes), 409.6);
        let blind = initiator_figures(&printed, &[], f64::NAN).unwrap();
        assert!(Figure::LoadCpu.measured(&blind).is_err(), "it was not looked at twice");
        assert_eq!(initiator_figures(&json!({"iops": 1.0}), &[], 0.5), None);
    }

    #[test]
    fn loops_are_read_off_between_two_notes_and_not_beyond_them() {
        let notes = [[100.0, 0.0], [200.0, 10.0], [400.0, 20.0]];
        let at = |time| loops_at(&notes, time);
        assert_eq!([at(100.0), at(150.0), at(300.0)], [Some(0.0), Some(5.0), Some(15.0)]);
        assert_eq!([at(99.0), at(400.0), at(401.0)], [None, None, None]);
    }
}
