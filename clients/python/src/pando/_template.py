# SPDX-License-Identifier: MIT OR Apache-2.0
"""Templates that are built by recipes: the program `pando` does the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence

from . import _program
from ._async import AsyncClient
from ._errors import BuildError, ServerMissing
from ._recipe import Recipe
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


# The end of a step's output that an error has.
_KEPT = 2000


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
    file: Dict[str, Any] = {**recipe.file(), "memory": str(memory), "timeout": timeout}
    if allow is not None:
        file["allow"] = list(allow)
    if recipe.base is None:
        file["template"] = await _session_template(client)
    program = _program.find()
    if not program:
        raise ServerMissing("there is no program `pando` in PATH: recipes need it; or name it in the variable PANDO")
    words = [program, "template", "build", "--json", "-f", "-"] + (["--force"] if force else [])
    environment = dict(os.environ, PANDO_SOCKET=str(client.socket))
    templates = Path((await client.info()).templates)
    if templates.parent.name == "pando":
        environment["XDG_DATA_HOME"] = str(templates.parent.parent)
    return await _Build(client, on_output).finish(words, environment, json.dumps(file).encode())


async def _session_template(client: AsyncClient) -> str:
    """The template of the host's Python, or of the virtual environment; it is created if it is missing."""
    async with await client.start("python") as cell:
        return (await cell.info()).template or "python"


class _Build:
    """A run of `pando template build`."""

    def __init__(self, client: AsyncClient, on_output: Optional[OnText]) -> None:
        self._io, self._on_output = client.io, on_output
        self._output = ""
        self._name: Optional[str] = None
        self._since: Optional[float] = None

    async def finish(self, words: Sequence[str], environment: Mapping[str, str], recipe: bytes) -> str:
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as errors:
            source.write(recipe)
            source.seek(0)
            process = subprocess.Popen(words, env=environment, stdin=source, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdout is not None
            try:
                while True:
                    line = await self._io.call(process.stdout.readline)
                    if not line:
                        break
                    self._take(json.loads(line))
                status = await self._io.call(process.wait)
            finally:
                # The steps end with it.
                process.kill()
                process.wait()
                process.stdout.close()
            errors.seek(0)
            told = errors.read().decode(errors="replace").strip()
        if status != 0 or self._name is None:
            message = told.rpartition("pando: ")[2] or f"`pando template build` ended with status {status}"
            output = self._output[-_KEPT:].strip()
            raise BuildError(f"{message}; its output:\n{output}" if output else message)
        if self._since is not None:
            print(f"pando: done in {time.monotonic() - self._since:.1f} s", file=sys.stderr, flush=True)
        return self._name

    def _take(self, event: Mapping[str, Any]) -> None:
        if "building" in event:
            self._since = time.monotonic()
            print(f'pando: creating the template "{event["building"]}" from {event["source"]}, once...', file=sys.stderr, flush=True)
        elif "step" in event:
            self._output = ""
        elif "output" in event:
            self._output += event["output"]
            if self._on_output is not None:
                self._on_output(event["output"])
        elif "template" in event:
            self._name = event["template"]
