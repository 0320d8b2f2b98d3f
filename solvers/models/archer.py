"""Max-load of chains after Archer et al. (ICML 2024): the exact MIP, and a bound without a plan.

- ``archer-exact``: the exact MIP, for identical accelerators;
- ``archer-combinatorial``: sums (`combinatorial_bound`), in milliseconds, for clusters of any kind.

A load is a sum of op and host times, so the optimum is a multiple of their greatest common divisor,
and the bound is rounded up to one.
"""

from __future__ import annotations

from fractions import Fraction

from placegap.formulations import archer
from placegap.formulations.archer import Units, build_units
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem import LoadRule, MaxLoad
from placegap.instances.problem.integers import UNSUPPORTED, ceil_div
from placegap.solvers.chains.problem import why_not_two_kinds
from placegap.solvers.core.method import ExactParams, Formulation, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome
from placegap.solvers.models.run_mip import MIP, MipParams, run_mip, why_too_long, why_too_many_rows

STARTS = ("ideal-dp",)  # methods beside the placers whose plans the model starts from


class ArcherParams(MipParams, ExactParams):
    """Parameters of ``archer-exact``."""


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics, the devices or the size are out of reach, or None; nothing is built."""
    if task.instance.arrays.is_host.any():
        return "takes identical accelerators, and no host"
    reason = bound_applies(task, params)
    if reason is not None:
        return reason
    return (
        why_too_long(archer.horizon_ns(task.instance))
        or why_too_many_rows(archer.count_rows(task.instance))
        or why_not_two_kinds(task.instance)
    )


def bound_applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics are out of reach, or None."""
    reason = archer.why_not(task.semantics)
    return None if reason is None else f"its model {reason}"


def formulation(task: Task[MaxLoad], params: ArcherParams) -> Formulation:
    """The model of a task, and how plans get into it and out of it."""
    instance, semantics = task.instance, task.semantics
    return Formulation(
        name="archer-exact",
        starts=STARTS,
        granularity_ns=granularity_ns(instance, transfers=False),
        build=lambda start: archer.build(instance, semantics),
        warm_start=lambda model, plan: archer.warm_start(model, instance, plan),
        extract=lambda model: archer.extract(model, instance, check=False),
    )


@method(
    "archer-exact",
    objectives=("max_load",),
    claim="exact",
    cites="Archer et al. 2024",
    scope="max_load, chain plans, identical accelerators",
    applies=applies,
    formulation=formulation,
    packages=MIP,
    solver="HiGHS",
)
def run_exact(task: Task[MaxLoad], params: ArcherParams) -> Outcome:
    """Integer program over the blocks of a chain."""
    return run_mip(task, formulation(task, params), params.solver)


def combinatorial_bound(units: Units, load: LoadRule) -> int:
    """The larger of `spread_work` and `heaviest_unit`, in ns."""
    # It does not use the order of a chain; units are what chain plans keep together. A unit that no
    # device takes counts for nothing: then there is no plan.
    return max(spread_work(units), heaviest_unit(units, load))


def spread_work(units: Units) -> int:
    """Least T in which k accelerators and C hosts do all compute, units split at will."""
    # For any prices p of accelerator time and q of host time with k p + C q = 1, a plan of load T
    # has T >= p (work of the accelerators) + q (work of the hosts) >= the sum over the units v of
    # min(p a_v, q h_v). The best prices make some unit indifferent, p / q = h_v / a_v, or one of
    # them 0; O(u log u).
    k, hosts = units.num_accelerators, units.num_hosts
    pairs = list(zip(units.accelerators.time_ns, units.hosts.time_ns, strict=True))
    # sums of compute on accelerators and on hosts, as the ratio h / a falls
    on_accelerators = sum(a for a, h in pairs if h == UNSUPPORTED and a != UNSUPPORTED)
    on_hosts = sum(h for a, h in pairs if h != UNSUPPORTED)
    best = ceil_div(on_accelerators, k)
    on_both = [(a, h) for a, h in pairs if a > 0 and h != UNSUPPORTED]
    on_hosts -= sum(h for a, h in pairs if a == 0 and h != UNSUPPORTED)
    for a, h in sorted(on_both, key=lambda pair: Fraction(pair[1], pair[0]), reverse=True):
        on_accelerators, on_hosts = on_accelerators + a, on_hosts - h
        if h:
            best = max(best, ceil_div(h * on_accelerators + a * on_hosts, k * h + hosts * a))
    return max(best, ceil_div(on_hosts, hosts)) if hosts else best


def heaviest_unit(units: Units, load: LoadRule) -> int:
    """The most that a unit makes its device do, wherever it is; O(p) for p pins."""
    # Each net of unit v is assigned to one other pin u, its heaviest. Either u is with v, and costs
    # its time a_u, or all nets assigned to u are cut: v's device does at least the sum over the u
    # of min(a_u, the weight assigned to u) on top of a_v. With ``overlap`` loads it does a_v at
    # least.
    time, weight = units.accelerators.time_ns, units.accelerators.weight_ns
    extra: list[dict[int, int]] = [{} for _ in time]
    for pins, cost in zip(units.pins, weight, strict=True):
        # of the two most expensive pins of a net, each unit takes the one that it is not
        dear = sorted(pins, key=lambda u: (time[u] != UNSUPPORTED, -time[u], u))[:2]
        for v in pins:
            other = dear[1] if v == dear[0] else dear[0]
            extra[v][other] = extra[v].get(other, 0) + cost
    best = 0
    for v, (own, on_host) in enumerate(zip(time, units.hosts.time_ns, strict=True)):
        choices = [] if on_host == UNSUPPORTED else [on_host]
        if own != UNSUPPORTED:
            joined = sum(
                cost if time[u] == UNSUPPORTED else min(time[u], cost)
                for u, cost in extra[v].items()
            )
            choices.append(own + (joined if load == "add" else 0))
        best = max(best, min(choices, default=0))
    return best


@method(
    "archer-combinatorial",
    objectives=("max_load",),
    claim="bound",
    cites="Archer et al. 2024",
    scope="max_load, chain plans",
    applies=bound_applies,
)
def run_combinatorial(task: Task[MaxLoad], params: Params) -> Outcome:
    """The work spread over all devices, the heaviest unit."""
    least = combinatorial_bound(build_units(task.instance), task.semantics.load)
    granularity = granularity_ns(task.instance, transfers=False)
    return Outcome(bound=Bound(granularity * ceil_div(least, granularity), "archer combinatorial"))
