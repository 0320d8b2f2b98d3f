"""The best bound that is known for a plan: from files, from sums, or from a method run now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from placegap.formulations.getf_lp import critical_path_ns
from placegap.instances.corpus import known_of
from placegap.instances.model import Instance
from placegap.instances.semantics import PLAN_CLASSES, Semantics
from placegap.instances.transfer import ceil_div
from placegap.solvers.result import Result
from placegap.solvers.trust import PROOF


@dataclass(frozen=True)
class Bound:
    """A lower bound on all plans of a semantics: who proved it, and what it rests on."""

    bound_ns: int
    origin: str
    rests_on: str = ""


def best_bound(bounds: Iterable[Bound]) -> Bound | None:
    """The highest; of equal ones a proof of ours, else the first.

    Examples
    --------
    >>> best_bound([Bound(5, "cp-sat", "CP-SAT 9"), Bound(5, "path", PROOF)]).origin
    'path'
    """
    return max(bounds, key=lambda bound: (bound.bound_ns, bound.rests_on == PROOF), default=None)


def recorded_bounds(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """Bounds that the corpus or the instance's file records, also of wider classes of plans."""
    for plans in (
        PLAN_CLASSES[PLAN_CLASSES.index(semantics.plans) :]
        if semantics.is_load
        else [semantics.plans]
    ):
        for known in known_of(instance, semantics.model_copy(update={"plans": plans})):
            if known.bound_ns is not None:
                origin = known.bound_origin or "not said by whom"
                yield Bound(known.bound_ns, f"recorded: {origin}", known.rests_on)


def recorded_value_ns(instance: Instance, semantics: Semantics) -> int | None:
    """The best value that is recorded under the same semantics."""
    values = (known.value_ns for known in known_of(instance, semantics))
    return min((value for value in values if value is not None), default=None)


def cheap_bounds(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """The longest path, or the work shared evenly, at every op's least time; linear time."""
    if semantics.objective == "makespan":
        yield Bound(critical_path_ns(instance), "critical path", PROOF)
        return
    kinds = [device.kind for device in instance.cluster.devices]
    ops = instance.graph.ops
    least = [min(op.time_ns[kind] for kind in kinds if kind in op.time_ns) for op in ops]
    if semantics.objective == "latency_subgraphs":
        index = instance.arrays.index
        end = list(least)
        for i in index.topological_order.tolist():
            for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
                j = int(index.consumer[e])
                end[j] = max(end[j], end[i] + least[j])
        yield Bound(max(end), "critical path", PROOF)
        return
    passes = [[False], [True]] if semantics.objective == "max_load_fwd_bwd" else [[False, True]]
    work = 0
    for which in passes:
        total = sum(ns for op, ns in zip(ops, least, strict=True) if op.backward in which)
        work += ceil_div(total, len(kinds))
    yield Bound(work, "work", PROOF)


def bound_of(result: Result) -> Iterator[Bound]:
    """What a method proved just now."""
    if result.bound_ns is not None and result.split is None:
        yield Bound(result.bound_ns, result.bound_origin or result.method, result.rests_on)
