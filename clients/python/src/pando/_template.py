# SPDX-License-Identifier: MIT OR Apache-2.0
"""Templates that are built by recipes: the steps run in a cell, whose files become an image, or which is frozen itself."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from . import _program, _wire
from ._async import AsyncClient, reported
from ._cell import AsyncCell
from ._errors import BuildError, NoSuchTemplate, ServerMissing, UnusableTemplate
from ._recipe import PYTHON, CopiedFile, Recipe, Step, by_mode
from ._sandbox import AsyncSandbox
from ._text import OnText
from ._types import Size

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class BuildOptions(TypedDict, total=False):
        memory: Size
        timeout: float
        allow: Optional[Sequence[str]]
        on_output: Optional[OnText]
        force: bool


_OF_IMAGE = "recipe-"
# Paths in one command.
_PATHS = 200
_ARE_DIRECTORIES = 'for path; do if [ -d "$path" ]; then echo yes; else echo no; fi; done'
# The end of a step's output that an error has.
_KEPT = 2000
# The session finds what was installed after it had started.
_LOAD = """
def load(modules):
    import importlib, os, site, sys
    for place in site.getsitepackages():
        if place not in sys.path and os.path.isdir(place):
            site.addsitedir(place)
    importlib.invalidate_caches()
    for module in modules:
        __import__(module)
