"""Write certificates: bounds that the stand-alone checker is sure to prove again.

Those of a makespan are prices of repeated layers, a chain of sections, where the arcs of shortest
paths are proven by trees of cases (`section_lp`), or one tree of the whole. What a proof proves is
always computed by the code of the checker, so that it finds no less.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain as in_turn
from typing import Any

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.certificates.certificate_checker import Able, Rejected
from placegap.instances.certificates.certificate_file import (
    ArcRow,
    Branch,
    Certificate,
    ChainProof,
    IdealsProof,
    LayersProof,
    Leaf,
    LongestProof,
    MachinePrices,
    PathProof,
    PricesProof,
    Proof,
    SectionArc,
    StagesProof,
    TreeProof,
    WorkProof,
    certificate_of,
    plain_document,
)
from placegap.instances.certificates.certificate_hybrid import HybridLayers, plan_within
from placegap.instances.certificates.certificate_ideals import IdealBlocks, chain_within
from placegap.instances.certificates.certificate_layers import LayerTerms
from placegap.instances.problem import (
    HybridPipeline,
    Instance,
    Loads,
    Makespan,
    Semantics,
    ServingFlow,
)
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.solvers.bounds.certificates.section_lp import (
    MOST_ROUTES,
    SectionLp,
    grow_tree,
    num_routes,
)
from placegap.solvers.bounds.cheap_bounds import quick_bound, spread_weights
from placegap.solvers.core.clock import Clock, LimitReached, stop_requested
from placegap.solvers.repeated_layers.layer_bound import LayerProof, prove_layers
from placegap.solvers.repeated_layers.sections import Bottlenecks, bottlenecks_of

# Seconds that `Terms` takes for each op and edge, and for each edge and pair of devices.
S_PER_PART, S_PER_MOVE = 30e-6, 0.6e-6
MOST_MOVES = 50_000_000  # times of edges from device to device that are held in memory: 2 GB
LEAVES = (1, 8, 64, 512)  # leaves of the trees of arcs, round by round
Proved = tuple[Any, Proof]  # a bound, and its proof
MOST_PARTS = 20_000  # ops and edges of an instance; in larger ones no sections are tried

MOST_LEAVES = 200

MOST_HALVES = 8  # checks of ideals: the target, then half-way between a proven and an open bound


def certify(
    instance: Instance,
    semantics: Semantics,
    time_limit_s: float | None = None,
    target_ns: float = math.inf,
) -> Certificate | None:
    """The certificate with the highest bound found in time, or None.

    None is written for latency_subgraphs, pipeline_iteration and max_context, for hybrid plans with
    a bubble, and if no device can run or hold some op.

    Parameters
    ----------
    instance, semantics
        The problem and its objective.
    time_limit_s : float, optional
        The cheapest certificate is written in any case.
    target_ns : float
        Stop at this bound, such as the best one known.

    Examples
    --------
    >>> from placegap.instances import example
    >>> certify(example(), Makespan()).bound_ns
    34
    """
    write = WRITERS.get(semantics.folder)
    return None if write is None else write(instance, semantics, Clock(time_limit_s), target_ns)


def _certify_times(
    instance: Instance,
    semantics: Semantics,
    clock: Clock,
    target_ns: float,
    *,
    more_proofs: Callable[..., Iterator[Proved]],
) -> Certificate | None:
    """The best of what work proves and of an objective's own proofs."""
    is_load = more_proofs is _load_proofs
    cheapest = _cheapest(instance, has_longest=is_load and not semantics.has_replicas)
    if not fits(instance, clock):
        return certificate_of(instance, semantics, *cheapest)
    parts = checked_parts(instance)
    problem = TimedTerms(parts, semantics.model_dump(mode="json"), clock)
    if not all(problem.able.values()):
        return None
    # a limit may end any of the proofs: the best one before it counts. An infinite bound says that
    # there is no plan, which no certificate states.
    best = cheapest
    possible, together = colocated_times(instance)
    work = WorkProof(weights=tuple(spread_weights(together, possible)[1]))
    with suppress(LimitReached):
        least = problem.work({"weights": list(work.weights)})
        more = more_proofs(instance, problem, parts, semantics, least, target_ns)
        for bound, proof in in_turn([(least, work)], more):
            if best[0] < bound < math.inf:
                best = bound, proof
            if best[0] >= target_ns:
                break
    return certificate_of(instance, semantics, *best)


