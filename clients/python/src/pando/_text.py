# SPDX-License-Identifier: MIT OR Apache-2.0
"""The text of a stream of bytes."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Callable, Deque, Optional

OnText = Callable[[str], object]


class StreamText:
    """The text of a stream, decoded incrementally. Bytes that are not UTF-8 are replaced."""

    def __init__(self, listener: Optional[OnText], limit: Optional[int] = None) -> None:
        """`limit`: keeps about so many of the last characters."""
        self._listener = listener
        self._limit = limit
        self._size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._parts: Deque[str] = deque()

    def add(self, data: bytes, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if text:
            self._parts.append(text)
            self._size += len(text)
            while self._limit is not None and self._size - len(self._parts[0]) >= self._limit:
                self._size -= len(self._parts.popleft())
            if self._listener:
                self._listener(text)

    def end(self) -> None:
        self.add(b"", True)

    @property
    def all(self) -> str:
        return "".join(self._parts)
