"""The problem of the ideal DP over any devices: blocks, nets, kinds of devices, pools.

A pool is a set of devices that run a row of stages, counted by classes of interchangeable devices.
A stage runs on one device or, where replicas are allowed, on several equal ones, which then sum up
the stage's parameters over the narrowest link between any two of them. So equal devices are
interchangeable only if they have the same bandwidths to all others: those form a class. A state of
the ideal DP counts the devices taken of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.max_load.checks import why_not_two_levels
from placegap.instances.problem import Instance, MaxLoad
from placegap.instances.problem.blocks import IdleRule, contract
from placegap.instances.problem.device_classes import equal_columns
from placegap.instances.problem.graph_index import freeze, numbered, sum_by
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.nets import build_nets
from placegap.instances.referee.loads import border_costs, server_costs
from placegap.solvers.chains.problem import (
    LARGEST_LOAD,
    ChainBlocks,
    arc_lists,
    cut_nets,
    kind_costs,
)

# With up to 100 vectors of counts at most half of them are kept, in any order of the classes: 50
# layers of a million ideals are what `layers.MOST_VALUES` admits.
MOST_LAYERS = 100
NO_SYNC, NO_PATH = (0, 1), (1, 0)  # no time to sum up parameters; and no links to sum them up over


class Stage(NamedTuple):
    """A way to run a set of blocks."""

    kind: int  # kind of all its devices
    uses: tuple[int, ...]  # number of devices of each class
    replicas: int  # number of all its devices
    #: (int, int): A fraction: the devices take ceil(P * fraction) ns to sum up P bytes of
    #: parameters. With `NO_PATH` the stage must have none.
    sync: tuple[int, int]


@dataclass(frozen=True)
class Pool:
    """One or several equal sets of devices: the cluster, or servers."""

    copies: tuple[tuple[tuple[int, ...], ...], ...]  # devices of a class, for each of equal sets
    kinds: tuple[int, ...]  # kind of each class
    stages: tuple[Stage, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Devices of each class, in one of the sets."""
        return tuple(len(own) for own in self.copies[0])

    @property
    def num_layers(self) -> int:
        """Number of vectors of counts."""
        return prod(count + 1 for count in self.counts)

    def of_kinds(self, used: Sequence[int], num_kinds: int) -> Ints:
        """Devices of each kind, from those of each class; (kinds,)."""
        return sum_by(list(self.kinds), list(used), num_kinds)


# Narrowest bandwidth, in bytes/s, between two devices in both directions; None without a path.
Width = Callable[[int, int], int | None]


def widths(instance: Instance) -> Width:
    """The width of a pair of devices."""
    paths = instance.cluster.widest_paths

    def width(a: int, b: int) -> int | None:
        if (a, b) not in paths or (b, a) not in paths:
            return None
        return min(paths[a, b][0], paths[b, a][0])

    return width


def build_pool(devices: Sequence[int], kind: Sequence[int], width: Width | None) -> Pool:
    """Classes and stages of a set of devices; without `width` no stage has replicas."""
    classes: list[list[int]] = []
    for a in sorted(devices, key=lambda k: (kind[k], k)):
        home = next((own for own in classes if _alike(a, own[0], devices, kind, width)), None)
        if home is None:
            classes.append([a])
        else:
            home.append(a)
    # The search runs through all counts of the last class before it takes one more of the first,
    # and keeps the layers of one count of the first class. With few vectors in all, rare devices
    # come first: mostly slow hosts, without which good plans are found before they are taken. With
    # many, the largest class comes first, which leaves the fewest layers to keep.
    few = prod(len(own) + 1 for own in classes) <= MOST_LAYERS
    classes.sort(key=lambda own: len(own) if few else -len(own))
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
    """Whether two devices can be exchanged in every plan."""
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
            # A ring all-reduce: each device sends 2 (r - 1) / r of the bytes over the narrowest
            # link.
            top, bottom = 2 * (r - 1) * NS_PER_S, r * min(narrowest)
            common = gcd(top, bottom)
            sync = top // common, bottom // common
        found.append(Stage(kind, uses, r, sync))
    return found


def merge_alike(pools: Sequence[Pool], keys: Sequence[object]) -> tuple[tuple[Pool, ...], Ints]:
    """Equal pools of the same key merged as copies of one, and the number of each in the result."""
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


LARGEST_SYNC = 2**49  # limit on loads and parameters with replicas (`transitions.sync_ns`)


@dataclass(frozen=True, eq=False)
class KindsProblem(ChainBlocks):
    """The problem for any kinds of devices."""

    #: (D, e): Cost of a cut net for each kind.
    weight: Ints
    #: (b,) int64
    parameter_bytes: Ints
    #: All devices, regardless of servers.
    pool: Pool
    #: Servers, equal ones together; none with one level of communication.
    servers: tuple[Pool, ...]
    #: (servers, e) int64: Cost of a cut net for each server.
    border: Ints

    @property
    def num_kinds(self) -> int:
        """Number of kinds of devices."""
        return len(self.room)

    @property
    def counts(self) -> Ints:
        """Devices of each kind, (D,)."""
        return self.pool.of_kinds(self.pool.counts, self.num_kinds)

    @property
    def largest_load(self) -> int:
        """Upper bound on the load of a device or server of a plan without replicas."""
        work = int(self.time.max(axis=0).sum())
        return work + sum(int(w.max(axis=0, initial=0).sum()) for w in (self.weight, self.border))


