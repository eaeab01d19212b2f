# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client, and sandboxes, for code that waits."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Set, Type, TypeVar, Union

import httpx

from . import _server, _wire
from ._types import (
    CellInfo,
    ConnectionLost,
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


class Client:
    """Speaks to the server (`pando serve`) on its Unix socket; threads may share it.

    Where nobody listens, one is started, unless `start` is False: the program that the variable PANDO names, or `pando`
    in PATH. It goes on when this process ends, for the next one.

    >>> with pando.Client() as client:
    ...     client.run("print(1)").stdout
    '1\\n'
    """

    def __init__(self, socket: Union[str, Path, None] = None, start: bool = True) -> None:
        self._path = Path(socket).absolute() if socket is not None else None
        self._starts = start
        self._known: Set[str] = set()
        self._making = threading.Lock()
        self.socket = self._path or _server.place()
        # Each sandbox keeps a connection.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
        transport = httpx.HTTPTransport(uds=str(self.socket), limits=limits, verify=False)
        self._http = httpx.Client(transport=transport, base_url="http://pando", timeout=None, trust_env=False)

    def run(
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
        self._ensure(template)
        return self._do(_wire.run(limits, [code, *arguments], stdin))

    def start(
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
    ) -> Cell:
        """Starts a clone of a template and lets it run; more standard input can follow."""
        limits = Limits(template, memory, cpus, timeout, output_limit, environment, host_name)
        self._ensure(template)
        return Cell(self, self._do(_wire.start(limits, arguments, stdin)).id)

    def info(self) -> ServerInfo:
        """What the server is, and what it has."""
        return self._do(_wire.server_info())

    def templates(self) -> List[Template]:
        """The templates that are kept."""
        return self._do(_wire.templates())

    def template(self, name: str) -> Template:
        """The template of this name."""
        return self._do(_wire.template(name))

    def create_template(
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

        >>> client.create_template("adder", ["python3", "-c", "import pando, sys; pando.ready(); print(sys.argv[1])"])
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
        return self._do(_wire.create_template(recipe))

    def remove_template(self, name: str) -> None:
        """Removes a template; its clones go on."""
        self._known.discard(name)
        self._do(_wire.remove_template(name))

    def cells(self) -> List[CellInfo]:
        """The cells that run, and the last that ended."""
        return self._do(_wire.cells())

    def cell(self, number: int) -> Cell:
        """The cell of this number, which anybody may have started."""
        return Cell(self, self._do(_wire.cell(number)).id)

    def close(self) -> None:
        """Lets the connections go. Cells and the server go on."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client at {str(self.socket)!r}>"

    def _do(self, operation: _wire.Operation[T]) -> T:
        with told():
            response = self._send(operation, stream=False)
        return _wire.answer(operation, response.status_code, response.content)

    def _stream(self, operation: _wire.Operation[None]) -> Iterator[_wire.Said]:
        with told():
            response = self._send(operation, stream=True)
            if response.status_code != 200:
                _wire.answer(operation, response.status_code, response.read())
        return _pieces(response)

    def _send(self, operation: _wire.Operation[T], stream: bool) -> httpx.Response:
        request = self._http.build_request(
            operation.method, operation.path, content=operation.body, params=operation.params, headers=operation.headers
        )
        try:
            return self._http.send(request, stream=stream)
        except httpx.ConnectError as error:
            if not self._starts:
                raise ServerMissing(f"nobody listens at {self.socket}: start `pando serve`") from error
        _server.start(self._path)
        return self._http.send(request, stream=stream)

    def _ensure(self, name: str) -> None:
        """Makes a standard template that is not there, and says so: it takes a while."""
        if name not in _wire.STANDARD or name in self._known:
            return
        with self._making:
            if name in self._known:
                return
            try:
                self.template(name)
            except NoSuchTemplate:
                try:
                    with _wire.telling(name):
                        self.create_template(name)
                except TemplateExists:
                    # Another process was quicker.
                    pass
            self._known.add(name)


def _pieces(response: httpx.Response) -> Iterator[_wire.Said]:
    lines = _wire.Lines()
    with told():
        try:
            for data in response.iter_raw():
                yield from lines.add(data)
        finally:
            response.close()


class Cell:
    """A cell: a clone that runs, or has ended and is remembered. As a context manager, it is removed in the end.

    >>> with client.start("python", ["print(input())"]) as cell:
    ...     cell.write("hello", end=True)
    ...     [piece.text for piece in cell.output()]
    ['hello\\n']
    """

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self.id = number

    def output(self, follow: bool = True, first: int = 0) -> Iterator[Piece]:
        """What it says, piece by piece from the given one on, until it ends, or with `follow=False` until now.

        The server remembers the last MiB, or as much as it may say; who follows misses nothing from then on, because the
        cell waits for who reads slowly.
        """
        for said in self._said(follow, first):
            if isinstance(said, Piece):
                yield said

    def write(self, data: Union[str, bytes], end: bool = False) -> None:
        """Gives it standard input, and waits until it is taken. `end`: nothing follows."""
        self._client._do(_wire.write(self.id, data.encode() if isinstance(data, str) else data, end))

    def wait(self, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Waits until it has ended, or so many seconds; None if it has not."""
        return self._client._do(_wire.wait(self.id, timeout))

    def kill(self, signal: Signal = "kill") -> None:
        """Ends it, or asks its program to: by "terminate" (SIGTERM) or "interrupt" (SIGINT). What it said can be read."""
        self._client._do(_wire.kill(self.id, signal))

    def freeze(self, name: str, *, force: bool = False, replace: bool = False) -> Template:
        """Makes a template of it, as it is now: it does not go on, but its clones do.

        `force`: stops it as it stands, and does not ask its library OS, so that nothing promises that its clones' random
        numbers are distinct.
        """
        return self._client._do(_wire.freeze(self.id, name, force, replace))

    def remove(self) -> None:
        """Ends it, and forgets it with all that it said."""
        try:
            self._client._do(_wire.remove(self.id))
        except NoSuchCell:
            pass

    def info(self) -> CellInfo:
        """What it has and takes now, and how it ended."""
        return self._client._do(_wire.cell(self.id))

    def __enter__(self) -> Cell:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Cell {self.id}>"

    def _said(self, follow: bool = True, first: int = 0) -> Iterator[_wire.Said]:
        return self._client._stream(_wire.output(self.id, first, follow))


class Sandbox:
    """A cell of its own, whose Python runs one piece of code after the other in the same namespace.

    `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds) and `output_limit` (bytes) each run. What
    exceeds a limit ends the cell: the result says so, and later runs raise SandboxEnded.

    >>> with pando.Sandbox(memory="256M", timeout=5) as s:
    ...     s.run("x = 6")
    ...     s.run("print(x * 7)").stdout
    '42\\n'
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
        client: Optional[Client] = None,
    ) -> None:
        limits = Limits(template, memory, cpus, lifetime, None, environment, host_name)
        self._life = _wire.Life(limits, timeout, output_limit)
        self._client = client
        self._cell: Optional[Cell] = None
        self._said: Optional[Iterator[_wire.Said]] = None
        self._lock = threading.Lock()
        self._finalizer: Optional[Callable[[], object]] = None

    def start(self) -> Sandbox:
        """Starts the cell, which the first run does otherwise. Once is enough."""
        with self._lock:
            self._open()
        return self

    def run(
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
        with self._lock:
            run = self._life.begin(timeout, on_stdout, on_stderr)
            cell = self._open()
            try:
                with _deadline(run, cell):
                    is_refused = self._exchange(run, cell, code)
                self._life.finish(run, is_refused)
                # What ended took all with it; otherwise, what it has by now.
                return run.result(None if run.outcome else cell.info())
            except BaseException:
                self._end("a run was interrupted")
                raise

    def close(self) -> None:
        """Ends the cell."""
        self._end("it was closed")

    @property
    def cell(self) -> Optional[Cell]:
        """The cell, once it is started."""
        return self._cell

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return self._life.describe("Sandbox")

    def _open(self) -> Cell:
        self._life.check()
        if self._cell is None:
            client = self._client or default_client()
            limits = self._life.limits
            client._ensure(limits.template)
            self._cell = Cell(client, client._do(_wire.start(limits, (), None)).id)
            self._life.number = self._cell.id
            # Nobody forgets it for good.
            self._finalizer = weakref.finalize(self, _discard, self._cell, os.getpid())
        return self._cell

    def _exchange(self, run: _wire.Run, cell: Cell, code: str) -> bool:
        """Hands the code over, and listens until it is done. Returns whether it was refused: the cell has ended."""
        is_refused = False
        # Whoever listens from the beginning misses nothing.
        said = self._said = self._said or cell._said()
        try:
            cell.write(_wire.code_line(code))
        except (WrongState, NoSuchCell):
            is_refused = True
        for each in said:
            if run.take(each):
                cell.kill()
            if run.is_done:
                break
        return is_refused

    def _end(self, why: str) -> None:
        self._life.end(why)
        self._said = None
        if self._finalizer:
            self._finalizer()


@contextmanager
def _deadline(run: _wire.Run, cell: Cell) -> Iterator[None]:
    """Kills the cell when the time is up."""

    def expire() -> None:
        if run.expire():
            try:
                cell.kill()
            except (Error, RuntimeError):
                # Whoever listens learns what is wrong.
                pass

    if run.timeout is None:
        yield
        return
    timer = threading.Timer(run.timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def told() -> Iterator[None]:
    """Errors of the transport, in our words."""
    try:
        yield
    except httpx.TransportError as error:
        raise ConnectionLost(f"the server went away: {error or type(error).__name__}") from error


def _discard(cell: Cell, process: int) -> None:
    if os.getpid() != process:
        # A child's copy of the sandbox.
        return
    try:
        cell.remove()
    except (Error, RuntimeError):
        # The server has gone, or the client is closed: nothing is left to be done.
        pass


_defaults: List[Client] = []
_defaulting = threading.Lock()


def default_client() -> Client:
    """The client of those who name none, at the usual socket."""
    with _defaulting:
        # Whoever changes where servers are means it.
        if not _defaults or _defaults[-1].socket != _server.place():
            _defaults.append(Client())
        return _defaults[-1]


@atexit.register
def _forget() -> None:
    while _defaults:
        _defaults.pop().close()


# Connections are not for children to share.
os.register_at_fork(after_in_child=_defaults.clear)


def run(
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
    """Runs code in a fresh clone of the template, which ends with it: see `Client.run`.

    >>> pando.run("print(1)", memory="64M", timeout=5).stdout
    '1\\n'
    """
    return default_client().run(
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
