//! What the user wrote: a plan file as it stands, every value with its span, and each key explained
//! where it is.
//!
//! This is the first of two types (`LowPlan`, then [`super::Experiment`]): nothing is defaulted or
//! resolved here, and sizes, times and names are still texts. Keys are added, never renamed. The
//! same keys for users: docs/plans.md, which a test holds to these tables.

#[cfg(test)]
use super::reader::Written;
use super::reader::{Many, Scalar, Tables, table};

const NAME: &str = "a name in quotes";
const TEXT: &str = "a text in quotes";
const YES_OR_NO: &str = "true or false";
pub(super) const FRACTION: &str = "a part such as \"10%\" or 0.1";
const RATIO: &str = "a ratio such as 0.9 or \"90%\"";
pub(super) const TIME: &str = "a time such as \"5m\", \"1s\" or \"500ms\"";
pub(super) const NUMBER: &str = "a whole number";
const DISK: &str = "a disk in quotes, such as \"ram:512MiB\"";
const WORDS: &str = "a list of words in quotes";
const INTERFACE: &str = "the name of an interface, such as \"eth1\"";
const COMMAND: &str = "a command and its arguments, such as [\"tgtd\", \"-f\"]";

table! {
    LowPlan = "the plan" {
        /// What the plan is called in results and pages.
        name "name": String = NAME,
        /// What it wants to find out, for whoever reads its results.
        about "about": String = TEXT,
        /// What orders, offsets and resampling are drawn from. 1 if absent: the same plan again
        /// runs in the same order.
        seed "seed": Scalar = NUMBER,
        /// The difference that every comparison wants to see, if it is there.
        difference "difference": Scalar = FRACTION,
        /// How much two systems may differ and be called equal; `difference` if absent.
        equal_within "equal-within": Scalar = FRACTION,
        /// The most rounds of a comparison, pilots and repeats apart.
        rounds_max "rounds-max": Scalar = NUMBER,
        /// So many rounds, named before the first one, in place of those that pilots ask for.
        rounds "rounds": Scalar = NUMBER,
        /// How long all of it may take; without it, as long as its rounds need.
        time "time": Scalar = TIME,
        /// The length of a window, of which a trial has 5 to 25. If absent 1 s, and 60 s where
        /// a file or a device is below.
        window "window": Scalar = TIME,
        /// How long a trial runs before its first window; at least until polling has settled.
        warm_up "warm-up": Scalar = TIME,
        /// Whether others work on this machine, too: what they do is noted then, and makes no trial
        /// unsteady.
        shared "shared": bool = YES_OR_NO,
        /// What is measured.
        systems "system": Tables<LowSystem> = "[[system]] tables",
        /// Over what it is reached.
        paths "path": Tables<LowPath> = "[[path]] tables",
        /// How it is loaded where a comparison or picture does not say.
        load "load": LowLoad = "a table [load]",
        /// What is compared, with a verdict each.
        compares "compare": Tables<LowCompare> = "[[compare]] tables",
        /// What is drawn, without verdicts.
        pictures "picture": Tables<LowPicture> = "[[picture]] tables",
    }
}

table! {
    LowSystem = "[[system]]" {
        /// What comparisons call it.
        name "name": String = NAME,
        /// Any disk that `plateway bench` takes, reached as its URI says.
        disk "disk": String = DISK,
        /// A Plateway that the lab starts at the far end of a path.
        serve "serve": LowServe = "a table such as { protocol = \"nvme\", disk = \"ram:512MiB\" }",
        /// Another target that the lab knows to start: Debian's tgt or vblade.
        rival "rival": LowRival = "a table such as { program = \"tgt\", disk = \"ram:512MiB\" }",
        /// Any other target, by its own commands.
        target "target": LowTarget = "a table such as { start = [\"tgtd\"], uri = \"iscsi://...\" }",
        /// A folder of this machine, in which each trial has a file of its own.
        folder "folder": String = "a folder in quotes, such as \"/mnt/x\"",
        /// No disk, but a stream of TCP to the far end of a path: what the network alone carries.
        stream "stream": String = "tcp",
        /// A file system that the far end exports by NFS, and on which disk that is made.
        nfs "nfs": LowNfs = "a table such as { disk = \"ram:512MiB\" }",
        /// How many disks like its own it has, in a stripe. 1 if absent.
        disks "disks": Scalar = NUMBER,
        /// What is made on the disk and mounted, so that each trial has a file there: ext4.
        file_system "file-system": String = "ext4",
        /// With which options it is mounted.
        mount_options "mount-options": String = "options of mount in quotes, such as \"noatime,commit=20\"",
        /// Whether a folder by FUSE is above it, as above what comes by NFS: what that alone costs.
        fuse "fuse": bool = YES_OR_NO,
        /// How much is read or written by one call of NFS or FUSE at most.
        call_size "call-size": Scalar = "a size such as \"8KiB\"",
        /// Who works on that file: bench, fio or copy.
        client "client": String = "bench, fio or copy",
        /// Whether the kernel's own initiator reaches it.
        kernel "kernel": bool = YES_OR_NO,
        /// By whom it is reached and loaded in place of `plateway bench`: a command that takes what the lab appends.
        initiator "initiator": Many<String> = COMMAND,
        /// What holds its blocks, where the lab cannot know: ram, file, device or null.
        backing "backing": String = "ram, file, device or null",
        /// Whether what it has flushed survives a loss of power, where the lab cannot know.
        durable "durable": bool = YES_OR_NO,
    }
}

