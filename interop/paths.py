"""Two paths to each of two volumes, one over NVMe/TCP and one over iSCSI: listeners of groups 1 and 2. The guest's own multipath
(that of the NVMe driver; device mapper under multipathd) has to go by the path that the target says. multipathd has the
configuration that docs/operators.md tells administrators to write."""
import os
import re
import textwrap

from case import HERE, Case
from iscsi import guest
from target import INITIATOR, MIB, Broken, free_port


def documented():
    """The multipath.conf of docs/operators.md."""
    path = os.path.join(HERE, "..", "docs", "operators.md")
    with open(path) as f:
        found = re.search(r"^ +defaults \{\n.*?^(?=\s*\n)", f.read(), re.MULTILINE | re.DOTALL)
    if not found:
        raise Broken(f"expected a multipath.conf that begins with `defaults {{` in {path}, seen none")
    return textwrap.dedent(found.group())


def full(options, suite=None, shards=1, driver="io_uring"):
    with Case(options, driver, shards) as case:
        target = case.target
        for number in range(2):
            target.file_disk(f"d{number}", 64 * MIB)
            target.volume(f"v{number}", "single", [f"d{number}"])
        target.exports[1] = "v0"
        target.luns[0] = "v1", [INITIATOR]
        target.second = free_port(), free_port()
        target.start()
        nvme, iscsi = target.second
        code, _ = guest(case, suite or options.suite, "paths.sh", smp=2, SECOND=nvme,
                        SECOND_PORTAL=f"10.0.2.2:{iscsi}", MULTIPATH_CONF=documented())
        case.passes(code)


def cases(options, suite):
    return [(f"two paths, {shards} shards", lambda n=shards: full(options, suite, n)) for shards in (1, 2)]