def checked_parts(instance: Instance) -> dict[str, Any]:
    """The parts of an instance's file that the checker reads."""
    document = plain_document(instance)
    graph, cluster = document["graph"], document["cluster"]
    return {
        "devices": cluster["devices"],
        "links": cluster.get("links", []),
        "edges": graph.get("edges", []),
        "ops": graph["ops"],
    }


def _cheapest(instance: Instance, *, has_longest: bool) -> Proved:
    """Work, or the longest group, on arrays; the checker finds no less, as memory is left out."""
    arrays = instance.arrays
    runs, total = arrays.group_runs, np.zeros(arrays.group_runs.shape, np.int64)
    np.add.at(total, arrays.group, arrays.time_ns.clip(0))
    work, weights = spread_weights(total, runs)
    if has_longest:
        longest = int(np.where(runs, total, NEVER).min(axis=1).max())
        if work < longest < NEVER:
            return longest, LongestProof()
    return work, WorkProof(weights=tuple(weights))


def _load_proofs(
    instance: Instance,
    problem: TimedTerms,
    parts: dict[str, Any],
    semantics: Loads,
    least: int,
    target_ns: float,
) -> Iterator[Proved]:
    """The longest group, and that no chain is better."""
    if not semantics.has_replicas:
        least = max(least, longest := problem.longest({}))
        yield longest, LongestProof()
    yield from _no_chain_below(problem, parts, semantics, least, target_ns)


def _pass_proofs(
    instance: Instance,
    problem: TimedTerms,
    parts: dict[str, Any],
    semantics: Makespan,
    least: int,
    target_ns: float,
) -> Iterator[Proved]:
    """Paths, layers, chains and sections, cheapest first; each is computed when it is needed."""
    clock = problem.clock
    clock.check()
    # A chain of sections has small LPs, and half of the time; the tree of the whole has one large
    # LP, with a window for each section, which sees what crosses sections.
    yield problem.path({}), PathProof()
    yield from filter(None, [_prove_layers(instance, semantics, problem)])
    if clock.left_s == 0 or len(problem.time) + len(problem.edges) > MOST_PARTS:
        return
    yield from filter(None, [prove_chain(instance, problem, clock.part(0.5))])
    if num_routes(problem, problem.able) <= MOST_ROUTES:
        windows = [s.ops for s in choose_chain(instance, intervals(instance)) if s.num_inner > 1]
        lp = SectionLp(problem, problem.able, windows=(None, *windows), clock=clock)
        tree, bound = grow_tree(
            lp, problem.able, most_leaves=MOST_LEAVES, target_ns=target_ns, clock=clock
        )
        yield bound, TreeProof(tree=tree)


def _no_chain_below(
    problem: TimedTerms, parts: dict[str, Any], semantics: Loads, least: int, target_ns: float
) -> Iterator[Proved]:
    """What the check of ideals proves: the target, or as much as it does in the time."""
    is_plain = semantics.plans == "chain" and semantics == semantics.together
    if not is_plain or not least < target_ns < math.inf:
        return
    clock, overlap = problem.clock, semantics.load == "overlap"
    try:
        blocks = IdealBlocks(problem, parts, clock.check)
    except Rejected:  # too large
        return
    within = partial(chain_within, blocks, overlap=overlap)
    for bound in _by_halves(within, least, int(target_ns), clock):
        yield bound, IdealsProof()


def _certify_stages(
    instance: Instance, semantics: HybridPipeline, clock: Clock, target_ns: float
) -> Certificate | None:
    """What the check of rows of stages proves: the target, or as much as it does in the time."""
    if semantics.bubble:
        return None
    least = quick_bound(instance, semantics).value
    target = least if target_ns == math.inf else int(target_ns)
    rules = semantics.model_dump(mode="json")
    proven = 0
    with suppress(LimitReached, Rejected):
        layers = HybridLayers(checked_parts(instance), rules)
        for bound in _by_halves(partial(plan_within, layers, rules), 0, target, clock):
            proven = bound
    return certificate_of(instance, semantics, proven, StagesProof()) if proven else None


