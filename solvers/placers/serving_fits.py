"""How tools for different devices fit a model by themselves: what a plan should beat.

Like `layer_splits`, but they may leave experts on the host, or look at speeds. Sources, as their
code was in 2026:

- llama.cpp's ``--fit``, on by default: a card may hold what is free less `MARGIN_BYTES`. The split
  by free memory stays if it fits so. Else cards are filled from the last layer and the last card
  on, with all experts on the host; then experts return from the first layer on, and one more layer
  per card in part, whose other experts are on the next card (``common/fit.cpp``);
- ik_llama.cpp's fit: layers by shares of what cards may hold; each then drops the experts of whole
  layers from its last layer backwards. A dense model that does not fit so is filled as above;
- Halda (prima.cpp; ``firstbatchxyz/distilp``): in each of k equal rounds machine m runs w_m >= 1
  layers, n_m of them on its card; the sum of their times is least, and transfers count 0. A machine
  is a card with its host. Devices here have no disk, so no machine may be short of memory: then one
  round is never worse than several, and of equal layers the fastest places in turn are best;
- parallax (``layer_allocation.py``): the number k of pipelines with most k^2 / stages, then layers
  of a stage by FLOP/s, as far as they fit. A request runs on the first pipeline.

Contexts are given, so no fit shortens one. Where there is no host, the first card stands for it.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from placegap.instances.costing.catalogue import is_cpu, specs_of
from placegap.instances.exporters.lines import gpus_and_host, slots_of
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import NO_LIMIT, UNSUPPORTED
from placegap.instances.problem.modules import homes_by_layer
from placegap.solvers.placers.layer_splits import by_shares, fits

MARGIN_BYTES = 2**30  # of each card, left free: the default of ``--fit-target``, ``--fit-margin``
SLACK = 1e-9  # of parallax' layers, which are floats
# Matrices of an expert by name; what is fused (``gate_up``) is tied together in any case.
UP, GATE = (re.compile(rf"(^|[._])({name})([._]|$)") for name in ("up|w3", "gate|w1"))


class LayersOnCards:
    """The ops of an instance by layers, and what cards may hold."""

    def __init__(self, instance: Instance, num_layers: int) -> None:
        arrays = instance.arrays
        gpus, host = gpus_and_host(instance.cluster)
        self.host = gpus[0] if host is None else host
        self.instance, self.num_layers, self.gpus = instance, num_layers, gpus or [self.host]
        #: slot: 0 for ops before the layers, then 1 to L, and L + 1 for those after, (n,).
        #: apart: Experts that no group ties to the rest of their layer, (n,).
        self.slot, self.apart = slots_of(instance, num_layers)
        #: Bytes that each card may hold.
        self.room = arrays.memory_bytes[self.gpus] - MARGIN_BYTES
        inner = (self.slot > 0) & (self.slot <= num_layers)
        #: Bytes of a layer, and its time on each device, infinite where one cannot run: the means.
        self.layer_bytes = max(1, int(arrays.resident_bytes[inner].sum()) // num_layers)
        times = arrays.time_ns[inner]
        runs = (times != UNSUPPORTED).all(axis=0)
        self.layer_ns = np.where(runs, times.sum(axis=0), np.inf) / num_layers


class Filling:
    """How many layers are on each card: whole ones, then some in part, whose experts are not."""

    def __init__(self, layers: LayersOnCards) -> None:
        # The output counts as a layer. Of a card's first layer in part, experts are on the next
        # card but for the matrices of `kept`; None: on the host.
        self.layers, none = layers, [0] * len(layers.gpus)
        self.whole, self.part = none.copy(), none
        self.kept: list[tuple[re.Pattern[str], ...] | None] = [None] * len(none)

    @property
    def homes(self) -> Ints:
        """The device of each op, (n,)."""
        gpus, host, slot = self.layers.gpus, self.layers.host, self.layers.slot
        found = np.full(len(slot), host)
        begin = self.layers.num_layers + 2 - sum(self.whole) - sum(self.part)
        for at, (device, after) in enumerate(zip(gpus, [*gpus[1:], host], strict=True)):
            middle = begin + self.whole[at]
            end, kept = middle + self.part[at], self.kept[at]
            found[(slot >= begin) & (slot < end)] = device
            found[(slot >= middle) & (slot < end) & self.layers.apart] = host
            if kept is not None and end > middle:
                for i in np.flatnonzero((slot == middle) & self.layers.apart).tolist():
                    path = self.layers.instance.graph.ops[i].module or ""
                    found[i] = device if any(name.search(path) for name in kept) else after
            begin = end
        return found

    @property
    def left(self) -> Ints:
        """What each card may hold besides; below 0 on all where a group is parted."""
        arrays, homes = self.layers.instance.arrays, self.homes
        held = sum_by(homes, arrays.resident_bytes, self.layers.instance.num_devices)
        _, first = np.unique(arrays.group, return_index=True)
        parted = (homes != homes[first][arrays.group]).any()
        return self.layers.room - (NO_LIMIT if parted else held[self.layers.gpus])

    def does(
        self,
        at: int,
        whole: int = 0,
        part: int = 0,
        source: int | None = None,
        kept: tuple[re.Pattern[str], ...] | None = None,
    ) -> bool:
        """Move layers to a card, from the part of another one if named, unless memory is short."""
        before = self.whole.copy(), self.part.copy(), self.kept.copy()
        self.whole[at] += whole
        self.part[at] += part
        if source is not None:
            self.part[source] -= 1
        if kept is not None:
            self.kept[at] = kept
        left = self.left[at : at + 2]
        fits = left[0] >= 0 if kept is None else (left > 0).all()
        if not fits:
            self.whole, self.part, self.kept = before
        return bool(fits)

    def fill(self) -> Ints:
        """Fill cards from the last layer on, then with the experts of the first ones: the homes."""
        layers, in_part = self.layers, bool(self.layers.apart.any())
        for at in reversed(range(len(self.whole))):
            while sum(self.whole) + sum(self.part) <= layers.num_layers:
                if not self.does(at, whole=not in_part, part=in_part):
                    break
        dense = layers.instance.arrays.resident_bytes[(layers.slot > 0) & ~layers.apart].sum()
        for at in range(len(self.whole) if dense < layers.room.sum() else 0):
            while (source := self.first_in_part) >= at and self.does(at, whole=1, source=source):
                pass
            if source < at:
                break
            if self.does(at, part=1, source=source, kept=(UP,)):
                self.does(at, kept=(UP, GATE))
            else:
                self.does(at, part=1, source=source, kept=())
        return self.homes

    @property
    def first_in_part(self) -> int:
        """The first card with layers in part, but for the output and one that it shares; or -1."""
        last = max((at for at, n in enumerate(self.part) if n or self.whole[at]), default=0)
        fixed = [(at == last) + (kept is not None) for at, kept in enumerate(self.kept)]
        return next((at for at, n in enumerate(self.part) if n > fixed[at]), -1)


def _shared(layers: LayersOnCards, sizes: list[int]) -> Filling:
    """All layers on cards, by shares of some sizes."""
    filling, count = Filling(layers), layers.num_layers + 1
    filling.whole = [by_shares(sizes, count, count).count(at) for at in range(len(sizes))]
    return filling


@fits("llama-fit", "llama.cpp")
def llama_fit(instance: Instance, num_layers: int) -> list[int] | None:
    """llama.cpp's fit of 2026: layers from the back, experts from the front, as memory allows."""
    layers = LayersOnCards(instance, num_layers)
    filling = _shared(layers, instance.arrays.memory_bytes[layers.gpus].tolist())
    found = Filling(layers).fill() if (filling.left < 0).any() else filling.homes
    return [int(k) for k in found]


