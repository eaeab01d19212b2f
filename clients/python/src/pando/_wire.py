# SPDX-License-Identifier: MIT OR Apache-2.0
"""The protocol without I/O: requests, responses, and the state of a run in a sandbox.

Clients send an `Operation` and pass the response to `answer`; sandboxes pass the cell's output to a `Run`.
"""

from __future__ import annotations

import base64
import codecs
import json
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
    get_type_hints,
)

from ._types import (
    Addresses,
    CellInfo,
    CodeError,
    ConnectionLost,
    Error,
    ExecOptions,
    ExecResult,
    Options,
    Outcome,
    Piece,
    Port,
    Reason,
    Result,
    SandboxEnded,
    SandboxOptions,
    ServerInfo,
    Signal,
    Template,
    TemplateOptions,
    refusal,
)

T = TypeVar("T")
OnText = Callable[[str], object]
Said = Union[Piece, Outcome]

STANDARD = frozenset({"python"})
"""Templates that the server creates from the host's software on request."""
STDIN_MAX = 64 << 10
"""Bytes of standard input that a cell buffers for a program even while nobody reads its output: a request is sent whole
before its response is read."""
OUTPUT_MAX = 16 << 20
"""The default limit of a run's output in bytes."""
LIFETIME = 3600.0
"""The default lifetime of a sandbox's cell in seconds."""
_TIMED_OUT = 124
"""The exit code after a timeout, as a shell shows it."""

_BYTES = "application/octet-stream"

_NAMES: Mapping[str, str] = {
    "signalled": "Crashed",
    "timed-out": "TimedOut",
    "memory-limit": "MemoryLimit",
    "output-limit": "OutputLimit",
    "killed": "Killed",
    "crashed": "Crashed",
    "machine-full": "MachineFull",
    "frozen": "Frozen",
    "host-failure": "HostFailure",
}


@dataclass(frozen=True)
class Operation(Generic[T]):
    """A request, and the function that reads its response."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Optional[bytes] = None
    params: Optional[Mapping[str, str]] = None
    kind: str = "application/json"
    """The content type of the body."""
    is_raw: bool = False
    """The response is bytes, not JSON."""

    @property
    def headers(self) -> Dict[str, str]:
        return {} if self.body is None else {"content-type": self.kind}


@dataclass(frozen=True)
class Order:
    """A request for a clone."""

    template: str
    arguments: Sequence[str]
    stdin: Union[str, bytes, None]
    options: Options

    def __post_init__(self) -> None:
        _check(self.options, Options)

    def body(self) -> bytes:
        given = {"base64": base64.b64encode(self.stdin).decode()} if isinstance(self.stdin, bytes) else self.stdin
        publish = [f"0:{port}" if isinstance(port, int) else port for port in self.options.get("publish", ())]
        known = {"template": self.template, "arguments": list(self.arguments), "input": given, "publish": publish}
        return _json({**self.options, **known})


def answer(operation: Operation[T], status: int, body: bytes) -> T:
    """Reads the server's response.

    Raises the error that it contains.
    """
    try:
        is_well = 200 <= status < 300
        if is_well and operation.is_raw:
            return operation.read(body)
        value = json.loads(body) if body else None
        if is_well:
            return operation.read(value)
        raise refusal(value["problem"], value["message"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, Error):
            raise
        told = body[:200].decode(errors="replace")
        raise Error(f"the response is not Pando's (status {status}): {told!r}") from error


def server_info() -> Operation[ServerInfo]:
    return Operation("GET", "/v1", lambda value: _known(ServerInfo, value))


def templates() -> Operation[List[Template]]:
    return Operation("GET", "/v1/templates", lambda value: [_template(each) for each in value])


def template(name: str) -> Operation[Template]:
    return Operation("GET", f"/v1/templates/{_segment(name)}", _template)


def create_template(name: str, arguments: Sequence[str], options: TemplateOptions) -> Operation[Template]:
    _check(options, TemplateOptions)
    return Operation("POST", "/v1/templates", _template, _json({**options, "name": name, "arguments": list(arguments)}))


def remove_template(name: str) -> Operation[None]:
    return Operation("DELETE", f"/v1/templates/{_segment(name)}", _nothing)


def run(order: Order) -> Operation[Result]:
    return Operation("POST", "/v1/run", _ran, order.body())


def start(order: Order) -> Operation[int]:
    return Operation("POST", "/v1/cells", lambda value: _cell(value).id, order.body())


def cells() -> Operation[List[CellInfo]]:
    return Operation("GET", "/v1/cells", lambda value: [_cell(each) for each in value])


def cell(number: int) -> Operation[CellInfo]:
    return Operation("GET", f"/v1/cells/{number}", _cell)


def remove(number: int) -> Operation[None]:
    return Operation("DELETE", f"/v1/cells/{number}", _nothing)


def wait(number: int, timeout: Optional[float]) -> Operation[Optional[Outcome]]:
    params = {} if timeout is None else {"timeout": str(timeout)}
    return Operation("GET", f"/v1/cells/{number}/wait", lambda value: _cell(value).outcome, params=params)


def kill(number: int, signal: Signal) -> Operation[None]:
    return Operation("POST", f"/v1/cells/{number}/kill", _nothing, params={"signal": signal})


def freeze(number: int, name: str, force: bool, replace: bool) -> Operation[Template]:
    body = _json({"name": name, "force": force, "replace": replace})
    return Operation("POST", f"/v1/cells/{number}/freeze", _template, body)


def write(number: int, data: bytes, end: bool) -> Operation[None]:
    return Operation("POST", f"/v1/cells/{number}/input", _nothing, data, {"end": _boolean(end)}, kind=_BYTES)


def read_file(number: int, path: str) -> Operation[bytes]:
    return Operation("GET", f"/v1/cells/{number}/file", bytes, params={"path": path}, is_raw=True)


def write_file(number: int, path: str, data: bytes) -> Operation[None]:
    return Operation("PUT", f"/v1/cells/{number}/file", _nothing, data, {"path": path}, kind=_BYTES)


def execute(number: int, arguments: Sequence[str], stdin: bytes, options: ExecOptions) -> Operation[None]:
    """Starts a program; `Lines` reads the response."""
    _check(options, ExecOptions)
    if len(stdin) > STDIN_MAX:
        raise ValueError(f"stdin has {len(stdin)} bytes; at most {STDIN_MAX} are allowed: write them to a file for the program")
    # The first line is the request; the rest is the program's input.
    body = _json({**options, "arguments": list(arguments)}) + b"\n" + stdin
    return Operation("POST", f"/v1/cells/{number}/exec", _nothing, body, kind="application/x-ndjson")


def output(number: int, first: int, follow: bool) -> Operation[None]:
    """Reads a cell's output; `Lines` reads the response. The cell waits for a slow reader that follows it."""
    params = {"from": str(first), "follow": _boolean(follow), "whole": _boolean(follow)}
    return Operation("GET", f"/v1/cells/{number}/output", _nothing, params=params)


