"""iSCSI against somebody else's initiators that run here: libiscsi's test suite.

docs/conformance.md has a line for each test of the suite with what must become of it: `passed`, or `skipped` and why.
What a run shows must be that table, line by line; a test that passes where the table says `skipped` fails the run as
well, so that the table stays true. `--write` makes the table of a run, keeping the reasons that stand in it.
"""
import os
import re
import shutil
import subprocess

from case import Case, say
from target import IQN, MIB, Broken

HERE = os.path.dirname(os.path.realpath(__file__))
TABLE = os.path.join(HERE, "..", "docs", "conformance.md")
SUITE_LIMIT_S = 1200  # a hang guard: it takes about a minute
NOT_PERMITTED = 77
HEAD = """# Conformance: libiscsi's test suite

What `iscsi-test-cu` (Debian's libiscsi-bin {version}, with writing tests allowed) makes of a volume over iSCSI. `interop/run --bin PATH iscsi-suite`
compares a run with this table, in `make test`; `iscsi-planted` shows that it can fail.

| suite | test | result | why |
| --- | --- | --- | --- |
"""


def served(options):
    """A target with two volumes under LUNs 0 and 1."""
    case = Case(options)
    target = case.target
    for number in range(2):
        target.file_disk(f"d{number}", 64 * MIB)
        target.volume(f"v{number}", "single", [f"d{number}"])
        target.luns[number] = f"v{number}"
    return case


def url(target, lun=0):
    return f"iscsi://127.0.0.1:{target.iscsi_port}/{IQN}/{lun}"


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
        elif match := re.match(r"\s*Test: (\S+)\s*\.\.\.(.*)", line):
            test, words = match.group(1), [match.group(2)]
        elif test:
            words.append(line)
        if test and (match := re.search(r"(passed|FAILED)\s*$", line)):
            close(match.group(1).lower())
            test = None
    return results


def table():
    """What docs/conformance.md says: {(suite, test): (result, why)}."""
    rows = {}
    with open(TABLE) as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("| ") and len(cells) == 4 and cells[2] in ("passed", "skipped"):
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
            f.write(f"| {suite} | {test} | {result} | {(why or said) if result == 'skipped' else ''} |\n")


def suite(options):
    if not shutil.which("iscsi-test-cu"):
        say("iscsi-test-cu is not here: install libiscsi-bin")
        raise SystemExit(NOT_PERMITTED)
    with served(options) as case:
        case.target.start()
        results = run_suite(case.target)
        failed = {key: said for key, (result, said) in results.items() if result == "failed"}
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
        say(f"{passed} tests passed, {len(seen) - passed} skipped, as docs/conformance.md says")
        case.target.stop()


def planted(options):
    """A volume that takes no writes, under the LUN that the suite writes to."""
    if not shutil.which("iscsi-test-cu"):
        raise SystemExit(NOT_PERMITTED)
    with served(options) as case:
        case.target.volumes[0]["read_only"] = True
        case.target.start()
        results = run_suite(case.target, "ALL.Write10.Simple", "ALL.Read10.Simple")
        seen = {test: result for (_, test), (result, _) in results.items()}
        say(f"over a volume that takes no writes: {results}")
        if not any(result == "failed" for result in seen.values()):
            raise Broken("no test of the suite failed over a volume that takes no writes")
        say("planted failure 'no writes' was noticed")
        case.target.stop()
