# SPDX-License-Identifier: MIT OR Apache-2.0
"""The program `pando`: that of the wheel, or the host's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Optional

BUNDLED = Path(__file__).parent / "_bin" / "pando"
"""The program in the wheel. A package that was installed from its source has none."""


def find() -> Optional[str]:
    """Returns the program's path: the variable PANDO, else the wheel's program, else the one in PATH."""
    named = os.environ.get("PANDO")
    if named:
        return named
    return str(BUNDLED) if BUNDLED.is_file() else _in_path()


def _in_path() -> Optional[str]:
    """Returns the first program `pando` in PATH that is not the command of this package."""
    for directory in os.get_exec_path():
        found = shutil.which("pando", path=directory)
        if found and not _is_python_script(found):
            return found
    return None


def _is_python_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def main() -> None:
    """The command `pando` of this package: becomes the program."""
    program = find()
    if not program or _is_python_script(program):
        sys.exit("pando: this package has no program: it was installed from its source; install the wheel, or the program itself")
    os.execv(program, ["pando", *sys.argv[1:]])
