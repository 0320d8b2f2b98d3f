"""What a paper prints of the graphs themselves: how many ops, and how much they communicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies.graph_figures import deviation_figure
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.transforms.split_rule import SplitRule, choose_cuts
from placegap.instances.transforms.table import coarsen


def num_ops(instance: Instance) -> float:
    """Ops of a graph."""
    return instance.num_ops


def num_edges(instance: Instance) -> float:
    """Edges of a graph."""
    return len(instance.graph.edges)


def ccr(instance: Instance) -> float:
    """Transfer times of all edges over times of all ops (Celeritas, equation 1)."""
    return float(communication_ratio(flow_of(instance.arrays)))


FIGURES: Mapping[str, Callable[[Instance], float]] = {
    "ops": num_ops,
    "edges": num_edges,
    "ccr": ccr,
}
"""What a column may ask for; behind a comma follows the transform that comes first."""

SPLITS = "splits "
"""Begins the figures of a kind of ops: 1 if FD-DPS' rule splits one of that kind, else 0."""


def ms(instance: Instance, op: int) -> float:
    """Time of an op on the first device, in ms."""
    return float(instance.arrays.time_ns[op, 0]) / 1e6


def is_split(instance: Instance, op: int) -> float:
    """1 if FD-DPS' rule splits the op, else 0."""
    return float(op in choose_cuts(instance, SplitRule()))


OP_FIGURES: Mapping[str, Callable[[Instance, int], float]] = {"ms": ms, "split": is_split}
"""What a column may ask for of an op."""

DEVIATION = "deviation of "
"""Begins the figures of estimates."""


def figure_of(source: Source, name: str) -> float:
    """A figure of a graph: ``ops``, or ``ops, celeritas-fusion`` after that transform.

    ``deviation of ...`` is one of `estimates.deviation_figure`, ``ms of conv1`` one of an op, and
    ``splits Conv2D`` one of a kind of ops.

    Examples
    --------
    >>> from placegap.experiments.running.sources import Source
    >>> source = Source("squeezenet", "celeritas-4xV100-pcie")
    >>> figure_of(source, "ops"), figure_of(source, "ops, moirai-fusion")
    (66.0, 40.0)
    """
    if name.startswith(DEVIATION):
        return deviation_figure(source, name.removeprefix(DEVIATION))
    if name.startswith(SPLITS):
        return float(name.removeprefix(SPLITS) in _kinds_split(source))
    figure, _, op = name.partition(" of ")
    if figure in OP_FIGURES:
        instance = load_source(source)
        return float(OP_FIGURES[figure](instance, instance.graph.op_index[op]))
    figure, _, transform = name.partition(", ")
    return float(FIGURES[figure](_transformed(source, transform)))


@lru_cache(maxsize=16)
def _kinds_split(source: Source) -> frozenset[str]:
    instance = load_source(source)
    return frozenset(instance.graph.ops[op].kind for op in choose_cuts(instance, SplitRule()))


@lru_cache(maxsize=4)
def _transformed(source: Source, transform: str) -> Instance:
    instance = load_source(source)
    return coarsen(instance, transform).merge.coarse if transform else instance
