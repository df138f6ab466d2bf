"""iPXE against an export: Debian's image hooks it, boots from it, and our boot sector moves sectors through the BIOS.

The disk is filled and looked at over the same protocol, from the host: where the bytes lie in which file is the target's
business. Here is what is the same for each protocol, and how it is done over AoE, by a station of the host.
"""
import os
import struct
import subprocess
import sys
import time

from lan import HERE
from target import SHELF, Broken

sys.path.append(f"{HERE}/scenarios")
import stations  # noqa: E402 (the guest's tool, used here from the host's side of the LAN)

LIMIT_S = 900  # a hang guard: it takes some ten seconds
BRIDGE_MAC = "52:54:00:77:00:01"  # of br0, see `guest lan`
SLOT, COUNT, FROM, TO = 3, 8, 1, 64  # the boot sector copies COUNT sectors
DONE, FAILED = 1, 2  # what it tells QEMU, which ends with 2 n + 1


def script(network, uri):
    """What iPXE is told: `network` brings net0 up, `uri` is the disk."""
    return f"""#!ipxe
{network} || goto failed
sanhook --drive 0x81 {uri} || sanhook --drive 0x81 {uri} || goto failed
sanunhook --drive 0x81 || goto failed
echo interop: hooked
sanboot {uri} ||
:failed
echo interop: failed
"""


def boot_sector():
    """16-bit code at 0x7c00: INT 13h extended read of COUNT sectors, extended write of them elsewhere, then the exit port."""
    origin, data = 0x7C00, 0x8000

    def packet(lba):
        return struct.pack("<BBHHHQ", 16, 0, COUNT, data, 0, lba)

    start = bytes.fromhex("31c0 8ed8 8ec0 8ed0 bc007c")  # xor ax,ax; ds, es, ss = ax; mov sp,7c00
    transfers = 2 * 10 + 4  # bytes from here to `fail`
    packets = origin + len(start) + transfers + 9
    code = start
    for index, function in enumerate((0x4200, 0x4300)):
        code += b"\xbe" + struct.pack("<H", packets + 16 * index)  # mov si,packet
        code += b"\xb8" + struct.pack("<H", function) + b"\xcd\x13"  # mov ax,function; int 13h
        code += b"\x72" + bytes([len(start) + transfers - (len(code) + 2)])  # jc fail
    code += bytes([0xB0, DONE, 0xEB, 2])  # mov al,DONE; jmp exit
    assert len(code) == len(start) + transfers
    code += bytes([0xB0, FAILED])  # fail: mov al,FAILED
    code += bytes.fromhex("baf400 ee f4 ebfd")  # exit: mov dx,f4; out dx,al; hlt; jmp back to hlt
    assert origin + len(code) == packets
    code += packet(FROM) + packet(TO)
    return code.ljust(510, b"\0") + b"\x55\xaa"


def image(suite):
    """iPXE as a Linux kernel image, of that suite's package."""
    return subprocess.run([f"{HERE}/guest", "fetch", "--suite", suite, "ipxe", "usr/lib/ipxe/ipxe.lkrn"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


def sectors():
    """The disk that is booted from, from its first sector on, and what of it must be found at sector TO afterwards."""
    content = os.urandom(512 * COUNT)
    return boot_sector() + content, content


def qemu(folder, kernel, words, netdev, mac, prefix=()):
    """The machine, until it ends or iPXE, which is told `words`, gives up. Raises Broken unless the copy was made."""
    told, console = f"{folder}/script.ipxe", f"{folder}/console"
    with open(told, "w") as f:
        f.write(words)
    machine = subprocess.Popen([
        *prefix, "qemu-system-x86_64", "-accel", "tcg", "-machine", "pc,graphics=off", "-m", "256", "-nodefaults", "-no-user-config",
        "-display", "none", "-no-reboot", "-serial", f"file:{console}", "-kernel", kernel, "-initrd", told,
        "-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-netdev", f"{netdev},id=n0",
        "-device", f"virtio-net-pci,netdev=n0,mac={mac},romfile="], stdin=subprocess.DEVNULL)

    def shown():
        if not os.path.exists(console):
            return ""
        with open(console, errors="replace") as f:
            return f.read()

    try:
        deadline = time.monotonic() + LIMIT_S
        while machine.poll() is None and "interop: failed" not in shown() and time.monotonic() < deadline:
            time.sleep(0.05)
        code = machine.poll()
    finally:
        machine.kill()
        machine.wait()
    hooked = "interop: hooked" in shown()
    if code != 2 * DONE + 1 or not hooked:
        raise Broken(f"iPXE ended with {code}, {'hooked' if hooked else 'not hooked'}; its console:\n{shown()[-3000:]}")


def boot(case, suite, mac):
    """Over AoE. Raises Broken unless iPXE has hooked and booted the export, and the copy is on it."""
    kernel, target, (disk, content), tap = image(suite), (SHELF, SLOT), sectors(), "ipxe0"
    try:
        host = case.lan.call(lambda: stations.Station("br0"))
        for at in range(0, len(disk), 512):
            status = host.ata(target, stations.WRITE, at // 512, data=disk[at:at + 512]).argument[3]
            stations.expect(f"status of the write to sector {at // 512}", status, 0x40)
        ip = ["ip", "-n", case.lan.name]
        subprocess.run([*ip, "tuntap", "add", "dev", tap, "mode", "tap"], check=True)
        subprocess.run([*ip, "link", "set", tap, "mtu", str(case.lan.mtu), "master", "br0", "up"], check=True)
        try:
            qemu(case.folder, kernel, script("ifopen net0", f"aoe:e{SHELF}.{SLOT}"),
                 f"tap,ifname={tap},script=no,downscript=no", mac, case.lan.command([]))
        finally:
            subprocess.run([*ip, "link", "del", tap], check=False)
        copy = b"".join(host.ata(target, stations.READ, TO + i).argument[12:524] for i in range(COUNT))
    except stations.Failed as error:
        raise Broken(str(error))
    check_copy(copy, content, f"iPXE of {suite} hooked e{SHELF}.{SLOT}", case)


def check_copy(copy, content, what, case):
    if copy != content:
        raise Broken("what the boot sector copied is not what it read")
    case.target.say(f"{what} and booted from it; {COUNT} sectors were read and written through INT 13h")
