# SPDX-License-Identifier: MIT OR Apache-2.0
"""The errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Type

if TYPE_CHECKING:
    from ._types import Outcome


class Error(Exception):
    """An operation that Pando refuses or that fails. Failing code is not an Error: its Result contains the failure."""


class ServerMissing(Error):
    """No server is running, and none could be started."""


class ConnectionLost(Error):
    """The server closed the connection during an operation."""


class BuildError(Error):
    """A step of a template's recipe failed. The message has the end of its output."""


class SandboxEnded(Error):
    """The sandbox's cell has ended, so it cannot run code. `outcome` is the cell's outcome, if it is known."""

    def __init__(self, message: str, outcome: Optional[Outcome] = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class ServerError(Error):
    """The server refused a request. `problem` is its code for the reason."""

    problem = "server"


class BadRequest(ServerError, ValueError):
    """The request is invalid."""


class NoSuchTemplate(ServerError, LookupError):
    """There is no template of this name."""


class NoSuchCell(ServerError, LookupError):
    """There is no such cell, or it ended long ago."""


class NoSuchProgram(ServerError, LookupError):
    """The program of a new template does not exist, or cannot be executed."""


class TemplateExists(ServerError):
    """There is a template of this name already."""


class UnusableTemplate(ServerError):
    """The template is outdated, because the host's software has changed, or its file is damaged. Create it again."""


class NotReady(ServerError):
    """The program of a new template did not report that it is ready."""


class CannotBeShown(ServerError):
    """A file of the host cannot be shown to a template."""


class MachineFull(ServerError):
    """There is not enough memory for another cell."""


class NoSuchFile(ServerError, LookupError):
    """A file of a cell cannot be read or written; the message has the reason."""


class NoSuchContext(ServerError, LookupError):
    """The sandbox has no such context of code."""


class NoSuchJob(ServerError, LookupError):
    """The program in a cell has ended, or its cell."""


class NoGateway(ServerError):
    """The server was started without `--gateways`, or all gateways are in use."""


class PortUnavailable(ServerError):
    """A port of the host cannot be published: another program listens there, or it needs a privilege."""


class WrongState(ServerError):
    """The operation does not fit the cell's state: it has ended, or its programs do not pause to be copied or stored."""


_BY_PROBLEM: Dict[str, Type[ServerError]] = {
    "bad-request": BadRequest,
    "no-such-template": NoSuchTemplate,
    "no-such-cell": NoSuchCell,
    "no-such-context": NoSuchContext,
    "no-such-file": NoSuchFile,
    "no-such-job": NoSuchJob,
    "no-such-program": NoSuchProgram,
    "template-exists": TemplateExists,
    "unusable-template": UnusableTemplate,
    "not-ready": NotReady,
    "cannot-be-shown": CannotBeShown,
    "machine-full": MachineFull,
    "wrong-state": WrongState,
    "no-gateway": NoGateway,
    "port-unavailable": PortUnavailable,
}


def refusal(problem: str, message: str) -> ServerError:
    """Returns the exception for the server's error code."""
    error = _BY_PROBLEM.get(problem, ServerError)(message)
    error.problem = problem
    return error
