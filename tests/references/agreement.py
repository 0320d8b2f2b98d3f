"""Every exact method against brute force, and against itself on the same problem in disguise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import pytest
from draws import draw
from references.brute_force import oracle

from placegap.instances import Instance, Semantics
from placegap.solvers import METHODS, Result, Task, run_method
from placegap.solvers.core.method import Method
from placegap.solvers.core.registry import parse_params, why_not

Params = Mapping[str, object]
Part = TypeVar("Part")

LESS: Mapping[str, Params] = {"latency": {"moves": 500}, "noncontiguous": {"moves": 200}}
"""Parameters of methods that would search for a second a graph of six ops."""

STEPS = 300
"""Of a search that would otherwise go on until its time is over."""


def little(method: Method) -> Params:
    """What a method is called with: one worker, or it would not be deterministic, and few steps."""
    fields = method.params.model_fields
    steps = dict.fromkeys(method.params.little_effort(), STEPS)
    return {**({"workers": 1} if "workers" in fields else {}), **steps, **LESS.get(method.name, {})}


FORMS: Mapping[str, Sequence[Params]] = {
    "moirai": ({"form": "as_published"},),
    "pesto": ({"form": "as_published"},),
    "latency-ip": ({"model": "mip"}, {"model": "mip", "form": "as_published"}, {"model": "cp-sat"}),
}
"""Other forms of a method's model: each is run on some of the instances."""

FORM_STEP = 4
"""Every so many instances, one of the other forms is run as well."""

DEAR = ("throughput-ip", "moirai", "pesto")
"""Models that a MIP solver takes ten times as long for as all other methods on a small instance."""


def few_and_many(few: int, many: int) -> pytest.MarkDecorator:
    """A test of so few seeds, and a deep one of those from there on up to so many."""
    deep = pytest.param(range(few, many), marks=pytest.mark.deep)
    return pytest.mark.parametrize("seeds", [range(few), deep], ids=["few", "many"])


def keeps_sides(result: Result, best_ns: int | None, where: str) -> None:
    """Assert bound <= optimum <= value, and no value where no plan is feasible."""
    if best_ns is None:
        assert result.value_ns is None, where
    else:
        assert result.status != "infeasible", where
        assert result.value_ns is None or result.value_ns >= best_ns, where
        assert result.bound_ns is None or result.bound_ns <= best_ns, where


def proves(result: Result, best_ns: int | None, where: str = "") -> None:
    """Assert that the result is the optimum, or that there is none."""
    where = where or result.instance
    assert result.status == ("infeasible" if best_ns is None else "optimal"), where
    assert result.value_ns == best_ns, where
    assert best_ns is None or result.bound_ns == best_ns, where


def methods(*claims: str) -> list[Method]:
    """The registered methods of these claims, but brute force, and auto, which runs the others."""
    aside = ("brute-force", "auto")
    return [m for m in METHODS.values() if m.claim in claims and m.name not in aside]


def applies(instance: Instance, semantics: Semantics, name: str, params: Params) -> bool:
    """Whether the method takes the instance."""
    parsed = parse_params(METHODS[name], params)
    return why_not(METHODS[name], Task(instance, semantics), parsed) is None


def run(instance: Instance, semantics: Semantics, name: str, params: Params) -> Result | None:
    """The result, None where the method does not apply."""
    if not applies(instance, semantics, name, params):
        return None
    return run_method(instance, semantics, name, params)


def exact_methods_of(semantics: Semantics, instances: Sequence[Instance]) -> set[str]:
    """Exact methods that `compare_exact` runs on some of the instances, by name."""
    return {
        method.name
        for method in methods("exact")
        for instance in instances
        if applies(instance, semantics, method.name, little(method))
    }


def compare_exact(
    semantics: Semantics, instances: Sequence[Instance], *, dear_step: int = 1
) -> Counter[str]:
    """Assert that all exact methods find brute force's optimum; how often each was run."""
    runs: Counter[str] = Counter()
    for number, instance in enumerate(instances):
        best = oracle(instance, semantics)
        for method in methods("exact"):
            if method.name in DEAR and number % dear_step > 0:
                continue
            forms = [little(method)]
            others = FORMS.get(method.name, ())
            if others and number % FORM_STEP == 0:
                forms.append(others[number // FORM_STEP % len(others)])
            for params in forms:
                result = run(instance, semantics, method.name, params)
                if result is None:
                    continue
                runs[method.name] += 1
                where = f"{method.name} {dict(params)} on {instance.name}, {semantics.label}"
                proves(result, best, where)
    return runs


def compare_bounds(semantics: Semantics, instances: Sequence[Instance]) -> Counter[str]:
    """Assert bound <= optimum <= value of all other methods; how often each gave a bound."""
    given: Counter[str] = Counter()
    for instance in instances:
        for method in methods("bound", "heuristic"):
            result = compare_one(instance, semantics, method)
            given[method.name] += result is not None and result.bound_ns is not None
    return +given


def compare_one(instance: Instance, semantics: Semantics, method: Method) -> Result | None:
    """Assert bound <= optimum <= value of a method's result, if it applies."""
    best = oracle(instance, semantics)
    result = run(instance, semantics, method.name, little(method))
    if result is None:
        return None
    keeps_sides(result, best, f"{method.name} on {instance.name}, {semantics.label}")
    return None if best is None else result


def disguised(instance: Instance, seed: int) -> Instance:
    """The same problem with its ops, edges, devices and links in another order."""
    rng = random.Random(f"disguise-{seed}")

    def shuffled(parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(rng.sample(list(parts), len(parts)))

    graph, cluster = instance.graph, instance.cluster
    other = draw.changed(
        instance,
        ops=shuffled(graph.ops),
        edges=shuffled(graph.edges),
        devices=shuffled(cluster.devices),
        links=shuffled(cluster.links),
    )
    return other.model_copy(update={"name": f"{instance.name}-disguised"})
