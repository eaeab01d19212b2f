# SPDX-License-Identifier: MIT OR Apache-2.0
"""Contexts of other languages: a process each, which keeps its state from code to code.

Bash reads commands as an interactive shell does, so that SIGINT ends what it runs and not the shell itself. Node evaluates
code as its REPL does (`_pando_session.js`). Their output goes to the streams of this process.
"""

import json
import os
import signal
import subprocess

# The shell prints no prompts, and keeps no history.
_BASH_BEGIN = "exec 2>&%d %d>&-; set +o history +H; unset PS2 HISTFILE; PS1=\n"
_BASH_RUN = "eval %s </dev/null %d>&-\n_pando_status=$?; echo $_pando_status >&%d; (exit $_pando_status)\n"


def start(language, cwd, refused):
    """Starts a context of a language. `refused` is the exception for a language that is unknown or not installed."""
    kinds = {"bash": _Bash, "javascript": _Node}
    if language not in kinds:
        raise refused("bad-request", "unknown language %r: the languages are python, %s" % (language, ", ".join(kinds)))
    try:
        return kinds[language](cwd)
    except FileNotFoundError as error:
        raise refused("no-such-program", "%s is not installed in this sandbox: its template must see it" % error.filename)
    except OSError as error:
        raise refused("no-such-program", "%s cannot be started in this sandbox: %s" % (language, error))


class _Process:
    """An interpreter with two pipes: for code, and for the results."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.is_over = False
        inside, self._code = os.pipe()
        self._results, outside = os.pipe()
        try:
            self._process = self._start(inside, outside)
        except OSError:
            os.close(self._code)
            os.close(self._results)
            raise
        finally:
            os.close(inside)
            os.close(outside)
        self._answers = os.fdopen(self._results, "rb")

    def _popen(self, words, **options):
        # In a group of its own: only the context that runs code is interrupted.
        return subprocess.Popen(words, cwd=self.cwd, start_new_session=True, **options)

    def interrupt(self):
        try:
            os.killpg(self._process.pid, signal.SIGINT)
        except OSError:
            # It has ended.
            pass

    def run(self, code, is_shown):
        try:
            with open(os.dup(self._code), "wb") as pipe:
                pipe.write(self._request(code))
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = b""
        if answer.endswith(b"\n"):
            return self._outcome(answer, is_shown)
        self.close()
        status = self._process.wait()
        if status >= 0:
            return status, None
        value = "the interpreter was ended by signal %d: its state is lost" % -status
        return 128 - status, {"name": "InterpreterEnded", "value": value, "traceback": ""}

    def close(self):
        if self.is_over:
            return
        self.is_over = True
        os.close(self._code)
        self._answers.close()
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                pass


class _Bash(_Process):
    language = "bash"

    def _start(self, inside, outside):
        self._status = outside
        errors = os.dup(2)
        # The messages that there is no terminal go nowhere; then the shell opens its standard error itself.
        words = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
        try:
            with open(os.devnull, "wb") as nothing:
                environment = dict(os.environ, PS1="", PS2="", PROMPT_COMMAND="")
                process = self._popen(words, stdin=inside, stderr=nothing, pass_fds=[outside, errors], env=environment)
            os.write(self._code, (_BASH_BEGIN % (errors, errors)).encode())
        finally:
            os.close(errors)
        return process

    def _request(self, code):
        quoted = "'" + code.replace("\0", "").replace("'", "'\\''") + "'"
        return (_BASH_RUN % (quoted, self._status, self._status)).encode("utf-8", "surrogateescape")

    def _outcome(self, answer, _):
        return int(answer) & 0xFF, None


class _Node(_Process):
    language = "javascript"

    def _start(self, inside, outside):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_pando_session.js")
        words = ["node", script, str(inside), str(outside)]
        return self._popen(words, stdin=subprocess.DEVNULL, pass_fds=[inside, outside])

    def _request(self, code):
        return json.dumps(code).encode() + b"\n"

    def _outcome(self, answer, is_shown):
        import _pando_display

        said = json.loads(answer)
        if said["error"]:
            return 1, said["error"]
        if is_shown and said["data"]:
            _pando_display.publish(said["data"], True)
        return 0, None