class Lines(Generic[T]):
    """Parses the output of a cell, or of a program in one, from the bytes of a response."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._begun: List[bytes] = []

    def add(self, data: bytes) -> List[T]:
        """Parses the lines that are complete by now."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._begun, whole[0]])
            self._begun.clear()
        self._begun.append(rest)
        return [self._line(line) for line in whole]

    def _line(self, line: bytes) -> T:
        try:
            return self._read(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"the response is not Pando's: {line[:200]!r}") from error


def said(value: Mapping[str, Any]) -> Said:
    """Parses a line of a cell's output."""
    if "outcome" in value:
        return _known(Outcome, value["outcome"])
    return Piece(value["number"], value["next"], value["stream"], _bytes(value["data"]))


class Job:
    """A program in a cell, from its start to its result."""

    def __init__(self, on_stdout: Optional[OnText], on_stderr: Optional[OnText]) -> None:
        self._texts = {"stdout": _Text(on_stdout), "stderr": _Text(on_stderr)}
        self._end: Optional[Tuple[int, str]] = None

    def take(self, value: Mapping[str, Any]) -> None:
        """Handles a piece of its output, or its end."""
        if "exit_code" in value:
            self._end = value["exit_code"], value["message"]
        else:
            self._texts[value["stream"]].add(_bytes(value["data"]))

    def result(self) -> ExecResult:
        if self._end is None:
            raise ConnectionLost("the server closed the connection before the program ended")
        for text in self._texts.values():
            text.end()
        return ExecResult(self._texts["stdout"].all, self._texts["stderr"].all, *self._end)


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Reports a slow operation to the user."""
    since = time.monotonic()
    print(f'pando: creating the template "{name}" from this host\'s Python, once...', file=sys.stderr, flush=True)
    yield
    print(f"pando: done in {time.monotonic() - since:.1f} s", file=sys.stderr, flush=True)


class Life:
    """The state of a sandbox's only cell."""

    def __init__(self, template: str, options: SandboxOptions) -> None:
        _check(options, SandboxOptions)
        # These limit each run; the cell itself lives longer, and may print more.
        limits: Dict[str, Any] = {**options}
        self.timeout: Optional[float] = limits.pop("timeout", None)
        self.output_limit: Optional[int] = limits.pop("output_limit", None)
        limits["timeout"] = limits.pop("lifetime", LIFETIME)
        self.order = Order(template, (), None, cast(Options, limits))
        self.number: Optional[int] = None
        self.over: Optional[str] = None
        self.outcome: Optional[Outcome] = None

    def describe(self, kind: str) -> str:
        state = self.over or ("not started" if self.number is None else f"cell {self.number}")
        return f"<{kind} {self.order.template!r}: {state}>"

    def end(self, why: str, outcome: Optional[Outcome] = None) -> None:
        """Marks the cell as ended; the first reason is kept."""
        if self.over is None:
            self.over, self.outcome = why, outcome

    def check(self) -> None:
        if self.over is not None:
            raise SandboxEnded(f"the sandbox has ended: {self.over}", self.outcome)

    def begin(self, timeout: Optional[float], on_stdout: Optional[OnText], on_stderr: Optional[OnText]) -> Run:
        self.check()
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, not {timeout}")
        limit = OUTPUT_MAX if self.output_limit is None else self.output_limit
        return Run(self.timeout if timeout is None else timeout, limit, on_stdout, on_stderr)

    def finish(self, run: Run, is_refused: bool) -> None:
        """Updates the state after a run. `is_refused`: the cell did not accept its code."""
        if run.outcome is not None:
            self.end(run.error.value if run.error else run.outcome.message, run.outcome)
            if is_refused and not run.is_stopped:
                self.check()
        elif not run.is_done:
            self.end("the server closed the output stream")
            self.check()


