# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inside a cell of Pando: says when this program is ready to be cloned, and speaks to whoever keeps the cell.

As a program (`python3 -m pando`) it is what the template `python` is made of: it loads what most programs load, is
ready, and then runs the code that a clone is given as its argument. Without one it runs the code that comes on standard
input, a JSON string on each line, one after the other in the same namespace; after each it says in a note what became
of it.
"""

import os
import sys

__all__ = ["note", "ready"]


def note(text):
    """Says a line to whoever keeps this cell, beside the program's streams: at most 64 KiB.

    Where nobody listens, nothing happens.
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
    """Says that this program is ready to be cloned.

    Where a template is wanted, the cell freezes here, and every clone goes on from here: with `sys.argv[1:]` and
    variables of the environment of its own, and with fresh random numbers from `random`, `uuid`, `secrets`, `ssl`,
    `tempfile`, `multiprocessing` and numpy's global generator. Generators that the program made for itself are its own
    to seed. Where a cell is frozen later, while it runs, these are fresh in its clones as well: a handler of the signal
    SIGRTMAX sees to that in the main thread, unless the program has one of its own.

    Returns the clone's number; None where nothing was cloned: no template was wanted, or this is no cell.
    """
    for stream in (sys.stdout, sys.stderr):
        # What was said before is not for the clones to say again.
        try:
            stream.flush()
        except (AttributeError, ValueError):
            # There is none, or it is closed.
            pass
    try:
        device = os.open("/dev/pando", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    # Each page that is touched from the word on is one that every clone has to itself. So all that it takes is at hand before, and kept: what is freed is touched.
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
    """What a clone calls so that it shares no random numbers. Only what is loaded has anything to forget."""
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
    """Asks for a signal in clones that do not go on from `ready`, because their cell was frozen while it ran."""
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
            # What the program has made of its modules is not ours to mend.
            pass


def _setting(what, *names):
    """What sets attributes to None."""

    def forget():
        for name in names:
            setattr(what, name, None)

    return forget


def _of_random(generator):
    return [super(type(generator), generator).seed, _setting(generator, "gauss_next")]


def _of_uuid(uuid):
    # The system's library keeps a node and a sequence of its own, which cannot be made anew.
    return _setting(uuid, "_generate_time_safe", "_UuidCreate", "_node", "_last_timestamp")


def _of_numpy(random):
    # All of the state at once: a seed would be stretched in Python, which touches three times as much memory.
    urandom, behind = os.urandom, (624).to_bytes(4, sys.byteorder)
    generator = random.mtrand._rand._bit_generator
    state = _numpy_state(random, generator)
    if state is None:
        numpy = sys.modules["numpy"]
        return lambda: random.set_state(("MT19937", numpy.frombuffer(urandom(4 * 624), numpy.uint32), 624))

    lock = generator.lock

    def fill(_owner=generator):
        # Another thread may be drawing. This one may as well, where a signal came in between.
        if lock.acquire(timeout=1):
            try:
                state[:] = urandom(4 * 624) + behind
            finally:
                lock.release()

    return fill


def _numpy_state(random, generator):
    """The memory of numpy's global generator: 624 words and a position, if they lie where they always did and there is nothing else to forget."""
    try:
        import ctypes

        name, words, position, has_gauss, _ = random.get_state()
        state = (ctypes.c_char * (4 * 625)).from_address(generator.ctypes.state_address)
        known = words.tobytes() + position.to_bytes(4, sys.byteorder)
        return memoryview(state).cast("B") if name == "MT19937" and not has_gauss and bytes(state) == known else None
    except Exception:
        return None


# What most programs load, so that clones have it.
_USUAL = (
    "argparse array ast asyncio base64 bisect calendar collections concurrent.futures contextlib copy csv dataclasses "
    "datetime decimal enum fractions functools hashlib heapq html io itertools json linecache logging math operator "
    "pathlib pickle pprint random re shutil socket sqlite3 ssl statistics string struct subprocess tempfile textwrap "
    "threading time traceback types typing unicodedata urllib.parse urllib.request uuid zlib numpy"
).split()
# Characters of an error's message and of its traceback that are told, if they fit.
_TOLD_MAX = 8000
# Characters of a note that says so: what `note` takes.
_NOTE_MAX = 65000


def _warm():
    import importlib

    for name in _USUAL:
        try:
            importlib.import_module(name)
        except Exception:
            # Not every Python has every module, and one that fails is not ours to mend.
            pass
    # Once through everything that the first code would need otherwise.
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
    """Runs code; returns how it ended: its exit code, and the error that ended it."""
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
    """An exception in words, which are said on standard error as well."""
    import traceback

    # Without the frame that is ours.
    error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        # The code has closed it, or nobody reads it.
        pass
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"name": type(error).__name__, "value": value, "traceback": text}


def _told(exit_code, error):
    """How code ended, as a note."""
    import json

    room = _TOLD_MAX
    while True:
        # The end of a traceback says most.
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
            # The code has closed it, or nobody reads it.
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
        # Children that it forked end here as well, and are not what is told of.
        if outcome[1] and os.getpid() == process:
            note(_told(*outcome))
        _flush()
        # Taking the interpreter down serves nobody: the cell goes as a whole.
        os._exit(outcome[0])


def _serve():
    """Runs one piece of code after the other."""
    import json

    # The code finds an empty standard input: what comes on ours is not for it to read.
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
            # A child that it forked: it ends where a program would.
            os._exit(outcome[0])
        note(_told(*outcome))
    _flush()
    os._exit(0)


if __name__ == "__main__":
    # A line is said when it is written, whatever ends the code after that.
    sys.stdout.reconfigure(line_buffering=True)
    _warm()
    ready()
    if len(sys.argv) > 1:
        _code = sys.argv.pop(1)
        sys.argv[0] = ""
        _once(_code)
    else:
        _serve()
