use clap::CommandFactory;

use super::values::Pattern;
use super::*;

fn parse(line: &str) -> Result<Command, String> {
    let words = std::iter::once("plateway").chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_lines_of_the_help_are_accepted() {
    for line in [
        "serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any --driver io_uring --shards 0,1 --memory 64MiB --poll-us 50",
        "serve --config plateway.toml --driver epoll",
        "check",
        "check p.toml --json",
        "apply p.toml --control /run/p.sock --yes --allow-empty",
        "status --json",
        "status --watch",
        "status --watch 0.5 --control /run/p.sock",
        "status --config p.toml --json",
        "disks list",
        "disks reopen d0 --control /run/p.sock",
        "disks accept d0 --config p.toml --new",
        "disks accept file:/a --state /s --json",
        "disks wipe d0 --config p.toml --yes",
        "disks wipe /dev/vdb",
        "config --control /run/p.sock",
        "init p.toml",
        "volume resize v0 10GiB --control /run/p.sock",
        "volume resize v0 all --json",
        "host add v0 nqn.2026-11.a:h",
        "host remove v0 02:00:00:00:00:01 --yes --json",
        "session list --json",
        "session close nqn.2026-11.a:h --control /run/p.sock",
        "connect v0",
        "connect v0 --for esxi --address nas.example --json",
        "reservation clear v0 --control /run/p.sock --json",
        "group set 2 standby --control /run/p.sock --json",
        "bench ram:1GiB --rw randrw=75 --bs 4k --iodepth 32 --numjobs 4 --time 10 --rate 1000 --verify --overwrite --json",
        "bench ram:1GiB --time 2m --warmup 500ms --rate 10k --offset 1g --size 4g --sync --log a.csv --svg a.svg",
        "bench ram:1GiB --time 0.5 --rw randtrim --fsync 1",
        "bench volume:v0 --config p.toml --rw write --bs 128k --warmup 0 --control /run/p.sock",
        "copy file:/a ram:1GiB --no-verify --overwrite --resume --json --iodepth 8 --bs 1m",
        "copy file:/a file:/b --resume --verify-rest",
        "discover nvme+tcp://127.0.0.1 --host-nqn nqn.2026-11.net.plateway:me",
        "discover aoe://eth1,eth2?vlan=5 --time 3 --json",
        "serve ram:1GiB --aoe eth1/7.0 --hosts 02:00:00:00:00:01",
        "bench aoe://eth1/7.0?window=16 --rw randread",
        "bench aoe://pw:far/7.0?window=16 --config router.toml --verify --overwrite",
        "demo --keep",
        "sim --seed 1 --seeds 5 --twice --plant drops-flush --scenario kill --trace",
        "dissect a.pcap --json",
        "wire",
        "wire --mtu 9000 --block 64KiB",
        "wire --block 1k --json",
        "lab recommend a.json --by p99.9 --json",
        "lab watch a.toml",
        "lab paper rocha --list --json",
        "lab paper rocha --quick --result a.json --overwrite --json",
        "lab watch a.toml --every 1h --times 3 --results a --textfile b.prom --json",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn a_configuration_is_named_by_its_place_or_by_a_flag() {
    for (line, file) in [
        ("check", "plateway.toml"),
        ("check p.toml", "p.toml"),
        ("check --config p.toml", "p.toml"),
        ("apply --config p.toml --json", "p.toml"),
    ] {
        let args = match parse(line) {
            Ok(Command::Check(args)) => args,
            Ok(Command::Apply(args)) => args.config,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(args.file(), Path::new(file), "{line}");
    }
}

#[test]
fn wrong_lines_say_what_was_expected() {
    for (line, part) in [
        ("serve", "<DISK>"),
        ("status --watch 0", "expected a time such as"),
        ("status --watch --json", "cannot be used with"),
        ("serve ram:1GiB --config p.toml", "cannot be used with"),
        ("serve --config p.toml --hosts any", "cannot be used with"),
        ("serve --config p.toml --chap-user u", "cannot be used with"),
        ("serve --config p.toml --chap-user u --chap-secret-file f", "cannot be used with"),
        ("check p.toml --config p.toml", "cannot be used with"),
        ("serve ram:1GiB --driver uring", "possible values: auto, io_uring, epoll"),
        ("bench ram:1G", "column 5: unit \"G\""),
        ("bench ram:1GiB --rw erase", "expected read, write, trim, randread"),
        ("bench ram:1GiB --rw rw=70,40", "at most 100 percent together"),
        ("bench ram:1GiB --rw rw=70,x", "expected trims of 0 to 100 percent"),
        ("bench ram:1GiB --time 0", "expected a time such as 10s"),
        ("bench ram:1GiB --time 2d", "expected a time such as 10s"),
        ("bench ram:1GiB --steady 50ms", "500ms, from 100ms up to 24h, seen"),
        ("bench ram:1GiB --rate 0", "expected a number such as 500 or 10k"),
        ("bench ram:1GiB --rate many", "expected a number such as 500 or 10k"),
        ("bench ram:1GiB --rw randread=5", "only rw and randrw take a percentage"),
        ("bench ram:1GiB --rw rw=101", "expected reads of 0 to 100 percent"),
        ("bench ram:1GiB --bs 1000", "expected a multiple of 512 bytes up to 1m"),
        ("bench ram:1GiB --bs 2m", "expected a multiple of 512 bytes up to 1m"),
        ("bench ram:1GiB --iodepth 0", "1..=1024"),
        ("copy rbd:a/b ram:1GiB", "rbd is not built in"),
        ("copy iscsi://a/b ram:1GiB", "expected three parts: iscsi://host:port/IQN/LUN"),
        ("discover 127.0.0.1", "expected a target such as nvme+tcp://127.0.0.1:4420"),
        ("discover nvme+tcp://h --host-nqn me", "expected \"nqn.\""),
        ("wire --mtu 67", "68..=65535"),
        ("lab recommend a.json --by speed", "expected a measure, one of iops, throughput"),
        ("lab watch a.toml --every 1ms", "from 1000ms up to 24h"),
        ("lab watch a.toml --times 2", "required arguments were not provided"),
        ("lab watch a.toml --every 1h --times 0", "0 is not in 1.."),
        ("lab paper", "<NAME>"),
        ("lab paper rocha --list --quick", "cannot be used with"),
        ("lab paper rocha --list --result a.json", "cannot be used with"),
        ("wire --block 1000", "expected a multiple of 512 bytes up to 1m"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn patterns_round_trip() {
    for text in [
        "read",
        "write",
        "trim",
        "randread",
        "randwrite",
        "randtrim",
        "rw=75",
        "randrw=1",
        "rw=70,10",
        "randrw=0,1",
    ] {
        assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
    }
    assert_eq!("randrw".parse(), Ok(Pattern { random: true, read_percent: 50, trim_percent: 0 }));
    assert_eq!(
        "randrw=100".parse(),
        Ok(Pattern { random: true, read_percent: 100, trim_percent: 0 })
    );
}

#[test]
fn a_copy_is_verified_unless_told_otherwise() {
    for (flags, verified) in [
        ("", true),
        ("--no-verify", false),
        ("--no-verify --verify", true),
        ("--verify --no-verify", false),
    ] {
        let Ok(Command::Copy(copy)) = parse(&format!("copy ram:1GiB null:1GiB {flags}")) else {
            panic!("{flags}")
        };
        assert_eq!(copy.verify(), verified, "{flags}");
    }
}
