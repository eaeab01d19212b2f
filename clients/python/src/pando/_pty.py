# SPDX-License-Identifier: MIT OR Apache-2.0
"""Terminals in sandboxes."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import AsyncGenerator, Callable, Mapping, Optional, Sequence, Type, Union

from ._access import SandboxAccess
from ._handle import AsyncCommandHandle
from ._types import ExecResult

_INSIDE = Path(__file__).with_name("_terminal.py").read_text()
_SIZE_MAX = 0xFFFF


@dataclass(frozen=True)
class PtySize:
    """The size of a terminal in characters."""

    rows: int
    cols: int

    def __post_init__(self) -> None:
        if not (0 < self.rows <= _SIZE_MAX and 0 < self.cols <= _SIZE_MAX):
            raise ValueError(f"rows and cols must be from 1 to {_SIZE_MAX}, not {self.rows} and {self.cols}")


class AsyncPty:
    """Terminals in a sandbox: `sandbox.pty`.

    >>> handle = await s.pty.create(PtySize(24, 80))
    >>> await handle.send_stdin("ls\\n")
    """

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    async def create(
        self,
        size: PtySize = PtySize(24, 80),
        *,
        arguments: Sequence[str] = ("/bin/sh", "-i"),
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> AsyncPtyHandle:
        """Starts a program with a terminal of its own: a shell, or that of `arguments`."""
        words = [await self._sandbox._python(), "-I", "-S", "-c", _INSIDE, str(size.rows), str(size.cols), *arguments]
        cell = await self._sandbox._started()
        variables = {"TERM": "xterm-256color", **(envs or {})}
        async with self._sandbox._busy():
            handle = await cell.start_program(words, stdin=True, environment=variables, user=user, directory=cwd, timeout=timeout)
        return AsyncPtyHandle(handle)


class AsyncPtyHandle:
    """A program with a terminal. It is killed when the handle is closed, as by the end of a `with` block."""

    def __init__(self, handle: AsyncCommandHandle) -> None:
        self._handle = handle

    @property
    def pid(self) -> int:
        """Its number in its cell."""
        return self._handle.pid

    async def send_stdin(self, data: Union[str, bytes]) -> None:
        """Types: control characters act as at a keyboard, such as "\\x03" for Ctrl-C."""
        typed = data.encode() if isinstance(data, str) else data
        await self._order({"data": base64.b64encode(typed).decode()})

    async def resize(self, size: PtySize) -> None:
        """Changes the size of the terminal, and notifies its programs."""
        await self._order({"size": [size.rows, size.cols]})

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        """Its output as it arrives."""
        async for out, err in self._handle:
            yield out or err or ""

    async def wait(self, on_data: Optional[Callable[[str], object]] = None) -> ExecResult:
        """Waits until the program has ended, and returns the last 16 MiB of its output. What follows is also passed to `on_data`."""
        return await self._handle.wait(on_data, on_data)

    async def kill(self) -> bool:
        """Ends the program as if its terminal were closed. Returns False if it has ended."""
        return await self._handle.kill()

    async def close(self) -> None:
        """Kills it, unless it has ended."""
        await self._handle.close()

    async def __aenter__(self) -> AsyncPtyHandle:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _order(self, order: Mapping[str, object]) -> None:
        await self._handle.send_stdin(json.dumps(order) + "\n")
