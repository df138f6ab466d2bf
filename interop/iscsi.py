"""The iSCSI scenarios as the host sees them: Linux's initiator in the guest, QEMU's block layer, libvirt, iPXE, and libiscsi's test suite.

Sizes are bytes, sectors 512 of them. QEMU and iPXE are told of a LUN by a URL; what Linux is told is in scenarios/iscsi.sh.

docs/conformance.md has a line for each test of the suite with what must become of it: `passed`, or `skipped` and why.
What a run shows must be that table, line by line; a test that passes where the table says `skipped` fails the run as
well, so that the table stays true. With WRITE_TABLE in the environment a run without failures writes it, keeping the
reasons that stand in it.
"""
import json
import os
import re
import shutil
import subprocess

import ipxe
import libvirtd
from case import GUEST_MAC, STRIPE_SECTORS, Case, say, stripe_of_four
from lan import NotPermitted
from target import INITIATOR, IQN, MIB, Broken, Target

HERE = os.path.dirname(os.path.realpath(__file__))
TABLE = os.path.join(HERE, "..", "docs", "conformance.md")
SUITE_LIMIT_S = 1200  # a hang guard: it takes about a minute
NOT_PERMITTED = 77
UUID = "6f1c34a0-6b0a-4c70-9d3e-0a55c0ffee03"
QEMU_INITIATOR = "iqn.2008-11.org.linux-kvm"  # what qemu-img and qemu-io call themselves
STRANGER = "iqn.2026-11.net.plateway:stranger"
GATEWAY = "10.0.2.2"  # this host's loopback, as a machine behind QEMU's user network reaches it
HEAD = """# Conformance: libiscsi's test suite

What `iscsi-test-cu` (Debian's libiscsi-bin {version}, with writing tests allowed) makes of a volume over iSCSI. `interop/run --bin PATH iscsi-suite`
compares a run with this table, in `make test`; `iscsi-planted` shows that it can fail.

| suite | test | result | why |
| --- | --- | --- | --- |
"""


def served(options, disk=Target.ram_disk):
    """A target with two volumes under LUNs 0 and 1, on disks of this kind."""
    case = Case(options)
    target = case.target
    for number in range(2):
        disk(target, f"d{number}", 64 * MIB)
        target.volume(f"v{number}", "single", [f"d{number}"])
        target.luns[number] = f"v{number}", "any"
    return case


def url(target, lun=0):
    return f"iscsi://127.0.0.1:{target.iscsi_port}/{IQN}/{lun}"


