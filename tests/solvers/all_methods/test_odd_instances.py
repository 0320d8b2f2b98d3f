"""Every placer on instances from the corners: an accepted plan or a reason, never too good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from draws.corners import odd_instance
from references.agreement import little
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
)

from placegap.instances import Instance, Semantics
from placegap.solvers import METHODS, Task, brute_force, run_method
from placegap.solvers.core.method import Params
from placegap.solvers.core.registry import parse_params, why_not

SLOW = (
    "getf-milp",
    "fastt",
    "annealing",
    "disjunctive-search",
    "metis",
    "mt-kahypar",
    "scotch",
    "slicegraph",
)
"""Left to the deep run."""

VARIANTS: Sequence[tuple[str, Mapping[str, object]]] = (
    ("celeritas", {"reach": 2}),
    ("celeritas", {"reach": 1, "transfer_tasks": True}),
    ("order-place", {"order": "dfs", "reach": 1}),
    ("m-etf", {"memory": "dynamic"}),
    ("m-sct", {"memory": "dynamic"}),
)
FAMILIES = (
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    FWD_BWD_SEMANTICS,
    STAGE_SEMANTICS,
    LATENCY_SEMANTICS,
)


def judge(instance: Instance, semantics: Semantics, runs: Counter[str], *, slow: bool) -> None:
    """Run all placers that apply; assert what every one of them owes."""
    task = Task(instance, semantics)
    if brute_force.applies(task, Params()) is not None:
        return
    best = brute_force.run(task, Params()).claim_ns
    calls = [
        (method.name, little(method))
        for method in METHODS.values()
        if method.claim == "heuristic" and (slow or method.name not in SLOW)
    ]
    for name, params in (*calls, *VARIANTS):
        method = METHODS[name]
        if why_not(method, task, parse_params(method, params)) is not None:
            continue
        result = run_method(instance, semantics, name, params, time_limit_s=1.0)
        where = f"{name} {dict(params)} on {instance.name}, {semantics.label}"
        assert "breaks a rule" not in result.message, f"{where}: {result.message}"
        if result.plan is None:
            assert result.message, where
            assert result.status != "infeasible" or best is None, where
            continue
        assert best is not None, where
        assert result.value_ns is not None, where
        assert result.value_ns >= best, where
        runs[name] += 1


def test_plans_are_accepted_or_there_is_a_reason() -> None:
    runs: Counter[str] = Counter()
    for seed in range(40):
        instance = odd_instance(seed, largest=5)
        family = FAMILIES[seed % len(FAMILIES)]
        judge(instance, family[seed // len(FAMILIES) % len(family)], runs, slow=False)
    assert all(runs[name] > 0 for name in ("heft", "m-topo", "greedy", "celeritas", "m-sct"))


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_plans_are_accepted_or_there_is_a_reason_on_many(first: int) -> None:
    for seed in range(first, first + 50):
        for number, family in enumerate(FAMILIES):
            semantics = family[(seed + number) % len(family)]
            judge(odd_instance(seed), semantics, Counter(), slow=True)
