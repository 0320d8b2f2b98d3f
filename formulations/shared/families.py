"""What the models share: time scaling, reachability, constraint families.

Constraint families are plain functions that a ``build`` calls; each adds one component, of its own
name, to the model. Models number ops, edges and devices as the instance does, and hold

- ``x[i, k]`` in {0, 1}: op i is on device k. It is fixed to 0 where that is not possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.graph_index import GraphIndex, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.plan import Plan

if TYPE_CHECKING:  # half of this module serves CP-SAT, which need not wait for Pyomo to load
    import pyomo.environ as pyo

Linear = Any
"""A linear expression or constraint of Pyomo, which is untyped."""

LARGEST_TIME = 1000.0
"""Models count time in a unit that keeps their horizon at or below this number."""

LARGEST_CAPACITY = 10**6
"""Models count memory in a unit that keeps capacities at or below this number."""

# --------------------------------------------------------------------------------------------- time


def granularity_ns(instance: Instance, *, transfers: bool) -> int:
    """Greatest common divisor of all times that a value is a sum of; 1 if all of them are 0.

    Every makespan (``transfers=True``: op and transfer times) and every load of a device
    (``transfers=False``: op and host times) is a multiple of it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> granularity_ns(example(), transfers=True)
    1
    """
    arrays = instance.arrays
    ops = arrays.time_ns[arrays.time_ns != UNSUPPORTED]
    moves = arrays.transfer_ns[:, 1:] if transfers else arrays.host_ns[:, ~arrays.is_host]
    return math.gcd(*np.unique(ops).tolist(), *np.unique(moves).tolist()) or 1


def time_unit_ns(horizon_ns: int, granularity: int) -> float:
    """Nanoseconds per unit of model time: the granularity, unless that leaves large numbers.

    Multiples of the granularity make every duration an integer, which solvers keep exact. The
    horizon is at most `LARGEST_TIME` units, because an integrality error of 1e-6 times a big-M of
    that size is still small beside one unit.

    Examples
    --------
    >>> time_unit_ns(60_000_000, 1_000_000), time_unit_ns(5_000_000, 1)
    (1000000.0, 5000.0)
    """
    return max(float(granularity), horizon_ns / LARGEST_TIME)


# ---------------------------------------------------------------------------- reachability, as bits


Ends = list[tuple[int, int]]
"""Producer and consumer of every edge."""


def edge_ends(instance: Instance) -> Ends:
    """Producer and consumer of every edge.

    Examples
    --------
    >>> from placegap.instances import example
    >>> edge_ends(example())
    [(0, 1), (0, 2), (1, 3), (2, 3)]
    """
    index = instance.arrays.index
    return list(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))


def op_reach(index: GraphIndex) -> tuple[list[int], list[int]]:
    """Ancestors and descendants of every op; bit j of an integer stands for op j. O(n m / 64).

    Examples
    --------
    >>> from placegap.instances import example
    >>> ancestors, descendants = op_reach(example().graph.index)
    >>> [bin(ops) for ops in descendants]
    ['0b1110', '0b1000', '0b1000', '0b0']
    """
    producer, consumer = index.producer.tolist(), index.consumer.tolist()
    return _sweep_down(index, producer), _sweep_up(index, consumer)


def flow_reach(index: GraphIndex) -> tuple[list[int], list[int]]:
    """For every edge, the edges that arrive before it can leave, and those that leave after it.

    Bit r of an integer stands for edge r. O(m^2 / 64).

    Examples
    --------
    >>> from placegap.instances import example
    >>> before, after = flow_reach(example().graph.index)
    >>> [bin(edges) for edges in after]
    ['0b100', '0b1000', '0b0', '0b0']
    """
    edges = range(len(index.producer))
    arrived, leaving = _sweep_down(index, edges), _sweep_up(index, edges)
    before = [arrived[i] for i in index.producer.tolist()]
    return before, [leaving[j] for j in index.consumer.tolist()]


def _sweep_down(index: GraphIndex, bit: Sequence[int]) -> list[int]:
    """For every op, the bits of all edges on paths that end there."""
    pointer, edges, producer = (
        part.tolist() for part in (index.pred_ptr, index.pred_edge, index.producer)
    )
    found = [0] * (len(pointer) - 1)
    for i in index.topological_order.tolist():
        for e in edges[pointer[i] : pointer[i + 1]]:
            found[i] |= found[producer[e]] | 1 << bit[e]
    return found


def _sweep_up(index: GraphIndex, bit: Sequence[int]) -> list[int]:
    """For every op, the bits of all edges on paths that start there."""
    pointer, edges, consumer = (
        part.tolist() for part in (index.succ_ptr, index.succ_edge, index.consumer)
    )
    found = [0] * (len(pointer) - 1)
    for i in reversed(index.topological_order.tolist()):
        for e in edges[pointer[i] : pointer[i + 1]]:
            found[i] |= found[consumer[e]] | 1 << bit[e]
    return found


def unordered_pairs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs (i, j), i < j, of which neither comes before the other, in lexicographic order.

    Examples
    --------
    >>> from placegap.instances import example
    >>> list(unordered_pairs(*op_reach(example().graph.index)))
    [(1, 2)]
    """
    everything = (1 << len(before)) - 1
    for i in range(len(before)):
        rest = (everything & ~(before[i] | after[i])) >> (i + 1)
        j = i
        while rest:
            step = (rest & -rest).bit_length()
            j += step
            rest >>= step
            yield i, j


