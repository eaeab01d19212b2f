# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is asked for and answered, and the errors: nothing here speaks to anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Literal, Mapping, Optional, Sequence, Tuple, Type, TypedDict, Union

Reason = Literal[
    "exited",
    "signalled",
    "timed-out",
    "memory-limit",
    "output-limit",
    "killed",
    "crashed",
    "machine-full",
    "frozen",
    "host-failure",
]
"""Why a cell ended. Code that came to its end, well or with an exception, has "exited"."""

Stream = Literal["stdout", "stderr", "notes"]
"""Where something was said. Notes are lines that code gives to `pando.note()` inside the cell."""

Signal = Literal["kill", "terminate", "interrupt"]
"""What is sent to a cell's program: its end, whatever it thinks of it; SIGTERM; SIGINT, as Ctrl-C is."""

Size = Union[str, int]
"""An amount of memory: bytes, or text such as "256M"."""


@dataclass(frozen=True)
class CodeError:
    """What went wrong with code: its own exception, or that it was ended.

    `name` is the exception's class; for code that was ended, one of TimedOut, MemoryLimit, OutputLimit, Crashed,
    Killed, MachineFull, HostFailure. `value` is the message, `traceback` the text that Python prints; it is empty
    where there is none.
    """

    name: str
    value: str
    traceback: str = ""

    def __str__(self) -> str:
        return self.traceback.rstrip("\n") or f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Result:
    """What became of code that was run.

    >>> pando.run("print(6 * 7)").stdout
    '42\\n'
    """

    stdout: str
    """What it printed. Bytes that are no text are replaced."""
    stderr: str
    """The same for its standard error, where its traceback is as well."""
    exit_code: int
    """0 where all is well; 1 after an exception; what `sys.exit` was given; 128 + N by signal N; 124 out of time."""
    error: Optional[CodeError]
    """Its exception, or why it was ended; None where all is well, and after `sys.exit`."""
    reason: Reason
    """"exited" where it came to its end, whether well or with an exception; otherwise what ended it."""
    seconds: float
    """How long it took."""
    cpu_seconds: float
    """How much of a core it took. In a sandbox that goes on: the sandbox, so far."""
    peak_bytes: int
    """The most memory that it had of its own. In a sandbox that goes on: what the sandbox has now."""
    notes: Tuple[str, ...] = ()
    """Lines that it gave to `pando.note()`."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    reason: Reason
    exit_code: int
    """The status that a shell would show."""
    message: str
    """The same for people."""
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    exits: int
    """How often it came to the kernel."""


@dataclass(frozen=True)
class Piece:
    """Something that a cell said."""

    number: int
    """The position of its first byte among all that the cell wrote. A gap before it was forgotten before anybody asked for it."""
    next: int
    """The position behind its last byte: `output(first=piece.next)` goes on there."""
    stream: Stream
    data: bytes

    @property
    def text(self) -> str:
        """The data as text; what is none is replaced."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class CellInfo:
    """A cell that the server knows."""

    id: int
    template: str
    arguments: Tuple[str, ...]
    started: float
    """Seconds since 1970."""
    memory_bytes: int
    """Memory that it has of its own now."""
    cpu_seconds: float
    outcome: Optional[Outcome]
    """How it ended; None while it runs."""
    addresses: Optional[Addresses] = None
    """Where it is in its network, if it is in one."""


@dataclass(frozen=True)
class Template:
    """A template that the server keeps."""

    name: str
    arguments: Tuple[str, ...]
    """The program and its arguments."""
    memory_bytes: int
    """The most memory that each clone may have that does not ask for less."""
    file_bytes: int
    variants: int
    """In how many variants it is kept: where things lie in memory is different in each."""
    made: int
    """Seconds since 1970."""
    forced: bool
    """It was stopped as it stood, or while programs ran that do not notice that they are cloned: nothing promises that its
    clones' random numbers are distinct."""


@dataclass(frozen=True)
class ServerInfo:
    """What the server is, and what it has."""

    version: str
    process: int
    running: int
    """Cells that run."""
    memory_bytes: int
    """The most memory that all cells may have together."""
    free_bytes: int


@dataclass(frozen=True)
class Addresses:
    """Where a cell is in its network."""

    mac: str
    ipv4: str
    ipv6: str


@dataclass(frozen=True)
class ExecResult:
    """What became of a program that was started in a cell."""

    stdout: str
    """What it said. Bytes that are no text are replaced."""
    stderr: str
    exit_code: int
    """The status that a shell would show: 128 + N by signal N, 124 out of time."""
    message: str
    """The same for people."""


