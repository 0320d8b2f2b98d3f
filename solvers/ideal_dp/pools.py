"""Pools: devices that share stages out among them, counted by classes of interchangeable ones.

A stage runs on one device or, where replicas are allowed, on several equal ones, which then sum up
the stage's parameters over the narrowest link between any two of them. So equal devices are
interchangeable only if the same bandwidths lead to all others: those form a class. A state of the
ideal DP counts how many devices of each class are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.links import widest_paths

NO_SYNC, NO_PATH = (0, 1), (1, 0)
"""Nothing to sum up; and no links to sum up parameters over."""


class Stage(NamedTuple):
    """A way to run a set of blocks.

    Attributes
    ----------
    kind : int
        Kind of all its devices.
    uses : tuple of int
        How many devices of each class it takes.
    replicas : int
        How many in all.
    sync : (int, int)
        A fraction: with P bytes of parameters the devices take ceil(P * fraction) ns to sum them
        up. `NO_PATH`: there must be no parameters.
    """

    kind: int
    uses: tuple[int, ...]
    replicas: int
    sync: tuple[int, int]


@dataclass(frozen=True)
class Pool:
    """One or several alike sets of devices: the cluster, or servers.

    Attributes
    ----------
    copies : tuple of tuples of tuples of int
        Devices of each class, for each of the alike sets.
    kinds : tuple of int
        Kind of each class.
    stages : tuple of Stage
    """

    copies: tuple[tuple[tuple[int, ...], ...], ...]
    kinds: tuple[int, ...]
    stages: tuple[Stage, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Devices of each class, in one of the sets."""
        return tuple(len(own) for own in self.copies[0])

    @property
    def num_layers(self) -> int:
        """How many vectors of counts there are."""
        return prod(count + 1 for count in self.counts)

    def of_kinds(self, used: Sequence[int], num_kinds: int) -> Ints:
        """Devices of each kind, from those of each class; (kinds,)."""
        found = np.zeros(num_kinds, np.int64)
        np.add.at(found, list(self.kinds), list(used))
        return found


Width = Callable[[int, int], int | None]
"""Narrowest bandwidth, in bytes/s, between two devices in both directions; None without a path."""


def widths(instance: Instance) -> Width:
    """The width of a pair of devices."""
    paths = widest_paths(instance.cluster)

    def width(a: int, b: int) -> int | None:
        if (a, b) not in paths or (b, a) not in paths:
            return None
        return min(paths[a, b][0], paths[b, a][0])

    return width


def build_pool(devices: Sequence[int], kind: Sequence[int], width: Width | None) -> Pool:
    """Classes and stages of a set of devices; without `width` no stage has replicas.

    Examples
    --------
    Three equal devices, 1 byte per ns between the first two, a quarter of that to the last: two
    devices sum up P bytes in 2 P / 2 ns, all three in 4 P / (3 / 4) ns.

    >>> pool = build_pool([0, 1, 2], [0, 0, 0], lambda a, b: 10**9 // (1 + 3 * (max(a, b) == 2)))
    >>> pool.counts, [(stage.uses, stage.sync) for stage in pool.stages][-2:]
    ((2, 1), [((2, 0), (1, 1)), ((2, 1), (16, 3))])
    """
    classes: list[list[int]] = []
    for a in sorted(devices, key=lambda k: (kind[k], k)):
        home = next((own for own in classes if _alike(a, own[0], devices, kind, width)), None)
        if home is None:
            classes.append([a])
        else:
            home.append(a)
    # the largest class first: the search keeps fewer layers
    classes.sort(key=lambda own: -len(own))
    kinds = tuple(kind[own[0]] for own in classes)
    stages = [
        Stage(kinds[c], tuple(int(c == j) for j in range(len(classes))), 1, NO_SYNC)
        for c in range(len(classes))
    ]
    if width is not None:
        for chosen in sorted(set(kinds)):
            stages += _replicated(classes, kinds, chosen, width)
    return Pool((tuple(map(tuple, classes)),), kinds, tuple(stages))


def _alike(
    a: int, b: int, devices: Sequence[int], kind: Sequence[int], width: Width | None
) -> bool:
    """Whether two devices may change places in every plan."""
    others = (x for x in devices if kind[x] == kind[a] and x not in (a, b))
    return kind[a] == kind[b] and (width is None or all(width(a, x) == width(b, x) for x in others))


def _replicated(
    classes: list[list[int]], kinds: tuple[int, ...], kind: int, width: Width
) -> list[Stage]:
    """The stages of two or more devices of a kind."""
    ranges = [range(len(own) + 1 if kinds[c] == kind else 1) for c, own in enumerate(classes)]
    found = []
    for uses in product(*ranges):
        r = sum(uses)
        if r < 2:
            continue
        chosen = [k for own, taken in zip(classes, uses, strict=True) for k in own[:taken]]
        between = [width(a, b) for a in chosen for b in chosen if a != b]
        narrowest = [w for w in between if w is not None]
        sync = NO_PATH
        if len(narrowest) == len(between):
            top, bottom = 2 * (r - 1) * NS_PER_S, r * min(narrowest)
            common = gcd(top, bottom)
            sync = top // common, bottom // common
        found.append(Stage(kind, uses, r, sync))
    return found


def merge_alike(pools: Sequence[Pool], keys: Sequence[object]) -> tuple[tuple[Pool, ...], Ints]:
    """Pools that are alike, and have the same key, as copies of one; and where each went."""
    number: dict[object, int] = {}
    merged: list[Pool] = []
    home = np.zeros(len(pools), np.int64)
    for at, (pool, key) in enumerate(zip(pools, keys, strict=True)):
        home[at] = number.setdefault((key, pool.counts, pool.kinds, pool.stages), len(merged))
        if home[at] == len(merged):
            merged.append(pool)
        else:
            own = merged[home[at]]
            merged[home[at]] = Pool((*own.copies, *pool.copies), own.kinds, own.stages)
    return tuple(merged), home
