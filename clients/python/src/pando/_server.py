# SPDX-License-Identifier: MIT OR Apache-2.0
"""The server's socket path, and starting a server if none is running."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import List, Optional

from . import _program, _venv
from ._errors import ServerMissing

_SAYS_READY = "serving at"
# The cells of a started server that can have `allow` or `publish` at a time.
_GATEWAYS = 16
_starting = threading.Lock()
# Kept so that no destructor waits for them: servers outlive this process.
_started: List[subprocess.Popen[str]] = []


def place() -> Path:
    """Returns the default socket of `pando serve`: the one that the variable PANDO_SOCKET names, or the user's.

    Raises ServerMissing if the variable has a relative path.
    """
    named = os.environ.get("PANDO_SOCKET", "")
    if named and not os.path.isabs(named):
        raise ServerMissing(f"PANDO_SOCKET={named}: not an absolute path: give the whole path of the service's socket")
    if named:
        return Path(named)
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(run) and os.path.isdir(run):
        return Path(run, "pando", "socket")
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "pando" / "run" / "socket"


def start(path: Optional[Path]) -> None:
    """Starts a server at this socket, or at the default one. Blocks until it serves. The server outlives this process.

    Raises ServerMissing, with the reason, if there is no program to start or it fails.
    """
    with _starting:
        if _is_there(path or place()):
            return
        program = _program.find()
        if not program:
            raise ServerMissing(
                f"no server is running at {path or place()}, and there is no program `pando` in PATH to start one: "
                "install the wheel of this package, which has one, or install Pando, or name the program in the variable PANDO"
            )
        words = [program, "serve"] + (["--socket", str(path)] if path else [])
        # A server in a cell has no networks, and shows what the cell sees.
        if not os.path.exists("/dev/cells"):
            words += ["--gateways", str(_GATEWAYS)]
            environment = _venv.active()
            words += ["--show", str(environment)] if environment else []
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ServerMissing(f"no server is running at {path or place()}, and {program} does not start: {error}") from error
        _started.append(process)
        errors = _listen(process)
        if errors is None:
            # This process must not wait for it.
            process.returncode = 0
            return
        process.wait()
    # Another process may have started one first.
    if not _is_there(path or place()):
        raise ServerMissing(f"no server is running at {path or place()}, and `{' '.join(words)}` failed:\n{errors.strip()}")


def _listen(process: subprocess.Popen[str]) -> Optional[str]:
    """Waits until a server serves; returns its output if it ended instead."""
    assert process.stderr is not None
    errors = ""
    with process.stderr as stderr:
        for line in stderr:
            if _SAYS_READY in line:
                return None
            errors += line
    return errors


def _is_there(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
