"""Shortest ways of the chain through layers, by the devices of gates; bytes have their price."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.solvers.bounds.nested_layers.options import LayerTable


def rest_of(table: LayerTable) -> list[Ints]:
    """Least time between the gates of each frame, by devices: layer by layer, and the core last."""
    rest, least = [table.core_ns], dict[int, Ints]()
    for options in reversed(table.options):
        if id(options) not in least:
            least[id(options)] = least_ways(options.forward_ns, options.back_ns, options.paid_ns)[0]
        rest.append(over_layer(least[id(options)], rest[-1]))
    return rest[::-1]


def least_by_option(table: LayerTable, rest: list[Ints]) -> list[Ints]:
    """Of each layer, the least bound of any label with each option, (p,), by the chain alone."""
    around = np.minimum(table.outer_ns[0][:, None] + table.outer_ns[1][None, :], NO_WAY)
    found = list[Ints]()
    for options, inside in zip(table.options, rest[1:], strict=True):
        least, around = _through_options(
            options.forward_ns, options.back_ns, options.paid_ns, around, inside
        )
        found.append(least)
    return found


@kernel
def least_ways(forward: Ints, back: Ints, paid: Ints) -> tuple[Ints, Ints]:
    """The least of any option forward from a to a2, and back from b2 to b, and which one; K^4."""
    num_devices = forward.shape[1]
    least = np.full((num_devices, num_devices, num_devices, num_devices), NO_WAY)
    chosen = np.full(least.shape, -1)
    for p in range(len(forward)):
        for a in range(num_devices):
            for a2 in range(num_devices):
                if forward[p, a, a2] >= NO_WAY:
                    continue
                there = forward[p, a, a2] + paid[p]
                for b2 in range(num_devices):
                    for b in range(num_devices):
                        way = there + back[p, b2, b]
                        if way < least[a, a2, b2, b]:
                            least[a, a2, b2, b], chosen[a, a2, b2, b] = way, p
    return least, chosen


def over_layer(ways: Ints, inside: Ints) -> Ints:
    """From the outer gates a to b: a to a2, what is inside, and b2 to b."""
    return np.asarray(np.minimum((ways + inside[None, :, :, None]).min(axis=(1, 2)), NO_WAY))


@kernel
def least_inside(forward: Ints, back: Ints, paid: Ints, rest: Ints) -> Ints:
    """The least from outer gate a to outer gate b with each option, (K, K, p)."""
    num_devices = forward.shape[1]
    least = np.full((num_devices, num_devices, len(forward)), NO_WAY)
    for p in range(len(forward)):
        for b2 in range(num_devices):
            for a in range(num_devices):
                inside = NO_WAY
                for a2 in range(num_devices):
                    inside = min(inside, forward[p, a, a2] + rest[a2, b2])
                if inside >= NO_WAY:
                    continue
                inside += paid[p]
                for b in range(num_devices):
                    least[a, b, p] = min(least[a, b, p], inside + back[p, b2, b])
    return least


@kernel
def _through_options(
    forward: Ints, back: Ints, paid: Ints, around: Ints, rest: Ints
) -> tuple[Ints, Ints]:
    """The least sum over each option, with what is around the outer gates and inside the inner
    ones; and what is around the inner ones.
    """
    num_devices = forward.shape[1]
    least, inner = np.full(len(forward), NO_WAY), np.full((num_devices, num_devices), NO_WAY)
    for p in range(len(forward)):
        for a2 in range(num_devices):
            for b in range(num_devices):
                outer = NO_WAY
                for a in range(num_devices):
                    outer = min(outer, around[a, b] + forward[p, a, a2])
                if outer >= NO_WAY:
                    continue
                outer += paid[p]
                for b2 in range(num_devices):
                    way = min(NO_WAY, outer + back[p, b2, b])
                    inner[a2, b2] = min(inner[a2, b2], way)
                    least[p] = min(least[p], way + rest[a2, b2])
    return least, inner
