# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sandboxes that are paused and resumed, and snapshots of them."""

import unittest
from typing import Any
from unittest import mock

from support import Case, Server, server  # first: it finds the package

import pando

DRAW = "import random, secrets, uuid\nprint(random.random(), random.gauss(0, 1), secrets.token_hex(), uuid.uuid4())"


class Snapshots(Case):
    def sandbox(self, **options: Any) -> pando.Sandbox:
        return pando.Sandbox("python", client=self.client, **options)

    def test_it_goes_on_after_a_snapshot_and_goes_back_to_it(self) -> None:
        with self.sandbox(timeout=60, memory="256M", environment={"NAME": "value"}) as s:
            s.run("import os, random; x = 1; open('/tmp/x', 'w').write('1'); os.chdir('/usr')")
            before = s.cell and s.cell.id
            name = s.snapshot()
            self.assertEqual(s.cell and s.cell.id, before)
            self.addCleanup(self.client.remove_template, name)
            self.says(s.run("x += 1; print(x)"), "2\n")
            s.write_file("/tmp/x", "2")
            drawn = {s.run(DRAW).stdout}
            for _ in range(2):
                s.restore(name)
                self.says(s.run("x += 1; print(x, open('/tmp/x').read(), os.getcwd())"), "2 1 /usr\n")
                drawn.add(s.run(DRAW).stdout)
            self.assertEqual(len(drawn), 3)
            self.assertTrue(all("Trace" not in each and each for each in drawn))
            # It is limited, interrupted and given programs as before.
            self.assertEqual(s.run("while True: pass", timeout=0.3).reason, "timed-out")
            self.assertEqual(s.exec(["sh", "-c", "echo $NAME"]).stdout, "value\n")
            self.says(s.run("print(x)"), "2\n")
            self.assertEqual(len(self.running()), 1)
            with self.assertRaises(pando.TemplateExists):
                s.snapshot(name)
            with self.assertRaises(pando.NoSuchTemplate):
                s.restore("none")
            self.says(s.run("print(x)"), "2\n")
        with pando.Sandbox(name, client=self.client) as other:
            self.says(other.run("print(x)"), "1\n")
        self.assertEqual(self.running(), [])

    def test_it_goes_back_to_any_of_its_checkpoints(self) -> None:
        before = {template.name for template in self.client.templates()}
        with self.sandbox(timeout=60) as s:
            with self.assertRaisesRegex(pando.BadRequest, "no checkpoint 0: there is none yet"):
                s.rewind()
            s.run("steps = []")
            for number in (1, 2, 3):
                self.assertEqual(s.checkpoint(), number)
                s.run(f"steps.append({number}); open('/tmp/steps', 'a').write('{number}')")
            self.assertEqual(s.checkpoints, [1, 2, 3])
            show = "import os; print(steps, open('/tmp/steps').read() if os.path.exists('/tmp/steps') else '')"
            self.says(s.run(show), "[1, 2, 3] 123\n")
            s.rewind()
            self.says(s.run(show), "[1, 2] 12\n")
            s.rewind(1)
            self.says(s.run(show), "[] \n")
            # Later ones stay, and new ones get new numbers.
            s.run("steps.append('other')")
            self.assertEqual(s.checkpoint(), 4)
            s.rewind(2)
            self.says(s.run(show), "[1] 1\n")
            s.rewind(4)
            self.says(s.run(show), "['other'] \n")
            for wrong in (0, 5, -1):
                with self.assertRaisesRegex(pando.BadRequest, "there are checkpoints 1 to 4"):
                    s.rewind(wrong)
            (fork,) = s.fork()
            with fork:
                self.assertEqual(fork.checkpoints, [])
                self.says(fork.run(show), "['other'] \n")
            self.assertEqual(len(self.running()), 1)
        self.assertEqual({template.name for template in self.client.templates()}, before)

    def test_a_paused_sandbox_is_resumed(self) -> None:
        with self.sandbox(timeout=60) as s:
            s.run("x = 1; def_ = lambda: x + 1")
            identifier = s.pause()
            self.assertEqual(self.running(), [])
            with self.assertRaisesRegex(pando.SandboxEnded, "it was paused"):
                s.run("print(x)")
        with pando.Sandbox.resume(identifier, client=self.client, timeout=60) as s:
            self.says(s.run("x += 1; print(def_())"), "3\n")
            self.assertEqual(s.pause(), identifier)
        with pando.Sandbox.resume(identifier, client=self.client) as s:
            self.says(s.run("print(x)"), "2\n")
        # It was closed, and not paused again.
        with self.assertRaises(pando.NoSuchTemplate):
            pando.Sandbox.resume(identifier, client=self.client)
        with self.assertRaises(pando.SandboxEnded):
            s.pause()

    def test_a_pause_that_fails_keeps_the_older_state(self) -> None:
        async def lose(*_: object, **__: object) -> None:
            raise pando.ConnectionLost("lost")

        with self.sandbox() as s:
            self.assertEqual(s.pause("paused-here"), "paused-here")
        with self.assertRaises(pando.TemplateExists), self.sandbox() as s:
            s.pause("paused-here")
        with self.assertRaises(pando.ConnectionLost), pando.Sandbox.resume("paused-here", client=self.client) as s:
            with mock.patch.object(pando.AsyncCell, "freeze", lose):
                s.pause()
        with pando.Sandbox.resume("paused-here", client=self.client) as s:
            self.assertEqual(s.pause("paused-there"), "paused-there")
        with self.assertRaises(pando.NoSuchTemplate):
            pando.Sandbox.resume("paused-here", client=self.client)
        self.client.remove_template("paused-there")
        with self.assertRaisesRegex(pando.BadRequest, "no ID of a paused sandbox"):
            pando.Sandbox.resume("python", client=self.client)

    def test_one_that_has_ended_is_not_paused(self) -> None:
        with self.sandbox() as s:
            assert s.cell is not None
            s.cell.kill()
            with self.assertRaisesRegex(pando.SandboxEnded, "killed"):
                s.pause()
        with self.sandbox() as s:
            assert s.cell is not None
            s.cell.kill()
            with self.assertRaisesRegex(pando.SandboxEnded, "killed"):
                s.snapshot()
            with self.assertRaisesRegex(pando.SandboxEnded, "killed"):
                s.fork()

    def test_programs_and_contexts_go_on_in_it(self) -> None:
        with self.sandbox(timeout=60) as s:
            s.run_code("x=1; cd /usr", "bash")
            context = s.create_code_context()
            s.run_code("y = 2", context=context)
            identifier = s.pause()
        with pando.Sandbox.resume(identifier, client=self.client) as s:
            self.assertEqual(s.run_code("echo $x; pwd", "bash").stdout, "1\n/usr\n")
            self.assertEqual(s.run_code("y", context=s.list_code_contexts()[0]).text, "2")


class Crashes(unittest.TestCase):
    def test_a_paused_sandbox_survives_the_crash_of_the_server(self) -> None:
        server()  # or there is no KVM
        own = Server()
        with pando.Client(own.socket, start=False) as client:
            s = pando.Sandbox(client=client)
            s.run("import random; x = list(range(100_000))")
            identifier = s.pause()
            running = pando.Sandbox(client=client).start()
            own.crash()
            with self.assertRaises((pando.ConnectionLost, pando.NoSuchCell, pando.SandboxEnded)):
                running.run("print(1)")
            drawn = set()
            for _ in range(2):
                resumed = pando.Sandbox.resume(identifier, client=client)
                self.assertEqual(resumed.run("print(sum(x))").stdout, "4999950000\n")
                drawn.add(resumed.run(DRAW).stdout)
                self.assertEqual(resumed.pause(), identifier)
            self.assertEqual(len(drawn), 2)
            client.remove_template(identifier)


if __name__ == "__main__":
    unittest.main()
