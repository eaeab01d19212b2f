# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sandboxes for asyncio."""

from __future__ import annotations

import uuid
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, AsyncIterator, Iterable, List, Optional, Sequence, Union

from . import _wire
from ._async import AsyncClient
from ._cell import AsyncCell
from ._code import SandboxCode
from ._commands import AsyncCommands
from ._errors import NoSuchCell, NoSuchTemplate, ServerError, WrongState, refusal
from ._files import AsyncFiles
from ._pty import AsyncPty
from ._session import OUTPUT_MAX
from ._text import OnText
from ._types import ExecOptions, ExecResult, SandboxOptions, TemplateInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack


_PAUSED = "paused-"
_CHECKPOINT = "checkpoint-"


class AsyncSandbox(SandboxCode):
    """A separate cell, whose Python runs one piece of code after the other in the same namespace.

    The options are those of `SandboxOptions`: `memory`, `cpus` and `lifetime` (seconds) limit the cell; `timeout` (seconds)
    and `output_limit` (bytes) limit each run. A run that takes longer than `timeout` is interrupted, and the sandbox goes
    on; exceeding another limit ends the cell: the result contains the reason, and later runs raise SandboxEnded.

    >>> async with pando.AsyncSandbox(memory="256M", timeout=5) as s:
    ...     await s.run("x = 6")
    ...     print((await s.run("print(x * 7)")).stdout)
    """

    _interpreter: Optional[str] = None

    @property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self)

    @property
    def commands(self) -> AsyncCommands:
        """Commands of a shell in it."""
        return AsyncCommands(self)

    @property
    def pty(self) -> AsyncPty:
        """Terminals in it."""
        return AsyncPty(self)

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

        Its default timeout and output limit are those of a run; they end the program, and the cell continues.
        """
        if self._state.timeout is not None:
            options.setdefault("timeout", self._state.timeout)
        options.setdefault("output_limit", OUTPUT_MAX if self._state.output_limit is None else self._state.output_limit)
        cell = await self._started()
        async with self._busy():
            return await cell.exec(arguments, stdin=stdin, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    async def fork(self, count: int = 1) -> List[AsyncSandbox]:
        """Returns forks of it, which have its namespace, its files and its options. It goes on itself.

        Each fork has random numbers and a lifetime of its own, and no published ports. Waits until no run is in progress.
        Raises WrongState if its programs do not pause within ten seconds.

        >>> async with pando.AsyncSandbox() as s:
        ...     await s.run("x = 6")
        ...     one, other = await s.fork(2)
        ...     await one.run("x += 1"), await other.run("print(x)")
        """
        async with self._lock.held():
            await self._open()
            forks = [self._fork_of(cell.id) for cell in await self._forked(count)]
        for fork in forks:
            await fork._rearm()
        return forks

    def _fork_of(self, number: int) -> AsyncSandbox:
        # A client that belongs to this sandbox is closed with it.
        client = type(self._client)(self._client.socket, start=False, virtual_environment=False) if self._owns_client else self._client
        fork = AsyncSandbox(self._state.clone_request.template, client=client)
        fork._owns_client, fork._cell, fork._state = self._owns_client, AsyncCell(client, number), self._state.forked(number)
        return fork

    async def read_file(self, path: str, *, max_bytes: Optional[int] = None) -> bytes:
        """Returns the content of a file in the cell; the path is absolute. Raises NoSuchFile if it cannot be read.

        `max_bytes`: raises an error if it has more. A program in the cell may make it as large as it likes.
        """
        cell = await self._started()
        async with self._busy():
            return await cell.read_file(path, max_bytes=max_bytes)

    async def write_file(self, path: str, data: Union[str, bytes, Iterable[bytes]]) -> None:
        """Writes a file in the cell, or replaces one; the path is absolute. Raises NoSuchFile if it cannot be written."""
        cell = await self._started()
        async with self._busy():
            await cell.write_file(path, data)

    async def pause(self, id: Optional[str] = None) -> str:
        """Stores the sandbox on disk and ends its cell. Returns an ID for `resume`, which any process may call.

        A paused sandbox outlives the service. Its variables, files and processes stay; connections to the outside do not.
        `id` is a new ID, which begins with "paused-": give it to find the sandbox even if this call is interrupted. By default
        it is a random one, or that from which the sandbox was resumed.
        """
        if id is not None:
            check_paused(id)
        async with self._lock.held():
            cell = await self._open()
            older = self._stored
            name = id or older or f"{_PAUSED}{uuid.uuid4().hex[:16]}"
            # It is not removed with this object, unless the server has certainly not stored the new state.
            self._stored = None
            try:
                async with self._checked(cell):
                    await self._client.io.finish(lambda: self._freeze(cell, name, replace=name == older))
            except ServerError:
                self._stored = older
                raise
            # The older state is removed with this object, if the new one did not replace it.
            self._stored = None if name == older else older
        await self._end(f"it was paused: continue it with resume({name!r})")
        return name

    @classmethod
    async def resume(
        cls, id: str, *, client: Optional[AsyncClient] = None, **options: Unpack[SandboxOptions]
    ) -> AsyncSandbox:
        """Continues a paused sandbox. Its random numbers are new. The options are not those of before: give them again.

        When the resumed sandbox is closed, it is also removed from the disk; pause it again to keep it. Raises
        NoSuchTemplate if there is no such paused sandbox.
        """
        check_paused(id)
        sandbox = cls(id, client=client, **options)
        await sandbox.start()
        sandbox._stored = id
        return sandbox

    async def snapshot(self, name: Optional[str] = None) -> str:
        """Stores the present state as a template. Returns its name, for `restore` and for new sandboxes.

        The sandbox itself goes on. The snapshot stays until `remove_template` of the client removes it.
        """
        stored = name or f"snapshot-{uuid.uuid4().hex[:16]}"
        async with self._lock.held():
            await self._open()
            (copy,) = await self._forked(1)
        async with copy:
            made = await self._freeze(copy, stored, replace=False)
        if made.forced:
            warnings.warn(_wire.unaware(stored), RuntimeWarning, stacklevel=2)
        return stored

    async def restore(self, name: str) -> None:
        """Goes back to a snapshot: the sandbox has the variables, files and processes of then, and new random numbers.

        If the sandbox has a name or fixed ports, its cell ends before the new one starts: if that fails, the sandbox has ended.
        """
        async with self._lock.held():
            await self._open()
            await self._replace_cell(name)

    @property
    def checkpoints(self) -> List[int]:
        """The numbers of its checkpoints."""
        return list(range(1, len(self._checkpoints) + 1))

    async def checkpoint(self) -> int:
        """Stores the present state, and returns its number for `rewind`: 1, then 2, and so on. The sandbox goes on.

        Checkpoints are on disk, and are removed when the sandbox ends. A fork has none.

        >>> async with pando.AsyncSandbox() as s:
        ...     await s.run("plan = ['measure']")
        ...     before = await s.checkpoint()
        ...     await s.run("plan.append('cut')")
        ...     await s.rewind(before)
        """
        name = f"{_CHECKPOINT}{uuid.uuid4().hex[:16]}"
        # It is removed with the sandbox even if this call is interrupted.
        self._owned.append(name)
        await self.snapshot(name)
        if self._state.over is not None:
            # It was closed meanwhile.
            await self._remove_owned()
            self._state.check()
        self._checkpoints.append(name)
        return len(self._checkpoints)

    async def rewind(self, number: Optional[int] = None) -> None:
        """Goes back to a checkpoint, by default to the last one, as `restore` does. All checkpoints stay, also later ones.

        Raises BadRequest if there is no such checkpoint.
        """
        last = len(self._checkpoints)
        number = last if number is None else number
        if not 1 <= number <= last:
            there = f"there are checkpoints 1 to {last}" if last else "there is none yet: call checkpoint()"
            raise refusal("bad-request", f"the sandbox has no checkpoint {number}: {there}")
        await self.restore(self._checkpoints[number - 1])

    def _timeout(self) -> Optional[float]:
        """The time limit of a run."""
        return self._state.timeout

    async def _python(self) -> str:
        """The Python in the cell: the one that runs its code, or the first in its PATH."""
        if self._interpreter is None:
            # With a virtual environment, "python" stands for another template.
            template = (await (await self._started()).info()).template
            try:
                words = (await self._client.template(template or self._state.clone_request.template)).arguments
            except NoSuchTemplate:
                # It was removed meanwhile.
                words = ()
            self._interpreter = "/proc/1/exe" if words and "python" in words[0].rpartition("/")[2] else "python3"
        return self._interpreter

    async def _forked(self, count: int) -> List[AsyncCell]:
        assert self._cell is not None
        async with self._checked(self._cell):
            return await self._cell.fork(count)

    @asynccontextmanager
    async def _checked(self, cell: AsyncCell) -> AsyncIterator[None]:
        """Raises SandboxEnded if an operation fails because the cell has ended."""
        try:
            yield
        except (NoSuchCell, WrongState):
            outcome = (await cell.info()).outcome
            if outcome is not None:
                self._state.end(outcome.message, outcome)
                self._state.check()
            raise

    async def _freeze(self, cell: AsyncCell, name: str, replace: bool) -> TemplateInfo:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return await cell.freeze(name, replace=replace)


def check_paused(id: str) -> None:
    """Checks that an ID is one of a paused sandbox: closing a resumed sandbox removes the template of this name."""
    if not id.startswith(_PAUSED):
        raise refusal("bad-request", f"{id!r} is no ID of a paused sandbox: it does not begin with {_PAUSED!r}")