"""


class AsyncTemplate(Recipe):
    """A recipe of a template, for asyncio: see `Template`."""

    async def build(self, *, client: Optional[AsyncClient] = None, **options: Unpack[BuildOptions]) -> str:
        """Builds the template, unless there is one of the same recipe, and returns its name: see `Template.build`."""
        if client is not None:
            return await build(self, client, **options)
        async with AsyncClient() as own:
            return await build(self, own, **options)


async def build(
    recipe: Recipe,
    client: AsyncClient,
    *,
    memory: Size = "2G",
    timeout: float = 1800.0,
    allow: Optional[Sequence[str]] = None,
    on_output: Optional[OnText] = None,
    force: bool = False,
) -> str:
    """Builds the template of a recipe, unless there is one, and returns its name."""
    if recipe.base is None and any(step.is_for_images for step in recipe.steps):
        raise ValueError("apt_install needs an image: begin the recipe with image(NAME)")
    if allow is None:
        allow = ("public",) if recipe.needs_network else ()
    builder = _Builder(recipe, client, memory, timeout, tuple(allow), on_output)
    name = await builder.name()
    if force or not await _is_usable(client, name):
        with reported(name, f"the image {recipe.base}" if recipe.base else "this host's Python"):
            await builder.build(name)
    return name


async def _is_usable(client: AsyncClient, name: str) -> bool:
    """Whether there is a template that can be cloned."""
    try:
        async with await client.start(name):
            return True
    except (NoSuchTemplate, UnusableTemplate):
        return False


class _Builder:
    def __init__(
        self, recipe: Recipe, client: AsyncClient, memory: Size, timeout: float, allow: Tuple[str, ...], on_output: Optional[OnText]
    ) -> None:
        self._recipe, self._client, self._memory, self._timeout, self._allow = recipe, client, memory, timeout, allow
        self._on_output = on_output
        self._image = ""

    async def name(self) -> str:
        """The template's name, which has the digest of the recipe."""
        base = "host"
        if self._recipe.base is not None:
            self._image = base = await self._image_id(self._recipe.base)
        digest = await self._client.io.call(lambda: self._recipe.digest(base, self._memory))
        return (_wire.SESSION if self._recipe.base is None else _OF_IMAGE) + digest

    async def build(self, name: str) -> None:
        if self._recipe.base is None:
            await self._build_session(name)
        else:
            await self._build_image(name)

    async def _build_session(self, name: str) -> None:
        """Runs the steps in a sandbox of the host's Python, and freezes it."""
        recipe = self._recipe
        async with AsyncSandbox("python", client=self._client, memory=self._memory, lifetime=self._timeout, allow=self._allow) as s:
            cell = await s._started()
            info = await cell.info()
            program = (await self._client.template(info.template or "python")).arguments
            for step in recipe.steps:
                await self._execute(cell, step, program[0] if program else "python3")
            # Not in the namespace of later code.
            context = await s.create_code_context()
            loaded = await s.run_code(
                f"import os\nos.environ.update({dict(recipe.variables)!r})\n{_LOAD}\nload({list(recipe.modules)!r})", context=context
            )
            if loaded.error is not None:
                raise BuildError(f"preload {' '.join(recipe.modules)}: {loaded.error.name}: {loaded.error.value}")
            await s.remove_code_context(context)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                await cell.freeze(name, replace=True)

    async def _build_image(self, name: str) -> None:
        """Runs the steps in a cell of the image, makes an image of its files, and a template of that."""
        recipe, image = self._recipe, f"localhost/pando-recipe:{self._tag(name)}"
        words: List[str] = []
        for variable, value in recipe.variables.items():
            # One pair of quotes is removed.
            words += ["-c", f'ENV {variable}="{value}"']
        order: Dict[str, Any] = {
            # It waits for input that does not come.
            "image": self._image, "entrypoint": "/bin/sh", "arguments": ["-c", "read _"], "user": "0:0",
            "memory": str(self._memory), "timeout": self._timeout, "allow": list(self._allow), "environment": dict(recipe.variables),
        }
        async with AsyncCell(self._client, await self._client.do(_wire.start_program(order))) as cell:
            for step in recipe.steps:
                await self._execute(cell, step, "python3")
            # The template's program is not an argument of the image's entrypoint.
            await self._pando(["commit", "-m", "a recipe of the Python client", "-c", "ENTRYPOINT []", *words, str(cell.id), image])
        environment = {"PANDO_PRELOAD": " ".join(recipe.modules)}
        await self._client.create_template(
            name, ["python3", "-m", "pando"], image=image, environment=environment, memory=self._memory, train_arguments=["print(1)"],
            replace=True,
        )

    async def _execute(self, cell: AsyncCell, step: Step, python: str) -> None:
        """Executes a step in the cell."""
        if step.copies:
            await self._copy(cell, await self._client.io.call(lambda: list(step.files())))
        if not step.words:
            return
        kept: List[str] = []

        def keep(text: str) -> None:
            kept.append(text)
            if self._on_output is not None:
                self._on_output(text)

        words = [python if word == PYTHON else word for word in step.words]
        environment = {**self._recipe.variables, **step.environment}
        done = await cell.exec(words, environment=environment, directory="/", user="0:0", on_stdout=keep, on_stderr=keep)
        if done.exit_code != 0:
            raise BuildError(f"{step.text}: {done.message}; its output:\n{''.join(kept)[-_KEPT:].strip()}")

    async def _copy(self, cell: AsyncCell, files: List[CopiedFile]) -> None:
        """Copies files of the host into the cell, with their permissions. Directories that exist there keep theirs."""
        directories = {os.path.dirname(each.path) for each in files} | {each.path for each in files if each.is_directory}
        made = await self._missing(cell, sorted(directories - {"/"}))
        await self._each(cell, ["mkdir", "-p"], made)
        for each in files:
            if each.target is not None:
                await self._run(cell, ["ln", "-sfn", "--", each.target, each.path])
            elif not each.is_directory:
                await cell.write_file(each.path, await self._client.io.call(each.local.read_bytes))
        for mode, paths in by_mode(files, made).items():
            await self._each(cell, ["chmod", f"{mode:o}"], paths)

    async def _missing(self, cell: AsyncCell, paths: List[str]) -> List[str]:
        """Those of the paths that are no directories of the cell."""
        missing: List[str] = []
        for start in range(0, len(paths), _PATHS):
            piece = paths[start : start + _PATHS]
            answers = (await self._run(cell, ["/bin/sh", "-c", _ARE_DIRECTORIES, "sh", *piece])).split()
            missing += [path for path, answer in zip(piece, answers) if answer == "no"]
        return missing

    async def _each(self, cell: AsyncCell, words: List[str], paths: List[str]) -> None:
        for start in range(0, len(paths), _PATHS):
            await self._run(cell, [*words, "--", *paths[start : start + _PATHS]])

    async def _run(self, cell: AsyncCell, words: List[str]) -> str:
        """Runs a program for a copy, and returns its output."""
        done = await cell.exec(words, directory="/", user="0:0")
        if done.exit_code != 0:
            raise BuildError(f"cannot copy files into the cell: {done.stderr.strip() or done.message}")
        return done.stdout

    async def _image_id(self, name: str) -> str:
        """The ID of an image, which is pulled if the store does not have it."""
        found = await self._pando(["image", "inspect", name], is_required=False)
        if not found:
            await self._pando(["pull", name])
            found = await self._pando(["image", "inspect", name])
        return str(json.loads(found)[0]["Id"])

    async def _pando(self, words: List[str], is_required: bool = True) -> str:
        """Runs the program `pando` with the service's directories, and returns its output; "" if it failed and is not required."""
        found = _program.find()
        if not found:
            raise ServerMissing("there is no program `pando` in PATH: images need it; or name it in the variable PANDO")
        program = found
        environment = dict(os.environ, PANDO_SOCKET=str(self._client.socket))
        templates = Path((await self._client.info()).templates)
        if templates.parent.name == "pando":
            environment["XDG_DATA_HOME"] = str(templates.parent.parent)

        def ran() -> subprocess.CompletedProcess[str]:
            return subprocess.run([program, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

        done = await self._client.io.call(ran)
        if done.returncode == 0:
            return done.stdout
        if is_required:
            raise BuildError(f"`pando {' '.join(words)}` failed:\n{done.stderr.strip()}")
        return ""

    @staticmethod
    def _tag(name: str) -> str:
        return name[len(_OF_IMAGE) :]
