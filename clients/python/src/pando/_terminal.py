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
import struct
import sys
import termios


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def obey(terminal: int, line: bytes) -> None:
    order = json.loads(line)
    if "size" in order:
        resize(terminal, *order["size"])
    else:
        data = base64.b64decode(order["data"])
        while data:
            data = data[os.write(terminal, data) :]


def carry(terminal: int) -> None:
    """Carries bytes until the command has closed the terminal."""
    sources, begun = [0, terminal], b""
    while True:
        ready, _, _ = select.select(sources, [], [])
        if terminal in ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                # Linux reports the end of a terminal's other side as an error.
                return
            if not data:
                return
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                sources.remove(0)
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                obey(terminal, line)


def main() -> None:
    rows, columns, *words = sys.argv[1:]
    master, slave = os.openpty()
    resize(master, int(rows), int(columns))
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
    carry(master)
    _, status = os.waitpid(child, 0)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


main()
