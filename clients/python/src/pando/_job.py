# SPDX-License-Identifier: MIT OR Apache-2.0
"""A program in a cell, without I/O: its output and its result."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Tuple

from ._errors import ConnectionLost
from ._text import OnText, StreamText
from ._types import ExecResult
from ._wire import decoded

OnBytes = Callable[[bytes], object]


class Job:
    """A program in a cell, from its start to its result."""

    def __init__(
        self,
        on_stdout: Optional[OnText],
        on_stderr: Optional[OnText],
        on_stdout_bytes: Optional[OnBytes] = None,
        limit: Optional[int] = None,
    ) -> None:
        """`limit`: keeps about so many of the last characters of each stream."""
        self._on_bytes = on_stdout_bytes
        self._texts = {"stdout": StreamText(on_stdout, limit), "stderr": StreamText(on_stderr, limit)}
        self._end: Optional[Tuple[int, str]] = None

    def take(self, value: Mapping[str, Any]) -> None:
        """Handles a piece of its output, or its end."""
        if "exit_code" in value:
            self._end = value["exit_code"], value["message"]
        else:
            data = decoded(value["data"])
            if self._on_bytes and value["stream"] == "stdout":
                self._on_bytes(data)
            else:
                self._texts[value["stream"]].add(data)

    @property
    def is_over(self) -> bool:
        """The program has ended."""
        return self._end is not None

    def result(self) -> ExecResult:
        if self._end is None:
            raise ConnectionLost("the server closed the connection before the program ended")
        for text in self._texts.values():
            text.end()
        return ExecResult(self._texts["stdout"].all, self._texts["stderr"].all, *self._end)
