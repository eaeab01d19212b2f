# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code in sandboxes."""

from __future__ import annotations

import uuid
from typing import Any, Callable, List, Mapping, Optional, Tuple

from . import _session
from ._cell import AsyncCell
from ._errors import Error, NoSuchCell, WrongState
from ._results import Context, DisplayData, Execution
from ._sandbox_cell import SandboxCell
from ._session import Listeners
from ._text import OnText
from ._types import CodeError, Result


# Seconds between attempts to kill a cell.
_PAUSE = 0.5


class SandboxCode(SandboxCell):
    """A sandbox as far as its code is concerned."""

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
        await self._manage({"context": _context(context)})
        return context

    async def list_code_contexts(self) -> List[Context]:
        """Lists the contexts that were created. The default ones are not among them."""
        return (await self._manage({"contexts": True})).contexts()

    async def remove_code_context(self, context: Context) -> None:
        """Removes a context, with its process if it has one."""
        await self._manage({"remove": context.id})

    async def interrupt(self) -> None:
        """Interrupts the code that runs in another task or thread: it ends by a KeyboardInterrupt."""
        # Not under the lock, which the run holds.
        if self._cell is not None:
            self._state.interrupts += 1
            await self._cell.kill("interrupt")

    async def _manage(self, fields: Mapping[str, Any]) -> _session.Run:
        """Sends a request about contexts. Raises an error if the cell has ended, or its Python has failed."""
        run, result = await self._exchange(fields)
        self._state.check()
        if result.error is not None:
            raise Error(f"the sandbox's Python failed: {result.error.name}: {result.error.value}")
        return run

    async def _exchange(
        self, fields: Mapping[str, Any], timeout: Optional[float] = None, listeners: Listeners = Listeners()
    ) -> Tuple[_session.Run, Result]:
        """Sends a request to the Python in the cell. Returns its run, and its result."""
        async with self._lock.held():
            run = self._state.begin(timeout, listeners)
            cell = await self._open()
            try:
                async with self._busy():
                    is_refused = await self._limited(run, cell, self._state.request(run, fields))
                self._state.finish(run, is_refused)
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
                await self._kill(run, cell)

        after = self._client.io.after
        with after(run.timeout, interrupt), after(run.timeout + _session.GRACE, end):
            return await self._talk(run, cell, request)

    async def _talk(self, run: _session.Run, cell: AsyncCell, request: bytes) -> bool:
        is_refused = False
        # A reader that follows from the beginning misses nothing.
        output = self._output = self._output or await cell.follow()
        try:
            await cell.write(request)
        except (WrongState, NoSuchCell):
            is_refused = True
        async for item in output:
            if run.take(item):
                await self._kill(run, cell)
            if run.is_done:
                break
        return is_refused

    async def _kill(self, run: _session.Run, cell: AsyncCell) -> None:
        """Kills a cell. Repeats it while the server refuses, as long as the run waits for the cell's end."""
        while run.outcome is None and self._state.over is None:
            try:
                return await cell.kill()
            except (WrongState, NoSuchCell, RuntimeError):
                # It has ended, or the client is closed.
                return
            except Error:
                await self._client.io.sleep(_PAUSE)


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
