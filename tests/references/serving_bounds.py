"""serving_flow beside brute force: ``python -m references.serving_bounds 500``."""

from __future__ import annotations

import random
import sys

from draws.tiny import SHARED, needs_inputs

from placegap.instances import Instance, Provenance, ServingFlow, load_model
from placegap.instances.importers.serving import as_document
from placegap.instances.problem.flow_problem import SINK, SOURCE, FlowProblem, Machine
from placegap.solvers import run_method
from placegap.solvers.bounds.flow_prices import PriceSearch, terms_of
from placegap.solvers.core.clock import Clock
from placegap.solvers.serving_flow.every_plan import best_ranges, count_plans

MOST_PLANS = 300_000
INPUTS = SHARED / "instances" / "helix"
needs_helix = needs_inputs("helix", "it holds the inputs of github.com/Thesys-lab/Helix-ASPLOS25")


def released(name: str) -> Instance:
    """An input that Helix's authors released."""
    return load_model(INPUTS / name / "ilp_model.lp.gz").instance()


def pair(link: int) -> FlowProblem:
    """Two layers, and two machines that pass 10 with one; a link both ways."""
    machines = tuple(Machine(name, "one") for name in "ab")
    ends = {(SOURCE, i): 100 for i in range(2)} | {(i, SINK): 100 for i in range(2)}
    return FlowProblem(2, machines, {"one": (10,)}, ends | {(0, 1): link, (1, 0): link})


def drawn_problem(rng: random.Random, machines: int) -> FlowProblem:
    """A few machines of up to three kinds, whose links are wide, or narrow between groups."""
    while True:
        num, layers = rng.randint(1, machines), rng.randint(1, 5)
        unit = rng.choice((1, 1, 1_000, 10**6))
        tables = {}
        for kind in ("a", "b", "c"):
            base = rng.randint(4, 60)
            most = rng.randint(1, layers)
            table = [max(1, base * unit // h + rng.randrange(unit)) for h in range(1, most + 1)]
            if rng.random() < 0.2:
                rng.shuffle(table)
            tables[kind] = tuple(table)
        named = tuple(Machine(f"m{i}", rng.choice("abc"[: rng.randint(1, 3)])) for i in range(num))
        group = [rng.randrange(2) for _ in range(num)]
        wide, narrow = 10**5 * unit, rng.choice((5, 20, 60))
        links = {}
        every, of_ends = rng.random() < 0.6, rng.random() < 0.2
        for a in range(num):
            links[SOURCE, a] = links[a, SINK] = rng.randint(1, 80) * unit if of_ends else wide
            for b in range(num):
                rate = wide if group[a] == group[b] else rng.randint(1, narrow) * unit
                if a != b and (every or rng.random() < 0.7):
                    links[a, b] = rate
        problem = FlowProblem(layers, named, {m.kind: tables[m.kind] for m in named}, links)
        if count_plans(problem) <= MOST_PLANS:
            return problem


def compare(seed: int, number: int, machines: int = 6) -> tuple[int, int]:
    """How many instances were drawn, and how many were proven optimal."""
    rng, proven = random.Random(f"serving-{seed}"), 0
    for at in range(number):
        problem = drawn_problem(rng, machines)
        instance = as_document(problem, "drawn", Provenance(), "drawn").instance()
        rules = ServingFlow(partial_inference=at % 2 == 1)
        best = best_ranges(instance, rules)
        optimum = 0 if best is None else best[0]
        search = PriceSearch(instance.flow_problem, Clock(None))
        assert search.work_bound() >= optimum
        for proof in search.prove(1):
            assert proof.bound >= optimum, (at, proof, optimum)
            found = terms_of(problem).cheapest(proof.bound, proof.prices, proof.grid)
            assert found is None or found.charge > sum(proof.prices)
        result = run_method(instance, rules, "serving-flow", time_limit_s=20)
        assert not result.faults, result.faults
        if result.status == "infeasible":
            assert best is None
        else:
            assert (result.value or 0) <= optimum <= (result.bound_value or 0), (at, result)
        proven += result.proved
    return number, proven


if __name__ == "__main__":
    done, optimal = compare(0, int(sys.argv[1]))
    print(f"no bound below and no plan above brute force in {done} instances; {optimal} are proven")
