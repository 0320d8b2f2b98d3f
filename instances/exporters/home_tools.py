"""Plans for the tools of people who run models at home: llama.cpp, exllama, ollama; a line each.

- **llama.cpp** (its ``tools/server/README.md``): ``-ngl`` counts the last layers that are on GPUs,
  the output as one more; ``-ts`` divides them between the GPUs in their order. ``--n-cpu-moe N``
  leaves the experts of the first N layers on the host, and ``-ot`` those of the layers that a
  pattern matches. The embeddings are on the host in any case.
- **exllama**: ``-gs`` are GB for each GPU, filled in order by layers; there is no host.
- **ollama**: ``num_gpu`` of a Modelfile counts as ``-ngl`` does; layers are divided between several
  GPUs by ollama itself, so that only plans with one of them can be expressed.

What cannot be expressed is refused, with the nearest plan that can: the same number of layers on
each device, in the order that the tool has, or as few others as need be where those do not fit; and
what it takes beside the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from placegap.instances.costing.costing import is_cpu
from placegap.instances.exporters.modules import layer_list
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.modules import homes_by_layer, is_expert, layer_ends, layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate

HUNDREDTH_GIB = 2**30 // 100
"""exllama's shares have two places."""


class LayerHomes(NamedTuple):
    """Where a plan has the numbered layers, and whether the tools' order is the plan's."""

    #: The devices that are no hosts.
    gpus: tuple[int, ...]
    #: The device of most bytes of each layer, experts on the host aside; -1 is a host.
    home: list[int]
    #: Layers with experts on the host while the rest is on a GPU.
    away: tuple[int, ...]
    #: Whether each layer, or its experts and its rest, is on one device.
    is_whole: bool
    #: The device of what is after the layers.
    output: int

    @property
    def counts(self) -> list[int]:
        """Layers on each GPU."""
        return [self.home.count(k) for k in self.gpus]

    @property
    def on_host(self) -> int:
        """Layers on the host."""
        return self.home.count(-1)

    @property
    def in_order(self) -> list[int]:
        """Such numbers of layers, the host first and then the GPUs in their order."""
        gpus = [k for k, count in zip(self.gpus, self.counts, strict=True) for _ in range(count)]
        return [-1] * self.on_host + gpus

    @property
    def is_in_order(self) -> bool:
        """Whether the plan is what the tools make of its numbers."""
        last = self.home[-1]
        return self.is_whole and self.home == self.in_order and self.output in (last, -1)


def plan_layers(instance: Instance, plan: Plan) -> LayerHomes:
    """Read a plan as homes of layers."""
    names = layer_list(instance)
    number = {name: at for at, name in enumerate(names)}
    devices = instance.cluster.devices
    gpus = tuple(k for k, device in enumerate(devices) if not is_cpu(device, instance.cluster))
    place = [k if k in gpus else -1 for k in plan.devices.tolist()]
    layers = layer_of(instance.graph)
    after = {name for name, before in layer_ends(instance, layers).items() if not before}
    held: list[dict[bool, dict[int, int]]] = [{} for _ in names]
    output: dict[int, int] = {}
    for op, layer, at in zip(instance.graph.ops, layers, place, strict=True):
        size = op.resident_bytes + op.parameter_bytes
        if layer in after:
            output[at] = output.get(at, 0) + size
        if layer is None or layer not in number:
            continue
        part = held[number[layer]].setdefault(is_expert(op), {})
        part[at] = part.get(at, 0) + size
    home, away, is_whole = list[int](), list[int](), True
    for at, parts in enumerate(held):
        best = {kind: max(part, key=lambda k: (part[k], -k)) for kind, part in parts.items()}
        is_whole &= all(len(part) == 1 for part in parts.values())
        home.append(best.get(False, best.get(True, -1)))
        if best.get(True, home[-1]) != home[-1]:
            is_whole &= best[True] == -1
            away.append(at)
    last = max(output, key=lambda k: (output[k], -k)) if output else home[-1]
    return LayerHomes(gpus, home, tuple(away), is_whole, last)


