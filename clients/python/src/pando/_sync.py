# SPDX-License-Identifier: MIT OR Apache-2.0
"""The blocking client and sandboxes: the asyncio ones, whose steps block here (see `_io`)."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncContextManager,
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generic,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    overload,
)

from . import _server
from ._async import AsyncClient
from ._cell import AsyncCell
from ._commands import AsyncCommands
from ._files import AsyncFiles
from ._handle import AsyncCommandHandle
from ._io import Threads, done
from ._pty import AsyncPty, AsyncPtyHandle
from ._recipe import Recipe
from ._sandbox import AsyncSandbox, check_paused
from ._template import build
from ._text import OnText
from ._types import ExecResult, Options, Piece, Result, SandboxOptions
from ._watch import AsyncWatch, FilesystemEvent

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Self, Unpack

    from ._template import BuildOptions

    P = ParamSpec("P")

A = TypeVar("A", bound=AsyncContextManager[Any])
T = TypeVar("T")
U = TypeVar("U")


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Turns an asynchronous method into a blocking one."""

    @functools.wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return done(method(self._steps, *args, **kwargs))

    return wait


def _gives(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], kind: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """Like `_waits`, for a method whose result is wrapped in a blocking class."""

    @functools.wraps(method)
    async def give(steps: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return kind(await method(steps, *args, **kwargs))

    return _waits(give)


def _bytes_of(pieces: AsyncIterator[bytes]) -> Iterator[bytes]:
    return _each(pieces)


class _Waiting(Generic[A]):
    """A blocking wrapper of an asynchronous object."""

    def __init__(self, steps: A) -> None:
        self._steps = steps

    def __enter__(self) -> Self:
        done(self._steps.__aenter__())
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        done(self._steps.__aexit__(kind, error, where))

    def __repr__(self) -> str:
        return repr(self._steps).replace("Async", "", 1)


class _Client(AsyncClient):
    io = Threads()


class Cell(_Waiting[AsyncCell]):
    """A cell: a clone that runs, or has ended and is still listed. As a context manager, it is removed on exit.

    >>> with client.start("python", ["print(input())"]) as cell:
    ...     cell.write("hello", end=True)
    ...     [piece.text for piece in cell.output()]
    ['hello\\n']
    """

    write = _waits(AsyncCell.write)
    exec = _waits(AsyncCell.exec)
    read_file = _waits(AsyncCell.read_file)
    write_file = _waits(AsyncCell.write_file)
    start_program = _gives(AsyncCell.start_program, lambda handle: CommandHandle(handle))
    read_stream = _gives(AsyncCell.read_stream, _bytes_of)
    set_timeout = _waits(AsyncCell.set_timeout)
    wait = _waits(AsyncCell.wait)
    kill = _waits(AsyncCell.kill)
    freeze = _waits(AsyncCell.freeze)
    remove = _waits(AsyncCell.remove)
    info = _waits(AsyncCell.info)

    def fork(self, count: int = 1) -> List[Cell]:
        """Starts forks that continue where its programs wait. It goes on itself. See `AsyncCell.fork`."""
        return [Cell(copy) for copy in done(self._steps.fork(count))]

    @property
    def id(self) -> int:
        """Its number, which is never reused."""
        return self._steps.id

    def output(self, follow: bool = True, first: int = 0) -> Iterator[Piece]:
        """Its output from byte `first` on, piece by piece, until it ends, or with `follow=False` up to now.

        See `AsyncCell.output`.
        """
        return _each(self._steps.output(follow, first))


class CommandHandle(_Waiting[AsyncCommandHandle]):
    """A program that runs in a cell in the background: see `AsyncCommandHandle`."""

    wait = _waits(AsyncCommandHandle.wait)
    send_stdin = _waits(AsyncCommandHandle.send_stdin)
    close_stdin = _waits(AsyncCommandHandle.close_stdin)
    kill = _waits(AsyncCommandHandle.kill)
    close = _waits(AsyncCommandHandle.close)

    @property
    def pid(self) -> int:
        """Its number in its cell."""
        return self._steps.pid

    def __iter__(self) -> Iterator[Tuple[Optional[str], Optional[str]]]:
        """Its output as it arrives: pairs of standard output and standard error, of which one is None."""
        return _each(self._steps.__aiter__())


class PtyHandle(_Waiting[AsyncPtyHandle]):
    """A program with a terminal: see `AsyncPtyHandle`."""

    wait = _waits(AsyncPtyHandle.wait)
    send_stdin = _waits(AsyncPtyHandle.send_stdin)
    resize = _waits(AsyncPtyHandle.resize)
    kill = _waits(AsyncPtyHandle.kill)
    close = _waits(AsyncPtyHandle.close)

    @property
    def pid(self) -> int:
        """Its number in its cell."""
        return self._steps.pid

    def __iter__(self) -> Iterator[str]:
        """Its output as it arrives."""
        return _each(self._steps.__aiter__())


class Pty:
    """Terminals in a sandbox: see `AsyncPty`."""

    def __init__(self, steps: AsyncPty) -> None:
        self._steps = steps

    create = _gives(AsyncPty.create, PtyHandle)


class Client(_Waiting[AsyncClient]):
    """A client of the server (`pando serve`) on its Unix socket; threads may share it.

    If no server listens, one is started, unless `start` is False: the program that the variable PANDO names, or `pando`
    in PATH. The server keeps running when this process ends.

    If a virtual environment is active here, the template "python" stands for its Python: see `AsyncClient`.

    >>> with pando.Client() as client:
    ...     client.run("print(1)").stdout
    '1\\n'
    """

    def __init__(
        self, socket: Union[str, Path, None] = None, start: bool = True, virtual_environment: bool = True
    ) -> None:
        super().__init__(_Client(socket, start, virtual_environment))

    run = _waits(AsyncClient.run)
    start = _gives(AsyncClient.start, Cell)
    info = _waits(AsyncClient.info)
    templates = _waits(AsyncClient.templates)
    template = _waits(AsyncClient.template)
    create_template = _waits(AsyncClient.create_template)
    remove_template = _waits(AsyncClient.remove_template)
    cells = _waits(AsyncClient.cells)
    cell = _gives(AsyncClient.cell, Cell)
    close = _waits(AsyncClient.close)

    @property
    def socket(self) -> Path:
        """The path of the server's socket."""
        return self._steps.socket


class Sandbox(_Waiting[AsyncSandbox]):
    """A separate cell, whose Python runs one piece of code after the other in the same namespace.

    The options are those of `SandboxOptions`: `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds)
    and `output_limit` (bytes) limit each run. A run that takes longer than `timeout` is interrupted, and the sandbox goes
    on; exceeding another limit ends the cell: the result contains the reason, and later runs raise SandboxEnded.

    >>> with pando.Sandbox(memory="256M", timeout=5) as s:
    ...     s.run("x = 6")
    ...     s.run("print(x * 7)").stdout
    '42\\n'
    """

    def __init__(self, template: str = "python", *, client: Optional[Client] = None, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(AsyncSandbox(template, client=(client or default_client())._steps, **options))
        # Ends the cell even if the caller never closes the sandbox.
        weakref.finalize(self, _close_sandbox, self._steps)

    run = _waits(AsyncSandbox.run)
    run_code = _waits(AsyncSandbox.run_code)
    create_code_context = _waits(AsyncSandbox.create_code_context)
    list_code_contexts = _waits(AsyncSandbox.list_code_contexts)
    remove_code_context = _waits(AsyncSandbox.remove_code_context)
    interrupt = _waits(AsyncSandbox.interrupt)
    exec = _waits(AsyncSandbox.exec)
    read_file = _waits(AsyncSandbox.read_file)
    write_file = _waits(AsyncSandbox.write_file)
    pause = _waits(AsyncSandbox.pause)
    snapshot = _waits(AsyncSandbox.snapshot)
    restore = _waits(AsyncSandbox.restore)
    checkpoint = _waits(AsyncSandbox.checkpoint)
    rewind = _waits(AsyncSandbox.rewind)
    url = _waits(AsyncSandbox.url)
    set_timeout = _waits(AsyncSandbox.set_timeout)
    close = _waits(AsyncSandbox.close)

    def fork(self, count: int = 1) -> List[Sandbox]:
        """Returns forks of it, which have its namespace, its files and its options. It goes on itself.

        See `AsyncSandbox.fork`.

        >>> with pando.Sandbox() as s:
        ...     s.run("x = 6")
        ...     one, other = s.fork(2)
        """
        return [Sandbox._of(steps) for steps in done(self._steps.fork(count))]

    @staticmethod
    def _of(steps: AsyncSandbox) -> Sandbox:
        sandbox = Sandbox.__new__(Sandbox)
        _Waiting.__init__(sandbox, steps)
        weakref.finalize(sandbox, _close_sandbox, steps)
        return sandbox

    @property
    def checkpoints(self) -> List[int]:
        """The numbers of its checkpoints."""
        return self._steps.checkpoints

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self._steps.files)

    @property
    def commands(self) -> Commands:
        """Commands of a shell in it."""
        return Commands(self._steps.commands)

    @property
    def pty(self) -> Pty:
        """Terminals in it."""
        return Pty(self._steps.pty)

    @classmethod
    def resume(cls, id: str, *, client: Optional[Client] = None, **options: Unpack[SandboxOptions]) -> Sandbox:
        """Continues a paused sandbox: see `AsyncSandbox.resume`."""
        check_paused(id)
        sandbox = cls(id, client=client, **options).start()
        sandbox._steps._stored = id
        return sandbox

    def start(self) -> Self:
        """Starts the cell, unless it is started already. Without this, the first run starts it."""
        done(self._steps.start())
        return self

    @property
    def cell(self) -> Optional[Cell]:
        """The cell; None before it is started."""
        return Cell(self._steps.cell) if self._steps.cell else None


class Template(Recipe):
    """A recipe of a template: each method returns a recipe with one more step, and `build` executes them.

    The template is kept, and found again by the recipe: its steps, the content of the files that it copies, and its image.

    >>> name = pando.Template().pip_install("pandas").preload("pandas").build()
    >>> with pando.Sandbox(name) as s:
    ...     s.run("import pandas")
    """

    def build(self, *, client: Optional[Client] = None, **options: Unpack[BuildOptions]) -> str:
        """Builds the template, unless there is one of the same recipe, and returns its name.

        `memory` is the limit of the cell in which the steps run, and the default one of clones. `timeout` (seconds) limits all
        steps together. `allow` names the destinations that the steps may reach, as for cells; by default "public" if a step
        installs packages from a network, otherwise none. `on_output` receives the steps' output. `force` builds it again.
        Raises BuildError if a step fails. `remove_template` of the client removes the template.
        """
        return done(build(self, (client or default_client())._steps, **options))


class Files:
    """The files of a sandbox: see `AsyncFiles`."""

    def __init__(self, steps: AsyncFiles) -> None:
        self._steps = steps

    read = _waits(AsyncFiles.read)
    read_bytes = _waits(AsyncFiles.read_bytes)
    read_stream = _gives(AsyncFiles.read_stream, _bytes_of)
    write = _waits(AsyncFiles.write)
    write_files = _waits(AsyncFiles.write_files)
    list = _waits(AsyncFiles.list)
    exists = _waits(AsyncFiles.exists)
    get_info = _waits(AsyncFiles.get_info)
    make_dir = _waits(AsyncFiles.make_dir)
    rename = _waits(AsyncFiles.rename)
    remove = _waits(AsyncFiles.remove)
    watch = _gives(AsyncFiles.watch, lambda watch: Watch(watch))
    upload = _waits(AsyncFiles.upload)
    download = _waits(AsyncFiles.download)


class Watch(_Waiting[AsyncWatch]):
    """Events of files, as they come: see `AsyncWatch`."""

    close = _waits(AsyncWatch.close)

    def __iter__(self) -> Iterator[FilesystemEvent]:
        return _each(self._steps.__aiter__())


class Commands:
    """Commands of a shell: see `AsyncCommands`."""

    def __init__(self, steps: AsyncCommands) -> None:
        self._steps = steps

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[False] = False,
        *,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin: Union[bool, str, bytes] = False,
        timeout: Optional[float] = None,
        output_limit: Optional[int] = None,
    ) -> ExecResult: ...

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[True],
        *,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        stdin: bool = False,
        timeout: Optional[float] = None,
        output_limit: Optional[int] = None,
    ) -> CommandHandle: ...

    def run(self, cmd: str, background: bool = False, **options: Any) -> Union[ExecResult, CommandHandle]:
        """Runs a command of the shell: see `AsyncCommands.run`."""
        ran = done(self._steps._start(cmd, background, **options))
        return CommandHandle(ran) if isinstance(ran, AsyncCommandHandle) else ran