@fits("ik-llama-fit", "ik_llama.cpp")
def ik_llama_fit(instance: Instance, num_layers: int) -> list[int] | None:
    """ik_llama.cpp's fit: layers by free memory; experts leave each card, last layer first."""
    layers = LayersOnCards(instance, num_layers)
    filling = _shared(layers, layers.room.clip(0).tolist())
    for at in range(len(layers.gpus) if layers.apart.any() else 0):
        while filling.left[at] < 0 and filling.whole[at]:
            filling.whole[at] -= 1
            filling.part[at] += 1
    is_over = (filling.left < 0).any() and not layers.apart.any()
    return [int(k) for k in (Filling(layers).fill() if is_over else filling.homes)]


@fits("halda", "prima.cpp")
def halda(instance: Instance, num_layers: int) -> list[int] | None:
    """prima.cpp's Halda: one layer on each machine, the others where they are fastest."""
    layers, devices = LayersOnCards(instance, num_layers), instance.cluster.devices
    hosts = [k for k, device in enumerate(devices) if is_cpu(device, instance.cluster)]
    machines = [
        [*[k for k in hosts if devices[k].server == devices[card].server][:1], card]
        for card in layers.gpus
        if card not in hosts
    ]
    machines += [[k] for k in hosts if all(k not in machine for machine in machines)]
    if len(machines) > num_layers:
        return None
    ends, size = machines[0][0], layers.layer_bytes
    room = instance.arrays.memory_bytes.copy()
    room[ends] -= instance.arrays.resident_bytes.sum() - size * num_layers
    counts = [dict.fromkeys(machine, 0) for machine in machines]
    for _ in range(num_layers):
        idle = [own for own in counts if not any(own.values())] or counts
        ways = [(layers.layer_ns[k], k, own) for own in idle for k in own if room[k] >= size]
        if not ways:
            return None
        _, k, own = min(ways, key=lambda way: way[:2])
        own[k] += 1
        room[k] -= size
    split = [k for own in counts for k, n in own.items() for _ in range(n)]
    return homes_by_layer(instance, [ends, *split, ends])


