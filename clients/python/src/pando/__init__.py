# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs untrusted code in Pando cells: tiny virtual machines that are cloned in milliseconds.

>>> import pando
>>> with pando.Sandbox("python", memory="256M", timeout=5) as s:
...     r = s.run("print(1)")
>>> r.stdout, r.stderr, r.exit_code, r.error
('1\\n', '', 0, None)
"""

from ._async import AsyncCell, AsyncClient, AsyncSandbox, arun
from ._sync import Cell, Client, Sandbox, run
from ._types import (
    Addresses,
    BadRequest,
    CannotBeShown,
    CellInfo,
    CodeError,
    ConnectionLost,
    Error,
    ExecOptions,
    ExecResult,
    MachineFull,
    NoGateway,
    NoSuchCell,
    NoSuchFile,
    NoSuchProgram,
    NoSuchTemplate,
    NotReady,
    Options,
    Outcome,
    Piece,
    Port,
    PortUnavailable,
    Reason,
    Result,
    SandboxEnded,
    SandboxOptions,
    ServerError,
    ServerInfo,
    ServerMissing,
    Signal,
    Template,
    TemplateExists,
    TemplateOptions,
    UnusableTemplate,
    WrongState,
)

__all__ = [
    "Addresses",
    "AsyncCell",
    "AsyncClient",
    "AsyncSandbox",
    "BadRequest",
    "CannotBeShown",
    "Cell",
    "CellInfo",
    "Client",
    "CodeError",
    "ConnectionLost",
    "Error",
    "ExecOptions",
    "ExecResult",
    "MachineFull",
    "NoGateway",
    "NoSuchCell",
    "NoSuchFile",
    "NoSuchProgram",
    "NoSuchTemplate",
    "NotReady",
    "Options",
    "Outcome",
    "Piece",
    "Port",
    "PortUnavailable",
    "Reason",
    "Result",
    "Sandbox",
    "SandboxEnded",
    "SandboxOptions",
    "ServerError",
    "ServerInfo",
    "ServerMissing",
    "Signal",
    "Template",
    "TemplateExists",
    "TemplateOptions",
    "UnusableTemplate",
    "WrongState",
    "arun",
    "run",
]
__version__ = "0.1.0"
