# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cells for asyncio."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, AsyncGenerator, AsyncIterator, Iterable, List, Optional, Sequence, Type, Union

from . import _wire
from ._errors import Error, NoSuchCell
from ._handle import AsyncCommandHandle
from ._job import Job, OnBytes
from ._stream import Requests, ResponseLines
from ._text import OnText
from ._types import CellInfo, ExecOptions, ExecResult, Outcome, Piece, Signal, TemplateInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncCell:
    """A cell: a clone that runs, or has ended and is still listed. As a context manager, it is removed on exit.

    >>> async with await client.start("python", ["print(input())"]) as cell:
    ...     await cell.write("hello", end=True)
    ...     [piece.text async for piece in cell.output()]
    ['hello\\n']
    """

    def __init__(self, client: Requests, number: int) -> None:
        self._client = client
        self.id = number

    async def output(self, follow: bool = True, first: int = 0) -> AsyncGenerator[Piece, None]:
        """Its output from byte `first` on, piece by piece, until it ends, or with `follow=False` up to now.

        The server keeps the last MiB, or as much as the output limit allows. A follower misses nothing from then on, because
        the cell waits for slow readers.
        """
        lines = await self.follow(follow, first)
        try:
            async for item in lines:
                if isinstance(item, Piece):
                    yield item
        finally:
            await lines.aclose()

    async def write(self, data: Union[str, bytes], end: bool = False) -> None:
        """Sends standard input, and waits until it is accepted. `end`: closes the standard input."""
        await self._client.do(_wire.write(self.id, _wire.encoded(data), end))

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        stdin: Union[str, bytes, Iterable[bytes]] = b"",
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_stdout_bytes: Optional[OnBytes] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs another program in it, and returns the result. `arguments`: a path or a name in PATH, and its arguments.

        Its output is passed to `on_stdout` and `on_stderr` as it arrives, or to `on_stdout_bytes`: then it is not part of the
        result. `stdin` has at most 64 KiB; an iterable of pieces may have more, if the program reads all before it writes
        much. The other options are those of `ExecOptions`. An interruption ends the program.
        """
        return await self._execute(arguments, stdin, Job(on_stdout, on_stderr, on_stdout_bytes), options)

    async def _execute(
        self, arguments: Sequence[str], stdin: Union[str, bytes, Iterable[bytes]], job: Job, options: ExecOptions
    ) -> ExecResult:
        operation = _wire.execute(self.id, arguments, stdin.encode() if isinstance(stdin, str) else stdin, options)
        lines = await self._client.stream(operation, job.take)
        try:
            async for _ in lines:
                pass
        finally:
            await lines.aclose()
        return job.result()

    async def read_file(self, path: str, *, max_bytes: Optional[int] = None) -> bytes:
        """Returns the content of a file in it; the path is absolute. Raises NoSuchFile if it cannot be read.

        `max_bytes`: raises an error if it has more. A program in the cell may make it as large as it likes.
        """
        if max_bytes is None:
            return await self._client.do(_wire.read_file(self.id, path))
        content = bytearray()
        pieces = await self._client.stream_bytes(_wire.read_file(self.id, path))
        try:
            async for piece in pieces:
                content += piece
                if len(content) > max_bytes:
                    raise Error(f"{path} has more than {max_bytes} bytes: read it by `read_stream`, or give a larger max_bytes")
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
        return bytes(content)

    async def start_program(
        self, arguments: Sequence[str], *, stdin: bool = False, **options: Unpack[ExecOptions]
    ) -> AsyncCommandHandle:
        """Starts another program in it, and returns while the program runs. `stdin`: it reads what the handle sends."""
        operation = _wire.execute(self.id, arguments, b"", options, stdin)
        return AsyncCommandHandle(self._client, await self._client.stream(operation, _wire.plain))

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """Returns the content of a file in it, piece by piece."""
        return await self._client.stream_bytes(_wire.read_file(self.id, path))

    async def set_timeout(self, seconds: float) -> None:
        """Ends it after so many seconds from now on, in place of an earlier time limit."""
        await self._client.do(_wire.set_timeout(self.id, seconds))

    async def write_file(self, path: str, data: Union[str, bytes, Iterable[bytes]]) -> None:
        """Writes a file in it, or replaces one; the path is absolute. Raises NoSuchFile if it cannot be written.

        The pieces of an iterable are sent one after the other.
        """
        await self._client.do(_wire.write_file(self.id, path, data.encode() if isinstance(data, str) else data))

    async def wait(self, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Waits until it has ended, or for `timeout` seconds; returns None if it has not ended."""
        return await self._client.do(_wire.wait(self.id, timeout))

    async def kill(self, signal: Signal = "kill") -> None:
        """Kills it, or sends its program "terminate" (SIGTERM) or "interrupt" (SIGINT). Its output can still be read."""
        await self._client.do(_wire.kill(self.id, signal))

    async def freeze(self, name: str, *, force: bool = False, replace: bool = False) -> TemplateInfo:
        """Turns it into a template in its present state. The cell itself does not continue; its clones do.

        `force`: freezes it without the cooperation of its library OS. The random numbers of its clones are then not
        guaranteed to be distinct, and the template is `forced`. The same holds if it runs programs that do not notice that
        they are cloned; then a RuntimeWarning is issued.
        """
        made = await self._client.do(_wire.freeze(self.id, name, force, replace))
        if made.forced and not force:
            warnings.warn(_wire.unaware(name), RuntimeWarning, stacklevel=2)
        return made

    async def fork(self, count: int = 1) -> List[AsyncCell]:
        """Starts forks that continue where its programs wait, with its memory, files, arguments and limits. It goes on itself.

        The forks draw other random numbers, as those of a template do; unlike `freeze`, it gives no warning about programs
        that do not notice that they are cloned. They have names and time limits of their own, and no published ports.
        """
        return [AsyncCell(self._client, number) for number in await self._client.do(_wire.fork(self.id, count))]

    async def remove(self) -> None:
        """Ends it, and removes it with its output."""
        try:
            await self._client.do(_wire.remove(self.id))
        except NoSuchCell:
            pass

    async def info(self) -> CellInfo:
        """Returns its present state, and its outcome once it has ended."""
        return await self._client.do(_wire.cell(self.id))

    async def __aenter__(self) -> AsyncCell:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.remove()

    def __repr__(self) -> str:
        return f"<AsyncCell {self.id}>"

    async def follow(self, follow: bool = True, first: int = 0) -> ResponseLines[_wire.OutputItem]:
        return await self._client.stream(_wire.output(self.id, first, follow), _wire.output_item)
