r"""Helix's MILP of machines that hold ranges of layers, and a stronger form of placegap's own.

Mei et al., "Helix: Serving Large Language Models over Heterogeneous GPUs and Network via Max-Flow"
(ASPLOS 2025). The form ``as_published`` is the model of the released LP files, row by row; there it
says without numbers, for machines i, j, the link from a to b and L layers:

    maximize    sum over i of f_si
    hold        sum over h of hold_ih = 1
    end         start_i + sum over h of h hold_ih <= L
    node_flow   what flows into a machine flows out of it
    throughput  what flows into i is at most sum over h of c_i(h) hold_ih
    source      start_i + switch_si >= 1,  start_i + L switch_si <= L
    sink        (L - 1) switch_it >= end_i - L + 1,  end_i >= L switch_it
    edge        end_i - start_j + L switch_ij <= L,  start_j - end_i + L switch_ij <= L
    edge_flow   f_ab <= b_ab switch_ab

with end_i = start_i + sum over h of h hold_ih. Its big-M is L. Five of the seven files leave out
the first row of source and sink (``remove_redundant``). Claim: exact under serving_flow
without partial inference; each machine holds something, which takes nothing from a flow.

``strengthened`` counts machines of a kind, n_ksh with range [s, s + h), and has neither switches
nor names of machines:

    maximize    F = sum over (k, h) of f_k0h
    kind        sum over (s, h) of n_ksh <= N_k
    carry       f_ksh <= min(c_k(h), U) n_ksh
    border      sum of f over ranges that end at s = sum of f over those that start there, 0 < s < L

where U is a bound on F. Claim: a relaxation of serving_flow without partial inference, exact where
no link limits a flow: tokens change freely between machines that meet at a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyomo.environ as pyo

from placegap.formulations.shared import refuse
from placegap.formulations.shared.data import family, new_model, require_solution, set_values
from placegap.formulations.shared.families import Linear
from placegap.instances.objectives.flow.referee import largest_flow, plan_of, problem_of, ranges_of
from placegap.instances.problem import Instance, Plan, Semantics, ServingFlow
from placegap.instances.problem.flow_problem import MOST_RATE, UNITS, FlowProblem, Range
from placegap.instances.reading.errors import InputError

Form = Literal["as_published", "strengthened"]


def build(
    instance: Instance,
    semantics: ServingFlow,
    *,
    form: Form = "strengthened",
    most_flow: int | None = None,
    remove_redundant: bool = False,
) -> pyo.ConcreteModel:
    """The model of an instance.

    Parameters
    ----------
    semantics : ServingFlow
        Without partial inference.
    form : {"strengthened", "as_published"}
    most_flow : int, optional
        U, in millionths of a token per second: no plan is better. ``strengthened`` takes the work
        of all machines over the layers by default. ``as_published`` has links of at most U then:
        released files have 5e8 tokens/s, of which a switch of 1e-6, within a solver's tolerance,
        lets 500 pass.
    remove_redundant : bool
        Helix's own option: leave out the rows "on" of switches, which no optimum needs, and which
        forbid all plans of one layer.

    Returns
    -------
    ConcreteModel
        Minimizes ``-flow``, in tokens per second; `unit_ns` are millionths per token.

    Raises
    ------
    InputError
        Under partial inference.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Edge, Graph, Link, Op
    >>> ops = tuple(Op(name=name, time_ns={"gpu": 10}) for name in "ab")
    >>> graph = Graph(name="two", ops=ops, edges=(Edge(producer="a", consumer="b"),))
    >>> gpus = Cluster(name="gpu", devices=(Device(name="gpu0", kind="gpu"),))
    >>> model = build(Instance(name="two", graph=graph, cluster=gpus), ServingFlow())
    >>> len(model.count), model.carry.doc
    (3, 'Placegap (3): flow[k, s, h] <= min(c_k(h), U) * count[k, s, h]')
    """
    refuse("Helix's model", why_not(semantics))
    problem = problem_of(instance, semantics)
    model = new_model(f"serving flow, {form}", instance, semantics, UNITS)
    model.form = form
    if form == "as_published":
        model.SIDES = pyo.Set(initialize=("off",) if remove_redundant else ("on", "off"))
        model.ENDS = pyo.Set(initialize=("end", "start"))
        machine_sets(model, problem, MOST_RATE if most_flow is None else most_flow)
        machine_variables(model, problem)
        hold_once(model)
        hold_end(model, problem)
        machine_flow(model)
        machine_throughput(model)
        source_switch(model, problem)
        sink_switch(model, problem)
        edge_switch(model, problem)
        edge_flow(model)
        flow_value(model)
    else:
        kind_sets(model, problem, problem.work_bound if most_flow is None else most_flow)
        kind_variables(model)
        kind_count(model)
        carry(model)
        border_flow(model, problem)
        kind_value(model)
    model.objective = pyo.Objective(expr=-model.flow_value, doc="Helix: tokens per second, negated")
    return model


def why_not(semantics: Semantics) -> str | None:
    """Why the models do not state a semantics, or None if they do."""
    if semantics != ServingFlow():
        return f"states serving_flow, not {semantics.label}"
    return None


def count_rows(instance: Instance, form: Form) -> int:
    """Rows of a model, without building it."""
    problem = instance.flow_problem
    if form == "as_published":
        return 4 * problem.num_machines + 3 * len(problem.links)
    return sum(1 for _ in _ranges(problem)) + len(problem.of_kind) + problem.num_layers - 1


# ------------------------------------------------------------------------------- as published: data


@family
def machine_sets(model: pyo.ConcreteModel, problem: FlowProblem, most_flow: int) -> None:
    """MACHINES by name; HOLDINGS: (i, h), machine i may hold h layers; PIPES: links (a, b).

    And throughput[i, h] and rate[a, b], in tokens per second.
    """
    name = _names(problem)
    model.MACHINES = pyo.Set(initialize=[machine.name for machine in problem.machines])
    holdings = {
        (machine.name, h): problem.throughput(i, h) / UNITS
        for i, machine in enumerate(problem.machines)
        for h in range(1, problem.most_layers(i) + 1)
    }
    model.HOLDINGS = pyo.Set(initialize=list(holdings), dimen=2)
    model.throughput = pyo.Param(model.HOLDINGS, initialize=holdings, mutable=True)
    rates = {
        (name[a], name[b]): min(rate, most_flow) / UNITS for (a, b), rate in problem.links.items()
    }
    model.PIPES = pyo.Set(initialize=list(rates), dimen=2)
    model.rate = pyo.Param(model.PIPES, initialize=rates, mutable=True)


def _names(problem: FlowProblem) -> list[str]:
    """Machines by number; `SOURCE` and `SINK` count from the end."""
    return [*(machine.name for machine in problem.machines), "source", "sink"]


@family
def machine_variables(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""start[i], hold[i, h], switch[a, b], flow[a, b]: first layer, number of layers, links in use.

    $0 \le s_i < L$
    """
    model.start = pyo.Var(model.MACHINES, domain=pyo.Integers, bounds=(0, problem.num_layers - 1))
    model.hold = pyo.Var(model.HOLDINGS, domain=pyo.Binary)
    model.switch = pyo.Var(model.PIPES, domain=pyo.Binary)
    model.flow = pyo.Var(model.PIPES, domain=pyo.NonNegativeReals)


