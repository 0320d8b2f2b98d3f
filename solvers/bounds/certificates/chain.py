"""A chain of sections, of which the arcs of shortest paths are proven by trees of cases."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from placegap.instances.io.certificate_checker import Able
from placegap.instances.io.certificate_file import ArcRow, Branch, ChainProof, Leaf, SectionArc
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.solvers.bounds.certificates.multipliers import MOST_ROUTES, SectionLp, num_routes
from placegap.solvers.bounds.certificates.timed_terms import TimedTerms
from placegap.solvers.bounds.certificates.tree import grow_tree
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.interrupts import stop_asked

LEAVES = (1, 8, 64, 512)
"""Of the trees of arcs, round by round."""


@dataclass
class _Section:
    """A section, what is proven of its arcs by devices, and by which trees."""

    ops: tuple[int, ...]
    able: Able
    table: list[list[Any]]
    trees: dict[tuple[int, int], tuple[int, Branch | Leaf]] = field(default_factory=dict)

    def arc(self) -> SectionArc:
        rows = (
            ArcRow(start=a, end=b, tree=tree) for (a, b), (_, tree) in sorted(self.trees.items())
        )
        return SectionArc(inside=self.ops[1:-1], rows=tuple(rows))


def prove_chain(
    instance: Instance, problem: TimedTerms, clock: Clock
) -> tuple[Any, ChainProof] | None:
    """A chain through an instance, as far as it is proven when the time is over; None without one.

    Parameters
    ----------
    instance : Instance
    problem : TimedTerms
        The checker's view of it, under a makespan.
    clock : Clock

    Returns
    -------
    tuple of (int, ChainProof), or None
        The bound comes first; it is infinite where there is no plan.
    """
    chain = choose_chain(instance, intervals(instance))
    if not chain:
        return None
    before = problem.ends(problem.order)[chain[0].ops[0]]
    tails = problem.ends(problem.order[::-1], back=True)
    sections = list[_Section]()
    for section in chain:  # the chain ends where half of the time is over
        if 2 * clock.spent_s > (clock.limit_s or math.inf) or stop_asked():
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
    with suppress(LimitReached):
        for leaves in LEAVES:
            while not stop_asked():
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


def _section(problem: TimedTerms, ops: tuple[int, ...]) -> _Section:
    able = problem.between(list(ops))
    return _Section(ops, able, problem.paths(able, ops[0], ops[-1]))


def _refine(
    problem: TimedTerms, section: _Section, ends: tuple[int, int], leaves: int, clock: Clock
) -> bool:
    """Prove more of an arc, unless as many leaves have; whether there was nothing to do."""
    (a, b), (first, last) = ends, (section.ops[0], section.ops[-1])
    if len(section.ops) == 2 or section.table[a][b] == math.inf:
        return True
    if ends in section.trees and section.trees[ends][0] >= leaves:
        return True
    if stop_asked() or clock.left_s == 0:
        return False
    able = section.able | {first: frozenset({a}), last: frozenset({b})}
    if num_routes(problem, able) > MOST_ROUTES:
        return True
    lp = SectionLp(problem, able, first, clock=clock)
    tree, bound = grow_tree(lp, able, most_leaves=leaves, clock=clock)
    section.trees[ends] = leaves, tree
    section.table[a][b] = max(section.table[a][b], bound)
    return False


def _shortest(
    before: list[Any], after: list[Any], sections: list[_Section]
) -> tuple[list[int], Any]:
    """Devices of the ops along a shortest path, the lowest of equal ones; and its length."""
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
