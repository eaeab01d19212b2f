# SPDX-License-Identifier: MIT OR Apache-2.0
"""Watches of files in sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncGenerator, AsyncIterator, Literal, Mapping, Optional, Type

from . import _wire
from ._stream import ResponseLines

if TYPE_CHECKING:
    from ._cell import AsyncCell

EventType = Literal["started", "create", "write", "attributes", "remove", "moved-from", "moved-to", "overflow"]
"""What has happened to a file. "overflow": events were lost."""


@dataclass(frozen=True)
class FilesystemEvent:
    """Something that has happened to a file or directory in a sandbox."""

    type: EventType
    path: str
    is_directory: bool
    cookie: int
    """The two events of a move have the same number, which is otherwise 0."""


def event(value: Mapping[str, Any]) -> FilesystemEvent:
    path = _wire.decoded(value["path"]).decode(errors="surrogateescape")
    return FilesystemEvent(value["event"], path, value["is_directory"], value["cookie"])


class AsyncWatch:
    """Events of files, as they come: `async for event in watch`. The end of its block, or `close`, ends it."""

    def __init__(self, lines: ResponseLines[FilesystemEvent]) -> None:
        self._lines = lines

    @staticmethod
    async def begin(cell: AsyncCell, path: str, recursive: bool) -> AsyncWatch:
        lines = await cell._client.stream(_wire.watch(cell.id, path, recursive), event)
        # The first event reports that it has begun.
        await lines.__anext__()
        return AsyncWatch(lines)

    async def events(self) -> AsyncGenerator[FilesystemEvent, None]:
        async for each in self._lines:
            yield each

    def __aiter__(self) -> AsyncIterator[FilesystemEvent]:
        return self._lines.__aiter__()

    async def close(self) -> None:
        """Ends it, also for another task or thread that waits for an event."""
        await self._lines.leave()

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()