def why_not_kinds(instance: Instance, semantics: MaxLoad) -> str | None:
    """Why the DP cannot take an instance, or None: its servers, or sums beyond 64 bits."""
    if semantics.levels == 2:
        reason = why_not_two_levels(instance)
        if reason is not None:
            return reason
    arrays, devices = instance.arrays, instance.num_devices
    total = int(arrays.resident_bytes.sum())
    paid = int(border_costs(instance, semantics).max(axis=1, initial=0).sum())
    if semantics.levels == 2:
        paid += int(server_costs(instance).max(axis=1, initial=0).sum())
    most = int(np.maximum(arrays.time_ns, 0).max(axis=1).sum()) + 2 * paid
    if max(most * devices, (total + 1) * instance.num_ops) > LARGEST_LOAD:
        return "adds in 64 bits: times or bytes are too large"
    if semantics.replicas:
        weights = sum(op.parameter_bytes for op in instance.graph.ops)
        bandwidths = [x.bandwidth_bytes_per_s for x in instance.cluster.all_links.entries] or [1]
        slowest = 2 * weights * NS_PER_S // min(bandwidths)
        large = max(slowest, devices * max(bandwidths)) > LARGEST_LOAD
        if most > LARGEST_SYNC or weights > LARGEST_SYNC or large:
            return "adds in 64 bits: times, parameters or bandwidths are too large"
    return None


def build_kinds(
    instance: Instance,
    semantics: MaxLoad,
    rule: IdleRule | None = None,
    labels: Sequence[object] | None = None,
) -> KindsProblem:
    """Contract an instance with any devices."""
    # `rule` says which idle blocks join others and which devices hold everything (roomy); devices
    # with different `labels` are of different kinds.
    arrays, two = instance.arrays, semantics.levels == 2
    rule = rule or IdleRule(parameters=semantics.replicas)
    blocks = contract(instance, rule=rule)
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    server = instance.cluster.server_numbers[1] if two else np.zeros(instance.num_devices, np.int64)
    many = two and int(server.max()) > 0
    border = server_costs(instance) if many else np.zeros((len(cost), 0), np.int64)
    # Costs of servers are further columns: nets of equal pins are merged once for both levels.
    nets = build_nets(instance, blocks.block, np.hstack([cost, border]))
    weight = nets.weight_ns
    own_costs = [kind_costs(instance, blocks, k) for k in range(instance.num_devices)]
    kind, first = _kinds(instance, semantics, own_costs, cost, weight, labels)
    costs = [own_costs[k] for k in first]
    time, need = (np.stack([part[at] for part in costs]) for at in (0, 1))
    own = np.ascontiguousarray(weight[:, first].T)
    borders = np.ascontiguousarray(weight[:, instance.num_devices :].T)
    parameters = np.zeros(blocks.num_blocks, np.int64)
    held = np.array([op.parameter_bytes for op in instance.graph.ops], np.int64)
    np.add.at(parameters, blocks.block, np.where(blocks.held, held, 0))
    width = widths(instance) if semantics.replicas else None
    pools = [
        build_pool(np.flatnonzero(server == v).tolist(), kind, width) for v in range(len(borders))
    ]
    servers, home = merge_alike(pools, [own.tobytes() for own in borders])
    problem = KindsProblem(
        blocks=blocks,
        arcs=arc_lists(blocks),
        nets=cut_nets(nets, np.vstack([own, borders]).max(axis=0)),
        net_ptr=nets.net_ptr,
        pin=nets.pin,
        time=time,
        need=need,
        room=np.array([part[2] for part in costs], np.int64),
        overlap=semantics.load == "overlap",
        weight=own,
        parameter_bytes=parameters,
        pool=build_pool(range(instance.num_devices), kind, width),
        servers=servers,
        border=borders[np.unique(home, return_index=True)[1]],
    )
    freeze(problem)
    return problem


def _kinds(
    instance: Instance,
    semantics: MaxLoad,
    costs: list[tuple[Ints, Ints, int]],
    cost: Ints,
    weight: Ints,
    labels: Sequence[object] | None,
) -> tuple[list[int], list[int]]:
    """Kind of each device, by the costs of blocks and nets there; the first device of each kind."""
    # With replicas, devices that may not share a stage are of different kinds
    # (`loads.equal_devices`, without servers).
    arrays, devices = instance.arrays, instance.num_devices
    time, need, room = (np.array([part[at] for part in costs], np.int64).T for at in range(3))
    own = [time, need, room, weight[:, :devices], numbered(labels or [None] * devices)]
    if semantics.replicas:
        own += [arrays.memory_bytes, arrays.is_host, arrays.time_ns, cost]
    kind = equal_columns(*own)
    return kind.tolist(), np.unique(kind, return_index=True)[1].tolist()
