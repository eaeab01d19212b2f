# SPDX-License-Identifier: MIT OR Apache-2.0
"""The types of requests and responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

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
"""Why a cell ended. Code that completed, normally or with an exception, has "exited"."""

Stream = Literal["stdout", "stderr", "notes"]
"""An output stream. Notes are lines that code passes to `pando.note()` inside the cell."""

Signal = Literal["kill", "terminate", "interrupt"]
"""A signal to a cell's program: "kill" ends it unconditionally, "terminate" is SIGTERM, "interrupt" is SIGINT as from Ctrl-C."""

Size = Union[str, int]
"""An amount of memory: bytes, or text such as "256M"."""


@dataclass(frozen=True)
class CodeError:
    """The failure of code: its own exception, or the reason why it was ended.

    `name` is the exception's class; for code that was ended, one of TimedOut, MemoryLimit, OutputLimit, Crashed,
    Killed, MachineFull, HostFailure. `value` is the message. `traceback` is the text that Python prints, or empty.
    """

    name: str
    value: str
    traceback: str = ""

    def __str__(self) -> str:
        return self.traceback.rstrip("\n") or f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Result:
    """The result of running code.

    >>> pando.run("print(6 * 7)").stdout
    '42\\n'
    """

    stdout: str
    """Its standard output. Bytes that are not UTF-8 are replaced."""
    stderr: str
    """Its standard error, decoded in the same way; contains the traceback of an exception."""
    exit_code: int
    """0 on success; 1 after an exception; the argument of `sys.exit`; 128 + N by signal N; 124 after a timeout."""
    error: Optional[CodeError]
    """Its exception, or why it was ended; None on success, and after `sys.exit`."""
    reason: Reason
    """"exited" if it completed, normally or with an exception; otherwise why it was ended."""
    seconds: float
    """The elapsed time."""
    cpu_seconds: float
    """Its CPU time. In a sandbox that is still running: the sandbox's CPU time so far."""
    peak_bytes: int
    """Its peak of private memory. In a sandbox that is still running: the sandbox's private memory now."""
    notes: Tuple[str, ...] = ()
    """Lines that it passed to `pando.note()`."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell."""

    reason: Reason
    exit_code: int
    """The exit status as a shell shows it."""
    message: str
    """A description for people."""
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    exits: int
    """The number of exits to the kernel."""


@dataclass(frozen=True)
class Piece:
    """A piece of a cell's output."""

    number: int
    """The position of its first byte in all output of the cell. After a gap, earlier output was discarded unread."""
    next: int
    """The position behind its last byte: `output(first=piece.next)` continues there."""
    stream: Stream
    data: bytes

    @property
    def text(self) -> str:
        """The data as text; bytes that are not UTF-8 are replaced."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class CellInfo:
    """A cell that the server knows."""

    id: int
    template: Optional[str]
    """The template that it was cloned from; None if it runs a program (`pando run -d`)."""
    arguments: Tuple[str, ...]
    started: str
    """The time of its start, as RFC 3339 has it."""
    memory_bytes: int
    """Its private memory now."""
    cpu_seconds: float
    outcome: Optional[Outcome]
    """Its outcome; None while it runs."""
    addresses: Optional[Addresses] = None
    """Its addresses, if it is in a network."""
    host_name: str = ""
    """Its host name."""
    name: str = ""
    """Its name: the command line accepts it instead of the number."""
    ports: Tuple[Port, ...] = ()
    """The ports of the host that lead to it, while it runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Its labels."""


@dataclass(frozen=True)
class TemplateInfo:
    """A template of the server."""

    name: str
    arguments: Tuple[str, ...]
    """The program and its arguments."""
    memory_bytes: int
    """The default limit of each clone's memory."""
    file_bytes: int
    variants: int
    """The number of its variants, each with a different memory layout."""
    created: str
    """The time of its creation, as RFC 3339 has it."""
    forced: bool
    """It was frozen by force, or while programs ran that do not notice that they are cloned: the random numbers of its clones
    are not guaranteed to be distinct."""


@dataclass(frozen=True)
class ServerInfo:
    """The server's version and resources."""

    version: str
    process: int
    running: int
    """The number of running cells."""
    memory_bytes: int
    """The limit of all cells' memory together."""
    free_bytes: int
    templates: str = ""
    """The directory in which it stores its templates."""


@dataclass(frozen=True)
class Addresses:
    """The addresses of a cell in its network."""

    mac: str
    ipv4: str
    ipv6: str


