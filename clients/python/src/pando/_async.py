# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client, and sandboxes, for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import AsyncGenerator, AsyncIterator, List, Mapping, Optional, Sequence, Set, Type, TypeVar, Union

import httpx

from . import _server, _wire
from ._sync import told
from ._types import (
    CellInfo,
    Error,
    Limits,
    NoSuchCell,
    NoSuchTemplate,
    Outcome,
    Piece,
    Recipe,
    Result,
    ServerInfo,
    ServerMissing,
    Signal,
    Size,
    Template,
    TemplateExists,
    WrongState,
)

T = TypeVar("T")


class AsyncClient:
    """Speaks to the server (`pando serve`) on its Unix socket, in one event loop; tasks may share it.

    Where nobody listens, one is started, unless `start` is False: the program that the variable PANDO names, or `pando`
    in PATH. It goes on when this process ends, for the next one.

    >>> async with pando.AsyncClient() as client:
    ...     results = await asyncio.gather(*(client.run(f"print({n})") for n in range(20)))
    """

    def __init__(self, socket: Union[str, Path, None] = None, start: bool = True) -> None:
        self._path = Path(socket).absolute() if socket is not None else None
        self._starts = start
        self._known: Set[str] = set()
        self._making = _Lock()
        self.socket = self._path or _server.place()
        # Each sandbox keeps a connection.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket), limits=limits, verify=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://pando", timeout=None, trust_env=False)

    async def run(
        self,
        code: str,
        *,
        template: str = "python",
        arguments: Sequence[str] = (),
        stdin: Union[str, bytes, None] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        timeout: Optional[float] = None,
        environment: Optional[Mapping[str, str]] = None,
        output_limit: Optional[int] = None,
        host_name: Optional[str] = None,
    ) -> Result:
        """Runs code in a fresh clone of the template, which ends with it.

        `arguments` are what the code finds behind `sys.argv[0]`. Of other templates than "python", `code` is the first
        argument. Ends the clone if this is interrupted.
        """
        limits = Limits(template, memory, cpus, timeout, output_limit, environment, host_name)
        await self._ensure(template)
        return await self._do(_wire.run(limits, [code, *arguments], stdin))

    async def start(
        self,
        template: str = "python",
        arguments: Sequence[str] = (),
        *,
        stdin: Union[str, bytes, None] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        timeout: Optional[float] = None,
        environment: Optional[Mapping[str, str]] = None,
        output_limit: Optional[int] = None,
        host_name: Optional[str] = None,
    ) -> AsyncCell:
        """Starts a clone of a template and lets it run; more standard input can follow."""
        limits = Limits(template, memory, cpus, timeout, output_limit, environment, host_name)
        await self._ensure(template)
        return AsyncCell(self, (await self._do(_wire.start(limits, arguments, stdin))).id)

    async def info(self) -> ServerInfo:
        """What the server is, and what it has."""
        return await self._do(_wire.server_info())

    async def templates(self) -> List[Template]:
        """The templates that are kept."""
        return await self._do(_wire.templates())

    async def template(self, name: str) -> Template:
        """The template of this name."""
        return await self._do(_wire.template(name))

    async def create_template(
        self,
        name: str,
        arguments: Sequence[str] = (),
        *,
        environment: Optional[Mapping[str, str]] = None,
        memory: Optional[Size] = None,
        timeout: Optional[float] = None,
        volumes: Sequence[str] = (),
        root: Optional[str] = None,
        bare: bool = False,
        user: Optional[str] = None,
        variants: Optional[int] = None,
        train: bool = False,
        train_arguments: Sequence[str] = (),
        replace: bool = False,
    ) -> Template:
        """Starts a program, waits until it says that it is ready, and keeps it under this name.

        The options are those of `pando template create`. Without `arguments`, the standard template of this name.

        >>> await client.create_template("adder", ["python3", "-c", "import pando, sys; pando.ready(); print(sys.argv[1])"])
        """
        recipe = Recipe(
            name,
            arguments,
            environment,
            memory,
            timeout,
            volumes,
            root,
            bare,
            user,
            variants,
            train,
            train_arguments,
            replace,
        )
        return await self._do(_wire.create_template(recipe))

    async def remove_template(self, name: str) -> None:
        """Removes a template; its clones go on."""
        self._known.discard(name)
        await self._do(_wire.remove_template(name))

    async def cells(self) -> List[CellInfo]:
        """The cells that run, and the last that ended."""
        return await self._do(_wire.cells())

    async def cell(self, number: int) -> AsyncCell:
        """The cell of this number, which anybody may have started."""
        return AsyncCell(self, (await self._do(_wire.cell(number))).id)

    async def close(self) -> None:
        """Lets the connections go. Cells and the server go on."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient at {str(self.socket)!r}>"

    async def _do(self, operation: _wire.Operation[T]) -> T:
        with told():
            response = await self._send(operation, stream=False)
        return _wire.answer(operation, response.status_code, response.content)

    async def _stream(self, operation: _wire.Operation[None]) -> AsyncGenerator[_wire.Said, None]:
        with told():
            response = await self._send(operation, stream=True)
            if response.status_code != 200:
                _wire.answer(operation, response.status_code, await response.aread())
        return _pieces(response)

    async def _send(self, operation: _wire.Operation[T], stream: bool) -> httpx.Response:
        request = self._http.build_request(
            operation.method, operation.path, content=operation.body, params=operation.params, headers=operation.headers
        )
        try:
            return await self._http.send(request, stream=stream)
        except httpx.ConnectError as error:
            if not self._starts:
                raise ServerMissing(f"nobody listens at {self.socket}: start `pando serve`") from error
        await asyncio.to_thread(_server.start, self._path)
        return await self._http.send(request, stream=stream)

    async def _ensure(self, name: str) -> None:
        """Makes a standard template that is not there, and says so: it takes a while."""
        if name not in _wire.STANDARD or name in self._known:
            return
        async with self._making.get():
            if name in self._known:
                return
            try:
                await self.template(name)
            except NoSuchTemplate:
                try:
                    with _wire.telling(name):
                        await self.create_template(name)
                except TemplateExists:
                    # Another process was quicker.
                    pass
            self._known.add(name)


async def _pieces(response: httpx.Response) -> AsyncGenerator[_wire.Said, None]:
    lines = _wire.Lines()
    with told():
        try:
            async for data in response.aiter_raw():
                for each in lines.add(data):
                    yield each
        finally:
            await response.aclose()


class AsyncCell:
    """A cell: a clone that runs, or has ended and is remembered. As a context manager, it is removed in the end.

    >>> async with await client.start("python", ["print(input())"]) as cell:
    ...     await cell.write("hello", end=True)
    ...     [piece.text async for piece in cell.output()]
    ['hello\\n']
    """

    def __init__(self, client: AsyncClient, number: int) -> None:
        self._client = client
        self.id = number

    async def output(self, follow: bool = True, first: int = 0) -> AsyncIterator[Piece]:
        """What it says, piece by piece from the given one on, until it ends, or with `follow=False` until now.

        The server remembers the last MiB, or as much as it may say; who follows misses nothing from then on, because the
        cell waits for who reads slowly.
        """
        async for said in await self._said(follow, first):
            if isinstance(said, Piece):
                yield said

    async def write(self, data: Union[str, bytes], end: bool = False) -> None:
        """Gives it standard input, and waits until it is taken. `end`: nothing follows."""
        await self._client._do(_wire.write(self.id, data.encode() if isinstance(data, str) else data, end))

    async def wait(self, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Waits until it has ended, or so many seconds; None if it has not."""
        return await self._client._do(_wire.wait(self.id, timeout))

    async def kill(self, signal: Signal = "kill") -> None:
        """Ends it, or asks its program to: by "terminate" (SIGTERM) or "interrupt" (SIGINT). What it said can be read."""
        await self._client._do(_wire.kill(self.id, signal))

    async def freeze(self, name: str, *, force: bool = False, replace: bool = False) -> Template:
        """Makes a template of it, as it is now: it does not go on, but its clones do.

        `force`: stops it as it stands, and does not ask its library OS, so that nothing promises that its clones' random
        numbers are distinct.
        """
        return await self._client._do(_wire.freeze(self.id, name, force, replace))

    async def remove(self) -> None:
        """Ends it, and forgets it with all that it said."""
        try:
            await self._client._do(_wire.remove(self.id))
        except NoSuchCell:
            pass

    async def info(self) -> CellInfo:
        """What it has and takes now, and how it ended."""
        return await self._client._do(_wire.cell(self.id))

    async def __aenter__(self) -> AsyncCell:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.remove()

    def __repr__(self) -> str:
        return f"<AsyncCell {self.id}>"

    async def _said(self, follow: bool = True, first: int = 0) -> AsyncGenerator[_wire.Said, None]:
        return await self._client._stream(_wire.output(self.id, first, follow))


