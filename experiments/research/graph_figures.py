"""What a paper prints of the graphs themselves: how many ops, how much they communicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from placegap.experiments.running.sources import Source, load_source
from placegap.formulations import moirai
from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.transforms.split_rule import SplitRule, choose_cuts
from placegap.instances.transforms.table import coarsen


def num_ops(instance: Instance) -> float:
    return instance.num_ops


def num_edges(instance: Instance) -> float:
    return len(instance.graph.edges)


def ccr(instance: Instance) -> float:
    """Transfer times of all edges over times of all ops (Celeritas, equation 1)."""
    return float(communication_ratio(flow_of(instance.arrays)))


def published_rows(instance: Instance) -> float:
    """Millions of rows of Moirai's MILP as published."""
    return moirai.count_rows(instance, moirai.SEMANTICS, "as_published") / 1e6


def strengthened_rows(instance: Instance) -> float:
    """The same of our strengthened form, at most."""
    return moirai.count_rows(instance, moirai.SEMANTICS) / 1e6


# What a column may ask for; behind a comma follows the transform that comes first.
FIGURES: Mapping[str, Callable[[Instance], float]] = {
    "ops": num_ops,
    "edges": num_edges,
    "ccr": ccr,
    "published MILP rows": published_rows,
    "MILP rows": strengthened_rows,
}

SPLITS = "splits "
"""Begins the figures of a kind of ops: 1 if FD-DPS' rule splits one of that kind, else 0.

Behind a comma may follow its least share, `SplitRule.min_share`."""


def ms(source: Source, op: str, share: str) -> float:
    """Time of an op on the first device, in ms."""
    instance = load_source(source)
    return float(instance.arrays.time_ns[instance.graph.op_index[op], 0]) / 1e6


def is_split(source: Source, op: str, share: str) -> float:
    """1 if FD-DPS' rule splits the op, else 0."""
    return float(load_source(source).graph.op_index[op] in _cuts(source, share))


# What a column may ask for of an op; the last argument is the least share, or empty.
OP_FIGURES: Mapping[str, Callable[[Source, str, str], float]] = {"ms": ms, "split": is_split}


def figure_of(source: Source, name: str) -> float:
    """A figure of a graph: ``ops``, or ``ops, celeritas-fusion`` after that transform."""
    # ``ms of conv1`` is one of an op, and ``splits Conv2D, 0.003`` one of a kind of ops, with its
    # least share.
    if name.startswith(SPLITS):
        kind, _, share = name.removeprefix(SPLITS).partition(", ")
        ops = load_source(source).graph.ops
        return float(any(ops[i].kind == kind for i in _cuts(source, share)))
    figure, _, op = name.partition(" of ")
    figure, _, share = figure.partition(", ") if op else (figure, "", "")
    if figure in OP_FIGURES:
        return OP_FIGURES[figure](source, op, share)
    figure, _, transform = name.partition(", ")
    return float(FIGURES[figure](_transformed(source, transform)))


@lru_cache(maxsize=16)
def _cuts(source: Source, share: str) -> frozenset[int]:
    rule = SplitRule(min_share=float(share)) if share else SplitRule()
    return frozenset(choose_cuts(load_source(source), rule))


@lru_cache(maxsize=4)
def _transformed(source: Source, transform: str) -> Instance:
    instance = load_source(source)
    return coarsen(instance, transform).merge.coarse if transform else instance
