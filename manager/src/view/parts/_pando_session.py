# SPDX-License-Identifier: MIT OR Apache-2.0
"""The program of the template `python`: runs the code in a clone's argument, or one piece of code after the other.

Without an argument it reads requests from standard input, a line of JSON each, and reports the result of each in a note.
A request is code as a string, or an object: `code`, `show` (display the value of the last expression), `context` (`id`,
`language` and `cwd`), `client` (an ID) and `interrupts` (the number of SIGINTs that this client sent before), `contexts` (list
them), `remove` (the ID of a context), or `nonce` (repeated in the note: others are not the result). Contexts of Python are
namespaces; those of other languages are processes.

SIGINT interrupts the code that runs, and nothing else. A clone of a session that was frozen while it waited runs the code in its
argument, too, if it has one.
"""

import gc
import os
import signal
import sys

import _pando_code
import _pando_display
import pando

# Seconds to wait for a SIGINT that was sent before a request.
_LATE_MAX = 1


class Cloned(BaseException):
    """This is a clone of a session that waited, and it has arguments. The argument is the descriptor of its standard input."""


class Refused(Exception):
    """A request that cannot be carried out: a word for programs, and a message."""


class Namespace:
    """A context of Python."""

    language = "python"

    def __init__(self, cwd=None):
        self.module = _pando_code.module()
        self.module.display = _pando_display.display
        self.cwd = cwd or _directory()
        self._runs = 0

    def run(self, session, code, is_shown):
        self._runs += 1
        sys.modules["__main__"] = self.module
        _change_directory(self.cwd)
        # The lines of earlier code are kept for its functions.
        name = "<code>" if self._runs == 1 else "<code %d>" % self._runs
        outcome = session.guard(lambda: self._run(session, code, name, is_shown))
        try:
            self.cwd = os.getcwd()
        except OSError:
            # The code has removed it.
            pass
        return outcome

    def _run(self, session, code, name, is_shown):
        outcome = _pando_code.run(code, self.module, name, _pando_display.show_value if is_shown else None, session.finish)
        if is_shown:
            try:
                _pando_display.show_figures()
            except BaseException as error:
                failed = 1, _pando_code.describe(error)
                return outcome if outcome[1] else failed
        return outcome

    def close(self):
        pass


def _directory():
    try:
        return os.getcwd()
    except OSError:
        # It was removed.
        return "/"


def _change_directory(path):
    try:
        os.chdir(path)
    except OSError:
        # It was removed: the code runs where it can.
        pass


class Session:
    """The contexts of this process, and the code that runs."""

    def __init__(self):
        self._contexts = {}
        self._loop = None
        self._is_guarded = False
        self._client = None
        # SIGINTs: all, those before the end of the last request, those that no client has sent, those before this request.
        self._interrupts = self._before = self._others = self._expected = 0
        self._foreign = None
        self.is_interrupted = False

    def answer(self, request):
        """Carries out a request. Returns the arguments of its note."""
        self.is_interrupted = False
        if isinstance(request, str):
            request = {"code": request}
        self._catch_up(request.get("client"), request.get("interrupts", 0))
        try:
            if request.get("contexts"):
                return (0, None), {"contexts": self._list()}
            if "remove" in request:
                self._remove(request["remove"])
                return (0, None), {}
            outcome = self._run(request)
        except Refused as error:
            word, message = error.args
            return (1, None), {"problem": word, "message": message}
        finally:
            # The code may have replaced it.
            signal.signal(signal.SIGINT, self.interrupt)
            self._before = self._interrupts
        return outcome, {"interrupted": True} if self.is_interrupted else {}

    def _run(self, request):
        context = self._find(request.get("context") or {"id": "", "language": "python"})
        if "code" not in request:
            return 0, None
        if isinstance(context, Namespace):
            return context.run(self, request["code"], request.get("show"))
        self._foreign = context
        try:
            if self._interrupts > self._expected:
                self.is_interrupted = True
                return 130, {"name": "KeyboardInterrupt", "value": "interrupted", "traceback": ""}
            return context.run(request["code"], request.get("show"))
        finally:
            self._foreign = None

    def _find(self, wanted):
        known = self._contexts.get(wanted["id"])
        if known is not None and not getattr(known, "is_over", False):
            return known
        cwd = wanted.get("cwd")
        if cwd is not None and not os.path.isdir(cwd):
            raise Refused("no-such-file", "%s is no directory of the sandbox" % cwd)
        if wanted["language"] == "python":
            made = Namespace(cwd)
        else:
            import _pando_languages

            made = _pando_languages.start(wanted["language"], cwd, Refused)
        self._contexts[wanted["id"]] = made
        return made

    def _list(self):
        return [{"id": name, "language": each.language, "cwd": each.cwd} for name, each in self._contexts.items() if name[:8] not in ("", "default-")]

    def _remove(self, name):
        if name not in self._contexts:
            raise Refused("no-such-context", "the sandbox has no context %s" % name)
        self._contexts.pop(name).close()

    def guard(self, call):
        """Calls a function that SIGINT may interrupt."""
        try:
            self._is_guarded = True
            try:
                if self._interrupts > self._expected:
                    # It came before the code began.
                    self.is_interrupted = True
                    raise KeyboardInterrupt
                return call()
            finally:
                self._is_guarded = False
        except KeyboardInterrupt as error:
            # It came at the very end.
            self._is_guarded = False
            return 1, _pando_code.describe(error)

    def finish(self, coroutine):
        """Runs a coroutine to its end, in the event loop of this session."""
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            self._loop.run_until_complete(asyncio.wait([task]))
        except KeyboardInterrupt as interrupt:
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
            try:
                return task.result()
            except asyncio.CancelledError as error:
                # It shows where the code waited.
                raise interrupt.with_traceback(error.__traceback__) from None
        except SystemExit:
            # Marks it as seen.
            task.exception()
            raise
        error = None if task.cancelled() else task.exception()
        if error is not None:
            raise error
        return task.result()

    def interrupt(self, *_):
        """The handler of SIGINT."""
        self._interrupts += 1
        if self._foreign is not None:
            self.is_interrupted = True
            self._foreign.interrupt()
        elif self._is_guarded:
            self.is_interrupted = True
            raise KeyboardInterrupt

    def _catch_up(self, client, sent):
        """Waits for SIGINTs that were meant for earlier code. Later ones are meant for the code of this request."""
        import time

        if client != self._client and self._client is not None:
            # A resumed session: the earlier client's have arrived.
            self._others = self._interrupts - sent
        self._client = client
        # The code may have sent some itself.
        self._others = max(self._others, self._before - sent)
        end = time.monotonic() + _LATE_MAX
        while self._interrupts < sent + self._others and time.monotonic() < end:
            time.sleep(0.01)
        # Two may have become one.
        self._others = min(self._others, self._interrupts - sent)
        self._expected = sent + self._others


