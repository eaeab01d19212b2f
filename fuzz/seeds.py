#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Generates the seeds of the targets: small examples of input. `seeds.py PANDO` also makes those that need the `pando` program."""

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"


def seed(target, name, data):
    directory = SEEDS / target
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)


def pieces(*parts):
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


# Frames of a peer.
MAC, PEER = bytes([2, 0, 0, 0, 0, 1]), bytes([2, 0, 0, 0, 0, 2])
ADDRESS, PEER_ADDRESS = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
ARP_REPLY = MAC + PEER + b"\x08\x06" + bytes([0, 1, 8, 0, 6, 4, 0, 2]) + PEER + PEER_ADDRESS + MAC + ADDRESS
ARP_REQUEST = MAC + PEER + b"\x08\x06" + bytes([0, 1, 8, 0, 6, 4, 0, 1]) + PEER + PEER_ADDRESS + bytes(6) + ADDRESS


def total(data):
    data += b"\0" * (len(data) % 2)
    words = sum(struct.unpack(f">{len(data) // 2}H", data))
    words = (words & 0xFFFF) + (words >> 16)
    return ~(words + (words >> 16)) & 0xFFFF


def ip(protocol, payload, to=ADDRESS, source=PEER_ADDRESS):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0) + source + to
    header = header[:10] + struct.pack(">H", total(header)) + header[12:]
    return MAC + PEER + b"\x08\x00" + header + payload


def udp(port, payload):
    return ip(17, struct.pack(">HHHH", 5000, port, 8 + len(payload), 0) + payload)


def echo(payload):
    message = struct.pack(">BBHHH", 8, 0, 0, 7, 1) + payload
    return ip(1, message[:2] + struct.pack(">H", total(message)) + message[4:])


def tcp(port, flags, sequence=1000, acknowledged=0, payload=b""):
    header = struct.pack(">HHIIBBHHH", 40000, port, sequence, acknowledged, 0x50, flags, 1000, 0, 0)
    pseudo = PEER_ADDRESS + ADDRESS + struct.pack(">BBH", 0, 6, len(header + payload))
    check = total(pseudo + header + payload)
    return ip(6, header[:16] + struct.pack(">H", check) + header[18:] + payload)


