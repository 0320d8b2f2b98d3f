"""layer-paths: plans of a training step by the labels of its nested layers."""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.devices import possible_placements
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.bounds.nested_layers.bound import search_layers
from placegap.solvers.bounds.work_windows import window_bound, work_windows
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.decomposition.layer_paths.plans import devices_of
from placegap.solvers.local_search.annealing.insertion import insert_all, nothing_booked
from placegap.solvers.local_search.annealing.schedule import (
    bottom_levels,
    kernel_data,
    new_work,
    plan_of,
    schedule,
)

MOST_PATHS = 24
"""Paths of labels that are made plans."""


def run(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place the layers of a training step as the labels with the least bounds have them.

    The labels (`bounds.nested_layers`) know how long the chain takes forward and back, and what
    work each device has left when the chain leaves it: where to change devices, and how often, is
    what they weigh. They know the bytes of groups, but neither what is held at the peak, nor in
    which order transfers follow each other: the longest ways to the end go first, and the plan of
    the shortest schedule that fits counts. A heuristic, for at most 20,000 ops.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run(Task(example(), Makespan())).message
    'there are no layers that come back'
    """
    instance, semantics, clock = task.instance, task.semantics, task.limits.clock()

    def is_over() -> bool:
        return stop_asked() or clock.left_s == 0.0

    relaxed, _ = relax_memory(instance, semantics)
    able = possible_placements(relaxed).any(axis=1).all()
    windows = work_windows(relaxed) if able else None
    if windows is None:
        return Outcome(message="some op fits on no device, or times are too large")
    known_ns = window_bound(windows)
    found = search_layers(relaxed, semantics, windows, known_ns, is_over, MOST_PATHS)
    if found is None:
        return Outcome(message="there are no layers that come back")
    if not found.paths:
        return Outcome(message="too many labels")
    data, level = kernel_data(instance, semantics), np.zeros(instance.num_ops, np.int64)
    work, booked = new_work(data), nothing_booked(data)

    def time_of(device: Ints, *, inserts: bool) -> int:
        bottom_levels(data, device, level)
        if inserts:
            return int(insert_all(data, device, level, work, booked))
        return int(schedule(data, device, level, work))

    ways = (True, False) if len(booked.stretches) else (False,)
    tried = list[tuple[int, int, bool, Ints]]()
    for number, path in enumerate(found.paths):
        device = devices_of(instance, found.nested, found.table, path)
        for inserts in ways:
            tried.append((time_of(device, inserts=inserts), number, inserts, device))
        if is_over():
            break
    for _, _, inserts, device in sorted(tried, key=lambda trial: trial[:2]):
        time_of(device, inserts=inserts)
        plan = plan_of(instance, semantics, data, device, work)
        if evaluate(instance, plan, semantics).feasible:
            return Outcome(plan)
    return Outcome(message="memory: no plan of the labels fits")


register(
    Method(
        name="layer-paths",
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="a training step's layers where the chain, and the work beside it, take least",
        run=run,
        params=Params,
        packages=("numba",),
        memory_rules=("sum", "peak"),
    )
)
