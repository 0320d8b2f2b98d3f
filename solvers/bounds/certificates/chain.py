"""A chain of sections, of which the arcs of shortest paths are proven by trees of cases."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from placegap.instances.files.certificate_checker import Able, Terms
from placegap.instances.files.certificate_file import ArcRow, Branch, ChainProof, Leaf, SectionArc
from placegap.instances.problem.instance import Instance
from placegap.instances.structure.intervals import choose_chain, intervals
from placegap.solvers.bounds.certificates.multipliers import SectionLp
from placegap.solvers.bounds.certificates.tree import grow_tree
from placegap.solvers.core.clock import Clock
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


def prove_chain(instance: Instance, problem: Terms, clock: Clock) -> ChainProof | None:
    """A chain through an instance, as far as it is proven when the time is over; None without one.

    Parameters
    ----------
    instance : Instance
    problem : Terms
        The checker's view of it, under a makespan.
    clock : Clock
    """
    chain = choose_chain(instance, intervals(instance))
    if not chain:
        return None
    sections = [_section(problem, section.ops) for section in chain]
    before = problem.ends(problem.order)[sections[0].ops[0]]
    last = sections[-1].ops[-1]
    tail = problem.ends(problem.order[::-1], back=True)[last]
    after = [
        tail[k] - problem.time[last][k] if k in problem.able[last] else math.inf
        for k in range(problem.num)
    ]
    for leaves in LEAVES:
        while not (stop_asked() or clock.left_s == 0):
            path = _shortest(before, after, sections)
            arcs = list(zip(sections, path, path[1:], strict=False))
            done = [_refine(problem, section, (a, b), leaves, clock) for section, a, b in arcs]
            if all(done):
                break
    return ChainProof(
        ops=(sections[0].ops[0], *(section.ops[-1] for section in sections)),
        arcs=tuple(section.arc() for section in sections),
    )


def _section(problem: Terms, ops: tuple[int, ...]) -> _Section:
    able = problem.between(list(ops))
    return _Section(ops, able, problem.paths(able, ops[0], ops[-1]))


def _refine(
    problem: Terms, section: _Section, ends: tuple[int, int], leaves: int, clock: Clock
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
    tree, bound = grow_tree(SectionLp(problem, able, first), able, most_leaves=leaves, clock=clock)
    section.trees[ends] = leaves, tree
    section.table[a][b] = max(section.table[a][b], bound)
    return False


def _shortest(before: list[Any], after: list[Any], sections: list[_Section]) -> list[int]:
    """Devices of the ops of the chain along a shortest path, the lowest of equal ones."""
    rest = [after]
    for section in reversed(sections):
        rest.append([min(map(sum, zip(row, rest[-1], strict=True))) for row in section.table])
    rest.reverse()
    at = min(range(len(before)), key=lambda k: (before[k] + rest[0][k], k))
    path = [at]
    for section, left in zip(sections, rest[1:], strict=True):
        row = section.table[at]
        at = min((row[k] + ns, k) for k, ns in enumerate(left))[1]
        path.append(at)
    return path
