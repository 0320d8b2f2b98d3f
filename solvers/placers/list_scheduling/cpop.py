"""CPOP: critical path on a processor."""

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
    levels,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


def cpop(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place the ops of the critical path on one device, the others where they finish first.

    Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.2. A heuristic for the makespan; it
    plans with free channels and inserts ops into idle gaps.
    The ready op of highest priority (upward + downward rank) comes next. Ranks are exact integers,
    means as in HEFT. Ties: topological position, then device index.
    Added to the paper: the critical path's device is, of those that run most ops of the path, the
    one that runs them in the least time; an op of the path that this device cannot take goes where
    it finishes first; an op goes only to devices that can run it, with room for it and its
    colocation group.
    O(V K log V + E K) time.

    Examples
    --------
    The diamond's critical path is op1, op3, op4:

    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = cpop(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (1,), (0,), (0,)), 35)
    """
    instance, arrays = task.instance, task.instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    upward = levels(problem, costs.op, costs.tensor)
    priority = upward + downward_ranks(problem, costs)
    path = critical_path(problem, costs, upward)
    # no plan ends at or after 2**62, so that no other device is as good as the path's
    penalty = np.zeros((instance.num_ops, instance.num_devices), np.int64)
    penalty[path] = LARGEST_SUM
    penalty[path, path_device(arrays, path)] = 0
    idle = idle_devices(instance.num_devices, instance.num_ops)
    order = order_by(priority, arrays)
    times = schedule_by_insertion(problem, admission, order, idle, penalty, 1)
    return outcome_of(instance, times, admission)


def downward_ranks(problem: Problem, costs: MeanCosts) -> Ints:
    """Downward rank of each op (equation 9), in 1 / scale ns.

    rank(i) = max over predecessors j of (rank(j) + mean time(j) + mean transfer(j, i)).

    Examples
    --------
    >>> from placegap.instances import example
    >>> costs = mean_costs(example().arrays)
    >>> (downward_ranks(problem_of(example().arrays), costs) / costs.scale).tolist()
    [0.0, 6.0, 25.0, 45.0]
    """
    return _downward_ranks(problem, costs.op, costs.tensor)


@kernel
def _downward_ranks(problem: Problem, op_cost: Ints, tensor_cost: Ints) -> Ints:
    rank = np.zeros(len(op_cost), np.int64)
    inputs = problem.inputs
    for op in problem.topological_order:
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            before = rank[inputs.op[e]] + op_cost[inputs.op[e]]
            rank[op] = max(rank[op], before + tensor_cost[inputs.tensor[e]])
    return rank


def critical_path(problem: Problem, costs: MeanCosts, upward: Ints) -> list[int]:
    """The longest path of ops by upward rank, from a source to a sink.

    The edges must be on it as well: from an op of the path an edge may lead past the next one.

    Examples
    --------
    >>> import numpy as np
    >>> from placegap.instances import example
    >>> arrays = example().arrays
    >>> critical_path(problem_of(arrays), mean_costs(arrays), 2 * np.array([53, 29, 28, 8]))
    [0, 2, 3]
    """
    sources = [op for op in problem.topological_order.tolist() if _num_inputs(problem, op) == 0]
    path = [max(sources, key=lambda op: upward[op])]  # the first of equals
    while True:
        op = path[-1]
        behind = upward[op] - costs.op[op]
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            after = problem.succ_op[e]
            if costs.tensor[problem.succ_tensor[e]] + upward[after] == behind:
                path.append(int(after))
                break
        else:
            return path


def _num_inputs(problem: Problem, op: int) -> int:
    return int(problem.inputs.ptr[op + 1] - problem.inputs.ptr[op])


def path_device(arrays: Arrays, path: list[int]) -> int:
    """Of the devices that run most ops of the path, the one that runs them in the least time.

    Examples
    --------
    >>> from placegap.instances import example
    >>> path_device(example().arrays, [0, 2, 3])
    0
    """
    time_ns = arrays.time_ns[path]
    runs = time_ns != UNSUPPORTED
    missed, total = (~runs).sum(axis=0), np.where(runs, time_ns, 0).sum(axis=0)
    return int(np.lexsort((total, missed))[0])


register(
    Method(
        name="cpop",
        claim="heuristic",
        objectives=("makespan",),
        paper="Topcuoglu et al. 2002",
        cites=("topcuoglu2002, section 4.2",),
        summary="the critical path on one device, the rest where it finishes first",
        starts={"makespan": Cost(0.4, 2.6)},
        run=cpop,
        params=Params,
    )
)
