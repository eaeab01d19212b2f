# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client and sandboxes for asyncio."""

from __future__ import annotations

import os
import warnings
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    Callable,
    Deque,
    Generic,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Type,
    TypeVar,
    Union,
)

import httpx

from . import _server, _wire
from ._io import Http, Io, Tasks
from ._types import (
    CellInfo,
    ConnectionLost,
    Error,
    ExecOptions,
    ExecResult,
    NoSuchCell,
    NoSuchTemplate,
    Options,
    Outcome,
    Piece,
    Result,
    SandboxOptions,
    ServerInfo,
    ServerMissing,
    Signal,
    Template,
    TemplateExists,
    TemplateOptions,
    WrongState,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient:
    """A client of the server (`pando serve`) on its Unix socket, for one event loop; tasks may share it.

    If no server listens, one is started, unless `start` is False: the program that the variable PANDO names, or `pando`
    in PATH. The server keeps running when this process ends.

    >>> async with pando.AsyncClient() as client:
    ...     results = await asyncio.gather(*(client.run(f"print({n})") for n in range(20)))
    """

    _io: Io = Tasks()

    def __init__(self, socket: Union[str, Path, None] = None, start: bool = True) -> None:
        self._path = Path(socket).absolute() if socket is not None else None
        self._starts = start
        self._known: Set[str] = set()
        self._making = self._io.lock()
        self.socket = self._path or _server.place()
        # Each sandbox occupies a connection.
        self._http = self._io.http(self.socket, httpx.Limits(max_connections=None, max_keepalive_connections=16))

    async def run(
        self,
        code: str,
        *,
        template: str = "python",
        arguments: Sequence[str] = (),
        stdin: Union[str, bytes, None] = None,
        **options: Unpack[Options],
    ) -> Result:
        """Runs code in a new clone of the template, which ends with the code.

        The code finds `arguments` behind `sys.argv[0]`. For other templates than "python", `code` is the first argument.
        The other options are those of `Options`. An interruption ends the clone.
        """
        order = _wire.Order(template, [code, *arguments], stdin, options)
        await self._ensure(template)
        return await self._do(_wire.run(order))

    async def start(
        self,
        template: str = "python",
        arguments: Sequence[str] = (),
        *,
        stdin: Union[str, bytes, None] = None,
        **options: Unpack[Options],
    ) -> AsyncCell:
        """Starts a clone of a template; more standard input can follow. The options are those of `Options`."""
        return await self._start(_wire.Order(template, arguments, stdin, options))

    async def info(self) -> ServerInfo:
        """Returns the server's version and resources."""
        return await self._do(_wire.server_info())

    async def templates(self) -> List[Template]:
        """Lists all templates."""
        return await self._do(_wire.templates())

    async def template(self, name: str) -> Template:
        """Returns the template of this name."""
        return await self._do(_wire.template(name))

    async def create_template(
        self, name: str, arguments: Sequence[str] = (), **options: Unpack[TemplateOptions]
    ) -> Template:
        """Starts a program, waits until it reports that it is ready, and stores it as a template of this name.

        The options are those of `TemplateOptions`, as in `pando template create`. Without `arguments`, creates the standard
        template of this name. A program reports that it is ready by `import pando; pando.ready()`.
        """
        return await self._do(_wire.create_template(name, arguments, options))

    async def remove_template(self, name: str) -> None:
        """Removes a template; its clones keep running."""
        self._known.discard(name)
        await self._do(_wire.remove_template(name))

    async def cells(self) -> List[CellInfo]:
        """Lists the running cells, and the last that ended."""
        return await self._do(_wire.cells())

    async def cell(self, number: int) -> AsyncCell:
        """Returns the cell of this number, which any client may have started."""
        return AsyncCell(self, (await self._do(_wire.cell(number))).id)

    async def close(self) -> None:
        """Closes the connections. Cells and the server keep running."""
        await self._http.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient at {str(self.socket)!r}>"

    async def _start(self, order: _wire.Order) -> AsyncCell:
        await self._ensure(order.template)
        return AsyncCell(self, await self._do(_wire.start(order)))

    async def _do(self, operation: _wire.Operation[T]) -> T:
        with _told():
            response = await self._send(operation)
            body = await self._http.read(response)
        return _wire.answer(operation, response.status_code, body)

    async def _stream(self, operation: _wire.Operation[None], read: Callable[[Any], T]) -> _Heard[T]:
        with _told():
            response = await self._send(operation)
            if response.status_code != 200:
                _wire.answer(operation, response.status_code, await self._http.read(response))
        return _Heard(self._http, response, read)

    async def _send(self, operation: _wire.Operation[T]) -> httpx.Response:
        request = self._http.build_request(
            operation.method, operation.path, content=operation.body, params=operation.params, headers=operation.headers
        )
        try:
            return await self._http.send(request)
        except httpx.ConnectError as error:
            if not self._starts:
                raise ServerMissing(f"no server is running at {self.socket}: start `pando serve`") from error
        await self._io.call(lambda: _server.start(self._path))
        return await self._http.send(request)

    async def _ensure(self, name: str) -> None:
        """Creates a missing standard template, and reports that to the user, because it takes a while."""
        if name not in _wire.STANDARD or name in self._known:
            return
        async with self._making.held():
            if name in self._known:
                return
            try:
                await self.template(name)
            except NoSuchTemplate:
                try:
                    with _wire.telling(name):
                        await self.create_template(name)
                except TemplateExists:
                    # Another process has created it first.
                    pass
            self._known.add(name)


@contextmanager
def _told() -> Iterator[None]:
    """Translates errors of the transport."""
    try:
        yield
    except httpx.TransportError as error:
        raise ConnectionLost(f"the server closed the connection: {error or type(error).__name__}") from error


class _Heard(Generic[T]):
    """A streamed response, line by line. The reader closes it if it does not read to the end."""

    def __init__(self, http: Http, response: httpx.Response, read: Callable[[Any], T]) -> None:
        self._http = http
        self._response = response
        self._parts = http.parts(response)
        self._lines = _wire.Lines(read)
        self._whole: Deque[T] = deque()
        self._is_listened_to = False
        self._is_over = False

    def __aiter__(self) -> _Heard[T]:
        return self

    async def __anext__(self) -> T:
        self._is_listened_to = True
        try:
            while not self._whole:
                with _told():
                    part = await self._parts.__anext__()
                self._whole.extend(self._lines.add(part))
            return self._whole.popleft()
        finally:
            self._is_listened_to = False
            if self._is_over:
                await self._http.end(self._response)

    async def aclose(self) -> None:
        self._is_over = True
        # Otherwise, the reader closes the response.
        if not self._is_listened_to:
            await self._http.end(self._response)


class AsyncCell:
    """A cell: a clone that runs, or has ended and is still listed. As a context manager, it is removed on exit.

    >>> async with await client.start("python", ["print(input())"]) as cell:
    ...     await cell.write("hello", end=True)
    ...     [piece.text async for piece in cell.output()]
    ['hello\\n']
    """

    def __init__(self, client: AsyncClient, number: int) -> None:
        self._client = client
        self.id = number

    async def output(self, follow: bool = True, first: int = 0) -> AsyncGenerator[Piece, None]:
        """Its output from byte `first` on, piece by piece, until it ends, or with `follow=False` up to now.

        The server keeps the last MiB, or as much as the output limit allows. A follower misses nothing from then on, because
        the cell waits for slow readers.
        """
        heard = await self._hear(follow, first)
        try:
            async for said in heard:
                if isinstance(said, Piece):
                    yield said
        finally:
            await heard.aclose()

    async def write(self, data: Union[str, bytes], end: bool = False) -> None:
        """Sends standard input, and waits until it is accepted. `end`: closes the standard input."""
        await self._client._do(_wire.write(self.id, _wire.encoded(data), end))

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        stdin: Union[str, bytes] = b"",
        on_stdout: Optional[_wire.OnText] = None,
        on_stderr: Optional[_wire.OnText] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs another program in it, and returns the result. `arguments`: a path or a name in PATH, and its arguments.

        Its output is passed to `on_stdout` and `on_stderr` as it arrives. `stdin` has at most 64 KiB; write more to a file,
        for the program to read. The other options are those of `ExecOptions`. An interruption ends the program.
        """
        job = _wire.Job(on_stdout, on_stderr)
        operation = _wire.execute(self.id, arguments, _wire.encoded(stdin), options)
        heard = await self._client._stream(operation, job.take)
        try:
            async for _ in heard:
                pass
        finally:
            await heard.aclose()
        return job.result()

    async def read_file(self, path: str) -> bytes:
        """Returns the content of a file in it; the path is absolute. Raises NoSuchFile if it cannot be read."""
        return await self._client._do(_wire.read_file(self.id, path))

    async def write_file(self, path: str, data: Union[str, bytes]) -> None:
        """Writes a file in it, or replaces one; the path is absolute. Raises NoSuchFile if it cannot be written."""
        await self._client._do(_wire.write_file(self.id, path, _wire.encoded(data)))

    async def wait(self, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Waits until it has ended, or for `timeout` seconds; returns None if it has not ended."""
        return await self._client._do(_wire.wait(self.id, timeout))

    async def kill(self, signal: Signal = "kill") -> None:
        """Kills it, or sends its program "terminate" (SIGTERM) or "interrupt" (SIGINT). Its output can still be read."""
        await self._client._do(_wire.kill(self.id, signal))

    async def freeze(self, name: str, *, force: bool = False, replace: bool = False) -> Template:
        """Turns it into a template in its present state. The cell itself does not continue; its clones do.

        `force`: freezes it without the cooperation of its library OS. The random numbers of its clones are then not
        guaranteed to be distinct, and the template is `forced`. The same holds if it runs programs that do not notice that
        they are cloned; then a RuntimeWarning is issued.
        """
        made = await self._client._do(_wire.freeze(self.id, name, force, replace))
        if made.forced and not force:
            warnings.warn(_wire.unaware(name), RuntimeWarning, stacklevel=2)
        return made

    async def remove(self) -> None:
        """Ends it, and removes it with its output."""
        try:
            await self._client._do(_wire.remove(self.id))
        except NoSuchCell:
            pass

    async def info(self) -> CellInfo:
        """Returns its present state, and its outcome once it has ended."""
        return await self._client._do(_wire.cell(self.id))

    async def __aenter__(self) -> AsyncCell:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.remove()

    def __repr__(self) -> str:
        return f"<AsyncCell {self.id}>"

    async def _hear(self, follow: bool = True, first: int = 0) -> _Heard[_wire.Said]:
        return await self._client._stream(_wire.output(self.id, first, follow), _wire.said)


class AsyncSandbox:
    """A separate cell, whose Python runs one piece of code after the other in the same namespace.

    The options are those of `SandboxOptions`: `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds)
    and `output_limit` (bytes) limit each run. Exceeding a limit ends the cell: the result contains the reason, and later
    runs raise SandboxEnded.

    >>> async with pando.AsyncSandbox(memory="256M", timeout=5) as s:
    ...     await s.run("x = 6")
    ...     print((await s.run("print(x * 7)")).stdout)
    """

    def __init__(
        self, template: str = "python", *, client: Optional[AsyncClient] = None, **options: Unpack[SandboxOptions]
    ) -> None:
        self._life = _wire.Life(template, options)
        self._owns_client = client is None
        self._client = client or AsyncClient()
        self._cell: Optional[AsyncCell] = None
        self._is_removed = False
        self._process = os.getpid()
        self._heard: Optional[_Heard[_wire.Said]] = None
        self._lock = self._client._io.lock()

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
        on_stdout: Optional[_wire.OnText] = None,
        on_stderr: Optional[_wire.OnText] = None,
    ) -> Result:
        """Runs code, and returns its result. Its output is passed to `on_stdout` and `on_stderr` as it arrives.

        Raises SandboxEnded if the cell has ended before. An interruption (Ctrl-C) ends the cell.
        """
        async with self._lock.held():
            run = self._life.begin(timeout, on_stdout, on_stderr)
            cell = await self._open()
            try:
                is_refused = await self._exchange(run, cell, code)
                self._life.finish(run, is_refused)
                # The usage of a cell that has ended is in its outcome.
                return run.result(None if run.outcome else await cell.info())
            except BaseException:
                await self._end("a run was interrupted")
                raise

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        stdin: Union[str, bytes] = b"",
        on_stdout: Optional[_wire.OnText] = None,
        on_stderr: Optional[_wire.OnText] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a program in the cell, beside its Python, and returns the result: see `AsyncCell.exec`.

        Its default timeout is that of a run; a timeout ends the program, and the cell continues.
        """
        if self._life.timeout is not None:
            options.setdefault("timeout", self._life.timeout)
        cell = await self._started()
        return await cell.exec(arguments, stdin=stdin, on_stdout=on_stdout, on_stderr=on_stderr, **options)

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
            self._cell = await self._client._start(self._life.order)
            self._life.number = self._cell.id
        return self._cell

    async def _started(self) -> AsyncCell:
        async with self._lock.held():
            return await self._open()

    async def _exchange(self, run: _wire.Run, cell: AsyncCell, code: str) -> bool:
        """Sends the code, and reads the output until it is done. Returns whether the code was refused: the cell has ended."""
        if run.timeout is None:
            return await self._talk(run, cell, code)

        async def expire() -> None:
            if run.expire():
                try:
                    await cell.kill()
                except (Error, RuntimeError):
                    # The reader of the output gets the error.
                    pass

        with self._client._io.after(run.timeout, expire):
            return await self._talk(run, cell, code)

    async def _talk(self, run: _wire.Run, cell: AsyncCell, code: str) -> bool:
        is_refused = False
        # A reader that follows from the beginning misses nothing.
        heard = self._heard = self._heard or await cell._hear()
        try:
            await cell.write(_wire.code_line(code))
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
        await self._client._io.finish(self._discard)

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


async def arun(
    code: str,
    *,
    template: str = "python",
    arguments: Sequence[str] = (),
    stdin: Union[str, bytes, None] = None,
    **options: Unpack[Options],
) -> Result:
    """Runs code in a new clone of the template, which ends with the code: see `AsyncClient.run`.

    Creates an AsyncClient for each call. For many runs, share one instead.
    """
    async with AsyncClient() as client:
        return await client.run(code, template=template, arguments=arguments, stdin=stdin, **options)