class Run:
    """One piece of code in a sandbox, from its start to its result."""

    def __init__(
        self, timeout: Optional[float], output_limit: int, on_stdout: Optional[OnText], on_stderr: Optional[OnText]
    ) -> None:
        self.timeout = timeout
        self.outcome: Optional[Outcome] = None
        self.error: Optional[CodeError] = None
        self.is_done = False
        self._room = output_limit
        self._limit = output_limit
        self._since = time.monotonic()
        self._stop: Optional[Reason] = None
        self._exit_code = 0
        self._notes: List[str] = []
        self._texts = {"stdout": _Text(on_stdout), "stderr": _Text(on_stderr)}
        # The timer and the reader of the output run concurrently.
        self._lock = threading.Lock()

    @property
    def is_stopped(self) -> bool:
        """The cell must be killed, or is being."""
        return self._stop is not None

    def expire(self) -> bool:
        """Handles the timeout. Returns whether the cell must be killed."""
        with self._lock:
            if self.is_done or self._stop is not None:
                return False
            self._stop = "timed-out"
            return True

    def take(self, said: Said) -> bool:
        """Handles output of the cell. Returns whether the cell must be killed because of it."""
        if isinstance(said, Outcome):
            self._end(said)
            return False
        data, is_too_much = said.data[: self._room], len(said.data) > self._room
        self._room -= len(data)
        if said.stream == "notes":
            for note in data.decode(errors="replace").splitlines():
                self._hear(note)
        else:
            self._texts[said.stream].add(data)
        with self._lock:
            if not is_too_much or self.is_done or self._stop is not None:
                return False
            self._stop = "output-limit"
            return True

    def result(self, now: Optional[CellInfo]) -> Result:
        """Its result; `now` is the cell's state, if the cell is still running."""
        for text in self._texts.values():
            text.end()
        cpu, memory = (now.cpu_seconds, now.memory_bytes) if now else (0.0, 0)
        if self.outcome:
            cpu, memory = self.outcome.cpu_seconds, self.outcome.peak_bytes
        return Result(
            stdout=self._texts["stdout"].all,
            stderr=self._texts["stderr"].all,
            exit_code=self._exit_code,
            error=self.error,
            reason=self._stop or (self.outcome.reason if self.outcome else "exited"),
            seconds=time.monotonic() - self._since,
            cpu_seconds=cpu,
            peak_bytes=memory,
            notes=tuple(self._notes),
        )

    def _hear(self, note: str) -> None:
        told = _told(note)
        with self._lock:
            if told is None or self.is_done:
                self._notes.append(note)
            elif self._stop is None:
                self._exit_code, self.error = told
                self.is_done = True

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            self.outcome, self.is_done = outcome, True
            self._exit_code = outcome.exit_code
            if self._stop == "timed-out":
                self._exit_code = _TIMED_OUT
                self.error = _ended(self._stop, f"it did not end within {self.timeout:g} s")
            elif self._stop is not None:
                self.error = _ended(self._stop, f"it printed more than its output limit of {self._limit} bytes")
            else:
                self.error = _ended(outcome.reason, outcome.message)


