# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files and commands of sandboxes, their labels and time limits."""

import asyncio
import io
import os
import tarfile
import tempfile
import unittest
from pathlib import Path
from typing import List

from support import SandboxCase, server  # first: it finds the package

import pando
from pando import _archive

BIG = bytes(range(256)) * 8192


class Files(SandboxCase):
    def test_files_are_written_listed_and_removed(self) -> None:
        files = self.s.files
        made = files.write("/tmp/files/a/b.txt", "é")
        self.assertEqual((made.name, made.type, made.size, made.permissions, made.owner), ("b.txt", "file", 2, "-rw-r--r--", "root"))
        self.assertEqual((files.read("/tmp/files/a/b.txt"), files.read_bytes("/tmp/files/a/b.txt")), ("é", "é".encode()))
        self.assertEqual([entry.path for entry in files.list("/tmp/files")], ["/tmp/files/a"])
        self.assertEqual([entry.path for entry in files.list("/tmp/files", 2)], ["/tmp/files/a", "/tmp/files/a/b.txt"])
        self.assertEqual((files.make_dir("/tmp/files/c/d"), files.make_dir("/tmp/files/c/d")), (True, False))
        self.assertEqual(files.rename("/tmp/files/a/b.txt", "/tmp/files/c/e").path, "/tmp/files/c/e")
        self.s.exec(["ln", "-s", "c", "/tmp/files/link"])
        link = files.get_info("/tmp/files/link")
        self.assertEqual((link.type, link.symlink_target), ("link", "c"))
        files.remove("/tmp/files/link")
        self.assertTrue(files.exists("/tmp/files/c/e"))
        files.remove("/tmp/files")
        self.assertFalse(files.exists("/tmp/files"))

    def test_large_files_are_streamed(self) -> None:
        self.s.files.write("/tmp/new/big", io.BytesIO(BIG))
        self.assertEqual(b"".join(self.s.files.read_stream("/tmp/new/big")), BIG)
        self.s.write_file("/tmp/big", iter([b"a", b"b"]))
        self.assertEqual(self.s.read_file("/tmp/big"), b"ab")

    def test_impossible_operations_are_errors(self) -> None:
        files = self.s.files
        for wrong in (files.read, files.list, files.get_info, files.remove, lambda path: files.rename(path, "/tmp/x")):
            with self.assertRaisesRegex(pando.NoSuchFile, "/none: "):
                wrong("/none")  # type: ignore[operator]
            with self.assertRaisesRegex(pando.BadRequest, "absolute path"):
                wrong("none")  # type: ignore[operator]
        with self.assertRaisesRegex(pando.NoSuchFile, "Not a directory"):
            files.list("/etc/passwd")
        with self.assertRaisesRegex(ValueError, "depth"):
            files.list("/tmp", 0)
        with self.assertRaises(NotADirectoryError):
            files.upload("/etc/passwd", "/tmp/x")
        with self.assertRaisesRegex(pando.NoSuchFile, "is no directory"), tempfile.TemporaryDirectory() as place:
            files.download("/etc/passwd", place)

    def test_directories_go_in_and_out(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            source, target = Path(place, "in"), Path(place, "out")
            (source / "a/empty").mkdir(parents=True)
            (source / "a/big").write_bytes(BIG)
            (source / "run").write_text("#!/bin/sh\n")
            (source / "run").chmod(0o755)
            os.link(source / "a/big", source / "same")
            (source / "link").symlink_to("run")
            self.s.files.upload(source, "/tmp/tree/in")
            self.assertEqual(self.s.exec(["/tmp/tree/in/link"]).exit_code, 0)
            self.s.exec(["ln", "/tmp/tree/in/run", "/tmp/tree/in/name"])
            self.s.files.download("/tmp/tree", target)
            found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
            self.assertEqual(found, ["in", "in/a", "in/a/big", "in/a/empty", "in/name", "in/run", "in/same"])
            self.assertEqual(((target / "in/same").read_bytes(), (target / "in/run").stat().st_mode & 0o777), (BIG, 0o755))
            with self.assertRaisesRegex(pando.Error, "max_bytes"):
                self.s.files.download("/tmp/tree", target, max_bytes=1000)

    def test_an_archive_from_a_cell_stays_in_its_directory(self) -> None:
        def unpack(place: str, *members: tarfile.TarInfo) -> None:
            written = io.BytesIO()
            with tarfile.open(fileobj=written, mode="w") as archive:
                for member in members:
                    archive.addfile(member)
            with _archive.Unpacker(Path(place, "in"), 1 << 24) as unpacker:
                unpacker.add(written.getvalue())

        def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
            made = tarfile.TarInfo(name)
            made.type, made.linkname = kind, link
            return made

        with tempfile.TemporaryDirectory() as place:
            with self.assertRaisesRegex(pando.Error, "outside"):
                unpack(place, member("a/../../out"))
            # Links and devices are left out, and a leading slash means nothing.
            unpack(place, member("l", tarfile.SYMTYPE, ".."), member("l/x"), member("/y"), member("f", tarfile.FIFOTYPE))
            self.assertEqual(sorted(str(path.relative_to(place)) for path in Path(place).rglob("*")), ["in", "in/l", "in/l/x", "in/y"])
            Path(place, "in/up").symlink_to("..")
            with self.assertRaises(OSError):
                unpack(place, member("up/out"))
            for headers in ({"path": "a\0b"}, {"comment": "x" * (2 << 20)}):
                wrong = member("x")
                wrong.pax_headers = headers
                with self.assertRaisesRegex(pando.Error, "sent no directory"):
                    unpack(place, wrong)
            with self.assertRaises(pando.Error), _archive.Unpacker(Path(place), 1 << 20) as unpacker:
                unpacker.add(b"no archive" * 100)

    def test_commands_of_a_shell(self) -> None:
        run = self.s.commands.run
        result = run("echo $X; pwd; cat; exit 3", envs={"X": "it's"}, cwd="/usr", stdin="in")
        self.assertEqual((result.stdout, result.exit_code), ("it's\n/usr\nin", 3))
        self.assertEqual(run("sleep 1000", timeout=0.2).exit_code, 124)
        heard: List[str] = []
        run("echo a; echo b >&2", on_stdout=heard.append, on_stderr=heard.append)
        self.assertEqual(sorted(heard), ["a\n", "b\n"])

    def test_commands_in_the_background(self) -> None:
        run = self.s.commands.run
        with run("cat; echo end >&2", True, stdin=True) as handle:
            said = iter(handle)
            for text in ("one\n", "two\n"):
                handle.send_stdin(text)
                self.assertEqual(next(said), (text, None))
            # Code runs meanwhile.
            self.says(self.s.run("print(1)"), "1\n")
            handle.close_stdin()
            result = handle.wait()
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("one\ntwo\n", "end\n", 0))
            self.assertFalse(handle.kill())
            with self.assertRaises(pando.NoSuchJob):
                handle.send_stdin("late")
        with run("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done", True) as handle:
            self.assertEqual(next(iter(handle)), ("ready\n", None))
            self.assertTrue(handle.kill("TERM"))
            self.assertEqual(handle.wait().exit_code, 5)
        with run("exec sleep 1001", True) as handle:
            self.assertTrue(handle.kill())
            self.assertEqual(handle.wait().exit_code, 137)
        self.assertEqual(run("sleep 1000", True, timeout=0.2).wait().exit_code, 124)
        with run("echo; exec sleep 1002", True) as handle:
            next(iter(handle))
        # The end of the block has killed it.
        self.assertEqual(run("while grep -qs '100[2]' /proc/[0-9]*/cmdline; do :; done", timeout=20).exit_code, 0)
        with self.assertRaisesRegex(pando.BadRequest, "not a signal"), run("sleep 1000", True) as handle:
            handle.kill("NOPE")

    def test_labels(self) -> None:
        with pando.Sandbox("python", client=self.client, labels={"user": "ann", "task": "1"}) as s:
            assert s.cell is not None
            self.assertEqual(s.cell.info().labels, {"user": "ann", "task": "1"})
            self.assertEqual([cell.id for cell in self.client.cells({"user": "ann"})], [s.cell.id])
            self.assertEqual(self.client.cells({"user": "ann", "task": "2"}), [])
        with self.assertRaisesRegex(pando.BadRequest, "labels"):
            self.client.run("1", labels={"": "x"})

    def test_time_limits_are_changed(self) -> None:
        with pando.Sandbox("python", client=self.client, lifetime=1.5) as s:
            s.set_timeout(60)
            self.says(s.run("import time; time.sleep(1.6); print(1)"), "1\n")
            s.set_timeout(0.1)
            assert s.cell is not None
            s.cell.wait()
            with self.assertRaisesRegex(pando.SandboxEnded, "time limit"):
                s.run("print(1)")
            with self.assertRaises((pando.SandboxEnded, pando.WrongState)):
                s.set_timeout(60)
        with pando.Sandbox("python", client=self.client) as s, self.assertRaises(pando.BadRequest):
            s.set_timeout(-1)

    def test_idle_copies_and_successors_end(self) -> None:
        with pando.Sandbox("python", client=self.client, idle_timeout=1, name="one", publish=["0:8000"]) as s:
            name = s.snapshot()
            self.addCleanup(self.client.remove_template, name)
            (copy,) = s.fork()
            s.restore(name)
            copy.restore(name)
            s.set_timeout(60)
            for each in (s, copy):
                self.assertIsNotNone(each.cell and each.cell.wait(60))
                with self.assertRaisesRegex(pando.SandboxEnded, "time limit"):
                    each.run("1")

    def test_an_idle_sandbox_ends(self) -> None:
        with pando.Sandbox("python", client=self.client, idle_timeout=1) as s:
            self.says(s.run("import time; time.sleep(1.1); print(1)"), "1\n")
            self.assertEqual(s.exec(["sleep", "1.1"]).exit_code, 0)
            assert s.cell is not None
            outcome = s.cell.wait(60)
            assert outcome is not None
            self.assertEqual(outcome.reason, "timed-out")
            with self.assertRaisesRegex(pando.SandboxEnded, "time limit"):
                s.run("print(1)")

    def test_all_of_it_with_asyncio(self) -> None:
        async def use() -> None:
            async with pando.AsyncClient(server().socket, start=False) as client:
                async with pando.AsyncSandbox("python", client=client, timeout=60) as s:
                    await s.files.write("/tmp/big", io.BytesIO(BIG))
                    pieces = await s.files.read_stream("/tmp/big")
                    self.assertEqual(b"".join([piece async for piece in pieces]), BIG)
                    with tempfile.TemporaryDirectory() as place:
                        await s.files.download("/tmp", place)
                        await s.files.upload(place, "/tmp/again")
                        self.assertEqual(Path(place, "big").read_bytes(), BIG)
                    self.assertEqual((await s.files.list("/tmp/again"))[0].size, len(BIG))
                    async with await s.commands.run("cat", True, stdin=True) as handle:
                        await handle.send_stdin("a")
                        async for out, _ in handle:
                            self.assertEqual(out, "a")
                            await handle.kill("TERM")
                        self.assertEqual((await handle.wait()).exit_code, 143)
                    self.assertEqual((await s.run_code("1 + 1")).text, "2")
                    name = await s.snapshot()
                    await s.restore(name)
                    resumed = await pando.AsyncSandbox.resume(await s.pause(), client=client)
                    self.assertEqual((await resumed.run_code("1 + 1")).text, "2")
                    await resumed.close()
                    await client.remove_template(name)

        asyncio.run(use())


if __name__ == "__main__":
    unittest.main()
