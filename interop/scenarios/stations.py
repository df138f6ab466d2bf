#!/usr/bin/python3
"""AoE by hand, from two stations: the guest's own address, and a second one on the same wire (a macvlan).

stations.py access FRIEND STRANGER     who is no host, not in a mask or not in a reservation, and what they get
stations.py hostile FRIEND             frames that nobody should send: the spec's answer or silence, and never a write
stations.py hold FRIEND STRANGER       a mask and a reservation on e7.4 ...
stations.py held FRIEND STRANGER       ... which must still be there; then takes them away
stations.py silent FRIEND STRANGER A   whether e7.3 or e7.4 (A) keeps silence towards the stranger
stations.py announced FRIEND A         waits for A to announce itself

FRIEND and STRANGER are interfaces. e7.3 has FRIEND alone among its hosts, e7.4 has any.
Offsets and codes are those of AoEr11. A question is sent again each second until its answer comes. Silence is proven
without a clock: a question of the friend that is sent later over the same wire has been answered.
"""
import os
import select
import socket
import struct
import sys
import time

AOE, BROADCAST = 0x88A2, b"\xff" * 6
ATA, CONFIG, MASK, RESERVE = range(4)
RESPONSE, ERROR = 0x08, 0x04
READ, WRITE, IDENTIFY = 0x24, 0x34, 0xEC
HEAD = struct.Struct(">6s6sHBBHBBL")
LIMIT_S = 600  # a hang guard


class Failed(Exception):
    """Something was not as it must be."""


def fail(text):
    raise Failed(text)


def expect(what, seen, wanted):
    if seen != wanted:
        fail(f"{what}: expected {wanted!r}, seen {seen!r}")


def address(text):
    shelf, slot = text.removeprefix("e").split(".")
    return int(shelf), int(slot)


class Answer:
    def __init__(self, frame):
        (self.destination, self.source, _, versions, self.error, self.shelf, self.slot, self.command, self.tag) = HEAD.unpack_from(frame)
        self.flags, self.argument = versions & 15, frame[HEAD.size:]
        self.refused = self.error if self.flags & ERROR else 0