def _certify_flow(
    instance: Instance, semantics: ServingFlow, clock: Clock, target: float
) -> Certificate | None:
    """What prices of machines prove, down to the target: no plan passes more."""
    from placegap.solvers.bounds.flow_prices import PriceSearch

    search = PriceSearch(instance.flow_problem, clock)
    with suppress(LimitReached):
        for _ in search.prove(0 if target == math.inf else int(target) - 1):
            pass
    best = search.best
    if best is None:
        return None
    proof = PricesProof(grid=best.grid, prices=best.prices)
    return certificate_of(instance, semantics, best.bound, proof)


# By objective, where certificates can be checked.
WRITERS: Mapping[str, Callable[..., Certificate | None]] = {
    "makespan": partial(_certify_times, more_proofs=_pass_proofs),
    "max_load": partial(_certify_times, more_proofs=_load_proofs),
    "hybrid": _certify_stages,
    "flow": _certify_flow,
}


def _by_halves(within: Callable[..., bool], least: int, target: int, clock: Clock) -> Iterator[int]:
    """Bounds that a check proves: the target, or ever higher ones half-way to an unproven one."""
    # A check only decides whether some plan is below a limit. Low limits are refuted sooner, as few
    # partial plans stay below them: a check that takes too long is repeated with a lower limit.
    trial = most = target
    for _ in range(MOST_HALVES):
        try:
            if within(limit=trial - 1, tick=clock.part(0.5).check):
                return  # a plan is below it: the target is no bound
            least = trial
            yield trial
        except (LimitReached, Rejected):
            clock.check()
            most = trial
        if most - least <= 1:
            return
        trial = (least + most) // 2


def _prove_layers(
    instance: Instance, semantics: Makespan, problem: TimedTerms
) -> tuple[Any, LayersProof] | None:
    """What prices of layers between bottlenecks prove; None where there are no two of these."""
    bottlenecks = bottlenecks_of(instance)
    if len(bottlenecks.ops) < 2:
        return None
    found = prove_layers(instance, semantics, bottlenecks, problem.clock.is_over)
    if found is None:
        return None
    proof = layers_proof(bottlenecks, found)
    return problem.layers(proof.model_dump(mode="json")), proof


def layers_proof(bottlenecks: Bottlenecks, found: LayerProof) -> LayersProof:
    """The prices of a bound as the checker reads them: those of a kind for all of its windows."""
    numbers, rows = defaultdict[int, list[int]](list), list[MachinePrices]()
    num = found.windows.time_ns.shape[1]
    for kind, a, b in sorted(found.prices):
        price = found.prices[kind, a, b].tolist()
        channels = tuple((c, p) for c, p in enumerate(price[num:]) if p)
        numbers[kind].append(len(rows))
        rows.append(MachinePrices(devices=tuple(price[:num]), channels=channels))
    return LayersProof(
        ops=tuple(bottlenecks.ops.tolist()),
        prices=tuple(rows),
        windows=tuple(tuple(numbers[kind]) for kind in found.windows.which),
    )


def prove_chain(
    instance: Instance, problem: TimedTerms, clock: Clock
) -> tuple[Any, ChainProof] | None:
    """A chain through an instance, as far as it is proven in the time; None without one."""
    # The bound is infinite where there is no plan.
    chain = choose_chain(instance, intervals(instance))
    if not chain:
        return None
    # before the chain's first op and after its last one, paths count
    before = problem.ends(problem.order)[chain[0].ops[0]]
    tails = problem.ends(problem.order[::-1], back=True)
    sections = list[_Section]()
    for section in chain:  # the chain ends where half of the time is over
        if 2 * clock.spent_s > (clock.limit_s or math.inf) or stop_requested():
            break
        with suppress(LimitReached):
            sections.append(_section(problem, section.ops))
    if not sections:
        return None
    last = sections[-1].ops[-1]
    after = [
        tails[last][k] - problem.time[last][k] if k in problem.able[last] else math.inf
        for k in range(problem.num)
    ]
    # Only arcs on a shortest path matter. They get trees of as many leaves as the round has, until
    # all arcs of some shortest path have them; the path changes whenever an arc is raised.
    with suppress(LimitReached):
        for leaves in LEAVES:
            while not stop_requested():
                clock.check()
                path, _ = _shortest(before, after, sections)
                arcs = list(zip(sections, path, path[1:], strict=False))
                done = [_refine(problem, section, (a, b), leaves, clock) for section, a, b in arcs]
                if all(done):
                    break
    return _shortest(before, after, sections)[1], ChainProof(
        ops=(sections[0].ops[0], *(section.ops[-1] for section in sections)),
        arcs=tuple(section.arc() for section in sections),
    )


