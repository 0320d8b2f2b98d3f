"""Plans of serving_flow for others: lines of vLLM and SGLang, and JSON of ranges and flows."""

from __future__ import annotations

import json

from placegap.instances.objectives.flow.referee import largest_flow, problem_of, ranges_of
from placegap.instances.problem import Instance, Plan, ServingFlow
from placegap.instances.problem.flow_problem import (
    MOST_RATE,
    SINK,
    SOURCE,
    UNITS,
    FlowProblem,
    Ranges,
    layers_of,
)
from placegap.instances.problem.modules import layer_of, numbered_layers
from placegap.instances.reading.errors import InputError

KINDS = ("vllm", "sglang", "ranges")


def write_rows(kind: str, instance: Instance, plan: Plan, semantics: ServingFlow) -> str:
    """A line for each row of machines, or all ranges as JSON."""
    problem, ranges = problem_of(instance, semantics), ranges_of(instance, plan)
    flow = largest_flow(problem, ranges)
    names = [machine.name for machine in problem.machines]
    if kind == "ranges":
        ends = {**dict(enumerate(names)), SOURCE: "source", SINK: "sink"}
        content = {
            "layers": problem.num_layers,
            "tokens_per_s": flow.value / UNITS,
            "machines": [
                {"name": name, "start": held.start, "layers": held.layers}
                for name, held in zip(names, ranges, strict=True)
                if held is not None
            ],
            "links": [
                {"from": ends[a], "to": ends[b], "tokens_per_s": rate / UNITS}
                for (a, b), rate in flow.links.items()
            ],
        }
        return json.dumps(content, indent=1) + "\n"
    counts, lines = _counts(instance, ranges), list[str]()
    for row, rate in rows_of(problem, ranges, flow.value):
        lines += [
            f"# {', '.join(names[i] for i in row)}: {rate / UNITS:.1f} tokens/s",
            f"{kind.upper()}_PP_LAYER_PARTITION={','.join(str(counts[i]) for i in row)}",
        ]
    return "\n".join(lines) + "\n"


def rows_of(problem: FlowProblem, ranges: Ranges, value: int) -> list[tuple[list[int], int]]:
    """Rows of machines, none in two of them, that pass all of a flow; else an InputError."""
    # Each time the row is taken that passes most, by dynamic programming over the first layers.
    left = {i: held for i, held in enumerate(ranges) if held is not None}
    rows = list[tuple[list[int], int]]()
    while True:
        best: dict[int, tuple[int, list[int]]] = {SOURCE: (MOST_RATE, [])}
        for b in [*sorted(left, key=lambda i: left[i]), SINK]:
            most = MOST_RATE if b == SINK else problem.throughput(b, left[b].layers)
            ways = [
                (min(rate, most, problem.links[a, b]), [*row, b])
                for a, (rate, row) in best.items()
                if problem.joins(a, b, ranges)
            ]
            if ways:
                best[b] = max(ways, key=lambda way: way[0])
        rate, row = best.get(SINK, (0, []))
        if not rate:
            break
        rows.append((row[:-1], rate))
        for i in row[:-1]:
            del left[i]
    if sum(rate for _, rate in rows) < value or problem.partial:
        raise InputError("its machines pass more together than in separate rows; export ranges")
    return rows


def _counts(instance: Instance, ranges: Ranges) -> list[int]:
    """How many numbered layers each machine holds; without names of modules, layers."""
    layers = layers_of(instance.graph, instance.arrays)
    modules = layer_of(instance.graph)
    numbered = {name for own in numbered_layers(modules).values() for name in own}
    counts = [not numbered or any(modules[i] in numbered for i in own) for own in layers]
    return [0 if held is None else sum(counts[held.start : held.end]) for held in ranges]
