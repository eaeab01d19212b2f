# SPDX-License-Identifier: MIT OR Apache-2.0
"""Templates, cells, and the start of servers."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
import venv
from pathlib import Path
from typing import Dict, List
from unittest import mock

from support import Case, environment, program, server  # first: it finds the package

import pando
from pando import _server

ADDER = "import pando, sys; pando.ready(); print(sum(map(int, sys.argv[1:])))"
FIRST_USE = "import pando; print(pando.run('print(6 * 7)').stdout, pando.Client().info().process)"


class DefaultSocket(unittest.TestCase):
    def test_the_variable_names_it(self) -> None:
        with mock.patch.dict(os.environ, {"PANDO_SOCKET": "/x/socket"}):
            self.assertEqual(_server.place(), Path("/x/socket"))
        with mock.patch.dict(os.environ, {"PANDO_SOCKET": "x/socket"}):
            with self.assertRaisesRegex(pando.ServerMissing, "PANDO_SOCKET=x/socket: not an absolute path"):
                _server.place()
        with mock.patch.dict(os.environ, {"PANDO_SOCKET": "", "XDG_RUNTIME_DIR": "", "XDG_DATA_HOME": "/data"}):
            self.assertEqual(_server.place(), Path("/data/pando/run/socket"))


class Templates(Case):
    def test_made_and_removed(self) -> None:
        made = self.client.create_template("adder", ["python3", "-c", ADDER], memory="128M")
        self.assertEqual((made.name, made.arguments[0], made.memory_bytes), ("adder", "python3", 128 << 20))
        self.assertEqual(self.client.template("adder"), made)
        self.assertIn(made, self.client.templates())
        self.says(self.client.run("1", template="adder", arguments=["2"]), "3\n")
        with self.assertRaisesRegex(pando.TemplateExists, "adder"):
            self.client.create_template("adder", ["python3", "-c", ADDER])
        self.client.create_template("adder", ["python3", "-c", ADDER], replace=True)
        self.client.remove_template("adder")
        with self.assertRaisesRegex(pando.NoSuchTemplate, "adder"):
            self.client.run("1", template="adder")
        with self.assertRaises(pando.NoSuchTemplate):
            self.client.remove_template("adder")

    def test_impossible_templates_are_refused_with_reasons(self) -> None:
        with self.assertRaisesRegex(pando.NotReady, "its output:\nwhy\n*$"):
            self.client.create_template("failing", ["python3", "-c", "print('why')"])
        with self.assertRaisesRegex(pando.NoSuchProgram, "no-such-program"):
            self.client.create_template("missing", ["no-such-program"])
        with self.assertRaisesRegex(pando.BadRequest, "arguments"):
            self.client.create_template("nothing")
        for name in ("", "..", "a/b", "a?b", "a b"):
            with self.subTest(name), self.assertRaises(pando.BadRequest):
                self.client.template(name)


class Cells(Case):
    def test_one_is_written_to_and_read(self) -> None:
        with self.client.start("python", ["for line in iter(input, ''): print(line[::-1], flush=True)"]) as cell:
            said = cell.output()
            position = 0
            for line, answer in (("abc", "cba\n"), ("é€", "€é\n")):
                cell.write(line + "\n")
                last, text = position, ""
                # It may come in pieces.
                while text != answer:
                    piece = next(said)
                    self.assertEqual(piece.number, position)
                    position, text = piece.next, text + piece.text
                    self.assertTrue(answer.startswith(text), text)
            self.assertIsNone(cell.wait(0.01))
            info = cell.info()
            self.assertEqual((info.id, info.template, info.outcome), (cell.id, "python", None))
            cell.write("\n")
            self.assertEqual(list(said), [])
            outcome = cell.wait()
            assert outcome is not None
            self.assertEqual((outcome.reason, outcome.exit_code, outcome.message), ("exited", 0, "exited with status 0"))
            self.assertEqual(b"".join(piece.data for piece in cell.output(first=last)), "€é\n".encode())
            with self.assertRaises(pando.WrongState):
                cell.write("more")
        with self.assertRaises(pando.NoSuchCell):
            cell.info()

    def test_programs_are_started_in_one(self) -> None:
        heard: List[str] = []
        with self.client.start("python", ["input()"]) as cell:
            code = "import os, sys; print(sys.stdin.read(), os.environ['NAME'], os.getcwd(), os.getuid()); sys.exit('no')"
            result = cell.exec(
                ["/usr/bin/python3", "-c", code],
                stdin="é",
                environment={"NAME": "it's"},
                directory="/tmp",
                user="7",
                on_stdout=heard.append,
            )
            told = (result.stdout, result.stderr, result.exit_code, result.message)
            self.assertEqual(told, ("é it's /tmp 7\n", "no\n", 1, "exited with status 1"))
            self.assertEqual("".join(heard), result.stdout)
            late = cell.exec(["sh", "-c", "echo begun; sleep 1000"], timeout=0.2)
            self.assertEqual((late.stdout, late.exit_code, late.message), ("begun\n", 124, "its time limit expired"))
            self.assertEqual(cell.exec(["no-such-program"]).exit_code, 127)
            most = "x" * (64 << 10)
            self.assertEqual(cell.exec(["sh", "-c", "cat; cat /proc/self/maps /usr/bin/python3"], stdin=most).stdout[: len(most)], most)
            with self.assertRaisesRegex(ValueError, "write them to a file"):
                cell.exec(["cat"], stdin=most + "x")
            with self.assertRaises(pando.BadRequest):
                cell.exec([])
            with self.assertRaisesRegex(TypeError, "unknown option 'cwd'; the options are environment"):
                cell.exec(["true"], **{"cwd": "/"})  # type: ignore[arg-type]

    def test_files_go_in_and_out(self) -> None:
        data = bytes(range(256)) * 9_000
        with self.client.start("python", ["input(); print(len(open('/tmp/in', 'rb').read()))"]) as cell:
            cell.write_file("/tmp/in", data)
            self.assertEqual(cell.read_file("/tmp/in"), data)
            cell.write_file("/tmp/empty", "")
            self.assertEqual(cell.read_file("/tmp/empty"), b"")
            cell.write("\n")
            self.assertEqual("".join(piece.text for piece in cell.output()), f"{len(data)}\n")
            with self.assertRaisesRegex(pando.WrongState, "ended"):
                cell.read_file("/tmp/in")
        with self.client.start("python", ["input()"]) as cell:
            for path in ("/no/such", "/tmp"):
                with self.subTest(path), self.assertRaisesRegex(pando.NoSuchFile, path):
                    cell.write_file(path, "x")
            with self.assertRaises(pando.NoSuchFile):
                cell.read_file("/no/such")
            with self.assertRaisesRegex(pando.BadRequest, "absolute"):
                cell.read_file("tmp/x")

    def test_those_in_one_network_reach_each_other(self) -> None:
        serve = "import socket; s = socket.create_server(('', 7)); print('up', flush=True); s.accept()[0].send(b'hello')"
        ask = "import socket, sys; print(socket.create_connection((sys.argv[1], 7)).recv(9).decode())"
        with self.client.start("python", [serve], network="lab") as server:
            next(server.output())
            addresses = server.info().addresses
            assert addresses is not None
            self.says(self.client.run(ask, arguments=[addresses.ipv4], network="lab"), "hello\n")

    def test_one_is_ended(self) -> None:
        with self.client.start("python", ["print(1, flush=True)\nwhile True: pass"]) as cell:
            next(cell.output())
            cell.kill("interrupt")
            outcome = cell.wait()
            assert outcome is not None
            self.assertEqual(outcome.exit_code, 1)
            self.assertIn("KeyboardInterrupt", "".join(piece.text for piece in cell.output()))
        with self.client.start("python", ["while True: pass"]) as cell:
            cell.kill()
            outcome = cell.wait()
            assert outcome is not None
            self.assertEqual((outcome.reason, outcome.message), ("killed", "killed"))
            self.assertIn(cell.id, [each.id for each in self.client.cells()])
            self.assertEqual(self.client.cell(cell.id).id, cell.id)


class Servers(unittest.TestCase):
    def setUp(self) -> None:
        server()
        place = tempfile.TemporaryDirectory(prefix="pando-")
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def python(self, code: str, variables: Dict[str, str]) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", code]
        return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=600)

    def test_one_is_started_where_there_is_none_and_stays(self) -> None:
        variables = {**environment(self.place), "PANDO": program()}
        first = self.python(FIRST_USE, variables)
        answer, process = first.stdout.split()
        self.addCleanup(os.kill, int(process), signal.SIGTERM)
        self.assertEqual(answer, "42")
        self.assertRegex(
            first.stderr,
            r"""^pando: creating the template "python" from this host's Python, once\.\.\.\npando: done in [\d.]+ s\n$""",
        )
        second = self.python(FIRST_USE, variables)
        self.assertEqual((second.stdout.split(), second.stderr), ([answer, process], ""))

    def test_code_sees_the_virtual_environment_that_is_active(self) -> None:
        place = self.place / "venv"
        venv.create(place)
        (packages,) = place.glob("lib/python3*/site-packages")
        (packages / "greeting.py").write_text("text = 'hello'\n")
        variables = {**environment(self.place), "PANDO": program(), "VIRTUAL_ENV": str(place)}
        code = "import pando; print(pando.run('import greeting; print(greeting.text)').stdout, pando.Client().info().process)"
        answer, process = self.python(code, variables).stdout.split()
        self.addCleanup(os.kill, int(process), signal.SIGTERM)
        self.assertEqual(answer, "hello")
        # Its packages change.
        (packages / "other.py").write_text("text = 'hello again'\n")
        files = "\nwith pando.Sandbox() as s: print(s.files.exists('/tmp'))"
        again = self.python(code.replace("greeting", "other") + files, variables)
        self.assertRegex(again.stdout, r"^hello again\s(.*\s)*True\n$", again.stderr)
        # The server that all tests share was not started with it.
        variables = {**server().environment, "VIRTUAL_ENV": str(place)}
        code = "import pando, sys; print(pando.Client(sys.argv[1], start=False).run('print(1)').stdout)"
        blind = subprocess.run([sys.executable, "-c", code, server().socket], env=variables, capture_output=True, text=True, timeout=600)
        self.assertEqual(blind.stdout.strip(), "1", blind.stderr)
        self.assertIn("code sees the host's Python instead: ", blind.stderr)

    def test_clients_that_start_a_server_at_once_share_it(self) -> None:
        variables = {**environment(self.place), "PANDO": program()}
        words = [sys.executable, "-c", "import pando; print(pando.Client().info().process)"]
        several = [subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        told: List[str] = [each.communicate()[0].strip() for each in several]
        self.addCleanup(os.kill, int(told[0]), signal.SIGTERM)
        self.assertEqual(set(told), {told[0]})

    def test_a_machine_without_the_program(self) -> None:
        variables = {**environment(self.place), "PATH": "/nowhere"}
        variables.pop("PANDO")
        said = self.python("import pando; pando.run('1')", variables)
        self.assertEqual(said.returncode, 1)
        self.assertRegex(said.stderr, r"pando.*ServerMissing: no server is running at .*install the wheel of this package.*PANDO\n$")

    def test_one_that_cannot_start_says_why(self) -> None:
        variables = {**environment(self.place), "PANDO": "/bin/false"}
        self.assertIn("`/bin/false serve --gateways 16` failed", self.python("import pando; pando.run('1')", variables).stderr)

    def test_none_is_started_if_nobody_wants_that(self) -> None:
        with pando.Client(self.place / "socket", start=False) as client:
            with self.assertRaisesRegex(pando.ServerMissing, f"no server is running at {self.place}/socket: start `pando serve`"):
                client.info()


if __name__ == "__main__":
    unittest.main()
