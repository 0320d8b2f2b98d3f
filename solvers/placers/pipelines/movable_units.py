"""What placers place for max_load: colocation groups, or the blocks of chain plans."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.blocks import Blocks, block_sums, contract, roomy_devices
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import has_two_levels, plan_class
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.result import Outcome


def free_units(instance: Instance) -> Blocks:
    """Colocation groups as blocks without arcs: what plans of any kind may move by itself.

    The numbers are those of `Arrays.group`, and no order is meant by them. O(n K).

    Examples
    --------
    >>> from placegap.instances import example
    >>> free_units(example()).time_ns.tolist()
    [[5, 5], [20, 20], [10, 10], [8, 8]]
    """
    group, none = instance.arrays.group, np.zeros(0, np.int64)
    every = np.ones(instance.num_ops, np.bool_)
    time_ns, resident_bytes = block_sums(instance, group, every)
    roomy = roomy_devices(instance, time_ns, resident_bytes)
    units = Blocks(group, time_ns, resident_bytes, none, none.copy(), every, roomy, exact=True)
    freeze(units)
    return units


def units_of(task: Task) -> Blocks:
    """Groups where plans of any kind compete, else all blocks of chain plans."""
    if plan_class(task.semantics) == "any":
        return free_units(task.instance)
    return contract(task.instance, merge_idle=False)


def why_not_one_level(task: Task, params: Params) -> str | None:
    """Why a method that knows no servers does not apply, or None."""
    if has_two_levels(task.semantics):
        return "knows one level of communication, no servers"
    return None


def fits_nowhere(instance: Instance, units: Blocks, unit: int, why: str) -> Outcome:
    """The end of a placer that found no device for a unit: the reason, in words."""
    ops = np.flatnonzero(units.block == unit)
    name = instance.graph.ops[int(ops[0])].name
    others = " with all that must share its device" if len(ops) > 1 else ""
    size = int(units.resident_bytes[unit])
    runs = units.time_ns[unit] != UNSUPPORTED
    if not runs.any():
        return Outcome(message=f"no device can run op {name!r}{others}")
    limits = ", ".join(
        f"{spec.name!r} {'any' if spec.memory_bytes is None else spec.memory_bytes}"
        for spec, able in zip(instance.cluster.devices, runs.tolist(), strict=True)
        if able
    )
    return Outcome(
        message=f"memory: op {name!r}{others} ({size} bytes) {why}; bytes of the devices that can"
        f" run it: {limits}"
    )
