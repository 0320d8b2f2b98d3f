"""A second referee, which shares no code with the first: feasibility and value once more.

`evaluate` computes on arrays, by kernels and by libraries for graphs. This package reads the fields
of the instance, the plan and the semantics, and derives tensors, paths, times, orders and loads
again in Python integers, by other algorithms. The two are compared on random plans; ``placegap
verify`` runs both.
"""

from __future__ import annotations

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.rules import WrongShape
from placegap.instances.problem import Evaluation, Instance, Plan, Semantics
from placegap.instances.problem.semantics import part
from placegap.instances.reading.errors import InputError


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
    >>> from placegap.instances import Makespan, example
    >>> verdict = recheck(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    _require_servers(instance, semantics)
    try:
        verdict: Evaluation = part(semantics, "oracle").recheck(Facts(instance), plan, semantics)
    except WrongShape as error:
        return Evaluation(None, error.args)
    return verdict


def _require_servers(instance: Instance, semantics: Semantics) -> None:
    if not semantics.has_two_levels:
        return
    servers = {device.server for device in instance.cluster.devices}
    if None in servers:
        raise InputError("two levels need the server of every device", instance.name)
    if len(servers) > 1 and any(
        edge.host_time_ns is not None and edge.transfer_ns is None for edge in instance.graph.edges
    ):
        raise InputError("a host time alone does not say what servers pay", instance.name)
