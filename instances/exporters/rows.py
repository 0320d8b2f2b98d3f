"""Plans of serving_flow for others: lines of vLLM and SGLang, and JSON of ranges and flows."""

from __future__ import annotations

import json

from placegap.instances.objectives.flow.referee import Flow, largest_flow, problem_of, ranges_of
from placegap.instances.problem import Instance, Plan, ServingFlow
from placegap.instances.problem.flow_problem import SINK, SOURCE, UNITS, Ranges, layers_of
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
    for row in rows_of(ranges, flow, problem.num_layers):
        rate = flow.through(row[0]) / UNITS
        lines += [
            f"# {', '.join(names[i] for i in row)}: {rate:.1f} tokens/s",
            f"{kind.upper()}_PP_LAYER_PARTITION={','.join(str(counts[i]) for i in row)}",
        ]
    return "\n".join(lines) + "\n"


def rows_of(ranges: Ranges, flow: Flow, num_layers: int) -> list[list[int]]:
    """The machines of each row, where no machine is in two of them; else an InputError."""
    after: dict[int, int] = {}
    rows = list[list[int]]()
    for a, b in sorted(flow.links):
        if a == SOURCE:
            rows.append([b])
        elif after.setdefault(a, b) != b:
            raise InputError(
                "tokens part and meet between machines, which are no rows; export ranges"
            )
    seen = set[int]()
    for row in rows:
        while (last := after[row[-1]]) != SINK:
            row.append(last)
        held = [ranges[i] for i in row]
        whole = sum(each.layers for each in held if each is not None) == num_layers
        if not whole or seen.intersection(row):
            raise InputError("rows of machines meet or skip layers; export ranges")
        seen.update(row)
    return rows


def _counts(instance: Instance, ranges: Ranges) -> list[int]:
    """How many numbered layers each machine holds; without names of modules, layers."""
    layers = layers_of(instance.graph, instance.arrays)
    modules = layer_of(instance.graph)
    numbered = {name for own in numbered_layers(modules).values() for name in own}
    counts = [not numbered or any(modules[i] in numbered for i in own) for own in layers]
    return [0 if held is None else sum(counts[held.start : held.end]) for held in ranges]