@fits("parallax", "parallax")
def parallax(instance: Instance, num_layers: int) -> list[int] | None:
    """Parallax: the best number of pipelines of fewest stages, then layers by FLOP/s."""
    layers, memory = LayersOnCards(instance, num_layers), instance.arrays.memory_bytes.tolist()
    specs, sizes = specs_of(instance.cluster), instance.arrays.resident_bytes
    nodes = sorted(layers.gpus, key=lambda card: -(memory[card] // layers.layer_bytes))
    stages = _pipeline([memory[card] // layers.layer_bytes for card in nodes], num_layers)
    if not stages:
        return None
    cards = [nodes[at] for at in stages]
    for card, slot in ((cards[-1], num_layers + 1), (cards[0], 0)):  # head and embedding
        memory[card] -= int(sizes[layers.slot == slot].sum()) * (slot == 0 or len(cards) > 1)
    caps = np.array([memory[card] // layers.layer_bytes for card in cards])
    if caps.min() <= 0 or caps.sum() < num_layers:
        return None
    kinds = [instance.cluster.devices[card].kind for card in cards]
    power = np.array(
        [
            specs[kind].peak("float16") if kind in specs else 1 / layers.layer_ns[card]
            for kind, card in zip(kinds, cards, strict=True)
        ]
    )
    levels = np.sort(np.append(0, caps / power))
    filled = np.minimum(caps, levels[:, None] * power).sum(axis=1)
    level = np.interp(num_layers, filled, levels)
    wished = np.minimum(caps, level * power)
    counts = np.floor(wished + SLACK).astype(np.int64)
    for at in np.argsort(counts - wished, kind="stable"):
        counts[at] += counts[at] < caps[at] and counts.sum() < num_layers
    split = np.repeat(cards, counts).tolist()
    return homes_by_layer(instance, [split[0], *split, split[-1]])


def _pipeline(caps: list[int], num_layers: int) -> tuple[int, ...]:
    """The k nodes of the first pipeline: of most k^2 / stages, each k with the fewest stages."""
    # `caps` are the layers that each node holds.

    @cache
    def fewest(at: int, missing: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """Stages that nodes from one on add to pipelines; and the nodes of the first one."""
        # By the layers that these miss, the first one's before the others'.
        if at == len(caps) or not any(missing):
            return (np.inf if any(missing) else 0), ()
        best = fewest(at + 1, missing)
        for j, one in enumerate(missing):
            if one and one not in missing[1:j]:
                new = (*missing[:j], max(0, one - caps[at]), *missing[j + 1 :])
                stages, nodes = fewest(at + 1, (new[0], *sorted(new[1:])))
                best = min(best, (1 + stages, (at,) * (j == 0) + nodes))
        return best

    score, first = 0.0, tuple[int, ...]()
    for count in range(1, min(len(caps), sum(caps) // num_layers) + 1):
        stages, nodes = fewest(0, (num_layers,) * count)
        if count * count / stages > score:
            score, first = count * count / stages, nodes
    return first
