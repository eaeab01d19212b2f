# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inside a cell of Pando: reports when this program is ready to be cloned, and sends notes to the operator.

As a program (`python3 -m pando`) it is the program of the template `python`: it loads common modules, reports that it is
ready, and then runs the code in a clone's argument. Without an argument it runs code from standard input, a JSON string
on each line, one after the other in the same namespace; after each it reports the result in a note.
"""

import os
import sys

__all__ = ["note", "ready"]


def note(text):
    """Sends a line of at most 64 KiB to the operator of this cell, separate from the program's streams.

    Outside of a cell it does nothing.
    """
    try:
        device = os.open("/dev/pando", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(device, b"note " + text.encode())
    finally:
        os.close(device)


def ready():
    """Reports that this program is ready to be cloned.

    If a template is being created, the cell freezes here, and every clone continues here: with its own `sys.argv[1:]`
    and environment variables, and with fresh random numbers from `random`, `uuid`, `secrets`, `ssl`, `tempfile`,
    `multiprocessing` and numpy's global generator. The program must seed its own generators. If a cell is frozen later,
    while it runs, a handler of the signal SIGRTMAX reseeds the same generators in the main thread of its clones, unless
    the program has a handler of its own.

    Returns the clone's number, or None if nothing was cloned: no template is being created, or this is no cell.
    """
    for stream in (sys.stdout, sys.stderr):
        # Clones must not repeat earlier output.
        try:
            stream.flush()
        except (AttributeError, ValueError):
            # There is none, or it is closed.
            pass
    try:
        device = os.open("/dev/pando", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    # Each page that is written after the freeze is copied in every clone. So everything needed is allocated before, and kept: freeing
    # writes, too.
    split, reseeding = bytes.split, _reseeding()
    _KEPT.append(reseeding)
    _reseed_at_signal(device)
    try:
        os.write(device, b"ready")
        number = int(split(os.read(device, 64))[1])
    except BlockingIOError:
        return None
    finally:
        os.close(device)
    for reseed in reseeding:
        reseed()
    arguments = _given("/proc/pando/arguments")
    environment = _given("/proc/pando/environment")
    sys.argv[1:] = map(os.fsdecode, split(arguments, b"\0")[:-1]) if arguments else ()
    if environment:
        for variable in split(environment, b"\0")[:-1]:
            name, _, value = variable.partition(b"=")
            os.environb[name] = value
    return number


_KEPT = []


def _given(path):
    given = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    whole = piece = os.read(given, 4096)
    while piece:
        piece = os.read(given, 4096)
        whole += piece
    os.close(given)
    return whole


def _reseeding():
    """The functions that reseed a clone's random numbers. Only loaded modules need it."""
    modules, steps = sys.modules, []
    if "random" in modules:
        steps += _of_random(modules["random"]._inst)
    if "uuid" in modules:
        steps.append(_of_uuid(modules["uuid"]))
    if "tempfile" in modules:
        steps.append(_setting(modules["tempfile"], "_name_sequence"))
    if "ssl" in modules:
        steps.append(lambda: modules["ssl"].RAND_add(os.urandom(48), 48.0))
    if "numpy.random" in modules:
        steps.append(_of_numpy(modules["numpy"].random))
    if "multiprocessing.process" in modules:
        process = modules["multiprocessing.process"]
        steps.append(lambda: setattr(process.current_process(), "authkey", os.urandom(32)))
    return steps


def _reseed_at_signal(device):
    """Requests a signal in clones that do not continue in `ready`, because their cell was frozen while it ran."""
    import signal

    try:
        if signal.getsignal(signal.SIGRTMAX) == signal.SIG_DFL:
            signal.signal(signal.SIGRTMAX, _reseed)
            os.write(device, b"signal %d" % signal.SIGRTMAX)
    except ValueError:
        # Only the main thread may have handlers.
        pass


def _reseed(*_):
    for reseed in _reseeding():
        try:
            reseed()
        except Exception:
            # The program may have changed its modules.
            pass


def _setting(what, *names):
    """A function that sets attributes to None."""

    def forget():
        for name in names:
            setattr(what, name, None)

    return forget


def _of_random(generator):
    return [super(type(generator), generator).seed, _setting(generator, "gauss_next")]


