"""The networks of the corpus and what is known of them, as docs/corpus.md has it.

``python -m placegap.experiments.research.tables.networks [NAME ...]`` prints two tables from the
files that ship: what each network is like on its cluster, and its best known values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    corpus_names,
    load_best_known,
    load_corpus,
)
from placegap.instances.problem import PLAN_CLASSES, BestKnown, Instance, Makespan, Plan, Semantics
from placegap.instances.problem.graph_index import GraphIndex
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.memory import held_bytes
from placegap.solvers import run_method

EVEN_SPLIT = "m-topo"  # gives each device an equal share of the bytes, in topological order

HEADS = (
    "network",
    "cluster",
    "ops",
    "edges",
    "width",
    "rule",
    "memory",
    "CCR",
    "one device, ms",
    "gain",
    "over even split",
)

KNOWN_HEADS = ("network", "max_load chain", "max_load any", "makespan")


class NetworkFigures(NamedTuple):
    """What a network is like on its cluster."""

    width: int  # most ops at one depth, counted in ops from the first
    share: float  # bytes that one pass on a single device holds, of all that the accelerators have
    fits_one: bool  # whether the accelerator with the most memory could hold them
    ccr: float  # transfer times of all edges over times of all ops (Celeritas, equation 1)
    one_device_ns: int  # time of all ops on the fastest device, whether its memory suffices or not


def network_figures(instance: Instance) -> NetworkFigures:
    """The figures of a network of the corpus; O(n + m)."""
    arrays, semantics = instance.arrays, own_semantics(instance)
    held = held_bytes(instance, Plan.on([0] * instance.num_ops), semantics, None)
    assert held is not None  # a load needs no schedule
    room = [device.memory_bytes or 0 for device in instance.cluster.devices if not device.is_host]
    most = int(held.bytes[0])
    runs_all = (arrays.time_ns != UNSUPPORTED).all(axis=0)
    return NetworkFigures(
        width=width_of(arrays.index),
        share=most / sum(room),
        fits_one=most <= max(room),
        ccr=communication_ratio(flow_of(arrays)),
        one_device_ns=int(arrays.time_ns[:, runs_all].sum(axis=0).min()),
    )


def own_semantics(instance: Instance) -> Semantics:
    """The semantics of a network of the corpus: a chain of least maximum load."""
    assert instance.semantics is not None  # each file of the corpus states one
    return instance.semantics


def width_of(index: GraphIndex) -> int:
    """Most ops at one depth, which is the number of edges on a longest path to an op."""
    depth = np.zeros(len(index.topological_order), np.int64)
    for op in index.topological_order.tolist():
        into = index.pred_edge[index.pred_ptr[op] : index.pred_ptr[op + 1]]
        if len(into):
            depth[op] = 1 + depth[index.producer[into]].max()
    return int(np.bincount(depth).max())


def known_semantics(instance: Instance) -> tuple[Semantics, ...]:
    """Chains, plans of any kind, and one pass, by the network's rule of memory."""
    own = own_semantics(instance)
    wide = own.with_plans(PLAN_CLASSES[-1])
    return own, wide, Makespan(memory=own.memory_rule)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        instances = [load_corpus(name).instance() for name in words or corpus_names(NETWORK_FAMILY)]
        for heads, row in ((HEADS, _figures_row), (KNOWN_HEADS, _known_row)):
            print("\n".join(_table(instances, heads, row)), end="\n\n")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _table(
    instances: Sequence[Instance], heads: Sequence[str], row: Callable[[Instance], Sequence[str]]
) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for instance in instances:
        yield f"| {' | '.join(row(instance))} |"


def _figures_row(instance: Instance) -> tuple[str, ...]:
    figures, semantics = network_figures(instance), own_semantics(instance)
    best = _known(instance, semantics)
    value = None if best is None else best.value_ns
    even = run_method(instance, semantics, EVEN_SPLIT).value_ns
    return (
        instance.graph.name,
        instance.cluster.name,
        str(instance.num_ops),
        str(len(instance.graph.edges)),
        str(figures.width),
        semantics.memory_rule,
        f"{100 * figures.share:.1f} %",
        f"{figures.ccr:.2f}",
        _ms(figures.one_device_ns),
        _ratio(figures.one_device_ns, value),
        _ratio(even, value),
    )


def _known_row(instance: Instance) -> tuple[str, ...]:
    found = (_known(instance, semantics) for semantics in known_semantics(instance))
    return (instance.graph.name, *map(_value_and_gap, found))


def _known(instance: Instance, semantics: Semantics) -> BestKnown | None:
    """The entry of this very instance; an older graph of its name has none."""
    return next(
        (
            entry
            for entry in load_best_known()
            if entry.content_hash == instance.content_hash and entry.semantics == semantics
        ),
        None,
    )


def _value_and_gap(entry: BestKnown | None) -> str:
    if entry is None or entry.value_ns is None:
        return "-"
    if entry.bound_ns == entry.value_ns:
        return _ms(entry.value_ns)
    bound = entry.bound_ns or 0
    return f"{_ms(entry.value_ns)} ({100 * (1 - bound / entry.value_ns):.2g} %)"


def _ms(value_ns: int | None) -> str:
    return "-" if value_ns is None else f"{value_ns / 1e6:.3f}"


def _ratio(slower_ns: int | None, value_ns: int | None) -> str:
    return "-" if slower_ns is None or value_ns is None else f"{slower_ns / value_ns:.2f}"


if __name__ == "__main__":
    sys.exit(main())
