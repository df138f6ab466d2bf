"""The Debian package on a machine of its own, which systemd boots: no target beside it, and no network."""
import os
import re
import tempfile

from case import HERE, boot, say
from target import MIB, Broken

LIMIT_S = 900  # a hang guard: about 140 s on two idle cores

# A line of the unit that is wrong, and what boot.sh says of it.
PLANTED = ("s/^User=plateway$/User=root/", r"^FAIL: it runs as root")


def installed(options, plant=""):
    """-> (exit code, what was printed)"""
    if not options.deb:
        raise Broken("expected the package, as --deb FILE, seen none")
    with tempfile.NamedTemporaryFile(prefix="plateway-disk.") as disk:
        disk.truncate(64 * MIB)
        return boot([f"{HERE}/guest", "run", "--suite", options.suite, "--systemd", "--timeout", str(LIMIT_S),
                     "--disk", f"{disk.name}:disk0", "--env", f"PLANT={plant}", "--file", f"{os.path.abspath(options.deb)}:plateway.deb",
                     "--file", f"{HERE}/scenarios/common.sh", f"{HERE}/scenarios/boot.sh"])


def works(options):
    code, _ = installed(options)
    if code != 0:
        raise Broken(f"the guest's script ended with {code}")


def planted(options):
    unit, expected = PLANTED
    code, text = installed(options, unit)
    failures = re.findall(r"^FAIL:.*", text, re.M)
    if code != 1 or len(failures) != 1 or not re.match(expected, failures[0]):
        raise Broken(f"expected code 1 and one line like {expected}, seen code {code} and {failures}")
    say("the planted line of the unit was noticed")
