# SPDX-License-Identifier: MIT OR Apache-2.0
"""The state of a sandbox and of its runs, without I/O."""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, cast

from . import _notes, _results
from ._errors import SandboxEnded, refusal
from ._notes import Displays, End
from ._results import DisplayData, Execution
from ._text import OnText, StreamText
from ._types import CellInfo, CodeError, Options, Outcome, Reason, Result, SandboxOptions
from ._wire import CloneRequest, OutputItem, check_options

OUTPUT_MAX = 16 << 20
"""The default limit of a run's output in bytes."""
LIFETIME = 3600.0
"""The default lifetime of a sandbox's cell in seconds."""
GRACE = 2.0
"""Seconds that code may take to end after it was interrupted."""
_TIMED_OUT = 124
"""The exit code after a timeout, as a shell shows it."""


@dataclass(frozen=True)
class Listeners:
    """The functions that are called while code runs."""

    on_stdout: Optional[OnText] = None
    on_stderr: Optional[OnText] = None
    on_result: Optional[Callable[[DisplayData], object]] = None
    on_error: Optional[Callable[[CodeError], object]] = None


class SandboxState:
    """The state of a sandbox's cell."""

    def __init__(self, template: str, options: SandboxOptions) -> None:
        check_options(options, SandboxOptions)
        # These limit each run; the cell itself lives longer, and may print more.
        limits: Dict[str, Any] = {**options}
        self.timeout: Optional[float] = limits.pop("timeout", None)
        self.output_limit: Optional[int] = limits.pop("output_limit", None)
        self.idle_timeout: Optional[float] = limits.pop("idle_timeout", None)
        lifetime: Optional[float] = limits.pop("lifetime", LIFETIME)
        limits["timeout"] = lifetime
        self.clone_request = CloneRequest(template, (), None, cast(Options, limits))
        self.number: Optional[int] = None
        self.over: Optional[str] = None
        self.outcome: Optional[Outcome] = None
        self.interrupts = 0
        """SIGINTs that were sent to the cell."""
        self.client = secrets.token_hex(8)
        """The name by which the Python in the cell knows this count of them."""
        self.runs = 0
        self.end_by(lifetime)

    def end_by(self, seconds: Optional[float]) -> None:
        """Sets the remaining lifetime."""
        self._end = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> Optional[float]:
        """The seconds that remain of its lifetime."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.001)

    def idle(self) -> Optional[float]:
        """The seconds that remain if nothing is done with it."""
        return min((limit for limit in (self.remaining(), self.idle_timeout) if limit is not None), default=None)

    def continued(self, template: str) -> CloneRequest:
        """The request for a clone that goes on in place of the cell, for the rest of its lifetime."""
        options: Dict[str, Any] = {**self.clone_request.options, "timeout": self.remaining()}
        return replace(self.clone_request, template=template, options=cast(Options, options))

    @property
    def is_exclusive(self) -> bool:
        """Another cell cannot run with the same options: it has a name, or ports that it may have chosen itself."""
        options = self.clone_request.options
        return options.get("name") is not None or any(not isinstance(port, int) for port in options.get("publish") or ())

    def describe(self, kind: str) -> str:
        state = self.over or ("not started" if self.number is None else f"cell {self.number}")
        return f"<{kind} {self.clone_request.template!r}: {state}>"

    def end(self, why: str, outcome: Optional[Outcome] = None) -> None:
        """Marks the cell as ended; the first reason is kept."""
        if self.over is None:
            self.over, self.outcome = why, outcome

    def check(self) -> None:
        if self.over is not None:
            raise SandboxEnded(f"the sandbox has ended: {self.over}", self.outcome)

    def begin(self, timeout: Optional[float], listeners: Listeners) -> Run:
        self.check()
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, not {timeout}")
        limit = OUTPUT_MAX if self.output_limit is None else self.output_limit
        self.runs += 1
        return Run(self, self.timeout if timeout is None else timeout, limit, listeners)

    def replaced(self, number: int) -> None:
        """Goes on with another cell, which has received none of the interrupts."""
        self.number, self.interrupts, self.client = number, 0, secrets.token_hex(8)

    def request(self, run: Run, fields: Mapping[str, Any]) -> bytes:
        """Encodes a request for the Python in the cell."""
        known = {"client": self.client, "interrupts": self.interrupts, "nonce": run.nonce}
        return json.dumps({**fields, **known}).encode() + b"\n"

    def forked(self, number: int) -> SandboxState:
        """The state of a fork of the cell, whose lifetime begins now."""
        life = SandboxState(self.clone_request.template, {})
        options: Dict[str, Any] = {name: value for name, value in self.clone_request.options.items() if name not in ("name", "publish")}
        life.clone_request = replace(self.clone_request, options=cast(Options, options))
        life.timeout, life.output_limit = self.timeout, self.output_limit
        life.number, life.interrupts, life.client, life.runs = number, self.interrupts, self.client, self.runs
        life.idle_timeout = self.idle_timeout
        life.end_by(self.clone_request.options.get("timeout"))
        return life

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

    def __init__(self, life: SandboxState, timeout: Optional[float], output_limit: int, listeners: Listeners) -> None:
        self.timeout = timeout
        # Other notes in the form of a result are the code's own.
        self.nonce = secrets.token_hex(8)
        self.outcome: Optional[Outcome] = None
        self.error: Optional[CodeError] = None
        self.is_done = False
        self.more: Mapping[str, Any] = {}
        self._state = life
        self._number = life.runs
        self._room = output_limit
        self._limit = output_limit
        self._since = time.monotonic()
        self._has_expired = False
        self._stop: Optional[Reason] = None
        self._exit_code = 0
        self._notes: List[str] = []
        self._begun = b""
        self._listeners = listeners
        self._displays = Displays()
        self._texts = {"stdout": StreamText(listeners.on_stdout), "stderr": StreamText(listeners.on_stderr)}
        # The timers and the reader of the output run concurrently.
        self._lock = threading.Lock()

    @property
    def is_stopped(self) -> bool:
        """The cell must be killed, or is being."""
        return self._stop is not None

    def expire(self) -> bool:
        """Handles the timeout. Returns whether the code must be interrupted."""
        with self._lock:
            if self.is_done or self._stop is not None:
                return False
            self._has_expired = True
            # The code that runs next waits for this interrupt.
            self._state.interrupts += 1
            return True

    def give_up(self) -> bool:
        """Handles the end of the time after the interrupt. Returns whether the cell must be killed."""
        with self._lock:
            if self.is_done or self._stop is not None:
                return False
            self._stop = "timed-out"
            return True

    def take(self, item: OutputItem) -> bool:
        """Handles output of the cell. Returns whether the cell must be killed because of it."""
        if isinstance(item, Outcome):
            self._end(item)
            return False
        data, is_too_much = item.data[: self._room], len(item.data) > self._room
        self._room -= len(data)
        if item.stream == "notes":
            # The server's pieces end anywhere.
            *whole, self._begun = (self._begun + data).split(b"\n")
            for note in whole:
                self._take_note(note.decode(errors="replace"))
        else:
            self._texts[item.stream].add(data)
        with self._lock:
            if not is_too_much or self.is_done or self._stop is not None:
                return False
            self._stop = "output-limit"
            return True

    def result(self, now: Optional[CellInfo]) -> Result:
        """Its result; `now` is the cell's state, if the cell is still running."""
        problem = self.more.get("problem")
        if isinstance(problem, str) and problem in _notes.PROBLEMS:
            raise refusal(problem, str(self.more.get("message", "the request was refused")))
        for text in self._texts.values():
            text.end()
        if self.error is not None and self._listeners.on_error:
            self._listeners.on_error(self.error)
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

    def execution(self, result: Result) -> Execution:
        """Its result with the values that it displayed."""
        return Execution(**vars(result), results=tuple(self._displays.all), execution_count=self._number)

    def contexts(self) -> List[_results.Context]:
        """The contexts that the cell listed."""
        return list(_results.contexts(self.more.get("contexts")))

    def _take_note(self, note: str) -> None:
        told = _notes.parse(note)
        if isinstance(told, _notes.Piece):
            data = self._displays.add(told)
            if data is not None and self._listeners.on_result:
                self._listeners.on_result(data)
            return
        with self._lock:
            if told is None or told.more.get("nonce") != self.nonce or self.is_done:
                self._notes.append(note)
            elif self._stop is None:
                self._finish(told)

    def _finish(self, end: End) -> None:
        self._exit_code, self.error, self.more = end.exit_code, end.error, end.more
        self.is_done = True
        # Code that ended by itself at the last moment was not interrupted.
        if self._has_expired and end.more.get("interrupted") is True:
            self._stop, self._exit_code = "timed-out", _TIMED_OUT
            message = f"it did not end within {self.timeout:g} s, and was interrupted; the sandbox goes on"
            self.error = replace(end.error, value=message) if end.error else CodeError("KeyboardInterrupt", message)

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            self.outcome, self.is_done = outcome, True
            self._exit_code = outcome.exit_code
            if self._has_expired and outcome.reason in ("signalled", "killed"):
                self._stop = "timed-out"
            if self._stop == "timed-out":
                self._exit_code = _TIMED_OUT
                self.error = _notes.ended(self._stop, f"it did not end within {self.timeout:g} s, nor after an interrupt")
            elif self._stop is not None:
                self.error = _notes.ended(self._stop, f"it printed more than its output limit of {self._limit} bytes")
            else:
                self.error = _notes.ended(outcome.reason, outcome.message)
