"""The latency IP of Tarnawski et al. (NeurIPS 2020): q uninterrupted calls per accelerator.

Claim: exact for ``latency_subgraphs``, in both forms. Components of the model, for ops i, devices
k, accelerators' calls (k, c) and tensors u:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``in_call[i, k, c]``: op i is in call c of accelerator k; variables in {0, 1}, or x for q = 1;
- ``enters[u, k, c]``, ``leaves[u, k, c]`` in [0, 1]: the tensor is an input, an output of the call;
- ``start[k, c]``, ``finish[k, c]``: of a call; ``end[i]``: when the output of op i is there;
- ``latency``: the latest end.

``as_published`` are the rows of their program ``lip.py`` with one change: its big-M, the total time
on a CPU, which is wrong where that is no upper bound, is the horizon. ``strengthened`` leaves out
the convexity of calls, which clocks imply, and adds

- ``done[i]``: an op is done when its call has got to it (`latency_ip.windows_and_ranks`): paths
  without big-M;
- work, heads, tails: what accelerators and paths take at least, and `latency_ip.chain_bound`: what
  a path takes that memory spreads over several calls;
- an order of equal accelerators, of an accelerator's calls, and of calls without ops.

Times of a MIP cannot order what takes no time: `empty_in_order` does, in both forms, where calls
without any time are possible at all. Of hosts that can hold everything only the fastest per op is
kept (``x`` of the others is fixed to 0): the paper has one pool of CPUs.
"""

from __future__ import annotations

from typing import Literal

import pyomo.environ as pyo

