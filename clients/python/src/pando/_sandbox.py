# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sandboxes for asyncio."""

from __future__ import annotations

import os
import uuid
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _session, _wire
from ._async import AsyncClient
from ._cell import AsyncCell
from ._errors import Error, NoSuchCell, WrongState
from ._results import Context, DisplayData, Execution
from ._session import Listeners
from ._stream import ResponseLines
from ._text import OnText
from ._types import CodeError, ExecOptions, ExecResult, Result, SandboxOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSandbox:
    """A separate cell, whose Python runs one piece of code after the other in the same namespace.

    The options are those of `SandboxOptions`: `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds)
    and `output_limit` (bytes) limit each run. A run that takes longer than `timeout` is interrupted, and the sandbox goes
    on; exceeding another limit ends the cell: the result contains the reason, and later runs raise SandboxEnded.

    >>> async with pando.AsyncSandbox(memory="256M", timeout=5) as s:
    ...     await s.run("x = 6")
    ...     print((await s.run("print(x * 7)")).stdout)
    """

    def __init__(
        self, template: str = "python", *, client: Optional[AsyncClient] = None, **options: Unpack[SandboxOptions]
    ) -> None:
        self._life = _session.Life(template, options)
        self._owns_client = client is None
        self._client = client or AsyncClient()
        self._cell: Optional[AsyncCell] = None
        self._is_removed = False
        self._process = os.getpid()
        self._heard: Optional[ResponseLines[_wire.Said]] = None
        self._lock = self._client.io.lock()

    async def start(self) -> AsyncSandbox:
        """Starts the cell, unless it is started already. Without this, the first run starts it."""
        async with self._lock.held():
            try:
                await self._open()
            except BaseException:
                await self._end("it could not be started")
                raise
        return self

    async def run(
        self,
        code: str,
        *,
        timeout: Optional[float] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
    ) -> Result:
        """Runs code, and returns its result. Its output is passed to `on_stdout` and `on_stderr` as it arrives.

        Code that takes longer than `timeout` seconds is interrupted by a KeyboardInterrupt, and the sandbox goes on. If it
        does not react, its cell is ended. Raises SandboxEnded if the cell has ended before. An interruption of this call
        (Ctrl-C) ends the cell.
        """
        _, result = await self._exchange({"code": code}, timeout, Listeners(on_stdout, on_stderr))
        return result

    async def run_code(
        self,
        code: str,
        language: Optional[str] = None,
        *,
        context: Optional[Context] = None,
        timeout: Optional[float] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[Callable[[DisplayData], object]] = None,
        on_error: Optional[Callable[[CodeError], object]] = None,
    ) -> Execution:
        """Runs code as a notebook does: the result has the value of the last expression, and what the code displays.

        `language` is "python" (the default), "bash" or "javascript"; each keeps its variables from run to run. `context` is
        another one than the default context of the language: see `create_code_context`. `await` is allowed outside of
        functions. The rest is as for `run`.

        >>> (await s.run_code("x = 6\\nx * 7")).text
        '42'
        """
        if context is not None and language not in (None, context.language):
            raise ValueError(f"the context is one of {context.language}, not of {language}: omit language, or context")
        listeners = Listeners(on_stdout, on_stderr, on_result, on_error)
        fields = {"code": code, "show": True, "context": _context(context or _default_context(language))}
        run, result = await self._exchange(fields, timeout, listeners)
        return run.execution(result)

    async def create_code_context(self, cwd: Optional[str] = None, language: str = "python") -> Context:
        """Creates a context with variables of its own, in which code can run. `cwd` is its first working directory."""
        context = Context(uuid.uuid4().hex, language, cwd)
        await self._exchange({"context": _context(context)})
        return context

    async def list_code_contexts(self) -> List[Context]:
        """Lists the contexts that were created. The default ones are not among them."""
        run, _ = await self._exchange({"contexts": True})
        return run.contexts()

    async def remove_code_context(self, context: Context) -> None:
        """Removes a context, with its process if it has one."""
        await self._exchange({"remove": context.id})

    async def interrupt(self) -> None:
        """Interrupts the code that runs in another task or thread: it ends by a KeyboardInterrupt."""
        # Not under the lock, which the run holds.
        if self._cell is not None:
            self._life.interrupts += 1
            await self._cell.kill("interrupt")

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        stdin: Union[str, bytes] = b"",
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a program in the cell, beside its Python, and returns the result: see `AsyncCell.exec`.

        Its default timeout is that of a run; a timeout ends the program, and the cell continues.
        """
        if self._life.timeout is not None:
            options.setdefault("timeout", self._life.timeout)
        cell = await self._started()
        return await cell.exec(arguments, stdin=stdin, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    async def fork(self, count: int = 1) -> List[AsyncSandbox]:
        """Returns copies of it, which have its namespace, its files and its options. It goes on itself.

        Each copy has random numbers and a lifetime of its own, and no published ports. Waits until no run is in progress.
        Raises WrongState if its programs do not pause within ten seconds.

        >>> async with pando.AsyncSandbox() as s:
        ...     await s.run("x = 6")
        ...     one, other = await s.fork(2)
        ...     await one.run("x += 1"), await other.run("print(x)")
        """
        async with self._lock.held():
            copies = await (await self._open()).fork(count)
        return [self._copy(copy.id) for copy in copies]

    def _copy(self, number: int) -> AsyncSandbox:
        # A client that belongs to this sandbox is closed with it.
        client = type(self._client)(self._client.socket, start=False) if self._owns_client else self._client
        copy = AsyncSandbox(self._life.order.template, client=client)
        copy._owns_client, copy._cell, copy._life = self._owns_client, AsyncCell(client, number), self._life.copied(number)
        return copy

    async def read_file(self, path: str) -> bytes:
        """Returns the content of a file in the cell; the path is absolute. Raises NoSuchFile if it cannot be read."""
        return await (await self._started()).read_file(path)

    async def write_file(self, path: str, data: Union[str, bytes]) -> None:
        """Writes a file in the cell, or replaces one; the path is absolute. Raises NoSuchFile if it cannot be written."""
        await (await self._started()).write_file(path, data)

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

    async def __aenter__(self) -> AsyncSandbox:
        return await self.start()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return self._life.describe("AsyncSandbox")

    async def _open(self) -> AsyncCell:
        self._life.check()
        if self._cell is None:
            self._cell = await self._client.start_order(self._life.order)
            self._life.number = self._cell.id
        return self._cell

    async def _started(self) -> AsyncCell:
        async with self._lock.held():
            return await self._open()

    async def _exchange(
        self, fields: Mapping[str, Any], timeout: Optional[float] = None, listeners: Listeners = Listeners()
    ) -> Tuple[_session.Run, Result]:
        """Sends a request to the Python in the cell. Returns its run, and its result."""
        async with self._lock.held():
            run = self._life.begin(timeout, listeners)
            cell = await self._open()
            try:
                is_refused = await self._limited(run, cell, self._life.request(fields))
                self._life.finish(run, is_refused)
                # The usage of a cell that has ended is in its outcome.
                now = None if run.outcome else await cell.info()
            except BaseException:
                await self._end("a run was interrupted")
                raise
        return run, run.result(now)

    async def _limited(self, run: _session.Run, cell: AsyncCell, request: bytes) -> bool:
        """Sends the code, and reads the output until it is done. Returns whether the code was refused: the cell has ended."""
        if run.timeout is None:
            return await self._talk(run, cell, request)

        async def interrupt() -> None:
            if run.expire():
                await _attempt(lambda: cell.kill("interrupt"))

        async def end() -> None:
            if run.give_up():
                await _attempt(cell.kill)

        after = self._client.io.after
        with after(run.timeout, interrupt), after(run.timeout + _session.GRACE, end):
            return await self._talk(run, cell, request)

    async def _talk(self, run: _session.Run, cell: AsyncCell, request: bytes) -> bool:
        is_refused = False
        # A reader that follows from the beginning misses nothing.
        heard = self._heard = self._heard or await cell.follow()
        try:
            await cell.write(request)
        except (WrongState, NoSuchCell):
            is_refused = True
        async for said in heard:
            if run.take(said):
                await cell.kill()
            if run.is_done:
                break
        return is_refused

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


async def _attempt(act: Callable[[], Any]) -> None:
    """Signals a cell. If that fails, the reader of its output gets the error."""
    try:
        await act()
    except (Error, RuntimeError):
        pass


def _default_context(language: Optional[str]) -> Context:
    """The context of a language that exists from the beginning."""
    known = language or "python"
    return Context("" if known == "python" else f"default-{known}", known)


def _context(context: Context) -> Mapping[str, Any]:
    return {"id": context.id, "language": context.language, "cwd": context.cwd}
