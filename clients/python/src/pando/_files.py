# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files of sandboxes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union

from . import _archive
from ._access import SandboxAccess
from ._cell import AsyncCell
from ._errors import Error, NoSuchFile, refusal
from ._job import Job
from ._session import OUTPUT_MAX
from ._types import ExecResult
from ._watch import AsyncWatch

T = TypeVar("T")

_INSIDE = Path(__file__).with_name("_inside.py").read_text()
_TYPES: Mapping[str, Tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "Optional[str]": (str, type(None))}
# Characters of its errors that are kept.
_ERRORS_KEPT = 64 << 10
# The exit status of that program if the operation failed.
_FAILED = 3


@dataclass(frozen=True)
class EntryInfo:
    """A file or directory in a sandbox."""

    name: str
    path: str
    type: str
    """"file", "dir", "link" or "other"."""
    size: int
    mode: int
    """Its permissions as a number: 0o644."""
    permissions: str
    """The same as text: "-rw-r--r--"."""
    owner: str
    group: str
    modified_time: float
    """Seconds since 1970."""
    symlink_target: Optional[str] = None


@dataclass(frozen=True)
class WriteEntry:
    """A file to write."""

    path: str
    data: Union[str, bytes]


class AsyncFiles:
    """The files of a sandbox: `sandbox.files`. Paths are absolute. A path that does not exist raises NoSuchFile.

    >>> await s.files.write("/tmp/a/b.txt", "text")
    >>> [entry.name for entry in await s.files.list("/tmp/a")]
    ['b.txt']
    """

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    async def read(self, path: str, *, max_bytes: Optional[int] = None) -> str:
        """Returns the text of a file. Bytes that are not UTF-8 are replaced. `max_bytes`: raises an error if it has more."""
        return (await self.read_bytes(path, max_bytes=max_bytes)).decode(errors="replace")

    async def read_bytes(self, path: str, *, max_bytes: Optional[int] = None) -> bytes:
        """Returns the bytes of a file. `max_bytes`: raises an error if it has more."""
        return await self._sandbox.read_file(path, max_bytes=max_bytes)

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """Returns the bytes of a file piece by piece, for files that are too large for the memory."""
        cell = await self._cell()
        async with self._sandbox._busy():
            pieces = await cell.read_stream(path)
        return self._while_busy(pieces)

    async def _while_busy(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The pieces of a response. While they are read, the sandbox is not idle."""
        try:
            async with self._sandbox._busy():
                async for piece in pieces:
                    yield piece
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def write(self, path: str, data: Union[str, bytes, Iterable[bytes]]) -> EntryInfo:
        """Writes a file, or replaces one. Missing directories are made. An iterable of bytes, such as an open file, is sent piece by piece."""
        content = data if not isinstance(data, str) else data.encode()
        parent = path.rpartition("/")[0]
        if not isinstance(content, bytes) and parent:
            # An iterable cannot be sent twice.
            await self.make_dir(parent)
        try:
            await self._sandbox.write_file(path, content)
        except NoSuchFile:
            if not isinstance(content, bytes) or not await self.make_dir(parent):
                raise
            await self._sandbox.write_file(path, content)
        return await self.get_info(path)

    async def write_files(self, files: Iterable[WriteEntry]) -> List[EntryInfo]:
        """Writes several files."""
        return [await self.write(each.path, each.data) for each in files]

    async def list(self, path: str, depth: int = 1) -> List[EntryInfo]:
        """Lists a directory, and with `depth` also those below."""
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        return await self._ask(_entries, "entries", path, str(depth))

    async def exists(self, path: str) -> bool:
        """Returns whether there is a file or directory."""
        return await self._ask(bool, "exists", path)

    async def get_info(self, path: str) -> EntryInfo:
        """Describes a file or directory. A link is not followed."""
        return await self._ask(_entry, "info", path)

    async def make_dir(self, path: str) -> bool:
        """Makes a directory, and those above it. Returns False if it exists."""
        return await self._ask(bool, "make_dir", path)

    async def rename(self, old_path: str, new_path: str) -> EntryInfo:
        """Renames a file or directory; replaces an existing file."""
        return await self._ask(_entry, "rename", old_path, _absolute(new_path))

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that it contains."""
        await self._ask(bool, "remove", path)

    async def upload(self, local: Union[str, Path], path: str) -> None:
        """Copies a directory of the host, with all that it contains, to a directory of the sandbox, which is made if it is missing."""
        directory = Path(local)
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is no directory: for a file, use `write`")
        cell, command = await self._cell(), await self._command("unpack", path)
        async with self._sandbox._busy():
            # Its output is that of an error.
            _result(await cell.exec(command, stdin=_archive.pack(directory), output_limit=OUTPUT_MAX))

    async def download(self, path: str, local: Union[str, Path], *, max_bytes: int = 4 << 30) -> None:
        """Copies a directory of the sandbox, with all that it contains, to a directory of the host, which is made if it is missing.

        Symbolic links and special files are left out: on the host, they could lead anywhere. Names of the same file become files of
        their own.
        """
        cell = await self._cell()
        command = await self._command("pack", path)
        with _archive.Unpacker(Path(local), max_bytes) as unpacker:
            async with self._sandbox._busy():
                # The unpacker limits its standard output; of its standard error the end is kept.
                _result(await cell._execute(command, b"", Job(None, None, unpacker.add, limit=_ERRORS_KEPT), {}))

    async def watch(self, path: str, recursive: bool = False) -> AsyncWatch:
        """Reports what happens to a file, or to a directory and the names in it; `recursive`: also below it.

        >>> async with await s.files.watch("/work", recursive=True) as watch:
        ...     async for event in watch:
        ...         print(event.type, event.path)
        """
        return await AsyncWatch.begin(await self._cell(), _absolute(path), recursive)

    async def _cell(self) -> AsyncCell:
        return await self._sandbox._started()

    async def _command(self, name: str, *arguments: str) -> List[str]:
        return [await self._sandbox._python(), "-I", "-S", "-c", _INSIDE, name, _absolute(arguments[0]), *arguments[1:]]

    async def _ask(self, read: Callable[[Any], T], name: str, *arguments: str) -> T:
        cell, command = await self._cell(), await self._command(name, *arguments)
        async with self._sandbox._busy():
            result = await cell.exec(command, timeout=self._sandbox._timeout(), output_limit=OUTPUT_MAX)
        return _parsed(_result(result).stdout, read)


def _result(result: ExecResult) -> ExecResult:
    """Raises the error of the program in the cell, if there is one."""
    if result.exit_code == _FAILED:
        raise _parsed(result.stderr.strip().rpartition("\n")[2], lambda told: refusal(str(told["problem"]), str(told["message"])))
    if result.exit_code != 0:
        raise Error(f"the sandbox's Python cannot work on its files: {result.message}: {result.stderr[-1000:].strip()}")
    return result


def _parsed(text: str, read: Callable[[Any], T]) -> T:
    """Parses an answer of the program in the cell, which may be anything."""
    try:
        return read(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as wrong:
        raise Error(f"the sandbox's answer is not valid: {type(wrong).__name__}") from wrong


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise refusal("bad-request", f"path: give an absolute path of the sandbox, not {path!r}")
    return path


def _entry(value: Any) -> EntryInfo:
    for each in fields(EntryInfo):
        if not isinstance(value[each.name], _TYPES[str(each.type)]):
            raise TypeError(each.name)
    return EntryInfo(**{each.name: value[each.name] for each in fields(EntryInfo)})


def _entries(value: Any) -> List[EntryInfo]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return [_entry(each) for each in value]