from placegap.formulations.latency_ip import plan_values, published, strengthened
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.formulations.latency_ip.rows import (
    empty_edges,
    index_sets,
    model_unit_ns,
    serial_horizon_ns,
    where_needed,
)
from placegap.formulations.shared.families import (
    assign_once,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.shared.pairs import op_reach
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LatencySubgraphs, Semantics

Form = Literal["as_published", "strengthened"]


def build(
    instance: Instance,
    semantics: LatencySubgraphs,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    bound_ns: int | None = None,
    symmetry: bool = False,
) -> pyo.ConcreteModel:
    """The latency IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : LatencySubgraphs
        ``latency_subgraphs``.
    form : {"strengthened", "as_published"}
    horizon_ns : int, optional
        Only plans of at most this latency matter: that of a known plan, for instance. It is the
        big-M. By default every plan fits.
    bound_ns : int, optional
        A latency that no plan is below, for the strengthened form; by default `chain_bound_ns`.
    symmetry : bool
        Strengthened only: equal accelerators are numbered by their first call. It makes proofs
        shorter, and is wrong beside constraints of your own that name devices.

    Returns
    -------
    ConcreteModel
        Minimizes ``latency``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another objective.

    Examples
    --------
    >>> from placegap.instances import example
    >>> twice = LatencySubgraphs(subgraphs=2)
    >>> model = build(example(), twice, horizon_ns=99)
    >>> len(model.x), len(model.in_call), len(model.enters), pyo.value(model.unit_ns)
    (8, 16, 16, 1.0)
    """
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"the latency IP {reason}")
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    sets = index_sets(instance, semantics, horizon, windowed=form == "strengthened")
    model = pyo.ConcreteModel(name=f"latency IP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=sets.unit_ns)
    place_ops(model, sets.window.possible)
    published.call_variables(model, sets)
    published.time_variables(model, sets)
    assign_once(model, instance)
    published.colocate_pooled(model, instance)
    memory_capacity(model, instance)
    published.call_of_op(model, sets)
    published.tensor_enters(model, sets)
    published.tensor_leaves(model, sets)
    published.call_waits(model, sets)
    published.call_duration(model, sets)
    published.call_after_call(model, sets)
    published.end_of_call(model, sets)
    published.end_on_host(model, sets)
    published.latency_covers(model, sets)
    published.empty_in_order(model, sets)
    if form == "as_published":
        published.call_convex(model, sets)
    else:
        strengthened.done_in_order(model, sets)
        strengthened.done_in_window(model, sets)
        strengthened.work_covers(model, sets)
        if bound_ns is None:
            bound_ns = chain_bound_ns(instance, semantics)
        strengthened.chain_covers(model, sets, bound_ns)
        if symmetry:
            strengthened.equal_in_order(model, sets)
        strengthened.calls_in_order(model, sets)
    model.objective = pyo.Objective(expr=model.latency)
    return model


def why_not(semantics: Semantics) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics.objective != "latency_subgraphs":
        return f"states latency_subgraphs, not {semantics.label}"
    return None


def count_rows(instance: Instance, semantics: LatencySubgraphs, form: Form) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building.

    Examples
    --------
    >>> from placegap.instances import example
    >>> once = LatencySubgraphs()
    >>> count_rows(example(), once, "as_published"), count_rows(example(), once, "strengthened")
    (76, 79)
    """
    arrays, index, n, q = (
        instance.arrays,
        instance.arrays.index,
        instance.num_ops,
        semantics.subgraphs,
    )
    accelerators, edges = int((~arrays.is_host).sum()), len(index.producer)
    calls, tensors = accelerators * q, len(index.tensor_producer)
    rows = 2 * n + edges + n + calls * (2 * edges + tensors + n + 2)
    rows += n * accelerators if q > 1 else 0
    if empty_edges(
        instance,
        where_needed(instance),
        int(published.NEXT_TO_NOTHING * model_unit_ns(instance, None)),
    ):
        rows += calls * (tensors + n + 1) + edges
    if form == "as_published":
        return rows + calls * (n + 2 * edges)
    order = edges * accelerators if q == 1 else calls * (n + 2 + edges)
    return rows + edges + 3 * n + accelerators + 1 + order


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, semantics: LatencySubgraphs
) -> None:
    """Set the values of all variables to those of a plan, or of its twin that the model keeps.

    Parameters
    ----------
    model : ConcreteModel
        From `build`, of either form, with a horizon not below the plan's latency.
    instance, plan, semantics
        A feasible plan, judged under the semantics.
    """
    values = plan_values(instance, plan, semantics)
    unit_ns, where = pyo.value(model.unit_ns), values.where
    set_placement(model, values.plan)
    for (i, k, c), member in model.in_call.items():
        if model.in_call.ctype is pyo.Var:
            member.set_value(int(where[i] == (k, c)))
    for (u, k, c), enters in model.enters.items():
        enters.set_value(int(values.enters(u, k, c)))
    for (u, k, c), leaves in model.leaves.items():
        leaves.set_value(int(values.leaves(u, k, c)))
    for at, (start_ns, end_ns) in values.span_ns.items():
        model.start[at].set_value(start_ns / unit_ns)
        model.finish[at].set_value(end_ns / unit_ns)
    for i, end_ns in enumerate(values.schedule.end_ns.tolist()):
        model.end[i].set_value(end_ns / unit_ns)
    model.latency.set_value(values.schedule.makespan_ns / unit_ns)
    if model.component("rank") is not None:
        for i, rank in model.rank.items():
            rank.set_value(values.rank[i])
        for at, rank in model.rank_call.items():
            rank.set_value(values.rank_call[at])
    if model.component("reached") is not None:
        _set_reached(model, instance, where)
    if model.component("done") is not None:
        for i, done in model.done.items():
            done.set_value(values.done_ns[i] / unit_ns)
    if model.component("used") is not None:
        for at, used in model.used.items():
            used.set_value(int(at in where))


def _set_reached(
    model: pyo.ConcreteModel, instance: Instance, where: list[tuple[int, int]]
) -> None:
    """An op is reached by a call if it is a member or some member comes after it."""
    index = instance.arrays.index
    after = op_reach(index)[1]
    members: dict[tuple[int, int], int] = {}
    for i, at in enumerate(where):
        members[at] = members.get(at, 0) | 1 << i
    for (i, k, c), variable in model.reached.items():
        variable.set_value(int((after[i] | 1 << i) & members.get((k, c), 0) > 0))


def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of x and in_call describe."""
    device = placement(model, instance.num_ops)
    best = [(-1.0, 0)] * instance.num_ops
    for (i, k, c), member in model.in_call.items():
        if device[i] == k:
            best[i] = max(best[i], (pyo.value(member), -c))
    return Plan(tuple((k,) for k in device), call=tuple(-c for _, c in best))
