# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random numbers in clones of cells that were frozen while they ran: no two clones draw the same."""

from __future__ import annotations

import json
import os
import unittest
import warnings
from typing import List

from support import Case  # first: it finds the package

import pando

COUNT = 8

USED = """
import os, random, secrets, ssl, tempfile, uuid
random.random(), uuid.uuid1(), ssl.RAND_bytes(4), next(tempfile._get_candidate_names())
try:
    import numpy.random
    numpy.random.random()
except ImportError:
    numpy = None
print("begun", flush=True)
"""
DRAW = """
print(random.random(), random.getrandbits(64), uuid.uuid1(), uuid.uuid4(), secrets.token_hex(), os.urandom(8).hex(),
      ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()), open("/dev/urandom", "rb").read(8).hex(),
      os.getrandom(8).hex(), numpy.random.random() if numpy else random.random())
"""
COMPUTE = "\nfor number in range(3_000_000): random.random()\n"
NODE = """
const crypto = require('crypto')
require('pando').ready()
console.error('begun')
process.stdin.once('data', () => console.log(
  Math.random(), crypto.randomUUID(), crypto.randomBytes(8).toString('hex'), crypto.randomInt(2 ** 40)))
"""


def line(code: str) -> bytes:
    return json.dumps(code).encode() + b"\n"


class Forks(Case):
    def begun(self, template: str, code: str = "") -> pando.Cell:
        """Starts a cell and waits for its first output."""
        cell = self.client.start(template)
        self.addCleanup(cell.remove)
        if code:
            cell.write(line(code))
        next(iter(cell.output()))
        return cell

    def drawn(self, template: str, code: bytes) -> List[str]:
        """Returns the output of clones of a template."""
        said = []
        for _ in range(COUNT):
            with self.client.start(template, stdin=code) as cell:
                cell.write(b"", end=True)
                said.append("".join(piece.text for piece in cell.output() if piece.stream == "stdout"))
        return said

    def differ(self, said: List[str]) -> None:
        """Checks that all their output differs."""
        columns = list(zip(*(each.split() for each in said)))
        self.assertTrue(columns, said)
        for column in columns:
            self.assertEqual(len(set(column)), COUNT, (column, said))

    def test_of_the_standard_template(self) -> None:
        self.differ([self.client.run(USED.replace('print("begun", flush=True)', "") + DRAW).stdout for _ in range(COUNT)])

    def test_of_a_session_that_was_asked_to_freeze(self) -> None:
        made = self.begun("python", USED).freeze("waiting", replace=True)
        self.assertFalse(made.forced)
        self.differ(self.drawn("waiting", line(DRAW)))

    def test_of_code_that_computes(self) -> None:
        for name, force in (("computing", False), ("stopped", True)):
            with self.subTest(name), warnings.catch_warnings(record=True) as caught:
                made = self.begun("python", USED + COMPUTE + DRAW).freeze(name, force=force, replace=True)
                self.assertEqual((made.forced, len(caught)), (force, 0))
                self.differ(self.drawn(name, b""))

    def test_of_a_session_that_was_stopped_as_it_stood(self) -> None:
        self.assertTrue(self.begun("python", USED).freeze("halted", force=True, replace=True).forced)
        self.differ(self.drawn("halted", line(DRAW)))

    def test_of_programs_that_do_not_notice(self) -> None:
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('begun', flush=True)"
        with self.assertWarnsRegex(RuntimeWarning, "random numbers"):
            self.assertTrue(self.begun("python", code).freeze("unaware", replace=True).forced)

    def test_a_child_of_the_session_draws_its_own(self) -> None:
        code = USED + "if os.fork() == 0:\n    open('/tmp/child', 'w').close()\n" + COMPUTE + "    " + DRAW.replace("\n", " ")
        code += "\nwhile not os.path.exists('/tmp/child'): pass\nprint('begun', flush=True)\nos.wait()"
        made = self.begun("python", code.replace("\nfor number", "\n    for number")).freeze("forked", replace=True)
        self.assertFalse(made.forced)

    def test_of_a_session_that_goes_on(self) -> None:
        with pando.Sandbox(client=self.client, memory="256M", timeout=60, environment={"NAME": "kept"}) as s:
            s.run(USED + "\nimport threading, time\nx = [1]\nopen('/tmp/file', 'w').write('y')")
            # A thread that wakes up often leaves pauses.
            s.run("def tick():\n    while True: time.sleep(0.001)\nthreading.Thread(target=tick, daemon=True).start()")
            copies = s.fork(COUNT)
            self.differ([copy.run(DRAW).stdout for copy in copies])
            for number, copy in enumerate(copies):
                self.says(copy.run(f"x.append({number}); print(x, open('/tmp/file').read(), os.environ['NAME'])"), f"[1, {number}] y kept\n")
            self.says(s.run("x.append('own'); print(x)"), "[1, 'own']\n")
            # Copies of copies; the original may have ended.
            s.close()
            (copy,) = copies[3].fork()
            for old in copies:
                old.close()
            with copy:
                self.says(copy.run("print(x)"), "[1, 3]\n")
            with self.assertRaisesRegex(pando.SandboxEnded, "closed"):
                s.fork()
        self.assertEqual(self.running(), [])

    def test_numbers_of_copies_that_are_refused(self) -> None:
        with pando.Sandbox(client=self.client) as s:
            for count in (0, -1, 100_000):
                with self.assertRaisesRegex(pando.BadRequest, "count"):
                    s.fork(count)
            self.says(s.run("print(1)"), "1\n")

    @unittest.skipUnless(os.path.exists("/usr/bin/node"), "there is no Node")
    def test_of_node(self) -> None:
        self.client.create_template("node", ["/usr/bin/node", "-e", NODE], replace=True)
        self.differ(self.drawn("node", b"\n"))
        # It handles pending input before it is notified that it was cloned.
        with self.assertWarnsRegex(RuntimeWarning, "random numbers"):
            self.assertTrue(self.begun("node").freeze("node-asked", replace=True).forced)


if __name__ == "__main__":
    unittest.main()
