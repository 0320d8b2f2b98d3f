"""How tools for unlike devices fit a model by themselves: what a plan should beat.

Like `layer_splits`, but they may leave experts on the host, or look at speeds. Sources, as their
code was in 2026:

- llama.cpp's ``--fit``, on by default: a card may hold what is free less `MARGIN_BYTES`. The split
  by free memory stays if it fits so. Else cards are filled from the last layer and the last card
  on, with all experts on the host; then experts return from the first layer on, and one more layer
  per card in part, whose other experts are on the next card (``common/fit.cpp``);
- ik_llama.cpp's fit: layers by shares of what cards may hold; each then drops the experts of whole
  layers from its last layer backwards. A dense model that does not fit so is filled as above;
- Halda (prima.cpp; ``firstbatchxyz/distilp``): in each of k equal rounds machine m runs w_m layers,
  n_m of them on its card; the sum of their times is least, and transfers count 0. A machine is a
  card with its host. Devices here have no disk, so no machine may be short of memory;
- parallax (``layer_allocation.py``): the number k of pipelines with most k^2 / stages, then layers
  of a stage by FLOP/s, as far as they fit. A request runs on the first pipeline.

Contexts are given, so no fit shortens one. Where there is no host, the first card stands for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import floor

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from placegap.instances.costing.costing import is_cpu, specs_of
from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.modules import homes_by_layer, is_expert
from placegap.solvers.placers.layer_splits import by_shares, fits, gpus_and_host

MARGIN_BYTES = 2**30
"""Of each card, left free: the default of ``--fit-target`` and ``--fit-margin``."""

HALVINGS = 40
"""Steps of parallax' search for its water level."""

UP, GATE = (re.compile(rf"(^|[._])({name})([._]|$)") for name in ("up|w3", "gate|w1"))
"""Matrices of an expert by name; what is fused (``gate_up``) is tied together in any case."""


