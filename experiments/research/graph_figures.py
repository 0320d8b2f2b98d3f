"""What a paper prints of the graphs themselves: how many ops, how much they communicate.

Also how far Celeritas' lines miss a network's large batch (table 5 and figure 5, without its GPUs).
The paper's measurements are not public. Here rooflines stand for them: the network is costed at a
sixteenth, an eighth and a fourth of its batch, a line per op is drawn through these, and its value
at the whole batch is compared with what the op is costed there. So what deviates is the roofline's
bend and the rounding; `NOISE` adds what a clock would, as random factors with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from placegap.experiments.research.workloads.catalogue import find_workload
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.importers.measurements import EXACT, Deviations, deviations, fit_lines
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.transforms.split_rule import SplitRule, choose_cuts
from placegap.instances.transforms.table import coarsen

PARTS = (16, 8, 4)  # the batch is divided by these for the measurements
NOISE = 0.05  # standard deviation of the random factors
WITHIN = {"exact": EXACT, "within 20 %": 0.2, "within 30 %": 0.3}  # shares of ops for figure 5


def deviation_figure(source: Source, name: str) -> float:
    """A figure of the estimates of a workload with a batch, in percent."""
    # `name` says what is estimated, ``memory``, ``time`` or ``noisy time``, and after a comma
    # perhaps a key of `WITHIN`. Without a key the figure is the mean relative deviation.
    what, _, share = name.partition(", ")
    found = _deviations(source, what)
    figure = found.share_within(WITHIN[share]) if share else found.mean
    assert figure is not None  # there are ops
    return 100 * figure


@lru_cache(maxsize=8)
def _deviations(source: Source, what: str) -> Deviations:
    batch = find_workload(source.model).sizes["batch"]
    small = [max(1, batch // part) for part in PARTS]
    names, true = _figures(source, batch, what)
    place = {name: number for number, name in enumerate(names)}
    generator = np.random.default_rng(0)
    op, size, value = [], [], []
    for at in small:
        ops, figures = _figures(source, at, what)
        if what == "noisy time":
            figures = figures * np.exp(NOISE * generator.standard_normal(len(figures)))
        known = [number for number, name in enumerate(ops) if name in place]
        op += [place[ops[number]] for number in known]
        size += [at] * len(known)
        value += figures[known].tolist()
    have = np.unique(op)
    lines = fit_lines(np.searchsorted(have, op), np.array(size), np.array(value), len(have))
    return deviations(np.rint(lines.estimate(batch)[0]), true[have])


def _figures(source: Source, batch: int, what: str) -> tuple[list[str], Floats]:
    """Ops of the network at a batch, and their times or bytes."""
    instance = load_source(replace(source, dims=(*source.dims, ("batch", batch))))
    arrays = instance.arrays
    figures = arrays.resident_bytes if what == "memory" else arrays.time_ns[:, 0]
    return [op.name for op in instance.graph.ops], figures.astype(np.float64)


def num_ops(instance: Instance) -> float:
    return instance.num_ops


def num_edges(instance: Instance) -> float:
    return len(instance.graph.edges)


def ccr(instance: Instance) -> float:
    """Transfer times of all edges over times of all ops (Celeritas, equation 1)."""
    return float(communication_ratio(flow_of(instance.arrays)))


# What a column may ask for; behind a comma follows the transform that comes first.
FIGURES: Mapping[str, Callable[[Instance], float]] = {
    "ops": num_ops,
    "edges": num_edges,
    "ccr": ccr,
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
DEVIATION = "deviation of "  # begins the figures of estimates


def figure_of(source: Source, name: str) -> float:
    """A figure of a graph: ``ops``, or ``ops, celeritas-fusion`` after that transform."""
    # ``deviation of ...`` is one of `deviation_figure`, ``ms of conv1`` one of an op, and
    # ``splits Conv2D, 0.003`` one of a kind of ops, with its least share.
    if name.startswith(DEVIATION):
        return deviation_figure(source, name.removeprefix(DEVIATION))
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
