"""The lab on a kernel that has what others lack: `plateway lab` runs in the guest, beside no target and no network."""
import os
import tempfile

from case import GUEST_LIMIT_S, HERE, boot
from target import MIB, Broken


def guest(options, suite=None):
    with tempfile.NamedTemporaryFile(prefix="plateway-disk.") as disk:
        disk.truncate(256 * MIB)
        code, _ = boot([f"{HERE}/guest", "run", "--suite", suite or options.suite, "--timeout", str(GUEST_LIMIT_S), "--disk", disk.name,
                        "--file", f"{os.path.abspath(options.bin)}:plateway", "--file", f"{HERE}/scenarios/common.sh", f"{HERE}/scenarios/lab.sh"])
    if code != 0:
        raise Broken(f"the guest's script ended with {code}")


def cases(options, suite):
    return [("lab", lambda: guest(options, suite))]
