"""Labels of nested layers: the least time that any options of them leave, up to a threshold.

A *label* stands for options of the layers so far, outermost first. It knows

- the devices of the two inner gates;
- when the gate of the way forward starts at the earliest;
- what follows the start of the gate on the way back at least: the rest of the chain, and on every
  device all of the work that can only begin then, one op after the other;
- the work on each device.

The sum of both times and of the least time between the gates is a lower bound on the makespan of
all plans with these options. Labels with a sum above the threshold are left out. Of those that
agree in devices and work, one that another is no worse than in both times is left out as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.nested_layers.options import LayerTable

MOST_ROWS = 4_000_000
"""Of new labels of one layer; with more nothing is said."""


class Labels(NamedTuple):
    """State (device of the gate forward times K, plus that of the gate back), times, work."""

    state: Ints
    start_ns: Ints
    left_ns: Ints
    work: Ints


def rest_of(table: LayerTable) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    rest = [table.core_ns]
    for options in reversed(table.options):
        inner = rest[-1]
        # forward from a to a2, on to b2, and back to b
        ways = (options.forward_ns[:, :, :, None] + inner[None, None]).min(axis=2)
        ways = (np.minimum(ways, NEVER)[:, :, :, None] + options.back_ns[:, None]).min(axis=2)
        rest.append(np.minimum(ways.min(axis=0, initial=NEVER), NEVER))
    return rest[::-1]


def least_within(
    table: LayerTable, rest: list[Ints], most_ns: int, stop: Callable[[], bool]
) -> int | None:
    """The least bound of all options, `NEVER` if all are above a threshold; None if it is stopped.

    Parameters
    ----------
    table : LayerTable
    rest : list of (K, K) int64
        By `rest_of`.
    most_ns : int
        The threshold.
    stop : callable
        Asked once for each layer.
    """
    num_devices = len(table.step_ns)
    head, tail = table.outer_ns
    state = np.arange(num_devices**2)
    labels = Labels(
        state, head[state // num_devices], tail[state % num_devices],
        np.zeros((len(state), num_devices), np.int64),
    )  # fmt: skip
    for layer, options in enumerate(table.options):
        if stop():
            return None
        widest = int(rest[layer + 1].min())
        if widest >= NEVER:
            return NEVER
        grown = _grown(
            labels.state, labels.start_ns, labels.left_ns, labels.work, options.forward_ns,
            options.back_ns, options.work, options.ready, table.step_ns, table.unready_ns[layer],
            table.head_ns[layer], table.left_ns[layer], rest[layer + 1], most_ns, MOST_ROWS,
        )  # fmt: skip
        if len(grown[0]) >= MOST_ROWS:
            return None
        labels = _thinned(Labels(*grown))
        if not len(labels.state):
            return NEVER
    left = np.maximum(labels.left_ns, (labels.work * table.step_ns).max(axis=1))
    between = table.core_ns[labels.state // num_devices, labels.state % num_devices]
    least = int((labels.start_ns + left + between).min())
    return least if least <= most_ns else NEVER


def _thinned(labels: Labels) -> Labels:
    """Without labels that another one of the same state and work is no worse than."""
    key = labels.state.copy()
    for column in labels.work.T:  # numbers of states and work, as each is met
        pair = np.stack([key, column])
        key = np.unique(pair, axis=1, return_inverse=True)[1].ravel()
    order = np.lexsort((labels.left_ns, labels.start_ns, key))
    keep = order[_first_of(key[order], labels.left_ns[order])]
    return Labels(*(part[keep] for part in labels))


@kernel
def _first_of(key: Ints, left: Ints) -> Ints:
    """Rows, by key and rising start, whose rest is less than that of all before them."""
    kept, count, least = np.empty(len(key), np.int64), 0, 0
    for r in range(len(key)):
        if r == 0 or key[r] != key[r - 1] or left[r] < least:
            least = left[r]
            kept[count] = r
            count += 1
    return kept[:count]


@kernel
def _grown(
    state: Ints, start: Ints, left: Ints, work: Ints, forward: Ints, back: Ints, more: Ints,
    ready: Ints, step: Ints, unready: Ints, head: Ints, floor: Ints, rest: Ints, most: int,
    rows: int,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """All labels that are one layer further in, and not above the threshold, at most `rows`."""
    num_devices = len(step)
    size, count = 1024, 0
    to, begins, remains = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    loads = np.empty((size, num_devices), np.int64)
    for r in range(len(state)):
        a, b = state[r] // num_devices, state[r] % num_devices
        for p in range(len(forward)):
            busy = 0
            for d in range(num_devices):
                busy = max(busy, (work[r, d] + ready[p, d]) * step[d] - unready[d])
            for a2 in range(num_devices):
                begin = max(start[r] + forward[p, a, a2], head[a2])
                if begin > most:
                    continue
                for b2 in range(num_devices):
                    remain = max(left[r] + back[p, b2, b], busy, floor[b2])
                    if begin + remain + rest[a2, b2] > most:
                        continue
                    if count == rows:
                        return to, begins, remains, loads
                    if count == size:
                        size *= 2
                        to = _longer(to, size)
                        begins = _longer(begins, size)
                        remains = _longer(remains, size)
                        wider = np.empty((size, num_devices), np.int64)
                        wider[:count] = loads
                        loads = wider
                    to[count], begins[count], remains[count] = a2 * num_devices + b2, begin, remain
                    loads[count] = work[r] + more[p]
                    count += 1
    return to[:count], begins[:count], remains[:count], loads[:count]


@kernel
def _longer(values: Ints, size: int) -> Ints:
    longer = np.empty(size, np.int64)
    longer[: len(values)] = values
    return longer
