# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs untrusted snippets, each in a new clone, checks each result, and reports the times.

Half of them are well-behaved and must print the same as on any Python. The others loop, fork, allocate, read secrets or
crash; they must be contained, and their results must name the reason. `python3 loop.py --requests 1000`; the same seed
gives the same requests.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence

from support import SECRET, server  # first: it finds the package

import pando

Check = Callable[[pando.Result], bool]


@dataclass(frozen=True)
class Request:
    """A snippet, its limits, and the check of its result."""

    code: str
    check: Check
    limits: Mapping[str, Any]


def says(text: str) -> Check:
    return lambda r: (r.stdout, r.stderr, r.exit_code, r.error, r.reason) == (text, "", 0, None, "exited")


def ends(reason: str, name: str) -> Check:
    return lambda r: r.reason == reason and r.error is not None and r.error.name == name and bool(r.error.value)


def raises(name: str) -> Check:
    return lambda r: (r.reason, r.exit_code) == ("exited", 1) and r.error is not None and r.error.name == name


def request(code: str, check: Check, **limits: Any) -> Request:
    return Request(code, check, {"memory": "64M", "timeout": 60, **limits})


def compute(draw: random.Random) -> Request:
    base, count = draw.randrange(2, 10**6), draw.randrange(1, 2000)
    return request(f"print(sum(pow({base}, n, 9973) for n in range({count})))", says(f"{sum(pow(base, n, 9973) for n in range(count))}\n"))


def words(draw: random.Random) -> Request:
    given = ["".join(draw.choices("abcdeé€", k=draw.randrange(1, 9))) for _ in range(draw.randrange(1, 50))]
    told = json.dumps(sorted(set(given)))
    return request(f"import json; print(json.dumps(sorted(set({given!r}))))", says(told + "\n"))


def files(draw: random.Random) -> Request:
    size = draw.randrange(1, 1 << 20)
    code = f"open('/tmp/f', 'wb').write(b'x' * {size}); import os; print(os.path.getsize('/tmp/f'), os.listdir('/tmp'))"
    return request(code, says(f"{size} ['f']\n"))


def fail(draw: random.Random) -> Request:
    name = draw.choice(["KeyError", "ValueError", "RuntimeError", "StopIteration", "OSError"])
    return request(f"raise {name}('why')", raises(name))


def leave(draw: random.Random) -> Request:
    code = draw.randrange(256)
    return request(f"import sys; sys.exit({code})", lambda r: (r.exit_code, r.error, r.reason) == (code, None, "exited"))


Kind = Callable[[random.Random], Request]
GOOD: List[Kind] = [compute, words, files, fail, leave]


def spin(draw: random.Random) -> Request:
    return request("while True: pass", ends("timed-out", "TimedOut"), timeout=draw.uniform(0.1, 0.5))


def sleep(draw: random.Random) -> Request:
    return request("import time; time.sleep(3600)", ends("timed-out", "TimedOut"), timeout=draw.uniform(0.1, 0.3))


def stubborn(draw: random.Random) -> Request:
    code = "import signal\nfor n in range(1, 32):\n    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"
    return request(code, ends("timed-out", "TimedOut"), timeout=draw.uniform(0.1, 0.3))


def fork_bomb(_: random.Random) -> Request:
    return request("import os\nwhile True: os.fork()", ends("memory-limit", "MemoryLimit"))


def thread_bomb(_: random.Random) -> Request:
    code = "import threading\nheld = threading.Event()\nwhile True: threading.Thread(target=held.wait).start()"
    return request(code, lambda r: ends("memory-limit", "MemoryLimit")(r) or ends("timed-out", "TimedOut")(r), timeout=5)


def hoard(draw: random.Random) -> Request:
    piece = draw.choice([1 << 12, 1 << 16, 1 << 20])
    return request(f"held = []\nwhile True: held.append(bytearray({piece}))", ends("memory-limit", "MemoryLimit"))


def demand(_: random.Random) -> Request:
    return request("x = bytearray(1 << 44)", raises("MemoryError"))


def fill(_: random.Random) -> Request:
    code = "with open('/tmp/x', 'wb') as file:\n    while True: file.write(b'x' * (1 << 20))"
    return request(code, lambda r: ends("memory-limit", "MemoryLimit")(r) or raises("OSError")(r))


def flood(draw: random.Random) -> Request:
    limit = draw.randrange(1, 1 << 20)
    contained = ends("output-limit", "OutputLimit")
    return request("while True: print('x' * 1000)", lambda r: contained(r) and len(r.stdout) == limit, output_limit=limit)


