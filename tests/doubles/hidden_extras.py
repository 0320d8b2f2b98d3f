"""Run Python as if no extra were installed."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def extras() -> list[str]:
    """Distributions that only extras bring, those of developers left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"].items()
    return [text.split(">")[0] for extra, texts in named if extra != "dev" for text in texts]


class Hiding:
    """A finder of modules that does not find some."""

    def __init__(self, finder: Any, hidden: set[str]) -> None:
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name: str, *place: Any) -> Any:
        return (
            None if name.partition(".")[0] in self.hidden else self.finder.find_spec(name, *place)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hide() -> None:
    """Make every extra's modules and metadata, and programs on the PATH, absent."""
    hidden = {name.lower() for name in extras()}
    sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]
    real = importlib.metadata.distribution

    def distribution(name: str) -> Distribution:
        if name.lower() in hidden:
            raise PackageNotFoundError(name)
        return real(name)

    importlib.metadata.distribution = distribution
    importlib.metadata.version = lambda name: distribution(name).version
    os.environ["PATH"] = ""


def without_extras(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python without extras."""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    prelude += "from doubles import hidden_extras; hidden_extras.hide()\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),  # readline, loaded by pytest, sets COLUMNS behind it
    )
