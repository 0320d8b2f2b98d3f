"""A lower bound on max_load from sums: after the combinatorial bound of Archer et al. (ICML 2024).

Their text is not at hand; two parts are filled in here, and the larger is the bound:

- `spread_work`: all compute, split at will over the devices. Without hosts: the total over k.
- `heaviest_unit`: a unit on its best device, and what it cannot help costing there beside its own
  time. A net of unit v is paid unless all its pins join v, and then their compute is.

Integers throughout; a load is an integer, so bounds are rounded up.
"""

from __future__ import annotations

from fractions import Fraction

from placegap.formulations.archer import Units
from placegap.instances.problem.integers import UNSUPPORTED, ceil_div
from placegap.instances.problem.semantics import LoadRule


def combinatorial_bound(units: Units, load: LoadRule) -> int:
    """The larger of `spread_work` and `heaviest_unit`, in ns.

    It does not use the order of a chain; units are what chain plans keep together. A unit that no
    device takes counts for nothing: then there is no plan.

    Examples
    --------
    The diamond on two devices: 43 ns in halves are 22. The third op, of 10 ns, has its neighbours
    of 5 and 8 ns beside it or pays 20 and 10 for their tensors: 23.

    >>> from placegap.formulations.archer import build_units
    >>> from placegap.instances import example
    >>> combinatorial_bound(build_units(example()), "add")
    23
    """
    return max(spread_work(units), heaviest_unit(units, load))


def spread_work(units: Units) -> int:
    """Least T in which k accelerators and C hosts do all compute, units split at will.

    For any prices p of accelerator time and q of host time with k p + C q = 1, a plan of load T
    has T >= p (work of the accelerators) + q (work of the hosts) >= the sum over the units v of
    min(p a_v, q h_v). The best prices make some unit indifferent, p / q = h_v / a_v, or one of them
    0; O(u log u).
    """
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
    """The most that a unit makes its device do, wherever it is; O(p) for p pins.

    Each net of unit v is assigned to one other pin u, its heaviest. Either u is with v, and costs
    its time a_u, or all nets assigned to u are cut: v's device does at least the sum over the u of
    min(a_u, the weight assigned to u) on top of a_v. With ``overlap`` loads it does a_v at least.
    """
    time, weight = units.accelerators.time_ns, units.accelerators.weight_ns
    extra: list[dict[int, int]] = [{} for _ in time]
    for pins, cost in zip(units.pins, weight, strict=True):
        # of the two dearest pins of a net, each unit takes the one that it is not
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
