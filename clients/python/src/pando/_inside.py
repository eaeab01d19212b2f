# SPDX-License-Identifier: MIT OR Apache-2.0
"""The program that works on files in a cell: it is run there with the cell's Python, by `python -c`.

Its first argument is the name of a function below. It prints JSON, or on failure {"problem": WORD, "message": TEXT}.
"""

from __future__ import annotations

import json
import os
import stat
import sys

# Modules that take long to load are loaded where they are used.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


def entry(path: str) -> Dict[str, Any]:
    """Describes a file; a link is not followed."""
    found = os.lstat(path)
    mode = found.st_mode
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "link"))
    return {
        "name": os.path.basename(os.path.normpath(path)) or "/",
        "path": path,
        "type": next((name for test, name in kinds if test(mode)), "other"),
        "size": found.st_size,
        "mode": stat.S_IMODE(mode),
        "permissions": stat.filemode(mode),
        "owner": name_of("pwd", "getpwuid", found.st_uid),
        "group": name_of("grp", "getgrgid", found.st_gid),
        "modified_time": found.st_mtime,
        "symlink_target": os.readlink(path) if stat.S_ISLNK(mode) else None,
    }


def name_of(module: str, function: str, number: int) -> str:
    try:
        return str(getattr(__import__(module), function)(number)[0])
    except (ImportError, KeyError):
        return str(number)


def info(path: str) -> Dict[str, Any]:
    return entry(path)


def exists(path: str) -> bool:
    return os.path.lexists(path)


def entries(path: str, depth: str) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = []
    for name in sorted(os.listdir(path)):
        below = os.path.join(path, name)
        try:
            found.append(entry(below))
        except FileNotFoundError:
            # It was removed meanwhile.
            continue
        if found[-1]["type"] == "dir" and int(depth) > 1:
            found += entries(below, str(int(depth) - 1))
    return found


def make_dir(path: str) -> bool:
    if os.path.isdir(path):
        return False
    os.makedirs(path)
    return True


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.remove(path)


def rename(old: str, new: str) -> Dict[str, Any]:
    if os.path.isdir(new) and not os.path.isdir(old):
        raise IsADirectoryError(21, "is a directory", new)
    os.rename(old, new)
    return entry(new)


def pack(path: str) -> None:
    """Writes a directory to standard output, as a tar archive."""
    import tarfile

    if not os.path.isdir(path):
        raise NotADirectoryError(20, "is no directory", path)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:

        def apart(member: Any) -> Any:
            # Another name of the same file is another file.
            archive.inodes.clear()  # type: ignore[attr-defined]
            return member

        archive.add(path, ".", filter=apart)
    sys.stdout.flush()
    os._exit(0)


def unpack(path: str) -> None:
    """Makes a directory of a tar archive on standard input."""
    import tarfile

    os.makedirs(path, exist_ok=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        # It comes from the host, and is unpacked as it is: since Python 3.14, the default is stricter.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # type: ignore[attr-defined]
        for member in archive:
            archive.extract(member, path, numeric_owner=True, set_attrs=not member.issym())
    # The sender waits until all is read.
    while sys.stdin.buffer.read(65536):
        pass


def main() -> None:
    try:
        print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
    except OSError as error:
        path = error.filename if error.filename is not None else sys.argv[2]
        print(json.dumps({"problem": "no-such-file", "message": "%s: %s" % (path, error.strerror)}), file=sys.stderr)
        sys.exit(3)


main()
