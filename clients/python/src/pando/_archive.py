# SPDX-License-Identifier: MIT OR Apache-2.0
"""Directories as tar archives, on their way into a cell and out of it."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Callable, Iterator, List, Optional, Type, cast

from ._errors import Error

_PIECE = 256 << 10
# The limit of files and directories in an archive from a cell.
_MEMBERS_MAX = 1 << 20
# The limit of bytes that are read at once: the content of files is read in smaller pieces, headers are read whole.
_HEADER_MAX = 1 << 20


class _Headers:
    """An archive that is read, whose headers have a limited size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > _HEADER_MAX:
            raise tarfile.ReadError(f"a header has {size} bytes")
        return self._file.read(size)


def pack(directory: Path) -> Iterator[bytes]:
    """Returns an archive of a directory, piece by piece."""
    written = io.BytesIO()

    def taken() -> bytes:
        piece = written.getvalue()
        written.seek(0)
        written.truncate()
        return piece

    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT, dereference=False) as archive:
        # The archive is written and never read: its beginning can be taken.
        for path in [directory, *sorted(directory.rglob("*"))]:
            member = archive.gettarinfo(str(path), os.path.relpath(path, directory))
            # Sockets have no place in an archive.
            if member is None:
                continue
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            if member.islnk():
                # Another name of the same file is another file.
                member.type, member.size = tarfile.REGTYPE, path.stat().st_size
            archive.addfile(member)
            yield taken()
            if member.isreg():
                yield from _content(path, member.size)
    yield taken()


def _content(path: Path, size: int) -> Iterator[bytes]:
    """The bytes of a file, as many as its entry says, and zeros behind them up to a whole block."""
    left = size
    with path.open("rb") as file:
        while left > 0:
            # A file that became shorter meanwhile is filled up.
            piece = file.read(min(_PIECE, left)) or bytes(min(_PIECE, left))
            left -= len(piece)
            yield piece
    yield bytes(-size % tarfile.BLOCKSIZE)


class Unpacker:
    """Makes a directory of the host from an archive. The archive is untrusted: it comes from a cell.

    It makes directories and regular files only, and follows no link.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._left = self._max_bytes = max_bytes
        self._file: IO[bytes] = tempfile.TemporaryFile()

    def __enter__(self) -> Unpacker:
        return self

    def add(self, data: bytes) -> None:
        """Adds bytes of the archive."""
        self._left -= len(data)
        if self._left < 0:
            raise Error(f"the directory has more than {self._max_bytes} bytes: download parts of it, or give a larger max_bytes")
        self._file.write(data)

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                try:
                    self._unpack()
                except (tarfile.TarError, ValueError, RecursionError) as wrong:
                    raise Error(f"the sandbox sent no directory: {wrong}") from wrong

    def _unpack(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        root = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with tarfile.open(fileobj=cast(IO[bytes], _Headers(self._file)), mode="r:") as archive:
                for count in itertools.count():
                    member = archive.next()
                    if member is None:
                        break
                    if count >= _MEMBERS_MAX:
                        raise Error(f"the directory has more than {_MEMBERS_MAX} files: download parts of it")
                    # The archive would keep all of them.
                    archive.members.clear()  # type: ignore[attr-defined]
                    parts = [part for part in member.name.split("/") if part not in ("", ".")]
                    if ".." in parts:
                        raise Error(f"the sandbox sent a file outside of the directory: {member.name!r}")
                    # Sparse files could be of any size.
                    if parts and (member.isdir() or (member.isreg() and not member.issparse())):
                        self._make(archive, member, root, parts)
        finally:
            os.close(root)

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, root: int, parts: List[str]) -> None:
        directory = os.dup(root)
        try:
            for part in parts if member.isdir() else parts[:-1]:
                try:
                    os.mkdir(part, dir_fd=directory)
                except FileExistsError:
                    pass
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                os.close(directory)
                directory = below
            if member.isreg():
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                made = os.open(parts[-1], flags, member.mode & 0o777, dir_fd=directory)
                content = archive.extractfile(member)
                with os.fdopen(made, "wb") as file:
                    if content is not None:
                        shutil.copyfileobj(content, file)
        finally:
            os.close(directory)
