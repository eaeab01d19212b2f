# SPDX-License-Identifier: MIT OR Apache-2.0
"""Recipes of templates, without I/O: their steps. `pando template build` carries them out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Union

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Recipe:
    """The steps to a template. Each method returns a recipe with one more step."""

    base: Optional[str] = None
    steps: Tuple[Mapping[str, Any], ...] = ()
    modules: Tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def image(self, name: str) -> Self:
        """Begins with this container image, which has a Python; by default with the host's Python, or the virtual environment."""
        return replace(self, base=name)

    def pip_install(self, *packages: str, options: Tuple[str, ...] = ()) -> Self:
        """Installs packages by pip: names, requirements such as "pandas>=2", or wheels of this host by their paths.

        `options` are those of `pip install`, such as ("--index-url", URL) or ("--no-index", "--find-links", "/wheels").
        """
        named = [os.path.abspath(each) if each.endswith(".whl") and os.path.isfile(each) else each for each in packages]
        return self._with("pip", [*options, *named])

    def apt_install(self, *packages: str) -> Self:
        """Installs Debian's packages. Needs an image."""
        return self._with("apt", list(packages))

    def copy(self, local: Union[str, Path], path: str) -> Self:
        """Copies a file or a directory of this host to an absolute path of the template.

        Directories that exist there keep their permissions.
        """
        if not path.startswith("/"):
            raise ValueError(f"path: give an absolute path of the template, not {path!r}")
        return self._with("copy", [os.path.abspath(local), path])

    def run(self, command: str) -> Self:
        """Runs a line of the shell, as root."""
        return self._with("run", command)

    def env(self, **variables: str) -> Self:
        """Sets environment variables, for the steps and for the template's programs."""
        return replace(self, variables={**self.variables, **variables})

    def preload(self, *modules: str) -> Self:
        """Loads modules of Python before the template is frozen: its clones find them loaded."""
        for module in modules:
            if not all(part.isidentifier() for part in module.split(".")):
                raise ValueError(f"{module!r} is not the name of a module")
        return replace(self, modules=self.modules + modules)

    def file(self) -> Dict[str, Any]:
        """The recipe as `pando template build` reads it, without its limits. The client names what it begins with, if not an image."""
        if self.base is None and any("apt" in step for step in self.steps):
            raise ValueError("apt_install needs an image: begin the recipe with image(NAME)")
        recipe = {"steps": list(self.steps), "env": dict(self.variables), "preload": list(self.modules)}
        return recipe if self.base is None else {**recipe, "image": self.base}

    def _with(self, kind: str, value: Any) -> Self:
        return replace(self, steps=(*self.steps, {kind: value}))
