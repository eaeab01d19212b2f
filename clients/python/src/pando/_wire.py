# SPDX-License-Identifier: MIT OR Apache-2.0
"""The protocol without I/O: requests and responses. Clients send an `Operation` and pass the response to `answer`."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import MISSING, dataclass, fields
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    get_type_hints,
)

from . import _notes
from ._errors import Error, refusal
from ._io import Body
from ._types import (
    Addresses,
    CellInfo,
    ExecOptions,
    Options,
    Outcome,
    Piece,
    Port,
    Result,
    ServerInfo,
    Signal,
    TemplateInfo,
    TemplateOptions,
)

T = TypeVar("T")
OutputItem = Union[Piece, Outcome]

STANDARD = frozenset({"python"})
"""Templates that the server creates from the host's software on request."""
TRAINING = "import _pando_session; _pando_session.rehearse()"
"""The code with which the Python of a template is trained: that of a program, and of a session."""
STDIN_MAX = 64 << 10
"""Bytes of standard input that a cell buffers for a program even while nobody reads its output: a request is sent whole
before its response is read."""
_BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Operation(Generic[T]):
    """A request, and the function that reads its response."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Body = None
    params: Optional[Mapping[str, str]] = None
    kind: str = "application/json"
    """The content type of the body."""
    is_raw: bool = False
    """The response is bytes, not JSON."""

    @property
    def headers(self) -> Dict[str, str]:
        return {} if self.body is None else {"content-type": self.kind}


@dataclass(frozen=True)
class CloneRequest:
    """A request for a clone."""

    template: str
    arguments: Sequence[str]
    stdin: Union[str, bytes, None]
    options: Options

    def __post_init__(self) -> None:
        check_options(self.options, Options)

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


def templates() -> Operation[List[TemplateInfo]]:
    return Operation("GET", "/v1/templates", lambda value: [_template(each) for each in value])


def template(name: str) -> Operation[TemplateInfo]:
    return Operation("GET", f"/v1/templates/{_segment(name)}", _template)


def create_template(name: str, arguments: Sequence[str], options: TemplateOptions) -> Operation[TemplateInfo]:
    check_options(options, TemplateOptions)
    return Operation("POST", "/v1/templates", _template, _json({**options, "name": name, "arguments": list(arguments)}))


def remove_template(name: str) -> Operation[None]:
    return Operation("DELETE", f"/v1/templates/{_segment(name)}", _nothing)


def run(request: CloneRequest) -> Operation[Result]:
    return Operation("POST", "/v1/run", _ran, request.body())


def start(request: CloneRequest) -> Operation[int]:
    return Operation("POST", "/v1/cells", lambda value: _cell(value).id, request.body())


def start_program(body: Mapping[str, Any]) -> Operation[int]:
    """Starts a program in a cell of its own: the body has the fields of the service's protocol."""
    return Operation("POST", "/v1/cells", lambda value: _cell(value).id, json.dumps(body).encode())


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


def freeze(number: int, name: str, force: bool, replace: bool) -> Operation[TemplateInfo]:
    body = _json({"name": name, "force": force, "replace": replace})
    return Operation("POST", f"/v1/cells/{number}/freeze", _template, body)


def fork(number: int, count: int) -> Operation[List[int]]:
    return Operation("POST", f"/v1/cells/{number}/fork", lambda value: [_cell(each).id for each in value], _json({"count": count}))


def write(number: int, data: bytes, end: bool) -> Operation[None]:
    return Operation("POST", f"/v1/cells/{number}/input", _nothing, data, {"end": _boolean(end)}, kind=_BYTES)


def read_file(number: int, path: str) -> Operation[bytes]:
    return Operation("GET", f"/v1/cells/{number}/file", bytes, params={"path": path}, is_raw=True)


def set_timeout(number: int, seconds: float) -> Operation[None]:
    return Operation("POST", f"/v1/cells/{number}/timeout", _nothing, params={"seconds": str(seconds)})


def write_file(number: int, path: str, data: Union[bytes, Iterable[bytes]]) -> Operation[None]:
    return Operation("PUT", f"/v1/cells/{number}/file", _nothing, data, {"path": path}, kind=_BYTES)


def watch(number: int, path: str, recursive: bool) -> Operation[None]:
    """Watches a file or directory; `Lines` reads the response."""
    return Operation("GET", f"/v1/cells/{number}/watch", _nothing, params={"path": path, "recursive": _boolean(recursive)})