def query(name):
    labels = b"".join(bytes([len(part)]) + part for part in name.split(b"."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


DISCOVER = bytes([1, 1, 6, 0, 0, 0, 0, 99]) + bytes(20) + PEER + bytes(10 + 192) + b"\x63\x82\x53\x63\x35\x01\x01\xff"
FRAMES = {
    "arp": [ARP_REQUEST, ARP_REPLY],
    "echo": [ARP_REPLY, echo(b"are you there?")],
    "udp": [ARP_REPLY, udp(80, b"hello"), udp(81, b"nobody")],
    "names": [ARP_REPLY, udp(53, query(b"example.org"))],
    "dhcp": [ip(17, struct.pack(">HHHH", 68, 67, 8 + len(DISCOVER), 0) + DISCOVER, b"\xff" * 4, bytes(4))],
    "syn": [ARP_REPLY, tcp(80, 2), tcp(53, 2)],
}
for name, frames in FRAMES.items():
    seed("stack", name, pieces(*(bytes([0, 1, 0]) + frame for frame in frames)))
    seed("gateway", name, pieces(*frames))

# A connection: kind, time, user action, then flags, port, offsets of sequence and acknowledgement numbers, window, payload.
SYN, ACK, PSH, FIN, RST = 2, 16, 8, 1, 4


def segment(flags, sequence=0, acknowledged=0, window=1000, payload=b"", wait=1, how=0, port=0):
    return bytes([1, wait, how, flags, port]) + struct.pack("<hh", sequence, acknowledged) + struct.pack(">H", window) + payload


FIRST = bytes([0, 1, 0]) + ARP_REPLY
OPEN = [FIRST, segment(SYN), segment(ACK)]
CONNECTIONS = {
    "open": OPEN,
    "data": OPEN + [segment(ACK | PSH, payload=b"hello"), segment(ACK), segment(ACK | FIN), segment(ACK)],
    "finish": OPEN + [segment(ACK | PSH, payload=b"hello", how=0xF0), segment(ACK | FIN, wait=20), segment(ACK, wait=100)],
    "shrinks": OPEN + [segment(ACK, window=4000), segment(ACK, -1000, -3000, 10, wait=30), segment(ACK, 0, -3000, 0, wait=60), segment(ACK, 0, -2990, 9, wait=60)],
    "loses": OPEN + [segment(ACK, 0, -1460, 8000), segment(ACK, 0, -1460, 8000), segment(ACK, 0, -1460, 8000), segment(ACK, 0, -700, 1, wait=100)],
    "closed": OPEN + [segment(ACK, window=0), segment(ACK, window=0, wait=60), segment(ACK, window=0, wait=200), segment(ACK, window=1, wait=200)],
    "resets": OPEN + [segment(RST), segment(SYN, port=1), segment(ACK, port=1), segment(ACK | FIN, port=1, how=0xFE)],
}
for name, parts in CONNECTIONS.items():
    seed("stack", name, pieces(*parts))

# Archives.
def archive(**options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:
        for name, kind, link in [("a", tarfile.DIRTYPE, ""), ("a/file", tarfile.REGTYPE, ""), ("a/link", tarfile.SYMTYPE, "../a/file"), ("hard", tarfile.LNKTYPE, "a/file"), ("n" * 120, tarfile.REGTYPE, ""), ("fifo", tarfile.FIFOTYPE, "")]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o755
            data = b"content" if kind == tarfile.REGTYPE else b""
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()[:8192]


seed("tar", "pax", archive(format=tarfile.PAX_FORMAT))
seed("tar", "gnu", archive(format=tarfile.GNU_FORMAT))
sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "sparse", "GNU.sparse.realsize": "1000000"}
out = io.BytesIO()
with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
    info = tarfile.TarInfo("sparse")
    info.pax_headers, data = sparse, b"1\n4096\n5\n".ljust(512, b"\0") + b"bytes"
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
seed("tar", "sparse", out.getvalue()[:4096])

# Records that a cell writes back: kind and length (abi/src/channel.rs).
FILE, DATA, CLOSE, DIRECTORY, SYMLINK, REMOVE, SYNC, LOST = range(1, 9)


def record(kind, body=b""):
    return struct.pack("<II", kind, len(body)) + body


def entry(kind, path, rest=b"", size=0, mode=0o644):
    return record(kind, struct.pack("<IIIIqQ", 0, len(path), mode, 7, 1000, size) + path + rest)


WRITTEN = entry(FILE, b"file", size=5) + record(DATA, struct.pack("<Q", 0) + b"bytes") + record(CLOSE) + record(SYNC)
seed("write_back", "file", WRITTEN)
seed("write_back", "tree", entry(DIRECTORY, b"d", mode=0o755) + entry(SYMLINK, b"d/link", b"../..") + entry(REMOVE, b"d/link") + entry(REMOVE, b"d") + record(SYNC))
seed("write_back", "out", entry(REMOVE, b"out/secret") + entry(FILE, b"out/secret", size=1) + record(CLOSE) + entry(FILE, b"../secret") + entry(LOST, b"lost", size=5) + record(SYNC))
seed("write_back", "modes", entry(FILE, b"link", mode=0o6755) + record(CLOSE) + entry(FILE, b"", size=1 << 43) + record(DATA, struct.pack("<Q", 1 << 42) + b"far") + record(CLOSE) + record(SYNC))

# Job reports of a cell: frames of kind, job, detail and length (abi/src/control.rs).
TAKEN, UNREAD, OUTPUT, ENDED = 5, 6, 7, 8


def frame(kind, job, detail=0, body=b""):
    return struct.pack("<IIII", kind, job, detail, len(body)) + body


seed("jobs", "ends", pieces(frame(OUTPUT, 1, 1, b"out"), frame(OUTPUT, 1, 2, b"wrong"), frame(ENDED, 1, 7 << 8), frame(ENDED, 2, 9)))
seed("jobs", "takes", pieces(frame(TAKEN, 1, 10), frame(OUTPUT, 2, 1, b"x" * 4000)[:100], frame(OUTPUT, 2, 1, b"x" * 4000)[100:], frame(TAKEN, 2, 1)))

# Bodies of requests.
BODIES = {
    "run": {"template": "python", "arguments": ["print(6 * 7)"], "memory": "256M", "timeout": 5},
    "cell": {"template": "sh", "environment": {"A": "1"}, "cpus": 0.5, "input": {"base64": "AAEC"}, "allow": ["example.org:443"], "output_limit": 1000},
    "template": {"name": "mine", "arguments": ["sh", "-c", "true"], "train": True, "variants": 2, "volumes": ["/a:/b:ro"]},
    "job": {"arguments": ["ls"], "directory": "/", "environment": {}},
    "text": {"base64": "/w=="},
    "plain": "text",
}
for name, body in BODIES.items():
    seed("http", name, json.dumps(body).encode())
# A number that comes back changed if it is not read exactly.
seed("http", "number", b'{"timeout":-47999999999999999999999999999}')


# Two seeds are in Pando's own formats: an image, and a template's index.
def varint(data, at):
    value, shift = 0, 0
    while shift < 64:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        at, shift = at + 1, shift + 7
    raise ValueError("no number")


def as_varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def pages_at(index, at):
    """The number of pages that the runs at this offset describe, if the rest of an index follows them (store/src/format.rs)."""
    count, at = varint(index, at)
    total = 0
    for _ in range(count):
        pages, at = varint(index, at)
        total += pages
        at += 1
        if index[at - 1] == 1:
            _, at = varint(index, at)
        elif index[at - 1] != 0:
            raise ValueError("no run")
    _, at = varint(index, at)
    chunks, at = varint(index, at)
    for _ in range(chunks):
        _, at = varint(index, at)
        at += 16
    return total if at == len(index) and count and chunks else 0


def without_pages(index):
    """Changes an index so that all its pages are zero and it needs no chunks."""
    for at in range(len(index)):
        try:
            total = pages_at(index, at)
        except (ValueError, IndexError):
            continue
        if total:
            return index[:at] + b"\x01" + as_varint(total) + b"\0" + b"\0" + b"\0"
    raise ValueError("no index")


def own(pando):
    with tempfile.TemporaryDirectory() as home:
        tree = Path(home, "tree")
        (tree / "many").mkdir(parents=True)
        (tree / "file").write_text("content")
        (tree / "link").symlink_to("many/../file")
        for number in range(20):
            (tree / "many" / str(number)).write_text("")
        subprocess.run([pando, "image", "build", tree, "-o", f"{home}/image"], check=True)
        seed("erofs", "image", Path(home, "image").read_bytes())
        data = Path(home, "data")
        words = ["template", "create", "--bare", "seed", "busybox", "sh", "-c", "echo ready > /dev/pando"]
        subprocess.run([pando, *words], check=True, env={**os.environ, "XDG_DATA_HOME": data}, cwd=home)
        whole = Path(data, "pando/templates/seed.template").read_bytes()
        begin, end = struct.unpack("<QQ", whole[24:40])
        seed("template", "bare", struct.pack("<H", 0) + without_pages(whole[begin:end]))


if len(sys.argv) > 1:
    own(os.path.abspath(sys.argv[1]))
