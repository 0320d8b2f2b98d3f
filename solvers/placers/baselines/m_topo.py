"""m-TOPO: fill the devices one after the other, in topological order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import OBJECTIVES, has_two_levels, plan_class
from placegap.instances.referee.loads import server_numbers
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import NOWHERE, group_needs, placement


def m_topo(task: Task, params: Params | None = None) -> Outcome:
    """Fill devices up to an equal share of the memory, in topological order.

    Jeon et al., "Baechi: fast device placement of machine learning graphs", ACM SoCC 2020: with
    cap = floor(total bytes / K) + bytes of the largest op, ops go in topological order
    (first-in-first-out Kahn over the input order) to device 0 until it is full, then to device 1,
    and never back. A heuristic that looks at no time and no transfer.
    Added to the paper: a colocation group goes whole where its first op goes and counts as one op
    in the cap; a device takes no more than its own memory; where plans must be a chain or convex,
    and where accelerators run whole subgraphs, the blocks of `instances.problem.blocks` are
    filled in, in their topological order. An op that the current device cannot run goes to the
    nearest later device that can: with blocks the filling continues there, else it stays, and
    earlier devices are tried, too. With two levels and blocks, devices of one server follow each
    other. O(n K), and O(m log m) for blocks.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Edge, Graph, Instance, MaxLoad, Op
    >>> ops = tuple(Op(name=x, time_ns={"gpu": 1}, resident_bytes=2) for x in "abcd")
    >>> devices = tuple(Device(name=x, kind="gpu", memory_bytes=6) for x in ("g0", "g1"))
    >>> instance = Instance(name="four", graph=Graph(name="four", ops=ops),
    ...                     cluster=Cluster(name="two", devices=devices))
    >>> m_topo(Task(instance, MaxLoad())).plan.placement
    ((0,), (0,), (0,), (1,))
    """
    instance, arrays = task.instance, task.instance.arrays
    one_pass = task.semantics.objective == "latency_subgraphs"
    one_way = plan_class(task.semantics) != "any" or one_pass
    if one_way:
        blocks = contract(instance, merge_idle=False, one_pass=one_pass)
        unit, unit_bytes = blocks.block, blocks.resident_bytes
        runs: Flags = blocks.time_ns != UNSUPPORTED
        order = np.arange(blocks.num_blocks)
    else:
        unit, (unit_bytes, runs) = arrays.group, group_needs(arrays)
        met = unit[arrays.index.topological_order]
        order = met[np.sort(np.unique(met, return_index=True)[1])]
    cap = int(unit_bytes.sum()) // instance.num_devices + int(unit_bytes.max())
    limit = np.minimum(cap, arrays.memory_bytes)
    turn = np.arange(instance.num_devices)
    if has_two_levels(task.semantics) and one_way:  # a server that was left is not entered again
        turn = np.argsort(server_numbers(instance)[1], kind="stable")
    device, stuck = fill(order, unit_bytes, runs[:, turn], limit[turn], one_way=one_way)
    if stuck != NOWHERE:
        return _nowhere(instance, int(np.argmax(unit == stuck)), int(unit_bytes[stuck]), limit)
    return Outcome(Plan(placement(turn[device][unit])))


def fill(
    order: Ints, unit_bytes: Ints, runs: Flags, limit: Ints, *, one_way: bool
) -> tuple[Ints, int]:
    """Device of each unit, (u,), and the unit that fits nowhere or -1.

    Parameters
    ----------
    order : (u,) int64
        Units (ops, groups or blocks) in the order they are placed.
    unit_bytes : (u,) int64
    runs : (u, K) bool
    limit : (K,) int64
        Bytes that each device may take.
    one_way : bool
        Whether no unit may go to a device before that of the unit before it.
    """
    device = np.full(len(unit_bytes), NOWHERE)
    free, size, may = limit.tolist(), unit_bytes.tolist(), runs.tolist()
    last = len(free)
    current = 0

    def first_fit(unit: int, candidates: Iterable[int]) -> int:
        return next((k for k in candidates if may[unit][k] and size[unit] <= free[k]), NOWHERE)

    for unit in order.tolist():
        at = first_fit(unit, range(current, last))
        elsewhere = not one_way and not may[unit][current]
        if at == NOWHERE and elsewhere:
            at = first_fit(unit, range(current))
        if at == NOWHERE:
            return device, unit
        device[unit] = at
        free[at] -= size[unit]
        if not elsewhere:
            current = at
    return device, NOWHERE


def _nowhere(instance: Instance, op: int, size: int, limit: Ints) -> Outcome:
    takes = ", ".join(
        f"{device.name!r} {most}"
        for device, most in zip(instance.cluster.devices, limit.tolist(), strict=True)
    )
    return Outcome(
        message=f"memory: op {instance.graph.ops[op].name!r} with all that must share its device"
        f" ({size} bytes) fits on no device that comes next and can run it; bytes that each may"
        f" take: {takes}"
    )


register(
    Method(
        name="m-topo",
        claim="heuristic",
        objectives=OBJECTIVES,
        paper="Jeon et al. 2020 (Baechi)",
        cites=("jeon2020",),
        summary="fills devices in topological order, an equal share each",
        starts={
            "makespan": Cost(0.4, 1.4, always=True),
            "max_load": Cost(0.3, 0.5, always=True),
            "pipeline_iteration": Cost(0.3, 0.5, always=True),
        },
        run=m_topo,
        params=Params,
    )
)
