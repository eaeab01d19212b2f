# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that run in a cell in the background."""

from __future__ import annotations

from types import TracebackType
from typing import Any, AsyncGenerator, Dict, Optional, Tuple, Type, Union

from . import _wire
from ._errors import NoSuchJob
from ._job import Job
from ._stream import Requests, ResponseLines
from ._text import OnText
from ._types import ExecResult


# Characters of each stream that are kept: a program may run for long.
_KEPT = 16 << 20


class AsyncCommandHandle:
    """A program that runs in a cell in the background. It is killed when the handle is closed, as by the end of a `with` block.

    Its output is read by iteration or by `wait`. A program whose output nobody reads waits once 64 KiB are written.

    >>> handle = await s.commands.run("cat", background=True, stdin=True)
    >>> await handle.send_stdin("text")
    >>> await handle.close_stdin()
    >>> (await handle.wait()).stdout
    'text'
    """

    def __init__(self, client: Requests, lines: ResponseLines[Dict[str, Any]]) -> None:
        self._client = client
        self._lines = lines
        self._job = Job(self._add_stdout, self._add_stderr, limit=_KEPT)
        self._listeners: Tuple[Optional[OnText], Optional[OnText]] = None, None
        self._pieces: Tuple[str, str] = "", ""

    @property
    def pid(self) -> int:
        """Its number in its cell."""
        return int(self._lines.location.rpartition("/")[2])

    async def __aiter__(self) -> AsyncGenerator[Tuple[Optional[str], Optional[str]], None]:
        """Its output as it arrives: pairs of standard output and standard error, of which one is None."""
        while not self._job.is_over and await self._read():
            out, err = self._pieces
            if out or err:
                yield out or None, err or None
        if self._job.is_over:
            await self._lines.aclose()

    async def wait(self, on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None) -> ExecResult:
        """Waits until it has ended, and returns its output: the last 16 MiB of each stream. What follows is also passed to
        `on_stdout` and `on_stderr`."""
        self._listeners = on_stdout, on_stderr
        while not self._job.is_over and await self._read():
            pass
        result = self._job.result()
        await self._lines.aclose()
        return result

    async def send_stdin(self, data: Union[str, bytes]) -> None:
        """Sends standard input, and waits until the program has room for it."""
        await self._client.do(_wire.write_job(self._lines.location, _wire.encoded(data), False))

    async def close_stdin(self) -> None:
        """Closes its standard input."""
        await self._client.do(_wire.write_job(self._lines.location, b"", True))

    async def kill(self, signal: str = "KILL") -> bool:
        """Sends it and its processes a signal, by name or number. Returns False if it has ended."""
        try:
            await self._client.do(_wire.kill_job(self._lines.location, signal))
        except NoSuchJob:
            return False
        return True

    async def close(self) -> None:
        """Kills it, unless it has ended. Another task or thread that reads its output gets the end."""
        await self._lines.leave()

    async def __aenter__(self) -> AsyncCommandHandle:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _read(self) -> bool:
        """Reads the next piece of output. Returns whether there was one."""
        self._pieces = "", ""
        async for value in self._lines:
            self._job.take(value)
            return True
        return False

    def _add_stdout(self, text: str) -> None:
        self._pieces = self._pieces[0] + text, self._pieces[1]
        if self._listeners[0]:
            self._listeners[0](text)

    def _add_stderr(self, text: str) -> None:
        self._pieces = self._pieces[0], self._pieces[1] + text
        if self._listeners[1]:
            self._listeners[1](text)
