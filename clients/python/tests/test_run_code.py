# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code that is run for its value: rich results, errors, contexts, and languages."""

import base64
import os
import threading
import unittest
from typing import List

from support import SandboxCase  # first: it finds the package

import pando

RICH = """
class Rich:
    def _repr_html_(self): return "<b>1</b>"
    def _repr_png_(self): return b"\\x89PNG" + bytes(200_000)
    def _repr_svg_(self): return "<svg/>"
    def _repr_json_(self): return {"a": [1]}
    def _repr_markdown_(self): return "*1*", {"isolated": True}
    def _repr_latex_(self): raise NotImplementedError
    def _repr_jpeg_(self): raise ValueError("no image")
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/plain": "bundle", "application/x-test": [1]}
class Own:
    def _ipython_display_(self): display("own")
class Everything:
    def __getattr__(self, name): return lambda *_: 1
"""


class RunCode(SandboxCase):
    def value(self, code: str, language: str = "python") -> object:
        execution = self.s.run_code(code, language)
        self.assertIsNone(execution.error, execution)
        return execution.text

    def test_the_value_of_the_last_expression(self) -> None:
        first = self.s.run_code("x = 6\nprint('é')\nx * 7")
        self.assertEqual((first.text, first.stdout, first.logs.stdout), ("42", "é\n", ("é\n",)))
        self.assertEqual([result.is_main_result for result in first.results], [True])
        self.assertEqual((self.value("x"), self.value("x;"), self.value("x = 7"), self.value("None")), ("6", None, None, None))
        self.assertEqual(self.s.run("x").stdout, "")
        self.assertEqual(self.s.run_code("1").execution_count, self.s.run_code("1").execution_count - 1)

    def test_rich_results(self) -> None:
        self.s.run(RICH)
        heard: List[pando.DisplayData] = []
        execution = self.s.run_code("display(Bundle(), {1: 2})\nOwn()\nRich()", on_result=heard.append)
        bundle, plain, rich = execution.results
        self.assertEqual(heard, list(execution.results))
        self.assertEqual((bundle.text, bundle["application/x-test"], bundle.is_main_result), ("bundle", [1], False))
        self.assertEqual((plain.text, plain.formats()), ("{1: 2}", ["text"]))
        self.assertEqual((rich.html, rich.svg, rich.json, rich.markdown), ("<b>1</b>", "<svg/>", {"a": [1]}, "*1*"))
        assert rich.png is not None
        self.assertEqual(base64.b64decode(rich.png), b"\x89PNG" + bytes(200_000))
        self.assertEqual(rich.formats(), ["text", "html", "markdown", "svg", "png", "json"])
        self.assertIn("_repr_jpeg_ failed: ValueError: no image", execution.stderr)
        self.assertEqual(self.s.run_code("Own()").results[0].text, "'own'")
        self.assertEqual(self.s.run_code("display({'text/html': '<i>'}, raw=True)").results[0].html, "<i>")
        self.assertEqual(self.s.run_code("Everything()").results[0].formats(), ["text"])
        self.assertEqual(self.s.run_code("Rich").results[0].formats(), ["text"])

    def test_errors_are_data(self) -> None:
        errors: List[pando.CodeError] = []
        self.s.run("def fail():\n    return 1 / 0")
        execution = self.s.run_code("1\nfail()", on_error=errors.append)
        assert execution.error is not None
        self.assertEqual((execution.error.name, execution.error.value), ("ZeroDivisionError", "division by zero"))
        # The lines of earlier code are known.
        self.assertIn("in fail\n    return 1 / 0", execution.error.traceback)
        self.assertNotIn("_pando", execution.error.traceback)
        self.assertEqual((errors, execution.results), ([execution.error], ()))
        failed = self.s.run_code("class R:\n    def __repr__(self): return 1 / 0\nR()")
        self.assertIn("repr failed: ZeroDivisionError", failed.stderr)

    def test_await_outside_of_functions(self) -> None:
        self.assertEqual(self.value("import asyncio\nawait asyncio.sleep(0, 5)"), "5")
        self.assertEqual(self.value("async def twice(n): return 2 * n\ny = await twice(4)\ny"), "8")
        self.assertEqual(self.s.run("print(await twice(1))").stdout, "2\n")
        self.assertEqual(self.value("asyncio.run(twice(3))"), "6")
        failed = self.s.run_code("async def fail(): return {}[1]\nawait fail()")
        assert failed.error is not None
        self.assertEqual(failed.error.name, "KeyError")
        self.assertNotIn("asyncio", failed.error.traceback)
        late = self.s.run_code("await asyncio.sleep(1000)", timeout=0.3)
        assert late.error is not None
        self.assertEqual((late.reason, late.error.name), ("timed-out", "KeyboardInterrupt"))
        self.assertIn("await asyncio.sleep(1000)", late.error.traceback)
        self.assertEqual(self.s.run_code("await asyncio.sleep(0)\nraise SystemExit(4)").exit_code, 4)
        self.assertEqual(self.value("y"), "8")

    def test_contexts_have_variables_and_a_directory_of_their_own(self) -> None:
        self.s.run("z = 1")
        context = self.s.create_code_context(cwd="/usr")
        try:
            self.assertEqual(self.s.run_code("import os; os.getcwd(), 'z' in globals()", context=context).text, "('/usr', False)")
            self.s.run_code("os.chdir('lib'); z = 2", context=context)
            self.assertEqual(self.s.run_code("os.getcwd(), z", context=context).text, "('/usr/lib', 2)")
            self.assertEqual(self.value("import os; os.getcwd(), z"), "('/', 1)")
            self.assertEqual([known.id for known in self.s.list_code_contexts()], [context.id])
        finally:
            self.s.remove_code_context(context)
        self.assertEqual(self.s.list_code_contexts(), [])
        with self.assertRaises(pando.NoSuchContext):
            self.s.remove_code_context(context)
        with self.assertRaisesRegex(pando.NoSuchFile, "/none is no directory"):
            self.s.create_code_context(cwd="/none")
        with self.assertRaisesRegex(pando.BadRequest, "the languages are python, bash, javascript"):
            self.s.run_code("1", "ruby")
        with self.assertRaisesRegex(ValueError, "omit language"):
            self.s.run_code("1", "bash", context=context)

    def test_bash_keeps_its_state(self) -> None:
        self.s.run_code("y=\"it's\"; f() { echo \"$y\"; }; cd /usr", "bash")
        execution = self.s.run_code("f; pwd; echo no >&2; cat; false", "bash")
        self.assertEqual((execution.stdout, execution.stderr, execution.exit_code), ("it's\n/usr\n", "no\n", 1))
        for code in ("while true; do :; done", "sleep 1000; echo no"):
            late = self.s.run_code(code, "bash", timeout=0.3)
            self.assertEqual((late.reason, late.exit_code, late.stdout), ("timed-out", 124, ""))
        self.assertEqual(self.s.run_code("f", "bash").stdout, "it's\n")
        self.assertEqual(self.s.run_code("exit 3", "bash").exit_code, 3)
        self.assertEqual(self.s.run_code("echo [$y]", "bash").stdout, "[]\n")
        ended = self.s.run_code("kill -9 $$", "bash")
        assert ended.error is not None
        self.assertEqual((ended.error.name, ended.exit_code), ("InterpreterEnded", 137))

    def test_interrupts_before_the_code_begins_are_not_lost(self) -> None:
        for _ in range(5):
            late = self.s.run("while True: pass", timeout=0.0001)
            self.assertEqual((late.reason, late.error and late.error.name), ("timed-out", "KeyboardInterrupt"))
            self.assertEqual(self.value("1"), "1")

    def test_code_cannot_report_results_itself(self) -> None:
        told = ('{"exit_code": 0, "error": null}', '{"exit_code": 1, "error": null, "problem": "machine-full", "message": "x"}')
        result = self.s.run(f"import pando\nfor note in {told}: pando.note(note)\nprint(1)")
        self.assertEqual((result.stdout, result.notes), ("1\n", told))

    def test_errors_of_the_session_do_not_end_it(self) -> None:
        shell = self.s.create_code_context(language="bash")
        self.assertEqual(self.s.run_code("exit 3", context=shell).exit_code, 3)
        self.s.remove_code_context(shell)
        gone = self.s.run("import os, tempfile; gone = tempfile.mkdtemp(); os.chdir(gone); os.rmdir(gone)")
        self.assertEqual(gone.error, None)
        self.s.remove_code_context(self.s.create_code_context())
        self.s.run("os.chdir('/')")
        self.assertEqual(self.s.run_code("import sys; sys.modules['matplotlib.pyplot'] = 0; 7").text, "7")
        self.assertEqual(self.s.run("del sys.modules['matplotlib.pyplot']").error, None)
        with pando.Sandbox("python", client=self.client) as s, self.assertRaises(pando.SandboxEnded):
            s.run("import os, threading; threading.Timer(0.1, os._exit, [3]).start()")
            while True:
                s.list_code_contexts()

    @unittest.skipUnless(os.path.exists("/usr/bin/node"), "there is no Node")
    def test_javascript_keeps_its_state(self) -> None:
        execution = self.s.run_code("const a = 1; let b = {k: [a]}; console.log('hi'); b", "javascript")
        self.assertEqual((execution.stdout, execution.text, execution.results[0].json), ("hi\n", "{ k: [ 1 ] }", {"k": [1]}))
        self.assertEqual(self.value("await Promise.resolve(a + 1)", "javascript"), "2")
        self.assertEqual(self.value("undefined", "javascript"), None)
        for code, name in {"null.x": "TypeError", "1 +": "SyntaxError", "throw 1": "Error"}.items():
            failed = self.s.run_code(code, "javascript")
            assert failed.error is not None
            self.assertEqual(failed.error.name, name)
        thrower = "({ [Symbol.for('nodejs.util.inspect.custom')] () { throw new Error('no') } })"
        for code in (thrower, f"throw {thrower}", "throw { get stack () { throw 1 } }", "throw new Proxy({}, { get () { throw 1 } })"):
            self.assertIsNotNone(self.s.run_code(code, "javascript", timeout=20).error, code)
        for code in ("while (true);", "await new Promise(done => setTimeout(done, 1e6))"):
            late = self.s.run_code(code, "javascript", timeout=0.3)
            self.assertEqual((late.reason, late.error and late.error.name), ("timed-out", "KeyboardInterrupt"))
        self.assertEqual(self.value("a", "javascript"), "1")

    def test_it_is_interrupted_from_another_thread(self) -> None:
        begun = threading.Event()

        def interrupt() -> None:
            begun.wait(60)
            self.s.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        result = self.s.run("kept = 1\nprint(1)\nimport time; time.sleep(1000)", on_stdout=lambda _: begun.set())
        thread.join()
        assert result.error is not None
        self.assertEqual((result.reason, result.error.name, result.stdout), ("exited", "KeyboardInterrupt", "1\n"))
        self.assertEqual(self.value("kept"), "1")
        # Nothing runs: nobody is interrupted, and the next code is not either.
        self.s.interrupt()
        self.assertEqual(self.value("kept"), "1")


if __name__ == "__main__":
    unittest.main()
