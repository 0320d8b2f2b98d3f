"""m-TOPO and m-ETF of Baechi, and its dynamic memory (m-SCT: `m_sct`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import OBJECTIVES, Instance, Makespan, Plan
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.earliest_start import (
    Footprint,
    earliest_start_first,
    no_favourites,
    no_footprint,
)
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    admission_of,
    nowhere,
    order_by,
    outcome_of,
    placement,
    problem_of,
)


class TopoParams(Params):
    """Which bytes of a colocation group m-TOPO counts."""

    #: Those of all its ops; or only those of the first, as in the m-TOPO that Celeritas measured
    #: (section 6.5.2), whose plans may overfill a device: which the referee rejects.
    group_bytes: Literal["whole", "first"] = "whole"


@method(
    "m-topo",
    objectives=OBJECTIVES,
    cites="Jeon et al. 2020 (Baechi)",
    starts={
        "makespan": Cost(0.4, 1.4, always=True),
        "max_load": Cost(0.3, 0.5, always=True),
        "pipeline_iteration": Cost(0.3, 0.5, always=True),
    },
)
def m_topo(task: Task, params: TopoParams | None = None) -> Outcome:
    """Fills devices in topological order, an equal share each.

    Jeon et al., "Baechi: fast device placement of machine learning graphs", ACM SoCC 2020: with cap
    = floor(total bytes / K) + bytes of the largest op, ops go in topological order (first-in-first-
    out Kahn over the input order) to device 0 until it is full, then to device 1, and never back. A
    heuristic that looks at no time and no transfer. O(n K), and O(m log m) for blocks.

    Deviations: a colocation group goes whole with its first op and counts as one op in the cap; a
    device takes no more than its memory; where plans are chains or convex, blocks are filled in; an
    op that the current device cannot run goes to the nearest later one that can.
    """
    instance, arrays = task.instance, task.instance.arrays
    first_only = params is not None and params.group_bytes == "first"
    one_pass = "call" in task.semantics.plan_fields
    one_way = task.semantics.plan_class != "any" or one_pass
    if one_way:
        blocks = contract(instance, merge_idle=False, one_pass=one_pass)
        unit, unit_bytes = blocks.block, blocks.resident_bytes
        runs: Flags = blocks.time_ns != UNSUPPORTED
        order = np.arange(blocks.num_blocks)
    else:
        unit, unit_bytes, runs = arrays.group, arrays.group_bytes, arrays.group_runs
        met = unit[arrays.index.topological_order]
        first = np.unique(met, return_index=True)[1]
        order = met[np.sort(first)]
        if first_only:
            unit_bytes = arrays.resident_bytes[arrays.index.topological_order[first]]
    cap = int(unit_bytes.sum()) // instance.num_devices + int(unit_bytes.max())
    limit = np.minimum(cap, arrays.memory_bytes)
    turn = np.arange(instance.num_devices)
    if task.semantics.has_two_levels and one_way:  # a server that was left is not entered again
        turn = np.argsort(instance.cluster.server_numbers[1], kind="stable")
    device, stuck = fill(order, unit_bytes, runs[:, turn], limit[turn], one_way=one_way)
    if stuck != NOWHERE:
        return _nowhere(instance, int(np.argmax(unit == stuck)), int(unit_bytes[stuck]), limit)
    return Outcome(Plan(placement(turn[device][unit])))


def fill(
    order: Ints, unit_bytes: Ints, runs: Flags, limit: Ints, *, one_way: bool
) -> tuple[Ints, int]:
    """Device of each unit (op, group or block), (u,), and the unit that fits nowhere or -1."""
    # With `one_way`, no unit may go to a device before that of the unit before it.
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


class MemoryParams(Params):
    """Which memory the placer counts."""

    #: What the referee counts, resident bytes for good; or besides these, as Baechi does, an op's
    #: outputs until all its consumers are committed, and its scratch memory when it is.
    memory: Literal["resident", "dynamic"] = "resident"


def why_not_dynamic(task: Task[Makespan], params: Params) -> str | None:
    """Why the sums would leave 64-bit integers, or None."""
    if not isinstance(params, MemoryParams) or params.memory == "resident":
        return None
    instance = task.instance
    total = sum(op.resident_bytes + op.workspace_bytes for op in instance.graph.ops)
    if total + sum(edge.bytes for edge in instance.graph.edges) > LARGEST_SUM:
        return "its sizes add up to more than 2**62 bytes, too many for memory=dynamic"
    return None


@method(
    "m-etf",
    objectives=("makespan",),
    cites="Jeon et al. 2020 (Baechi)",
    applies=why_not_dynamic,
    starts={"makespan": Cost(0.5, 20.0)},
)
def m_etf(task: Task[Makespan], params: MemoryParams | None = None) -> Outcome:
    """ETF with memory limits; transfers booked on the devices' channels.

    Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device placement of machine
    learning graphs", ACM SoCC 2020. A heuristic for the makespan. Its planning model is Baechi's:
    each device has one clock for sending and receiving, a tensor goes once to each device, and
    transfers are booked when their consumer is placed; the referee judges the plan by the task's
    own channels. Ties: topological position (first-in-first-out Kahn over the input order), then
    device index. O(V x ready ops x K) time, times the inputs of an op.

    Deviations: times differ between devices and links (Baechi: one time per op, one linear fit for
    links); memory is the resident bytes, unless `memory=dynamic`; a colocation group is admitted as
    a whole; ops are not grouped beforehand.
    """
    dynamic = params is not None and params.memory == "dynamic"
    return place_booked(task.instance, no_favourites(task.instance), dynamic=dynamic)


def place_booked(instance: Instance, favourite: Ints, *, dynamic: bool) -> Outcome:
    """The plan of m-SCT, or of m-ETF without favourites."""
    arrays = instance.arrays
    footprint = footprint_of(instance) if dynamic else no_footprint(instance)
    admission, order = admission_of(arrays), order_by(np.zeros_like(arrays.group), arrays)
    problem = problem_of(arrays)
    times = earliest_start_first(problem, admission, footprint, order, True, favourite)
    if times.stuck == NOWHERE:
        return outcome_of(instance, times, admission)
    op = int(times.stuck)
    group = admission.group[op]
    if (
        admission.home[group] == NOWHERE
        and not (
            admission.group_runs[group] & (admission.group_bytes[group] <= admission.free_bytes)
        ).any()
    ):
        return nowhere(instance, op, admission)  # its resident bytes alone are too many
    left = ", ".join(
        f"{device.name!r} {free}"
        for device, free in zip(
            instance.cluster.devices, admission.free_bytes.tolist(), strict=True
        )
    )
    beside = int(footprint.outputs[op] + footprint.scratch[op])
    return Outcome(
        message=f"memory: op {instance.graph.ops[op].name!r} needs {beside} bytes for its outputs"
        f" and scratch memory beside the resident ones, and fits nowhere then; bytes left: {left}"
    )


def footprint_of(instance: Instance) -> Footprint:
    """What each op occupies beside its resident bytes; a tensor counts once."""
    index, graph = instance.arrays.index, instance.graph
    sizes = [graph.edges[e].bytes for e in index.tensor_first_edge.tolist()]
    outputs = sum_by(index.tensor_producer, np.array(sizes, np.int64), instance.num_ops)
    return Footprint(outputs, np.array([op.workspace_bytes for op in graph.ops], np.int64))
