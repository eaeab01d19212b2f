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
    return str(BUNDLED) if BUNDLED.is_file() else shutil.which("pando")


def main() -> None:
    """The command `pando` of the wheel: becomes the program."""
    if not BUNDLED.is_file():
        sys.exit("pando: this package has no program: it was installed from its source; install the wheel, or the program itself")
    os.execv(BUNDLED, ["pando", *sys.argv[1:]])
