# SPDX-License-Identifier: MIT OR Apache-2.0
"""The program that gives a command a terminal in a cell: it is run there with the cell's Python, by `python -c`.

Its arguments are the rows and columns, and the command. Its input is lines of JSON: `data` in base64 is typed, `size` is the new
size. Its output is that of the terminal, and its exit status that of the command.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import time

# The limit of bytes that wait to be typed: then, no more orders are read.
_TYPED_MAX = 1 << 20
# Seconds for which output is read after the end of the command, and without output.
_DRAIN, _QUIET = 1.0, 0.05


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """The master side of a terminal, and what is typed but not written yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.typed = bytearray()
        self._begun = b""
        # A program that does not read must not keep its output from being read.
        os.set_blocking(number, False)

    def obey(self, data: bytes) -> None:
        """Carries out orders, which may arrive in pieces."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "size" in order:
                resize(self.number, *order["size"])
            else:
                self.typed += base64.b64decode(order["data"])

    def write(self) -> None:
        """Writes as much as the terminal takes."""
        try:
            del self.typed[: os.write(self.number, self.typed)]
        except BlockingIOError:
            pass
        except OSError:
            # Its other side was closed.
            self.typed.clear()

    def show(self) -> bool:
        """Passes output on. Returns whether there may be more."""
        try:
            data = os.read(self.number, 65536)
        except BlockingIOError:
            return True
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            return False
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return bool(data)


def carry(terminal: Terminal, child: int, ended: int) -> int:
    """Carries bytes until the command ends. Returns its status."""
    sources = [0, terminal.number, ended]
    while True:
        readable = [source for source in sources if source != 0 or len(terminal.typed) < _TYPED_MAX]
        ready, writable, _ = select.select(readable, [terminal.number] if terminal.typed else [], [])
        if terminal.number in ready and not terminal.show():
            # The command has closed it.
            return os.waitpid(child, 0)[1]
        if ended in ready:
            os.read(ended, 4096)
            number, status = os.waitpid(child, os.WNOHANG)
            if number:
                # Programs that it started may hold the terminal for longer.
                until = time.monotonic() + _DRAIN
                while select.select([terminal.number], [], [], _QUIET)[0] and time.monotonic() < until and terminal.show():
                    pass
                return status
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                sources.remove(0)
            terminal.obey(data)
        if writable:
            terminal.write()


def main() -> None:
    rows, columns, *words = sys.argv[1:]
    master, slave = os.openpty()
    resize(master, int(rows), int(columns))
    # The end of the command is noticed as a byte in a pipe.
    ended, notice = os.pipe()
    os.set_blocking(notice, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notice)
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(slave, number)
        os.closerange(3, 256)
        try:
            os.execvp(words[0], words)
        except OSError as error:
            os.write(2, f"pando: {words[0]}: {error.strerror}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    os.close(slave)
    status = carry(Terminal(master), child, ended)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


main()
