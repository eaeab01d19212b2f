# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code in new clones."""

import unittest

from support import SECRET, Case, server  # first: it finds the package

import pando

# Looks for secrets of the host that no cell may see.
PEEK = """
import os
for path in ["/etc/shadow", "/root/.ssh/authorized_keys", "/proc/1/environ", "/proc/1/cmdline", "/dev/mem", {secret!r}, {socket!r}]:
    try:
        with open(path, "rb") as file:
            print(path, file.read(4096))
    except OSError as error:
        print(path, type(error).__name__)
print(dict(os.environ), os.listdir("/home"), os.listdir("/proc"))
"""


class Run(Case):
    def test_output_and_end(self) -> None:
        result = self.client.run("import sys; print('åb'); print('no', file=sys.stderr); sys.exit(7)")
        said = (result.stdout, result.stderr, result.exit_code, result.error, result.reason)
        self.assertEqual(said, ("åb\n", "no\n", 7, None, "exited"))
        self.assertGreater(result.seconds, 0)
        self.assertGreater(result.cpu_seconds, 0)
        self.assertGreater(result.peak_bytes, 0)

    def test_bytes_that_are_no_text_are_replaced(self) -> None:
        self.says(self.client.run(r"import os; os.write(1, b'a\xffb')"), "a\ufffdb")

    def test_an_exception_is_told_with_its_traceback(self) -> None:
        result = self.client.run("def half(x):\n    return x / 0\n\nhalf(1)")
        assert result.error is not None
        self.assertEqual((result.error.name, result.error.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn('File "<code>", line 2, in half\n    return x / 0', result.error.traceback)
        self.assertEqual((result.stderr, str(result.error) + "\n"), (result.error.traceback,) * 2)
        self.assertEqual((result.exit_code, result.reason), (1, "exited"))

    def test_an_exception_is_told_whatever_it_says(self) -> None:
        for text in ("'\\u1234' * 50000", "'\\0' * 50000", "'\\ud800'"):
            result = self.client.run(f"import sys; sys.stderr = None; raise KeyError({text})")
            assert result.error is not None
            self.assertEqual((result.error.name, result.exit_code), ("KeyError", 1))
        result = self.client.run("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E")
        assert result.error is not None
        self.assertEqual((result.error.name, result.error.value), ("E", "<exception str() failed>"))

    def test_code_that_is_no_python(self) -> None:
        result = self.client.run("print(")
        assert result.error is not None
        self.assertEqual(result.error.name, "SyntaxError")

    def test_input_environment_and_arguments(self) -> None:
        code = "import os, sys; print(sys.stdin.read(), os.environ['NAME'], sys.argv[1:])"
        result = self.client.run(code, stdin="in", environment={"NAME": "it's"}, arguments=["a b", ""])
        self.says(result, "in it's ['a b', '']\n")
        self.says(self.client.run("import socket; print(socket.gethostname())", host_name="aspen"), "aspen\n")
        self.says(self.client.run("import sys; print(sys.stdin.buffer.read())", stdin=b"\xff\0"), "b'\\xff\\x00'\n")

    def test_nothing_is_left_for_the_next(self) -> None:
        self.says(self.client.run("open('/tmp/left', 'w').write('x'); import math; math.pi = 3"), "")
        self.says(self.client.run("import math, os; print(os.listdir('/tmp'), math.pi)"), "[] 3.141592653589793\n")

    def test_limits(self) -> None:
        hoard = "held = []\nwhile True: held.append(bytearray(1 << 20))"
        self.contained(self.client.run("while True: pass", timeout=0.3), "timed-out", "TimedOut")
        self.contained(self.client.run(hoard, memory="64M"), "memory-limit", "MemoryLimit")
        self.contained(self.client.run(hoard, memory=64 << 20), "memory-limit", "MemoryLimit")
        self.contained(self.client.run("import os\nwhile True: os.fork()", memory="64M"), "memory-limit", "MemoryLimit")
        flood = self.client.run("while True: print('x' * 99)", output_limit=100_000)
        self.contained(flood, "output-limit", "OutputLimit")
        self.assertEqual(len(flood.stdout), 100_000)
        late = self.client.run("import time; print('begun', flush=True); time.sleep(60)", timeout=0.5)
        self.assertEqual((late.stdout, late.exit_code), ("begun\n", 124))

    def test_a_request_for_too_much_memory_is_refused_to_the_code(self) -> None:
        result = self.client.run("x = bytearray(1 << 40)", memory="64M")
        assert result.error is not None
        self.assertEqual((result.reason, result.error.name), ("exited", "MemoryError"))

    def test_output_before_an_end_is_returned(self) -> None:
        hoard = "held = []\nwhile True: held.append(bytearray(1 << 20))"
        for end, options in {
            "while True: pass": {"timeout": 1},
            hoard: {"memory": "64M"},
            "import os; os.kill(os.getpid(), 9)": {},
            "import ctypes; ctypes.string_at(0)": {},
            "import os; os._exit(0)": {},
        }.items():
            with self.subTest(end):
                begin = "import sys; print('step 1'); print('step', end=' '); sys.stderr.write('half a line')\n"
                result = self.client.run(begin + end, **options)  # type: ignore[arg-type]
                self.assertEqual((result.stdout, result.stderr), ("step 1\nstep ", "half a line"))

    def test_lines_come_when_they_are_written(self) -> None:
        with self.client.start("python", ["print('one'); print(input())"]) as cell:
            said = cell.output()
            line = ""
            while line != "one\n":  # It may come in pieces.
                line += next(said).text
                self.assertTrue("one\n".startswith(line), line)
            cell.write("two\n", end=True)
            self.assertEqual("".join(piece.text for piece in said), "two\n")

    def test_crashes(self) -> None:
        self.contained(self.client.run("import ctypes; ctypes.string_at(0)"), "signalled", "Crashed")
        self.contained(self.client.run("import os; os.abort()"), "signalled", "Crashed")
        segfault = self.client.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        self.assertEqual(segfault.exit_code, 139)

    def test_nothing_of_the_host_is_seen(self) -> None:
        result = self.client.run(PEEK.format(secret=str(server().secret), socket=str(server().socket)))
        self.assertEqual((result.error, result.exit_code), (None, 0))
        self.assertNotIn(SECRET, result.stdout)
        for path in ("/etc/shadow", "/root/.ssh/authorized_keys", "/dev/mem", server().secret, server().socket):
            self.assertIn(f"{path} FileNotFoundError\n", result.stdout)

    def test_there_is_no_network(self) -> None:
        result = self.client.run("import socket; socket.create_connection(('1.1.1.1', 53), timeout=5)")
        assert result.error is not None
        self.assertEqual(result.error.name, "OSError")

    def test_notes(self) -> None:
        result = self.client.run("import pando; pando.note('half'); pando.note('[' * 9999); pando.note('{}'); 1 / 0")
        self.assertEqual(result.notes, ("half", "[" * 9999, "{}"))
        assert result.error is not None
        self.assertEqual(result.error.name, "ZeroDivisionError")

    def test_many_long_notes_stay_whole(self) -> None:
        with pando.Sandbox("python", client=self.client) as s:
            result = s.run("import pando\nfor n in range(12): pando.note(str(n) + 'x' * 30000)")
        self.assertEqual(result.notes, tuple(f"{n}" + "x" * 30000 for n in range(12)))

    def test_the_failure_of_a_child_is_not_reported(self) -> None:
        result = self.client.run("import os\nif os.fork() == 0: 1 / 0\nprint(os.waitstatus_to_exitcode(os.wait()[1]))")
        self.assertEqual((result.stdout, result.exit_code, result.error), ("1\n", 0, None))

    def test_malformed_requests_are_refused_with_reasons(self) -> None:
        for problem, options in {
            "memory": {"memory": "much"},
            "timeout": {"timeout": -1.0},
            "cpus": {"cpus": 3.0},
            "environment": {"environment": {"a=b": "c"}},
        }.items():
            with self.subTest(problem), self.assertRaisesRegex(pando.BadRequest, problem):
                self.client.run("pass", **options)  # type: ignore[arg-type]
        with self.assertRaisesRegex(pando.BadRequest, "zero byte"):
            self.client.run("a\0b")
        with self.assertRaisesRegex(pando.NoSuchTemplate, "no template `none`"):
            self.client.run("pass", template="none")
        self.assertEqual(self.running(), [])


if __name__ == "__main__":
    unittest.main()
