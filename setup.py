"""The packages: every folder with an ``__init__.py``; research is in a checkout alone.

``experiments/research`` is what only we run. An editable installation has it, a wheel does not.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LAYERS = ("instances", "formulations", "solvers", "experiments")
FACADE, RESEARCH = "placegap.experiments.facade", "placegap.experiments.research"


def packages() -> list[str]:
    """The names of all packages; the facade's folder is `placegap` itself."""
    found = (init.parent.parts for layer in LAYERS for init in Path(layer).rglob("__init__.py"))
    return sorted(".".join(("placegap", *parts)).replace(FACADE, "placegap") for parts in found)


class BuildPy(build_py):
    """Builds without research, unless the installation is editable."""

    def finalize_options(self) -> None:
        """Choose the packages."""
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if not name.startswith(RESEARCH)]


setup(packages=packages(), cmdclass={"build_py": BuildPy})
