# SPDX-License-Identifier: MIT OR Apache-2.0
"""Recipes of templates, without I/O with the server: their steps, and the digest of all that they contain."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

if TYPE_CHECKING:
    from typing_extensions import Self

# Changes when the same recipe gives other results.
_VERSION = 2
# Where wheels of the host are put in the cell.
_WHEELS = "/tmp/pando-wheels"

_PIP = {
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
_APT = (
    'apt-get update && apt-get install -y --no-install-recommends "$@" && rm -rf /var/lib/apt/lists/*'
)
PYTHON = "{python}"
"""Stands for the path of the Python in the words of a step."""


@dataclass(frozen=True)
class CopiedFile:
    """A file, a directory or a link of the host, and its path in the cell."""

    local: Path
    path: str
    mode: int
    target: Optional[str] = None
    """The target of a symbolic link."""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def description(self) -> List[Any]:
        if self.target is not None:
            return [self.path, "link", self.target]
        permissions = stat.S_IMODE(self.mode)
        if self.is_directory:
            return [self.path, "dir", permissions]
        digest = hashlib.sha256()
        with open(self.local, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
        return [self.path, "file", permissions, digest.hexdigest()]


@dataclass(frozen=True)
class Step:
    """A step: files that are copied into the cell, then a program that runs there."""

    text: str
    """Its description for people."""
    words: Tuple[str, ...] = ()
    """The program and its arguments; PYTHON stands for the Python."""
    copies: Tuple[Tuple[str, str], ...] = ()
    """Paths of the host and of the cell."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_network: bool = False
    is_for_images: bool = False

    def files(self) -> Iterator[CopiedFile]:
        """The files that it copies, directories before their content."""
        for local, path in self.copies:
            # Of a link, the file that it leads to is copied.
            yield from _walk(Path(os.path.realpath(local)), path)

    def description(self) -> List[Any]:
        return [list(self.words), dict(self.environment), [each.description() for each in self.files()]]


@dataclass(frozen=True)
class Recipe:
    """The steps to a template. Each method returns a recipe with one more step."""

    base: Optional[str] = None
    steps: Tuple[Step, ...] = ()
    modules: Tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def image(self, name: str) -> Self:
        """Begins with this container image, which has a Python; by default with the host's Python, or the virtual environment."""
        return replace(self, base=name)

    def pip_install(self, *packages: str, options: Tuple[str, ...] = ()) -> Self:
        """Installs packages by pip: names, requirements such as "pandas>=2", or wheels of this host by their paths.

        `options` are those of `pip install`, such as ("--index-url", URL) or ("--no-index", "--find-links", "/wheels").
        """
        wheels = [package for package in packages if package.endswith(".whl") and os.path.isfile(package)]
        copies = tuple((os.path.abspath(wheel), f"{_WHEELS}/{os.path.basename(wheel)}") for wheel in wheels)
        named = [f"{_WHEELS}/{os.path.basename(package)}" if package in wheels else package for package in packages]
        words = (PYTHON, "-m", "pip", "install", *options, *named)
        text = f"pip install {' '.join(packages)}"
        return self._with(Step(text, words, copies, _PIP, needs_network="--no-index" not in options))

    def apt_install(self, *packages: str) -> Self:
        """Installs Debian's packages. Needs an image."""
        words = ("/bin/sh", "-c", _APT, "sh", *packages)
        text = f"apt-get install {' '.join(packages)}"
        environment = {"DEBIAN_FRONTEND": "noninteractive"}
        return self._with(Step(text, words, environment=environment, needs_network=True, is_for_images=True))

    def copy(self, local: Union[str, Path], path: str) -> Self:
        """Copies a file or a directory of this host to an absolute path of the template.

        Directories that exist there keep their permissions.
        """
        if not path.startswith("/"):
            raise ValueError(f"path: give an absolute path of the template, not {path!r}")
        return self._with(Step(f"copy {local} {path}", copies=((os.path.abspath(local), path),)))

    def run(self, command: str) -> Self:
        """Runs a line of the shell, as root."""
        return self._with(Step(f"run {command}", ("/bin/sh", "-c", command)))

    def env(self, **variables: str) -> Self:
        """Sets environment variables, for the steps and for the template's programs."""
        return replace(self, variables={**self.variables, **variables})

    def preload(self, *modules: str) -> Self:
        """Loads modules of Python before the template is frozen: its clones find them loaded."""
        for module in modules:
            if not all(part.isidentifier() for part in module.split(".")):
                raise ValueError(f"{module!r} is not the name of a module")
        return replace(self, modules=self.modules + modules)

    @property
    def needs_network(self) -> bool:
        return any(step.needs_network for step in self.steps)

    def digest(self, base: str, memory: Union[str, int, None]) -> str:
        """A digest of the recipe, of the files that it copies, and of what it begins with."""
        steps = [step.description() for step in self.steps]
        parts = [_VERSION, base, steps, list(self.modules), dict(self.variables), str(memory)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]

    def _with(self, step: Step) -> Self:
        return replace(self, steps=(*self.steps, step))


def _walk(local: Path, path: str) -> Iterator[CopiedFile]:
    found = os.lstat(local)
    target = os.readlink(local) if stat.S_ISLNK(found.st_mode) else None
    yield CopiedFile(local, path, found.st_mode, target)
    if stat.S_ISDIR(found.st_mode):
        for name in sorted(os.listdir(local)):
            below = local / name
            kind = os.lstat(below).st_mode
            if stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind):
                yield from _walk(below, f"{path.rstrip('/')}/{name}")


def by_mode(files: List[CopiedFile], made: Sequence[str]) -> Dict[int, List[str]]:
    """The paths of files and of the directories among `made`, by their permissions."""
    modes: Dict[int, List[str]] = {}
    new = set(made)
    for each in files:
        if each.target is None and (not each.is_directory or each.path in new):
            modes.setdefault(stat.S_IMODE(each.mode), []).append(each.path)
    return modes
