# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sandboxes whose programs do their worst, and clients that leave while others read."""

import asyncio
import tempfile
import threading
import unittest
from typing import Callable, List

from support import SandboxCase, server  # first: it finds the package

import pando


class Hostile(SandboxCase):
    def test_output_is_limited(self) -> None:
        with pando.Sandbox("python", client=self.client, output_limit=1000) as s:
            for ran in (s.commands.run("yes"), s.exec(["yes"])):
                self.assertEqual((ran.exit_code, len(ran.stdout)), (137, 1000))
                self.assertIn("output limit of 1000 bytes", ran.message)
            self.assertEqual(len(s.commands.run("head -c 2000 /dev/zero", output_limit=2000).stdout), 2000)
        self.assertEqual(len(self.s.commands.run("yes").stdout), 16 << 20)
        self.assertEqual(len(self.s.exec(["head", "-c", "17000000", "/dev/zero"], output_limit=None).stdout), 17000000)

    def test_files_that_are_read_are_limited(self) -> None:
        self.s.commands.run("truncate -s 1T /tmp/sparse; printf 12345 > /tmp/small")
        for read in (self.s.files.read, self.s.files.read_bytes, self.s.read_file):
            with self.assertRaisesRegex(pando.Error, "more than 1000 bytes"):
                read("/tmp/sparse", max_bytes=1000)
            self.assertEqual(len(read("/tmp/small", max_bytes=5)), 5)

    def test_answers_that_are_none_are_errors(self) -> None:
        files = self.s.files
        asks: List[Callable[[], object]] = [
            lambda: files.list("/tmp"),
            lambda: files.get_info("/tmp"),
            lambda: files.remove("/tmp/x"),
            lambda: files.upload(tempfile.mkdtemp(), "/tmp/x"),
        ]
        deep = "python3 -c 'print(\"[\" * 100000)'"
        answers = ["exit 3", "echo no >&2; exit 3", "echo '{}' >&2; exit 3", "echo '[]' >&2; exit 3", f"{deep} >&2; exit 3"]
        answers += ["", "echo no", "echo '[1]'", "echo '{}'", "echo '[{\"name\": 1}]'", "echo null", deep, "yes", "yes >&2"]
        self.addCleanup(self._uses, None)
        for answer in answers:
            self.s.write_file("/tmp/evil", f"#!/bin/sh\n{answer}\n")
            self.s.exec(["chmod", "+x", "/tmp/evil"])
            self._uses("/tmp/evil")
            for ask in asks[:2] if "exit" not in answer else asks:
                with self.assertRaises(pando.Error, msg=answer):
                    ask()

    def _uses(self, interpreter: object) -> None:
        self.s._steps._interpreter = interpreter  # type: ignore[assignment]

    def test_an_interpreter_that_does_not_end_is_ended(self) -> None:
        with pando.Sandbox("python", client=self.client, timeout=1) as s:
            s.write_file("/tmp/evil", "#!/bin/sh\nexec sleep 1000\n")
            s.exec(["chmod", "+x", "/tmp/evil"])
            s._steps._interpreter = "/tmp/evil"
            with self.assertRaisesRegex(pando.Error, "time limit"):
                s.files.exists("/tmp")

    def test_a_stream_that_is_read_slowly_keeps_the_sandbox(self) -> None:
        def ends(s: pando.Sandbox) -> None:
            assert s.cell is not None
            self.assertIsNotNone(s.cell.wait(60))

        with pando.Sandbox("python", client=self.client, idle_timeout=1) as s:
            s.write_file("/tmp/big", bytes(32 << 20))
            pieces = s.files.read_stream("/tmp/big")
            read = len(next(pieces))
            for _ in range(2):
                with pando.Sandbox("python", client=self.client, idle_timeout=1) as other:
                    ends(other)
            self.assertEqual(read + sum(len(piece) for piece in pieces), 32 << 20)
            ends(s)


class Leaving(SandboxCase):
    def _closed_while_read(self, read: Callable[[], object], close: Callable[[], object]) -> None:
        """Closes what a thread reads."""
        is_reading = threading.Event()

        def drain() -> None:
            is_reading.set()
            try:
                read()
            except pando.Error:
                pass

        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
        is_reading.wait()
        close()
        thread.join(30)
        self.assertFalse(thread.is_alive())

    def test_a_command_whose_output_was_read_has_no_connection(self) -> None:
        handle = self.s.commands.run("echo 1", True)
        self.assertEqual(list(handle), [("1\n", None)])
        self.assertTrue(handle._steps._lines._response.is_closed)
        self.assertEqual(handle.wait().stdout, "1\n")

    def test_threads_are_let_go(self) -> None:
        handle = self.s.commands.run("echo ready; exec sleep 1003", True)
        pieces = iter(handle)
        next(pieces)
        self._closed_while_read(lambda: list(pieces), handle.close)
        # Most probably it waits already.
        handle = self.s.commands.run("exec sleep 1003", True)
        self._closed_while_read(handle.wait, handle.close)
        watch = self.s.files.watch("/tmp")
        self._closed_while_read(lambda: list(watch), watch.close)
        gone = "while grep -qs '100[3]' /proc/[0-9]*/cmdline; do :; done"
        self.assertEqual(self.s.commands.run(gone, timeout=20).exit_code, 0)

    def test_tasks_are_let_go(self) -> None:
        async def drain(pieces: object) -> List[object]:
            return [piece async for piece in pieces]  # type: ignore[attr-defined]

        async def use() -> None:
            async with pando.AsyncClient(server().socket, start=False) as client:
                async with pando.AsyncSandbox("python", client=client) as s:
                    async with await s.pty.create() as terminal:
                        reader = asyncio.ensure_future(drain(terminal))
                        await terminal.send_stdin("echo 12\n")
                    await asyncio.wait_for(reader, 30)
                    async with await s.files.watch("/tmp") as watch:
                        reader = asyncio.ensure_future(drain(watch))
                        await asyncio.sleep(0)
                    self.assertEqual(await asyncio.wait_for(reader, 30), [])
                    handle = await s.commands.run("sleep 1000", True)
                    reader = asyncio.ensure_future(drain(handle))
                    await asyncio.sleep(0)
                    await handle.close()
                    self.assertEqual(await asyncio.wait_for(reader, 30), [])

        asyncio.run(use())


if __name__ == "__main__":
    unittest.main()
