# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client for asyncio."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, List, Mapping, Optional, Sequence, Set, Type, TypeVar, Union

import httpx

from . import _server, _venv, _wire
from ._cell import AsyncCell
from ._errors import NoSuchTemplate, ServerError, ServerMissing, TemplateExists, UnusableTemplate
from ._io import Http, Io, Tasks
from ._stream import ResponseLines, translated
from ._types import CellInfo, Options, Result, ServerInfo, TemplateInfo, TemplateOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient:
    """A client of the server (`pando serve`) on its Unix socket, for one event loop; tasks may share it.

    If no server listens, one is started, unless `start` is False: the program that the variable PANDO names, or `pando`
    in PATH. The server keeps running when this process ends.

    If a virtual environment is active here (the variable VIRTUAL_ENV, or that of this Python), the template "python" stands
    for its Python: code finds its packages. `virtual_environment=False` ignores it.

    >>> async with pando.AsyncClient() as client:
    ...     results = await asyncio.gather(*(client.run(f"print({n})") for n in range(20)))
    """

    io: Io = Tasks()

    def __init__(
        self, socket: Union[str, Path, None] = None, start: bool = True, virtual_environment: bool = True
    ) -> None:
        self._environment = _venv.active() if virtual_environment else None
        self._path = Path(socket).absolute() if socket is not None else None
        self._starts = start
        self._known: Set[str] = set()
        self._hidden: Set[Path] = set()
        self._making = self.io.lock()
        self.socket = self._path or _server.place()
        # Each sandbox occupies a connection.
        self._http = self.io.http(self.socket, httpx.Limits(max_connections=None, max_keepalive_connections=16))

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
        request = _wire.CloneRequest(template, [code, *arguments], stdin, options)
        return await self._cloned(_wire.run, request)

    async def start(
        self,
        template: str = "python",
        arguments: Sequence[str] = (),
        *,
        stdin: Union[str, bytes, None] = None,
        **options: Unpack[Options],
    ) -> AsyncCell:
        """Starts a clone of a template; more standard input can follow. The options are those of `Options`."""
        return await self.start_clone(_wire.CloneRequest(template, arguments, stdin, options))

    async def info(self) -> ServerInfo:
        """Returns the server's version and resources."""
        return await self.do(_wire.server_info())

    async def templates(self) -> List[TemplateInfo]:
        """Lists all templates."""
        return await self.do(_wire.templates())

    async def template(self, name: str) -> TemplateInfo:
        """Returns the template of this name."""
        return await self.do(_wire.template(name))

    async def create_template(
        self, name: str, arguments: Sequence[str] = (), **options: Unpack[TemplateOptions]
    ) -> TemplateInfo:
        """Starts a program, waits until it reports that it is ready, and stores it as a template of this name.

        The options are those of `TemplateOptions`, as in `pando template create`. Without `arguments`, creates the standard
        template of this name. A program reports that it is ready by `import pando; pando.ready()`.
        """
        return await self.do(_wire.create_template(name, arguments, options))

    async def remove_template(self, name: str) -> None:
        """Removes a template; its clones keep running."""
        self._known.discard(name)
        await self.do(_wire.remove_template(name))

    async def cells(self, labels: Optional[Mapping[str, str]] = None) -> List[CellInfo]:
        """Lists the running cells, and the last that ended. `labels`: only those that have all of these."""
        wanted = (labels or {}).items()
        return [cell for cell in await self.do(_wire.cells()) if wanted <= cell.labels.items()]

    async def cell(self, number: int) -> AsyncCell:
        """Returns the cell of this number, which any client may have started."""
        return AsyncCell(self, (await self.do(_wire.cell(number))).id)

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

    async def start_clone(self, request: _wire.CloneRequest) -> AsyncCell:
        """Starts a clone."""
        return AsyncCell(self, await self._cloned(_wire.start, request))

    async def do(self, operation: _wire.Operation[T]) -> T:
        """Sends a request, and returns its response."""
        with translated():
            response = await self._send(operation)
            body = await self._http.read(response)
        return _wire.answer(operation, response.status_code, body)

    async def stream(self, operation: _wire.Operation[None], read: Callable[[Any], T]) -> ResponseLines[T]:
        """Sends a request whose response is lines, and returns them."""
        with translated():
            response = await self._send(operation)
            if response.status_code != 200:
                _wire.answer(operation, response.status_code, await self._http.read(response))
        return ResponseLines(self._http, response, read)

    async def stream_bytes(self, operation: _wire.Operation[bytes]) -> AsyncIterator[bytes]:
        """Sends a request whose response is bytes, and returns their pieces."""
        with translated():
            response = await self._send(operation)
            if response.status_code != 200:
                _wire.answer(operation, response.status_code, await self._http.read(response))
        return _pieces(self._http, response)

    async def _send(self, operation: _wire.Operation[T]) -> httpx.Response:
        request = self._http.build_request(
            operation.method, operation.path, content=self._http.content(operation.body), params=operation.params, headers=operation.headers
        )
        try:
            return await self._http.send(request)
        except httpx.ConnectError as error:
            if not self._starts:
                raise ServerMissing(f"no server is running at {self.socket}: start `pando serve`") from error
        await self.io.call(lambda: _server.start(self._path))
        return await self._http.send(request)

    async def _cloned(self, operation: Callable[[_wire.CloneRequest], _wire.Operation[T]], request: _wire.CloneRequest) -> T:
        """Sends a request for a clone."""
        if request.template not in _wire.STANDARD:
            return await self.do(operation(request))
        if self._environment is not None:
            name, _ = _venv.template(self._environment)
            if await self._ensure_environment(self._environment, False):
                try:
                    return await self.do(operation(replace(request, template=name)))
                except (NoSuchTemplate, UnusableTemplate):
                    # Its packages have changed.
                    self._known.discard(name)
                if await self._ensure_environment(self._environment, True):
                    return await self.do(operation(replace(request, template=name)))
        await self._ensure(request.template)
        return await self.do(operation(request))

    async def _ensure_environment(self, place: Path, outdated: bool) -> bool:
        """Creates the template of a virtual environment, if it is missing or outdated. Returns False if the server cannot create it."""
        name, prefix = _venv.template(place)
        async with self._making.held():
            if name in self._known or place in self._hidden:
                return place not in self._hidden
            if outdated or not await self._has_template(name):
                try:
                    with reported(name, f"the virtual environment {place}"):
                        words = [str(_venv.python(place)), "-m", "pando"]
                        # Named as a volume, so that a server that cannot see it refuses.
                        shown = [f"{place}:{place}"]
                        await self.create_template(
                            name, words, volumes=shown, memory="1G", train_arguments=[_wire.TRAINING], replace=True
                        )
                except ServerError as error:
                    self._hidden.add(place)
                    print(f"pando: code sees the host's Python instead: {error}", file=sys.stderr, flush=True)
                    return False
                await self._remove_older(prefix, name)
            self._known.add(name)
            return True

    async def _remove_older(self, prefix: str, name: str) -> None:
        """Removes the templates of an environment's earlier packages."""
        for other in await self.templates():
            if other.name.startswith(prefix) and other.name != name:
                try:
                    await self.do(_wire.remove_template(other.name))
                except NoSuchTemplate:
                    # Another process has removed it.
                    pass

    async def _has_template(self, name: str) -> bool:
        try:
            await self.template(name)
        except NoSuchTemplate:
            return False
        return True

    async def _ensure(self, name: str) -> None:
        """Creates a missing standard template, and reports that to the user, because it takes a while."""
        async with self._making.held():
            if name in self._known:
                return
            try:
                await self.template(name)
            except NoSuchTemplate:
                try:
                    with reported(name, "this host's Python"):
                        await self.create_template(name)
                except TemplateExists:
                    # Another process has created it first.
                    pass
            self._known.add(name)


async def _pieces(http: Http, response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        with translated():
            async for piece in http.parts(response):
                yield piece
    finally:
        await http.end(response)


@contextmanager
def reported(name: str, source: str) -> Iterator[None]:
    """Reports a slow operation to the user."""
    since = time.monotonic()
    print(f'pando: creating the template "{name}" from {source}, once...', file=sys.stderr, flush=True)
    yield
    print(f"pando: done in {time.monotonic() - since:.1f} s", file=sys.stderr, flush=True)


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
