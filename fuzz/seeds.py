#!/usr/bin/python3
"""Writes the hand-made seeds of corpora/: one well-formed thing of each kind, from the tables of the specification, not from
our own code, so that a mistake there does not choose its own test data. Run it again after a change here."""
import os
import struct

HERE = os.path.dirname(os.path.realpath(__file__))
HOST = b"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
SUBSYSTEM = b"nqn.2026-11.net.plateway:v0"
DISCOVERY = b"nqn.2014-08.org.nvmexpress.discovery"


def seed(target, name, data):
    os.makedirs(f"{HERE}/corpora/{target}", exist_ok=True)
    with open(f"{HERE}/corpora/{target}/{name}", "wb") as f:
        f.write(data)


def common(kind, flags, hlen, pdo, plen):
    return struct.pack("<BBBBI", kind, flags, hlen, pdo, plen)


def sqe(opcode, cid=1, nsid=0, sgl=bytes(16), flags=0x40, **cdw):
    words = [cdw.get(f"cdw{i}", 0) for i in range(10, 16)]
    return struct.pack("<BBHI16x", opcode, flags, cid, nsid) + sgl + struct.pack("<6I", *words)


def in_capsule(length):
    return struct.pack("<QI3xB", 0, length, 0x01)


def transport(length):
    return struct.pack("<QI3xB", 0, length, 0x5A)


def fabrics(kind, tail, sgl=bytes(16)):
    return struct.pack("<BBHB19x", 0x7F, 0x40, 1, kind) + sgl + tail.ljust(24, b"\0")


def connect_data(cntlid, subsystem):
    data = bytes(range(16)) + struct.pack("<H", cntlid)
    return (data.ljust(256, b"\0") + subsystem.ljust(256, b"\0") + HOST.ljust(256, b"\0")).ljust(1024, b"\0")


CONNECT = {
    "admin": fabrics(1, struct.pack("<HHHBxI", 0, 0, 31, 0, 5000), in_capsule(1024)) + connect_data(0xFFFF, SUBSYSTEM),
    "io": fabrics(1, struct.pack("<HHHBxI", 0, 1, 127, 4, 0), in_capsule(1024)) + connect_data(1, SUBSYSTEM),
    "discovery": fabrics(1, struct.pack("<HHHBxI", 0, 0, 31, 0, 0), in_capsule(1024)) + connect_data(0xFFFF, DISCOVERY),
    "property-get-cap": fabrics(4, struct.pack("<BxxxI", 1, 0)),
    "property-set-cc": fabrics(0, struct.pack("<BxxxIQ", 0, 0x14, 0x460001)),
    "unterminated-name": fabrics(1, b"", in_capsule(1024)) + b"\xff" * 1024,
}
COMMANDS = {
    "flush": sqe(0x00, nsid=1),
    "write": sqe(0x01, nsid=1, sgl=in_capsule(4096), cdw10=8, cdw12=7 | 1 << 30),
    "read": sqe(0x02, nsid=1, sgl=transport(131072), cdw10=2048, cdw12=255),
    "compare-first-fused": sqe(0x05, nsid=1, flags=0x41, sgl=in_capsule(512)),
    "write-zeroes": sqe(0x08, nsid=1, cdw10=64, cdw12=7 | 1 << 25),
    "dsm": sqe(0x09, nsid=1, sgl=in_capsule(32), cdw10=1, cdw11=4) + struct.pack("<IIQIIQ", 0, 8, 0, 0, 16, 1 << 40),
    "identify-controller": sqe(0x06, sgl=transport(4096), cdw10=1),
    "identify-descriptors": sqe(0x06, nsid=1, sgl=transport(4096), cdw10=3),
    "set-queues": sqe(0x09, cdw10=7, cdw11=3 | 3 << 16),
    "set-events": sqe(0x09, cdw10=0x0B, cdw11=0x900),
    "get-feature": sqe(0x0A, cdw10=0x0F),
    "log-smart": sqe(0x02, nsid=0xFFFFFFFF, sgl=transport(512), cdw10=2 | 127 << 16),
    "log-discovery": sqe(0x02, sgl=transport(4096), cdw10=0x70 | 1 << 15 | 1023 << 16, cdw12=1024),
    "abort": sqe(0x08, cdw10=1 | 5 << 16),
    "event": sqe(0x0C, cid=0xF01F),
    "keep-alive": sqe(0x18),
    "completion": struct.pack("<QHHHH", 0, 5, 0, 1, 0),
    "completion-lba-range": struct.pack("<QHHHH", 0, 5, 0, 1, (0x80 | 1 << 14) << 1),
}


def capsule(command, data=b"", digests=0):
    return (common(4, digests & 3, 72, 72 + 4 * (digests & 1) if data else 0,
                   72 + 4 * (digests & 1) + (len(data) + 4 * (digests >> 1) if data else 0))
            + command + bytes(4 * (digests & 1)) + data + (bytes(4 * (digests >> 1)) if data else b""))


def data_pdu(kind, flags, cid, ttag, offset, data):
    return common(kind, flags, 24, 24, 24 + len(data)) + struct.pack("<HHII4x", cid, ttag, offset, len(data)) + data


ICREQ = (common(0, 0, 128, 0, 128) + struct.pack("<HBBI", 0, 0, 3, 0)).ljust(128, b"\0")
ICRESP = (common(1, 0, 128, 0, 128) + struct.pack("<HBBI", 0, 0, 3, 131072)).ljust(128, b"\0")
R2T = common(9, 0, 24, 0, 24) + struct.pack("<HHII4x", 1, 7, 0, 131072)
RESPONSE = common(5, 0, 24, 0, 24) + COMMANDS["completion"]
TERM = common(2, 0, 24, 0, 24 + 8) + struct.pack("<HI10x", 1, 4) + common(8, 0, 0, 0, 0)
PDUS = {
    "icreq": b"\3" + ICREQ,
    "icresp": b"\3" + ICRESP,
    "connect": b"\0" + ICREQ + capsule(CONNECT["admin"][:64], CONNECT["admin"][64:]),
    "write-in-capsule": b"\0" + capsule(COMMANDS["write"], bytes(64)),
    "write-in-capsule-digests": b"\3" + capsule(COMMANDS["write"], bytes(64), 3),
    "read": b"\0" + capsule(COMMANDS["read"]) + data_pdu(7, 0x0C, 1, 0, 0, bytes(32)) + RESPONSE,
    "write-r2t": b"\0" + R2T + data_pdu(6, 0x04, 1, 7, 0, bytes(32)) + RESPONSE,
    "term": b"\0" + TERM,
    "wrong-hlen": b"\0" + common(4, 0, 71, 0, 71) + bytes(64),
    "plen-zero": b"\0" + common(4, 0, 72, 0, 0),
    "plen-huge": b"\0" + common(6, 0, 24, 24, 0xFFFFFFFF),
}


def at(size, *fields):
    page = bytearray(size)
    for offset, value in fields:
        page[offset:offset + len(value)] = value
    return bytes(page).rstrip(b"\0") or b"\0"


