"""Section plans that fit together into memory: a shortest path with a limit per device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.decomposition.arcs import Use, lower_table
from placegap.solvers.decomposition.chain import Chain

MOST_LABELS = 32
"""Partial paths that are kept per cut and device."""


class Label(NamedTuple):
    """A path up to a cut: its length, the bytes it needs per device, and how it came there."""

    length_ns: int
    need: tuple[int, ...]
    use: Use | None
    before: Label | None


def fitting_path(instance: Instance, tiles: Chain, limit_ns: int) -> tuple[int, list[Use]]:
    """A short path of arcs with plans that fit into memory together; `NO_WAY` if none is found.

    Labels are extended section by section. Of two at the same cut and device, one that is no
    shorter and needs no less anywhere is dropped, and so is what cannot end within the limit; what
    remains beyond `MOST_LABELS` as well, so that this is a heuristic.
    """
    capacity = instance.arrays.memory_bytes.tolist()
    _, back = tiles.distances(lower_table)
    none = tuple(0 for _ in capacity)
    labels = [[Label(int(length), none, None, None)] for length in tiles.before_ns]
    for uses, rest in zip(tiles.uses, back[1:], strict=True):
        found: list[list[Label]] = [[] for _ in rest]
        for here, row in zip(labels, uses, strict=True):
            for b, use in enumerate(row):
                upper, most = use.arc.upper_ns, limit_ns - int(rest[b])
                if upper is None or not here or here[0].length_ns + upper > most:
                    continue
                need = _need(instance, use)
                for label in here:
                    total = tuple(x + y for x, y in zip(label.need, need, strict=True))
                    length = label.length_ns + upper
                    if length <= most and all(x <= y for x, y in zip(total, capacity, strict=True)):
                        found[b].append(Label(length, total, use, label))
        labels = [_undominated(here) for here in found]
    ends = [label for here in labels for label in here[:1]]
    if not ends:
        return NO_WAY, []
    at: Label | None = min(ends, key=lambda label: label.length_ns)
    assert at is not None
    length, path = at.length_ns, []
    while at is not None and at.use is not None:
        path.append(at.use)
        at = at.before
    return length, path[::-1]


def _need(instance: Instance, use: Use) -> tuple[int, ...]:
    """Bytes per device of a section's ops, its entry aside: that belongs to the section before."""
    section, plan = use.section, use.arc.plan
    need = np.zeros(instance.num_devices, np.int64)
    first = section.entry is not None
    if plan is not None:
        device = np.argsort(use.names)[plan.devices]
        np.add.at(need, device[first:], instance.arrays.resident_bytes[list(section.ops[first:])])
    elif use.leave is not None:
        need[use.leave] = instance.arrays.resident_bytes[section.ops[-1]]
    return tuple(need.tolist())


def _undominated(labels: list[Label]) -> list[Label]:
    kept: list[Label] = []
    for label in sorted(labels, key=lambda label: (label.length_ns, label.need)):
        if len(kept) == MOST_LABELS:
            break
        if not any(
            all(x <= y for x, y in zip(other.need, label.need, strict=True)) for other in kept
        ):
            kept.append(label)
    return kept
