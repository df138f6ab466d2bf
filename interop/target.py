"""The target under test, as the host handles it: its configuration, its life and death; and the bell, on which
the guest asks for them. Over NVMe/TCP it stands on a loopback port, over AoE on the interface of a Lan.

Sizes are bytes. A target that cannot be started, or that ends by itself, raises Broken with its last words.
"""
import os
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time

from lan import BELL_ADDRESS, INTERFACE

MIB = 1 << 20
START_LIMIT_S = 120  # from exec to the first status; a hang guard, not an expectation
COMMAND_LIMIT_S = 300  # for one command that asks the target; a hang guard
STOP_LIMIT_S = 120  # SIGTERM drains for at most 5 s; the rest is room for a loaded machine
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"  # the guest's, see ./guest
NQN = "nqn.2026-11.net.plateway:interop"
IQN = "iqn.2026-11.net.plateway:interop"
INITIATOR = "iqn.2026-11.net.plateway:guest"  # the guest's, see ./guest
SHELF = 7


class Broken(Exception):
    """The target did what it must not do."""


def free_port():
    """A port on which nobody listens, from below the range out of which the kernel gives ports to clients. In that
    range, a guest that reconnects while the target is dead could be given the very port as its source, and so
    connect to itself; the target could then not have it back."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        lowest = int(f.read().split()[0])
    for _ in range(1000):
        port = random.randrange(10000, 32000) if lowest >= 32000 else random.randrange(1024, max(1025, lowest))
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Broken("no free port on 127.0.0.1")


def quoted(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quoted_hosts(hosts):
    return quoted(hosts) if isinstance(hosts, str) else "[" + ", ".join(map(quoted, hosts)) + "]"


class Target:
    """One `plateway serve`, with its files in `folder`. `disks` maps a disk's name to (URI, size); `volumes` is a
    list of tables as in the configuration; `exports` maps a namespace id to a volume's name, `luns` a LUN of our target
    to a volume's name and the initiators that are its hosts, `slots` a slot of our shelf to a volume's name and the
    stations that are its hosts ("any" or a list of names or MACs)."""

    def __init__(self, binary, folder, driver=None, shards=1, say=print, lan=None, listener=None):
        self.binary, self.folder, self.driver, self.say, self.lan = binary, folder, driver, say, lan
        cpus = sorted(os.sched_getaffinity(0))
        self.shards = [cpus[i % len(cpus)] for i in range(shards)]
        self.port, self.process, self.listener = None if lan else free_port(), None, listener or {}
        self.disks, self.volumes, self.exports, self.luns, self.slots = {}, [], {}, {}, {}
        self.iscsi_port, self.advertise, self.chap = None if lan else free_port(), None, None
        self.second, self.set_groups = None, False  # ports of listeners of group 2, for NVMe/TCP and iSCSI
        self.config, self.control, self.log = (f"{folder}/{n}" for n in ("plateway.toml", "control.sock", "target.log"))
        self.lock = threading.Lock()

    # What it serves.

    def file_disk(self, name, size):
        self.disks[name] = (f"file:{self.folder}/{name}.img?create={size // MIB}MiB", size)

    def ram_disk(self, name, size):
        self.disks[name] = (f"ram:{size // MIB}MiB", size)

    def volume(self, name, layout, disks, **more):
        self.volumes.append({"name": name, "layout": layout, "disks": disks, "block_size": 512, **more})

    def write_config(self):
        lines = ["[server]", 'memory = "256MiB"', f"control = {quoted(self.control)}",
                 f"state = {quoted(self.folder + '/state')}", f"shards = {self.shards}"]
        for name, (uri, _) in self.disks.items():
            lines += ["", "[[disk]]", f"name = {quoted(name)}", f"uri = {quoted(uri)}"]
        for volume in self.volumes:
            lines += ["", "[[volume]]"]
            for key, value in volume.items():
                shown = quoted(value) if isinstance(value, str) else value
                lines.append(f"{key} = " + (f"[{', '.join(map(quoted, value))}]" if isinstance(value, list) else str(shown)))
        if self.lan:
            lines += ["", "[[listener]]", f"aoe = {quoted(INTERFACE)}"]
            lines += [f"{key} = {quoted(value) if isinstance(value, str) else value}" for key, value in self.listener.items()]
        else:
            lines += ["", "[[listener]]", f'nvme = "127.0.0.1:{self.port}"']
            if self.luns:
                lines += ["", "[[listener]]", f'iscsi = "127.0.0.1:{self.iscsi_port}"']
                lines += [f"advertise = {quoted(self.advertise)}"] if self.advertise else []
            for protocol, port in zip(("nvme", "iscsi"), self.second or ()):
                lines += ["", "[[listener]]", f'{protocol} = "127.0.0.1:{port}"', "group = 2"]
        for nsid, volume in self.exports.items():
            lines += ["", "[[export]]", f"volume = {quoted(volume)}",
                      f"nvme = {{ subsystem = {quoted(NQN)}, nsid = {nsid}, hosts = [{quoted(HOSTNQN)}] }}"]
        for lun, (volume, hosts) in self.luns.items():
            lines += ["", "[[export]]", f"volume = {quoted(volume)}",
                      f"iscsi = {{ target = {quoted(IQN)}, lun = {lun}, hosts = {quoted_hosts(hosts)}{self.proof()}{', set_groups = true' * self.set_groups} }}"]
        for slot, (volume, hosts) in self.slots.items():
            fields = [f"interface = {quoted(INTERFACE)}", f"shelf = {SHELF}", f"slot = {slot}",
                      f"hosts = {quoted_hosts(hosts)}"]
            fields += [f"vlan = {self.listener['vlan']}"] if "vlan" in self.listener else []
            lines += ["", "[[export]]", f"volume = {quoted(volume)}", f"aoe = {{ {', '.join(fields)} }}"]
        lines += self.routers()
        with open(self.config + ".new", "w") as f:
            f.write("\n".join(lines) + "\n")
        os.rename(self.config + ".new", self.config)

    def routers(self):
        """Lines of the configuration that make this process a router as well."""
        return []

    def proof(self):
        """CHAP of our target, if there is to be one: `chap` is (user, secret) of hosts, then of the target."""
        if not self.chap:
            return ""
        users = []
        for user, secret in zip(self.chap[::2], self.chap[1::2]):
            path = f"{self.folder}/{user}.secret"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
                f.write(secret + "\n")
            users.append(f"user = {quoted(user)}, secret_file = {quoted(path)}")
        return f", chap = {{ {users[0]}, mutual = {{ {users[1]} }} }}"

    # Its life.

    def start(self):
        """Returns once it tells its status. That a port can be connected to proves nothing: the listeners of a process that was
        killed live on for some milliseconds, until the kernel has taken its io_uring down."""
        self.write_config()
        command = [self.binary, "serve", "--config", self.config] + (["--driver", self.driver] if self.driver else [])
        command = self.lan.command(command) if self.lan else command
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            self.must_live()
            if self.answers():
                return
            if time.monotonic() > deadline:
                raise Broken(f"the target does not answer after {START_LIMIT_S} s")
            time.sleep(0.05)

    def command(self, *words):
        """One of our one-shot commands about this target. One that hangs is an error, which says which it was."""
        try:
            return subprocess.run([self.binary, *words, "--control", self.control], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"{' '.join(words)} has not ended after {COMMAND_LIMIT_S} s")

    def answers(self):
        return self.command("status").returncode == 0

    def ask_status(self):
        """What it says of itself, or why it says nothing."""
        try:
            done = self.command("status")
            return done.stdout + done.stderr
        except Broken as error:
            return f"FAIL: {error}"

    def must_live(self):
        if self.process is None:
            raise Broken("the target was not started")
        if self.process.poll() is not None:
            raise Broken(f"the target ended by itself with {self.process.returncode}")

    def kill(self):
        """As a crash or the out-of-memory killer would: nothing is flushed, nothing is closed properly."""
        self.must_live()
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM, which must end it with code 0."""
        self.must_live()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"the target still runs {STOP_LIMIT_S} s after SIGTERM")
        if code != 0:
            raise Broken(f"the target ended with {code} after SIGTERM")

    def end(self):
        """Whatever happened: nothing is left running."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def apply(self):
        self.must_live()
        self.write_config()
        # What the guests use is taken away on purpose.
        done = self.command("apply", self.config, "--yes", "--allow-empty")
        self.say(done.stdout.strip())
        if done.returncode != 0:
            raise Broken(f"apply ended with {done.returncode}: {done.stderr.strip()}")

    def last_words(self, lines=60):
        try:
            with open(self.log, errors="replace") as f:
                return "".join(f.readlines()[-lines:])
        except OSError:
            return ""

    # What the guest may ask for. Each method's name after `do_` is a word of the bell.

    def do_kill(self):
        self.kill()

    def do_start(self):
        self.start()

    def do_restart(self):
        self.kill()
        self.start()

    def do_add(self, nsid, volume):
        self.exports[int(nsid)] = volume
        self.apply()

    def do_remove(self, nsid):
        del self.exports[int(nsid)]
        self.apply()

    def do_map(self, lun, volume, *hosts):
        """A volume under a LUN, new or as it was, for these initiators: `any`, or names."""
        self.luns[int(lun)] = volume, "any" if hosts == ("any",) else list(hosts)
        self.apply()

    def do_unmap(self, lun):
        del self.luns[int(lun)]
        self.apply()

    def do_serve(self, slot, volume, *hosts):
        """A volume at a slot, new or as it was, for these stations: `any`, or MACs."""
        self.slots[int(slot)] = volume, "any" if hosts == ("any",) else list(hosts)
        self.apply()

    def do_withdraw(self, slot):
        del self.slots[int(slot)]
        self.apply()

    def do_grow(self, disk, mib):
        """A file disk grows: the file first, then what the configuration says of it."""
        size = int(mib) * MIB
        os.truncate(f"{self.folder}/{disk}.img", size)
        self.file_disk(disk, size)
        self.apply()

    def do_group(self, group, state):
        """Sets the state of a group of listeners; answered once it is in force."""
        done = self.command("group", "set", group, state)
        if done.returncode != 0:
            raise Broken(f"group set ended with {done.returncode}: {done.stderr.strip()}")

    def do_let_hosts_set(self):
        """Hosts may set the states of groups."""
        self.set_groups = True
        self.apply()

    def do_corrupt(self, disk, offset, length):
        """Overwrites bytes of a file disk behind the target's back."""
        with open(f"{self.folder}/{disk}.img", "r+b") as f:
            f.seek(int(offset))
            f.write(os.urandom(int(length)))
            f.flush()
            os.fsync(f.fileno())

    def answer(self, line):
        """Does what one line asks for; the reply's first word is `ok` or `error`."""
        word, *arguments = line.split() or [""]
        action = getattr(self, f"do_{word}", None)
        if not action:
            return f"error unknown word {word!r}"
        with self.lock:
            try:
                action(*arguments)
                return "ok"
            except (Broken, OSError, LookupError, StopIteration, TypeError, ValueError) as error:
                return "error " + " ".join(str(error).split())


class Bell(socketserver.ThreadingTCPServer):
    """Listens on a loopback port, or on a Lan's second bridge; each connection is one line and its answer."""
    daemon_threads = True

    def __init__(self, target, lan=None):
        self.unanswered = {}  # lines, and since when

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                line = self.rfile.readline(4096).decode(errors="replace").strip()
                target.say(f"bell: {line}")
                self.server.unanswered[line] = time.monotonic()
                answer = target.answer(line)
                del self.server.unanswered[line]
                if answer != "ok":
                    target.say(f"bell: {line}: {answer}")
                self.wfile.write(answer.encode() + b"\n")

        make = super().__init__
        if lan:
            lan.call(lambda: make((BELL_ADDRESS, 0), Handler))
        else:
            make(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]


def remove_folder(folder):
    shutil.rmtree(folder, ignore_errors=True)
