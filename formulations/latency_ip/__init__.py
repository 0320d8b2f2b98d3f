"""The latency IP of Tarnawski et al. (NeurIPS 2020): q uninterrupted calls per accelerator.

Claim: exact for ``latency_subgraphs``, in both forms. Components of the model, for ops i, devices
k, accelerators' calls (k, c) and tensors u:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``in_call[i, k, c]``: op i is in call c of accelerator k; variables in {0, 1}, or x for q = 1;
- ``enters[u, k, c]``, ``leaves[u, k, c]`` in [0, 1]: the tensor is an input, an output of the call;
- ``start[k, c]``, ``finish[k, c]``: of a call; ``end[i]``: when the output of op i is there;
- ``latency``: the latest end, in units; ``latency_ns``: in nanoseconds;
- ``reached[i, k, c]`` (as published; their z): op i, or one after it, is in the call;
- ``rank[i]``, ``rank_call[k, c]`` (`empty_in_order`): places in an order of ops and calls;
- ``used[k, c]`` (strengthened, q > 1): the call has an op.

``as_published`` are the rows of their program ``lip.py`` with one change: its big-M, the total time
on a CPU, which is wrong where that is no upper bound, is the horizon. ``strengthened`` leaves out
the convexity of calls, which clocks imply, and adds

- ``done[i]``: an op is done when its call has got to it: paths without big-M;
- work, heads, tails: what accelerators and paths take at least, and `latency_ip.chain_bound`: what
  a path takes that memory spreads over several calls;
- an order of equal accelerators, of an accelerator's calls, and of calls without ops.

Times of a MIP cannot order what takes no time: `empty_in_order` does, in both forms, where calls
without any time are possible at all. Of hosts that can hold everything only the fastest per op is
kept (``x`` of the others is fixed to 0): the paper has one pool of CPUs.

``duration_ns[i, k]`` and ``host_ns[u, k]`` may be changed between solves. Strengthened they may
only grow; as published what took time must go on to take some. An op may not become slower on the
host that is kept for it than on one that is left out, nor may that host lose memory. All of this is
refused; changes that tell equal accelerators apart are wrong with `symmetry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from placegap.formulations.latency_ip.calls import (
    NEXT_TO_NOTHING,
    empty_edges,
    index_sets,
    model_unit_ns,
    plan_values,
    serial_horizon_ns,
    slower_hosts_ns,
    where_needed,
)
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.formulations.shared import refuse
from placegap.formulations.shared.pairs import op_reach
from placegap.instances.problem import Instance, LatencySubgraphs, Plan, Semantics
from placegap.instances.reading.errors import InputError, look_up

if TYPE_CHECKING:  # `latency_ip.cp` need not wait for Pyomo to load
    import pyomo.environ as pyo

__all__ = ["Form", "build", "count_rows", "extract", "warm_start", "why_not"]
Form = Literal["as_published", "strengthened"]


def build(
    instance: Instance,
    semantics: LatencySubgraphs,
    *,
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
        Strengthened only: a lower bound on the latency; by default `chain_bound_ns`.
    symmetry : bool
        Strengthened only: equal accelerators are numbered by their first call. It makes proofs
        shorter, and is wrong beside constraints of your own that name devices.

    Returns
    -------
    ConcreteModel
        Minimizes ``latency``, in units of ``unit_ns`` nanoseconds; ``latency_ns`` is its value in
        nanoseconds. Constraints can be added, and data changed (see above).

    Raises
    ------
    InputError
        Another objective or form, or an option that the form does not have.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), LatencySubgraphs(subgraphs=2), horizon_ns=99)
    >>> len(model.x), len(model.in_call), len(model.enters), model.unit_ns.value
    (8, 16, 16, 1.0)
    """
    import pyomo.environ as pyo

    from placegap.formulations.latency_ip import rows
    from placegap.formulations.shared.data import new_model
    from placegap.formulations.shared.families import assign_once, memory_capacity, place_ops

    look_up("form", form, dict.fromkeys(get_args(Form)))
    strengthened = form == "strengthened"
    refuse("the latency IP", why_not(semantics))
    if not strengthened and (symmetry or bound_ns is not None):
        option = "symmetry" if symmetry else "bound_ns"
        raise InputError(f"the latency IP, form={form}, has no {option}")
    horizon_ns = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    # As published, windows come from the longest horizon: the form keeps the rows of the paper.
    sets = index_sets(instance, semantics, horizon_ns, windowed=strengthened)
    q = sets.num_calls
    model = new_model("latency IP", instance, semantics, model_unit_ns(instance, horizon_ns))
    place_ops(model, sets.window.possible)
    rows.call_sets(model, sets)
    rows.call_data(model, sets, horizon_ns, only_longer=strengthened)
    rows.call_variables(model, q)
    rows.time_variables(model)
    assign_once(model)
    rows.colocate_pooled(model, instance)
    memory_capacity(model, instance, {k for _, k in slower_hosts_ns(sets)})
    rows.call_of_op(model, q)
    rows.tensor_enters(model)
    rows.tensor_leaves(model)
    rows.call_waits(model)
    rows.call_duration(model)
    rows.call_after_call(model)
    rows.end_of_call(model)
    rows.end_on_host(model)
    rows.latency_covers(model)
    # Clocks make calls convex by themselves, except around cycles in which nothing takes time.
    rows.empty_in_order(model, sets)
    if not strengthened:
        rows.call_convex(model)
    else:
        # The rows above bound little: with fractional `enters` the big-M of a wait is slack, and so
        # a path through several calls costs nothing. `done` follows paths without big-M.
        rows.done_in_order(model)
        rows.done_in_window(model, sets)
        rows.work_covers(model, q)
        rows.chain_covers(
            model, chain_bound_ns(instance, semantics) if bound_ns is None else bound_ns
        )
        if symmetry:
            rows.equal_in_order(model, instance, q)
        rows.calls_in_order(model, q)
    model.objective = pyo.Objective(expr=model.latency, doc="Tarnawski et al.: TotalLatency")
    return model


