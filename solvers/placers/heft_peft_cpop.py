"""Placers that insert ops into idle gaps by ranks: HEFT, PEFT and CPOP."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.integers import LARGEST_SUM, UNSUPPORTED
from placegap.instances.problem.mean_costs import MeanCosts, longest_path, mean_costs
from placegap.instances.problem.weighted_dag import longest_ways
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.insertion import insert_by
from placegap.solvers.placers.list_problem import Problem, levels, problem_of


@method(
    "heft",
    objectives=("makespan",),
    cites="Topcuoglu et al. 2002, section 4.1",
    starts={"makespan": Cost(0.4, 4.3, always=True)},
)
def heft(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Longest path to the end first, on the device of earliest finish, idle gaps included.

    Ops go by decreasing upward rank. Topcuoglu, Hariri, Wu, "Performance-effective and
    low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.1.
    A heuristic for the makespan; it plans with free channels.
    Ranks are exact integers: mean times over the devices that can run an op, mean transfers over
    all ordered device pairs (the paper: mean bandwidth and latency; the same if links are equal).
    Ties: topological position, then device index. Added to the paper: an op goes only to devices
    that can run it, with room for it and its colocation group.
    O(V K log V + E K) time (the paper: O(E K) searches of a device's whole schedule).
    """
    problem = problem_of(task.instance.arrays)
    return insert_by(task.instance, problem, upward_ranks(task.instance)[0])


def upward_ranks(instance: Instance) -> tuple[Ints, int]:
    """Upward rank of each op (equation 8), and the unit: rank / unit is in ns."""
    # rank(i) = mean time(i) + max over successors j of (mean transfer(i, j) + rank(j)).
    costs = mean_costs(instance.arrays)
    return levels(problem_of(instance.arrays), costs.op, costs.tensor), costs.scale


@method(
    "peft",
    objectives=("makespan",),
    cites="Arabnejad and Barbosa 2014, section 4",
    starts={"makespan": Cost(0.5, 6.0)},
)
def peft(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """List scheduling by an optimistic cost table, idle gaps included.

    Place the ready op of highest mean optimistic cost where finish + optimistic cost is least.
    Arabnejad, Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost
    table", IEEE TPDS 25(3), 2014, section 4. A heuristic for the makespan; it plans with free
    channels and inserts ops into idle gaps.
    Exact integers, means as in HEFT; an op's mean optimistic cost is over the devices that can run
    it. Ties: topological position, then device index. Added to the paper: an op goes only to
    devices that can run it, with room for it and its colocation group.
    O(V K log V + E K) time.
    """
    arrays = task.instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    table = optimistic_costs(problem, costs.tensor, costs.scale)
    priority = _mean_over_devices(table, arrays, costs)
    return insert_by(task.instance, problem, priority, table, costs.scale)


@kernel(bounded=True)
def optimistic_costs(problem: Problem, tensor_cost: Ints, scale: int) -> Ints:
    """Optimistic cost table, (n, K), in 1 / scale ns; equation 5."""
    # oct(i, k) = max over successors j of min over the devices w that run j of oct(j, w) + time(j,
    # w) + (0 if w == k else mean transfer(i, j)): what remains behind op i on device k if every
    # later op had the device it likes best. O((V + E) K): one minimum per op
    # covers both w != k and w == k.
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
    """Mean optimistic cost of each op (equation 6), up to one common factor."""
    # Exact, or its terms rounded down to 1 / scale ns where the exact one would overflow.
    runs = arrays.time_ns != UNSUPPORTED
    known, count = np.where(runs, table, 0), runs.sum(axis=1, keepdims=True)
    fits = longest_path(arrays) * costs.scale**2 <= LARGEST_SUM
    exact = fits and not (costs.scale % count).any()  # means that are rounded have the scale 1
    terms = known * (costs.scale // count) if exact else known // count
    return np.asarray(terms.sum(axis=1), np.int64)


@method(
    "cpop",
    objectives=("makespan",),
    cites="Topcuoglu et al. 2002, section 4.2",
    starts={"makespan": Cost(0.5, 5.0)},
)
def cpop(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """The critical path on one device, other ops on the device of earliest finish.

    Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.2. A heuristic for the makespan; it
    plans with free channels and inserts ops into idle gaps. The ready op of highest priority
    (upward + downward rank) comes next. Ranks are exact integers, means as in HEFT. Ties:
    topological position, then device index. O(V K log V + E K) time.

    Deviations: the critical path's device is, of those that run most of its ops, the fastest; an op
    of the path that it cannot take goes where it finishes first.
    """
    instance, arrays = task.instance, task.instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    upward = levels(problem, costs.op, costs.tensor)
    priority = upward + downward_ranks(problem, costs)
    path = critical_path(problem, costs, upward)
    # no plan ends at or after 2**62, so that no other device is as good as the path's
    penalty = np.zeros((instance.num_ops, instance.num_devices), np.int64)
    penalty[path] = LARGEST_SUM
    penalty[path, path_device(arrays, path)] = 0
    return insert_by(instance, problem, priority, penalty)


def downward_ranks(problem: Problem, costs: MeanCosts) -> Ints:
    """Downward rank of each op (equation 9), in 1 / scale ns."""
    # rank(i) = max over predecessors j of (rank(j) + mean time(j) + mean transfer(j, i)).
    inputs, order = problem.inputs, problem.topological_order
    return (
        longest_ways(order, inputs.ptr, inputs.op, costs.tensor[inputs.tensor], costs.op) - costs.op
    )


def critical_path(problem: Problem, costs: MeanCosts, upward: Ints) -> list[int]:
    """The longest path of ops by upward rank, from a source to a sink."""
    # The edges must be on it as well: from an op of the path an edge may lead past the next one.
    num_inputs = np.diff(problem.inputs.ptr)
    sources = [op for op in problem.topological_order.tolist() if num_inputs[op] == 0]
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


def path_device(arrays: Arrays, path: list[int]) -> int:
    """Of the devices that run most ops of the path, the one that runs them in the least time."""
    time_ns = arrays.time_ns[path]
    runs = time_ns != UNSUPPORTED
    missed, total = (~runs).sum(axis=0), np.where(runs, time_ns, 0).sum(axis=0)
    return int(np.lexsort((total, missed))[0])
