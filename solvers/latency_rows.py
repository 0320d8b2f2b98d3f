"""Plans for latency_subgraphs from the best row of calls along a spine."""

from __future__ import annotations

import numpy as np

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.index import Ints
from placegap.solvers.latency_calls import NEVER, CallProblem
from placegap.solvers.latency_section_chain import Row
from placegap.solvers.latency_spine import Spine


def row_places(problem: CallProblem, spine: Spine, row: Row) -> Ints | None:
    """Place of each op, (n,), or None where the row makes no plan.

    What is outside of all calls runs on hosts; what the spine leaves out goes with its first
    consumer. Calls are packed into accelerators, the largest first, each where least is left.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.latency_calls import build_call_problem
    >>> from placegap.solvers.latency_section_chain import best_row
    >>> from placegap.solvers.latency_spine import build_nodes, build_spine
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
    size = [int(data.size_bytes[call == c].sum()) for c in range(int(call.max(initial=-1)) + 1)]
    devices = [-1] * len(size)
    for c in sorted(range(len(size)), key=lambda c: -size[c]):
        members = np.flatnonzero(call == c)
        able = [
            k for k in accelerators
            if free[k] and size[c] <= left[k] and (data.time_ns[members, k] != UNSUPPORTED).all()
        ]  # fmt: skip
        if not able:
            return None
        devices[c] = min(able, key=lambda k: (left[k], k))
        left[devices[c]] -= size[c]
        free[devices[c]] -= 1
    return devices
