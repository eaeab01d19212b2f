# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server for the tests, with its own templates."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import unittest
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Dict, List

SOURCE = Path(__file__).parent.parent / "src"
sys.path.insert(0, str(SOURCE))

import pando  # noqa: E402

SECRET = "b8f1c6e2-the-host-has-this"
"""A secret that only the host knows."""


def program() -> str:
    """Returns the path of the program under test."""
    try:
        return os.environ["PANDO"]
    except KeyError:
        raise SystemExit("name the program to test: PANDO=/path/to/pando") from None


class Server:
    """A `pando serve` with a directory of its own, until this process ends."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="pando-")
        self.place = Path(self._place.name)
        self.secret = self.place / "secret"
        self.secret.write_text(SECRET)
        self.environment = environment(self.place)
        self.socket = self.place / "data/pando/run/socket"
        self._start()
        atexit.register(self.stop)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [program(), "serve", "--gateways", "2"], env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        assert "serving at" in line, line + self._process.stderr.read()

    def crash(self) -> None:
        """Kills the server, and starts another in the same directory."""
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._place.cleanup()


def environment(place: Path) -> Dict[str, str]:
    """Environment variables for programs whose files all go into a directory."""
    own = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    return {**own, "XDG_DATA_HOME": str(place / "data"), "PYTHONPATH": str(SOURCE), "PANDO_TEST_SECRET": SECRET}


@lru_cache(maxsize=None)
def server() -> Server:
    """Returns the server that all tests share."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise unittest.SkipTest("there is no /dev/kvm to be used")
    return Server()


class Case(unittest.TestCase):
    """A test with a client."""

    client: pando.Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.client = pando.Client(server().socket, start=False)
        cls.addClassCleanup(cls.client.close)

    def running(self) -> List[int]:
        """Lists the cells that have not ended."""
        return [cell.id for cell in self.client.cells() if cell.outcome is None]

    def says(self, result: pando.Result, stdout: str) -> None:
        """Checks that code succeeded and printed this."""
        said = (result.stdout, result.stderr, result.exit_code, result.error, result.reason)
        self.assertEqual(said, (stdout, "", 0, None, "exited"))

    def contained(self, result: pando.Result, reason: str, name: str) -> None:
        """Checks that code was ended for this reason, which the error names and explains."""
        assert result.error is not None, result
        self.assertEqual((result.reason, result.error.name), (reason, name), result)
        self.assertTrue(result.error.value, result)
        self.assertNotEqual(result.exit_code, 0)


class SandboxCase(Case):
    """A test with a sandbox that all tests of its class share."""

    s: ClassVar[pando.Sandbox]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.s = pando.Sandbox("python", client=cls.client, timeout=60).start()
        cls.addClassCleanup(cls.s.close)
