# SPDX-License-Identifier: MIT OR Apache-2.0
"""Notes of the Python in a cell, and the errors that they and a cell's end stand for.

Notes are untrusted: they come from the cell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ._results import DisplayData, display_data
from ._types import CodeError

_NAMES: Mapping[str, str] = {
    "signalled": "Crashed",
    "timed-out": "TimedOut",
    "memory-limit": "MemoryLimit",
    "output-limit": "OutputLimit",
    "killed": "Killed",
    "crashed": "Crashed",
    "machine-full": "MachineFull",
    "frozen": "Frozen",
    "host-failure": "HostFailure",
}
_MORE = {"interrupted", "problem", "message", "contexts", "nonce"}
PROBLEMS = {"bad-request", "no-such-context", "no-such-file", "no-such-program"}
"""The codes with which the Python in a cell may refuse a request."""


@dataclass(frozen=True)
class End:
    """The note about the end of code."""

    exit_code: int
    error: Optional[CodeError]
    more: Mapping[str, Any]
    """`interrupted`: SIGINT reached the code; `problem` and `message`: the request was refused; `contexts`: a list of them;
    `nonce`: that of the request."""


@dataclass(frozen=True)
class Piece:
    """A piece of a value that code displays."""

    number: int
    text: str
    is_last: bool


def ended(reason: str, message: str) -> Optional[CodeError]:
    """The error for this reason of ending, if it is one."""
    name = _NAMES.get(reason)
    return None if name is None else CodeError(name, message)


def parse(note: str) -> Union[End, Piece, None]:
    """Parses a note; None for those of the code itself."""
    try:
        value = json.loads(note)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return _piece(value["display"]) if value.keys() == {"display"} else _end(value)


def _piece(value: Any) -> Optional[Piece]:
    if not isinstance(value, list) or [type(each) for each in value] != [int, str, bool]:
        return None
    return Piece(*value)


def _end(value: Dict[str, Any]) -> Optional[End]:
    if not {"exit_code", "error"} <= value.keys() <= {"exit_code", "error"} | _MORE:
        return None
    code, error = value["exit_code"], value["error"]
    if type(code) is not int or not 0 <= code <= 255:
        return None
    more = {name: value[name] for name in _MORE & value.keys()}
    if error is None:
        return End(code, None, more)
    if not isinstance(error, dict) or error.keys() != {"name", "value", "traceback"}:
        return None
    if not all(isinstance(each, str) for each in error.values()):
        return None
    return End(code, CodeError(**error), more)


class Displays:
    """The values that code displays, from their pieces."""

    def __init__(self) -> None:
        self._begun: Dict[int, List[str]] = {}
        self.all: List[DisplayData] = []

    def add(self, piece: Piece) -> Optional[DisplayData]:
        """Adds a piece. Returns the value that it completes."""
        parts = self._begun.setdefault(piece.number, [])
        parts.append(piece.text)
        if not piece.is_last:
            return None
        del self._begun[piece.number]
        try:
            data = display_data(json.loads("".join(parts)))
        except (ValueError, RecursionError):
            return None
        if data is not None:
            self.all.append(data)
        return data


def told(note: str) -> Optional[Tuple[int, Optional[CodeError]]]:
    """Parses the note about the end of code that is the whole program; None for other notes."""
    end = parse(note)
    return (end.exit_code, end.error) if isinstance(end, End) and not end.more else None
