"""Plans for latency_subgraphs from the best row of calls along a spine."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.latency.call_rows import Row
from placegap.solvers.latency.calls import CallProblem
from placegap.solvers.latency.spine import Spine


def row_places(problem: CallProblem, spine: Spine, row: Row) -> Ints | None:
    """Place of each op, (n,), or None where the row makes no plan.

    What is outside of all calls runs on hosts; what the spine leaves out goes with its first
    consumer, and with the first call of its colocation group where there is one. Calls that share
    a group are packed into accelerators together, the largest first, each where least is left.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.latency.calls import build_call_problem
    >>> from placegap.solvers.latency.call_rows import best_row
    >>> from placegap.solvers.latency.spine import build_nodes, build_spine
    >>> spine = build_spine(build_nodes(example(), 1))
    >>> row_places(build_call_problem(example(), 1), spine, best_row(spine, 0, 2)).tolist()
    [0, 0, 0, 0]
    """
    data = problem.data
    call = row.call[spine.nodes.node].copy()
    for v in reversed(spine.left_out):
        for i in np.flatnonzero(spine.nodes.node == v).tolist():
            consumers = data.succ[data.succ_ptr[i] : data.succ_ptr[i + 1]]
            found = call[consumers][call[consumers] >= 0]
            call[i] = found.min(initial=NEVER) if len(found) else -1
    for ops in np.split(problem.member, problem.group_ptr[1:-1]):
        inside = call[ops]
        if (inside < 0).any() and (inside >= 0).any():
            call[ops[inside < 0]] = inside[inside >= 0].min()
    devices = _pack(problem, call)
    if devices is None:
        return None
    place = np.zeros(len(call), np.int64)
    made: dict[int, int] = {}
    for c, k in enumerate(devices):  # calls of one device are numbered as they follow each other
        first = int(np.argmax(data.device == k))
        place[call == c] = first + made.get(k, 0)
        made[k] = made.get(k, 0) + 1
    hosts = data.device[data.num_calls :]
    for i in np.flatnonzero(call < 0).tolist():
        times = data.time_ns[i, hosts]
        able = np.flatnonzero(times != UNSUPPORTED)
        if not len(able):
            return None
        place[i] = data.num_calls + able[np.argmin(times[able])]
    return place if problem.fits(place) and problem.latency_ns(place) < NEVER else None


def _pack(problem: CallProblem, call: Ints) -> list[int] | None:
    """The accelerator of each call, or None if they were not packed."""
    data = problem.data
    accelerators = data.device[: data.num_calls : data.subgraphs].tolist()
    left = {k: int(data.memory_bytes[k]) for k in accelerators}
    free = dict.fromkeys(accelerators, data.subgraphs)
    count = int(call.max(initial=-1)) + 1
    devices, bunch = [-1] * count, np.arange(count)
    for ops in np.split(problem.member, problem.group_ptr[1:-1]):
        shared = np.unique(bunch[call[ops[call[ops] >= 0]]])
        bunch[np.isin(bunch, shared)] = shared.min(initial=count)
    of_op = np.where(call >= 0, bunch[call] if count else -1, -1)
    bunches = np.unique(bunch).tolist()
    size = {b: int(data.size_bytes[of_op == b].sum()) for b in bunches}
    for b in sorted(bunches, key=lambda b: -size[b]):
        ops, calls = np.flatnonzero(of_op == b), np.flatnonzero(bunch == b).tolist()
        able = [
            k
            for k in accelerators
            if free[k] >= len(calls)
            and size[b] <= left[k]
            and (data.time_ns[ops, k] != UNSUPPORTED).all()
        ]
        if not able:
            return None
        k = min(able, key=lambda k: (left[k], k))
        for c in calls:
            devices[c] = k
        left[k] -= size[b]
        free[k] -= len(calls)
    return devices