def _of_uuid(uuid):
    # The system's library has a node and a sequence of its own, which cannot be reset.
    return _setting(uuid, "_generate_time_safe", "_UuidCreate", "_node", "_last_timestamp")


def _of_numpy(random):
    # Sets the whole state at once: expanding a seed in Python would write three times as much memory.
    urandom, behind = os.urandom, (624).to_bytes(4, sys.byteorder)
    generator = random.mtrand._rand._bit_generator
    state = _numpy_state(random, generator)
    if state is None:
        numpy = sys.modules["numpy"]
        return lambda: random.set_state(("MT19937", numpy.frombuffer(urandom(4 * 624), numpy.uint32), 624))

    lock = generator.lock

    def fill(_owner=generator):
        # Another thread may hold the lock, or this one, if the signal interrupted it.
        if lock.acquire(timeout=1):
            try:
                state[:] = urandom(4 * 624) + behind
            finally:
                lock.release()

    return fill


def _numpy_state(random, generator):
    """The memory of numpy's global generator: 624 words and a position, if they have the known layout and it has no other state."""
    try:
        import ctypes

        name, words, position, has_gauss, _ = random.get_state()
        state = (ctypes.c_char * (4 * 625)).from_address(generator.ctypes.state_address)
        known = words.tobytes() + position.to_bytes(4, sys.byteorder)
        return memoryview(state).cast("B") if name == "MT19937" and not has_gauss and bytes(state) == known else None
    except Exception:
        return None


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


def _warm():
    import importlib

    for name in _USUAL:
        try:
            importlib.import_module(name)
        except Exception:
            # Not every Python has every module, and some may fail.
            pass
    # Run everything once that the first code would have to load otherwise.
    _told(*_run("1 + 1", _module()))
    try:
        raise RuntimeError
    except RuntimeError as error:
        sys.modules["traceback"].format_exception(error)


def _module():
    """A module for code to run in."""
    import types

    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    return module


def _run(code, module):
    """Runs code; returns its exit code, and the error that ended it."""
    import linecache

    name = "<code>"
    # So that tracebacks show the lines.
    linecache.cache[name] = len(code), None, code.splitlines(True), name
    try:
        exec(compile(code, name, "exec"), module.__dict__)
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return (leave.code or 0) & 0xFF, None
        print(leave.code, file=sys.stderr)
        return 1, None
    except BaseException as error:
        return 1, _error(error)
    return 0, None


def _error(error):
    """An exception as text, which is also printed on standard error."""
    import traceback

    # Without the frame of this module.
    error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        # The code has closed it, or its reader has gone.
        pass
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"name": type(error).__name__, "value": value, "traceback": text}


def _told(exit_code, error):
    """The result of code, as a note."""
    import json

    room = _TOLD_MAX
    while True:
        # The end of a traceback is the most useful.
        told = error and {"name": error["name"][:room], "value": error["value"][:room], "traceback": error["traceback"][-room:]}
        text = json.dumps({"exit_code": exit_code, "error": told})
        if len(text) <= _NOTE_MAX:
            return text
        room //= 2


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # The code has closed it, or its reader has gone.
            pass


def _once(code):
    """Runs code as if it were the whole program."""
    import atexit
    import threading

    process = os.getpid()
    outcome = _run(code, _module())
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    finally:
        # Its forked children end here as well, and are not reported.
        if outcome[1] and os.getpid() == process:
            note(_told(*outcome))
        _flush()
        # No interpreter shutdown: the whole cell ends.
        os._exit(outcome[0])


def _serve():
    """Runs one piece of code after the other."""
    import json

    # The code gets an empty standard input, because ours carries the code.
    source = os.fdopen(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    process = os.getpid()
    module = _module()
    for line in source:
        outcome = _run(json.loads(line), module)
        _flush()
        if os.getpid() != process:
            # A forked child ends at the end of its code.
            os._exit(outcome[0])
        note(_told(*outcome))
    _flush()
    os._exit(0)


def _write_at_once():
    """Lets the streams keep nothing back, not even a line that has only begun: whatever ends the code, what it wrote is said."""
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


if __name__ == "__main__":
    _write_at_once()
    _warm()
    ready()
    if len(sys.argv) > 1:
        _code = sys.argv.pop(1)
        sys.argv[0] = ""
        _once(_code)
    else:
        _serve()
