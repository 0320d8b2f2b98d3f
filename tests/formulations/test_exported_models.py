"""`placegap.formulations` exports its models by name, and loads them when they are used."""

import importlib
import subprocess
import sys

import pytest

from placegap import formulations


@pytest.mark.parametrize("name", formulations.__all__)
def test_a_model_is_there_by_its_name(name: str) -> None:
    module = getattr(formulations, name)
    assert module is importlib.import_module(f"placegap.formulations.{name}")
    assert name in dir(formulations)


def test_the_help_of_a_model_begins_with_its_mathematics() -> None:
    head = str(formulations.moirai.__doc__).splitlines()[:4]
    assert head[0].endswith("minimize T subject to")
    assert head[2].strip().startswith("(4)   T >= C_i")


def test_a_model_for_cp_sat_loads_no_pyomo() -> None:
    code = (
        "import sys; from placegap.formulations import makespan_cp;sys.exit('pyomo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
