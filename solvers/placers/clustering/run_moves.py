"""run-moves: whole runs of neighbouring groups go to other devices, as long as there is time."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.plan import Plan
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start

NAME = "run-moves"

STARTS = ("single-device", "m-topo", "memory-cuts", "interleaved-cuts")
"""Where a search begins without a plan to start from, besides such a plan."""

USUAL_STEPS, FRUITLESS = 2_000, 500
"""Moves where there is neither a time limit nor a number; and in a row without a better plan."""

HOT, COLD = 2e-3, 4e-5
"""Temperatures at the beginning and at the end, in makespans of the start."""

LONGEST_RUN, MEAN_SHIFT = 0.25, 4.0
"""Of all groups, for the longest run that moves; and how far a border between devices goes."""


class RunMovesParams(Params):
    """Parameters of ``run-moves``.

    Attributes
    ----------
    steps : int or None
        Moves at most. By default they go on for the whole time limit; without one there are 2,000.
    """

    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)


def run_moves(task: Task[Makespan], params: RunMovesParams) -> Outcome:
    """Move runs of the order between devices by simulated annealing, from the best plan known.

    Colocation groups are ordered by the first of their ops in topological order, as in
    `interleaved_cuts`. A move shifts a border between two devices, sends a run of groups to one
    device, shifts what a run holds along it, exchanges two devices in a run, or exchanges two runs
    of equal length: where memory is full, nothing can move alone. The referee judges every plan,
    under the task's own rule of memory, so that a plan that does not fit at its peak is no step.
    A heuristic, which ends when 500 moves in a row have found nothing. Without a time limit it is
    deterministic for a seed. A move costs a simulation, O((n + m) log m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> run_moves(Task(example(), Makespan()), RunMovesParams()).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    clock, instance, semantics = task.limits.clock(), task.instance, task.semantics
    start = best_start(task, () if task.incumbent is not None else STARTS)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    best, least = start
    at, able = _line(instance)
    device = np.empty(len(able), np.int64)
    device[at] = best.devices
    verdict = evaluate(instance, Plan.on(device[at].tolist()), semantics)
    now_ns = verdict.value_ns if verdict.feasible else None
    if now_ns is None or instance.num_devices == 1:
        return Outcome(best)
    rng = np.random.default_rng(task.limits.seed)
    steps = params.steps or (USUAL_STEPS if clock.limit_s is None else None)
    hot_ns, tried, last = HOT * now_ns, 0, 0
    try:
        while clock.left_s != 0.0 and tried != steps and tried - last < FRUITLESS:
            tried += 1
            trial = _moved(device, able, rng)
            if (trial == device).all():
                continue
            plan = Plan.on(trial[at].tolist())
            verdict = evaluate(instance, plan, semantics)
            if not verdict.feasible or verdict.value_ns is None:
                continue
            done = tried / steps if steps else 0.0
            if clock.limit_s:
                done = max(done, clock.spent_s / clock.limit_s)
            heat_ns = hot_ns * (COLD / HOT) ** min(1.0, done)
            if verdict.value_ns <= now_ns - heat_ns * np.log(1.0 - rng.random()):
                device, now_ns = trial, verdict.value_ns
            if verdict.value_ns < least:
                best, least, last = plan, verdict.value_ns, tried
                tell(instance, semantics, NAME, value_ns=least, plan=best)
    except KeyboardInterrupt:
        return Outcome(best, message="interrupted", details={"moves": tried})
    return Outcome(best, details={"moves": tried})


def _line(instance: Instance) -> tuple[Ints, np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    """Place of each op's group in the order, (n,), and where each place can be, (groups, K)."""
    arrays = instance.arrays
    first = np.full(arrays.num_groups, instance.num_ops)
    np.minimum.at(first, arrays.group, arrays.index.topological_position)
    place = np.empty(arrays.num_groups, np.int64)
    place[np.argsort(first, kind="stable")] = np.arange(arrays.num_groups)
    at = place[arrays.group]
    able = np.ones((arrays.num_groups, instance.num_devices), np.bool_)
    np.logical_and.at(able, at, arrays.time_ns != UNSUPPORTED)
    return at, able


def _moved(
    device: Ints, able: np.ndarray[tuple[int, int], np.dtype[np.bool_]], rng: np.random.Generator
) -> Ints:
    """The devices after one move; places that cannot follow stay where they are."""
    num, k = able.shape
    trial, kind = device.copy(), rng.random()
    length = 1 + int(LONGEST_RUN * (num - 1) * rng.random() ** 4)
    i = int(rng.integers(0, num - length + 1))
    run, there = slice(i, i + length), device[i : i + length]
    borders = np.flatnonzero(np.diff(device))
    if kind < 0.4 and len(borders):
        border = int(borders[rng.integers(0, len(borders))])
        far = 1 + int(rng.exponential(MEAN_SHIFT))
        if rng.random() < 0.5:
            trial[border + 1 : border + 1 + far] = device[border]
        else:
            trial[max(0, border + 1 - far) : border + 1] = device[border + 1]
    elif kind < 0.65:
        trial[run] = rng.integers(0, k)
    elif kind < 0.75:
        trial[run] = np.roll(there, int(rng.integers(0, length + 1)))
    elif kind < 0.9:
        a, b = rng.integers(0, k, 2).tolist()
        trial[run] = np.where(there == a, b, np.where(there == b, a, there))
    else:
        j = int(rng.integers(0, num - length + 1))
        trial[run], trial[j : j + length] = device[j : j + length], there
    stays = ~able[np.arange(num), trial]
    trial[stays] = device[stays]
    return trial


register(
    Method(
        name=NAME,
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="simulated annealing that moves runs of the order between devices",
        run=run_moves,
        params=RunMovesParams,
        memory_rules=("sum", "peak"),
    )
)