def _each(pieces: AsyncIterator[T]) -> Iterator[T]:
    """The pieces of a response, one after the other."""
    try:
        while True:
            yield done(_next(pieces))
    except StopAsyncIteration:
        pass
    finally:
        done(_close(pieces))


async def _next(pieces: AsyncIterator[T]) -> T:
    return await pieces.__anext__()


async def _close(pieces: AsyncIterator[T]) -> None:
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()


def _close_sandbox(steps: AsyncSandbox) -> None:
    done(steps.close())


_defaults: List[Client] = []
_defaulting = threading.Lock()


def default_client() -> Client:
    """Returns the default client, at the default socket."""
    with _defaulting:
        # The environment may have changed the default socket.
        if not _defaults or _defaults[-1].socket != _server.place():
            _defaults.append(Client())
        return _defaults[-1]


@atexit.register
def _close_defaults() -> None:
    while _defaults:
        _defaults.pop().close()


# Child processes must not share connections.
os.register_at_fork(after_in_child=_defaults.clear)


def run(
    code: str,
    *,
    template: str = "python",
    arguments: Sequence[str] = (),
    stdin: Union[str, bytes, None] = None,
    **options: Unpack[Options],
) -> Result:
    """Runs code in a new clone of the template, which ends with the code: see `Client.run`.

    >>> pando.run("print(1)", memory="64M", timeout=5).stdout
    '1\\n'
    """
    return default_client().run(code, template=template, arguments=arguments, stdin=stdin, **options)
