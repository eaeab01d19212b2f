# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cell of a sandbox: its start and its end."""

from __future__ import annotations

import os
import warnings
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, AsyncIterator, List, Optional, Type

from . import _session, _wire
from ._async import AsyncClient
from ._cell import AsyncCell
from ._errors import Error, NoSuchCell, NoSuchTemplate, WrongState
from ._stream import ResponseLines
from ._types import SandboxOptions

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


# Seconds of a cell without a limit: the longest time limit of the server is a little more.
_LONG = 365 * 86400.0


class SandboxCell:
    """A sandbox as far as its cell is concerned."""

    def __init__(
        self, template: str = "python", *, client: Optional[AsyncClient] = None, **options: Unpack[SandboxOptions]
    ) -> None:
        self._state = _session.SandboxState(template, options)
        self._owns_client = client is None
        self._client = client or AsyncClient()
        self._cell: Optional[AsyncCell] = None
        self._is_removed = False
        self._process = os.getpid()
        # A template that is removed with the sandbox.
        self._stored: Optional[str] = None
        # Its checkpoints in order, and all templates that may be left of them, which are removed with the sandbox.
        self._checkpoints: List[str] = []
        self._owned: List[str] = []
        self._output: Optional[ResponseLines[_wire.OutputItem]] = None
        self._lock = self._client.io.lock()
        self._counting = self._client.io.lock()
        self._uses = 0

    async def start(self) -> Self:
        """Starts the cell, unless it is started already. Without this, the first run starts it."""
        async with self._lock.held():
            try:
                await self._open()
            except BaseException:
                await self._end("it could not be started")
                raise
        return self

    async def url(self, port: int) -> str:
        """Returns the address at which this host reaches a TCP port of the cell, one of its option `publish`.

        The program must listen on all addresses of the cell, not on 127.0.0.1.
        """
        ports = (await (await self._started()).info()).ports
        return _wire.url(ports, port)

    async def set_timeout(self, seconds: float) -> None:
        """Ends the cell after so many seconds from now on, in place of the option `lifetime`."""
        await (await self._started()).set_timeout(seconds)
        self._state.end_by(seconds)
        await self._rearm()

    async def close(self) -> None:
        """Ends the cell."""
        await self._end("it was closed")

    @property
    def cell(self) -> Optional[AsyncCell]:
        """The cell; None before it is started."""
        return self._cell

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return self._state.describe(type(self).__name__)

    async def _open(self) -> AsyncCell:
        self._state.check()
        if self._cell is None:
            self._cell = await self._client.start_clone(self._state.clone_request)
            self._state.number = self._cell.id
            await self._rearm()
        return self._cell

    @asynccontextmanager
    async def _busy(self) -> AsyncIterator[None]:
        """While something is done with the cell, it is not idle."""
        if self._state.idle_timeout is None:
            yield
            return
        # Both to their ends: otherwise, a cancelled task would leave the count wrong.
        finish = self._client.io.finish
        try:
            await finish(lambda: self._count(1))
            yield
        finally:
            await finish(lambda: self._count(-1))

    async def _count(self, more: int) -> None:
        async with self._counting.held():
            was, self._uses = self._uses, self._uses + more
            if 0 in (was, self._uses):
                await self._limit()

    async def _rearm(self) -> None:
        """Sets the time limit of a new cell, or a new one."""
        async with self._counting.held():
            await self._limit()

    async def _limit(self) -> None:
        if self._state.idle_timeout is None or self._cell is None or self._state.over is not None:
            return
        seconds = self._state.remaining() if self._uses else self._state.idle()
        try:
            await self._cell.set_timeout(_LONG if seconds is None else seconds)
        except (WrongState, NoSuchCell):
            # It has ended: the next run finds the reason.
            pass

    async def _started(self) -> AsyncCell:
        # A run holds the lock; everything else may be done meanwhile, also by its listeners.
        self._state.check()
        if self._cell is not None:
            return self._cell
        async with self._lock.held():
            return await self._open()

    async def _replace_cell(self, template: str) -> None:
        """Continues in a clone of a template, in place of the present cell."""
        old, output = self._cell, self._output
        if old is not None and self._state.is_exclusive:
            await self._client.template(template)
            await old.remove()
        try:
            self._cell = await self._client.start_clone(self._state.continued(template))
        except BaseException:
            if self._state.is_exclusive:
                await self._end("it could not be restored")
            raise
        self._state.replaced(self._cell.id)
        self._output = None
        if old is not None:
            await old.remove()
        if output is not None:
            await output.aclose()
        await self._rearm()

    async def _end(self, why: str) -> None:
        self._state.end(why)
        # Even if the task is being cancelled.
        await self._client.io.finish(self._discard)

    async def _discard(self) -> None:
        if os.getpid() != self._process:
            # A forked child's copy: the cell and the connections belong to the parent.
            return
        output, self._output = self._output, None
        try:
            try:
                if self._cell is not None and not self._is_removed:
                    self._is_removed = True
                    await self._cell.remove()
                    if self._stored is not None:
                        await self._client.remove_template(self._stored)
            finally:
                await self._remove_owned()
                if output is not None:
                    await output.aclose()
        except (Error, RuntimeError):
            # The server has gone, or the client is closed: nothing remains to be done.
            pass
        if self._owns_client:
            await self._client.close()

    async def _remove_owned(self) -> None:
        """Removes the templates of its checkpoints."""
        while self._owned:
            try:
                await self._client.remove_template(self._owned.pop())
            except NoSuchTemplate:
                # It was never stored.
                pass

    def __del__(self) -> None:
        if getattr(self, "_cell", None) is not None and self._state.over is None:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self)
