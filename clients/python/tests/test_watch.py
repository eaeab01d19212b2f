# SPDX-License-Identifier: MIT OR Apache-2.0
"""Watches of files in sandboxes."""

import asyncio
import unittest

from support import SandboxCase, server  # first: it finds the package

import pando


class Watches(SandboxCase):
    def test_events_come_as_they_happen(self) -> None:
        self.s.files.make_dir("/tmp/watched/below")
        with self.s.files.watch("/tmp/watched", recursive=True) as watch:
            self.s.run("open('/tmp/watched/below/a', 'w').write('1'); import os; os.rename('/tmp/watched/below/a', '/tmp/watched/b')")
            found = []
            for event in watch:
                found.append((event.type, event.path))
                if event.type == "moved-to":
                    break
        self.assertEqual(found[0], ("create", "/tmp/watched/below/a"))
        self.assertIn(("write", "/tmp/watched/below/a"), found)
        self.assertEqual(found[-2:], [("moved-from", "/tmp/watched/below/a"), ("moved-to", "/tmp/watched/b")])
        with self.assertRaises(pando.NoSuchFile):
            self.s.files.watch("/none")

    def test_tasks_watch_while_code_runs(self) -> None:
        async def watched() -> str:
            async with pando.AsyncClient(server().socket, start=False) as client, pando.AsyncSandbox(client=client) as s:
                async with await s.files.watch("/tmp") as watch:
                    task = asyncio.create_task(s.run("import time; time.sleep(0.1); open('/tmp/x', 'w').close()"))
                    async for event in watch:
                        break
                    await task
                    return f"{event.type} {event.path} {event.is_directory}"

        self.assertEqual(asyncio.run(watched()), "create /tmp/x False")

    def test_programs_that_print_too_much_are_killed(self) -> None:
        ended = self.s.exec(["yes"], output_limit=1000)
        self.assertEqual((ended.exit_code, len(ended.stdout)), (137, 1000))
        self.assertIn("output limit", ended.message)


if __name__ == "__main__":
    unittest.main()
