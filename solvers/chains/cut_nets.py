"""The cut of a set of blocks that grows and shrinks one block at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel


class CutNets(NamedTuple):
    """Nets with their weights, in the form of the kernels.

    Attributes
    ----------
    block_ptr, net : (b + 1,), (p,) int64
        Nets of block v are ``net[block_ptr[v]:block_ptr[v + 1]]``.
    size, weight : (e,) int64
        Pins of each net, and what it costs if it is cut.
    """

    block_ptr: Ints
    net: Ints
    size: Ints
    weight: Ints


@kernel(allocates=False)
def added_cut(nets: CutNets, pins_in: Ints, v: int) -> int:
    """Change of the cut if block v joins a set with ``pins_in[e]`` pins of each net e."""
    change = np.int64(0)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        if pins_in[e] == 0:
            change += nets.weight[e]
        elif pins_in[e] == nets.size[e] - 1:
            change -= nets.weight[e]
    return int(change)


@kernel(allocates=False)
def put_in(nets: CutNets, pins_in: Ints, v: int) -> int:
    """Let block v join the set; the change of the cut."""
    change = np.int64(0)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        pins_in[e] += 1
        if pins_in[e] == 1:
            change += nets.weight[e]
        elif pins_in[e] == nets.size[e]:
            change -= nets.weight[e]
    return int(change)
