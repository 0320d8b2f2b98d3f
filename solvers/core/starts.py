"""What an exact method starts from: the best of an incumbent and of all placers that are fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import (
    PLAN_CLASSES,
    LoadSemantics,
    MaxLoad,
    Objective,
    with_plans,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.method import Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import find_method, why_not
from placegap.solvers.core.result import fault_of

LONGEST_S, SHARE = 10.0, 0.2
"""A method that looks for a start gets a share of the time, and no more than so many seconds."""

SECOND_S = 1.0
"""Placers are chosen by what they are likely to cost; only after so long the clock decides, too."""

AT_LEAST_MS, MS_PER_PART = 3.0, 0.2
"""Small instances are soon solved: their placers get so much, and so much for each op and edge."""


LARGE_PARTS, LARGE_FACTOR = 1_500_000, 2.0
"""Larger graphs (ops + edges) are beyond the caches: `heft` takes 2.5 times as long for each."""


class Placer(NamedTuple):
    """A method of the registry, and about what it costs with the referee's verdict on its plan.

    Measured on one core of a 2.5 GHz server; only the order and the size matter. Where `most_parts`
    is given, larger graphs (ops + edges) are not tried first, and the time mostly `grows` faster
    than linearly.
    """

    name: str
    ms: float
    us_per_part: float
    most_parts: int = 10**9
    grows: bool = True

    def cost_ms(self, parts: int) -> float:
        """Milliseconds that a graph of so many ops and edges is likely to cost."""
        growth = max(1.0, parts / self.most_parts) if self.grows else 1.0
        if parts > LARGE_PARTS:
            growth *= LARGE_FACTOR
        return self.ms + 1e-3 * self.us_per_part * parts * growth


ALWAYS = ("single-device", "m-topo", "heft")
"""Asked however little time there is, those that do the objective."""

MAKESPAN = (
    Placer("single-device", 0.3, 1.0),
    Placer("m-topo", 0.4, 1.4),
    Placer("heft", 0.4, 4.3),
    Placer("memory-cuts", 0.6, 4.0),
    Placer("interleaved-cuts", 5.0, 10.0),
    Placer("dsc-glb", 0.3, 2.0),
    Placer("celeritas", 0.6, 3.3),
    Placer("etf", 0.4, 4.0),
    Placer("peft", 0.4, 3.2),
    Placer("round-robin", 0.3, 5.3),
    Placer("m-etf", 0.4, 4.1),
    Placer("lc-glb", 0.3, 2.4),
    Placer("d-dps", 0.6, 3.0),
    Placer("cpop", 0.4, 2.6),
    Placer("order-place", 0.6, 3.2),
    Placer("greedy", 0.5, 3.6),
    Placer("random", 0.5, 2.8),
    Placer("getf", 2.0, 60.0, 1_000),
    Placer("metis", 1.7, 3.0),
    Placer("scotch", 20.0, 10.0),
    Placer("mp-dps", 2.5, 40.0),
    Placer("frontier-paths", 10.0, 400.0, 5_000),
    Placer("layer-paths", 20.0, 800.0, 8_000),
    Placer("m-sct", 6.0, 90.0, 600, grows=False),
    Placer("mt-kahypar", 7.0, 35.0, 100_000),
)
LOAD = (
    Placer("single-device", 0.3, 0.5),
    Placer("m-topo", 0.3, 0.5),
    Placer("greedy", 0.4, 0.7),
    Placer("round-robin", 0.4, 0.7),
    Placer("random", 0.4, 0.7),
    Placer("data-parallel", 0.3, 0.5),
    Placer("local-search", 1.5, 10.0),
    Placer("slicing", 1.5, 14.0, 100_000),
    Placer("pipedream", 2.0, 3.0),
    Placer("metis", 1.7, 3.0),
    Placer("scotch", 20.0, 10.0),
    Placer("mt-kahypar", 7.0, 35.0, 100_000),
    Placer("slicegraph", 15.0, 150.0, 8_000),
)
PIPELINE = (
    Placer("single-device", 0.3, 0.5),
    Placer("m-topo", 0.3, 0.5),
    Placer("even-split", 5.0, 5.0),
    Placer("greedy", 0.4, 2.0),
    Placer("round-robin", 0.4, 2.0),
    Placer("random", 0.4, 2.0),
    Placer("simulated-moves", 20.0, 80.0, 4_000),
    Placer("heaviest-stage", 1_000.0, 100.0),
)
PLACERS: dict[Objective, tuple[Placer, ...]] = {
    "makespan": MAKESPAN,
    "max_load": LOAD,
    "max_load_fwd_bwd": LOAD,
    "latency_subgraphs": LOAD,
    "pipeline_iteration": PIPELINE,
}
"""By objective: all placers of the registry that are fast at some size, the usual ones first.