table! {
    LowServe = "serve of [[system]]" {
        /// By which protocol it is reached: aoe, iscsi or nvme.
        protocol "protocol": String = "aoe, iscsi or nvme",
        /// What it serves.
        disk "disk": String = DISK,
        /// By which protocol it reaches its disk, of another one beside it: iscsi or nvme.
        through "through": String = "iscsi or nvme",
        /// How long a shard looks for more before it sleeps: auto, never or a time.
        poll "poll": String = "\"auto\", \"never\" or microseconds such as \"50us\"",
        /// How many shards it has.
        shards "shards": Scalar = NUMBER,
        /// By what it does its I/O: auto, io_uring or epoll.
        driver "driver": String = "auto, io_uring or epoll",
        /// What frames and payloads carry digests of: none, header, data or both.
        digests "digests": String = "none, header, data or both",
        /// How AoE takes its frames: packet or xdp.
        access "access": String = "packet or xdp",
    }
}

table! {
    LowRival = "rival of [[system]]" {
        /// Which: tgt or vblade.
        program "program": String = "tgt or vblade",
        /// What it serves: memory, a file or a device.
        disk "disk": String = DISK,
    }
}

table! {
    LowTarget = "target of [[system]]" {
        /// Starts it; it may stay in the foreground or not.
        start "start": Many<String> = COMMAND,
        /// Succeeds as soon as it can be reached; without it, the disk is tried.
        ready "ready": Many<String> = COMMAND,
        /// Stops it; without it, what `start` started is ended.
        stop "stop": Many<String> = COMMAND,
        /// The disk, as it is reached then.
        uri "uri": String = DISK,
    }
}

table! {
    LowNfs = "nfs of [[system]]" {
        /// On what the file system is made that is exported.
        disk "disk": String = DISK,
        /// Whether each write is durable when it is answered, as NFS version 2 demands.
        sync "sync": bool = YES_OR_NO,
        /// Memory that the server may have, its page cache with it.
        memory "memory": Scalar = "a size such as \"64MiB\"",
        /// Whether the server reads and writes through its page cache. It does if absent.
        cache "cache": bool = YES_OR_NO,
    }
}

table! {
    LowPath = "[[path]]" {
        /// What comparisons call it.
        name "name": String = NAME,
        /// Of which kind it is: direct, mpls, gre, l2tp, mpls-udp, nat or machines.
        kind "kind": String = "a kind of path in quotes, such as \"direct\"",
        /// The largest payload of a frame at both ends.
        mtu "mtu": Scalar = NUMBER,
        /// Whether segmentation, receive and checksum offloads are on.
        offloads "offloads": bool = YES_OR_NO,
        /// On which CPU the near end deals with what it receives: with-client or apart.
        softirqs "softirqs": String = "with-client or apart, in quotes",
        /// How much it carries at most.
        rate "rate": Scalar = "a rate such as \"1Gbit\"",
        /// By how much each frame is late, in each direction.
        delay "delay": Scalar = "a time such as \"2ms\"",
        /// How many of its frames are lost, in each direction.
        loss "loss": Scalar = FRACTION,
        /// Between two machines: where the agent of the far end is.
        agent "agent": String = "where an agent is, such as \"ssh:root@store1\" or \"unix:/run/agent.sock\"",
        /// Between two machines: this machine's interface.
        near_interface "near-interface": String = INTERFACE,
        /// Between two machines: the other one's.
        far_interface "far-interface": String = INTERFACE,
        /// Between two machines: by which the far end is reached.
        far_address "far-address": String = "an address of IP, such as \"192.0.2.1\"",
    }
}