class Options(TypedDict, total=False):
    """What a cell may take, and what it is given."""

    memory: Optional[Size]
    """The most memory that it may have of its own."""
    cpus: Optional[float]
    """The most of one core that it may use: from 0.001 to 1."""
    timeout: Optional[float]
    """Seconds after which it is ended; in a sandbox, those that each run may take."""
    output_limit: Optional[int]
    """Bytes that it may say; in a sandbox, that each run may."""
    environment: Optional[Mapping[str, str]]
    """Variables that it is given."""
    host_name: Optional[str]
    """What it is called; without, by its template's name and its number."""
    network: Optional[str]
    """The network that it is plugged into: cells that name the same one reach each other, and nobody else."""
    allow: Sequence[str]
    """What of the world outside it may reach, such as "public" or "example.org:443", where the server was started with
    `--gateways`."""


class SandboxOptions(Options, total=False):
    """The same for a sandbox."""

    lifetime: Optional[float]
    """Seconds after which its cell is ended, whatever it does: an hour unless something else is said."""


class TemplateOptions(TypedDict, total=False):
    """How a template is made."""

    environment: Optional[Mapping[str, str]]
    """Variables that its program is given."""
    memory: Optional[Size]
    """The most memory that it, and each clone that does not ask for less, may have."""
    timeout: Optional[float]
    """Seconds that it may take until it is ready."""
    volumes: Sequence[str]
    """Files and directories of the host that it sees, `HOST:CELL`, of those that the server was started with."""
    root: Optional[str]
    """What it sees instead of the host's software."""
    bare: bool
    """It sees nothing but itself."""
    user: Optional[str]
    """Who it is: `UID` or `UID:GID`."""
    variants: Optional[int]
    """How often the program is started: clones are of any of these by lot, and where things lie in memory is different in each."""
    train: bool
    """Run a clone to its end and learn from it what later ones will touch; False: run none. Without this, one may run for three
    seconds, without arguments."""
    train_arguments: Sequence[str]
    """What that clone is given."""
    train_count: Optional[int]
    """How many clones are run instead of one: what most of them touched is learned."""
    replace: bool
    """Replace the template of this name, if there is one."""


class ExecOptions(TypedDict, total=False):
    """How a program is started in a cell."""

    environment: Optional[Mapping[str, str]]
    """Variables that it is given, beside a PATH and a HOME."""
    directory: Optional[str]
    """Where it starts; without, in /."""
    user: Optional[str]
    """Who it is: `UID` or `UID:GID`; without, root."""
    timeout: Optional[float]
    """Seconds after which it is ended."""


class Error(Exception):
    """Anything that Pando refuses or cannot do. Code that fails is no error: its Result says so."""


class ServerMissing(Error):
    """Nobody listens, and no server could be started."""


class ConnectionLost(Error):
    """The server went away in the middle of something."""


class SandboxEnded(Error):
    """The sandbox's cell has ended: there is nothing left to run code in. `outcome` says how, where that is known."""

    def __init__(self, message: str, outcome: Optional[Outcome] = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class ServerError(Error):
    """The server refused. `problem` is its word for why."""

    problem = "server"


class BadRequest(ServerError, ValueError):
    """What was asked makes no sense."""


class NoSuchTemplate(ServerError, LookupError):
    """There is no template of this name."""


class NoSuchCell(ServerError, LookupError):
    """There is no such cell, or it ended long ago."""


class NoSuchProgram(ServerError, LookupError):
    """What a template is to be made of is not there, or cannot be executed."""


class TemplateExists(ServerError):
    """There is a template of this name already."""


class UnusableTemplate(ServerError):
    """The template does not fit any more: the host's software has changed, or its file is damaged. Make it anew."""


class NotReady(ServerError):
    """The program that a template was to be made of never said that it is ready."""


class CannotBeShown(ServerError):
    """A file that a template is to see cannot be shown."""


class MachineFull(ServerError):
    """There is not enough memory for another cell."""


class NoSuchFile(ServerError, LookupError):
    """A file of a cell cannot be read or written; the text says why."""


class WrongState(ServerError):
    """The cell is in no state for this: it has ended."""


_BY_PROBLEM: Dict[str, Type[ServerError]] = {
    "bad-request": BadRequest,
    "no-such-template": NoSuchTemplate,
    "no-such-cell": NoSuchCell,
    "no-such-file": NoSuchFile,
    "no-such-program": NoSuchProgram,
    "template-exists": TemplateExists,
    "unusable-template": UnusableTemplate,
    "not-ready": NotReady,
    "cannot-be-shown": CannotBeShown,
    "machine-full": MachineFull,
    "wrong-state": WrongState,
}


def refusal(problem: str, message: str) -> ServerError:
    """The error for the server's word."""
    error = _BY_PROBLEM.get(problem, ServerError)(message)
    error.problem = problem
    return error