IDENTIFY = {
    "controller": at(4096, (4, b"S1".ljust(20)), (24, b"Plateway".ljust(40)), (77, b"\x08\x01\0"), (111, b"\1"),
                     (320, b"\x0a\0"), (512, b"\x66\x44"), (516, b"\xff\xff"), (768, SUBSYSTEM), (1792, b"\x04\1\0\0")),
    "namespace": at(4096, (0, struct.pack("<QQQ", 1 << 21, 1 << 21, 1 << 21)), (104, bytes(range(1, 17))), (130, b"\x09")),
    "active-list": struct.pack("<4I", 1, 2, 7, 0),
    "descriptors": b"\1\x08\0\0" + bytes(range(8)) + b"\3\x10\0\0" + bytes(range(16)) + b"\4\1\0\0\0" + bytes(4),
    "descriptor-too-long": b"\3\xff\0\0",
    "descriptor-wrong-length": b"\1\x07\0\0" + bytes(8),
    "command-sets": struct.pack("<Q", 1),
}
ENTRY = at(1024, (0, b"\3\1\2\2\1\0\xff\xff\x20\0"), (32, b"4420"), (256, SUBSYSTEM), (512, b"127.0.0.1"), (768, b"\0"))
LOGS = {
    "discovery-header": struct.pack("<QQH", 7, 2, 0),
    "discovery-entry": ENTRY.ljust(1024, b"\0"),
    "smart": at(512, (1, struct.pack("<H", 310)), (3, b"\x64\x0a"), (32, (1 << 70).to_bytes(16, "little"))),
    "error": struct.pack("<QHHHHQI", 1, 1, 5, 0x0104, 40, 8, 1),
    "changed": struct.pack("<3I", 1, 5, 0),
    "changed-too-many": struct.pack("<I", 0xFFFFFFFF),
    "effects": bytes(4 * 2) + struct.pack("<I", 1),
    "get-log": COMMANDS["log-discovery"],
}

TCP = struct.pack(">HHIIBBHHH", 50000, 4420, 1, 1, 0x50, 0x18, 512, 0, 0) + ICREQ
IP4 = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(TCP), 1, 0x4000, 64, 6, 0, b"\x7f\0\0\1", b"\x7f\0\0\1") + TCP
IP6 = struct.pack(">IHBB16s16s", 6 << 28, len(TCP), 6, 64, bytes(15) + b"\1", bytes(15) + b"\1") + TCP
FRAMES = [bytes(12) + b"\x08\0" + IP4, bytes(12) + b"\x81\0\0\x05\x86\xdd" + IP6]


def pcap(order, magic, link, packets):
    out = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 262144, link)
    return out + b"".join(struct.pack(order + "IIII", 1, 2, len(p), len(p)) + p for p in packets)


def block(kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))


PCAPNG = (block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack("<HHI", 1, 0, 262144))
          + b"".join(block(6, struct.pack("<IIIII", 0, 0, 1000, len(f), len(f)) + f) for f in FRAMES))
CAPTURES = {
    "pcap-little": b"\x40" + pcap("<", 0xA1B2C3D4, 1, FRAMES),
    "pcap-big-nanoseconds": b"\x07" + pcap(">", 0xA1B23C4D, 1, FRAMES),
    "pcap-cooked": b"\1" + pcap("<", 0xA1B2C3D4, 113, [bytes(14) + b"\x08\0" + IP4]),
    "pcap-loopback": b"\xff" + pcap("<", 0xA1B2C3D4, 0, [b"\2\0\0\0" + IP4]),
    "pcap-raw": b"\x10" + pcap("<", 0xA1B2C3D4, 101, [IP4, IP6]),
    "pcapng": b"\x21" + PCAPNG,
}
LOGS["ana"] = struct.pack("<QH6x", 3, 1) + struct.pack("<IIQB15x", 1, 2, 3, 1) + struct.pack("<II", 1, 2)

# AoE messages from the byte behind the EtherType on: offsets of the fact tables less 14.
def aoe(command, body, flags=0x10, error=0, shelf=7, slot=3, tag=0x01020304):
    return struct.pack(">BBHBBI", flags, error, shelf, slot, command, tag) + body


def registers(op, lba, count, flags=0x40, feature=0):
    return struct.pack("<BBBB", flags, feature, count, op) + lba.to_bytes(6, "little") + bytes(2)


def query(command, text=b"", buffers=0, firmware=0, sectors=0):
    return struct.pack(">HHBBH", buffers, firmware, sectors, 0x10 | command, len(text)) + text


WORDS = bytearray(512)
for word, value in [(0, 0x40), (49, 0x300), (60, 0x2000), (82, 1), (83, 0x7400), (84, 0x4000), (86, 0x3400), (87, 0x4000),
                    (100, 0x2000), (106, 0x6003), (169, 1)]:
    struct.pack_into("<H", WORDS, 2 * word, value)
MAC = bytes([2, 0, 0, 0, 0, 1])
AOE = {
    "discovery": aoe(1, query(0), shelf=0xFFFF, slot=0xFF, tag=0),
    "config-response": aoe(1, query(0, b"text", 64, 0x4019, 17), 0x18),
    "config-set": aoe(1, query(3, b"name")),
    "read": aoe(0, registers(0x24, 1 << 40, 17)),
    "read-response": aoe(0, registers(0x40, 9, 0) + bytes(512), 0x18),
    "write-28": aoe(0, registers(0x30, 0xE0000005, 1, 1) + bytes(512)),
    "identify-response": aoe(0, registers(0x40, 0, 0) + bytes(WORDS), 0x18),
    "trim": aoe(0, registers(6, 0, 1, 0x41, 1) + struct.pack("<Q", 5 | 8 << 48).ljust(512, b"\0")),
    "smart": aoe(0, registers(0xB0, 0xC24F00, 0, 0, 0xDA)),
    "failed": aoe(0, registers(0x41, 9, 2, 0x40, 0x10), 0x18),
    "refused": aoe(0, bytes(12), 0x1C, 6),
    "mask-edit": aoe(2, bytes([0, 1, 0, 2, 0, 1]) + MAC + bytes([0, 2]) + MAC),
    "reserve": aoe(3, bytes([1, 1]) + MAC),
    "vendor": aoe(0xF0, bytes(8), 0x23),
    "text-address": b"65534.254",
    "text-mac": b"02:00:00:ab:00:01",
    "text-control": b"config 68656c6c6f mask 02:00:00:00:00:01",
    "text-reservation": b"generation 3 held exclusive-access-all by all: mac:020000000001=0",
}


# What carries frames from router to router: label stacks, and headers as they nest.
def label(number, bottom=0, ttl=255, tc=0):
    return struct.pack(">I", number << 12 | tc << 9 | bottom << 8 | ttl)


FRAME = bytes([2] * 6 + [4] * 6) + b"\x88\xa2" + AOE["read"]
MPLS = {
    "pseudowire": label(100, 1) + b"\0\0\0\1" + FRAME,
    "tunnelled": label(200, tc=5, ttl=64) + label(100, 1) + b"\0\0\xff\xff" + FRAME,
    "explicit-null": label(0) + label(100, 1) + FRAME,
    "entropy": label(200) + label(7) + label(54321, ttl=0) + label(100, 1) + b"\0\x40\0\2",
    "channel": label(13, 1, 1) + b"\x10\0\0\7" + bytes(24),
    "implicit-null": label(3, 1),
    "unassigned": label(4, 1),
    "deep": label(16) * 16 + label(17, 1),
    "without-bottom": label(16) * 3,
    "late": b"\0\1\x80\1",
}


