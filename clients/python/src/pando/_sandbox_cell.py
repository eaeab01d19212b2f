# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cell of a sandbox: its start and its end."""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Type

from . import _session, _wire
from ._async import AsyncClient
from ._cell import AsyncCell
from ._errors import Error
from ._stream import ResponseLines
from ._types import SandboxOptions

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class SandboxCell:
    """A sandbox as far as its cell is concerned."""

    def __init__(
        self, template: str = "python", *, client: Optional[AsyncClient] = None, **options: Unpack[SandboxOptions]
    ) -> None:
        self._life = _session.Life(template, options)
        self._owns_client = client is None
        self._client = client or AsyncClient()
        self._cell: Optional[AsyncCell] = None
        self._is_removed = False
        self._process = os.getpid()
        # A template that is removed with the sandbox.
        self._stored: Optional[str] = None
        self._heard: Optional[ResponseLines[_wire.Said]] = None
        self._lock = self._client.io.lock()

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
        return self._life.describe(type(self).__name__)

    async def _open(self) -> AsyncCell:
        self._life.check()
        if self._cell is None:
            self._cell = await self._client.start_order(self._life.order)
            self._life.number = self._cell.id
        return self._cell

    async def _started(self) -> AsyncCell:
        async with self._lock.held():
            return await self._open()

    async def _replace_cell(self, template: str) -> None:
        """Continues in a clone of a template, in place of the present cell."""
        old, heard = self._cell, self._heard
        self._cell = await self._client.start_order(self._life.continued(template))
        self._life.number, self._heard = self._cell.id, None
        if old is not None:
            await old.remove()
        if heard is not None:
            await heard.aclose()

    async def _end(self, why: str) -> None:
        self._life.end(why)
        # Even if the task is being cancelled.
        await self._client.io.finish(self._discard)

    async def _discard(self) -> None:
        if os.getpid() != self._process:
            # A forked child's copy: the cell and the connections belong to the parent.
            return
        heard, self._heard = self._heard, None
        try:
            try:
                if self._cell is not None and not self._is_removed:
                    self._is_removed = True
                    await self._cell.remove()
                    if self._stored is not None:
                        await self._client.remove_template(self._stored)
            finally:
                if heard is not None:
                    await heard.aclose()
        except (Error, RuntimeError):
            # The server has gone, or the client is closed: nothing remains to be done.
            pass
        if self._owns_client:
            await self._client.close()

    def __del__(self) -> None:
        if getattr(self, "_cell", None) is not None and self._life.over is None:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self)
