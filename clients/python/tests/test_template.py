# SPDX-License-Identifier: MIT OR Apache-2.0
"""Templates that are built by recipes."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any, List, Set

from support import Case, program, server  # first: it finds the package

import pando


def wheel(place: Path, version: str) -> Path:
    """Makes a wheel of a package `grove`."""
    path = place / f"grove-{version}-py3-none-any.whl"
    info = f"grove-{version}.dist-info"
    files = {
        "grove/__init__.py": f"version = {version!r}\nimport random\ndrawn = random.random()\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: grove\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


def python_image(place: Path) -> Path:
    """Makes an archive of this host's Python, with pip, a shell and some tools."""
    library = Path(os.__file__).parent
    programs = [Path(sys.executable).resolve(), *(Path(shutil.which(name) or name).resolve() for name in ("dash", "mkdir", "chmod", "ln"))]
    wanted: Set[Path] = {library, *programs}
    binaries = [*programs, *(library / "lib-dynload").glob("*.so")]
    for line in subprocess.run(["ldd", *binaries], capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        wanted.update(Path(word) for word in words if word.startswith("/") and not word.endswith(":"))
    path = place / "root.tar"
    with tarfile.open(path, "w") as archive:
        for each in sorted(wanted):
            archive.add(each.resolve() if each.is_file() else each, str(each), filter=lambda info: None if "/test/" in info.name else info)
        pip = Path("/usr/lib/python3/dist-packages/pip")
        archive.add(pip, "/usr/lib/python3/dist-packages/pip")
        for name, target in (("/bin/sh", "dash"), ("/usr/bin/python3", programs[0].name)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target if name != "/bin/sh" else str(programs[1])
            archive.addfile(link)
        for name in ("/bin/mkdir", "/bin/chmod", "/bin/ln"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(Path(shutil.which(Path(name).name) or name).resolve())
            if Path(link.linkname) != Path(name):
                archive.addfile(link)
        users = tarfile.TarInfo("/etc/passwd")
        text = b"root:x:0:0:root:/root:/bin/sh\n"
        users.size = len(text)
        archive.addfile(users, io.BytesIO(text))
    return path


class Templates(Case):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = Path(directory.name)

    def build(self, recipe: pando.Template, **options: Any) -> str:
        with contextlib.redirect_stderr(io.StringIO()) as told:
            name = recipe.build(client=self.client, **options)
        self.told = told.getvalue()
        self.addCleanup(self.remove, name)
        return name

    def remove(self, name: str) -> None:
        with contextlib.suppress(pando.NoSuchTemplate):
            self.client.remove_template(name)

    @unittest.skipUnless(Path("/usr/lib/python3/dist-packages/pip").is_dir(), "there is no pip")
    def test_packages_are_added_to_the_hosts_python(self) -> None:
        first = wheel(self.place, "1.0")
        copied = self.place / "data"
        copied.mkdir()
        (copied / "tool").write_text("#!/bin/sh\necho tool $NAME\n")
        (copied / "tool").chmod(0o755)
        (copied / "link").symlink_to("tool")
        private = self.place / "private"
        (private / "below").mkdir(parents=True)
        private.chmod(0o700)
        (private / "below").chmod(0o750)
        (private / "-link").symlink_to("-to")
        (self.place / "alias").symlink_to(copied / "tool")

        def recipe(path: Path) -> pando.Template:
            named = pando.Template().env(NAME="value").pip_install(str(path), options=("--no-index",))
            named = named.copy(private, "/tmp").copy(self.place / "alias", "/opt/alias")
            return named.copy(copied, "/opt/data").run("/opt/data/link > /opt/said").preload("grove", "json.tool")

        output: List[str] = []
        name = self.build(recipe(first), on_output=output.append)
        self.assertIn("creating the template", self.told)
        self.assertIn("Successfully installed grove-1.0", "".join(output))
        code = "import sys; print('grove' in sys.modules); import grove; print(grove.version)"
        self.says(self.client.run(code, template=name), "True\n1.0\n")
        with pando.Sandbox(name, client=self.client) as s:
            self.says(s.run(code), "True\n1.0\n")
            self.says(s.run("import os; print(open('/opt/said').read().strip(), os.environ['NAME'], 'load' in globals())"), "tool value value False\n")
            self.assertEqual(s.exec(["/opt/data/tool"]).exit_code, 0)
            # A directory that was there keeps its mode; of a link that is named, its file is copied.
            code = "print(*(oct(os.lstat(each).st_mode) for each in ('/tmp', '/tmp/below', '/tmp/-link', '/opt/alias')))"
            self.says(s.run(code), "0o41777 0o40750 0o120777 0o100755\n")
        # The same recipe is found again, and another one is built.
        self.assertEqual((self.build(recipe(first)), self.told), (name, ""))
        (copied / "tool").write_text("#!/bin/sh\necho changed\n")
        changed = self.build(recipe(first))
        self.assertNotEqual(changed, name)
        self.says(self.client.run("print(open('/opt/said').read().strip())", template=changed), "changed\n")
        other = self.build(recipe(wheel(self.place, "2.0")))
        self.says(self.client.run("import grove; print(grove.version)", template=other), "2.0\n")
        self.assertEqual(self.running(), [])

    def test_a_step_that_fails_is_reported_with_its_output(self) -> None:
        with self.assertRaisesRegex(pando.BuildError, "run echo why; exit 3: exited with status 3; its output:\nwhy$"):
            self.build(pando.Template().run("echo why; exit 3"))
        with self.assertRaisesRegex(pando.BuildError, "preload no_such_module: ModuleNotFoundError: .*no_such_module"):
            self.build(pando.Template().preload("no_such_module"))
        with self.assertRaisesRegex(ValueError, "apt_install needs an image"):
            self.build(pando.Template().apt_install("git"))
        with self.assertRaisesRegex(pando.BuildError, "pull"):
            self.build(pando.Template().image("localhost:1/none").run("true"))
        for wrong in ("import os", "a-b", ""):
            with self.assertRaises(ValueError):
                pando.Template().preload(wrong)
        self.assertEqual(self.running(), [])

    @unittest.skipUnless(Path("/usr/lib/python3/dist-packages/pip").is_dir(), "there is no pip")
    def test_packages_are_added_to_a_container_image(self) -> None:
        environment = {**server().environment}
        root = python_image(self.place)
        words = [program(), "image", "import", "-c", 'ENTRYPOINT ["/bin/false"]', "-c", "ENV KEPT=yes", str(root), "grove-python:v1"]
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)

        package = str(wheel(self.place, "1.0"))

        def recipe(command: str) -> pando.Template:
            packages = pando.Template().image("grove-python:v1").pip_install(package, options=("--no-index",))
            return packages.env(NAME='"value"').run(command).preload("grove")

        name = self.build(recipe("echo $NAME > /said"))
        code = "import sys; print('grove' in sys.modules); import grove, os; print(grove.version, open('/said').read().strip(), os.environ['NAME'], os.environ['KEPT'])"
        self.says(self.client.run(code, template=name), 'True\n1.0 "value" "value" yes\n')
        with pando.Sandbox(name, client=self.client) as s:
            self.says(s.run(code), 'True\n1.0 "value" "value" yes\n')
            self.says(s.run("import random; x = random.random()"), "")
            s.files.write("/tmp/a/b", "text")
            self.assertEqual(s.files.read("/tmp/a/b"), "text")
        drawn = {self.client.run("import random; print(random.random())", template=name).stdout for _ in range(3)}
        self.assertEqual(len(drawn), 3)
        self.assertEqual((self.build(recipe("echo $NAME > /said")), self.told), (name, ""))
        self.assertNotEqual(self.build(recipe("echo other > /said")), name)
        # The same name for another image makes another template.
        subprocess.run([*words[:3], "-c", "ENV KEPT=no", *words[-2:]], env=environment, check=True, stdout=subprocess.DEVNULL)
        other = self.build(recipe("echo $NAME > /said"))
        self.assertNotEqual(other, name)
        self.says(self.client.run("import os; print(os.environ['KEPT'])", template=other), "no\n")


if __name__ == "__main__":
    unittest.main()