def execute(
    number: int, arguments: Sequence[str], stdin: Union[bytes, Iterable[bytes]], options: ExecOptions, keep_input: bool = False
) -> Operation[None]:
    """Starts a program; `Lines` reads the response. `keep_input`: more input follows."""
    check_options(options, ExecOptions)
    # The first line is the request; the rest is the program's input.
    line = _json({**options, "arguments": list(arguments), "keep_input": keep_input}) + b"\n"
    if isinstance(stdin, bytes) and len(stdin) > STDIN_MAX:
        raise ValueError(f"stdin has {len(stdin)} bytes; at most {STDIN_MAX} are allowed: write them to a file for the program")
    body: Body = line + stdin if isinstance(stdin, bytes) else itertools.chain([line], stdin)
    return Operation("POST", f"/v1/cells/{number}/exec", _nothing, body, kind="application/x-ndjson")


def write_job(path: str, data: bytes, end: bool) -> Operation[None]:
    """Writes to the input of a program in a cell, whose path the response to `execute` named."""
    return Operation("POST", f"{path}/input", _nothing, data, {"end": _boolean(end)}, kind=_BYTES)


def kill_job(path: str, signal: str) -> Operation[None]:
    return Operation("POST", f"{path}/kill", _nothing, params={"signal": signal})


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


def plain(value: Dict[str, Any]) -> Dict[str, Any]:
    """Returns a line of a response as it is, if it is an object."""
    return dict(value)


def output_item(value: Mapping[str, Any]) -> OutputItem:
    """Parses a line of a cell's output."""
    if "outcome" in value:
        return _known(Outcome, value["outcome"])
    return Piece(value["number"], value["next"], value["stream"], decoded(value["data"]))


def unaware(name: str) -> str:
    """The warning about a template whose programs do not notice that they are cloned."""
    return (
        f"template {name!r} runs programs that do not notice that they are cloned: random numbers that they generate "
        "themselves may be the same in all clones; those of the system, and of this session's Python, are not"
    )


def encoded(data: Union[str, bytes]) -> bytes:
    """Encodes text for a cell."""
    return data.encode() if isinstance(data, str) else data


def _ran(value: Mapping[str, Any]) -> Result:
    outcome = _known(Outcome, value)
    error = _notes.ended(outcome.reason, outcome.message)
    notes: List[str] = []
    for note in value["notes"]:
        told = _notes.told(note)
        if told is None:
            notes.append(note)
        elif error is None:
            error = told[1]
    return Result(
        stdout=decoded(value["stdout"]).decode(errors="replace"),
        stderr=decoded(value["stderr"]).decode(errors="replace"),
        exit_code=outcome.exit_code,
        error=error,
        reason=outcome.reason,
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
        peak_bytes=outcome.peak_bytes,
        notes=tuple(notes),
    )


def _json(body: Mapping[str, Any]) -> bytes:
    # The server expects sizes as text.
    sized = {**body, "memory": str(body["memory"])} if body.get("memory") is not None else body
    return json.dumps({name: value for name, value in sized.items() if value is not None}, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Converts mappings and sequences to the types that JSON supports."""
    return dict(value) if isinstance(value, Mapping) else list(value)


def check_options(options: Mapping[str, Any], kind: type) -> None:
    """Checks that options have known names."""
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


def decoded(text: Union[str, Mapping[str, str]]) -> bytes:
    """Decodes bytes of a response."""
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def _known(kind: Type[T], value: Mapping[str, Any]) -> T:
    """Ignores unknown fields, which a newer server may send."""
    return kind(**{field.name: value[field.name] for field in fields(kind) if field.name in value or field.default is MISSING})


def _template(value: Mapping[str, Any]) -> TemplateInfo:
    return _known(TemplateInfo, {**value, "arguments": tuple(value["arguments"])})


def _cell(value: Mapping[str, Any]) -> CellInfo:
    outcome = value["outcome"] and _known(Outcome, value["outcome"])
    addresses = value["addresses"] and _known(Addresses, value["addresses"])
    ports = tuple(_known(Port, port) for port in value.get("ports", ()))
    known = {"labels": value.get("labels", {}), "arguments": tuple(value["arguments"]), "outcome": outcome, "addresses": addresses, "ports": ports}
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