Left out is what splits ops (its plans are of another instance), what needs a file or a MIP, and
annealing, which takes whatever time it is given.
"""


def placers(task: Task) -> tuple[str, ...]:
    """The placers that are fast on a task: by its size, not by the clock, so that they are the
    same every time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> "heft" in placers(Task(example(), Makespan()))
    True
    """
    parts = task.instance.num_ops + len(task.instance.graph.edges)
    left_ms = AT_LEAST_MS + MS_PER_PART * parts
    if task.limits.time_limit_s is not None:
        left_ms = min(left_ms, 1e3 * SHARE * task.limits.time_limit_s)
    left_ms = min(left_ms, 1e3 * LONGEST_S)
    chosen = []
    for placer in PLACERS[task.semantics.objective]:
        cost_ms = placer.cost_ms(parts)
        fits = cost_ms <= left_ms and parts <= placer.most_parts
        if fits or placer.name in ALWAYS:
            chosen.append(placer.name)
            left_ms -= cost_ms
    return tuple(chosen)


def cheapest_first(task: Task) -> tuple[tuple[str, float], ...]:
    """All placers of the task's objective, with the seconds that each is likely to take.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> order = [name for name, _ in cheapest_first(Task(example(), Makespan()))]
    >>> order.index("heft") < order.index("metis") < order.index("mt-kahypar")
    True
    """
    parts = task.instance.num_ops + len(task.instance.graph.edges)
    all_of_them = PLACERS[task.semantics.objective]
    costs = [(placer.name, 1e-3 * placer.cost_ms(parts)) for placer in all_of_them]
    return tuple(sorted(costs, key=lambda cost: cost[1]))


def starts(task: Task, methods: Iterable[str], faults: list[str] | None = None) -> Iterator[Start]:
    """The feasible plans of the task's incumbent and of the named methods, each as it is found.

    A method that does not do the task's class of plans is asked for a narrower class: a chain is
    convex, and is a plan of any kind; a plan without replicas is one of those with them. Methods
    that do not apply at all are passed over. No method is asked when the share of the task's time
    is over. One that fails costs its plan: a warning, and a sentence among the `faults`.

    Examples
    --------
    >>> from placegap.instances import Makespan, Plan, example
    >>> task = Task(example(), Makespan())
    >>> [start.value_ns for start in starts(task, ["single-device", "round-robin", "etf"])]
    [43, 34, 43]
    """
    limit_s = task.limits.time_limit_s
    share_s = LONGEST_S if limit_s is None else min(LONGEST_S, limit_s * SHARE)
    clock = Clock(None if limit_s is None else max(share_s, SECOND_S))
    yield from task.starts
    if not any(start.plan is task.incumbent for start in task.starts):
        yield from _judged(task, task.incumbent, "the start")
    for name in methods:
        if clock.left_s == 0.0 and name not in ALWAYS:
            break
        limits = replace(task.limits, time_limit_s=share_s)
        narrower = task_for(replace(task, limits=limits), name)
        if narrower is not None:
            yield from _judged(task, _plan_by(name, narrower, faults), name)


def best_start(
    task: Task, methods: Iterable[str] = (), faults: list[str] | None = None
) -> Start | None:
    """The best of `starts`, of equal ones the first, or None.

    Examples
    --------
    >>> from placegap.instances import Makespan, Plan, example
    >>> incumbent = Plan.on([0, 1, 0, 0])
    >>> task = Task(example(), Makespan(), incumbent=incumbent)
    >>> best_start(task).value_ns
    35
    """
    return min(starts(task, methods, faults), key=lambda start: start.value_ns, default=None)


def _plan_by(name: str, task: Task, faults: list[str] | None) -> Plan | None:
    """The plan of a method, if it has one and does not fail."""
    method = find_method(name)
    try:
        return method.run(task, method.params()).plan
    except InputError:
        raise
    except MemoryError:
        return None
    except Exception as error:
        if stop_asked():  # a compiler that is interrupted fails with an error of its own
            raise KeyboardInterrupt from error
        fault = fault_of(name, task.instance, error)
        if faults is not None:
            faults.append(fault)
        return None


def _judged(task: Task, plan: Plan | None, by: str) -> Iterator[Start]:
    """The plan with its value, if there is one and it is feasible."""
    if plan is None:
        return
    verdict = evaluate(task.instance, plan, task.semantics)
    if verdict.feasible and verdict.value_ns is not None:
        yield Start(plan, verdict.value_ns)
        tell(task.instance, task.semantics, by, value_ns=verdict.value_ns, plan=plan)


def task_for(task: Task, name: str) -> Task | None:
    """What a method can do of a task: itself, a narrower class of plans, plainer rules, or nothing.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> task_for(Task(example(), MaxLoad(plans="any")), "ideal-dp").semantics.plans
    'chain'
    """
    asked, method = task.semantics, find_method(name)
    narrower = [asked]
    if isinstance(asked, LoadSemantics):
        nested = PLAN_CLASSES[PLAN_CLASSES.index(asked.plans) :: -1]
        narrower = [with_plans(asked, plans) for plans in nested]
        narrower += [MaxLoad(plans=plans, load=asked.load, memory=asked.memory) for plans in nested]
    for semantics in narrower:
        other = replace(task, semantics=semantics, incumbent=None, starts=())
        if why_not(method, other, method.params()) is None:
            return other
    return None
