"""A second referee, which shares no code with the first: feasibility and value once more.

`evaluate` computes on arrays, by kernels and by libraries for graphs. `recheck` and the modules
``recheck_*`` read the fields of the instance, the plan and the semantics, and derive tensors,
paths, times, orders and loads again in Python integers, by other algorithms. The two are compared
on random plans; ``placegap verify`` asks both.
"""

from __future__ import annotations

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Evaluation, Plan, Violation
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
    has_two_levels,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.recheck.facts import Facts
from placegap.instances.recheck.iteration import in_flight_rule, iteration_ns, peak_rule
from placegap.instances.recheck.recheck import broken_rules, foreign_fields, wrong_shape
from placegap.instances.recheck.values import (
    OrderError,
    latency_value,
    max_load_fwd_bwd_ns,
    max_load_ns,
    planned_times,
    replica_rules,
)


def recheck(instance: Instance, plan: Plan, semantics: Semantics) -> Evaluation:
    """The second referee's verdict: the value, and every rule that the plan breaks.

    The rules have the names that `evaluate` gives them; `uses`, `schedule` and `servers` stay
    empty.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs: two levels need the servers.

    Notes
    -----
    O((n + m) (K + log n)) for K devices; a graph of 20,000 ops takes half a second.

    Examples
    --------
    >>> from placegap.instances import example
    >>> verdict = recheck(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    _require_servers(instance, semantics)
    facts = Facts(instance)
    wrong = wrong_shape(facts, plan, semantics)
    if wrong is not None:
        return Evaluation(None, (wrong,))
    found = [*foreign_fields(plan, semantics), *broken_rules(facts, plan, semantics)]
    if isinstance(semantics, LoadSemantics) and semantics.memory == "peak":
        found += peak_rule(facts, plan, semantics, None)
    if isinstance(semantics, MaxLoad) and semantics.replicas:
        found += replica_rules(facts, plan, semantics)
    if any(violation.rule in ("fields", "replicas") for violation in found):
        return Evaluation(None, tuple(found))
    try:
        match semantics:
            case Makespan():
                times = planned_times(facts, plan, semantics)
                value_ns = max(end for _, end in times.ops)
                if semantics.memory == "peak":
                    found += peak_rule(facts, plan, semantics, times)
            case MaxLoad():
                value_ns = max_load_ns(facts, plan, semantics)
            case MaxLoadFwdBwd():
                value_ns = max_load_fwd_bwd_ns(facts, plan, semantics)
            case LatencySubgraphs():
                value_ns = latency_value(facts, plan, semantics)
            case PipelineIteration():
                value_ns = iteration_ns(facts, plan, semantics)
                found += in_flight_rule(facts, plan, semantics)
        return Evaluation(value_ns, tuple(found))
    except OrderError as error:
        return Evaluation(None, (*found, Violation("order", str(error))))


def _require_servers(instance: Instance, semantics: Semantics) -> None:
    if not has_two_levels(semantics):
        return
    servers = {device.server for device in instance.cluster.devices}
    if None in servers:
        raise InputError("two levels need the server of every device", instance.name)
    if len(servers) > 1 and any(
        edge.host_time_ns is not None and edge.transfer_ns is None for edge in instance.graph.edges
    ):
        raise InputError("a host time alone does not say what servers pay", instance.name)
