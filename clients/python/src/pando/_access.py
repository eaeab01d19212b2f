# SPDX-License-Identifier: MIT OR Apache-2.0
"""The part of a sandbox that its files, commands and terminals use."""

from __future__ import annotations

from typing import TYPE_CHECKING, AsyncContextManager, Iterable, Optional, Protocol, Sequence, Union

from ._cell import AsyncCell
from ._text import OnText
from ._types import ExecOptions, ExecResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SandboxAccess(Protocol):
    """Runs programs in a sandbox, and accesses its files."""

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        stdin: Union[str, bytes] = b"",
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult: ...

    async def read_file(self, path: str, *, max_bytes: Optional[int] = None) -> bytes: ...

    async def write_file(self, path: str, data: Union[str, bytes, Iterable[bytes]]) -> None: ...

    async def _started(self) -> AsyncCell: ...

    async def _python(self) -> str: ...

    def _timeout(self) -> Optional[float]: ...

    def _busy(self) -> AsyncContextManager[None]: ...