def told(target, client, *words):
    """What `plateway connect` says is typed on such a client to use volume v0 over iSCSI, line by line."""
    done = subprocess.run([target.binary, "connect", "v0", "--for", client, "--json", "--control", target.control, *words],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return next(way["commands"] for way in json.loads(done.stdout) if way["protocol"] == "iSCSI")


def told_url(target, client, *words):
    """The disk in what it says."""
    return re.search(r"iscsi:\S+", told(target, client, *words)[-1]).group().partition(",")[0]


# What fails by a flaw of the suite's own.
FLAWS = {("GetLBAStatus", "UnmapSingle"): "asks for the status of block i + 1 and expects that of block i + n, with n logical blocks in a "
                                          "physical one, which is right where n is 1"}


def run_suite(target, *tests):
    """Runs the suite, or some of its tests; -> {(suite, test): (result, what it said)}."""
    which = [f"--test={test}" for test in tests] or ["--test=ALL"]
    results = {}
    for argument in which:
        done = subprocess.run(["iscsi-test-cu", "--dataloss", "--ignore", "--verbose", argument, url(target)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=SUITE_LIMIT_S, check=False)
        found = parsed(done.stdout + done.stderr)
        if not found:
            raise Broken(f"the suite ran no test (code {done.returncode}):\n{(done.stdout + done.stderr)[-2000:]}")
        results.update(found)
    return results


def parsed(text):
    """The results of a run. CUnit prints `Suite: name` and `Test: name ...words... passed` or `FAILED`; a test that
    skips itself says so in words and passes."""
    results, suite, test, words = {}, None, None, []

    def close(result):
        said = "\n".join(words)
        skipped = re.search(r"\[SKIPPED\]\s*(.*)", said)
        if result == "passed" and skipped:
            result = "skipped"
        results[suite, test] = (result, skipped.group(1).strip() if skipped else said)

    for line in text.splitlines():
        if match := re.match(r"\s*Suite: (\S+)", line):
            suite, test = match.group(1), None
            continue
        if match := re.match(r"\s*Test: (\S+)\s*\.\.\.(.*)", line):
            test, words, line = match.group(1), [], match.group(2)
        # Behind it may stand what the next suite says first.
        if test and (match := re.match(r"(passed|FAILED)", line)):
            close(match.group(1).lower())
            test = None
        elif test:
            words.append(line)
    return results


def table():
    """What docs/conformance.md says: {(suite, test): (result, why)}."""
    rows = {}
    with open(TABLE) as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("| ") and len(cells) == 4 and cells[2] in ("passed", "skipped", "failed"):
                rows[cells[0], cells[1]] = (cells[2], cells[3])
    return rows


def version():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libiscsi-bin"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "of unknown version"


def write(results):
    old = table() if os.path.exists(TABLE) else {}
    with open(TABLE, "w") as f:
        f.write(HEAD.format(version=version()))
        for (suite, test), (result, said) in results.items():
            why = old.get((suite, test), (None, None))[1] if old.get((suite, test), (None,))[0] == result else None
            why = FLAWS.get((suite, test)) or why or said
            f.write(f"| {suite} | {test} | {result} | {why if result != 'passed' else ''} |\n")


def suite(options):
    if not shutil.which("iscsi-test-cu"):
        say("iscsi-test-cu is not here: install libiscsi-bin")
        raise SystemExit(NOT_PERMITTED)
    with served(options) as case:
        case.target.start()
        results = run_suite(case.target)
        failed = {key: said for key, (result, said) in results.items() if result == "failed" and key not in FLAWS}
        for (suite_name, test), said in failed.items():
            say(f"FAIL: {suite_name}.{test}: {said.strip()[-600:]}")
        if os.environ.get("WRITE_TABLE"):
            write(results)
        if failed:
            raise Broken(f"{len(failed)} of {len(results)} tests of the suite failed")
        expected = {key: result for key, (result, _) in table().items()}
        seen = {key: result for key, (result, _) in results.items()}
        for key in sorted(expected.keys() | seen.keys()):
            if expected.get(key) != seen.get(key):
                say(f"FAIL: {'.'.join(key)}: expected {expected.get(key)}, seen {seen.get(key)}")
        if expected != seen:
            raise Broken("the results are not those of docs/conformance.md")
        passed = sum(result == "passed" for result in seen.values())
        skipped = sum(result == "skipped" for result in seen.values())
        say(f"{passed} tests passed, {skipped} skipped, {len(FLAWS)} failed by its own flaw, as docs/conformance.md says")
        case.target.stop()


def planted(options):
    """A disk that forgets what is written, under the LUN that the suite writes to."""
    if not shutil.which("iscsi-test-cu"):
        raise SystemExit(NOT_PERMITTED)
    with served(options) as case:
        case.target.disks["d0"] = ("null:64MiB", 64 * MIB)
        case.target.start()
        seen = {".".join(key): result for key, (result, _) in
                run_suite(case.target, "ALL.CompareAndWrite.Simple", "ALL.TestUnitReady.Simple").items()}
        if seen != {"CompareAndWrite.Simple": "failed", "TestUnitReady.Simple": "passed"}:
            raise Broken(f"over a disk that forgets its writes: {seen}")
        say("planted failure 'lost writes' was noticed")
        case.target.stop()


def guest(case, suite, script, smp=1, **env):
    """Runs a script in a guest that is told of the target under the address that it can reach, and of its CHAP."""
    target = case.target
    announced = target.advertise or f"127.0.0.1:{target.iscsi_port}"
    return case.guest(suite, script, smp=smp, IQN=IQN, PORTAL=f"{GATEWAY}:{target.iscsi_port}", ANNOUNCED=announced,
                      CHAP=" ".join(target.chap or ()), **env)


def full(options, suite=None, shards=1, driver="io_uring"):
    with Case(options, driver, shards) as case:
        target = case.target
        stripe_of_four(target)  # v1 is under a LUN when the guest asks for it
        target.file_disk("f0", 64 * MIB)
        target.volume("v2", "single", ["f0"])
        target.file_disk("g0", 16 * MIB)
        target.volume("v3", "single", ["g0"])
        target.luns.update({0: ("v0", [INITIATOR]), 1: ("v2", [INITIATOR]), 7: ("v3", [f"{INITIATOR}.other"])})
        # Both ends prove who they are, and the guest is told of the address that it can reach.
        target.chap = "guest", "what-the-guest-knows", "target", "what-the-target-knows"
        target.advertise = f"{GATEWAY}:{target.iscsi_port}"
        target.start()
        typed = "\n".join(told(target, "linux")).replace("SECRET", target.chap[1])
        code, _ = guest(case, suite or options.suite, "iscsi-full.sh", SECTORS=STRIPE_SECTORS, STRANGER=STRANGER, TYPED=typed)
        case.passes(code)


# What iscsi-planted.sh must say, each exactly once.
PLANTED = {"lost": r"^FAIL: journal: [1-9]\d* of \d+ flushed blocks lost", "corrupt": r"^FAIL: fio read back wrong data",
           "let in": r"^FAIL: a host that is not on the list was let in"}


def guest_planted(options):
    with Case(options) as case:
        # Data of a RAM disk die with the process, but the fixed identity claims that nothing happened.
        target = case.target
        target.ram_disk("m0", 64 * MIB)
        target.volume("v0", "single", ["m0"], uuid=UUID)
        target.file_disk("d0", 64 * MIB)
        target.volume("v1", "single", ["d0"])
        target.luns.update({0: ("v0", [INITIATOR]), 1: ("v1", "any")})
        target.start()
        case.notices(*guest(case, options.suite, "iscsi-planted.sh", STRANGER=STRANGER), PLANTED)


def qemu_img(*words, expected=0):
    """qemu-img or, where the first word says so, qemu-io; -> what it said."""
    program = words if words[0] == "qemu-io" else ("qemu-img", *words)
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SUITE_LIMIT_S, check=False)
    said = done.stdout + done.stderr
    if done.returncode != expected:
        raise Broken(f"{' '.join(program)} ended with {done.returncode}, expected {expected}: {said.strip()[-600:]}")
    return done.stdout


def qemu_io(lun, *commands):
    """Carries out commands of qemu-io on a LUN, past every cache; a pattern that is not there is an error."""
    words = [word for command in commands for word in ("-c", command)]
    said = qemu_img("qemu-io", "-f", "raw", "-t", "none", "-d", "unmap", *words, lun)
    if "failed" in said:
        raise Broken(f"qemu-io {commands}: {said.strip()[-600:]}")


def needs_qemu():
    if not shutil.which("qemu-img") or "iscsi" not in qemu_img("--help").partition("Supported formats:")[2].split():
        raise NotPermitted("qemu-img with iSCSI is needed: install qemu-utils and qemu-block-extra")


def image_with_holes(path):
    """16 MiB of which every other is random."""
    with open(path, "wb") as f:
        for number in range(0, 16, 2):
            f.seek(number * MIB)
            f.write(os.urandom(MIB))
        f.truncate(16 * MIB)


def qemu(options):
    needs_qemu()
    with served(options, Target.file_disk) as case:
        target = case.target
        target.start()
        first, second, image = told_url(target, "qemu"), url(target, 1), f"{case.folder}/image"
        subprocess.run(told(target, "qemu")[0].split(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        image_with_holes(image)
        raw = ("-f", "raw", "-F", "raw")
        size = json.loads(qemu_img("info", "-f", "raw", "--output=json", first))["virtual-size"]

        qemu_img("create", "-f", "raw", first, "32M")
        qemu_img("convert", "-n", "-f", "raw", "-O", "raw", image, first)
        qemu_img("compare", *raw, image, first)
        qemu_img("convert", "-n", "-f", "raw", "-O", "raw", first, second)
        qemu_img("compare", "-s", *raw, first, second)
        ranges = json.loads(qemu_img("map", "-f", "raw", "--output=json", second))
        if ranges[0]["start"] != 0 or sum(one["length"] for one in ranges) != size:
            raise Broken(f"map: expected {size} bytes from 0 on, seen {ranges}")
        # What the image left out has no space in the volume, and QEMU is told so.
        kept = [(one["start"], one["length"]) for one in ranges if not one["zero"]]
        if kept != [(number * MIB, MIB) for number in range(0, 16, 2)]:
            raise Broken(f"map: expected every other MiB of 16 to be kept, seen {ranges}")
        say(f"create, convert, compare, map: {size} bytes, {len(ranges)} ranges")

        qemu_io(first, "write -P 0xab 1M 3M", "flush", "read -P 0xab 1M 3M", "write -P 0xcd 1234567 54321", "read -P 0xcd 1234567 54321",
                "read -P 0xab 1M 185991", "write -z 2M 64k", "read -P 0 2M 64k", "write -z -u 3M 64k", "read -P 0 3M 64k",
                "read -P 0xab 3211264 64k", "discard 5M 1M", "aio_write -P 0x11 8M 1M", "aio_write -P 0x22 9M 1M", "aio_flush",
                "read -P 0x11 8M 1M", "read -P 0x22 9M 1M")
        qemu_img("compare", *raw, image, first, expected=1)
        say("qemu-io: patterns written are read, aligned and not; zeroes, discard")

        qemu_img("convert", "-n", "-f", "raw", "-O", "raw", "-S", "0", image, first)
        target.kill()
        target.start()
        qemu_img("compare", *raw, image, first)
        qemu_img("create", "-f", "qcow2", second, "24M")
        qemu_img("convert", "-n", "-f", "raw", "-O", "qcow2", image, second)
        qemu_img("check", "-f", "qcow2", second)
        qemu_img("compare", "-f", "raw", "-F", "qcow2", image, second)
        say("what was converted is there after a kill; a qcow2 image in a LUN")
        target.stop()


def libvirt_pool(options):
    """A pool of libvirt's with CHAP; the host looks at the LUNs by QEMU's own name."""
    needs_qemu()
    libvirtd.needs()
    with served(options, Target.file_disk) as case:
        target, file, (user, secret) = case.target, f"{case.folder}/moved", ("libvirt", "a-secret-of-its-own")
        target.chap = user, secret, "target", "the other way round"
        target.luns = {lun: (volume, [INITIATOR, QEMU_INITIATOR]) for lun, (volume, _) in target.luns.items()}
        target.start()

        def lun_url(lun):
            return url(target, lun).replace("//", f"//{user}%{secret}@")

        def write(lun, data):
            with open(file, "wb") as f:
                f.write(data)
            qemu_io(lun_url(lun), f"write -s {file} 0 {len(data)}", "flush")

        def read(lun, at, length):
            qemu_img("convert", "-f", "raw", "-O", "raw", lun_url(lun), file)
            with open(file, "rb") as f:
                f.seek(at)
                return f.read(length)

        with libvirtd.Libvirt(case.folder) as own:
            libvirtd.uses(own, target, INITIATOR, user, secret, read, write)
        say("libvirt: a pool with CHAP, two volumes; one wiped, one booted from, one grown; a wrong secret and a stranger refused; a planted failure noticed")
        target.stop()


def ipxe_boots(options, suite=None):
    """iPXE behind QEMU's user network hooks LUN 0 and boots from it."""
    needs_qemu()
    suite = suite or options.suite
    with served(options, Target.file_disk) as case:
        target, (disk, content), file = case.target, ipxe.sectors(), f"{case.folder}/sectors"
        target.start()
        with open(file, "wb") as f:
            f.write(disk)
        qemu_img("convert", "-n", "-f", "raw", "-O", "raw", file, url(target))
        words = ipxe.script(f"dhcp net0 && set initiator-iqn {INITIATOR}", told_url(target, "ipxe", "--address", GATEWAY))
        ipxe.qemu(case.folder, ipxe.image(suite), words, "user", GUEST_MAC)
        qemu_img("convert", "-f", "raw", "-O", "raw", url(target), file)
        with open(file, "rb") as f:
            f.seek(512 * ipxe.TO)
            ipxe.check_copy(f.read(len(content)), content, f"iPXE of {suite} hooked LUN 0", case)
        target.stop()


def cases(options, suite):
    """All of full with every driver and shard count; iPXE."""
    rows = [(f"iSCSI, full, {driver}, {shards} shards", lambda d=driver, n=shards: full(options, suite, n, d))
            for driver in ("io_uring", "epoll") for shards in (1, 2)]
    return rows + [("iSCSI, iPXE", lambda: ipxe_boots(options, suite))]
