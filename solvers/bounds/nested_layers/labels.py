"""Labels of nested layers: the least time that any options of them leave, up to a threshold.

A *label* stands for options of the layers so far, outermost first. It knows

- the devices of the two inner gates;
- when the gate of the way forward starts at the earliest;
- what follows the start of the gate on the way back at least: the rest of the chain, and on every
  device all of the work that can only begin then, one op after the other;
- the work on each device, and where memory binds the bytes there.

The sum of both times and of the least time between the gates is a lower bound on the makespan of
all plans with these options. Labels with a sum above the threshold are left out. Of those that
agree in devices, work and about the bytes, one that another is no worse than in both times is left
out as well, and the others hold the least bytes of any. A label with more bytes than a device has
room for is none.

Devices that are identical have no names: those of a class are numbered by their work. A path knows
how devices were renamed, layer by layer.

Where memory binds, bytes have `prices`. What the layers further inside take, and pay, is then no
less than a shortest path; so that a label is left out whose times, price and that path together
are above the threshold and what all room is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.nested_layers.growth import (
    WORK,
    first_of,
    grown_labels,
    rename_alike,
)
from placegap.solvers.bounds.nested_layers.options import MOST_ALIKE, LayerTable
from placegap.solvers.bounds.nested_layers.shortest import least_inside

MOST_CELLS, MOST_TRIALS = 12_000_000, 200_000_000
"""Of the new labels of one layer, and labels times options and gates of all layers that seem to be
below the threshold, of which a new label counts as half of its cells; with more nothing is said.
The latter are some eight seconds' worth."""

CHUNK = 16_384
"""Labels that grow at a time, before a stop is asked for."""

MOST_KEY = 2**62

SHARES = 128
"""Of a device's room: labels with as many of them there hold about the same bytes."""


class LayerLabels(NamedTuple):
    """State (device of the gate forward times K, plus that of the gate back) and times; the label
    of the layer before that each goes on from, and with which option; how its devices are named
    here, as digits; work on the devices, and bytes, if memory binds.
    """

    state: Ints
    start_ns: Ints
    left_ns: Ints
    source: Ints
    option: Ints
    names: Ints
    work: Ints
    held_bytes: Ints


@dataclass
class Effort:
    """Labels times options and gates that may still be tried."""

    left: int = MOST_TRIALS


class LayerPath(NamedTuple):
    """Of each layer where its groups are, and the devices of its inner gates, forward and back."""

    devices: list[Ints]
    gates: list[tuple[int, int]]


class Least(NamedTuple):
    """The least bound of all options, `NO_WAY` if all are above the threshold; and paths to the
    labels with the least bounds, as many as asked for.
    """

    ns: int
    paths: list[LayerPath]


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
        state,
        head[state // num_devices],
        tail[state % num_devices],
        state,
        state,
        state,
        np.zeros((len(state), num_devices), np.int64),
        np.zeros((len(state), len(table.room_bytes)), np.int64),
    )
    found = list[LayerLabels]()
    for layer, options in enumerate(table.options):
        if stop() or effort.left < 0:
            return None
        least = least_inside(options.forward_ns, options.back_ns, options.paid_ns, rest[layer + 1])
        grown = _grown(table, layer, labels, least, rest[layer + 1], most_ns, effort, stop)
        if grown is None:
            return None
        if not len(grown):
            return Least(NO_WAY, [])
        if num_devices <= MOST_ALIKE:
            rename_alike(grown, table.kind, num_devices)
        state, start, left, source, option, names = grown[:, :WORK].T
        work, held = np.split(grown[:, WORK:], [num_devices], axis=1)
        labels = _thinned(
            LayerLabels(state, start, left, source, option, names, work, held), table.room_bytes
        )
        if num_paths:
            found.append(labels)
    there, back = np.divmod(labels.state, num_devices)
    work = labels.work * table.step_ns
    behind = _behind(work - table.unready_ns[-1], back, table.gate_ns[-2])
    through = np.maximum(labels.left_ns, behind) + table.core_ns[there, back]
    bound = labels.start_ns + np.maximum(through, _behind(work, there, table.gate_ns[-1]))
    best = np.argsort(bound, kind="stable")[:num_paths]
    ns = int(bound.min())
    return Least(
        ns if ns <= most_ns else NO_WAY, [_path(table, found, row) for row in best.tolist()]
    )