class _Text:
    """The text of a stream, decoded incrementally."""

    def __init__(self, listener: Optional[OnText]) -> None:
        self._listener = listener
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._parts: List[str] = []

    def add(self, data: bytes, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if text:
            self._parts.append(text)
            if self._listener:
                self._listener(text)

    def end(self) -> None:
        self.add(b"", True)

    @property
    def all(self) -> str:
        return "".join(self._parts)


def unaware(name: str) -> str:
    """The warning about a template whose programs do not notice that they are cloned."""
    return (
        f"template {name!r} runs programs that do not notice that they are cloned: random numbers that they generate "
        "themselves may be the same in all clones; those of the system, and of this session's Python, are not"
    )


def encoded(data: Union[str, bytes]) -> bytes:
    """Encodes text for a cell."""
    return data.encode() if isinstance(data, str) else data


def code_line(code: str) -> bytes:
    """Encodes code for the Python in a sandbox's cell."""
    return json.dumps(code).encode() + b"\n"


def _ran(value: Mapping[str, Any]) -> Result:
    outcome = _known(Outcome, value)
    error = _ended(outcome.reason, outcome.message)
    notes: List[str] = []
    for note in value["notes"]:
        told = _told(note)
        if told is None:
            notes.append(note)
        elif error is None:
            error = told[1]
    return Result(
        stdout=_bytes(value["stdout"]).decode(errors="replace"),
        stderr=_bytes(value["stderr"]).decode(errors="replace"),
        exit_code=outcome.exit_code,
        error=error,
        reason=outcome.reason,
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
        peak_bytes=outcome.peak_bytes,
        notes=tuple(notes),
    )


def _ended(reason: str, message: str) -> Optional[CodeError]:
    """The error for this reason of ending, if it is one."""
    name = _NAMES.get(reason)
    return None if name is None else CodeError(name, message)


def _told(note: str) -> Optional[Tuple[int, Optional[CodeError]]]:
    """Parses a note about the end of code; None for other notes. Notes are untrusted: they come from the cell."""
    try:
        value = json.loads(note)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.keys() != {"exit_code", "error"}:
        return None
    code, error = value["exit_code"], value["error"]
    if not isinstance(code, int) or not 0 <= code <= 255:
        return None
    if error is None:
        return code, None
    if not isinstance(error, dict) or error.keys() != {"name", "value", "traceback"}:
        return None
    if not all(isinstance(each, str) for each in error.values()):
        return None
    return code, CodeError(**error)


def _json(body: Mapping[str, Any]) -> bytes:
    # The server expects sizes as text.
    sized = {**body, "memory": str(body["memory"])} if body.get("memory") is not None else body
    return json.dumps({name: value for name, value in sized.items() if value is not None}, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Converts mappings and sequences to the types that JSON supports."""
    return dict(value) if isinstance(value, Mapping) else list(value)


def _check(options: Mapping[str, Any], kind: type) -> None:
    unknown = sorted(options.keys() - get_type_hints(kind).keys())
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; the options are {', '.join(get_type_hints(kind))}")


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _segment(name: str) -> str:
    # Checks only for characters that could end the segment; the server checks the rest.
    if not name or name in (".", "..") or any(character in "/?#%" for character in name):
        raise refusal("bad-request", f"invalid name of a template: `{name}`")
    return name


def _bytes(text: Union[str, Mapping[str, str]]) -> bytes:
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def _known(kind: Type[T], value: Mapping[str, Any]) -> T:
    """Ignores unknown fields, which a newer server may send."""
    return kind(**{field.name: value[field.name] for field in fields(kind)})


def _template(value: Mapping[str, Any]) -> Template:
    return _known(Template, {**value, "arguments": tuple(value["arguments"])})


def _cell(value: Mapping[str, Any]) -> CellInfo:
    outcome = value["outcome"] and _known(Outcome, value["outcome"])
    addresses = value["addresses"] and _known(Addresses, value["addresses"])
    ports = tuple(_known(Port, port) for port in value.get("ports", ()))
    known = {"arguments": tuple(value["arguments"]), "outcome": outcome, "addresses": addresses, "ports": ports}
    return _known(CellInfo, {**value, **known})


def url(ports: Sequence[Port], cell: int) -> str:
    """Returns the address at which the host reaches a TCP port of a cell."""
    for port in ports:
        if port.cell == cell and port.protocol == "tcp":
            address, _, number = port.host.rpartition(":")
            # A port that is published at all addresses is reached at this host's own.
            address = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(address, address)
            return f"http://{address}:{number}"
    known = ", ".join(str(port.cell) for port in ports) or "none"
    raise LookupError(f"port {cell} is not published, and {known} is: start the cell with publish=[{cell}]")


def _nothing(_: Any) -> None:
    return None
