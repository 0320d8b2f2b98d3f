"""What a placement loads before it answers, and whether its worker can be a copy of it."""

import subprocess
import sys

import pytest

HEAVY = "IPython highspy matplotlib networkx numba onnx ortools pandas pyomo scipy torch"
"""Each takes 0.1 s or more to load."""

PLACE = f"""
import sys
from placegap.experiments.cli import main
from placegap.experiments.running import pool
from placegap.solvers.core.worker_process import has_one_thread

def here(*given, **options):  # the worker's modules are to be seen
    print("may be copied:", has_one_thread())
    return pool.run_here(*given, **options)

pool.run_pool = here
status = main("place inception_v1 --cluster celeritas-4xV100-pcie --method heft --json".split())
print(status, *({{name.partition(".")[0] for name in sys.modules}} & {set(HEAVY.split())}))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are new interpreters")
def test_a_plain_placement_loads_no_heavy_module_and_may_be_copied_for_its_worker() -> None:
    first, *_, last = run("-c", PLACE).stdout.splitlines()
    assert (first, last) == ("may be copied: True", "0")


def test_the_version_is_printed_without_numpy_and_pydantic() -> None:
    loaded = run("-X", "importtime", "-m", "placegap", "--version").stderr
    assert "placegap.experiments.cli" in loaded
    assert "numpy" not in loaded
    assert "pydantic" not in loaded
