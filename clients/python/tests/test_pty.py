# SPDX-License-Identifier: MIT OR Apache-2.0
"""Terminals in sandboxes."""

import time
import unittest
from typing import Iterator, List

from support import SandboxCase  # first: it finds the package

import pando


def until(output: Iterator[str], text: str) -> str:
    """Reads output until it has this text."""
    said = ""
    for piece in output:
        said += piece
        if text in said:
            return said
    raise AssertionError(f"it ended without {text!r}: {said!r}")


class Terminals(SandboxCase):
    def test_a_shell_has_a_terminal_whose_size_changes(self) -> None:
        with self.s.pty.create(pando.PtySize(30, 100), cwd="/usr", envs={"PS1": "ready> "}) as terminal:
            output = iter(terminal)
            until(output, "ready> ")
            terminal.send_stdin("stty size; tty; pwd\n")
            self.assertRegex(until(output, "/usr\r\n"), r"30 100\r\n/dev/pts/\d+\r\n")
            terminal.resize(pando.PtySize(40, 120))
            terminal.send_stdin("stty size\n")
            until(output, "40 120\r\n")
            # Ctrl-C ends the program, not the shell.
            terminal.send_stdin("echo begun; sleep 1000\n")
            until(output, "begun\r\n")
            terminal.send_stdin("\x03")
            terminal.send_stdin("echo é$((6 * 7)); exit 3\n")
            until(output, "é42\r\n")
            self.assertEqual(terminal.wait().exit_code, 3)
            self.assertFalse(terminal.kill())

    def test_any_program_has_one(self) -> None:
        heard: List[str] = []
        code = "import os; print(os.isatty(0), os.get_terminal_size()); raise SystemExit(4)"
        result = self.s.pty.create(arguments=["python3", "-c", code]).wait(heard.append)
        self.assertEqual((result.stdout, result.exit_code), ("True os.terminal_size(columns=80, lines=24)\r\n", 4))
        self.assertEqual("".join(heard), result.stdout)
        self.assertEqual(self.s.pty.create(arguments=["/none"]).wait().exit_code, 127)
        with self.s.pty.create(arguments=["sleep", "1003"]) as terminal:
            self.assertTrue(terminal.kill())
        # Its terminal has gone, and so it ends.
        gone = self.s.commands.run("while grep -qs '100[3]' /proc/[0-9]*/cmdline; do :; done", timeout=20)
        self.assertEqual(gone.exit_code, 0)

    def test_a_large_paste_is_echoed(self) -> None:
        with self.s.pty.create(arguments=["sh", "-c", "stty raw; echo ready; sleep 0.5; exec head -c 100000"]) as terminal:
            until(iter(terminal), "ready")
            terminal.send_stdin("x" * 100_000)
            self.assertGreaterEqual(terminal.wait().stdout.count("x"), 100_000)

    def test_it_ends_with_its_program(self) -> None:
        with self.s.pty.create(arguments=["sh", "-c", "trap '' HUP; sleep 20 & echo begun"]) as terminal:
            began = time.monotonic()
            self.assertEqual((terminal.wait().stdout, time.monotonic() - began < 10), ("begun\r\n", True))

    def test_sizes_that_are_none(self) -> None:
        for rows, cols in ((0, 80), (24, -1), (24, 1 << 16)):
            with self.assertRaisesRegex(ValueError, "rows and cols"):
                pando.PtySize(rows, cols)


if __name__ == "__main__":
    unittest.main()
