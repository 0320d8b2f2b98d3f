"""Better chains by moves of one cut and of two neighbouring cuts, judged by the kernel's clock."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import copy_to, kernel
from placegap.solvers.pipeline.cuts import CutProblem
from placegap.solvers.pipeline.event_times import EventTable, iteration_kernel

REACH = 256
"""How far one cut moves at most; two neighbouring cuts move a sixteenth of that each."""


def improve(problem: CutProblem, table: EventTable, allowed: Ints, walk: Ints) -> tuple[int, Ints]:
    """The walk after moves that shorten the iteration, until there is none; and its time.

    Parameters
    ----------
    problem : CutProblem
    table : EventTable
    allowed : (S, N, N) int64 or (1, N, N) int64
        Pair of each tail and head that a layer may take, -1 where it may not.
    walk : (S,) int64
    """
    cuts = np.append(problem.tail[walk], problem.num_cuts - 1)
    value, cuts = _improve(
        problem.forward_ns,
        problem.backward_ns,
        problem.weight_ns,
        problem.forth_ns,
        problem.back_ns,
        problem.passes,
        allowed,
        cuts,
        *table,
        REACH * problem.stride,
    )
    pairs = [int(allowed[min(s, len(allowed) - 1), cuts[s], cuts[s + 1]]) for s in range(len(walk))]
    return int(value), np.array(pairs, np.int64)


@kernel(allocates=False)
def _set(
    times: Ints,
    s: int,
    at: int,
    cut: int,
    count: int,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
) -> None:
    """Write the times of stage s, and of the messages over the cut after it."""
    steps = passes * count
    times[s] = forward[at]
    if passes > 1:
        times[2 * count - 1 - s] = backward[at]
    if passes > 2:
        times[2 * count + s] = late[at]
    if s < count - 1:
        times[steps + s + 1] = forth[cut]
        if passes > 1:
            times[steps + 2 * count - 1 - s] = back[cut]


@kernel
def _improve(
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
    allowed: Ints,
    cuts: Ints,
    step: Ints,
    on_device: Ints,
    of_microbatch: Ints,
    on_link: Ints,
    num_steps: int,
    reach: int,
) -> tuple[int, Ints]:
    count, num_cuts, last = len(cuts) - 1, allowed.shape[1], len(allowed) - 1
    times = np.zeros(2 * num_steps, np.int64)
    for s in range(count):
        at = allowed[min(s, last), cuts[s], cuts[s + 1]]
        _set(times, s, at, cuts[s + 1], count, forward, backward, late, forth, back, passes)
    best = iteration_kernel(step, on_device, of_microbatch, on_link, times, num_steps)
    trial, moved = times.copy(), True
    while moved:
        moved = False
        for width in (1, 2):
            for s in range(1, count - width + 1):
                h, j = cuts[s - 1], cuts[s + width]
                found_a, found_b = -1, -1
                near = reach if width == 1 else reach // 16
                for a in range(max(0, cuts[s] - near), min(num_cuts, cuts[s] + near + 1)):
                    left = allowed[min(s - 1, last), h, a]
                    if left < 0:
                        continue
                    other = cuts[s + 1] if width == 2 else a
                    wide = near if width == 2 else 0
                    for b in range(max(0, other - wide), min(num_cuts, other + wide + 1)):
                        if width == 2 and allowed[min(s, last), a, b] < 0:
                            continue
                        right = allowed[min(s + width - 1, last), b, j]
                        if right < 0:
                            continue
                        copy_to(trial, times)
                        _set(
                            trial,
                            s - 1,
                            left,
                            a,
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                        if width == 2:
                            middle = allowed[min(s, last), a, b]
                            _set(
                                trial,
                                s,
                                middle,
                                b,
                                count,
                                forward,
                                backward,
                                late,
                                forth,
                                back,
                                passes,
                            )
                        _set(
                            trial,
                            s + width - 1,
                            right,
                            j,
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                        now = iteration_kernel(
                            step, on_device, of_microbatch, on_link, trial, num_steps
                        )
                        if now < best:
                            best, found_a, found_b = now, a, b
                if found_a >= 0:
                    cuts[s] = found_a
                    if width == 2:
                        cuts[s + 1] = found_b
                    for t in range(s - 1, s + width):
                        at = allowed[min(t, last), cuts[t], cuts[t + 1]]
                        _set(
                            times,
                            t,
                            at,
                            cuts[t + 1],
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                    moved = True
            if moved:
                break
    return best, cuts
