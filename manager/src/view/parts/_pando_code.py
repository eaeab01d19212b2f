# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs Python code: compiles it, describes its exceptions, and reports its result to the operator in a note.

The last expression of code can be displayed, and `await` is allowed outside of functions: see `run`.
"""

import os
import sys

import pando

# Modules that most programs load.
_USUAL = (
    "argparse array ast asyncio base64 bisect calendar collections concurrent.futures contextlib copy csv dataclasses "
    "datetime decimal enum fractions functools hashlib heapq html io itertools json linecache logging math operator "
    "pathlib pickle pprint random re shutil socket sqlite3 ssl statistics string struct subprocess tempfile textwrap "
    "threading time traceback types typing unicodedata urllib.parse urllib.request uuid zlib numpy"
).split()
# Characters of an error's message and of its traceback that are reported.
_TOLD_MAX = 8000
# Maximal characters of the note with the result: the limit of `note`.
_NOTE_MAX = 65000
# Files whose frames are left out of tracebacks.
_OWN = {__file__, os.path.join(os.path.dirname(__file__), "_pando_session.py")}


def warm():
    """Loads what most programs use."""
    import importlib

    for name in _USUAL:
        try:
            importlib.import_module(name)
        except Exception:
            # Not every Python has every module, and some may fail.
            pass
    # Run everything once that the first code would have to load otherwise.
    told(*run("1 + 1", module(), "<code>"))
    run("1", module(), "<code>", lambda value: None)
    try:
        raise RuntimeError
    except RuntimeError as error:
        sys.modules["traceback"].format_exception(type(error), error, error.__traceback__)


def module():
    """A module for code to run in."""
    import types

    new = sys.modules["__main__"] = types.ModuleType("__main__")
    new.__builtins__ = __builtins__
    return new


def run(code, module, name, display=None, finish=None):
    """Runs code; returns its exit code, and the error that ended it.

    `display` is called with the value of the last expression, if the code ends with one. `finish` runs a coroutine to its
    end: with it, `await` is allowed outside of functions. `name` is the file name in tracebacks.
    """
    import linecache

    # So that tracebacks show the lines.
    linecache.cache[name] = len(code), None, code.splitlines(True), name
    try:
        for is_last, part in _parts(code, name, display is not None, finish is not None):
            value = eval(part, module.__dict__)
            # CO_COROUTINE: it has a top-level await.
            if part.co_flags & 0x80:
                value = finish(value)
            if is_last and value is not None:
                display(value)
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return (leave.code or 0) & 0xFF, None
        print(leave.code, file=sys.stderr)
        return 1, None
    except BaseException as error:
        return 1, describe(error)
    return 0, None


def _parts(code, name, is_shown, may_await):
    """The compiled code: its statements, and its last expression if the value of that is shown."""
    import ast

    flags = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0) if may_await else 0
    if not is_shown:
        return [(False, compile(code, name, "exec", flags, True))]
    tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, True)
    # As in notebooks, a semicolon at the end hides the value.
    if not tree.body or not isinstance(tree.body[-1], ast.Expr) or code.rstrip().endswith(";"):
        return [(False, compile(tree, name, "exec", flags, True))]
    last = ast.Expression(tree.body.pop().value)
    return [(False, compile(tree, name, "exec", flags, True)), (True, compile(last, name, "eval", flags, True))]


def describe(error):
    """An exception as text, which is also printed on standard error."""
    import traceback

    error = error.with_traceback(_without_own(error.__traceback__))
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        sys.stderr.write(text)
    except Exception:
        # The code has closed or replaced it, or its reader has gone.
        pass
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"name": type(error).__name__, "value": value, "traceback": text}


def _without_own(trace):
    """A traceback without the frames of these modules before and behind the code's."""

    def is_own(frame):
        return frame.tb_frame.f_code.co_filename in _OWN

    while trace is not None and is_own(trace):
        trace = trace.tb_next
    last = trace
    while last is not None:
        # The handler of SIGINT raises KeyboardInterrupt there.
        if last.tb_next is not None and is_own(last.tb_next) and last.tb_next.tb_next is None:
            last.tb_next = None
        last = last.tb_next
    return trace


def told(exit_code, error, **more):
    """The result of code, as a note."""
    import json

    room = _TOLD_MAX
    while True:
        # The end of a traceback is the most useful.
        short = error and {"name": error["name"][:room], "value": error["value"][:room], "traceback": error["traceback"][-room:]}
        text = json.dumps(dict(more, exit_code=exit_code, error=short))
        if len(text) <= _NOTE_MAX or room == 0:
            return text
        room //= 2


def flush():
    """Writes what the streams still hold."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # The code has closed or replaced it, or its reader has gone.
            pass


def run_once(code):
    """Runs code as if it were the whole program."""
    import atexit
    import threading

    process = os.getpid()
    outcome = run(code, module(), "<code>")
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    finally:
        # Its forked children end here as well, and are not reported.
        if outcome[1] and os.getpid() == process:
            pando.note(told(*outcome))
        flush()
        # No interpreter shutdown: the whole cell ends.
        os._exit(outcome[0])


def write_at_once():
    """Lets the streams keep nothing back, not even a line that has only begun: output before an unexpected end arrives."""
    import io

    class Stream(io.TextIOWrapper):
        def write(self, text):
            count = super().write(text)
            # Whole lines are written anyway.
            if text and text[-1] != "\n":
                self.flush()
            return count

    def renewed(stream):
        encoding, errors = stream.encoding, stream.errors
        new = Stream(stream.detach(), encoding, errors, newline="\n", line_buffering=True)
        new.mode = "w"
        return new

    sys.stdout = sys.__stdout__ = renewed(sys.stdout)
    sys.stderr = sys.__stderr__ = renewed(sys.stderr)
