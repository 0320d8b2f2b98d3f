"""Small instances of serving_flow: a few kinds with tables that do not always fall, few links."""

import random
from dataclasses import replace
from itertools import permutations

from placegap.instances import Instance, Plan, Provenance
from placegap.instances.importers.serving import as_document
from placegap.instances.objectives.flow.referee import plan_of
from placegap.instances.problem.flow_problem import (
    SINK,
    SOURCE,
    FlowProblem,
    Machine,
    Range,
    Ranges,
)


def flow_problem(rng: random.Random, most_machines: int = 5, most_layers: int = 6) -> FlowProblem:
    """Machines of up to three kinds; every one reaches both ends, over some links at least."""
    layers = rng.randrange(1, most_layers + 1)
    kinds = "ABC"[: rng.randrange(1, 4)]
    tables = {}
    for kind in kinds:
        rates = [rng.randrange(1, 60) // h + 1 for h in range(1, rng.randrange(1, layers + 1) + 1)]
        tables[kind] = tuple(rates)
    machines = tuple(
        Machine(f"m{i}", rng.choice(kinds)) for i in range(rng.randrange(1, most_machines + 1))
    )
    numbers = range(len(machines))
    chance = rng.choice([0.4, 0.8, 1.0])
    links = {
        pair: rng.randrange(1, 50) for pair in permutations(numbers, 2) if rng.random() < chance
    }
    if rng.random() < 0.8:
        links |= {(SOURCE, i): rng.randrange(1, 80) for i in numbers}
        links |= {(i, SINK): rng.randrange(1, 80) for i in numbers}
    elif len(machines) > 1:  # every machine is an end, and all must reach each other
        links |= {pair: 40 for pair in permutations(numbers, 2) if pair not in links}
    tables = {kind: tables[kind] for kind in dict.fromkeys(m.kind for m in machines)}
    return FlowProblem(layers, machines, tables, links, rng.random() < 0.5)


def flow_instance(
    rng: random.Random, most_machines: int = 5, most_layers: int = 6, *, unit: int = 1
) -> Instance:
    """Such a problem as an instance, whose semantics says whether inference is partial."""
    found = flow_problem(rng, most_machines, most_layers)
    tables = {kind: tuple(unit * rate for rate in table) for kind, table in found.tables.items()}
    links = {pair: unit * rate for pair, rate in found.links.items()}
    scaled = replace(found, tables=tables, links=links)
    return as_document(scaled, "drawn", Provenance(), "drawn").instance()


def drawn_ranges(rng: random.Random, problem: FlowProblem) -> Ranges:
    """A range or nothing on each machine; often one that begins where another one ends."""
    found: list[Range | None] = []
    for i in range(problem.num_machines):
        h = rng.randrange(1, problem.most_layers(i) + 1)
        borders = [0, *(held.end for held in found if held is not None)]
        fits = [s for s in borders if s + h <= problem.num_layers]
        start = (
            rng.choice(fits) if rng.random() < 0.7 else rng.randrange(problem.num_layers - h + 1)
        )
        found.append(None if rng.random() < 0.1 else Range(start, h))
    return tuple(found)


def drawn_plan(rng: random.Random, instance: Instance) -> Plan | None:
    """The plan of such ranges, None where they leave out a layer."""
    return plan_of(instance, drawn_ranges(rng, instance.flow_problem))
