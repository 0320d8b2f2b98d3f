"""The packages: every folder with an ``__init__.py``; research is in a checkout alone.

``experiments/research`` is what only we run. An editable installation has it, a wheel does not.
A package index shows the README with links to the repository, once [project.urls] names it.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LAYERS = ("instances", "formulations", "solvers", "experiments")
FACADE, RESEARCH = "placegap.experiments.facade", "placegap.experiments.research"


def packages() -> list[str]:
    """The names of all packages; the facade's folder is `placegap` itself."""
    found = (init.parent.parts for layer in LAYERS for init in Path(layer).rglob("__init__.py"))
    return sorted(".".join(("placegap", *parts)).replace(FACADE, "placegap") for parts in found)


def readme() -> str:
    """The README; links of files lead to the Repository of the project's urls, if it has one."""
    text = Path("README.md").read_text(encoding="utf-8")
    url = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"].get("Repository")
    if url is None:
        return text
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)", rf"\1{url}/raw/HEAD/", text)
    return re.sub(r"(?<=\]\()(?!\w+:|#)", f"{url}/blob/HEAD/", text)


class BuildPy(build_py):
    """Builds without research, unless the installation is editable."""

    def finalize_options(self) -> None:
        """Choose the packages."""
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if not name.startswith(RESEARCH)]


setup(
    packages=packages(),
    cmdclass={"build_py": BuildPy},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