def control(state, flags=0, diagnostic=0, mult=3, mine=7, yours=0, section=b"", version=1, length=None):
    return struct.pack(">BBBBIIIII", version << 5 | diagnostic, state << 6 | flags, mult,
                       24 + len(section) if length is None else length, mine, yours, 1000000, 1000000, 0) + section


BFD = {
    "down": control(1),
    "init": control(2, yours=9),
    "up-poll": control(3, 0x20, yours=9),
    "up-final": control(3, 0x18, yours=9),
    "admin-down": control(0, diagnostic=7),
    "password": control(1, 4, section=b"\1\x0c\1password!"),
    "md5": control(1, 4, section=b"\2\x18\1\0" + struct.pack(">I", 5) + bytes(16)),
    "sha1": control(1, 4, section=b"\5\x1c\2\0" + struct.pack(">I", 5) + bytes(20)),
    "unknown-section": control(1, 4, section=b"\x63\4ab"),
    "short-section": control(1, 4, section=b"\4\x1c\1"),
    "nobody": control(3),
    "multipoint": control(1, 1),
    "padded": control(1) + bytes(22),
}


def ipv4(protocol, payload, options=b""):
    head = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 0, 0x4000, 64,
                                 protocol, 0, b"\x0a\0\0\1", b"\x0a\0\0\2") + options)
    total = sum(struct.unpack(f">{len(head) // 2}H", head))
    struct.pack_into(">H", head, 10, ~(total % 0xFFFF or 0xFFFF) & 0xFFFF)
    return bytes(head) + payload


def udp(port, payload):
    return struct.pack(">HHHH", 49153, port, 8 + len(payload), 0) + payload


FC_FRAME = b"\x2e\x2e\xd1\xd1" + b"\1" + bytes(7) + b"\x08" + bytes(15) + b"data" + bytes(4) + b"\x42\x42\xbd\xbd"
TUNNELS = {
    "frame": FRAME,
    "frame-tagged": FRAME[:12] + b"\x81\0\xa0\7" + FRAME[12:],
    "frame-tagged-twice": FRAME[:12] + b"\x88\xa8\0\7\x81\0\0\x08" + FRAME[12:],
    "gre": b"\0\0\x65\x58" + FRAME,
    "gre-all": b"\xb0\0\x65\x58" + struct.pack(">HHII", 0, 0, 42, 7) + FRAME,
    "gre-version-1": b"\x20\1\x88\x0b" + bytes(8),
    "l2tp-udp": b"\0\3\0\0" + struct.pack(">IQI", 7, 1 << 60, 0x40000005) + FRAME,
    "l2tp-ip": struct.pack(">III", 7, 0x01020304, 0) + FRAME,
    "l2tp-control": b"\xc8\3\0\x14" + bytes(16),
    "ipv4-udp-mpls": ipv4(17, udp(6635, MPLS["pseudowire"])),
    "ipv4-options": ipv4(47, b"\0\0\x65\x58" + FRAME, b"\1\1\1\0") + bytes(6),
    "ipv6-udp": struct.pack(">IHBB16s16s", 6 << 28, 12, 17, 64, bytes(15) + b"\1", bytes(15) + b"\1") + udp(1701, b"data"),
    "udp": udp(3784, BFD["down"]),
    # Stacks to compare with: a segment with timestamps, FC frames with 4 bytes of data, the reply to a READ.
    "tcp": struct.pack(">HHIIHHHH", 3260, 40000, 7, 9, 0x8010, 0xFFFF, 0, 0) + b"\1\1\x08\x0a" + bytes(8) + b"data",
    "tcp-timestamps": b"\1\1\x08\x0a" + bytes(8),
    "fcip": b"\1\1\xfe\xfe" * 2 + b"\0\0\xff\xff" + b"\0\x11\xff\xee" + bytes(12) + FC_FRAME,
    "ifcp": b"\2\1\xfd\xfe" + bytes(6) + b"\x2e\x42" + b"\0\x11\xff\xee" + bytes(12) + FC_FRAME,
    "fc-sof": FC_FRAME,
    "fc-eof": FC_FRAME[-4:],
    "rpc-reply": struct.pack(">IIIII", 7, 1, 0, 6, 5) + bytes(8) + struct.pack(">I", 0),
    "nfs-read": struct.pack(">II", 0, 1) + bytes(range(84)) + struct.pack(">III", 4, 1, 4) + b"data",
    "nfs-read-no-attributes": struct.pack(">IIIII", 0, 0, 2, 0, 2) + b"Hi\0\0",
}


