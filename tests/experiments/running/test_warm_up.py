"""Warming up: modules and kernels are loaded, and nothing is searched for."""

from __future__ import annotations

import pytest
from doubles import processes

from placegap.experiments.running import warm_up as module
from placegap.experiments.running.warm_up import warm_up
from placegap.instances import Makespan, example
from placegap.solvers import METHODS, run_method
from placegap.solvers.core.method import FEW

MAKESPAN = Makespan()


def test_a_long_search_is_no_long_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "_warm", set())
    monkeypatch.setattr(
        module, "run_method", lambda *given, **limits: asked.append((given[2], given[3]))
    )
    long = {"moves": 10**9, "restarts": 10**9}
    warm_up("annealing", MAKESPAN, long)
    assert asked == 2 * [("annealing", {"moves": FEW})]  # on two examples
    # what decides the kernels is kept, and one of a kind is enough
    warm_up("hrl", MAKESPAN, {"samples": 3})
    warm_up("hrl", MAKESPAN, {"samples": 3, "evaluations": 2})
    assert asked[2:] == 2 * [("hrl", {"samples": 3, "evaluations": FEW})]


FIRST_RUN = """
import sys
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.running.warm_up import warm_up
from placegap.instances import Makespan
from placegap.instances.kernels.loading import loading_s
from placegap.solvers import run_method

instance, semantics = load_source(Source("bert-base-train", None)), Makespan(memory="peak")
warm_up("celeritas", semantics, {})
modules, loaded = set(sys.modules), loading_s()
run_method(instance, semantics, "celeritas")
print(sorted(set(sys.modules) - modules), f"{loading_s() - loaded:.2f}")
"""


def test_the_first_run_of_a_worker_loads_nothing() -> None:
    # 574 ops on 2 devices: a larger instance than those of the warm-up
    assert processes.finish(processes.begin(FIRST_RUN)) == ("[] 0.00\n", "")


ENDLESS = [name for name, method in METHODS.items() if method.params.little_effort()]


# these need PyTorch, and equal layers, which the example has not
@pytest.mark.parametrize("method", sorted({*ENDLESS} - {"hrl", "placeto", "repeated-layers"}))
def test_a_search_with_little_effort_ends_long_before_its_limit(method: str) -> None:
    few = METHODS[method].params.little_effort()
    # without the effort it would go on for an hour, as each first run of a method once did
    # until the worker's hard limit
    found = run_method(example(), MAKESPAN, method, few, time_limit_s=3600.0)
    assert found.status == "feasible"