def write_llamacpp(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The options of a plan, in one line."""
    found = plan_layers(instance, plan)
    if not found.is_in_order:
        _refuse(instance, plan, semantics, found, _llamacpp_line)
    return _llamacpp_line(found) + "\n"


def _llamacpp_line(found: LayerHomes) -> str:
    has_output = found.output != -1 and found.on_host < len(found.home)
    words = ["-ngl", str(len(found.home) - found.on_host + has_output)]
    counts = found.counts
    if len(counts) > 1:
        used = [k for k, count in enumerate(counts) if count]
        if used and has_output:
            counts[used[-1]] += 1
        words += ["-ts", ",".join(map(str, counts))]
    if found.away:
        if found.away == tuple(range(len(found.away))):
            words += ["--n-cpu-moe", str(len(found.away))]
        else:
            words += ["-ot", f'"blk\\.({"|".join(map(str, found.away))})\\.ffn_.*_exps\\.=CPU"']
    return " ".join(words)


def write_exllama(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The GPU split of a plan: GB of each device, rounded up to a hundredth."""
    found = plan_layers(instance, plan)
    if found.on_host or found.away:
        raise InputError("the plan has layers on a host, and exllama runs on GPUs alone")
    if not found.is_in_order:
        _refuse(
            instance,
            plan,
            semantics,
            found,
            lambda nearest: f"layers {','.join(map(str, nearest.counts))}",
        )
    held = np.zeros(instance.num_devices, np.int64)
    np.add.at(held, plan.devices, instance.arrays.resident_bytes)
    shares = [ceil_div(int(held[k]), HUNDREDTH_GIB) / 100 for k in found.gpus]
    return f"-gs {','.join(f'{share:.2f}' for share in shares)}\n"


def write_ollama(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The line of a Modelfile."""
    found = plan_layers(instance, plan)
    if sum(count > 0 for count in found.counts) > 1:
        raise InputError("ollama divides layers between GPUs by itself; export llamacpp")
    if not found.is_in_order or found.away:
        _refuse(instance, plan, semantics, found._replace(away=()), _ollama_line)
    return _ollama_line(found) + "\n"


def _ollama_line(found: LayerHomes) -> str:
    has_output = found.output != -1 and found.on_host < len(found.home)
    return f"PARAMETER num_gpu {len(found.home) - found.on_host + has_output}"


def _refuse(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    found: LayerHomes,
    say: Callable[[LayerHomes], str],
) -> None:
    """Say what the nearest plan is that fits, and what it costs: where the same numbers of layers
    do not fit, one after another goes to where least is missing.
    """
    value, is_whole = evaluate(instance, plan, semantics).value_ns, found.is_whole
    limits = instance.arrays.memory_bytes.tolist()

    def judged(each: LayerHomes) -> tuple[int, int, LayerHomes]:
        """What does not fit, in bytes, and the value."""
        verdict = evaluate(instance, _in_order(instance, each), semantics)
        held = [use.memory_bytes for use in verdict.uses]
        over = sum(max(0, size - limit) for size, limit in zip(held, limits, strict=True))
        return (0 if verdict.feasible else max(1, over)), verdict.value_ns or 0, each

    over, theirs, found = judged(found)
    for _ in found.home:
        if not over:
            break
        nearest = min(
            map(judged, _one_moved(instance, found)), key=lambda one: one[:2], default=None
        )
        if nearest is None or nearest[0] >= over:
            break
        over, theirs, found = nearest
    if over or not value:
        cost = "which does not fit" + ("" if is_whole else "; add --granularity layer")
    else:
        cost = f"which takes {100 * (theirs / value - 1):+.1f} %"
    raise InputError(
        f"layers are divided, or in another order; the nearest is {say(found)}, {cost}"
    )


def _one_moved(instance: Instance, found: LayerHomes) -> Iterator[LayerHomes]:
    """One layer on another device, the order kept."""
    places = list(found.gpus) if len(found.gpus) == instance.num_devices else [-1, *found.gpus]
    for one in places:
        for other in places:
            if one != other and found.home.count(one):
                home = sorted(found.home, key=places.index)
                home[home.index(one)] = other
                home.sort(key=places.index)
                away = tuple(at for at in found.away if home[at] != -1)
                yield found._replace(home=home, away=away)


def _in_order(instance: Instance, found: LayerHomes) -> Plan:
    """The plan that a tool makes of a number of layers on each device."""
    hosts = [k for k in range(instance.num_devices) if k not in found.gpus]
    in_order = [hosts[0] if at == -1 else at for at in found.in_order]
    first = hosts[0] if hosts else in_order[0]
    last = first if found.output == -1 else in_order[-1]
    home = homes_by_layer(instance, [first, *in_order, last])
    layers, names = layer_of(instance.graph), layer_list(instance)
    away = {names[at] for at in found.away}
    for i, op in enumerate(instance.graph.ops):
        if layers[i] in away and is_expert(op):
            home[i] = hosts[0]
    return Plan.on(home)
