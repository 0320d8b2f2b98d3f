"""mp-dps: ops that a transfer keeps together are merged, then placed by path costs.

MP-DPS, which FD-DPS compares with, "reduces the search space by merging nodes with computing power
awareness" (Mathematics 2022, 10, 4788, section 5.1). Its text is not at hand: the rule is ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import DisjointSets, first_of, sum_by
from placegap.instances.problem.integers import UNSUPPORTED, times_written
from placegap.instances.problem.mean_costs import flow_of, mean_costs
from placegap.instances.transforms.colocation import Together
from placegap.instances.transforms.merge import Merge, expand_plan, merge_groups
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.heft_peft_cpop import optimistic_costs
from placegap.solvers.placers.insertion import insert_by
from placegap.solvers.placers.list_problem import problem_of

MEMORY_SHARE = 0.1  # of the smallest device: the most that a merged op and its group hold


class MpDpsParams(Params):
    #: How much of the smallest device a merged op and its colocation group may hold.
    memory_share: Annotated[float, Field(ge=0, le=1)] = MEMORY_SHARE


@method("mp-dps", objectives=("makespan",), cites="as in Zeng et al. 2022, section 5.1")
def mp_dps(task: Task[Makespan], params: MpDpsParams) -> Outcome:
    """Merges ops with "computing power awareness", then places by path costs.

    MP-DPS as Zeng et al. describe it (FD-DPS, Mathematics 2022, 10, 4788, section 5.1): nodes are
    merged "with computing power awareness", and scheduled by "predicting the path cost"; its text
    is not at hand. A heuristic for the makespan; it plans with free channels and inserts into idle
    gaps. Ties: topological position, then device. Memory, support and colocation as in HEFT; where
    the merged ops do not fit, the ops are placed unmerged. O(V K log V + E K) behind the merging.

    Deviations: the paper was not available: what is merged, and the path cost (an op's time plus
    PEFT's optimistic cost of what follows), are ours; where merged ops do not fit, ops are placed
    unmerged.
    """
    merge = merge_by_power(task.instance, params.memory_share)
    details = {"merged_ops": merge.coarse.num_ops}
    outcome = by_path_costs(merge.coarse)
    if outcome.plan is None:
        return replace(by_path_costs(task.instance), details={"merged_ops": task.instance.num_ops})
    return Outcome(expand_plan(merge, outcome.plan, task.semantics), details=details)


def by_path_costs(instance: Instance) -> Outcome:
    """List scheduling by predicted path costs."""
    arrays = instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    behind = optimistic_costs(problem, costs.tensor, costs.scale)
    priority = mean_path_costs(arrays, behind, costs.scale)
    return insert_by(instance, problem, priority, behind, costs.scale)


def mean_path_costs(arrays: Arrays, behind: Ints, scale: int) -> Ints:
    """Mean over the devices of each op's time there plus what is `behind`, in 1 / scale ns."""
    # The term of each device is rounded down.
    runs = arrays.time_ns != UNSUPPORTED
    cost = np.where(runs, arrays.time_ns * scale + behind, 0)
    mean: Ints = (cost // runs.sum(axis=1, keepdims=True)).sum(axis=1)
    return mean


def merge_by_power(instance: Instance, memory_share: float = MEMORY_SHARE) -> Merge:
    """Merge ops along edges whose transfer takes longer than separate devices could save."""
    # An edge u -> v can be merged without a cycle if v is all that follows u, or u all that
    # precedes v. It is merged if its mean transfer takes at least as long as
    #
    # - the loss of power: what u and v take on one device, at best, above what each takes on its
    #   own best device (0 on equal devices), and
    # - the delay: u's mean time, if v has other inputs, for which u would wait, too; v's, if u has
    #   other consumers, which would wait for v; in a chain neither.
    #
    # Ops stay apart if they are of different passes, no device runs both with all that is colocated
    # with them, or all that would hold more than `memory_share` of the smallest device.
    #
    # Edges are looked at in topological order, again and again until none can be merged any more:
    # O(V + E) per round, few rounds.
    group = _groups(instance, memory_share)
    return merge_groups(instance, group, "merged by power", "MP-DPS")


class _Clusters(DisjointSets):
    """Merged ops: times per device, and upper bounds of how many others precede and follow."""

    def __init__(self, instance: Instance, memory_share: float) -> None:
        super().__init__(instance.num_ops)
        arrays = instance.arrays
        self.time_ns: list[list[int]] = arrays.time_ns.tolist()
        self.num_succs: list[int] = []
        self.num_preds: list[int] = []
        self.group: list[int] = arrays.group.tolist()
        self.backward: list[bool] = arrays.backward.tolist()
        self.together = Together(instance)
        self.most_bytes = times_written(memory_share, int(arrays.memory_bytes.min()))

    def pays(self, u: int, v: int, transfer_ns: int) -> bool:
        """Whether u and v, which an edge joins, are better one."""
        delay_ns = 0.0
        if self.num_preds[v] > 1:
            if self.num_succs[u] > 1:
                return False  # there may be another way from u to v
            delay_ns = _mean(self.time_ns[u])
        elif self.num_succs[u] > 1:
            delay_ns = _mean(self.time_ns[v])
        if transfer_ns < delay_ns or self.backward[u] != self.backward[v]:
            return False
        both = _sum(self.time_ns[u], self.time_ns[v])
        loss_ns = _least(both) - _least(self.time_ns[u]) - _least(self.time_ns[v])
        if _least(both) == UNSUPPORTED or transfer_ns < delay_ns + loss_ns:
            return False
        one, two = self.together.find(self.group[u]), self.together.find(self.group[v])
        if one != two and self.together.size[one] + self.together.size[two] > self.most_bytes:
            return False
        return self.together.may_join(one, two)

    def join(self, u: int, v: int) -> None:
        """Let v be part of u."""
        super().join(u, v)
        self.together.join(self.group[u], self.group[v])
        self.time_ns[u] = _sum(self.time_ns[u], self.time_ns[v])
        self.num_succs[u] += self.num_succs[v] - 1
        self.num_preds[u] += self.num_preds[v] - 1


def _groups(instance: Instance, memory_share: float) -> Ints:
    """The first op of each op's merged one."""
    n, flow = instance.num_ops, flow_of(instance.arrays)
    clusters = _Clusters(instance, memory_share)
    source = np.repeat(np.arange(n), np.diff(flow.ptr))
    by_source = np.argsort(instance.arrays.index.topological_position[source], kind="stable")
    edges = np.stack([source, flow.succ, flow.edge_ns])[:, by_source]
    home, has_grown = np.arange(n), np.ones(n, np.bool_)
    while has_grown.any():
        edges = _contracted(edges, home, clusters)
        # what decides an edge has changed only beside clusters that have grown
        again = has_grown[edges[0]] | has_grown[edges[1]]
        has_grown = np.zeros(n, np.bool_)
        for u, v, transfer_ns in edges[:, again].T.tolist():
            a, b = clusters.find(u), clusters.find(v)
            if a != b and clusters.pays(a, b, transfer_ns):
                clusters.join(a, b)
                has_grown[a] = True
        home = np.array([clusters.find(op) for op in range(n)])
        has_grown &= home == np.arange(n)
    return first_of(home)


def _contracted(edges: Ints, home: Ints, clusters: _Clusters) -> Ints:
    """Edges between clusters, parallel ones added up, in the order of the first of them."""
    n = len(home)
    source, target = home[edges[0]], home[edges[1]]
    apart = np.flatnonzero(source != target)
    ends, first, of = np.unique(
        source[apart] * n + target[apart], return_index=True, return_inverse=True
    )
    transfer_ns = sum_by(of, edges[2, apart], len(ends))
    clusters.num_succs = np.bincount(ends // n, minlength=n).tolist()
    clusters.num_preds = np.bincount(ends % n, minlength=n).tolist()
    order = np.argsort(first, kind="stable")
    merged: Ints = np.stack([ends // n, ends % n, transfer_ns])[:, order]
    return merged


def _sum(one: list[int], two: list[int]) -> list[int]:
    """Times of both on one device."""
    return [UNSUPPORTED if UNSUPPORTED in (a, b) else a + b for a, b in zip(one, two, strict=True)]


def _least(times: list[int]) -> int:
    """The least time, `UNSUPPORTED` if no device runs it."""
    return min((time for time in times if time != UNSUPPORTED), default=UNSUPPORTED)


def _mean(times: list[int]) -> float:
    known = [time for time in times if time != UNSUPPORTED]
    return sum(known) / len(known)
