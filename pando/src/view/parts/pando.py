# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inside a cell of Pando: says when this program is ready to be cloned."""

import os
import sys

__all__ = ["ready"]


def ready():
    """Says that this program is ready to be cloned.

    Where a template is wanted, the cell freezes here, and every clone goes on from here: with `sys.argv[1:]` and
    variables of the environment of its own, and with fresh random numbers from `random`, `uuid`, `secrets`, `ssl`,
    `tempfile`, `multiprocessing` and numpy's global generator. Generators that the program made for itself are its own
    to seed.

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
    try:
        os.write(device, b"ready")
        number = int(os.read(device, 64).split()[1])
    except BlockingIOError:
        return None
    finally:
        os.close(device)
    _reseed()
    sys.argv[1:] = map(os.fsdecode, _given("arguments"))
    for variable in _given("environment"):
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    return number


def _given(what):
    with open("/proc/pando/" + what, "rb") as given:
        return given.read().split(b"\0")[:-1]


def _reseed():
    """Only what is loaded has anything to forget."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "uuid" in modules:
        # The system's library keeps a node and a sequence of its own, which cannot be made anew.
        modules["uuid"]._generate_time_safe = modules["uuid"]._UuidCreate = None
        modules["uuid"]._node = modules["uuid"]._last_timestamp = None
    if "tempfile" in modules:
        modules["tempfile"]._name_sequence = None
    if "ssl" in modules:
        modules["ssl"].RAND_add(os.urandom(48), 48.0)
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "multiprocessing.process" in modules:
        process = modules["multiprocessing.process"]
        process.current_process().authkey = os.urandom(32)
