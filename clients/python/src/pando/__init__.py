# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs untrusted code in Pando cells: tiny virtual machines that are cloned in milliseconds.

>>> import pando
>>> with pando.Sandbox("python", memory="256M", timeout=5) as s:
...     r = s.run("print(1)")
>>> r.stdout, r.stderr, r.exit_code, r.error
('1\\n', '', 0, None)
"""

from ._async import AsyncClient, arun
from ._cell import AsyncCell
from ._commands import AsyncCommands
from ._errors import (
    BadRequest,
    BuildError,
    CannotBeShown,
    ConnectionLost,
    Error,
    MachineFull,
    NoGateway,
    NoSuchCell,
    NoSuchContext,
    NoSuchFile,
    NoSuchJob,
    NoSuchProgram,
    NoSuchTemplate,
    NotReady,
    PortUnavailable,
    SandboxEnded,
    ServerError,
    ServerMissing,
    TemplateExists,
    UnusableTemplate,
    WrongState,
)
from ._files import AsyncFiles, EntryInfo, WriteEntry
from ._handle import AsyncCommandHandle
from ._pty import AsyncPty, AsyncPtyHandle, PtySize
from ._results import Context, DisplayData, Execution, Logs
from ._sandbox import AsyncSandbox
from ._sync import Cell, Client, CommandHandle, Commands, Files, Pty, PtyHandle, Sandbox, Template, Watch, run
from ._template import AsyncTemplate
from ._types import (
    Addresses,
    CellInfo,
    CodeError,
    ExecOptions,
    ExecResult,
    Options,
    Outcome,
    Piece,
    Port,
    Reason,
    Result,
    SandboxOptions,
    ServerInfo,
    Signal,
    TemplateInfo,
    TemplateOptions,
)
from ._watch import AsyncWatch, FilesystemEvent

__all__ = [
    "Addresses",
    "AsyncCell",
    "AsyncClient",
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncFiles",
    "AsyncPty",
    "AsyncPtyHandle",
    "AsyncSandbox",
    "AsyncTemplate",
    "AsyncWatch",
    "BadRequest",
    "BuildError",
    "CannotBeShown",
    "Cell",
    "CellInfo",
    "Client",
    "CodeError",
    "CommandHandle",
    "Commands",
    "ConnectionLost",
    "Context",
    "DisplayData",
    "EntryInfo",
    "Error",
    "ExecOptions",
    "ExecResult",
    "Execution",
    "Files",
    "FilesystemEvent",
    "Logs",
    "MachineFull",
    "NoGateway",
    "NoSuchCell",
    "NoSuchContext",
    "NoSuchFile",
    "NoSuchJob",
    "NoSuchProgram",
    "NoSuchTemplate",
    "NotReady",
    "Options",
    "Outcome",
    "Piece",
    "Port",
    "PortUnavailable",
    "Pty",
    "PtyHandle",
    "PtySize",
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
    "TemplateInfo",
    "TemplateOptions",
    "UnusableTemplate",
    "Watch",
    "WriteEntry",
    "WrongState",
    "arun",
    "run",
]
__version__ = "0.1.0"