@dataclass(frozen=True)
class Port:
    """A port of the host that leads to a cell."""

    host: str
    """The address and port at which the host listens."""
    cell: int
    """The cell's port."""
    protocol: str
    """tcp or udp."""


@dataclass(frozen=True)
class ExecResult:
    """The result of a program that was started in a cell."""

    stdout: str
    """Its standard output. Bytes that are not UTF-8 are replaced."""
    stderr: str
    exit_code: int
    """The exit status as a shell shows it: 128 + N by signal N, 124 after a timeout."""
    message: str
    """A description for people."""


class Options(TypedDict, total=False):
    """The limits and the environment of a cell."""

    memory: Optional[Size]
    """The limit of its private memory."""
    cpus: Optional[float]
    """The share of one core that it may use: from 0.001 to 1."""
    cpu_weight: Optional[int]
    """Its part of the CPU time for which it competes with other cells: from 1 to 10000, by default 100."""
    timeout: Optional[float]
    """Seconds after which it is ended; in a sandbox, the limit of each run."""
    output_limit: Optional[int]
    """The limit of its output in bytes; in a sandbox, of each run's output."""
    environment: Optional[Mapping[str, str]]
    """Its environment variables."""
    nest: Optional[int]
    """How many nested cells it may have at a time, with all of theirs: `pando` works inside. They share its limits."""
    name: Optional[str]
    """Its name, which no other running cell has; by default its template's name and its number."""
    host_name: Optional[str]
    """Its host name; by default its name."""
    labels: Mapping[str, str]
    """Its labels: names and values by which `cells` of the client finds it."""
    network: Optional[str]
    """Its network: cells that name the same one reach each other, and nobody else."""
    allow: Sequence[str]
    """Destinations outside that it may reach, such as "public" or "example.org:443", if the server was started with
    `--gateways`."""
    publish: Sequence[Union[int, str]]
    """Its ports that this host reaches, if the server was started with `--gateways`: a number for a port of 127.0.0.1 that the
    host chooses, or `[ADDR:]HOST:CELL[/udp]`."""


class SandboxOptions(Options, total=False):
    """The options of a sandbox."""

    lifetime: Optional[float]
    """Seconds after which its cell is ended; by default an hour."""
    idle_timeout: Optional[float]
    """Seconds without use after which its cell is ended; by default there is no such limit. Code, programs of `exec`, commands
    and operations on files are use while they last; a command in the background and a terminal only when they are started."""


class TemplateOptions(TypedDict, total=False):
    """The options for creating a template."""

    environment: Optional[Mapping[str, str]]
    """The environment variables of its program."""
    memory: Optional[Size]
    """The limit of its memory, and the default limit of its clones."""
    timeout: Optional[float]
    """Seconds that it may take until it is ready."""
    volumes: Sequence[str]
    """Files and directories of the host that it sees, `HOST:CELL`, from those that the server was started with."""
    image: Optional[str]
    """The container image that it sees instead of the host's software."""
    root: Optional[str]
    """The root that it sees instead of the host's software."""
    bare: bool
    """Show only the program itself."""
    user: Optional[str]
    """Its user and group, by name or number: `USER` or `USER:GROUP`."""
    variants: Optional[int]
    """The number of variants: each has a different memory layout, and clones are of a random one."""
    train: bool
    """Run a clone to its end and record the pages that it touches, to prefetch them for later clones; False: run none. By
    default one may run for five seconds, without arguments."""
    train_arguments: Sequence[str]
    """The arguments of that clone."""
    train_count: Optional[int]
    """The number of training clones instead of one: pages that most of them touched are recorded."""
    replace: bool
    """Replace the template of this name, if there is one."""


class ExecOptions(TypedDict, total=False):
    """The options for starting a program in a cell."""

    environment: Optional[Mapping[str, str]]
    """Its environment variables, in addition to those with which the cell's program was started."""
    directory: Optional[str]
    """Its working directory; by default that in which the cell's program was started."""
    user: Optional[str]
    """Its user and group, by name or number as the cell's lists have them: `USER` or `USER:GROUP`; by default those of the cell's
    program."""
    timeout: Optional[float]
    """Seconds after which it is ended."""
    output_limit: Optional[int]
    """The limit of its output in bytes: a program that writes more is killed. By default that of the sandbox, or 16 MiB; None: there is
    none. Programs of cells, and those in the background, have none by default."""
