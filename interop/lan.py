"""A LAN of its own for one run: a network namespace with two bridges, in which the target stands and the guest's taps are.

    guest eth0 -- tap -- br0 -- aoe0 peer = aoe0 -- target     the storage network: raw Ethernet, any MTU up to 9000
    guest eth1 -- tap -- br1 (10.77.1.1) -- bell               the way on which the guest asks the host; never lossy

Nothing of it can be seen from outside the namespace, whose name carries the pid of the run that made it. It goes with
`down`, which every ending but SIGKILL comes to; what a killed run left is removed by the next one.
"""
import ctypes
import os
import subprocess
import threading

HERE = os.path.dirname(os.path.realpath(__file__))
PREFIX = "plateway-interop-"
INTERFACE = "aoe0"  # where the target is heard
BELL_ADDRESS = "10.77.1.1"
CLONE_NEWNET = 0x40000000


class NotPermitted(Exception):
    """This machine does not let us make the namespace; the message says what is needed."""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def alive(pid):
    return pid.isdecimal() and os.path.exists(f"/proc/{pid}")


class Lan:
    """Up from its construction; `mtu` is that of the target's interface and of the guest's eth0."""

    BRIDGES = 2

    def __init__(self, mtu):
        self.name, self.mtu = f"{PREFIX}{os.getpid()}", mtu
        self.remove_leftovers()
        try:
            run(f"{HERE}/guest", "lan", "up", self.name, "--bridges", str(self.BRIDGES))
            ip = ["ip", "-n", self.name]
            run(*ip, "link", "add", INTERFACE, "mtu", str(mtu), "type", "veth", "peer", "name", "port0", "mtu", str(mtu))
            run(*ip, "link", "set", "port0", "master", "br0", "up")
            run(*ip, "link", "set", INTERFACE, "up")
            self.connect()
            run(*ip, "tuntap", "add", "dev", "probe", "mode", "tap")
            run(*ip, "link", "del", "probe")
        except (subprocess.CalledProcessError, OSError) as error:
            self.down()
            words = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[:1]
            raise NotPermitted("a network namespace with a bridge, a veth pair and a tap is needed: run as root (CAP_SYS_ADMIN and "
                               f"CAP_NET_ADMIN) where /dev/net/tun is there; seen: {' '.join(words)}")

    def connect(self):
        """What a LAN of more has beside; not permitted where it fails."""

    def nics(self, mac):
        """Those of the guest, as `guest run --net` takes them; `mac` is that of eth0."""
        return [f"lan:{self.name}/br0,mtu={self.mtu},mac={mac}", f"lan:{self.name}/br1"]

    def down(self):
        """Takes the interfaces with it. Processes inside must have ended: they would keep the namespace, without a name."""
        if os.path.exists(f"/run/netns/{self.name}"):
            subprocess.run(["ip", "netns", "del", self.name], check=False)

    @staticmethod
    def remove_leftovers():
        names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
        for name in names:
            if name.startswith(PREFIX) and not alive(name.removeprefix(PREFIX)):
                subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def command(self, command):
        """The command line that runs `command` inside; `ip` becomes the program, so that its pid is the program's."""
        return ["ip", "netns", "exec", self.name, *command]

    def call(self, function):
        """Calls a function on a thread inside the namespace; sockets that it makes stay there. -> its result"""
        results = []

        def inside():
            try:
                with open(f"/run/netns/{self.name}") as namespace:
                    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                results.append((function(), None))
            except Exception as error:  # handed to the caller, whose thread is another
                results.append((None, error))

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        result, error = results[0]
        if error:
            raise error
        return result