@dataclass(frozen=True)
class Layers:
    """The ops of an instance by layers, and what cards may hold."""

    instance: Instance
    num_layers: int

    @cached_property
    def slot(self) -> Ints:
        """0 for ops before the layers, then 1 to L, and L + 1 for those after, (n,)."""
        return np.array(homes_by_layer(self.instance, range(self.num_layers + 2)), np.int64)

    @cached_property
    def apart(self) -> Flags:
        """Experts that no group ties to the rest of their layer, (n,)."""
        tied = np.zeros(self.instance.arrays.num_groups, np.bool_)
        is_other = [not is_expert(op) for op in self.instance.graph.ops]
        np.logical_or.at(tied, self.instance.arrays.group, is_other)
        return ~tied[self.instance.arrays.group]

    def matrices(self, *names: re.Pattern[str]) -> Flags:
        """Which ops are matrices of those names, (n,)."""
        paths = [op.module or "" for op in self.instance.graph.ops]
        return np.array([any(name.search(path) for name in names) for path in paths], np.bool_)

    @cached_property
    def gpus(self) -> list[int]:
        """The cards, in order; the host where there is none."""
        gpus, host = gpus_and_host(self.instance.cluster)
        return gpus or [host]

    @property
    def host(self) -> int:
        """The host; the first card where there is none."""
        return gpus_and_host(self.instance.cluster)[1]

    @cached_property
    def room(self) -> Ints:
        """Bytes that each card may hold."""
        return self.instance.arrays.memory_bytes[self.gpus] - MARGIN_BYTES

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer: the mean."""
        inner = (self.slot > 0) & (self.slot <= self.num_layers)
        return max(1, int(self.instance.arrays.resident_bytes[inner].sum()) // self.num_layers)

    @property
    def layer_ns(self) -> Floats:
        """Time of a layer on each device: the mean; infinite where one cannot run."""
        inner = (self.slot > 0) & (self.slot <= self.num_layers)
        times = self.instance.arrays.time_ns[inner]
        every = np.where((times == UNSUPPORTED).any(axis=0), np.inf, times.sum(axis=0))
        return every / self.num_layers

    def left(self, homes: Ints) -> Ints:
        """What each card may hold besides; below 0 on all where a group is parted."""
        arrays = self.instance.arrays
        held = np.zeros(self.instance.num_devices, np.int64)
        np.add.at(held, homes, arrays.resident_bytes)
        _, first = np.unique(arrays.group, return_index=True)
        parted = (homes != homes[first][arrays.group]).any()
        return np.full(len(self.gpus), -1) if parted else self.room - held[self.gpus]


@dataclass(frozen=True)
class Filling:
    """How many layers are on each card: whole ones, then some in part, whose experts are not.

    The output counts as a layer. Of a card's first layer in part, experts are on the next card but
    for the matrices of `kept`; None: on the host.
    """

    layers: Layers
    whole: tuple[int, ...]
    part: tuple[int, ...]
    kept: tuple[tuple[re.Pattern[str], ...] | None, ...]

    def moved(self, at: int, whole: int, part: int = 0) -> Filling:
        """More layers on a card."""
        return replace(
            self,
            whole=tuple(n + whole * (k == at) for k, n in enumerate(self.whole)),
            part=tuple(n + part * (k == at) for k, n in enumerate(self.part)),
        )

    @property
    def count(self) -> int:
        """Layers on cards."""
        return sum(self.whole) + sum(self.part)

    @property
    def homes(self) -> Ints:
        """The device of each op, (n,)."""
        gpus, host = self.layers.gpus, self.layers.host
        slot, apart = self.layers.slot, self.layers.apart
        found, begin = np.full(len(slot), host), self.layers.num_layers + 2 - self.count
        for at, (device, after) in enumerate(zip(gpus, [*gpus[1:], host], strict=True)):
            middle = begin + self.whole[at]
            end, kept = middle + self.part[at], self.kept[at]
            found[(slot >= begin) & (slot < end)] = device
            found[(slot >= middle) & (slot < end) & apart] = host
            if kept is not None and end > middle:
                first = (slot == middle) & apart
                found[first] = np.where(self.layers.matrices(*kept), device, after)[first]
            begin = end
        return found

    @property
    def plan(self) -> list[int]:
        """The device of each op."""
        return [int(k) for k in self.homes]

    @property
    def left(self) -> Ints:
        """What each card may hold besides."""
        return self.layers.left(self.homes)

    @property
    def first_in_part(self) -> int | None:
        """The first card with layers in part, but for the output and what goes to the next card."""
        last = max((at for at, n in enumerate(self.part) if n or self.whole[at]), default=0)
        fixed = [(at == last) + (kept is not None) for at, kept in enumerate(self.kept)]
        return next((at for at, n in enumerate(self.part) if n > fixed[at]), None)

    def keeping(self, at: int, *names: re.Pattern[str]) -> Filling:
        """A card's first layer in part keeps some matrices of its experts."""
        kept = tuple(names if k == at else own for k, own in enumerate(self.kept))
        return replace(self, kept=kept)

    def has_spare(self, at: int) -> bool:
        """Whether a card and the next one hold less than they may."""
        return bool((self.left[at : at + 2] > 0).all())


@fits("llama-fit", "llama.cpp")
def llama_fit(instance: Instance, num_layers: int) -> list[int] | None:
    """llama.cpp's fit of 2026: layers from the back, experts from the front, as memory allows."""
    layers, sizes = Layers(instance, num_layers), instance.arrays.memory_bytes
    return _shared_or_filled(layers, sizes[layers.gpus].tolist()).plan


@fits("ik-llama-fit", "ik_llama.cpp")
def ik_llama_fit(instance: Instance, num_layers: int) -> list[int] | None:
    """ik_llama.cpp's fit: layers by room, each card drops experts from its last layer on."""
    layers = Layers(instance, num_layers)
    filling = _shared_or_filled(layers, layers.room.clip(0).tolist(), refill=not layers.apart.any())
    for at in range(len(layers.gpus)):
        while filling.left[at] < 0 and filling.whole[at]:
            filling = filling.moved(at, -1, 1)
    return filling.plan


