# SPDX-License-Identifier: MIT OR Apache-2.0
"""The results of code that is run for its value: rich results in several formats, as notebooks show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._types import Result

_FIELDS: Mapping[str, str] = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}


@dataclass(frozen=True)
class DisplayData:
    """A value in the formats that it has: that of the last expression, or one that the code displayed.

    Formats that it does not have are None.

    >>> s.run_code("import pandas; pandas.DataFrame({'a': [1]})").results[0].html
    '<div>...'
    """

    text: Optional[str] = None
    """Its text, as `repr` returns it."""
    html: Optional[str] = None
    markdown: Optional[str] = None
    svg: Optional[str] = None
    png: Optional[str] = None
    """A PNG image in base64."""
    jpeg: Optional[str] = None
    """A JPEG image in base64."""
    pdf: Optional[str] = None
    """A PDF document in base64."""
    latex: Optional[str] = None
    json: Any = None
    """Data: dictionaries, lists, strings and numbers."""
    javascript: Optional[str] = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other formats, by MIME type."""
    is_main_result: bool = False
    """It is the value of the last expression."""

    def formats(self) -> List[str]:
        """Lists the names of the formats that it has."""
        return [name for name in _FIELDS.values() if getattr(self, name) is not None] + list(self.extra)

    def __getitem__(self, name: str) -> Any:
        return self.extra[name] if name in self.extra else getattr(self, name)

    def __str__(self) -> str:
        return self.text if self.text is not None else f"<DisplayData: {', '.join(self.formats())}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        """Its formats by MIME type, with which a notebook of the caller displays it."""
        known = {kind: getattr(self, name) for kind, name in _FIELDS.items()}
        return {kind: value for kind, value in {**known, **self.extra}.items() if value is not None}


@dataclass(frozen=True)
class Logs:
    """What code wrote to its streams, line by line."""

    stdout: Tuple[str, ...]
    stderr: Tuple[str, ...]


@dataclass(frozen=True)
class Execution(Result):
    """The result of `run_code`: that of running code, with the values that it displayed.

    >>> s.run_code("x = 6\\nx * 7").text
    '42'
    """

    results: Tuple[DisplayData, ...] = ()
    """The displayed values in order, and that of the last expression."""
    execution_count: int = 0
    """The number of this run in its sandbox: the first has 1."""

    @property
    def text(self) -> Optional[str]:
        """The text of the last expression's value; None if the code has none."""
        return next((result.text for result in self.results if result.is_main_result), None)

    @property
    def logs(self) -> Logs:
        """Its standard output and standard error as lines."""
        return Logs(tuple(self.stdout.splitlines(True)), tuple(self.stderr.splitlines(True)))


@dataclass(frozen=True)
class Context:
    """A context of code: its variables, and its process if the language is not Python."""

    id: str
    language: str
    cwd: Optional[str] = None
    """The directory in which its first code runs. In a list, that in which the next code of a Python context runs."""


def display_data(value: Any) -> Optional[DisplayData]:
    """Reads a bundle by MIME type; None if it is none. It is untrusted: it comes from the cell."""
    if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
        return None
    fields: Dict[str, Any] = {}
    extra: Dict[str, Any] = {}
    for kind, given in value["data"].items():
        name = _FIELDS.get(kind)
        if name is None:
            extra[kind] = given
        elif name == "json" or isinstance(given, str):
            fields[name] = given
    return DisplayData(extra=extra, is_main_result=value.get("is_main_result") is True, **fields)


def contexts(value: Any) -> Iterator[Context]:
    """Reads a list of contexts. It is untrusted: it comes from the cell."""
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str) and isinstance(each.get("language"), str):
            cwd = each.get("cwd")
            yield Context(each["id"], each["language"], cwd if isinstance(cwd, str) else None)
