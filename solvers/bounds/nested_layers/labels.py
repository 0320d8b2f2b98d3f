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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.nested_layers.options import LayerTable

MOST_CELLS, MOST_TRIALS = 12_000_000, 400_000_000
"""Of the new labels of one layer, and labels times options of all layers; with more nothing is
said. The latter are some three seconds' worth."""

MOST_KEY = 2**62


class LayerLabels(NamedTuple):
    """State (device of the gate forward times K, plus that of the gate back) and times; the label
    of the layer before that each goes on from, and with which option; work on the devices.
    """

    state: Ints
    start_ns: Ints
    left_ns: Ints
    source: Ints
    option: Ints
    work: Ints


@dataclass
class Effort:
    """Labels times options that may still be tried."""

    left: int = MOST_TRIALS


class LayerPath(NamedTuple):
    """Of each layer the option, and the devices of its inner gates, forward and back."""

    option: list[int]
    gates: list[tuple[int, int]]


class Least(NamedTuple):
    """The least bound of all options, `NEVER` if all are above the threshold; and paths to the
    labels with the least bounds, as many as asked for.
    """

    ns: int
    paths: list[LayerPath]


def rest_of(table: LayerTable) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    rest = [table.core_ns]
    for options in reversed(table.options):
        least = np.full_like(table.core_ns, NEVER)
        for there, back in zip(options.forward_ns, options.back_ns, strict=True):
            # forward from a to a2, on to b2, and back to b
            ways = np.minimum((there[:, :, None] + rest[-1][None]).min(axis=1), NEVER)
            least = np.minimum(least, (ways[:, :, None] + back[None]).min(axis=1))
        rest.append(least)
    return rest[::-1]


def least_within(
    table: LayerTable,
    rest: list[Ints],
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
    num_paths: int = 0,
) -> Least | None:
    """The least bound of all options, up to a threshold; None if it is stopped, or too large.

    Parameters
    ----------
    table : LayerTable
    rest : list of (K, K) int64
        By `rest_of`.
    most_ns : int
        The threshold.
    effort : Effort
        What is spent is taken off.
    stop : callable
        Asked once for each layer.
    num_paths : int
    """
    num_devices = len(table.step_ns)
    head, tail = table.outer_ns
    state = np.arange(num_devices**2)
    labels = LayerLabels(
        state, head[state // num_devices], tail[state % num_devices],
        state, state, np.zeros((len(state), num_devices), np.int64),
    )  # fmt: skip
    found, most_rows = list[LayerLabels](), MOST_CELLS // (5 + num_devices)
    for layer, options in enumerate(table.options):
        effort.left -= len(labels.state) * len(options.work) * num_devices**2
        if stop() or effort.left < 0:
            return None
        grown = _grown(
            labels.state, labels.start_ns, labels.left_ns, labels.work, options.forward_ns,
            options.back_ns, options.work, options.ready, table.step_ns, table.unready_ns[layer],
            table.head_ns[layer], table.left_ns[layer], table.gate_ns[layer], rest[layer + 1],
            most_ns, most_rows,
        )  # fmt: skip
        if len(grown) >= most_rows:
            return None
        if not len(grown):
            return Least(NEVER, [])
        state, start, left, source, option = grown[:, :5].T
        labels = _thinned(LayerLabels(state, start, left, source, option, grown[:, 5:]))
        if num_paths:
            found.append(labels)
    there, back = np.divmod(labels.state, num_devices)
    work = labels.work * table.step_ns
    behind = _behind(work - table.unready_ns[-1], back, table.gate_ns[-2])
    through = np.maximum(labels.left_ns, behind) + table.core_ns[there, back]
    least = labels.start_ns + np.maximum(through, _behind(work, there, table.gate_ns[-1]))
    best = np.argsort(least, kind="stable")[:num_paths]
    ns = int(least.min())
    return Least(ns if ns <= most_ns else NEVER, [_path(found, row) for row in best.tolist()])


def _behind(work: Ints, gate: Ints, gate_ns: Ints) -> Ints:
    """What follows the start of a gate, by the work after it on each device, and its own device."""
    away = (work > 0) & (np.arange(work.shape[1]) != gate[:, None])
    return np.asarray((work + np.where(away, gate_ns[gate][:, None], 0)).max(axis=1))


def _path(found: list[LayerLabels], row: int) -> LayerPath:
    option, gates = list[int](), list[tuple[int, int]]()
    num_devices = found[-1].work.shape[1]
    for labels in reversed(found):
        option.append(int(labels.option[row]))
        gates.append(divmod(int(labels.state[row]), num_devices))
        row = int(labels.source[row])
    return LayerPath(option[::-1], gates[::-1])


def _thinned(labels: LayerLabels) -> LayerLabels:
    """Without labels that another one of the same state and work is no worse than."""
    key = labels.state
    for column in labels.work.T:  # one number for state and work
        width = int(column.max()) + 1
        if int(key.max()) >= MOST_KEY // width:
            key = np.unique(key, return_inverse=True)[1]
        key = key * width + column
    order = np.lexsort((labels.left_ns, labels.start_ns, key))
    keep = order[_first_of(key[order], labels.left_ns[order])]
    return LayerLabels(*(part[keep] for part in labels))


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
    ready: Ints, step: Ints, unready: Ints, head: Ints, floor: Ints, gate: Ints, rest: Ints,
    most: int, most_rows: int,
) -> Ints:  # fmt: skip
    """A row for each label one layer further in that is not above the threshold, at most so many.

    Columns are state, start, rest, source, option, and work by device.
    """
    num_devices = len(step)
    rows, count = np.empty((1024, 5 + num_devices), np.int64), 0
    busy = np.empty(num_devices, np.int64)
    for r in range(len(state)):
        a, b = state[r] // num_devices, state[r] % num_devices
        for p in range(len(forward)):
            for b2 in range(num_devices):
                busy[b2] = floor[b2]
                for d in range(num_devices):
                    ahead = (work[r, d] + ready[p, d]) * step[d] - unready[d]
                    if ahead > 0 and d != b2:  # not before the gate has ended
                        ahead = min(NEVER, ahead + gate[b2])
                    busy[b2] = max(busy[b2], ahead)
            for a2 in range(num_devices):
                begin = max(start[r] + forward[p, a, a2], head[a2])
                if begin > most:
                    continue
                for b2 in range(num_devices):
                    remain = max(left[r] + back[p, b2, b], busy[b2])
                    if begin + remain + rest[a2, b2] > most:
                        continue
                    if count == most_rows:
                        return rows
                    if count == len(rows):
                        wider = np.empty((2 * count, 5 + num_devices), np.int64)
                        wider[:count] = rows
                        rows = wider
                    rows[count, 0] = a2 * num_devices + b2
                    rows[count, 1], rows[count, 2] = begin, remain
                    rows[count, 3], rows[count, 4] = r, p
                    rows[count, 5:] = work[r] + more[p]
                    count += 1
    return rows[:count]
