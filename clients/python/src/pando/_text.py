# SPDX-License-Identifier: MIT OR Apache-2.0
"""The text of a stream of bytes."""

from __future__ import annotations

import codecs
from typing import Callable, List, Optional

OnText = Callable[[str], object]


class StreamText:
    """The text of a stream, decoded incrementally. Bytes that are not UTF-8 are replaced."""

    def __init__(self, listener: Optional[OnText]) -> None:
        self._listener = listener
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._parts: List[str] = []

    def add(self, data: bytes, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if text:
            self._parts.append(text)
            if self._listener:
                self._listener(text)

    def end(self) -> None:
        self.add(b"", True)

    @property
    def all(self) -> str:
        return "".join(self._parts)
