# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inside a cell of Pando: reports when this program is ready to be cloned, and sends notes to the operator.

As a program (`python3 -m pando`) it is the program of the template `python`: see `__main__`.
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
    _take_arguments()
    return number


_KEPT = []


def _take_arguments():
    """Sets the arguments and environment variables of this clone."""
    split = bytes.split
    arguments = _given("/proc/pando/arguments")
    environment = _given("/proc/pando/environment")
    sys.argv[1:] = map(os.fsdecode, split(arguments, b"\0")[:-1]) if arguments else ()
    if environment:
        for variable in split(environment, b"\0")[:-1]:
            name, _, value = variable.partition(b"=")
            os.environb[name] = value


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
        # The first call sets OpenSSL up, and writes some megabytes.
        modules["ssl"].RAND_add(os.urandom(48), 48.0)
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
