# SPDX-License-Identifier: MIT OR Apache-2.0
"""The virtual environment that is active in this process: code in cells finds its packages."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Optional, Tuple


def active() -> Optional[Path]:
    """Returns the directory of the virtual environment: the variable VIRTUAL_ENV, or that of this Python. None if there is none."""
    named = os.environ.get("VIRTUAL_ENV") or (sys.prefix if sys.prefix != sys.base_prefix else "")
    place = Path(named)
    return place if place.is_absolute() and python(place).exists() else None


def python(place: Path) -> Path:
    """Returns the path of an environment's Python."""
    return place / "bin" / "python"


def template(place: Path) -> Tuple[str, str]:
    """Returns the name of the template of an environment's Python, and the start of the names of older ones.

    The name changes with the names in the directories of packages, as by `pip install`.
    """
    packages = sorted(place.glob("lib*/python3*/site-packages"))
    state = [(str(path), path.stat().st_mtime_ns) for path in packages if path.is_dir()]
    prefix = f"python-venv-{_digest(os.fsencode(place))}-"
    return prefix + _digest(repr(state).encode()), prefix


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
