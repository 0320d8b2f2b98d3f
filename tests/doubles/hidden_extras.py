"""Run Python as if no extra were installed."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any, NamedTuple

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
        env={**os.environ, "COLUMNS": "110"},  # readline, loaded by pytest, sets it behind it
    )


EACH = """
import contextlib, io, json
from placegap.experiments.running.pool import run_here
from placegap.experiments.cli import main
from placegap.experiments.running import placing
from placegap.experiments.studies import run

placing.run_pool = run.run_pool = run_here  # workers would find what is hidden here
done = []
for one in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = exec(one, {}) if isinstance(one, str) else main(one)
    done.append([status or 0, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""


class Done(NamedTuple):
    """How a command or some code ended."""

    status: int
    out: str
    err: str


def each_without_extras(steps: Sequence[str | Sequence[str]], cwd: Path) -> list[Done]:
    """Run commands of placegap, and code, one after another in one Python without extras."""
    done = without_extras(EACH, json.dumps(steps), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [Done(*each) for each in json.loads(done.stdout)]