def _failure(error):
    """An error of this program itself, in the form of `describe`."""
    try:
        value = str(error)
    except Exception:
        value = ""
    return {"name": type(error).__name__, "value": value, "traceback": ""}


def _requests(source):
    """Reads lines from a descriptor. Raises Cloned in a clone that has arguments, which may read the descriptor itself."""
    import select

    process, rest, is_waiting = os.getpid(), b"", False

    def arguments():
        try:
            return pando._given("/proc/pando/arguments")
        except OSError:
            # This is no cell.
            return b""

    # A program that is no clone finds its own.
    before = arguments()

    def check():
        if arguments() not in (b"", before) and os.getpid() == process:
            raise Cloned(source)

    def clone(*_):
        pando._reseed()
        if is_waiting:
            check()

    if signal.getsignal(signal.SIGRTMAX) is pando._reseed:
        signal.signal(signal.SIGRTMAX, clone)
    while True:
        # Nothing is read while the handler may raise.
        is_waiting = True
        select.select([source], [], [])
        is_waiting = False
        # There may be input before the signal.
        check()
        piece = os.read(source, 65536)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def rehearse(code="print(1)"):
    """Runs code as a session does. Clones of a template that was trained with this find the memory present that a session needs."""
    import json

    read, write = os.pipe()
    for is_shown in (False, True):
        request = {"code": code, "show": is_shown, "client": "", "interrupts": 0, "nonce": ""}
        os.write(write, json.dumps(request).encode() + b"\n")
    os.close(write)
    own = os.dup(0)
    os.dup2(read, 0)
    os.close(read)
    try:
        _serve()
    finally:
        os.dup2(own, 0)
        os.close(own)


def _serve():
    """Carries out the requests of the standard input to its end."""
    import json

    # The code gets an empty standard input, because ours carries the requests.
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    process = os.getpid()
    session = Session()
    signal.signal(signal.SIGINT, session.interrupt)
    for line in _requests(source):
        mark = {}
        try:
            request = json.loads(line)
            if isinstance(request, dict) and "nonce" in request:
                mark = {"nonce": request.pop("nonce")}
            outcome, more = session.answer(request)
        except BaseException as error:
            # Code may have changed anything here: the session goes on as far as it can.
            outcome, more = (1, _failure(error)), {}
        _pando_code.flush()
        if os.getpid() != process:
            # A forked child ends at the end of its code.
            os._exit(outcome[0])
        try:
            pando.note(_pando_code.told(*outcome, **more, **mark))
        except Exception as error:
            # A list of contexts may be too long for a note.
            pando.note(_pando_code.told(1, _failure(error), **mark))


def main():
    """Runs the program of the template."""
    _pando_code.write_at_once()
    # Figures become images of the results.
    os.environ.setdefault("MPLBACKEND", "module://_pando_matplotlib")
    _pando_code.warm()
    # Modules that a recipe names are loaded before the cell is cloned.
    for name in os.environ.pop("PANDO_PRELOAD", "").split():
        __import__(name)
    # The garbage collector writes to each object that it examines. Those that exist now need no collection in clones.
    gc.collect()
    gc.freeze()
    pando.ready()
    if len(sys.argv) <= 1:
        try:
            _serve()
            _pando_code.flush()
            os._exit(0)
        except Cloned as clone:
            os.dup2(clone.args[0], 0)
            pando._take_arguments()
    code = sys.argv.pop(1)
    sys.argv[0] = ""
    _pando_code.run_once(code)