class Station:
    """One interface with its address. Tags have bit 31 set, which the Linux driver leaves to others. Queries go to all
    stations, other commands to the one that answered a query, since a target need not take them from a broadcast."""
    answered = {}  # target: the station that answered for it

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(AOE))
        self.socket.bind((interface, AOE))
        self.mac = self.socket.getsockname()[4]
        self.tag = 0x80000000 | int.from_bytes(os.urandom(3), "big")

    def frame(self, target, command, argument, version=1, to=None):
        self.tag += 1
        shelf, slot = target
        to = to or (BROADCAST if command == CONFIG else self.answered[target])
        head = HEAD.pack(to, self.mac, AOE, version << 4, 0, shelf, slot, command, self.tag)
        return (head + argument).ljust(60, b"\0")

    def next(self, limit_s):
        """The next response on the wire, whosoever it is for; None after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while select.select([self.socket], [], [], max(0, deadline - time.monotonic()))[0]:
            frame = self.socket.recv(65536)
            if frame[14] & RESPONSE:
                if len(frame) < 60:
                    fail(f"an answer of {len(frame)} bytes: shorter than Ethernet's 60")
                return Answer(frame)
        return None

    def ask(self, target, command, argument, **more):
        """Sends until the answer comes. -> Answer"""
        if command != CONFIG and target not in self.answered:
            self.config(target)
        frame = self.frame(target, command, argument, **more)
        for _ in range(LIMIT_S):
            self.socket.send(frame)
            began = time.monotonic()
            while (left := began + 1 - time.monotonic()) > 0:
                answer = self.next(left)
                if answer and answer.tag == self.tag and answer.destination == self.mac:
                    expect("address of the answer", (answer.shelf, answer.slot), target)
                    self.answered[target] = answer.source
                    return answer
        fail(f"no answer from e{target[0]}.{target[1]} to command {command}")

    # The commands, each as its argument.

    def config(self, target):
        return self.ask(target, CONFIG, bytes([0, 0, 0, 0, 0, 0x10, 0, 0]))

    def ata(self, target, opcode, lba=0, count=1, data=b"", **more):
        return self.ask(target, ATA, ata(opcode, lba, count, data), **more)

    def reserve(self, target, how, macs=()):
        """how: 0 read, 1 set, 2 force. -> (error, list)"""
        answer = self.ask(target, RESERVE, reserve(how, macs))
        return answer.refused, [] if answer.refused else listed(answer.argument[2:], answer.argument[1], 6)

    def mask(self, target, edits=()):
        """edits: (1 add or 2 delete, MAC). -> (mask error, list)"""
        answer = self.ask(target, MASK, mask(edits))
        expect("mask command refused", answer.refused, 0)
        macs = listed(answer.argument[4:], answer.argument[3], 8)
        return answer.argument[2], [mac[2:] for mac in macs]


def ata(opcode, lba=0, count=1, data=b"", feature=0):
    flags = 0x40 if opcode in (READ, WRITE) else 0
    flags |= 1 if data else 0
    return bytes([flags, feature, count, opcode]) + lba.to_bytes(6, "little") + bytes(2) + data


def reserve(how, macs=()):
    return bytes([how, len(macs)]) + b"".join(macs)


def mask(edits=()):
    return bytes([0, 1 if edits else 0, 0, len(edits)]) + b"".join(bytes([0, verb]) + mac for verb, mac in edits)


def listed(argument, count, size):
    return [argument[i * size:(i + 1) * size] for i in range(count)]


def silent(friend, stranger, target):
    """None, or what the stranger got an answer to. Wildcard queries must not be answered by this export either."""
    questions = {"a query": (CONFIG, bytes([0, 0, 0, 0, 0, 0x10, 0, 0])), "IDENTIFY": (ATA, ata(IDENTIFY)), "a read": (ATA, ata(READ)),
                 "a write": (ATA, ata(WRITE, data=b"\xee" * 512)), "a mask edit": (MASK, mask([(1, stranger.mac)])),
                 "a reservation": (RESERVE, reserve(2, [stranger.mac]))}
    station, first = friend.config(target).source, stranger.tag
    for what, (command, argument) in questions.items():
        for shelf, slot in [target] + [(0xFFFF, 0xFF), (target[0], 0xFF), (0xFFFF, target[1])] * (command == CONFIG):
            for to in (station, BROADCAST):
                stranger.socket.send(stranger.frame((shelf, slot), command, argument, to=to))
            friend.config(target)
            while answer := stranger.next(0):
                if answer.tag > first and answer.destination == stranger.mac and (answer.shelf, answer.slot) == target:
                    return what
    return None


def must_be_silent(friend, stranger, target, why):
    what = silent(friend, stranger, target)
    if what:
        fail(f"{what} of a stranger to e{target[0]}.{target[1]} was answered, though {why}")


def access(friend, stranger, only_friend=(7, 3), any_station=(7, 4)):
    before = friend.ata(only_friend, READ).argument[12:]
    must_be_silent(friend, stranger, only_friend, "it is no host")
    expect("sector 0 after a stranger's write", friend.ata(only_friend, READ).argument[12:], before)
    expect("mask after a stranger's edit", friend.mask(only_friend), (0, []))
    expect("reservation after a stranger's", friend.reserve(only_friend, 0), (0, []))
    friend.mask(only_friend, [(1, friend.mac), (1, stranger.mac)])
    must_be_silent(friend, stranger, only_friend, "a mask must not widen the hosts")
    expect("emptied mask", friend.mask(only_friend, [(2, stranger.mac), (2, friend.mac)]), (0, []))
    print("PASS a station that is no host gets silence, and changes nothing")

    stranger.config(any_station)
    others = [bytes([2, 0, 0, 0, 0, n]) for n in range(3)]
    expect("mask", friend.mask(any_station, [(1, friend.mac)] + [(1, mac) for mac in others]), (0, [friend.mac] + others))
    expect("mask as read", friend.mask(any_station), (0, [friend.mac] + others))
    must_be_silent(friend, stranger, any_station, "it is not in the mask")
    expect("bad directive", friend.mask(any_station, [(2, others[0]), (7, others[1])])[0], 2)
    expect("mask as read", friend.mask(any_station), (0, [friend.mac] + others[1:]))
    expect("emptied mask", friend.mask(any_station, [(2, mac) for mac in others + [friend.mac]]), (0, []))
    stranger.config(any_station)
    print("PASS a mask is set, read and obeyed")

    expect("reservation", friend.reserve(any_station, 1, [friend.mac]), (0, [friend.mac]))
    expect("a stranger's reservation", stranger.reserve(any_station, 1, [stranger.mac]), (6, []))
    expect("a stranger's read", stranger.ata(any_station, READ).refused, 6)
    expect("a stranger's write", stranger.ata(any_station, WRITE, data=b"\xee" * 512).refused, 6)
    expect("a stranger's IDENTIFY", stranger.ata(any_station, IDENTIFY).refused, 0)
    expect("a stranger's query", stranger.config(any_station).refused, 0)
    expect("the holder's read", friend.ata(any_station, READ).argument[3], 0x40)
    expect("reservation by force", stranger.reserve(any_station, 2, [stranger.mac]), (0, [stranger.mac]))
    expect("the old holder's read", friend.ata(any_station, READ).refused, 6)
    expect("reservation as read", friend.reserve(any_station, 0), (0, [stranger.mac]))
    expect("release", stranger.reserve(any_station, 1), (0, []))
    expect("read after the release", friend.ata(any_station, READ).argument[3], 0x40)
    print("PASS a reservation is set, refused to others, forced and released")


def hostile(friend, target=(7, 3)):
    """Status, error register and code as the specification has them. The last sector holds our mark all the while."""
    words = friend.ata(target, IDENTIFY).argument[12:]
    sectors = int.from_bytes(words[200:206], "little")
    mark = os.urandom(512)
    expect("write of the last sector", friend.ata(target, WRITE, sectors - 1, data=mark).argument[3], 0x40)
    beyond = {"beyond the end": (sectors, 1, mark[::-1]), "across the end": (sectors - 1, 2, mark[::-1] * 2)}
    for what, (lba, count, data) in beyond.items():
        for opcode in (READ, WRITE):
            answer = friend.ata(target, opcode, lba, count, data if opcode == WRITE else b"")
            expect(f"{opcode:#x} {what}", (answer.refused, answer.argument[3] & 1, answer.argument[1] & 0x10), (0, 1, 0x10))
    unknown = friend.ata(target, 0x99)
    expect("an unknown ATA command", (unknown.refused, unknown.argument[3], unknown.argument[1]), (0, 0x41, 0x04))
    expect("an unknown command", friend.ask(target, 9, b"").refused, 1)
    expect("version 2", friend.ask(target, CONFIG, bytes(8), version=2).refused, 5)
    expect("a write of fewer bytes than it says", friend.ata(target, WRITE, sectors - 2, 2, mark[::-1]).refused, 2)
    head = friend.frame(target, ATA, b"")
    for length in range(14, 36):  # no frame can be shorter on a wire; a veth and a tap pad nothing
        friend.socket.send(head[:length])
    for to in (friend.answered[target], BROADCAST):
        friend.socket.send(friend.frame((0xFFFF, 0xFF), ATA, ata(WRITE, sectors - 1, data=mark[::-1]), to=to))
    reply = bytearray(friend.frame(target, ATA, ata(WRITE, sectors - 1, data=mark[::-1])))
    reply[14] |= RESPONSE
    friend.socket.send(reply)
    expect("the last sector after all this", friend.ata(target, READ, sectors - 1).argument[12:524], mark)
    print("PASS hostile frames get the specification's answer or silence, and nothing was written")


def hold(friend, stranger, target=(7, 4)):
    friend.mask(target, [(1, friend.mac), (1, stranger.mac)])
    expect("reservation", friend.reserve(target, 1, [friend.mac]), (0, [friend.mac]))


def held(friend, stranger, target=(7, 4)):
    expect("mask after a restart", friend.mask(target), (0, [friend.mac, stranger.mac]))
    expect("reservation after a restart", friend.reserve(target, 0), (0, [friend.mac]))
    expect("a stranger's read after a restart", stranger.ata(target, READ).refused, 6)
    friend.reserve(target, 1)
    friend.mask(target, [(2, stranger.mac), (2, friend.mac)])


def announced(friend, target):
    print("listening", flush=True)
    for _ in range(100 * LIMIT_S):  # seconds of a clock that may run too fast, and frames that are others'
        answer = friend.next(1)
        if answer and (answer.shelf, answer.slot, answer.command, answer.tag) == (*target, CONFIG, 0) and answer.destination in (BROADCAST, friend.mac):
            return
    fail(f"e{target[0]}.{target[1]} did not announce itself")


def perform(verb, friend, rest):
    if verb == "hostile":
        hostile(friend)
    elif verb == "announced":
        announced(friend, address(rest[0]))
    elif verb == "silent":
        must_be_silent(friend, Station(rest[0]), address(rest[1]), "it must not be")
    else:
        {"access": access, "hold": hold, "held": held}[verb](friend, Station(rest[0]))


def main():
    verb, friend, *rest = sys.argv[1:]
    friend = Station(friend)
    try:
        perform(verb, friend, rest)
    except Failed as failure:
        print(f"FAIL: {failure}")
        sys.exit(1)


if __name__ == "__main__":
    main()