def _shared_or_filled(layers: Layers, sizes: list[int], *, refill: bool = True) -> Filling:
    """All layers on cards by shares of some sizes; where that does not fit, they are refilled."""
    none = (0,) * len(sizes)
    empty = Filling(layers, none, none, (None,) * len(none))
    homes = by_shares(sizes, layers.num_layers + 1, layers.num_layers + 1)
    shared = replace(empty, whole=tuple(homes.count(at) for at in range(len(sizes))))
    return _filled(empty) if refill and (shared.left < 0).any() else shared


def _filled(filling: Filling) -> Filling:
    """Cards filled from the last layer on, then with the experts of the first ones."""
    layers, in_part = filling.layers, bool(filling.layers.apart.any())
    for at in reversed(range(len(layers.gpus))):
        while filling.count <= layers.num_layers:
            more = filling.moved(at, int(not in_part), int(in_part))
            if more.left[at] < 0:
                break
            filling = more
    sizes = layers.instance.arrays.resident_bytes
    dense = sizes[(layers.slot > 0) & ~layers.apart].sum()
    return _with_experts(filling) if dense < layers.room.sum() else filling


def _with_experts(filling: Filling) -> Filling:
    """Layers in part become whole ones of the first cards, and one more of each card in part."""
    for at in range(len(filling.whole)):
        while (source := filling.first_in_part) is not None and at <= source:
            more = filling.moved(source, 0, -1).moved(at, 1)
            if more.left[at] < 0:
                break
            filling = more
        if source is None or at > source:
            return filling
        border = filling.moved(source, 0, -1).moved(at, 0, 1)
        if border.keeping(at, UP).has_spare(at):
            both = border.keeping(at, UP, GATE)
            filling = both if both.has_spare(at) else border.keeping(at, UP)
        elif border.keeping(at).has_spare(at):
            filling = border.keeping(at)
    return filling


