#!/usr/bin/python3
"""Numbered blocks: writes them, remembers which were flushed, and checks that none of those was lost.

  journal.py write DEVICE LOG COUNT    zeros, then COUNT writes of 1 to 16 blocks each, an fsync after each
  journal.py check DEVICE LOG          reads all of it back with direct I/O

Each 512-byte block says by itself which write put it there (number, place, CRC-32), since a block is the unit that a
power cut or a crash may not tear. Before write n goes out, LOG gets `w n first count`; once its fsync has returned, `f n`.
A block then must hold the last flushed write to its place or a later one that was begun: anything else was lost or invented.
LOG lies in memory that the target's death does not touch.
"""
import mmap
import os
import random
import struct
import sys
import zlib

BLOCK, BLOCKS, LONGEST = 512, 16384, 16  # the first 8 MiB of the device
HEAD = struct.Struct("<8sQQ")
MAGIC = b"plateway"


def emit(number, place):
    body = HEAD.pack(MAGIC, number, place)
    body += (number * 2654435761 % (1 << 32)).to_bytes(4, "little") * ((BLOCK - len(body) - 4) // 4)
    return body + zlib.crc32(body).to_bytes(4, "little")


def parse(block, place):
    """The number of the write that put this block here: 0 for zeros, None for what no write of ours made."""
    if not any(block):
        return 0
    magic, number, there = HEAD.unpack_from(block)
    return number if magic == MAGIC and there == place and block == emit(number, place) else None


def write(device, log, count):
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 1 << 20)  # aligned, as direct I/O wants it
    for at in range(0, BLOCK * BLOCKS, len(page)):
        assert os.pwrite(fd, page, at) == len(page)
    os.fsync(fd)
    dice = random.Random(1)
    with open(log, "w", buffering=1) as out:
        for number in range(1, count + 1):
            blocks = dice.randint(1, LONGEST)
            first = dice.randrange(BLOCKS - blocks)
            page[:blocks * BLOCK] = b"".join(emit(number, first + i) for i in range(blocks))
            print("w", number, first, blocks, file=out)
            with memoryview(page)[:blocks * BLOCK] as view:
                assert os.pwritev(fd, [view], first * BLOCK) == blocks * BLOCK
            os.fsync(fd)
            print("f", number, file=out)


def check(device, log):
    flushed, begun = {}, {}
    with open(log) as lines:
        for line in lines:
            word, number, *where = line.split()
            if word == "w":
                last = int(number), range(int(where[0]), int(where[0]) + int(where[1]))
                for place in last[1]:
                    begun.setdefault(place, []).append(last[0])
            else:
                flushed.update(dict.fromkeys(last[1], last[0]))
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, BLOCK * BLOCKS)
    at = 0
    while at < len(page):
        with memoryview(page)[at:at + (1 << 20)] as view:
            at += os.preadv(fd, [view], at)
    lost, foreign = [], []
    for place in range(BLOCKS):
        seen, last = parse(page[place * BLOCK:(place + 1) * BLOCK], place), flushed.get(place, 0)
        if seen is None or (seen and seen not in begun.get(place, [])):
            foreign.append(place)
        elif seen < last:
            lost.append((place, last, seen))
    for place, last, seen in lost[:5]:
        print(f"journal: block {place}: expected write {last} or a later one, seen {seen or 'zeros'}")
    if foreign:
        print(f"FAIL: journal: {len(foreign)} blocks hold what nobody wrote there, first {foreign[:5]}")
    if lost:
        print(f"FAIL: journal: {len(lost)} of {len(flushed)} flushed blocks lost")
    if not lost and not foreign:
        print(f"journal: {len(flushed)} flushed blocks of {max(flushed.values())} writes all there")
    return 1 if lost or foreign else 0


def main():
    verb, device, log, *rest = sys.argv[1:]
    return write(device, log, int(rest[0])) if verb == "write" else check(device, log)


if __name__ == "__main__":
    sys.exit(main())
