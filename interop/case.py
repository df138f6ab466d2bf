"""One target with its folder, its bell and, for AoE, its LAN; and a guest that is booted beside it."""
import os
import re
import subprocess
import tempfile
import time

from lan import BELL_ADDRESS, Lan
from target import MIB, NQN, Bell, Broken, Target, remove_folder

HERE = os.path.dirname(os.path.realpath(__file__))
GUEST_LIMIT_S = 900  # boot and script; a hang guard: the longest takes about 150 s on two cores, with another beside it
HUNG, HUNG_LINES = 124, 3  # what `guest` ends with then; and the lines of the script that are told again
GUEST_MAC = "52:54:00:a0:e0:01"  # eth0 of the guest on a LAN, so that an export can name it among its hosts
STRIPE_SECTORS = 0x7E000  # of stripe_of_four's v0: four files of 64 MiB, each less what its volume keeps for itself


def say(text):
    for line in str(text).splitlines():
        print(f"    host| {line}", flush=True)


def scratch():
    """A folder on a real disk where there is one: /tmp may be a tmpfs, which has no direct I/O."""
    base = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
    return tempfile.mkdtemp(prefix="plateway-interop.", dir=base)


class Case:
    """A target with its folder and bell, taken down whatever happens. With an `mtu`, on a LAN of its own, of the kind
    `lan`; `listener` is what the configuration says more of its interface (vlan, link)."""

    def __init__(self, options, driver=None, shards=1, mtu=None, kind=Target, lan=Lan, **listener):
        self.keep, self.said = options.keep, []
        self.lan = lan(mtu) if mtu else None
        try:
            self.folder = scratch()
            os.mkdir(f"{self.folder}/state")
            self.target = kind(options.bin, self.folder, driver, shards, say, self.lan, listener)
            self.bell = Bell(self.target, self.lan)
        except BaseException:
            if self.lan:
                self.lan.down()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.target.end()
        self.bell.shutdown()
        self.bell.server_close()
        if self.lan:
            self.lan.down()
        if error or self.keep:
            say(f"the target's last lines:\n{self.target.last_words()}")
        if self.keep:
            say(f"kept: {self.folder}")
        else:
            remove_folder(self.folder)

    def passes(self, code):
        """The guest's script must have ended well, and so must the target."""
        if code == HUNG:
            self.tell_of_hang()
        if code != 0:
            raise Broken(f"the guest's script ended with {code}")
        self.target.stop()

    def tell_of_hang(self):
        """Whoever reads of a script that never ended has but its last words, and those of the target while it still lives."""
        say(f"the target:\n{self.target.ask_status()}")
        for line in self.said[-HUNG_LINES:]:
            say(f"FAIL: the guest hung after: {line.rstrip()}")
        for asked, since in list(self.bell.unanswered.items()):
            say(f"FAIL: the bell was asked to {asked} {time.monotonic() - since:.0f} s ago, and has not answered")

    def notices(self, code, text, planted):
        """The script must have failed in each of the planted ways, {name: pattern of its FAIL line}, and in no other: a
        script that fails for another reason has noticed nothing."""
        failures = re.findall(r"^FAIL:.*", text, re.M)
        for name, expected in planted.items():
            if not any(re.match(expected, line) for line in failures):
                raise Broken(f"planted failure {name!r} was not noticed: expected a line like {expected}")
            say(f"planted failure {name!r} was noticed")
        if code != 1 or len(failures) != len(planted):
            raise Broken(f"expected code 1 and {len(planted)} FAIL lines, seen code {code} and {failures}")
        self.target.stop()

    def guest(self, suite, script, smp=1, **env):
        """Boots a guest and runs a script in it; -> (exit code, what it printed). Prints it as it comes."""
        if self.lan:
            nets = self.lan.nics(GUEST_MAC)
            env = {"TRADDR": BELL_ADDRESS, "MTU": self.lan.mtu, "VLAN": self.target.listener.get("vlan", ""), **env}
        else:
            nets = ["user"]
            env = {"TRADDR": "10.0.2.2", "TRSVCID": self.target.port, "NQN": NQN, **env}
        env["BELL"] = self.bell.port
        command = [f"{HERE}/guest", "run", "--suite", suite, "--smp", str(smp), "--timeout", str(GUEST_LIMIT_S)]
        for net in nets:
            command += ["--net", net]
        # One host thread for all processors of the guest: slower than one each, but nothing depends on how the host
        # schedules them against each other, and the target keeps a processor of its own.
        command += ["--accel", "tcg,thread=single"] if smp > 1 else []
        for name in ("common.sh", "journal.py") + (("aoe.sh", "stations.py") if self.lan else ("iscsi.sh",)):
            command += ["--file", f"{HERE}/scenarios/{name}"]
        for key, value in env.items():
            command += ["--env", f"{key}={value}"]
        code, text = boot([*command, f"{HERE}/scenarios/{script}"])
        self.said = text.splitlines()
        return code, text


def boot(command):
    """Has `guest` boot a machine and run a script in it; -> (exit code, what it printed). Prints it as it comes."""
    lines = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            for line in process.stdout:
                lines.append(line)
                print(f"   guest| {line}", end="", flush=True)
        except BaseException:
            process.terminate()  # takes its QEMU and taps with it
            raise
    return process.returncode, "".join(lines)


def stripe_of_four(target):
    """The volume that most scenarios use, and a second one to add, grow and remove."""
    for i in range(4):
        target.file_disk(f"d{i}", 64 * MIB)
    target.volume("v0", "stripe", [f"d{i}" for i in range(4)], chunk="64KiB")
    target.file_disk("e0", 32 * MIB)
    target.volume("v1", "single", ["e0"])
