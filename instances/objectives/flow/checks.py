"""What serving_flow needs of an instance: layers in a row, and machines that pass tokens."""

from __future__ import annotations

from placegap.instances.problem import Instance, ServingFlow
from placegap.instances.problem.flow_problem import layers_of, why_no_row
from placegap.instances.reading.errors import InputError


def check(instance: Instance, rules: ServingFlow) -> None:
    """Raise an InputError where an instance has no layers in a row, or no machine for them."""
    graph = instance.graph
    if any(op.backward for op in graph.ops):
        raise InputError(
            f"{rules.objective} is about inference, but a pass is backward", graph.name
        )
    known = graph.provenance.parameters
    if "transformers" in known and not known.get("decode"):
        raise InputError(
            f"{rules.objective} counts tokens of decode steps; trace one: --decode --context 2048"
            " --batch 16",
            instance.name,
        )
    why = why_no_row(graph, layers_of(graph, instance.arrays))
    if why is not None:
        mend = "place whole layers (--granularity layer), or a model whose layers run in a row"
        raise InputError(f"{rules.objective} needs layers in a row, but {why}; {mend}", graph.name)
    if not instance.flow_problem.machines:
        raise InputError("no device has a time for all layers and room for one", instance.name)