@dataclass
class _Section:
    """A section, the bounds of its arcs by devices, and the trees that prove them."""

    ops: tuple[int, ...]
    able: Able
    table: list[list[Any]]
    trees: dict[tuple[int, int], tuple[int, Branch | Leaf]] = field(default_factory=dict)

    def arc(self) -> SectionArc:
        rows = (
            ArcRow(start=a, end=b, tree=tree) for (a, b), (_, tree) in sorted(self.trees.items())
        )
        return SectionArc(inside=self.ops[1:-1], rows=tuple(rows))


def _section(problem: TimedTerms, ops: tuple[int, ...]) -> _Section:
    """A section whose arcs are proven by paths."""
    able = problem.between(list(ops))
    return _Section(ops, able, problem.paths(able, ops[0], ops[-1]))


def _refine(
    problem: TimedTerms, section: _Section, ends: tuple[int, int], leaves: int, clock: Clock
) -> bool:
    """Grow the tree of an arc to some leaves; whether there was nothing to do."""
    # with both ends given, a section of two ops has nothing to branch over
    (a, b), (first, last) = ends, (section.ops[0], section.ops[-1])
    if len(section.ops) == 2 or section.table[a][b] == math.inf:
        return True
    if ends in section.trees and section.trees[ends][0] >= leaves:
        return True
    if clock.is_over():
        return False
    able = section.able | {first: frozenset({a}), last: frozenset({b})}
    if num_routes(problem, able) > MOST_ROUTES:
        return True
    lp = SectionLp(problem, able, first, clock=clock)
    tree, bound = grow_tree(lp, able, most_leaves=leaves, clock=clock)
    if ends in section.trees and bound < section.table[a][b]:  # the clock cut the new tree short
        tree = section.trees[ends][1]
    section.trees[ends] = leaves, tree
    section.table[a][b] = max(section.table[a][b], bound)
    return False


def _shortest(
    before: list[Any], after: list[Any], sections: list[_Section]
) -> tuple[list[int], Any]:
    """Devices of the ops along a shortest path, the lowest if several tie; and its length."""
    rest = [after]
    for section in reversed(sections):
        rest.append([min(map(sum, zip(row, rest[-1], strict=True))) for row in section.table])
    rest.reverse()
    length, at = min((before[k] + ns, k) for k, ns in enumerate(rest[0]))
    path = [at]
    for section, left in zip(sections, rest[1:], strict=True):
        row = section.table[at]
        at = min((row[k] + ns, k) for k, ns in enumerate(left))[1]
        path.append(at)
    return path, length


def fits(instance: Instance, clock: Clock) -> bool:
    """Whether the checker's view can be made in the time left; it cannot be interrupted."""
    num_edges, left_s = len(instance.graph.edges), clock.left_s
    moves = num_edges * instance.num_devices**2
    takes_s = S_PER_PART * (instance.num_ops + num_edges) + S_PER_MOVE * moves
    return moves <= MOST_MOVES and (left_s is None or takes_s < left_s)


class TimedTerms(LayerTerms):
    """The checker's view; what takes long raises `LimitReached` when the time is over."""

    def __init__(self, parts: dict[str, Any], rules: dict[str, Any], clock: Clock) -> None:
        # The clock may be replaced by that of a part of the work.
        self.clock = clock
        self._whole = dict[bool, dict[int, list[Any]]]()
        super().__init__(parts, rules)

    def ends(self, order: Any, back: bool = False, start: Any = None) -> dict[int, list[Any]]:
        """Least ends of ops; those of the whole instance are computed once."""
        whole = start is None and len(order) == len(self.order)
        if whole and back in self._whole:
            return self._whole[back]
        found = super().ends(self._watched(order), back, start)
        if whole:
            self._whole[back] = found
        return found

    def _watched(self, order: list[int]) -> Iterator[int]:
        """The ops, with a look at the clock at each."""
        for i in order:
            self.clock.check()
            yield i