def _grown(
    table: LayerTable,
    layer: int,
    labels: LayerLabels,
    least: Ints,
    inside: Ints,
    most_ns: int,
    effort: Effort,
    stop: Callable[[], bool],
) -> Ints | None:
    """Rows of new labels; None if it is stopped, or if they are too many. Some labels at a time."""
    options, order = table.options[layer], np.argsort(least, axis=2, kind="stable")
    width = WORK + len(table.step_ns) + len(table.room_bytes)
    left, found = MOST_CELLS // width, [np.zeros((0, width), np.int64)]
    for begin in range(0, len(labels.state), CHUNK):
        if stop():
            return None
        rows = slice(begin, begin + CHUNK)
        grown, tried = grown_labels(
            labels.state[rows],
            labels.start_ns[rows],
            labels.left_ns[rows],
            labels.work[rows],
            labels.held_bytes[rows],
            options.forward_ns,
            options.back_ns,
            options.work,
            options.ready,
            options.held_bytes,
            least,
            order,
            table.step_ns,
            table.room_bytes,
            table.unready_ns[layer],
            table.head_ns[layer],
            table.left_ns[layer],
            table.gate_ns[layer],
            inside,
            table.price,
            table.shift,
            most_ns + table.worth_ns,
            left,
            effort.left,
        )
        grown[:, 3] += begin
        found.append(grown)
        left -= len(grown)
        effort.left -= tried + grown.size // 2
        if left <= 0 or effort.left < 0:
            return None
    return np.concatenate(found)


def _behind(work: Ints, gate: Ints, gate_ns: Ints) -> Ints:
    """What follows the start of a gate, by the work after it on each device, and its own device."""
    away = (work > 0) & (np.arange(work.shape[1]) != gate[:, None])
    return np.asarray((work + np.where(away, gate_ns[gate][:, None], 0)).max(axis=1))


def _path(table: LayerTable, found: list[LayerLabels], row: int) -> LayerPath:
    """Back from a label of the last layer, by the names of its devices."""
    devices, gates = list[Ints](), list[tuple[int, int]]()
    num_devices = len(table.step_ns)
    name = np.arange(num_devices)
    for options, labels in zip(reversed(table.options), reversed(found), strict=True):
        a, b = divmod(int(labels.state[row]), num_devices)
        gates.append((int(name[a]), int(name[b])))
        if num_devices <= MOST_ALIKE:  # the names of more have too many digits
            here = int(labels.names[row]) // num_devices ** np.arange(num_devices) % num_devices
            name = name[here]
        devices.append(name[options.devices[labels.option[row]]])
        row = int(labels.source[row])
    return LayerPath(devices[::-1], gates[::-1])


def _thinned(labels: LayerLabels, room: Ints) -> LayerLabels:
    """Without labels that another one of the same state, work and shares is no worse than."""
    key = labels.state
    shares = labels.held_bytes // np.maximum(1, room // SHARES)
    for column in (*labels.work.T, *shares.T):  # one number for all of them
        width = int(column.max()) + 1
        if int(key.max()) >= MOST_KEY // width:
            key = np.unique(key, return_inverse=True)[1]
        key = key * width + column
    order = np.lexsort((labels.left_ns, labels.start_ns, key))
    held = labels.held_bytes[order]
    keep = first_of(key[order], labels.left_ns[order], held)
    rows = order[keep]
    return LayerLabels(*(part[rows] for part in labels))._replace(held_bytes=held[keep])