# iSCSI PDUs, behind the byte that says which digests there are (which stand for themselves, as zeros).
def bhs(op, flags, data=b"", fields=(), ahs=b"", lun=1, itt=7, digests=0, specific=b"\0\0"):
    header = bytearray(struct.pack(">BB2sBBH", op, flags, specific, len(ahs) // 4, len(data) >> 16, len(data) & 0xFFFF)
                       + struct.pack(">HHII", 0, lun << 8, 0, itt) + bytes(28))
    for at, form, value in fields:
        struct.pack_into(">" + form, header, at, value)
    return (bytes(header) + ahs + bytes(4 * (digests & 1)) + data + bytes(-len(data) % 4)
            + bytes(4 * (digests >> 1 & 1) * bool(data)))


def numbers(stat, exp, last):
    return [(24, "I", stat), (28, "I", exp), (32, "I", last)]


NO_TAG = (20, "I", 0xFFFFFFFF)
KEYS = {
    "login": b"InitiatorName=iqn.2016-04.com.open-iscsi:0123456789ab\0InitiatorAlias=host\0TargetName=iqn.2026-11.net.plateway:disk0\0"
             b"SessionType=Normal\0HeaderDigest=CRC32C,None\0DataDigest=None\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0IFMarker=No\0"
             b"OFMarker=No\0ErrorRecoveryLevel=0\0InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=16776192\0FirstBurstLength=262144\0"
             b"MaxOutstandingR2T=1\0MaxConnections=1\0DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0MaxRecvDataSegmentLength=262144\0",
    "chap": b"AuthMethod=CHAP\0CHAP_A=7,5\0CHAP_I=0x2a\0CHAP_C=0x00112233445566778899aabbccddeeff\0CHAP_N=name\0"
            b"CHAP_R=0bAAECAwQFBgcICQoLDA0ODw==\0",
    "targets": b"TargetName=iqn.2026-11.net.plateway:disk0\0TargetAddress=[fe80::1]:3260,1\0TargetAddress=192.0.2.1:3260,1\0",
    "names": b"TargetName=eui.02004567A425678D\0TargetName=naa.62004567ba64678d0123456789abcdef\0TargetName=IQN.2001-04.com.example:X\0",
    "ranges": b"X-net.example.range=0x10~8192\0X#older=1~2~3\0IFMarkInt=2048~8192\0TaskReporting=RFC3720,FastAbort\0",
    "empty": b"SendTargets=\0\0\0SendTargets=All\0",
    "cut-off": b"MaxConnections=1\0MaxBurst",
}
CDB = bytes([0x2A, 0, 0, 0, 0, 8, 0, 0, 1, 0]).ljust(16, b"\0")
COMMAND = [(20, "I", 512), (24, "I", 5), (28, "I", 9), (32, "16s", CDB)]
ISCSI = {
    "login": b"\0" + bhs(0x43, 0x87, KEYS["login"], [(8, "Q", 0x80123456 << 32 | 7 << 16), (20, "H", 1), (24, "I", 1)])
             + bhs(0x23, 0x87, b"TargetPortalGroupTag=1\0", [(14, "H", 1)] + numbers(1, 1, 32)),
    "login-refused": b"\0" + bhs(0x23, 0x04, fields=numbers(1, 1, 1) + [(36, "H", 0x0201)]),
    "write": b"\3" + bhs(0x01, 0xA1, bytes(512), COMMAND, digests=3)
             + bhs(0x31, 0x80, fields=[(20, "I", 3)] + numbers(9, 6, 37) + [(40, "I", 512), (44, "I", 512)], digests=3)
             + bhs(0x05, 0x80, bytes(511), [(20, "I", 3), (28, "I", 9), (40, "I", 512)], digests=3)
             + bhs(0x21, 0x82, fields=numbers(9, 6, 37) + [(36, "I", 1), (44, "I", 1)], digests=3),
    "read": b"\0" + bhs(0x01, 0xC1, fields=COMMAND) + bhs(0x25, 0x00, bytes(512), [NO_TAG] + numbers(0, 6, 37))
            + bhs(0x25, 0x83, bytes(3), [NO_TAG] + numbers(9, 6, 37) + [(36, "I", 1), (40, "I", 512), (44, "I", 5)]),
    "long-cdb": b"\1" + bhs(0x01, 0xE1, fields=COMMAND, digests=1,
                            ahs=struct.pack(">HBB16s", 17, 1, 0, bytes(16)) + struct.pack(">HBBI", 5, 2, 0, 512)),
    "sense": b"\0" + bhs(0x21, 0x80, struct.pack(">H18s", 18, b"\x70\0\5"), numbers(9, 6, 37), specific=b"\0\2"),
    "task-management": b"\0" + bhs(0x42, 0x81, fields=[(20, "I", 6), (24, "I", 6), (28, "I", 9), (32, "I", 5)])
                       + bhs(0x22, 0x80, fields=numbers(10, 6, 37), specific=b"\1\0"),
    "text": b"\0" + bhs(0x04, 0x80, b"SendTargets=All\0", [NO_TAG]) + bhs(0x24, 0x40, KEYS["targets"], [(20, "I", 8)] + numbers(1, 2, 3)),
    "nop": b"\0" + bhs(0x40, 0x80, b"ping", [NO_TAG]) + bhs(0x20, 0x80, b"ping", [NO_TAG] + numbers(3, 4, 5))
           + bhs(0x20, 0x80, fields=[(20, "I", 1)] + numbers(3, 4, 5), itt=0xFFFFFFFF),
    "logout": b"\0" + bhs(0x46, 0x81, fields=[(20, "H", 1)]) + bhs(0x26, 0x80, fields=numbers(1, 2, 3) + [(40, "I", 0x20014)]),
    "snack": b"\0" + bhs(0x10, 0x82, fields=[(20, "I", 3), (40, "I", 1), (44, "I", 2)], itt=0xFFFFFFFF),
    "async": b"\0" + bhs(0x32, 0x80, fields=numbers(1, 2, 3) + [(36, "I", 0x01000000), (42, "H", 30)], itt=0xFFFFFFFF),
    "reject": b"\0" + bhs(0x3F, 0x80, bhs(0x07, 0x80), numbers(1, 2, 3), itt=0xFFFFFFFF, specific=b"\5\0"),
    "vendor": b"\0" + bhs(0x1D, 0x80, bytes(5), ahs=bytes(8)),
}

# SCSI: descriptor blocks with a LUN or sense data behind them, and parameter data.
def cdb16(*bytes_):
    return bytes(bytes_).ljust(16, b"\0")


def vpd(code, body):
    return struct.pack(">BBH", 0, code, len(body)) + body


READ_10 = cdb16(0x28, 0x18, 0, 0, 0, 8, 0, 0, 1)
SENSE = bytes([0xF0, 0, 5, 0, 0, 0, 1, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCF, 0, 1])
ISCSI_PORT = struct.pack(">BBH20s", 0x45, 0, 20, b"iqn.x,i,0x800000")
NAA = bytes([1, 3, 0, 8, 0x31, 2, 3, 4, 5, 6, 7, 8])
NAME = bytes([0x53, 0x98, 0, 12]) + b"iqn.x,t,0x1\0"
SCSI_CDBS = {
    "test-unit-ready": cdb16(0x00) + bytes(8),
    "read-6": cdb16(0x08, 0x1F, 1, 2, 0) + bytes([0, 5, 0, 0, 0, 0, 0, 0]),
    "read-10": READ_10 + SENSE,
    "write-16": cdb16(0x8A, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8) + bytes([0x41, 1, 0, 0, 0, 0, 0, 0]),
    "write-same-16": cdb16(0x93, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1) + bytes([0xC1, 1, 0, 0, 0, 0, 0, 0]),
    "compare-and-write": cdb16(0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1)
                         + bytes([0x72, 0x0E, 0x1D, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0]),
    "read-capacity-16": cdb16(0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32),
    "report-opcodes": cdb16(0xA3, 0x0C, 0x82, 0x9E, 0, 0x10, 0, 0, 0, 100),
    "reserve-out": cdb16(0x5F, 1, 5, 0, 0, 0, 0, 0, 24),
    "mode-sense": cdb16(0x1A, 8, 0x3F, 0, 255),
    "inquiry": cdb16(0x12, 1, 0xB0, 0, 64),
    "sense-deferred": bytes([0x71, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0C, 0]),
}
SCSI_PARAMETERS = {
    "unmap": struct.pack(">HH4xQI4x", 22, 16, 8, 16),
    "lba-status": struct.pack(">I4xQIB3x", 20, 8, 16, 1),
    "luns": struct.pack(">I4xHHIHHI", 16, 0, 0, 0, 0x412C, 0, 0),
    "all-opcodes": struct.pack(">I", 28) + bytes([0x28, 0, 0, 0, 0, 0, 0, 10, 0x9E, 0, 0, 0x10, 0, 3, 0, 16])
                   + struct.pack(">HBBII", 10, 0, 0, 0, 60),
    "one-opcode": bytes([0, 0x83, 0, 10, 0x28, 0x18, 255, 255, 255, 255, 0, 255, 255, 0]) + struct.pack(">HBBII", 10, 0, 0, 1, 2),
    "port-groups": struct.pack(">IBBHBBBBHHHH", 16, 0x80, 0x0F, 1, 0, 2, 0, 2, 0, 1, 0, 2),
    "port-groups-extended": struct.pack(">IBBHBBHBBBBHH", 16, 0x10, 30, 0, 0, 0x0F, 1, 0, 0, 0, 1, 0, 1),
    "set-port-groups": struct.pack(">4xBBHBBH", 2, 0, 1, 0, 0, 2),
    "reserve-out": struct.pack(">QQ4xB3x", 1, 2, 1),
    "reserve-out-also": struct.pack(">QQ4xB3xI", 1, 2, 0x0D, 24) + ISCSI_PORT,
    "register-and-move": struct.pack(">QQBBHI", 1, 2, 0, 2, 1, 24) + ISCSI_PORT,
    "full-status": struct.pack(">IIQ4xBB4xHI", 1, 48, 5, 1, 1, 1, 24) + ISCSI_PORT,
    "keys": struct.pack(">IIQQ", 7, 16, 1, 2),
    "transport-id": ISCSI_PORT,
    "transport-id-sas": bytes([6]) + bytes(23),
    "copy": struct.pack(">BBH4xII", 5, 0x11, 64, 28, 0)
            + bytes([0xE4, 0, 0, 0, 1, 3, 0, 8, 0x31, 2, 3, 4, 5, 6, 7, 8]).ljust(28, b"\0") + struct.pack(">I", 512)
            + bytes([0xE2]).ljust(32, b"\0") + struct.pack(">BBHHH2xHQQ", 2, 2, 24, 0, 1, 8, 0, 64),
    "copy-limits": struct.pack(">IB3xHHIIII6xHBB5xB", 42, 1, 2, 1, 4096, 1 << 20, 0, 0, 4, 3, 9, 2) + bytes([0x02, 0xE4]),
    "mode-6": bytes([35, 0, 0x10, 8, 0, 0x20, 0, 0, 0, 0, 2, 0, 8, 0x12, 4]).ljust(32, b"\0") + bytes([0x0A, 2, 4, 0]),
    "mode-10": struct.pack(">HBBBxHQ4xI", 34, 0, 0x90, 1, 16, 1 << 33, 512) + bytes([0x0A, 0x0A, 4, 0x10, 8]).ljust(12, b"\0"),
    "inquiry": bytes([0, 0, 6, 0x12, 91, 0, 0, 2]) + b"PLATEWAYVOLUME          0.1 ",
    "capacity": struct.pack(">QIBBH", (1 << 33) - 1, 512, 0, 3, 0xC000),
    "names": vpd(0x83, NAA + NAME),
    "block-limits": vpd(0xB0, struct.pack(">BBHIIIIIIIQ", 1, 8, 8, 2048, 0, 0, 0xFFFFFFFF, 256, 8, 1 << 31, 65536)),
}

for target, seeds in {"scsi_cdb": SCSI_CDBS, "scsi_parameters": SCSI_PARAMETERS, "iscsi_pdu": ISCSI, "iscsi_keys": KEYS, "frame": AOE, "mpls": MPLS, "bfd": BFD, "tunnel": TUNNELS, "capture": CAPTURES, "pdu": PDUS, "command": COMMANDS, "connect": CONNECT, "identify": IDENTIFY, "log": LOGS}.items():
    for name, data in seeds.items():
        seed(target, name, data)


# The plays: lists of choices, as the targets named *_play read them. Zeros at the end are the plainest choices.
ROUND = 0x1C  # everything that goes on by itself, once
TARGET = {
    # An admin queue, its controller enabled; an I/O queue on link 1; a read, a write in its capsule, a write that is asked for.
    "session": bytes([0, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 0, 1, 0x21, 3, ROUND, 0x21, 0, ROUND,
                      0x21, 0, 0, 3, 0, 0, 0x21, 0x23, 0, 3, 0, 0, 0x21, 3, 0, 10, 0, 0, ROUND, 0x29, ROUND]),
    "fused-flow-control-off": bytes([1, 0, 0, 1, 0, ROUND, 1, 1, ROUND, 1, ROUND, 0, 1, 0x21, 0, ROUND, 0x21, 1, ROUND,
                                     0x21, 11, 0, 0, 8, 0, ROUND, 0x21, 7, 0, 0, 0, 0, ROUND]),
    "admin": bytes([0, 0, 0, 1, 0, ROUND, 1, 4, ROUND, 1, ROUND] + [b for k in range(24) for b in
                   (1, k, k, 0, ROUND)] + [1, 7, 0, 0, 27, 2, ROUND, 1, 11, 2, 0, ROUND]),
    "tampered": bytes([0, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 1, 0, 1, 0, 25, 1, 4, 3, ROUND]),
    "lost": bytes([2, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 0, 1, 0x21, 0, ROUND, 0x21, 0, ROUND,
                   0x21, 3, 0, 11, 0, 0, 0x2C, 200, 0x29, 0x2C, 255, 0x36, 0x37]),
}
SHARD = {
    "session": bytes([1, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 0, 0x81, 0x21, 3, ROUND, 0x21, 0, ROUND, ROUND,
                      0x21, 0, 0, 3, 0, 0, 0x21, 0x23, 3, 3, 0, 0, 0x21, 11, 0, 0, 0, 0, ROUND, 0x28, ROUND]),
    "removed-and-added": bytes([1, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 0, 0x81, 0x21, 3, ROUND, 0x21, 0, ROUND,
                                ROUND, 0x21, 3, 0, 3, 0, 0, 24, 0, ROUND, 24, 2, ROUND, 0x21, 0, 0, 3, 0, 0, ROUND]),
    "early": bytes([9, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 22, 19, 20, 26, 3, ROUND]),
    "resized": bytes([0, 0, 0, 1, 0, ROUND, 1, 0, ROUND, 1, ROUND, 24, 0x83, 24, 0x84, ROUND, 24, 5, ROUND, 24, 6, 24, 7]),
}
VOLUMES = {
    "single": bytes([0, 3, 0, 0, 0, 0, 0, 14, 0, 0, 14, 0, 0, 9, 0, 0, 29]),
    "concat-swap": bytes([0x11, 3, 5, 1, 0x1D, 12, 0, 0, 0x2C, 0, 0, 0x23, 1, 0, 21, 0, 14, 0, 7, 0x1D, 9, 0, 0]),
    "stripe-failed-flush": bytes([0x22, 3, 5, 9, 0x29, 0, 0, 14, 0, 0, 14, 0, 7, 21, 0, 21, 0, 0x23, 0, 0, 27, 0, 0x1D]),
    "held-and-resized": bytes([0x12, 12, 0, 0, 3, 5, 1, 0x39, 1, 0x1C, 0x3C, 0x5C, 21, 0, 0x1D, 0x1C]),
}
INITIATOR = {
    "session": bytes([6] + [b for k in range(8) for b in (k, 0, 3, k, 0)] + [0x1F, 0, 0x1F, 0]),
    "large": bytes([0x0E, 0, 0, 11, 0, 0, 3, 0, 11, 0, 0, 0x1F, 0, 9, 0, 0, 2, 0x1F, 0]),
    "broken": bytes([0, 2, 0, 11, 0, 0, 0x1F, 0, 17, 0, 0, 0x15, 0, 5, 0x1F, 0]),
    "bring-up-tampered": bytes([0x40, 8, 0] + [0x1F, 0] * 4 + [0x17, 0, 0, 2, 1, 0x1F, 0]),
    "invented": bytes([0, 0, 0, 3, 0, 0, 25, 0, 0, 0, 0, 0, 0, 0, 25, 0, 1, 0, 0, 0, 0, 9, 9, 0]),
}
DISCOVERY = {
    "plain": bytes([3]),
    "many": bytes([0xF0] + [0] * 30),
    "changing": bytes([0x50] + [0, 0, 0, 0x15, 0, 0, 0x35] * 4),
    "tampered": bytes([0, 0, 0, 0, 0, 0, 12, 0, 2, 1]),
    "lost": bytes([0, 0, 0, 0, 18]),
}
ISCSI_DISCOVERY = {
    "plain": bytes([0]),
    "digests-many": bytes([0xF3] + [0] * 30),
    "chap": bytes([4] + [0] * 12),
    "chap-both-ways": bytes([0x0C] + [0] * 12),
    "changing": bytes([0x50] + [0, 0, 0, 0x15, 0, 0, 0x35] * 4),
    "tampered": bytes([4, 0, 0, 0, 0, 0, 12, 0, 2, 1]),
    "lost": bytes([0, 0, 0, 0, 18]),
    # An answer to the login, and texts to the question, that nobody sent.
    "login-invented": bytes([4, 0, 0, 16, 6, 0, 0, 0, 0, 0, 0, 0x40, 0, 4, 0, 0, 0]),
    "text-invented": bytes([0] + [0] * 8 + [16, 6, 2, 0, 0, 0, 0, 0, 0x61, 12, 13, 14, 0, 0, 0]),
}
AOE_TARGET = {
    # A write, its copy, a read of it; the volumes answer, the batches come back.
    "session": bytes([0, 0, 0, 0, 0, 1, 0, 1, 2, 5, 3, 5, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 5, 7, 0, 0, 7, 0, 0, 15, 10, 0, 5, 0]),
    "volatile": bytes([0] + [b for k in range(6) for b in (0, 0, 0, 1, k, 0, 1, 1, 2 * k, k)] + [7, 0, 0, 7, 0, 0, 15] * 6),
    "overlaps": bytes([0] + [b for k in range(8) for b in (0, 0, 0, 0, k, 0, 1, 4, k, k)] + [7, 0, 0, 15] * 8 + [11, 5]),
    "changes": bytes([0, 0, 0, 0, 0, 1, 4, 0x0D, 0, 0, 0, 0, 2, 5, 0x05, 0, 0, 1, 0, 3, 6, 0x05, 12, 0, 15, 0, 0, 1, 0, 4, 0, 0, 2, 3, 15]),
    "wild": bytes([0, 0, 0, 0, 0, 1, 4, 0xC0, 15, 11, 1, 15, 14, 1, 0, 14, 1, 1, 13, 0, 1, 13, 0, 0, 15]),
    "tampered": bytes([1] + [b for k in range(10) for b in (6, 0, 0, 0, k, k & 7, k, 2, 40, 0, 0, 1, 14 + k, 0x18, 0, 15)]),
}
AOE_INITIATOR = {
    "session": bytes([7, 0, 14, 14] + [b for k in range(8) for b in (0, k, k, k & 3, 15, 14)]),
    "loss": bytes([7, 0, 14, 14, 0, 2, 1, 4, 15, 7, 1, 0, 0, 12, 3, 14, 0, 2, 1, 4, 14, 12, 4, 14]),
    "repeats": bytes([7, 0, 14, 14, 0, 3, 1, 1, 7, 1, 0, 1, 14, 0, 2, 1, 0, 14, 7, 0, 0, 1, 14]),
    "links": bytes([15, 0, 14, 14, 0, 2, 0, 7, 13, 0, 1, 14, 12, 4, 14, 13, 0, 0, 14, 13, 1, 1, 12, 5, 14]),
    "deadline": bytes([3, 0, 14, 14, 0, 2, 1, 1, 0, 0, 9, 1, 12, 6, 15, 12, 5, 15, 14]),
    "tampered": bytes([7, 0, 3, 0, 5, 0, 7, 0, 0, 2, 27, 0x41, 14, 14, 0, 0, 1, 1, 7, 0, 0, 2, 14, 0x10, 14]),
}
LABELS = {
    "assembled": bytes([3, 0] + [2, 0, 0, 0] * 4),
    "blank": bytes([3, 0, 0, 0, 0, 0]),
    "swapped": bytes([1, 8, 0x42, 8, 0, 0, 2, 8, 0, 0]),
    "forming": bytes([1, 8, 0x22, 8, 0, 0, 0, 0]),
    "damaged": bytes([0, 0, 2, 0, 0x81, 20, 1, 0x81, 20, 1]),
}
SCSI_PLAY = {
    # Kinds of unit, then commands: opcode, any bytes or few, where and what, and the LUN.
    "reads": bytes([0]) + b"".join(bytes([0, op, 0, 2, at, 1, 0, 8, 0]) for op, at in [(0x28, 7), (0x88, 12), (0xA8, 8), (0x08, 3)]),
    "changes": bytes([0]) + b"".join(bytes([0, op, 0, 2, 0, 8, at, 1, 0]) for op, at in
                                     [(0x2A, 7), (0x89, 12), (0x8B, 12), (0x2E, 7), (0x41, 7), (0x93, 12)]) + bytes(600),
    "protected": bytes([8]) + b"".join(bytes([0, op, 0, 1, 7, 1, 0]) for op in (0x2A, 0x41, 0x42, 0x28)),
    "says": bytes([0]) + b"".join(bytes([0, op, 0, 2, at, 255, 0, a1, 0]) for op, at, a1 in
                                  [(0x12, 3, 1), (0x1A, 3, 0x3F), (0xA0, 8, 0), (0x9E, 12, 0x10), (0xA3, 8, 12), (0x25, 0, 0), (0x03, 3, 0)]),
    "lists": bytes([0, 0, 0x42, 0, 1, 7, 24, 0]) + struct.pack(">HH4xQI4x", 22, 16, 8, 16) + bytes([0, 0, 0x15, 0, 2, 0, 0x10, 3, 16, 0])
             + bytes([0, 0, 0, 0, 0x0A, 0x0A, 4, 0x10, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
    "attentions": bytes([0, 5, 0, 0, 5, 1, 2, 0, 0x03, 0, 0, 1, 0, 0x00, 0, 0, 1, 6, 0, 7, 3, 4, 5, 2]),
}
ISCSI_TARGET = {
    # A login with all data unasked; a write with its data, one that is asked for, a read; then what says no blocks.
    "session": bytes([0, 0, 0, 1, 0, 2, ROUND, 1, 4, 0, 3, 0, 3, 0, ROUND, 1, 4, 0, 9, 2, 3, 0, ROUND, 9, 0, ROUND,
                      1, 0, 0, 3, 0, 3, 0, ROUND, 1, 0xF0, 9, 1, 0xD1, 1, 15, 0, 0, 0, 0, 0, 96, ROUND]),
    "unasked": bytes([0, 0, 4, 1, 3, 0, ROUND, 1, 4, 0, 8, 6, 0, 0, 10, 0, 10, 0, ROUND, 1, 8, 0, 4, 5, 9, 0, 1, 0, ROUND]),
    "steps": bytes([1, 0, 0, 1, 0, 2, ROUND] + [b for k in (8, 9, 10, 12, 13, 14, 11) for b in (1, k, 0, 2, 0x30, k, 0, ROUND)]),
    "again": bytes([0, 0, 1, 1, 0, 2, ROUND, 1, 4, 0, 5, 0, 0, 0, 12, 255, 0, 1, 0x21, 0, 2, 14, 255, 255, 21, 3, ROUND]),
    "aborts": bytes([0, 0, 0, 1, 0, 2, ROUND, 1, 4, 0, 9, 2, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0xE0, 1, 2, 0xE0, 0, 9, 1, ROUND,
                     1, 0xE2, 0, 1, 0xE3, 0, 0, ROUND, 1, 0xE4, ROUND]),
    "discovery": bytes([0, 0, 0, 1, 0, 0x70, ROUND, 1, 0xD0, 1, 0xD2, ROUND, 1, 0xE5, 1, 1, 0xE4, ROUND]),
    "changes": bytes([0, 0, 0, 1, 0, 2, ROUND] + [b for k in range(7) for b in (1, 0, 0, 0, 0, k, 0, 27, k, 2, 4, 0, 3, 0, k, 0, ROUND)]),
    "tampered": bytes([0, 0, 0, 1, 0, 2, ROUND, 1, 4, 0, 3, 0, 3, 0, 25, 1, 4, 3, ROUND]),
}
# Labels by their place in the target's list: 0 is switched, 1 popped, 2 a pseudowire's. Core ports 0 to 2, circuits 3 to 5.
MPLS_ROUTER = {
    # By port 0 in its tunnel: in order, again, ahead, without a number, late. Then frames of its circuit, and of another.
    "delivered": b"".join(bytes([0, 0, 1, 1, 2]) + struct.pack("<H", number) for number in (1, 1, 9, 0, 40000)),
    "entered": bytes([6, 3, 0, 0, 0, 0, 0, 0]) * 3 + bytes([6, 4, 0, 0, 0, 0, 0, 0]),
    "switched": b"".join(bytes([0, port, 0x20, 0, ttl, 0, 0]) for port, ttl in ((0, 2), (1, 1), (2, 0), (3, 3), (6, 3))),
    "deep": bytes([0, 0, 0x80] + [1] * 20 + [2, 1, 0]) + bytes([0, 0, 0x41, 1, 2, 1, 0]),
    "special": b"".join(bytes([9, 0, 0, 0, 0, 1, place, 2, 1, 0]) for place in range(7, 12)),
    # The first pseudowire is removed, the second gets its label a minute later.
    "label-handed-on": bytes([13, 0, 2, 0, 0, 1, 1, 2, 1, 0, 13, 1, 0, 0, 0, 1, 1, 2, 3, 0, 0, 15, 3, 13, 1, 0, 0, 0, 1, 1, 2, 3, 0, 0,
                              0, 0, 1, 1, 2, 1, 0]),
    "forged": bytes([6, 3, 0, 1, 1, 1, 2, 1, 0, 0, 3, 1, 1, 2, 1, 0, 6, 3, 0, 2, 0, 0, 0, 0, 6, 3, 2 | 1 << 2, 0, 0, 0, 0, 0]),
}
# A packet: by which carrier, state and flags, for whose session (0: nobody's), from whom, multiplier, both intervals.
HEARD_DOWN, HEARD_INIT, HEARD_UP = (bytes([0, 0, 1, 0]) + bytes(4), bytes([0, 0, 2, 1]) + bytes(4), bytes([0, 0, 3, 1]) + bytes(4))
BFD_UP = HEARD_DOWN + HEARD_INIT
BFD_PLAY = {
    "up": BFD_UP + bytes([6, 2]) + (HEARD_UP + bytes([6, 3])) * 4,
    "silent": BFD_UP + bytes([6, 5, 6, 5, 6, 6]),
    "asked-and-answered": BFD_UP + bytes([0, 0, 3 | 4, 1, 0, 0, 0, 0, 6, 2, 0, 0, 3 | 8, 1, 0, 0, 0, 0, 6, 3]) + (HEARD_UP + bytes([6, 3])) * 12
                          + bytes([12, 0, 0, 0, 3, 1, 6, 3, 0, 0, 3 | 8, 1, 0, 0, 0, 0, 6, 4]),
    "began-anew": BFD_UP + bytes([6, 2, 0, 0, 1, 0, 1, 0, 0, 0, 6, 2, 0, 0, 2, 1, 1, 0, 0, 0, 6, 2]),
    "administratively-down": BFD_UP + bytes([14, 0, 0, 6, 5]) + HEARD_UP + bytes([15, 0]) + BFD_UP + bytes([0, 0, 0, 1, 0, 0, 0, 0, 6, 5]),
    "late": BFD_UP + bytes([9, 4, 9, 3, 9, 3, 9, 3, 9, 3]) + HEARD_DOWN + bytes([9, 7]),
    "demand": BFD_UP + bytes([0, 0, 3 | 16, 1, 0, 3, 0, 0, 6, 5, 12, 0, 0, 2, 0, 0, 6, 4, 0, 0, 3 | 16 | 8, 1, 0, 3, 0, 0, 6, 5]),
    "passive-and-bound": bytes([6, 5, 0, 1, 1, 0, 0, 0, 0, 0, 6, 5, 0, 0, 1, 3, 0, 0, 0, 0, 0, 2, 1, 3, 0, 0, 0, 0, 0, 2, 2, 3, 0, 0, 0, 0, 6, 2]),
    "unwanted": BFD_UP + bytes([0, 0, 3, 1, 0, 3, 0, 6, 6, 5, 0, 0, 3 | 4, 1, 0, 3, 0, 6, 6, 5]) + HEARD_UP,
    "added-and-removed": bytes([10, 3, 1, 1, 1, 1, 11, 0, 10, 0, 2, 2, 2, 2, 10, 0, 0, 4, 0, 0, 10, 0, 0, 0, 6, 0, 6, 5]),
    "broken": b"".join(bytes([0, 0, 0x81, 0, 0, 0, 0, 0, at, 0xff, 24]) for at in range(0, 13, 4)) + bytes([0, 0, 33, 0, 0, 0, 0, 0, 0, 3, 65, 0, 0, 0, 0, 0]),
}
for target, plays in [("bfd_play", BFD_PLAY), ("mpls_router_play", MPLS_ROUTER), ("iscsi_target_play", ISCSI_TARGET), ("scsi_play", SCSI_PLAY), ("target_play", TARGET), ("shard_play", SHARD), ("volumes_play", VOLUMES),
                      ("aoe_target_play", AOE_TARGET), ("aoe_initiator_play", AOE_INITIATOR), ("initiator_play", INITIATOR), ("discovery_play", DISCOVERY),
                      ("iscsi_discovery_play", ISCSI_DISCOVERY), ("label", LABELS)]:
    for name, play in plays.items():
        seed(target, name, play)

STRIPE = """[server]
shards = [0]
memory = "256MiB"
[[disk]]
name = "d0"
uri = "file:/srv/a.img?create=8MiB"
[[disk]]
name = "d1"
uri = "delay:5,null:512MiB"
[[disk]]
name = "r"
uri = "nvme+tcp://10.0.0.2/nqn.2026-11.net.plateway:v7/1?queues=2"
[[volume]]
name = "v0"
layout = "stripe"
disks = ["d0", "d1"]
chunk = "64KiB"
block_size = 4096
[[volume]]
name = "v1"
disks = ["r"]
size = "1MiB"
uuid = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
[[listener]]
nvme = "[::]:4420"
poll_us = 50
[[export]]
volume = "v0"
nvme = { subsystem = "nqn.2026-11.net.plateway:v", nsid = 1, hosts = "any" }
[[export]]
volume = "v1"
nvme = { subsystem = "nqn.2026-11.net.plateway:v", nsid = 2, hosts = "any" }
"""
SINGLE = """[[disk]]
name = "d0"
uri = "null:1GiB"
[[volume]]
name = "v0"
disks = ["d0"]
[[listener]]
nvme = "127.0.0.1:4420"
[[export]]
volume = "v0"
nvme = { subsystem = "nqn.2026-11.net.plateway:v", nsid = 1, hosts = ["nqn.2026-11.net.plateway:me"] }
"""
MISTAKES = """[server]
shards = [0, 0, 9]
memmory = "1MiB"
[[disk]]
name = "d0"
uri = "ramm:1G"
[[disk]]
name = "d0"
[[volume]]
name = "v0"
layout = "strip"
disks = ["d0", "d9"]
uuid = "x"
[[listener]]
nvme = "127.0.0.1"
[[export]]
volume = "v9"
nvme = { subsystem = "nqn.x", nsid = 0, hosts = ["any"] }
[disk]
"""
CONFIGURATIONS = {
    "stripe": STRIPE,
    "single": SINGLE,
    "mistakes": MISTAKES,
    "quoted": SINGLE.replace('"null:1GiB"', "'file:/srv/a \"b\" \\ ü.img?create=1MB'").replace("d0", "d.0"),
    "grown": SINGLE + "\0" + SINGLE.replace("1GiB", "2GiB").replace("4420", "4421"),
    "replaced": STRIPE + "\0" + STRIPE.replace("/srv/a", "/srv/b").replace('"any"', "[]").replace("poll_us = 50", ""),
    "all-other": STRIPE + "\0" + SINGLE,
    "swapped": STRIPE + "\0" + STRIPE.replace("nsid = 1", "nsid = 3").replace("nsid = 2", "nsid = 1").replace("nsid = 3", "nsid = 2"),
    "no-toml": "[[disk]\nname = ",
}
WORDS = [
    "ram:512MiB", "null:1TiB", "file:/srv/a%3F%25.img?create=8MiB", "file:///srv/a", "file:////x", "/dev/disk/by-id/a,b",
    "delay:5,faulty:0xff,ram:1MB", "volume:v0", "nvme+tcp://[fe80::1%eth0]:4421/nqn.2026-11.net.plateway:a%2Fb/1",
    "nvme+tcp://nas/nqn.2026-11.net.plateway:v0/4294967294?queues=4&depth=64&hdgst=0&ddgst=0&keep_alive_ms=100"
    "&deadline_s=1&quiesce_ms=0&host_nqn=nqn.2026-11.net.plateway:me%26you", "nvme+tcp://127.0.0.1:8009/", "4k", "1536MiB", "10 kB",
    "18446744073709551615", "[::]:4420", "localhost:0", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6",
    "nqn.2014-08.org.nvmexpress.discovery", "nqn.2026-11.net.plateway:v0", "256M", "ramm:1", "iscsi://x", "delay:1,delay:1,x",
    "model:hdd-10k?channels=4&service=uniform&seed=7,delay:5,ram:1MiB", "model:./a%2Cb.toml?rpm=0,null:1MiB",
    "channels = 4\nservice = \"exponential\"\nservice_us = 500\nseek_us = -1\nrpm = nan\n",
]
PLAN = """name = "roads"
difference = "10%"
time = "2h"
[[system]]
name = "a"
serve = { protocol = "nvme", disk = "ram:512MiB", poll = "50us", digests = "both" }
[[system]]
name = "b"
target = { start = ["tgtd", "-f"], stop = ["true"], uri = "iscsi://h/x" }
backing = "ram"
durable = false
[[path]]
name = "lan"
mtu = 9000
rate = "10Gbit"
[load]
block-size = "4k"
[[compare]]
systems = ["b"]
reference = "a"
depth = [1, 32]
of = ["iops", "p99"]
[[compare]]
systems = ["b"]
reference = "a"
of = "cpu-per-op"
exploratory = true
"""
PICTURE = """name = "surface"
window = "2s"
[[system]]
name = "a"
disk = "delay:200,null:1GiB"
[[picture]]
name = "p"
systems = ["a"]
pattern = ["randrw", "rw"]
read-share = ["70%", 0.5]
rate = [500, "10k"]
arrivals = ["fixed", "poisson"]
size = "64m"
"""
PLANS = {
    "compare": PLAN,
    "picture": PICTURE,
    "both": PLAN + PICTURE.split("\n", 2)[2],
    "unfair": PLAN.replace('backing = "ram"', 'backing = "file"'),
    "mistakes": PLAN.replace("depth = [1, 32]", 'depth = [1, 1]\nrate = 0\nread-share = "0.5%"').replace('"lan"', '"l n"'),
    "no-toml": "[[system]\nname = ",
}


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def netlink(kind, body, flags=0):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body + bytes(-len(body) % 4)


def neighbour(family, state, address, mac=b"\2\0\0\0\0\2"):
    return struct.pack("=BxxxiHBB", family, 7, state, 0, 1) + attribute(1, address) + attribute(4, struct.pack("=I", 1)) + attribute(2, mac)


def discipline(handle, parent, name):
    return struct.pack("=BxxxiIII", 0, 7, handle, parent, 2) + attribute(1, name + b"\0") + attribute(2, bytes(8))


NETLINK = {
    "neighbours": netlink(28, neighbour(2, 2, b"\x0a\0\0\2"), 2) + netlink(28, neighbour(10, 4, b"\xfe\x80" + bytes(13) + b"\2"), 2) + netlink(3, bytes(4), 2),
    "gone": netlink(29, neighbour(2, 32, b"\x0a\0\0\2", b"")) + netlink(16, bytes(16)) + netlink(17, bytes(16)),
    "bridge": netlink(28, neighbour(7, 0x80, b"")),
    "torn": netlink(28, neighbour(2, 1, b"\x0a\0\0\3", b""), 0x12) + netlink(3, bytes(4), 0x12),
    "refused": netlink(2, struct.pack("=i", -1) + bytes(16)),
    "overrun": netlink(4, b""),
    "disciplines": netlink(36, discipline(0x10000, 0xFFFFFFFF, b"mq"), 2) + netlink(36, discipline(0, 0x10001, b"pfifo_fast"), 2) + netlink(36, discipline(0, 0x10002, b"fq_codel"), 2),
    "body": neighbour(2, 2, b"\x0a\0\0\2"),
}
for name, data in NETLINK.items():
    seed("netlink", name, data)
for name, text in PLANS.items():
    seed("plan", name, text.encode())
for name, text in CONFIGURATIONS.items():
    seed("configuration", name, text.encode())
for number, text in enumerate(WORDS):
    seed("words", f"word-{number:02}", text.encode())