class AsyncSandbox:
    """A cell of its own, whose Python runs one piece of code after the other in the same namespace.

    `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds) and `output_limit` (bytes) each run. What
    exceeds a limit ends the cell: the result says so, and later runs raise SandboxEnded.

    >>> async with pando.AsyncSandbox(memory="256M", timeout=5) as s:
    ...     await s.run("x = 6")
    ...     print((await s.run("print(x * 7)")).stdout)
    """

    def __init__(
        self,
        template: str = "python",
        *,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        timeout: Optional[float] = None,
        environment: Optional[Mapping[str, str]] = None,
        output_limit: Optional[int] = None,
        host_name: Optional[str] = None,
        lifetime: Optional[float] = 3600.0,
        client: Optional[AsyncClient] = None,
    ) -> None:
        limits = Limits(template, memory, cpus, lifetime, None, environment, host_name)
        self._life = _wire.Life(limits, timeout, output_limit)
        self._client = client
        self._cell: Optional[AsyncCell] = None
        self._said: Optional[AsyncGenerator[_wire.Said, None]] = None
        self._owns_client = client is None
        self._lock = _Lock()

    async def start(self) -> AsyncSandbox:
        """Starts the cell, which the first run does otherwise. Once is enough."""
        async with self._lock.get():
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
        """Runs code, and returns what became of it. What it prints is given to `on_stdout` and `on_stderr` as it comes.

        Raises SandboxEnded if the cell has ended before. If this is interrupted (Ctrl-C), the cell is ended.
        """
        async with self._lock.get():
            run = self._life.begin(timeout, on_stdout, on_stderr)
            cell = await self._open()
            try:
                async with _deadline(run, cell):
                    is_refused = await self._exchange(run, cell, code)
                self._life.finish(run, is_refused)
                # What ended took all with it; otherwise, what it has by now.
                return run.result(None if run.outcome else await cell.info())
            except BaseException:
                await self._end("a run was interrupted")
                raise

    async def close(self) -> None:
        """Ends the cell."""
        await self._end("it was closed")

    @property
    def cell(self) -> Optional[AsyncCell]:
        """The cell, once it is started."""
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
            client = self._client = self._client or AsyncClient()
            limits = self._life.limits
            await client._ensure(limits.template)
            self._cell = AsyncCell(client, (await client._do(_wire.start(limits, (), None))).id)
            self._life.number = self._cell.id
        return self._cell

    async def _exchange(self, run: _wire.Run, cell: AsyncCell, code: str) -> bool:
        """Hands the code over, and listens until it is done. Returns whether it was refused: the cell has ended."""
        is_refused = False
        # Whoever listens from the beginning misses nothing.
        said = self._said = self._said or await cell._said()
        try:
            await cell.write(_wire.code_line(code))
        except (WrongState, NoSuchCell):
            is_refused = True
        async for each in said:
            if run.take(each):
                await cell.kill()
            if run.is_done:
                break
        return is_refused

    async def _end(self, why: str) -> None:
        self._life.end(why)
        # Also where the task is being cancelled.
        await asyncio.shield(self._discard())

    async def _discard(self) -> None:
        said, self._said = self._said, None
        try:
            if self._cell is not None:
                await self._cell.remove()
            if said is not None:
                await said.aclose()
        except (Error, RuntimeError):
            # The server has gone, the client is closed, or a run listens still: nothing is left to be done.
            pass
        if self._owns_client and self._client is not None:
            await self._client.close()

    def __del__(self) -> None:
        if self._cell is not None and self._life.over is None:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self)


