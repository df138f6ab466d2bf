"""The AoE scenarios as the host sees them: the Linux driver, aoetools and iPXE against exports of shelf 7.

Slot 3 is for the guest's own address alone; slots 4 and 5 hear any. Sizes are bytes, sectors 512 of them.
"""
from case import GUEST_MAC, STRIPE_SECTORS, Case, stripe_of_four
from ipxe import BRIDGE_MAC, boot
from target import MIB, Broken

UUID = "6f1c34a0-6b0a-4c70-9d3e-0a55c0ffee02"


def payload(mtu):
    """The bytes of data that Linux puts into a frame."""
    return (mtu - 36) // 512 * 512


def full(options, suite=None, shards=1, driver="io_uring"):
    with Case(options, driver, shards, mtu=9000) as case:
        target = case.target
        stripe_of_four(target)
        target.file_disk("f0", 64 * MIB)
        target.volume("v2", "single", ["f0"])
        target.slots.update({3: ("v0", [GUEST_MAC]), 4: ("v1", "any")})  # v2 is served when the guest asks for it
        target.start()
        code, _ = case.guest(suite or options.suite, "aoe-full.sh", PAYLOAD=payload(9000), SECTORS=STRIPE_SECTORS)
        case.passes(code)


def short(options, suite, driver, shards, mtu, loss, kills=1, **listener):
    with Case(options, driver, shards, mtu=mtu, **listener) as case:
        stripe_of_four(case.target)
        case.target.slots[3] = "v0", [GUEST_MAC]
        case.target.start()
        code, _ = case.guest(suite, "aoe-short.sh", PAYLOAD=payload(mtu), SECTORS=STRIPE_SECTORS, LOSS=loss, KILLS=kills)
        case.passes(code)


# What aoe-planted.sh must say, each exactly once.
PLANTED = {"lost": r"^FAIL: journal: [1-9]\d* of \d+ flushed blocks lost", "corrupt": r"^FAIL: fio read back wrong data",
           "heard": r"^FAIL: .* of a stranger to e7\.4 was answered"}


def planted(options):
    with Case(options, mtu=9000) as case:
        # Data of a RAM disk die with the process, but the fixed identity claims that nothing happened.
        target = case.target
        target.ram_disk("m0", 64 * MIB)
        target.volume("v0", "single", ["m0"], uuid=UUID)
        target.file_disk("d0", 64 * MIB)
        target.volume("v1", "single", ["d0"])
        target.slots.update({3: ("v0", [GUEST_MAC]), 4: ("v1", "any")})
        target.start()
        case.notices(*case.guest(options.suite, "aoe-planted.sh"), PLANTED)


def ipxe(options, suite=None, mtu=1500):
    """iPXE hooks e7.3 as its first disk and boots from it: the boot sector reads, and writes what it read elsewhere."""
    with Case(options, mtu=mtu) as case:
        target = case.target
        target.file_disk("d0", 64 * MIB)
        target.volume("v0", "single", ["d0"])
        target.slots[3] = "v0", [GUEST_MAC, BRIDGE_MAC]
        target.start()
        boot(case, suite or options.suite, GUEST_MAC)
        target.stop()


def cases(options, suite):
    """Every MTU with every loss, shard count and I/O driver, a kill in each; a VLAN; AF_XDP; iPXE; then all of full."""
    rows = []
    for mtu in (1500, 9000):
        for loss in (0, 1):
            for driver in ("io_uring", "epoll"):
                for shards in (1, 2):
                    rows.append((f"AoE, MTU {mtu}, {loss}% loss, {driver}, {shards} shards",
                                 lambda m=mtu, l=loss, d=driver, n=shards: short(options, suite, d, n, m, l)))
    rows += [(f"AoE, VLAN 77, MTU {mtu}", lambda m=mtu: short(options, suite, "io_uring", 1, m, 1, vlan=77)) for mtu in (1500, 9000)]
    rows.append(("AoE, AF_XDP", lambda: short(options, suite, "io_uring", 1, 1500, 1, link="xdp")))
    rows.append(("AoE, iPXE", lambda: ipxe(options, suite)))
    return rows + [(f"AoE, full, {driver}, {shards} shards", lambda d=driver, n=shards: full(options, suite, n, d))
                   for driver in ("io_uring", "epoll") for shards in (1, 2)]
