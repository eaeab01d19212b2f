# SPDX-License-Identifier: MIT OR Apache-2.0
"""Commands of a shell in sandboxes."""

from __future__ import annotations

from typing import Literal, Mapping, Optional, Union, overload

from ._access import SandboxAccess
from ._handle import AsyncCommandHandle
from ._text import OnText
from ._types import ExecOptions, ExecResult


class AsyncCommands:
    """Commands of a shell: `sandbox.commands`. For a program without a shell, use `sandbox.exec`.

    >>> (await s.commands.run("echo $HOME | wc -c")).stdout
    '6\\n'
    """

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    @overload
    async def run(
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
    async def run(
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
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        cmd: str,
        background: bool = False,
        *,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin: Union[bool, str, bytes] = False,
        timeout: Optional[float] = None,
        output_limit: Optional[int] = None,
    ) -> Union[ExecResult, AsyncCommandHandle]:
        """Runs a command of the shell, and returns its result; with `background`, returns a handle while it runs.

        A command that fails raises nothing: see the result's `exit_code`. `stdin` is the input, or with `background` whether
        the handle sends some. `envs`, `user` and `cwd` are those of the command; `timeout` (seconds) and `output_limit` (bytes)
        end it. By default they are those of the sandbox, and there are none with `background`.
        """
        return await self._start(
            cmd,
            background,
            envs=envs,
            user=user,
            cwd=cwd,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            stdin=stdin,
            timeout=timeout,
            output_limit=output_limit,
        )

    async def _start(
        self,
        cmd: str,
        background: bool,
        *,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin: Union[bool, str, bytes] = False,
        timeout: Optional[float] = None,
        output_limit: Optional[int] = None,
    ) -> Union[ExecResult, AsyncCommandHandle]:
        options: ExecOptions = {"environment": envs, "user": user, "directory": cwd, "timeout": timeout, "output_limit": output_limit}
        words = ["/bin/sh", "-c", cmd]
        if background:
            if not isinstance(stdin, bool):
                raise TypeError("stdin of a command in the background is True or False: its handle sends the input")
            cell = await self._sandbox._started()
            async with self._sandbox._busy():
                return await cell.start_program(words, stdin=stdin, **options)
        if timeout is None:
            # The default is that of the sandbox.
            del options["timeout"]
        if output_limit is None:
            del options["output_limit"]
        given = b"" if isinstance(stdin, bool) else stdin
        return await self._sandbox.exec(words, stdin=given, on_stdout=on_stdout, on_stderr=on_stderr, **options)