table! {
    /// `[load]`, and the keys of a load in whichever table they stand.
    LowLoad = "[load]" {
        /// Bytes of a request.
        block_size "block-size": Many<Scalar> = "a size such as \"4k\", or a list of them",
        /// What a job does, in the words of `plateway bench`.
        pattern "pattern": Many<String> = "a pattern such as \"randread\", or a list of them",
        /// How much of a mix reads.
        read_share "read-share": Many<Scalar> = "a part such as \"70%\", or a list of them",
        /// Requests that each job keeps in flight (a closed loop).
        depth "depth": Many<Scalar> = "a whole number, or a list of them",
        /// Jobs, each with a connection of its own.
        jobs "jobs": Many<Scalar> = "a whole number, or a list of them",
        /// Requests a second of all jobs together, whatever came back (an open loop).
        rate "rate": Many<Scalar> = "requests a second such as 500 or \"10k\", or a list of them",
        /// When the requests of an open loop leave: fixed or poisson.
        arrivals "arrivals": Many<String> = "fixed or poisson, or a list of both",
        /// How much of the disk is worked on, from its start; all of it if absent.
        size "size": Many<Scalar> = "a size such as \"256MiB\", or a list of them",
        /// Whether each write is to be durable when it is completed.
        sync "sync": Many<bool> = YES_OR_NO,
        /// After how many writes a job flushes.
        fsync "fsync": Many<Scalar> = "a whole number, or a list of them",
        /// Memory of the client's control group; of cells with a folder.
        client_memory "client-memory": Many<Scalar> = "a size such as \"256MiB\", or a list of them",
        /// The share of one CPU that the client may have.
        client_cpu "client-cpu": Many<Scalar> = "a part such as \"50%\", or a list of them",
        /// Whether the client's page cache is used; of cells with a folder.
        cache "cache": Many<bool> = YES_OR_NO,
        /// How many disks like its own a system has, in a stripe, in place of what it says itself.
        disks "disks": Many<Scalar> = "a whole number, or a list of them",
        /// Whose files the client works on: webserver, fileserver, varmail or oltp, or those of a program.
        files "files": Many<String> = "webserver, fileserver, varmail, oltp, bonnie++, postmark, pgbench or merge-sort, or a list of them",
    }
}

table! {
    LowCompare = "[[compare]]" + LowLoad {
        /// What results call it; its systems, path and load if absent.
        name "name": String = NAME,
        /// The systems of which verdicts speak.
        systems "systems": Many<String> = WORDS,
        /// The system that each of them is held against.
        reference "reference": String = NAME,
        /// In place of it: each is held against itself, with these words of its load or path changed.
        against "against": LowAgainst = "a table such as { cache = false } or { path = \"jumbo\" }",
        /// Over which path, or paths; the only one if absent.
        path "path": Many<String> = NAME,
        /// By what they are judged.
        of "of": Many<String> = "a measure such as \"iops\", or a list of them",
        /// The difference that this one wants to see.
        difference "difference": Scalar = FRACTION,
        /// How much these may differ and be called equal.
        equal_within "equal-within": Scalar = FRACTION,
        /// What the ratio to the reference is to be at least.
        at_least "at-least": Scalar = RATIO,
        /// What the ratio to the reference is to be at most.
        at_most "at-most": Scalar = RATIO,
        /// Whether it is secondary: labelled, and corrected for nothing.
        exploratory "exploratory": bool = YES_OR_NO,
    }
}

table! {
    LowAgainst = "against of [[compare]]" + LowLoad {
        /// Over which path it is reached then.
        path "path": String = NAME,
        /// By what it is judged then, in place of the comparison's only measure.
        of "of": String = "a measure such as \"write-iops\"",
    }
}

table! {
    LowPicture = "[[picture]]" + LowLoad {
        /// What the page calls it.
        name "name": String = NAME,
        /// The systems that are drawn.
        systems "systems": Many<String> = WORDS,
        /// Over which path, or paths; the only one if absent.
        path "path": Many<String> = NAME,
    }
}

/// Every table with its own keys, as docs/plans.md explains them.
#[cfg(test)]
pub(super) fn tables() -> Vec<(&'static str, Vec<&'static str>)> {
    fn of<T: Written>() -> (&'static str, Vec<&'static str>) {
        (T::TITLE, T::keys())
    }
    let mut all = vec![
        of::<LowPlan>(),
        of::<LowSystem>(),
        of::<LowServe>(),
        of::<LowRival>(),
        of::<LowTarget>(),
        of::<LowNfs>(),
        of::<LowPath>(),
        of::<LowLoad>(),
        of::<LowCompare>(),
        of::<LowAgainst>(),
        of::<LowPicture>(),
    ];
    let of_load = LowLoad::keys();
    for (_, keys) in all.iter_mut().skip(8) {
        keys.retain(|key| !of_load.contains(key));
    }
    all
}