def why_not(semantics: Semantics) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics.objective != "latency_subgraphs":
        return f"states latency_subgraphs, not {semantics.label}"
    return None


def count_rows(instance: Instance, semantics: LatencySubgraphs, form: Form) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building."""
    arrays, n, q = instance.arrays, instance.num_ops, semantics.subgraphs
    index = arrays.index
    accelerators, edges = int((~arrays.is_host).sum()), len(index.producer)
    calls, tensors = accelerators * q, len(index.tensor_producer)
    rows = 2 * n + edges + n + calls * (2 * edges + tensors + n + 2)
    rows += n * accelerators if q > 1 else 0
    if empty_edges(
        instance, where_needed(instance), int(NEXT_TO_NOTHING * model_unit_ns(instance, None))
    ):
        rows += calls * (tensors + n + 1) + edges
    if form == "as_published":
        return rows + calls * (n + 2 * edges)
    order = edges * accelerators if q == 1 else calls * (n + 2 + edges)
    return rows + edges + 3 * n + accelerators + 1 + order


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables to those of a plan, or of its representative in the model.

    The plan is feasible, and the horizon of the model is not below its latency.
    """
    from placegap.formulations.shared.data import set_placement

    semantics, unit_ns = model.semantics, model.unit_ns.value
    values, after = plan_values(instance, plan, semantics), op_reach(instance.arrays.index)[1]
    where, rank_call, span_ns = values.where, values.rank_call, values.span_ns
    end_ns, latency_ns = values.schedule.end_ns.tolist(), values.schedule.makespan_ns
    op, device, tensor = (
        {name: number for number, name in enumerate(names)}
        for names in (model.OPS, model.DEVICES, model.TENSORS)
    )
    members = dict.fromkeys(where, 0)  # of each call; bit i of an integer stands for op i
    for i, call in enumerate(where):
        members[call] |= 1 << i
    value: dict[str, Callable[..., float]] = {
        "in_call": lambda i, k, c: where[op[i]] == (device[k], c),
        "enters": lambda u, k, c: values.enters(tensor[u], device[k], c),
        "leaves": lambda u, k, c: values.leaves(tensor[u], device[k], c),
        "start": lambda k, c: span_ns[device[k], c][0] / unit_ns,
        "finish": lambda k, c: span_ns[device[k], c][1] / unit_ns,
        "end": lambda i: end_ns[op[i]] / unit_ns,
        "done": lambda i: values.done_ns[op[i]] / unit_ns,
        "rank": lambda i: values.rank[op[i]],
        "rank_call": lambda k, c: rank_call[device[k], c],
        "used": lambda k, c: (device[k], c) in members,
        "reached": lambda i, k, c: bool(
            (after[op[i]] | 1 << op[i]) & members.get((device[k], c), 0)
        ),
    }
    if semantics.subgraphs == 1:  # in_call is x
        del value["in_call"]
    set_placement(model, values.plan.devices.tolist())
    for name, of in value.items():
        for at, variable in (model.component(name) or {}).items():
            variable.set_value(float(of(*at) if isinstance(at, tuple) else of(at)))
    model.latency.set_value(latency_ns / unit_ns)


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of x and in_call describe."""
    from placegap.formulations.shared.data import device_numbers, require_solution

    require_solution(model, instance, check=check)
    device, names = device_numbers(model), list(model.DEVICES)
    home = dict(zip(model.OPS, (names[k] for k in device), strict=True))
    best = dict.fromkeys(model.OPS, (-1.0, 0))
    for (i, k, c), member in model.in_call.items():
        if home[i] == k:
            best[i] = max(best[i], (member(), -c))
    return Plan(tuple((k,) for k in device), call=tuple(-c for _, c in best.values()))
