"""What nested layers prove of every makespan: a chain there and back, and the work beside it.

In a training step the gradients of a layer's weights are in no path: they wait for what comes back
to the layer, and nothing waits for them. But they are on the layer's device. So either the chain
changes devices often, and pays for it twice, forward and back; or some device has so much left to
do when the chain leaves it that all others wait in the end.

Let g be the inner gate of a layer on the way back, and d any device. Ops on d that g precedes
start after g ends, one after the other; on the device of g, so does g itself:

    makespan  >=  start of g  +  (g, and) work of the ops on d that g precedes.

Layer by layer, outermost first, `labels` adds up when the chain gets inside, what follows once it
comes out, and the work on each device. The least sum of any label is a bound. It is looked for
below thresholds: each is proven where no label is below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import memory_is_slack
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.bounds.nested_layers.chains import layer_chains
from placegap.solvers.bounds.nested_layers.labels import (
    MOST_TRIALS,
    Effort,
    LayerPath,
    least_within,
)
from placegap.solvers.bounds.nested_layers.layers import NestedLayers, nested_layers
from placegap.solvers.bounds.nested_layers.options import LayerTable, layer_table
from placegap.solvers.bounds.nested_layers.prices import priced
from placegap.solvers.bounds.nested_layers.shortest import least_by_option, rest_of
from placegap.solvers.bounds.work_windows import WorkWindows
from placegap.solvers.core.interrupts import never

MOST_OPS = 20_000

STRIDE, LEAST_STRIDE = 0.003, 0.0005
"""A threshold is so much above what is known, or half as much where there were too many labels:
their number grows fast with what is between a threshold and the least bound of any."""

EASY, FAR = 0.001, 0.03
"""After a threshold that takes no more of the effort, the next one is twice as far away, and has so
much of it at most."""


class NestedSearch(NamedTuple):
    """What nested layers prove, in ns, and the paths of labels with the least bounds, if any."""

    ns: int
    nested: NestedLayers
    table: LayerTable
    paths: list[LayerPath]


def layers_bound(
    instance: Instance,
    semantics: Makespan,
    windows: WorkWindows,
    known_ns: int,
    stop: Callable[[], bool] = never,
) -> int:
    """What nested layers prove of every makespan, in ns, or what is known if that is more.

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
    windows : WorkWindows
    known_ns : int
        A bound.
    stop : callable
        Asked between layers; then the best bound so far is returned.

    Examples
    --------
    Nothing comes back in the diamond:

    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers.bounds.work_windows import work_windows
    >>> layers_bound(example(), Makespan(), work_windows(example()), 34)
    34
    """
    found = search_layers(instance, semantics, windows, known_ns, stop)
    return known_ns if found is None else found.ns


def search_layers(
    instance: Instance,
    semantics: Makespan,
    windows: WorkWindows,
    known_ns: int,
    stop: Callable[[], bool] = never,
    num_paths: int = 0,
) -> NestedSearch | None:
    """The bound, and so many of the paths that are nearest to it; None where there is nothing.

    It ends with the first threshold that a label is below: the least one is exact.
    """
    if instance.num_ops > MOST_OPS or instance.num_devices < 2:
        return None
    is_tight = not memory_is_slack(instance)
    for chain in layer_chains(instance, windows.intervals):
        nested = nested_layers(instance, chain, windows.time_ns, with_core=is_tight)
        if nested is not None:
            break
    else:
        return None
    table = layer_table(instance, semantics, chain, nested, windows, stop)
    if table is None:
        return None
    if is_tight and not stop():
        table = priced(table, instance, stop)
    rest = rest_of(table)
    head, tail = table.outer_ns
    through = int((head[:, None] + rest[0] + tail[None, :]).min())
    if through >= NO_WAY:  # no plan at all: nothing that this bound says
        return None
    least = least_by_option(table, rest)
    best, stride, effort = max(known_ns, through - table.worth_ns), STRIDE, Effort()
    longest, last = _longest(instance, windows), 0
    while stride >= LEAST_STRIDE and effort.left > 1 and best <= longest and not stop():
        aim = min(int(best * (1 + stride)), longest) + 1
        given = effort.left // 2 if stride <= STRIDE else min(effort.left, int(FAR * MOST_TRIALS))
        trial = Effort(given)
        near = [
            options.only(np.flatnonzero(by_option <= aim + table.worth_ns))
            for options, by_option in zip(table.options, least, strict=True)
        ]
        trimmed = table._replace(options=near)
        found = least_within(trimmed, rest, aim, trial, stop, num_paths)
        spent = given - trial.left
        effort.left -= spent
        if found is None:
            stride = STRIDE if stride > STRIDE else stride / 2
            if last > effort.left:  # what is nearer takes more than the last threshold did
                break
        elif found.ns < NO_WAY:
            return NestedSearch(max(best, found.ns), nested, trimmed, found.paths)
        else:
            best, last = aim + 1, spent
            stride = 2 * stride if spent < EASY * MOST_TRIALS else min(stride, STRIDE)
    if best > longest:  # no plan fits into memory
        return None
    return NestedSearch(best, nested, table, [])


def _longest(instance: Instance, windows: WorkWindows) -> int:
    """No plan that fits needs more: all ops and transfers, one after the other."""
    arrays = instance.arrays
    ops = sum(np.where(windows.time_ns < NO_WAY, windows.time_ns, 0).max(axis=1).tolist())
    moves = arrays.transfer_ns.max(axis=1, initial=0)[arrays.index.tensor]
    return int(ops + sum(moves.tolist()))