def count_unordered_pairs(after: Sequence[int]) -> int:
    """How many pairs `unordered_pairs` yields."""
    return math.comb(len(after), 2) - sum(bits.bit_count() for bits in after)


# --------------------------------------------------------------------------------- where ops can be


def possible_devices(instance: Instance) -> NDArray[np.bool_]:
    """Devices that can run an op and all ops of its colocation group, (n, K)."""
    return for_whole_groups(instance.arrays.group, instance.arrays.time_ns != UNSUPPORTED)


def for_whole_groups(group: Ints, possible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What is possible for all ops of each op's group, (n, K).

    Examples
    --------
    >>> for_whole_groups(np.array([0, 0]), np.array([[True, False], [True, True]])).tolist()
    [[True, False], [True, False]]
    """
    together = np.ones((int(group.max()) + 1, possible.shape[1]), np.bool_)
    np.logical_and.at(together, group, possible)
    return together[group]


def place_ops(model: pyo.ConcreteModel, possible: NDArray[np.bool_]) -> None:
    """Variables ``x[i, k]`` in {0, 1}, fixed to 0 where device k is not possible for op i."""
    import pyomo.environ as pyo

    num_ops, num_devices = possible.shape
    model.x = pyo.Var(range(num_ops), range(num_devices), domain=pyo.Binary)
    for i, k in zip(*(axis.tolist() for axis in np.nonzero(~possible)), strict=True):
        model.x[i, k].fix(0)


def assign_once(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Sum over k of x[i, k] == 1 for every op i."""
    x, devices = model.x, range(instance.num_devices)

    @model.Constraint(range(instance.num_ops))
    def assign_once(_: pyo.ConcreteModel, i: int) -> Linear:
        return sum(x[i, k] for k in devices) == 1


def colocate_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    """x[i, k] == x[j, k] for every op i of a colocation group, j its first op, every device k."""
    first: dict[int, int] = {}
    home = [first.setdefault(g, i) for i, g in enumerate(instance.arrays.group.tolist())]
    x = model.x

    @model.Constraint([i for i, j in enumerate(home) if i != j], range(instance.num_devices))
    def colocate_ops(_: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return x[i, k] == x[home[i], k]


def memory_capacity(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Sum over i of m_i x[i, k] <= M_k for every device k that cannot hold all ops.

    In units of the greatest common divisor of the sizes, where that leaves capacities up to
    `LARGEST_CAPACITY`: integers, which solvers keep exact. Otherwise scaled to that capacity and
    wider by one unit: the rows let plans through that exceed a device by a millionth, and none that
    fits is lost. `exclude_overload` takes those plans out when they come up.
    """
    size = instance.arrays.resident_bytes.tolist()
    capacity = instance.arrays.memory_bytes.tolist()
    common = math.gcd(*size) or 1
    x, heavy = model.x, [i for i, size_bytes in enumerate(size) if size_bytes]

    @model.Constraint([k for k, limit in enumerate(capacity) if limit < sum(size)])
    def memory_capacity(_: pyo.ConcreteModel, k: int) -> Linear:
        limit = capacity[k] // common
        if limit <= LARGEST_CAPACITY:
            return sum(min(size[i] // common, limit + 1) * x[i, k] for i in heavy) <= limit
        unit, most = capacity[k] / LARGEST_CAPACITY, 2 * capacity[k]
        return sum(min(size[i], most) / unit * x[i, k] for i in heavy) <= LARGEST_CAPACITY + 1


def exclude_overload(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> bool:
    """Add rows that exclude a plan which exceeds a device's memory; whether it does.

    The ops S on an overloaded device k are reduced to a minimal cover, the largest first:
    sum over i in S of x[i, l] <= |S| - 1 for every device l that cannot hold S either.
    """
    import pyomo.environ as pyo

    size, capacity = instance.arrays.resident_bytes.tolist(), instance.arrays.memory_bytes.tolist()
    device = plan.devices.tolist()
    if model.component("memory_cover") is None:
        model.memory_cover = pyo.ConstraintList()
    before = len(model.memory_cover)
    for k, limit in enumerate(capacity):
        cover, total = [], 0
        for i in sorted(range(len(size)), key=lambda i: -size[i]):
            if device[i] == k and total <= limit:
                cover.append(i)
                total += size[i]
        if total > limit:
            for other in range(len(capacity)):
                if total > capacity[other]:
                    model.memory_cover.add(sum(model.x[i, other] for i in cover) <= len(cover) - 1)
    return len(model.memory_cover) > before


# -------------------------------------------------------------------------------- into and out of x


def set_placement(model: pyo.ConcreteModel, plan: Plan) -> None:
    """Set the values of x to those of a plan."""
    device = plan.devices.tolist()
    for (i, k), variable in model.x.items():
        if not variable.fixed:
            variable.set_value(int(device[i] == k))


def placement(model: pyo.ConcreteModel, num_ops: int) -> list[int]:
    """The device of each op, read off the values of x."""
    best = [(-1.0, 0)] * num_ops
    for (i, k), variable in model.x.items():
        best[i] = max(best[i], (variable.value, -k))
    return [-k for _, k in best]
