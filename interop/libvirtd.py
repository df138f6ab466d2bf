"""libvirt's iscsi-direct pools: a private libvirtd finds our target, proves who it is, lists the LUNs as volumes, wipes one, follows
one that grows, and boots a machine from another; whoever is no host of theirs, or has a wrong secret, gets no pool.

libvirtd runs as an ordinary user with its files in the case's folder, so that nothing of the machine's own libvirt is touched: root
becomes nobody for it. It is ended with the case. Sizes are bytes.
"""
import glob
import os
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import ipxe
from lan import NotPermitted
from target import IQN, MIB, Broken

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
NEEDED = "libvirtd", "virsh"
# What is loaded by it, below /usr/lib/ARCH/libvirt; Debian 13 has each driver in a package of its own.
DRIVERS = ("storage-backend/libvirt_storage_backend_iscsi-direct.so", "connection-driver/libvirt_driver_storage.so",
           "connection-driver/libvirt_driver_secret.so", "connection-driver/libvirt_driver_qemu.so")
NOBODY = 65534
LIMIT_S = 300  # a hang guard: it takes some ten seconds
SHORT = 512  # libvirt takes the number of the last block for how many there are
POOL, SECRET = "plateway", "6f1c34a0-6b0a-4c70-9d3e-0a55c0ffee04"


def needs():
    missing = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    missing += [name for name in DRIVERS if not glob.glob(f"/usr/lib/*/libvirt/{name}")]
    if missing:
        raise NotPermitted(f"libvirt is needed, and {', '.join(missing)} is not here: install libvirt-daemon, libvirt-clients, "
                           "libvirt-daemon-driver-storage-iscsi-direct and, where they are packages, libvirt-daemon-driver-secret and -qemu")


