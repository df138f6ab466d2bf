"""The lab on a kernel that has what others lack: `plateway lab` runs in the guest, beside no target and no network."""
import os

from case import GUEST_LIMIT_S, HERE, boot
from target import Broken


def guest(options, suite=None):
    code, _ = boot([f"{HERE}/guest", "run", "--suite", suite or options.suite, "--timeout", str(GUEST_LIMIT_S),
                    "--file", f"{os.path.abspath(options.bin)}:plateway", "--file", f"{HERE}/scenarios/common.sh", f"{HERE}/scenarios/lab.sh"])
    if code != 0:
        raise Broken(f"the guest's script ended with {code}")


def cases(options, suite):
    return [("lab", lambda: guest(options, suite))]
