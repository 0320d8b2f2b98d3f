"""max_load and max_load_fwd_bwd: a dynamic program, column generation and a MIP prove.

The dynamic program settles most instances where plans are chains. Where they may be any, column
generation comes near the optimum, and leaves the proof of small instances to the throughput IP,
which is also the only one for all other rules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, Loads, MaxLoad
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.cheap_bounds import LONGEST, WORK, spread_bound
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import LARGE_PARTS, TURN_SHARE, Step, Strategy
from placegap.solvers.core.result import Bound

ALONE = {"start": False}  # placers have run before
FIRST_SHARE = 0.15  # of the time that is left, for a first annealing
ANNEALED = {"restarts": 1, "anneal": True}  # descents from many starts end far above annealing


def quick_bound(instance: Instance, semantics: Loads) -> Bound:
    """The longest op where it is fastest, or all work spread over the devices."""
    possible, together = colocated_times(instance)
    if not possible.any(axis=1).all():
        return Bound(0, LONGEST)  # some ops can be nowhere
    if not isinstance(semantics, MaxLoad):
        return _two_passes(instance, possible)
    # replicas may share the longest one
    least = np.where(possible, together, NO_WAY).min(axis=1)
    longest = 0 if semantics.replicas else int(least.max())
    work = spread_bound(together, possible)
    return max(Bound(longest, LONGEST), Bound(work, WORK), key=Bound.rank)


def _two_passes(instance: Instance, possible: Flags) -> Bound:
    """Forward and backward loads are added up, and so are what work and longest ops prove."""
    arrays, total, work = instance.arrays, 0, 0
    for backward in (False, True):
        time = np.where(arrays.backward[:, None] == backward, arrays.time_ns, 0).clip(0)
        together = np.zeros(possible.shape, np.int64)
        np.add.at(together, arrays.group, time)
        spread = spread_bound(together, possible)
        work += spread
        total += max(spread, int(np.where(possible, together, NO_WAY).min(axis=1).max()))
    return Bound(total, WORK if total == work else LONGEST)


def strategy(task: Task[Loads]) -> Strategy:
    """Provers by the class of plans; chains and any plans also begin the search."""
    rules = task.semantics
    first_plans = []
    if rules.plans != "chain":
        first_plans.append(Step("ideal-dp", rules.with_plans("chain"), TURN_SHARE, ALONE))
    annealing = Step("local-search", rules, params=ANNEALED)
    if rules.plans != "any":
        # An early plan lowers the limit of the dynamic program. The bound of any plans holds, too.
        first_plans.append(replace(annealing, share=FIRST_SHARE))
        first_plans.append(Step("noncontiguous", rules.with_plans("any"), TURN_SHARE, ALONE))
    is_one, provers, proofs = isinstance(rules, MaxLoad), _provers(rules), tuple[Step, ...]()
    if not is_one:  # the larger of the loads is a bound, and its plan is one
        first = Step(_provers(rules.together)[0].method, rules.together, TURN_SHARE, ALONE)
        proofs = (first, *provers)
    return Strategy(
        provers=provers,
        proofs=proofs,
        first_plans=tuple(first_plans),
        searches=(annealing,),
        bound_methods=(("archer-combinatorial", 6.0, 1_000_000),) if is_one else (),
        placers_of="max_load",
        explains_memory=True,
    )


def _provers(rules: Loads) -> tuple[Step, ...]:
    """The exact method that settles most instances, then others."""
    ip = Step("throughput-ip", rules, most_parts=LARGE_PARTS)
    match rules:
        case MaxLoad(plans="chain"):
            archer = Step("archer-exact", rules, most_parts=LARGE_PARTS)
            return Step("ideal-dp", rules), archer, ip
        case MaxLoad(plans="any", replicas=False, levels=1):
            return Step("noncontiguous", rules), ip
        case _:
            return (ip,)
