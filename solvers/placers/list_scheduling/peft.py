"""PEFT: predict earliest finish time."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.insertion import idle_devices, schedule_by_insertion
from placegap.solvers.placers.list_problem import (
    MeanCosts,
    Problem,
    admission_of,
    longest_path,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


def peft(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place the ready op of highest mean optimistic cost where finish + optimistic cost is least.

    Arabnejad, Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost
    table", IEEE TPDS 25(3), 2014, section 4. A heuristic for the makespan; it plans with free
    channels and inserts ops into idle gaps.
    Exact integers, means as in HEFT; an op's mean optimistic cost is over the devices that can run
    it. Ties: topological position, then device index. Added to the paper: an op goes only to
    devices that can run it, with room for it and its colocation group.
    O(V K log V + E K) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = peft(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (0,), (0,), (0,)), 43)
    """
    arrays = task.instance.arrays
    problem, admission = problem_of(arrays), admission_of(arrays)
    costs = mean_costs(arrays)
    table = optimistic_costs(problem, costs.tensor, costs.scale)
    times = schedule_by_insertion(
        problem,
        admission,
        order_by(_mean_over_devices(table, arrays, costs), arrays),
        idle_devices(task.instance.num_devices, task.instance.num_ops),
        table,
        costs.scale,
    )
    return outcome_of(task.instance, times, admission)


@kernel
def optimistic_costs(problem: Problem, tensor_cost: Ints, scale: int) -> Ints:
    """Optimistic cost table, (n, K), in 1 / scale ns; equation 5.

    oct(i, k) = max over successors j of min over the devices w that run j of
    oct(j, w) + time(j, w) + (0 if w == k else mean transfer(i, j)): what remains behind op i on
    device k if every later op had the device it likes best. O((V + E) K): the least over w != k
    and w == k are told apart by one minimum per op.
    """
    n, num_devices = problem.time_ns.shape
    table = np.zeros((n, num_devices), np.int64)
    least = np.zeros(n, np.int64)  # min over w of oct(j, w) + time(j, w)
    for op in problem.topological_order[::-1]:
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            succ = problem.succ_op[e]
            away = least[succ] + tensor_cost[problem.succ_tensor[e]]
            for k in range(num_devices):
                cost = away
                if problem.time_ns[succ, k] != UNSUPPORTED:
                    cost = min(cost, table[succ, k] + problem.time_ns[succ, k] * scale)
                table[op, k] = max(table[op, k], cost)
        least[op] = LARGEST_SUM
        for k in range(num_devices):
            if problem.time_ns[op, k] != UNSUPPORTED:
                least[op] = min(least[op], table[op, k] + problem.time_ns[op, k] * scale)
    return table


def _mean_over_devices(table: Ints, arrays: Arrays, costs: MeanCosts) -> Ints:
    """Mean optimistic cost of each op (equation 6), up to one common factor.

    Exact, or rounded down to 1 / scale ns where the exact one would overflow.
    """
    runs = arrays.time_ns != UNSUPPORTED
    total, count = np.where(runs, table, 0).sum(axis=1), runs.sum(axis=1)
    exact = longest_path(arrays) * costs.scale**2 <= LARGEST_SUM
    mean: Ints = total * (costs.scale // count) if exact else total // count
    return mean


register(
    Method(
        name="peft",
        claim="heuristic",
        objectives=("makespan",),
        paper="Arabnejad and Barbosa 2014",
        cites=("arabnejad2014, section 4",),
        summary="list scheduling by an optimistic cost table, idle gaps included",
        starts={"makespan": Cost(0.4, 3.2)},
        run=peft,
        params=Params,
    )
)
