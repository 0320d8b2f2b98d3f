"""A study runs methods that draw no numbers once: their plans do not depend on the seed."""

from collections.abc import Iterator
from itertools import islice

from references.agreement import little
from references.brute_force import more_makespan, more_max_load

from placegap.instances import Instance, Makespan, MaxLoad, Semantics
from placegap.solvers import METHODS, Limits, Method, Task
from placegap.solvers.core.registry import why_not

RULES = (Makespan(channels="port"), MaxLoad(plans="chain"), MaxLoad(plans="any"))
DRAWS = {
    *("random", "local-search", "slicing", "annealing", "disjunctive-search", "run-moves"),
    *("metis", "mt-kahypar", "scotch", "noncontiguous", "repeated-layers"),
}


def tasks(seed: int) -> Iterator[Task]:
    draws: list[tuple[Semantics, Instance]] = []
    draws += [(rules, one) for rules in RULES for one in islice(more_makespan(11), 4)]
    draws += [(rules, one) for rules in RULES[1:] for one in islice(more_max_load(11), 4)]
    for semantics, instance in draws:
        yield Task(instance, semantics, Limits(seed=seed))


def test_methods_that_draw_numbers_are_seeded_and_no_other_plan_depends_on_the_seed() -> None:
    heuristics = [m for m in METHODS.values() if m.claim == "heuristic" and m.missing() is None]
    assert {m.name for m in heuristics if m.is_seeded} >= DRAWS - {"metis", "mt-kahypar", "scotch"}
    compared = set()
    for method in (m for m in heuristics if not m.is_seeded):
        params = method.params(**little(method))
        for first, other in zip(tasks(0), tasks(1), strict=True):
            if why_not(method, first, params) is None:
                compared.add(method.name)
                assert method.run(first, params) == method.run(other, params), method.name
    assert {"heft", "etf", "greedy", "single-device", "pipedream", "celeritas"} <= compared
    assert len(compared) >= 20


def test_a_method_of_ones_own_is_seeded_unless_it_says_otherwise() -> None:
    heft = METHODS["heft"]
    assert not heft.is_seeded

    def mine(task: Task, params: object) -> object:
        return heft.run(task, params)

    about = {name: getattr(heft, name) for name in ("claim", "objectives", "paper", "summary")}
    own = Method("mine", run=mine, params=heft.params, **about)  # type: ignore[arg-type]
    assert own.is_seeded
    assert not Method("mine", run=mine, params=heft.params, seeded=False, **about).is_seeded  # type: ignore[arg-type]
