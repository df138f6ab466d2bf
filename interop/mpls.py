"""Routers of ours and Linux's own on one path, as the host sees them: an AoE target behind one edge, Linux's AoE driver behind the
other, and between them a switch of ours and the guest's kernel (mpls_router). The target's process is all of our routers.

    target aoe0 === serv  ler1 === lsr  br2 --- eth2  guest  eth3 --- br3  ler2  lx === br0 --- eth0 guest: the driver
                                   |||  br4 --- eth4 guest                 |||             === host1: our initiator
                                    '=============== backup ================'

    to ler2:  ler1 100 lsr 101 guest 102 ler2     backup: ler1 120 lsr 121 ler2
    to ler1:  ler2 110 guest 111 lsr 112 ler1     backup: ler2 130 lsr 131 ler1
    or by a tunnel: serv  ler1 === 10.77.2.1 (br2)  GRE or L2TPv3  10.77.2.2 (eth2) guest: its gretap or l2tpeth, and the driver there
    or Linux's tc ends it: serv  ler1 100 lsr (pops)  eth2 guest: mpls pop, and back: mpls mac_push 1001, 111 lsr 112 ler1
    or in UDP: ler1 100, 10.77.2.1 (br2)  10.77.2.2 (eth2), guest 102 ler2 and back: ler2 110 guest 112, 10.77.2.2  10.77.2.1, ler1

    400 and 410 are not ours: with them the guest's kernel sends IP to itself, by lsr between eth2 and eth4.

`===` are veth pairs, `---` taps. MTUs are bytes.
"""
import json
import subprocess
import time

from case import STRIPE_SECTORS, Case, stripe_of_four
from lan import Lan
from target import SHELF, START_LIMIT_S, Broken, Target

CORE_MTU = 9000
GUEST = {2: "52:54:00:a0:e0:02", 3: "52:54:00:a0:e0:03", 4: "52:54:00:a0:e0:04"}  # its core interfaces, by their bridges
STATION = "host1"  # our initiator's
# Cables between our routers: (interface, address) of both ends.
CABLES = [(("ler1-lsr", "02:00:00:00:01:03"), ("lsr-ler1", "02:00:00:00:03:01")),
          (("ler2-lsr", "02:00:00:00:02:03"), ("lsr-ler2", "02:00:00:00:03:02"))]
MAC = dict(end for cable in CABLES for end in cable)
PORTS = {"ler1": ["ler1-lsr"], "ler2": ["br3", "ler2-lsr"], "lsr": ["lsr-ler1", "lsr-ler2", "br2", "br4"]}


class Network(Lan):
    """A LAN whose target is behind a circuit, with what connects the routers."""

    BRIDGES = 5

    def connect(self):
        def ip(line):
            subprocess.run(["ip", "-n", self.name, *line.split()], check=True, capture_output=True, text=True)

        def cable(a, b, mtu):
            ip(f"link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}")
            for end in (a, b):
                ip(f"link set {end} up")

        for a, b in CABLES:
            cable(f"{a[0]} address {a[1]}", f"{b[0]} address {b[1]}", CORE_MTU)
        ip("link set port0 nomaster")  # the target's other end
        ip("link set port0 down")
        ip("link set port0 name serv up")
        cable("lx", "port1", self.mtu)
        cable(STATION, "port2", self.mtu)
        for port in ("port1", "port2"):
            ip(f"link set {port} master br0")

    def nics(self, mac):
        return super().nics(mac) + [f"lan:{self.name}/br{n},mtu={CORE_MTU},mac={mac}" for n, mac in GUEST.items()]


