"""Two paths to each of two volumes, one over NVMe/TCP and one over iSCSI: listeners of groups 1 and 2. The guest's own multipath
(that of the NVMe driver; device mapper with the ALUA handler) has to go by the path that the target says."""
from case import Case
from iscsi import guest
from target import INITIATOR, MIB, free_port


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
        code, _ = guest(case, suite or options.suite, "paths.sh", smp=2, SECOND=nvme, SECOND_PORTAL=f"10.0.2.2:{iscsi}")
        case.passes(code)


def cases(options, suite):
    return [(f"two paths, {shards} shards", lambda n=shards: full(options, suite, n)) for shards in (1, 2)]