def _layers(model: pyo.ConcreteModel, i: str) -> Linear:
    """How many layers a machine holds."""
    return sum(h * model.hold[j, h] for j, h in model.HOLDINGS if j == i)


def _into(model: pyo.ConcreteModel, i: str) -> Linear:
    """What flows into a machine."""
    return sum(model.flow[a, b] for a, b in model.PIPES if b == i)


# ------------------------------------------------------------------------------- as published: rows


@family
def hold_once(model: pyo.ConcreteModel) -> None:
    r"""Helix, hold: sum over h of hold[i, h] == 1 for every machine i.

    $\sum_h z_{ih} = 1$
    """

    @model.Constraint(model.MACHINES)
    def hold_once(model: pyo.ConcreteModel, i: str) -> Linear:
        return sum(model.hold[j, h] for j, h in model.HOLDINGS if j == i) == 1


@family
def hold_end(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""Helix, end: start[i] + sum over h of h * hold[i, h] <= L.

    $s_i + \sum_h h z_{ih} \le L$
    """

    @model.Constraint(model.MACHINES)
    def hold_end(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.start[i] + _layers(model, i) <= problem.num_layers


@family
def machine_flow(model: pyo.ConcreteModel) -> None:
    r"""Helix, node flow: what flows into a machine flows out of it.

    $\sum_a f_{ai} = \sum_b f_{ib}$
    """

    @model.Constraint(model.MACHINES)
    def machine_flow(model: pyo.ConcreteModel, i: str) -> Linear:
        out = sum(model.flow[a, b] for a, b in model.PIPES if a == i)
        return _into(model, i) - out == 0


@family
def machine_throughput(model: pyo.ConcreteModel) -> None:
    r"""Helix, throughput: sum over a of flow[a, i] <= sum over h of throughput[i, h] * hold[i, h].

    $\sum_a f_{ai} \le \sum_h c_{ih} z_{ih}$
    """

    @model.Constraint(model.MACHINES)
    def machine_throughput(model: pyo.ConcreteModel, i: str) -> Linear:
        held = ((j, h) for j, h in model.HOLDINGS if j == i)
        return _into(model, i) - sum(model.throughput[j] * model.hold[j] for j in held) <= 0


@family
def source_switch(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""Helix, source: start[i] + switch >= 1 ("on"), start[i] + L * switch <= L ("off").

    $1 - s_i \le y_{si} \le (L - s_i) / L$
    """
    links = [i for a, i in model.PIPES if a == "source"]

    @model.Constraint(links, model.SIDES)
    def source_switch(model: pyo.ConcreteModel, i: str, side: str) -> Linear:
        start, switch, layers = model.start[i], model.switch["source", i], problem.num_layers
        return start + switch >= 1 if side == "on" else start + layers * switch <= layers


@family
def sink_switch(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""Helix, sink: (L - 1) * switch - end[i] >= 1 - L ("on"), L * switch <= end[i] ("off").

    $e_i - L + 1 \le (L - 1) y_{it}, \quad L y_{it} \le e_i$
    """
    links = [i for i, b in model.PIPES if b == "sink"]

    @model.Constraint(links, model.SIDES)
    def sink_switch(model: pyo.ConcreteModel, i: str, side: str) -> Linear:
        layers, switch = problem.num_layers, model.switch[i, "sink"]
        end = model.start[i] + _layers(model, i)
        if side == "on":
            return (layers - 1) * switch - end >= 1 - layers
        return layers * switch - end <= 0


@family
def edge_switch(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""Helix, edges: switch[i, j] == 1 only if end[i] == start[j].

    end[i] - start[j] + L * switch <= L ("end") and start[j] - end[i] + L * switch <= L ("start").

    $|e_i - s_j| \le L (1 - y_{ij})$
    """
    links = [(a, b) for a, b in model.PIPES if a != "source" and b != "sink"]

    @model.Constraint(links, model.ENDS)
    def edge_switch(model: pyo.ConcreteModel, i: str, j: str, side: str) -> Linear:
        apart = model.start[i] + _layers(model, i) - model.start[j]
        layers = problem.num_layers
        return (apart if side == "end" else -apart) + layers * model.switch[i, j] <= layers


@family
def edge_flow(model: pyo.ConcreteModel) -> None:
    r"""Helix, edge flow: flow[a, b] <= rate[a, b] * switch[a, b].

    $f_{ab} \le b_{ab} y_{ab}$
    """

    @model.Constraint(model.PIPES)
    def edge_flow(model: pyo.ConcreteModel, a: str, b: str) -> Linear:
        return model.flow[a, b] - model.rate[a, b] * model.switch[a, b] <= 0


@family
def flow_value(model: pyo.ConcreteModel) -> None:
    r"""Helix, objective: what flows out of the source.

    $\sum_i f_{si}$
    """
    model.flow_value = pyo.Expression(
        expr=sum(model.flow[a, b] for a, b in model.PIPES if a == "source")
    )


# ------------------------------------------------------------------------------------- strengthened


def _ranges(problem: FlowProblem) -> Iterator[tuple[str, int, int]]:
    """Kind, first layer and number of layers of every range."""
    for kind in problem.of_kind:
        for h in range(1, min(problem.num_layers, len(problem.tables[kind])) + 1):
            for s in range(problem.num_layers - h + 1):
                yield kind, s, h


@family
def kind_sets(model: pyo.ConcreteModel, problem: FlowProblem, most_flow: int) -> None:
    """KINDS, RANGES: (k, s, h); machines[k], their number; capacity[k, h] = min(c_k(h), U)."""
    model.KINDS = pyo.Set(initialize=list(problem.of_kind))
    model.BORDERS = pyo.Set(initialize=range(1, problem.num_layers))
    model.RANGES = pyo.Set(initialize=list(_ranges(problem)), dimen=3)
    numbers = {kind: len(own) for kind, own in problem.of_kind.items()}
    model.machines = pyo.Param(model.KINDS, initialize=numbers, mutable=True)
    capacity = {
        (kind, h): min(problem.tables[kind][h - 1], most_flow) / UNITS
        for kind, _, h in model.RANGES
    }
    model.capacity = pyo.Param(list(capacity), initialize=capacity, mutable=True)


@family
def kind_variables(model: pyo.ConcreteModel) -> None:
    r"""count[k, s, h] machines of kind k hold [s, s + h), and flow[k, s, h] passes them.

    $n_{ksh} \in \mathbb{N}$
    """
    model.count = pyo.Var(model.RANGES, domain=pyo.NonNegativeIntegers)
    model.flow = pyo.Var(model.RANGES, domain=pyo.NonNegativeReals)


@family
def kind_count(model: pyo.ConcreteModel) -> None:
    r"""Placegap (2): sum over (s, h) of count[k, s, h] <= machines[k].

    $\sum_{sh} n_{ksh} \le N_k$
    """
    own: dict[str, list[tuple[str, int, int]]] = {kind: [] for kind in model.KINDS}
    for each in model.RANGES:
        own[each[0]].append(each)

    @model.Constraint(model.KINDS)
    def kind_count(model: pyo.ConcreteModel, k: str) -> Linear:
        return sum(model.count[each] for each in own[k]) <= model.machines[k]


@family
def carry(model: pyo.ConcreteModel) -> None:
    r"""Placegap (3): flow[k, s, h] <= min(c_k(h), U) * count[k, s, h].

    $f_{ksh} \le \min(c_k(h), U) n_{ksh}$
    """

    @model.Constraint(model.RANGES)
    def carry(model: pyo.ConcreteModel, k: str, s: int, h: int) -> Linear:
        return model.flow[k, s, h] <= model.capacity[k, h] * model.count[k, s, h]


@family
def border_flow(model: pyo.ConcreteModel, problem: FlowProblem) -> None:
    r"""Placegap (4): what ranges that end at layer s pass, those that start there pass.

    $\sum_{s' + h = s} f_{ks'h} = \sum_h f_{ksh}$
    """
    start: dict[int, list[tuple[str, int, int]]] = {}
    end: dict[int, list[tuple[str, int, int]]] = {}
    for k, s, h in model.RANGES:
        start.setdefault(s, []).append((k, s, h))
        end.setdefault(s + h, []).append((k, s, h))

    @model.Constraint(model.BORDERS)
    def border_flow(model: pyo.ConcreteModel, s: int) -> Linear:
        before, after = end.get(s, ()), start.get(s, ())
        return sum(model.flow[r] for r in before) - sum(model.flow[r] for r in after) == 0


@family
def kind_value(model: pyo.ConcreteModel) -> None:
    r"""Placegap (1): what ranges with the first layer pass.

    $F = \sum_{kh} f_{k0h}$
    """
    model.flow_value = pyo.Expression(
        expr=sum(model.flow[k, s, h] for k, s, h in model.RANGES if s == 0)
    )


# ----------------------------------------------------------------------------------- plans in, out


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables to those of a feasible plan."""
    problem, ranges = instance.flow_problem, ranges_of(instance, plan)
    flow = largest_flow(problem, ranges)
    if model.form == "as_published":
        # an idle machine holds the first layer, and passes nothing
        held = [Range(0, 1) if one is None else one for one in ranges]
        names = _names(problem)
        for i, each in enumerate(held):
            model.start[names[i]].set_value(each.start)
        set_values(model.hold, {(names[i], each.layers) for i, each in enumerate(held)})
        joined = {
            (names[a], names[b]) for a, b in problem.links if problem.joins(a, b, tuple(held))
        }
        set_values(model.switch, joined)
        for (a, b), variable in zip(problem.links, model.flow.values(), strict=True):
            variable.set_value(flow.links.get((a, b), 0) / UNITS)
        return
    passed: dict[tuple[str, int, int], list[int]] = {}
    for i, one in enumerate(ranges):
        if one is not None:
            key = (problem.machines[i].kind, one.start, one.layers)
            passed.setdefault(key, []).append(flow.through(i))
    for key in model.RANGES:
        model.count[key].set_value(len(passed.get(key, ())))
        model.flow[key].set_value(sum(passed.get(key, ())) / UNITS)


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of the variables describe."""
    require_solution(model, instance, check=check)
    problem = instance.flow_problem
    ranges: list[Range | None] = [None] * problem.num_machines
    if model.form == "as_published":
        for i, name in enumerate(model.MACHINES):
            layers = round(pyo.value(_layers(model, name)))
            ranges[i] = Range(round(model.start[name].value), layers)
    else:
        free = {kind: iter(own) for kind, own in problem.of_kind.items()}
        for kind, s, h in model.RANGES:
            for _ in range(round(model.count[kind, s, h].value)):
                ranges[next(free[kind])] = Range(s, h)
    plan = plan_of(instance, tuple(ranges))
    if plan is None:
        raise InputError("no machine of the model's solution holds some layer")
    return plan
