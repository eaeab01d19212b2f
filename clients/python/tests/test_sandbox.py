# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sandboxes: cells that keep their state from run to run."""

import os
import signal
import subprocess
import sys
import threading
import unittest
import urllib.request
from typing import Any, List, Tuple
from unittest import mock

from support import Case, program, server  # first: it finds the package

import pando

SERVING = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the sandbox")
    def log_message(self, *_): pass
threading.Thread(target=http.server.HTTPServer(("", 8000), Handler).serve_forever, daemon=True).start()
"""

INTERRUPTED = """
import pando, sys
with pando.Client(sys.argv[1], start=False) as client, pando.Sandbox(client=client) as s:
    s.run("print('begun', flush=True)\\nwhile True: pass", on_stdout=lambda text: print(text, end="", flush=True))
"""


class Sandbox(Case):
    def sandbox(self, **options: Any) -> pando.Sandbox:
        return pando.Sandbox("python", client=self.client, **options)

    def test_output_and_state_between_runs(self) -> None:
        with self.sandbox(memory="256M", timeout=60) as s:
            self.says(s.run("import os\nx = 6\ndef twice(n): return 2 * n"), "")
            self.says(s.run("print(twice(x)); open('/tmp/kept', 'w').write('y')"), "12\n")
            self.says(s.run("print(os.listdir('/tmp'), __name__)"), "['kept'] __main__\n")
            result = s.run("import sys; print('ö'); print('é', file=sys.stderr)")
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("ö\n", "é\n", 0))
            self.assertGreater(result.cpu_seconds, 0)
            self.assertGreater(result.peak_bytes, 0)
            self.assertIn("cell", repr(s))
        self.assertEqual(self.running(), [])

    def test_a_session_that_sleeps_wakes_up_for_a_run(self) -> None:
        with self.sandbox(timeout=600) as s:
            self.says(s.run("import threading, time\nx = [6]\nbegun = time.monotonic()"), "")
            for factor in (7, 8):
                self._sleep(s)
                self.says(s.run(f"x.append(x[0] * {factor}); print(x[-1], time.monotonic() > begun)"), f"{6 * factor} True\n")
            self._sleep(s)
            s.write_file("/tmp/data", "written")
            self.says(s.run("print(open('/tmp/data').read(), x)"), "written [6, 42, 48]\n")

    def _sleep(self, sandbox: pando.Sandbox) -> None:
        """Puts a sandbox to sleep, once it waits."""
        [cell] = [cell for cell in self.running() if f"cell {cell}" in repr(sandbox)]
        command = [program(), "sleep", str(cell)]
        while subprocess.run(command, env=server().environment, capture_output=True, check=False).returncode != 0:
            pass

    def test_programs_and_files_beside_the_interpreter(self) -> None:
        with self.sandbox(timeout=60) as s:
            s.write_file("/tmp/data.csv", "a,b\n1,2\n")
            self.says(s.run("print(open('/tmp/data.csv').read(), end=''); open('/tmp/out', 'wb').write(b'\\xff')"), "a,b\n1,2\n")
            self.assertEqual(s.read_file("/tmp/out"), b"\xff")
            self.assertEqual(s.exec(["wc", "-l", "/tmp/data.csv"]).stdout, "2 /tmp/data.csv\n")
            self.assertEqual(s.exec(["sleep", "1000"], timeout=0.2).exit_code, 124)
            self.says(s.run("print(1)"), "1\n")
        with self.assertRaisesRegex(pando.SandboxEnded, "closed"):
            s.exec(["true"])

    def test_servers_in_it_have_an_address_at_this_host(self) -> None:
        with self.sandbox(publish=[8000, "127.0.0.1:0:8001/udp"]) as s:
            self.says(s.run(SERVING), "")
            with urllib.request.urlopen(s.url(8000), timeout=60) as answer:
                self.assertEqual(answer.read(), b"from the sandbox")
            with self.assertRaisesRegex(LookupError, r"publish=\[80\]"):
                s.url(80)
            taken = s.url(8000).rpartition(":")[2]
            with self.assertRaisesRegex(pando.PortUnavailable, "is taken"), self.sandbox(publish=[f"{taken}:8000"]):
                pass
        with self.assertRaises(pando.SandboxEnded):
            s.url(8000)

    def test_the_right_to_nested_cells(self) -> None:
        def check(s: pando.Sandbox, may: bool) -> None:
            self.says(s.run("import os; print(os.path.exists('/dev/cells'))"), f"{may}\n")

        with self.sandbox() as plain, self.sandbox(nest=2) as nester:
            check(plain, False)
            check(nester, True)
            assert nester.cell is not None
            nester.cell.freeze("nester", replace=True)
        # It is a right of the cell, not of the template.
        for nest in (0, 1):
            with pando.Sandbox("nester", client=self.client, nest=nest) as s:
                check(s, nest > 0)

    def test_options_that_are_none(self) -> None:
        with self.assertRaisesRegex(TypeError, "unknown option 'memry'; the options are memory"):
            self.sandbox(memry="64M")

    def test_two_do_not_see_each_other(self) -> None:
        with self.sandbox() as one, self.sandbox() as other:
            one.run("x = 1; open('/tmp/x', 'w').close()")
            result = other.run("import os; print(os.listdir('/tmp')); x")
            assert result.error is not None
            self.assertEqual((result.stdout, result.error.name), ("[]\n", "NameError"))
            self.says(one.run("print(x)"), "1\n")

    def test_it_goes_on_after_exceptions_and_exits(self) -> None:
        with self.sandbox() as s:
            result = s.run("x = 1\n{}['key']")
            assert result.error is not None
            self.assertEqual((result.error.name, result.error.value, result.exit_code), ("KeyError", "'key'", 1))
            self.assertIn('File "<code>", line 2, in <module>', result.error.traceback)
            self.assertEqual((s.run("import sys; sys.exit(3)").exit_code, s.run("raise SystemExit").exit_code), (3, 0))
            left = s.run("sys.exit('bye')")
            self.assertEqual((left.exit_code, left.stderr, left.error), (1, "bye\n", None))
            self.says(s.run("print(x)"), "1\n")

    def test_code_reads_an_empty_input(self) -> None:
        with self.sandbox(timeout=60) as s:
            self.says(s.run("import subprocess, sys; print(repr(sys.stdin.read()))"), "''\n")
            result = s.run("subprocess.run(['/bin/cat']); input()")
            assert result.error is not None
            self.assertEqual(result.error.name, "EOFError")
            self.says(s.run("print(1)"), "1\n")

    def test_children_end_where_a_program_would(self) -> None:
        with self.sandbox(timeout=60) as s:
            code = "import os\nchild = os.fork()\nif child: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nelse: 1 / 0"
            result = s.run(code)
            self.assertEqual((result.stdout, result.exit_code, result.error), ("1\n", 0, None))
            self.assertIn("ZeroDivisionError", result.stderr)
            self.says(s.run("print(2)"), "2\n")

    def test_variables_that_it_is_given(self) -> None:
        with self.sandbox(environment={"NAME": "it's"}) as s:
            self.says(s.run("import os; print(os.environ['NAME'])"), "it's\n")

    def test_output_is_received_as_it_is_written(self) -> None:
        heard: List[Tuple[str, str]] = []
        code = "import sys\nfor n in range(3):\n    print(n, flush=True)\n    print('é', file=sys.stderr, flush=True)"
        with self.sandbox() as s:
            result = s.run(
                code,
                on_stdout=lambda text: heard.append(("out", text)),
                on_stderr=lambda text: heard.append(("err", text)),
            )
        told = "".join(text for _, text in heard)
        self.assertEqual(told, "0\né\n1\né\n2\né\n")
        self.assertEqual("".join(text for where, text in heard if where == "out"), result.stdout)
        self.assertEqual("".join(text for where, text in heard if where == "err"), result.stderr)

    def test_characters_are_put_together_again(self) -> None:
        heard: List[str] = []
        with self.sandbox() as s:
            result = s.run("import os\nfor byte in 'é€'.encode(): os.write(1, bytes([byte]))", on_stdout=heard.append)
        self.assertEqual((result.stdout, "".join(heard)), ("é€", "é€"))

    def test_much_is_heard_whole(self) -> None:
        with self.sandbox(timeout=60) as s:
            result = s.run("for n in range(400_000): print(n)")
        self.assertEqual(result.stdout, "".join(f"{n}\n" for n in range(400_000)))

    def test_a_run_that_takes_too_long_is_interrupted(self) -> None:
        with self.sandbox(timeout=60) as s:
            result = s.run("x = 1\nprint('begun')\nprint('half', end='')\nwhile True: pass", timeout=0.5)
            self.contained(result, "timed-out", "KeyboardInterrupt")
            assert result.error is not None
            self.assertEqual((result.stdout, result.exit_code), ("begun\nhalf", 124))
            self.assertIn("within 0.5 s", result.error.value)
            self.assertIn("line 4, in <module>\n    while True: pass", result.error.traceback)
            self.says(s.run("print(x)"), "1\n")
            waiting = s.run("import subprocess; subprocess.run(['sleep', '1000'])", timeout=0.5)
            self.contained(waiting, "timed-out", "KeyboardInterrupt")
            caught = s.run("import time\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: print('caught')", timeout=0.5)
            self.assertEqual((caught.stdout, caught.reason, caught.exit_code), ("caught\n", "timed-out", 124))
            self.says(s.run("print(x)"), "1\n")

    def test_a_run_that_does_not_react_ends_it(self) -> None:
        with self.sandbox(timeout=60) as s:
            code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun')\nwhile True: pass"
            result = s.run(code, timeout=0.3)
            self.contained(result, "timed-out", "TimedOut")
            self.assertEqual((result.stdout, result.exit_code), ("begun\n", 124))
            with self.assertRaisesRegex(pando.SandboxEnded, "within 0.3 s, nor after") as caught:
                s.run("print(1)")
            assert caught.exception.outcome is not None
            self.assertEqual(caught.exception.outcome.reason, "killed")

    def test_a_kill_that_is_refused_is_repeated(self) -> None:
        refused = ["kill"]

        async def kill(cell: pando.AsyncCell, signal: pando.Signal = "kill") -> None:
            if signal in refused:
                refused.remove(signal)
                raise pando.MachineFull("later")
            await original(cell, signal)

        original = pando.AsyncCell.kill
        with self.sandbox(output_limit=1000) as s, mock.patch.object(pando.AsyncCell, "kill", kill):
            self.contained(s.run("while True: print('x' * 99)", timeout=60), "output-limit", "OutputLimit")
        self.assertEqual(refused, [])

    def test_one_whose_block_fails_is_ended(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.sandbox() as s:
            s.run("x = 1")
            self.assertEqual(len(self.running()), 1)
            1 / 0
        self.assertEqual(self.running(), [])

    def test_the_time_between_runs_does_not_count(self) -> None:
        with self.sandbox(timeout=4) as s:
            for _ in range(6):
                self.says(s.run("import time; time.sleep(1); print(1)"), "1\n")

    def test_one_that_needs_too_much_memory_is_ended(self) -> None:
        with self.sandbox(memory="64M", timeout=60) as s:
            self.contained(s.run("held = []\nwhile True: held.append(bytearray(1 << 20))"), "memory-limit", "MemoryLimit")
            with self.assertRaisesRegex(pando.SandboxEnded, "memory"):
                s.run("print(1)")

    def test_one_that_says_too_much_is_ended(self) -> None:
        with self.sandbox(output_limit=10_000, timeout=60) as s:
            self.says(s.run("print('x' * 9_000)"), "x" * 9_000 + "\n")
            self.says(s.run("print('x' * 9_000)"), "x" * 9_000 + "\n")
            result = s.run("while True: print('x' * 99)")
            self.contained(result, "output-limit", "OutputLimit")
            self.assertEqual(len(result.stdout), 10_000)

    def test_one_that_crashes_is_told(self) -> None:
        with self.sandbox(timeout=60) as s:
            self.contained(s.run("import ctypes; ctypes.string_at(0)"), "signalled", "Crashed")
            with self.assertRaisesRegex(pando.SandboxEnded, "SIGSEGV"):
                s.run("print(1)")
        with self.sandbox(timeout=60) as s:
            left = s.run("import os; os._exit(3)")
            self.assertEqual((left.exit_code, left.reason, left.error), (3, "exited", None))
            with self.assertRaisesRegex(pando.SandboxEnded, "exited with status 3"):
                s.run("print(1)")

    def test_one_that_ended_between_runs_says_so(self) -> None:
        with self.sandbox(timeout=60) as s:
            assert s.cell is not None
            s.cell.kill()
            with self.assertRaisesRegex(pando.SandboxEnded, "killed"):
                s.run("print(1)")
        with self.assertRaisesRegex(pando.SandboxEnded, "killed"):
            s.run("print(1)")
        with self.sandbox(lifetime=0.2) as s:
            assert s.cell is not None
            s.cell.wait()
            with self.assertRaisesRegex(pando.SandboxEnded, "time limit expired"):
                s.run("print(1)")

    def test_one_that_was_closed_is_closed(self) -> None:
        s = self.sandbox()
        self.assertEqual(repr(s), "<Sandbox 'python': not started>")
        self.says(s.run("print(1)"), "1\n")
        s.close()
        s.close()
        with self.assertRaisesRegex(pando.SandboxEnded, "closed"):
            s.run("print(1)")
        self.assertEqual(self.running(), [])

    def test_one_that_is_forgotten_is_ended(self) -> None:
        s = self.sandbox().start()
        self.assertEqual(len(self.running()), 1)
        del s
        self.assertEqual(self.running(), [])

    def test_a_child_leaves_it_to_its_parent(self) -> None:
        with self.sandbox(timeout=60) as s:
            child = os.fork()
            if child == 0:
                s.close()
                os._exit(0)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.says(s.run("print(1)"), "1\n")
        self.assertEqual(self.running(), [])

    def test_a_listener_that_fails_ends_it(self) -> None:
        def fail(_: str) -> None:
            raise RuntimeError("enough")

        with self.sandbox() as s:
            with self.assertRaisesRegex(RuntimeError, "enough"):
                s.run("while True: print(1)", on_stdout=fail)
            self.assertEqual(self.running(), [])
            with self.assertRaisesRegex(pando.SandboxEnded, "interrupted"):
                s.run("print(1)")

    def test_its_files_are_used_while_code_runs(self) -> None:
        def write(_: str) -> None:
            s.write_file("/tmp/go", "")

        with self.sandbox(timeout=60) as s:
            code = "import os, time\nprint(1)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)"
            self.says(s.run(code, on_stdout=write), "1\n")

    def test_threads_take_turns(self) -> None:
        with self.sandbox() as s:
            s.run("held = []")
            threads = [threading.Thread(target=s.run, args=(f"held.append({n})",)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.says(s.run("print(sorted(held))"), "[0, 1, 2, 3, 4, 5, 6, 7]\n")

    def test_more_than_a_hundred_at_once(self) -> None:
        sandboxes = [self.sandbox() for _ in range(110)]
        for n, s in enumerate(sandboxes):
            s.run(f"x = {n}")
        for n, s in enumerate(sandboxes):
            self.says(s.run("print(x)"), f"{n}\n")
            s.close()

    def test_interrupting_a_run_ends_its_cell(self) -> None:
        words = [sys.executable, "-c", INTERRUPTED, str(server().socket)]
        with subprocess.Popen(
            words, env=server().environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as interrupted:
            assert interrupted.stdout is not None
            self.assertEqual(interrupted.stdout.readline(), "begun\n")
            interrupted.send_signal(signal.SIGINT)
            _, errors = interrupted.communicate()
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(self.running(), [])


if __name__ == "__main__":
    unittest.main()