class Routed(Target):
    """A target that is all of our routers: `penultimate` says whether labels are taken off before an edge, `protected` whether the
    pseudowire has a backup and BFD watches it; `in_udp` whether the labels of the target's edge go to the guest in UDP; `tunnel` has the
    keys of a tunnel to the guest, by which the target's circuit goes then; `by_tc` whether the guest ends the pseudowire of that circuit,
    without a control word, which Linux's tc knows nothing of."""

    penultimate = protected = in_udp = by_tc = False
    tunnel = None

    def routers(self):
        lines = []

        def table(kind, **keys):
            lines.extend(["", f"[[{kind}]]"])
            lines.extend(f"{key} = {json.dumps(value)}" for key, value in keys.items())

        def swap(label, link, next_hop, *labels):
            table("ilm", label=label, fec=f"l{label}", link=link, next_hop=next_hop, labels=labels)

        def edge(router, circuit, labels, lsp, ways):
            (link, tunnel), backup = ways
            first = f'{{ link = "{link}"' + ("" if self.penultimate else f", tunnel = {tunnel}") + " }"
            for label in (tunnel, backup[1]):
                table("ilm", label=label, router=router, fec=f"l{label}", pop=True)
            table("circuit", ethernet=circuit, router=router)
            table("pseudowire", name=circuit, circuit=circuit, label_in=labels[0], label_out=labels[1], lsp=lsp)
            if self.protected:
                lines.append(f'backup = "{lsp}-around"\nbfd = {{ interval = "100ms", revert = "1s" }}')
                lines.append(f'from = [{first}, {{ link = "{backup[0]}", tunnel = {backup[1]}, backup = true }}]')
            else:
                lines.append(f"from = {first}")
            if self.by_tc and circuit == "serv":
                lines.append("control_word = false")

        for router, ports in PORTS.items():
            table("router", name=router)
            for port in ports:
                table("link", ethernet=port, mpls=True, router=router)
        if self.in_udp:
            table("link", name="wan", mpls=True, router="ler1")
            lines.append('udp = { peer = "10.77.2.2", local = "10.77.2.1" }')
            table("lsp", name="to-ler2", link="wan", labels=[100])
        else:
            table("lsp", name="to-ler2", link="ler1-lsr", next_hop=MAC["lsr-ler1"], labels=[100])
        table("lsp", name="to-ler2-around", link="ler1-lsr", next_hop=MAC["lsr-ler1"], labels=[120])
        table("lsp", name="to-ler1", link="br3", next_hop=GUEST[3], labels=[110])
        table("lsp", name="to-ler1-around", link="ler2-lsr", next_hop=MAC["lsr-ler2"], labels=[130])
        swap(100, "br2", GUEST[2], *([] if self.by_tc else [101]))
        swap(111, "lsr-ler1", MAC["ler1-lsr"], *([] if self.penultimate else [112]))
        swap(120, "lsr-ler2", MAC["ler2-lsr"], 121)
        swap(130, "lsr-ler1", MAC["ler1-lsr"], 131)
        swap(400, "br4", GUEST[4], 401)
        swap(410, "br2", GUEST[2])
        if self.tunnel:
            table("circuit", ethernet="serv", router="ler1")
            table("tunnel", name="serv", circuit="serv", peer="10.77.2.2")
            lines.append(self.tunnel)
        else:
            edge("ler1", "serv", (1001, 1002), "to-ler2", [("wan" if self.in_udp else "ler1-lsr", 112), ("ler1-lsr", 131)])
        edge("ler2", "lx", (1002, 1001), "to-ler1", [("br3", 102), ("ler2-lsr", 121)])
        return lines

    def show(self, *words):
        """All of our routers, as they are now."""
        done = self.command("route", "show", *words)
        if done.returncode != 0:
            raise Broken(f"route show ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ask_status(self):
        try:
            return super().ask_status() + self.show()
        except Broken as error:
            return f"FAIL: {error}"

    def shown(self, router):
        return next(one for one in json.loads(self.show("--json"))["routers"] if one["name"] == router)

    def wait_for(self, what, is_so):
        deadline = time.monotonic() + START_LIMIT_S
        while not is_so():
            self.must_live()
            if time.monotonic() > deadline:
                self.say(self.show())
                raise Broken(f"waited in vain for {what}")
            time.sleep(0.05)

    # What the guest may ask for.

    def do_pop_before_edges(self):
        self.penultimate = True
        self.apply()

    def do_protect(self):
        """Labels lead from edge to edge again, and the pseudowire has a backup."""
        self.penultimate, self.protected, self.in_udp, self.by_tc, self.tunnel = False, True, False, False, None
        self.apply()

    def do_in_udp(self):
        """Labels lead from edge to edge, and between the target's edge and the guest they are in UDP."""
        self.penultimate, self.in_udp, self.tunnel = False, True, None
        self.apply()

    def do_came_in_udp(self):
        """That labels came and went in UDP, and none was wrong."""
        seen = next(one for one in self.shown("ler1")["ports"] if one["name"] == "wan")
        if min(seen["sent"], seen["received"]) < 1000 or seen["drops"]:
            raise Broken(f"in UDP: {seen}")

    def do_tunnel(self, kind):
        """The target is behind a tunnel, whose other end is the guest's kernel."""
        self.in_udp = False
        self.tunnel = {"gre": "gre = { key = 7 }",
                       "l2tp": 'l2tp = { session_in = 7, session_out = 8, cookie_in = "5eed1234", cookie_out = "0123456789abcdef" }'}[kind]
        self.apply()

    def do_by_tc(self):
        """The target is behind a pseudowire whose other end is the guest's tc."""
        self.tunnel, self.by_tc = None, True
        self.apply()

    def do_came_by_tc(self):
        """That frames of that pseudowire came and went, and none was wrong."""
        seen = self.shown("ler1")["pseudowires"][0]
        if min(seen["sent"], seen["delivered"]) < 1000 or seen["drops"]:
            raise Broken(f"by tc: {seen}")

    def do_tunnelled(self):
        """That frames of a tunnel came and went, and none was lost: the kernel numbers what it sends. Two of its
        CPUs may send in another order than they numbered: what is missing then came late, and is dropped."""
        seen = self.shown("ler1")["tunnels"][0]
        late = seen["drops"].pop("late", 0)
        is_whole = seen["missing"] == late and late * 100 <= seen["delivered"]
        if min(seen["sent"], seen["delivered"]) < 1000 or not is_whole or seen["unsequenced"] or seen["drops"]:
            raise Broken(f"tunnel: {seen}, {late} late")

    def do_takes(self, way):
        """Waits until the frames of both edges take the primary path, both paths being up, or the backup."""

        def is_so():
            wires = [self.shown(router)["pseudowires"][0] for router in ("ler1", "ler2")]
            is_up = all(path["state"] == "Up" for wire in wires for path in wire["paths"])
            return all(wire["active"] == way for wire in wires) and (is_up or way == "backup")

        self.wait_for(f"frames by the {way} path", is_so)

    def do_dropped(self, router, port, reason):
        """Waits until a router has dropped something that came by a port, for this reason."""
        ports = lambda: {one["name"]: one["drops"] for one in self.shown(router)["ports"]}
        self.wait_for(f"{reason} by {port} of {router}", lambda: ports()[port].get(reason))

    def do_initiate(self, slot):
        """Our own initiator writes a disk, reads it back and compares."""
        command = [self.binary, "bench", f"aoe://{STATION}/{SHELF}.{slot}", "--rw", "randrw=50", "--time", "2", "--verify", "--overwrite"]
        done = subprocess.run(self.lan.command(command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0 or " 0 wrong" not in done.stdout:
            raise Broken(f"our initiator: {done.stdout} {done.stderr}")


def guest(options, suite=None):
    with Case(options, shards=2, mtu=1500, kind=Routed, lan=Network) as case:
        stripe_of_four(case.target)
        case.target.slots.update({3: ("v0", "any"), 4: ("v1", "any")})
        case.target.start()
        code, _ = case.guest(suite or options.suite, "mpls.sh", SECTORS=STRIPE_SECTORS)
        case.passes(code)


def cases(options, suite):
    return [("MPLS", lambda: guest(options, suite))]