def peek(_: random.Random) -> Request:
    paths = ["/etc/shadow", "/root/.ssh/id_rsa", "/proc/1/environ", "/proc/self/environ", str(server().secret), str(server().socket)]
    code = f"import os\nfor path in {paths}:\n    try: print(open(path).read())\n    except OSError: pass\nprint(dict(os.environ))"
    return request(code, lambda r: (r.exit_code, r.error) == (0, None) and SECRET not in r.stdout and "root:" not in r.stdout)


def call_home(draw: random.Random) -> Request:
    address = draw.choice(["1.1.1.1", "10.77.0.1", "192.168.1.1", "169.254.169.254"])
    return request(f"import socket; socket.create_connection(({address!r}, 80), timeout=5)", raises("OSError"))


def touch(draw: random.Random) -> Request:
    code = f"import ctypes; ctypes.string_at({draw.choice([0, 8, 1 << 46, (1 << 64) - 4096])})"
    return request(code, ends("signalled", "Crashed"))


def abort(_: random.Random) -> Request:
    return request("import os; os.abort()", ends("signalled", "Crashed"))


def recurse(_: random.Random) -> Request:
    contained = [ends("memory-limit", "MemoryLimit"), ends("signalled", "Crashed")]
    code = "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()"
    return request(code, lambda r: any(check(r) for check in contained))


def machine_code(draw: random.Random) -> Request:
    """Random machine code: any result is valid as long as only this clone is affected."""
    code = bytes(draw.randrange(256) for _ in range(64))
    # Starts with: ports, halting, interrupts, descriptor tables, control registers.
    code = draw.choice([b"", b"\xe6\x7e", b"\xf4", b"\xfa", b"\xcd\x80", b"\x0f\x01\xd9", b"\x0f\x20\xd8", b"\x0f\x05"]) + code
    run = f"import ctypes, mmap\ncode = {code!r}\nplace = mmap.mmap(-1, 4096, prot=7)\nplace.write(code)\n"
    run += "ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(place)))()"
    return request(run, lambda r: r.reason in ("exited", "signalled", "crashed", "timed-out", "memory-limit"), timeout=0.5)


def lie(draw: random.Random) -> Request:
    code = draw.randrange(1, 256)
    note = json.dumps({"exit_code": 0, "error": None})
    return request(f"import pando, os; pando.note({note!r}); os._exit({code})", lambda r: (r.exit_code, r.reason) == (code, "exited"))


BAD: List[Kind] = [spin, sleep, stubborn, fork_bomb, thread_bomb, hoard, demand, fill, flood, peek, call_home, touch, abort, recurse, machine_code, lie]


def loop(requests: int, seed: int, client: pando.Client) -> Dict[str, List[float]]:
    """Sends this many requests, every other of a good kind; returns the milliseconds of each, by kind."""
    draw = random.Random(seed)
    took: Dict[str, List[float]] = defaultdict(list)
    for number in range(requests):
        kinds = BAD if number % 2 else GOOD
        # All kinds take turns, independent of the random numbers.
        kind = kinds[number // 2 % len(kinds)]
        asked = kind(draw)
        since = time.perf_counter()
        result = client.run(asked.code, **asked.limits)
        took[kind.__name__].append((time.perf_counter() - since) * 1000)
        if not asked.check(result):
            raise AssertionError(f"request {number} of seed {seed}, {kind.__name__}: {asked.code!r} became {result}")
    left = [cell for cell in client.cells() if cell.outcome is None]
    if left:
        raise AssertionError(f"these were left: {left}")
    return took


def percentile(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def report(took: Mapping[str, Sequence[float]]) -> Dict[str, Dict[str, float]]:
    """The number of requests and their milliseconds, by kind."""
    rows: Dict[str, Sequence[float]] = {kind.__name__: took.get(kind.__name__, ()) for kind in GOOD + BAD}
    rows["good, all"] = [each for kind in GOOD for each in took.get(kind.__name__, ())]
    told: Dict[str, Dict[str, float]] = {}
    for name, values in rows.items():
        if values:
            values = sorted(values)
            told[name] = {
                "requests": len(values),
                "p50_ms": round(percentile(values, 0.5), 1),
                "p99_ms": round(percentile(values, 0.99), 1),
                "max_ms": round(values[-1], 1),
            }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    with pando.Client(server().socket, start=False) as client:
        # Creates the template before the measurement starts.
        client.run("print(1)")
        since = time.monotonic()
        rows = report(loop(options.requests, options.seed, client))
        seconds = time.monotonic() - since
    print(f"{'snippet':<14}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for name, row in rows.items():
        print(f"{name:<14}{row['requests']:>9}{row['p50_ms']:>9}{row['p99_ms']:>9}{row['max_ms']:>9}")
    print(f"{options.requests} requests in {seconds:.1f} s, each with the right result")
    print(json.dumps({"requests": options.requests, "seed": options.seed, "seconds": round(seconds, 1), "snippets": rows}))


if __name__ == "__main__":
    main()