class _Lock:
    """A lock that is made when it is needed first: before Python 3.10, it belongs to the loop that runs then."""

    def __init__(self) -> None:
        self._lock: Optional[asyncio.Lock] = None

    def get(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock


@asynccontextmanager
async def _deadline(run: _wire.Run, cell: AsyncCell) -> AsyncIterator[None]:
    """Kills the cell when the time is up."""

    async def expire(seconds: float) -> None:
        await asyncio.sleep(seconds)
        if run.expire():
            try:
                await cell.kill()
            except (Error, RuntimeError):
                # Whoever listens learns what is wrong.
                pass

    if run.timeout is None:
        yield
        return
    timer = asyncio.ensure_future(expire(run.timeout))
    try:
        yield
    finally:
        timer.cancel()


async def arun(
    code: str,
    *,
    template: str = "python",
    arguments: Sequence[str] = (),
    stdin: Union[str, bytes, None] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    timeout: Optional[float] = None,
    environment: Optional[Mapping[str, str]] = None,
    output_limit: Optional[int] = None,
    host_name: Optional[str] = None,
) -> Result:
    """Runs code in a fresh clone of the template, which ends with it: see `AsyncClient.run`.

    Whoever runs much shares an AsyncClient instead: this makes one each time.
    """
    async with AsyncClient() as client:
        return await client.run(
            code,
            template=template,
            arguments=arguments,
            stdin=stdin,
            memory=memory,
            cpus=cpus,
            timeout=timeout,
            environment=environment,
            output_limit=output_limit,
            host_name=host_name,
        )
