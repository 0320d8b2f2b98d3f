"""What the list schedulers share: admission to devices, ranks, and the way back to a plan.

Planning follows the papers: transfers start when their producer ends and occupy nothing (unless a
method says otherwise). The referee judges the plan under the task's own rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.weighted_dag import longest_ways
from placegap.solvers.core.result import Outcome

NOWHERE = -1


class Inputs(NamedTuple):
    """What feeds each op: ops ``op[ptr[i]:ptr[i + 1]]``, tensors likewise, in input order."""

    # Tensor u takes ``transfer_ns[u, link_class[a, b]]`` from device a to b.
    ptr: Ints
    op: Ints
    tensor: Ints
    transfer_ns: Ints
    link_class: Ints


class Problem(NamedTuple):
    """The arrays of an instance that the kernels read, ends of edges instead of their numbers."""

    time_ns: Ints
    inputs: Inputs
    succ_ptr: Ints
    succ_op: Ints
    succ_tensor: Ints
    topological_order: Ints


class Admission(NamedTuple):
    """Who may still go where: kept up to date by `settle`, read by `admits`."""

    # `group` (n,) is the colocation group of each op; of each group, `group_bytes` (g,) are the
    # resident bytes, `group_runs` (g, K) the devices that can run all of its ops, `home` (g,) is
    # its device or -1; `free_bytes` (K,) are left on each device.
    group: Ints
    group_bytes: Ints
    group_runs: Flags
    home: Ints
    free_bytes: Ints


class KernelTimes(NamedTuple):
    """What a kernel found: device, start and end of each op, and the op that fits nowhere or -1."""

    device: Ints
    start_ns: Ints
    end_ns: Ints
    stuck: int


def problem_of(arrays: Arrays) -> Problem:
    """The kernels' view of an instance; O(m) memory."""
    index = arrays.index
    inputs = Inputs(
        index.pred_ptr,
        index.producer[index.pred_edge],
        index.tensor[index.pred_edge],
        arrays.transfer_ns,
        arrays.link_class,
    )
    return Problem(
        arrays.time_ns,
        inputs,
        index.succ_ptr,
        index.consumer[index.succ_edge],
        index.tensor[index.succ_edge],
        index.topological_order,
    )


def admission_of(arrays: Arrays) -> Admission:
    """Admission to devices that are still empty."""
    home, free_bytes = np.full(arrays.num_groups, NOWHERE), arrays.memory_bytes.copy()
    return Admission(arrays.group, arrays.group_bytes, arrays.group_runs, home, free_bytes)


@kernel(allocates=False)
def admits(admission: Admission, op: int, device: int) -> bool:
    """Whether the op may go to the device."""
    # The first op of a colocation group fixes the group's device, so that device must run all ops
    # of the group and have room for all their resident bytes.
    group = admission.group[op]
    if admission.home[group] != NOWHERE:
        return bool(admission.home[group] == device)
    return bool(
        admission.group_runs[group, device]
        and admission.group_bytes[group] <= admission.free_bytes[device]
    )


@kernel(bounded=True, allocates=False)
def settle(admission: Admission, op: int, device: int) -> None:
    """Make the device the home of the op's group and take the group's memory, once."""
    group = admission.group[op]
    if admission.home[group] == NOWHERE:
        admission.home[group] = device
        admission.free_bytes[device] -= admission.group_bytes[group]


def levels(problem: Problem, op_cost: Ints, tensor_cost: Ints) -> Ints:
    """Longest path from each op to the end, costs of ops and of tensors on the way included."""
    # With mean costs this is HEFT's upward rank, with free tensors ETF's static level. O(V + E).
    edge_cost = tensor_cost[problem.succ_tensor]
    order = problem.topological_order[::-1]
    return longest_ways(order, problem.succ_ptr, problem.succ_op, edge_cost, op_cost)


def order_by(priority: Ints, arrays: Arrays) -> Ints:
    """Ops by decreasing priority; ties by topological position."""
    return np.lexsort((arrays.index.topological_position, -priority))


def outcome_of(instance: Instance, times: KernelTimes, admission: Admission) -> Outcome:
    """The plan that runs the ops as scheduled: their devices, and their order on each device."""
    if times.stuck != NOWHERE:
        return nowhere(instance, times.stuck, admission)
    order = np.lexsort(
        (instance.arrays.index.topological_position, times.end_ns, times.start_ns, times.device)
    )
    counts = np.bincount(times.device, minlength=instance.num_devices)
    on_device = np.split(order, np.cumsum(counts)[:-1])
    return Outcome(Plan(placement(times.device), tuple(tuple(ops.tolist()) for ops in on_device)))


def placement(device: Ints) -> tuple[tuple[int, ...], ...]:
    """Placement of a plan with one device per op."""
    return tuple((k,) for k in device.tolist())


def nowhere(instance: Instance, op: int, admission: Admission) -> Outcome:
    """No plan: the op, or its colocation group, fits on no device any more."""
    spec, group = instance.graph.ops[op], admission.group[op]
    left = ", ".join(
        f"{device.name!r} {free}"
        for device, free, runs in zip(
            instance.cluster.devices,
            admission.free_bytes.tolist(),
            admission.group_runs[group].tolist(),
            strict=True,
        )
        if runs
    )
    of_group = "" if spec.colocation is None else f" with its group {spec.colocation!r}"
    return Outcome(
        message=f"memory: op {spec.name!r}{of_group} ({admission.group_bytes[group]} bytes) fits on"
        f" none of the devices now; bytes left where it can run: {left}"
    )