class Libvirt:
    """A libvirtd of one's own in `folder`, while the block lasts."""

    def __init__(self, folder):
        self.home = f"{folder}/libvirt"
        os.makedirs(f"{self.home}/run")
        os.chmod(folder, os.stat(folder).st_mode | 0o011)
        self.user = []
        if os.geteuid() == 0:
            self.user = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
            for path in (self.home, f"{self.home}/run"):
                os.chown(path, NOBODY, NOBODY)
        self.environment = {"PATH": PATH, "HOME": self.home, "XDG_RUNTIME_DIR": f"{self.home}/run"}
        self.daemon = None

    def __enter__(self):
        with open(f"{self.home}/log", "wb") as log:
            self.daemon = subprocess.Popen([*self.user, "libvirtd"], env=self.environment, cwd="/", stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        deadline = time.monotonic() + LIMIT_S
        while not os.path.exists(f"{self.home}/run/libvirt/libvirt-sock"):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise Broken(f"libvirtd does not answer: {self.log()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()

    def log(self):
        with open(f"{self.home}/log", errors="replace") as f:
            return f.read()[-2000:]

    def run(self, *words, text=None):
        """virsh; `text` is what it reads from a file as its last word. -> (code, what it said)."""
        if text is not None:
            path = f"{self.home}/run/asked"
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, 0o644)
            words = (*words, path)
        done = subprocess.run([*self.user, "virsh", "-q", "-c", "qemu:///session", *words], env=self.environment, cwd="/",
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def virsh(self, *words, text=None):
        code, said = self.run(*words, text=text)
        if code != 0:
            raise Broken(f"virsh {' '.join(words)} ended with {code}: {said.strip()[-600:]}")
        return said

    def refused(self, why, *words, text=None):
        """It must fail, and say why."""
        code, said = self.run(*words, text=text)
        if code == 0 or not re.search(why, said):
            raise Broken(f"virsh {' '.join(words)} was to fail with {why!r}, ended with {code}: {said.strip()[-600:]}")

    def keep_secret(self, user, secret):
        """The secret of a CHAP user is known from now on."""
        definition = f"<secret ephemeral='no' private='yes'><uuid>{SECRET}</uuid><usage type='iscsi'><target>{user}</target></usage></secret>"
        self.virsh("secret-define", text=definition)
        self.virsh("secret-set-value", "--secret", SECRET, "--plain", "--file", text=secret)

    def sizes(self):
        """The volumes of the pool, as it is now: name -> bytes."""
        self.virsh("pool-refresh", POOL)
        names = [line.split()[0] for line in self.virsh("vol-list", POOL).splitlines() if line.strip()]
        found = {}
        for name in names:
            volume = ElementTree.fromstring(self.virsh("vol-dumpxml", "--pool", POOL, name))
            found[name] = int(volume.findtext("capacity"))
        return found


def pool(port, initiator, user):
    return f"""<pool type='iscsi-direct'><name>{POOL}</name><source><host name='127.0.0.1' port='{port}'/>
<device path='{IQN}'/><auth type='chap' username='{user}'><secret usage='{user}'/></auth>
<initiator><iqn name='{initiator}'/></initiator></source></pool>"""


def machine(volume):
    """A machine that boots from a volume of the pool; it ends by writing to its exit port."""
    return f"""<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>boots</name><memory unit='MiB'>128</memory>
<os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/></os>
<on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
<devices><emulator>{shutil.which('qemu-system-x86_64')}</emulator>
<disk type='volume' device='disk'><driver name='qemu' type='raw' cache='none'/><source pool='{POOL}' volume='{volume}'/>
<target dev='vda' bus='virtio'/></disk><controller type='usb' model='none'/><memballoon model='none'/></devices>
<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='isa-debug-exit,iobase=0xf4,iosize=4'/></qemu:commandline></domain>"""


def boots(libvirt, volume):
    """Returns once the machine that boots from a volume has ended."""
    libvirt.virsh("create", text=machine(volume))
    deadline = time.monotonic() + LIMIT_S
    try:
        while "boots" in libvirt.virsh("list", "--name"):
            if time.monotonic() > deadline:
                raise Broken(f"the machine did not end: {libvirt.log()}")
            time.sleep(0.1)
    except BaseException:
        libvirt.run("destroy", "boots")
        raise


def must_be_wiped(read, length):
    if read(1, 0, length).strip(b"\0"):
        raise Broken("the volume that was wiped holds something")


def planted(target, read, length):
    """What is put back behind a wipe, wherever the volume's bytes lie in its file, must be noticed."""
    target.do_corrupt("d1", 0, 4 * MIB)
    try:
        must_be_wiped(read, length)
    except Broken:
        return
    raise Broken("planted failure 'a wipe that wiped nothing' was not noticed")


def uses(libvirt, target, initiator, user, secret, read, write):
    """All that such a pool is used for; `read` and `write` move bytes of a LUN past it."""
    found = libvirt.virsh("find-storage-pool-sources", "iscsi-direct", text=f"<source><host name='127.0.0.1' port='{target.iscsi_port}'/>"
                          f"<initiator><iqn name='{initiator}'/></initiator></source>")
    if f"'{IQN}'" not in found:
        raise Broken(f"libvirt finds no target: {found}")
    libvirt.keep_secret(user, secret[::-1])
    libvirt.refused("authentication|login|Failed to connect", "pool-create", text=pool(target.iscsi_port, initiator, user))
    libvirt.keep_secret(user, secret)
    stranger = initiator + "-stranger"
    libvirt.refused("login|Failed to connect", "pool-create", text=pool(target.iscsi_port, stranger, user))
    libvirt.virsh("pool-create", text=pool(target.iscsi_port, initiator, user))

    sizes = libvirt.sizes()
    names = sorted(sizes)
    if [name.rpartition(":")[2] for name in names] != ["0", "1"] or set(sizes.values()) != {target.disks["d0"][1] - SHORT}:
        raise Broken(f"libvirt sees {sizes}")
    first, second = names
    disk, content = ipxe.sectors()
    write(0, disk)
    write(1, content)
    libvirt.virsh("vol-wipe", "--pool", POOL, second)
    if read(0, 0, len(disk)) != disk:
        raise Broken("what was written is not there")
    must_be_wiped(read, len(content))
    boots(libvirt, first)
    if read(0, 512 * ipxe.TO, len(content)) != content:
        raise Broken("what the boot sector copied is not what it read")
    grown = 2 * target.disks["d1"][1]
    target.do_grow("d1", grown // MIB)
    if libvirt.sizes() != {first: sizes[first], second: grown - SHORT}:
        raise Broken(f"one LUN has grown, and libvirt sees {libvirt.sizes()}")
    libvirt.virsh("pool-destroy", POOL)
    planted(target, read, len(content))
