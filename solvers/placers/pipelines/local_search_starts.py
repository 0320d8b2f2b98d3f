"""Random plans that honour memory and support: where local search starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.orders import order_of_keys
from placegap.solvers.placers.movable_units import Arcs

TRIES = 20
"""Draws of one start before it is given up."""


class Draw(NamedTuple):
    """What a start must honour: support (u, K), bytes of units (u,), of devices (K,); hosts."""

    fits: Flags
    size: Ints
    memory: Ints
    is_host: Flags


def random_assignment(draw: Draw, generator: np.random.Generator) -> Ints | None:
    """Each unit on an accelerator chosen uniformly among those that run it and have room.

    Where no accelerator takes it, a host. Units go in random order; if one is left over, large
    units go first in the draws that follow. None if no draw takes all.
    """
    u = len(draw.size)
    for attempt in range(TRIES):
        order = generator.permutation(u)
        if attempt:
            order = order[np.argsort(-draw.size[order], kind="stable")]
        device = _assign(order, generator.random(u), *draw)
        if len(device):
            return device
    return None


@kernel
def _assign(
    order: Ints,
    share: Floats,
    fits: Flags,
    size: Ints,
    memory: Ints,
    is_host: Flags,
) -> Ints:
    """Device of each unit; empty if one is left over."""
    k_count = len(memory)
    device, free = np.zeros(len(size), np.int64), memory.copy()
    candidates = np.zeros(k_count, np.int64)
    for v in order:
        found = 0
        for wants_host in (False, True):
            for k in range(k_count):
                if is_host[k] == wants_host and fits[v, k] and size[v] <= free[k]:
                    candidates[found] = k
                    found += 1
            if found:
                break
        if found == 0:
            return np.zeros(0, np.int64)
        k = candidates[min(found - 1, int(share[v] * found))]
        device[v] = k
        free[k] -= size[v]
    return device


def random_chain(draw: Draw, arcs: Arcs, generator: np.random.Generator) -> Ints | None:
    """A random topological order, cut at random places, on accelerators in random order.

    A device that a block does not fit is left before its cut; from the second draw on hosts are
    among the devices. None if no draw takes all.
    """
    u, num_preds = len(draw.size), np.diff(arcs.pred_ptr)
    for attempt in range(TRIES):
        keys = generator.permutation(u)
        order = order_of_keys(arcs.succ_ptr, arcs.succ, num_preds, keys)
        devices = np.flatnonzero(~draw.is_host | bool(attempt))
        if len(devices) == 0:
            continue
        devices = generator.permutation(devices)
        cuts = np.append(np.sort(generator.integers(0, u + 1, len(devices) - 1)), u)
        device = _cut(order, devices, cuts, draw.fits, draw.size, draw.memory)
        if len(device):
            return device
    return None


@kernel
def _cut(order: Ints, devices: Ints, cuts: Ints, fits: Flags, size: Ints, memory: Ints) -> Ints:
    """Device of each block; empty if one is left over."""
    device, at = np.zeros(len(order), np.int64), 0
    free = memory[devices[0]]
    for place, v in enumerate(order):
        while place >= cuts[at] or not fits[v, devices[at]] or size[v] > free:
            at += 1
            if at == len(devices):
                return np.zeros(0, np.int64)
            free = memory[devices[at]]
        device[v] = devices[at]
        free -= size[v]
    return device