@fits("halda", "prima.cpp")
def halda(instance: Instance, num_layers: int) -> list[int] | None:
    """prima.cpp's Halda: an integer program of each machine's layers, and of those on its card."""
    layers, arrays = Layers(instance, num_layers), instance.arrays
    devices = instance.cluster.devices
    hosts = [k for k, device in enumerate(devices) if is_cpu(device, instance.cluster)]
    machines = [
        (next((k for k in hosts if devices[k].server == devices[card].server), NONE), card)
        for card in layers.gpus
        if card not in hosts
    ]
    machines += [(k, NONE) for k in hosts if all(k != host for host, _ in machines)]
    ends, size = max(machines[0]) if machines[0][0] == NONE else machines[0][0], layers.layer_bytes
    room = arrays.memory_bytes.astype(np.float64)
    room[ends] -= int(arrays.resident_bytes.sum()) - size * num_layers
    least, found = np.inf, list[int]()
    for rounds in range(1, num_layers // 2 + 1):
        if num_layers % rounds:
            continue
        window = num_layers // rounds
        time, counts = _window(machines, window, layers.layer_ns, room / (rounds * size))
        if rounds * time < least:
            least = rounds * time
            where = [device for machine in machines for device in machine]
            found = rounds * [k for k, n in zip(where, counts, strict=True) for _ in range(n)]
    return homes_by_layer(instance, [ends, *found, ends]) if found else None


NONE = -1
"""The host or the card of a machine without one."""


def _window(
    machines: list[tuple[int, int]], size: int, each_ns: Floats, room: Floats
) -> tuple[float, list[int]]:
    """The time of a round, and the layers of each machine on its host, then on its card."""
    at, num = np.array(machines).ravel(), len(machines)
    runs = (at != NONE) & np.isfinite(each_ns[at])
    most = np.where(runs, np.minimum(size, np.floor(room[at])), 0.0)
    if (most < 0).any():
        return np.inf, []
    rows = [
        LinearConstraint(np.ones((1, 2 * num)), size, size),
        LinearConstraint(np.repeat(np.eye(num), 2, axis=1), 1, size),  # no machine is idle
        *(LinearConstraint((at == k)[None, :], 0, room[k]) for k in set(at[runs].tolist())),
    ]
    cost = np.where(runs, each_ns[at], 0.0)
    found = milp(cost, integrality=np.ones(2 * num), bounds=Bounds(0, most), constraints=rows)
    return (np.inf, []) if found.x is None else (found.fun, found.x.round().astype(int).tolist())


@fits("parallax", "parallax")
def parallax(instance: Instance, num_layers: int) -> list[int] | None:
    """Parallax: fewest stages of as many pipelines as pay, then layers by FLOP/s."""
    layers, arrays, specs = (
        Layers(instance, num_layers),
        instance.arrays,
        specs_of(instance.cluster),
    )
    before, after = (
        int(arrays.resident_bytes[layers.slot == at].sum()) for at in (0, num_layers + 1)
    )

    def most(card: int, less: int = 0) -> int:
        return int(arrays.memory_bytes[card] - less) // layers.layer_bytes

    nodes = sorted(layers.gpus, key=lambda card: -most(card))
    pipelines = _pipelines([(most(k), most(k, before), most(k, after)) for k in nodes], num_layers)
    if not pipelines:
        return None
    stages = [nodes[at] for at in sorted(pipelines[0])]
    caps = [most(card) for card in stages]
    caps[-1] = most(stages[-1], after)
    caps[0] = most(stages[0], before)
    power = [
        specs[kind].peak("float16") if kind in specs else 1 / layers.layer_ns[card]
        for card in stages
        for kind in [instance.cluster.devices[card].kind]
    ]
    if min(caps) <= 0 or sum(caps) < num_layers:
        return None
    low, high = 0.0, max(cap / rate for cap, rate in zip(caps, power, strict=True))
    for _ in range(HALVINGS):
        level = (low + high) / 2
        full = sum(min(c, level * p) for c, p in zip(caps, power, strict=True)) >= num_layers
        low, high = (low, level) if full else (level, high)
    wished = [min(c, high * p) for c, p in zip(caps, power, strict=True)]
    counts = [floor(wish) for wish in wished]
    for at in sorted(range(len(stages)), key=lambda at: (counts[at] - wished[at], at)):
        counts[at] += counts[at] < caps[at] and sum(counts) < num_layers
    if sum(counts) < num_layers:
        return None
    split = [card for card, n in zip(stages, counts, strict=True) for _ in range(n)]
    return homes_by_layer(instance, [split[0], *split, split[-1]])


SKIP = -1
"""What a node does that is in no pipeline."""


def _pipelines(caps: list[tuple[int, int, int]], num_layers: int) -> list[list[int]]:
    """The nodes of each pipeline: their number k has most k^2 / stages, and stages are fewest.

    `caps` are the layers of a node in the middle of a pipeline, at its begin and at its end.
    """

    def rest(at: int, missing: int) -> int:
        middle, begin, end = caps[at]
        after = missing - (begin if missing == num_layers else middle)
        return max(0, missing - end) if after <= 0 < num_layers - missing else max(0, after)

    @cache
    def least(at: int, missing: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """Stages that nodes from one on add to pipelines by the layers they miss, and to which."""
        if not missing or at == len(caps):
            return (np.inf if missing else 0), ()
        stages, ways = least(at + 1, missing)
        best = stages, (SKIP, *ways)
        for j, one in enumerate(missing):
            if j and missing[j - 1] == one:
                continue
            more = rest(at, one)
            others = [*missing[:j], *missing[j + 1 :], *([more] if more else [])]
            stages, ways = least(at + 1, tuple(sorted(others)))
            if 1 + stages < best[0]:
                best = 1 + stages, (one, *ways)
        return best

    score, found = 0.0, list[list[int]]()
    for count in range(1, min(len(caps), sum(cap[0] for cap in caps) // num_layers) + 1):
        stages, ways = least(0, (num_layers,) * count)
        if count * count / stages <= score:
            continue
        score, found, still = count * count / stages, [], [(num_layers, list[int]())] * count
        for at, way in enumerate(ways):
            if way != SKIP:
                j = [missing for missing, _ in still].index(way)
                _, nodes = still.pop(j)
                more = rest(at, way)
                (still.append((more, [*nodes, at])) if more else found.append([*nodes, at]))
    return found
