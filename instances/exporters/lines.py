"""Lines of tools that put numbered layers in a row on devices: llama.cpp, exllama, ollama, vLLM.

A *line* has the device of what is before the layers, of each layer, and of what is after them (its
*slots*), and the layers whose experts are on the host. Its devices follow each other, each once.
`LineClass` describes the lines of a tool. Reader, writer and search (`best_line`) go by it alone:
"optimal for this format" is said of the lines that are read and written.

- **llama.cpp** (``llama-model.cpp`` and ``common/arg.cpp`` of 2026): ``-ngl`` counts the last
  slots that are on GPUs, the output being the last of all; the embeddings are on the host. ``-ts``
  divides these slots between the GPUs, in the order of ``--device``. ``--n-cpu-moe N`` leaves the
  experts of the first N layers on the host, and ``-ot`` those of layers that a pattern matches.
- **ollama**: ``num_gpu`` of a Modelfile counts as ``-ngl`` does; several GPUs it divides by itself.
- **exllama**: ``-gs`` are GiB for each GPU, filled in order by weights and cache; there is no host.
- **vLLM, SGLang**: layers of each rank, embeddings on the first one and the head on the last one;
  a rank may have no layer (``get_pp_indices``).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import count, groupby
from typing import NamedTuple

import numpy as np

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.exporters.modules import layer_list
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Cluster, Instance, Plan, Semantics
from placegap.instances.problem.device_classes import Classes, equal_columns, interchangeable
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.modules import homes_by_layer, is_expert
from placegap.instances.reading.errors import InputError

GIB = 2**30  # unit of exllama's shares
VISIBLE = "CUDA_VISIBLE_DEVICES="  # for tools without an option for the order of GPUs


class LineClass(NamedTuple):
    """Which lines a tool can express."""

    # What is before or after the layers may be alone on a device, but for embeddings where a tool
    # keeps them on a host and the cluster has none.

    has_host: bool = False  # whether a host comes first, with what is before the layers, and layers
    experts_apart: bool = False  # whether experts of any layers may be on the host
    most_gpus: int | None = None  # how many GPUs it takes at most
    #: Whether GPUs are filled by bytes: a slot without bytes is where the one before it is.
    fills: bool = False


class LayerLine(NamedTuple):
    """Layers in a row on devices."""

    home: tuple[int, ...]  # the device of each slot
    away: tuple[int, ...] = ()  # layers, from 0, whose experts are on the host

    @property
    def devices(self) -> list[int]:
        return [k for k, _ in groupby(self.home)]


class LayerSlots(NamedTuple):
    """The slot of each op, (n,), and whether it is of the experts of its layer."""

    slot: Ints
    expert: Flags

    def plan(self, line: LayerLine, host: int | None) -> Plan:
        home = np.array(line.home)[self.slot]
        if line.away:
            home[self.expert & np.isin(self.slot, np.array(line.away) + 1)] = host
        return Plan.on(home.tolist())


def slots_of(instance: Instance, num_layers: int | None = None) -> LayerSlots:
    """Where the ops of a model belong, by default of one with one list of layers."""
    # Colocated ops are where the first of them is. Experts are those whose whole group is of
    # experts.
    count = len(layer_list(instance)) if num_layers is None else num_layers
    slot = np.array(homes_by_layer(instance, range(count + 2)), np.int64)
    arrays = instance.arrays
    expert = np.array([is_expert(op) for op in instance.graph.ops], np.bool_)
    expert &= (slot > 0) & (slot <= count)
    mixed = np.zeros(arrays.num_groups, np.bool_)
    mixed[arrays.group[~expert]] = True
    return LayerSlots(slot, expert & ~mixed[arrays.group])


def gpus_and_host(cluster: Cluster) -> tuple[list[int], int | None]:
    """The devices that are no CPUs, and the first of those that are."""
    cpus = [k for k, device in enumerate(cluster.devices) if is_cpu(device, cluster)]
    return [k for k in range(len(cluster.devices)) if k not in cpus], cpus[0] if cpus else None


def even_counts(layers: int, ranks: int, tool: str) -> list[int]:
    """Layers of each rank by default."""
    # vLLM gives what remains to ranks from the last but one backwards, SGLang to the last ones.
    each, rest = divmod(layers, ranks)
    begin = ranks - rest - (tool == "vllm" and rest > 0)
    return [each + (begin <= rank < begin + rest) for rank in range(ranks)]


def line_of(instance: Instance, plan: Plan) -> LayerLine:
    """Read a plan as a line."""
    if any(len(on) > 1 for on in plan.placement):
        raise InputError("ops are on several devices, but this format has no replicas")
    slots, device = slots_of(instance), plan.devices
    _, host = gpus_and_host(instance.cluster)
    num = len(layer_list(instance)) + 2
    home = list[int]()
    for s in range(num):
        here = np.flatnonzero((slots.slot == s) & ~slots.expert)
        here = here if len(here) else np.flatnonzero(slots.slot == s)
        home.append(int(device[here[0]]) if len(here) else home[-1] if home else int(device[0]))
    away = np.unique(
        slots.slot[slots.expert & (device == host) & (np.array(home)[slots.slot] != host)]
    )
    line = LayerLine(tuple(home), tuple((away - 1).tolist()))
    if slots.plan(line, host) != plan or len(line.devices) > len(set(home)):
        raise InputError("the format cannot express divided layers, or this order of layers")
    return line


def why_not(instance: Instance, line: LayerLine, kind: LineClass) -> str | None:
    """Why a tool cannot say a line, or None."""
    gpus, host = gpus_and_host(instance.cluster)
    used = line.devices
    if not kind.has_host and (line.away or not set(used) <= set(gpus)):
        return "it has layers on a host, but the tool uses only GPUs"
    if kind.has_host and (set(used[1:]) - set(gpus) or (host is not None and used[0] != host)):
        return "the layers on the host are not the first ones"
    if line.away and not kind.experts_apart:
        return "it has experts on other devices than their layers"
    if kind.has_host and host is None and line.home[0] != line.home[1]:
        return "the embedding is not on the device of the first layer"
    if kind.most_gpus is not None and len(set(used) & set(gpus)) > kind.most_gpus:
        return (
            "the tool itself divides layers among several GPUs, by rules that are not read; choose"
            f" one ({VISIBLE}0)"
        )
    begins = [s for s in range(1, len(line.home)) if line.home[s] != line.home[s - 1]]
    if kind.fills and not filling_bytes(instance)[begins].all():
        return "a GPU begins with a layer without bytes, but the tool fills GPUs by bytes"
    return None


def filling_bytes(instance: Instance) -> Ints:
    """Bytes of each slot by which exllama fills GPUs."""
    # These are weights and cache, not the activations that resident bytes of a prompt have;
    # resident bytes where a file states nothing else.
    slot, found = slots_of(instance).slot, np.zeros(len(layer_list(instance)) + 2, np.int64)
    for op, at in zip(instance.graph.ops, slot.tolist(), strict=True):
        own = op.parameter_bytes if op.state_bytes is None else op.state_bytes
        is_stated = op.state_bytes is not None or own
        found[at] += (own if is_stated else op.resident_bytes) + sum(op.shared_state.values())
    return found


def filled(bytes_: Ints, shares: Sequence[Fraction], gpus: Sequence[int]) -> tuple[int, ...]:
    """The GPU of each slot: the first one, from that of the slot before it on, that has room."""
    home, at, left = list[int](), 0, shares[0] * GIB
    for need in bytes_.tolist():
        while need > left:
            at += 1
            if at == len(shares):
                raise InputError("the shares are less than the model takes")
            left = shares[at] * GIB
        left -= need
        home.append(gpus[at])
    return tuple(home)


def _renamed(instance: Instance, line: LayerLine) -> LayerLine:
    """The line on the first of the devices that are alike."""
    members = {k: own for own in alike_devices(instance) for k in own}
    to, next_of = dict[int, int](), dict[int, int]()
    for k in line.devices:
        first = members[k][0]
        at = next_of[first] = next_of.get(first, -1) + 1
        to[k] = members[k][at]
    return line._replace(home=tuple(to[k] for k in line.home))


def alike_devices(instance: Instance) -> Classes:
    """Devices in classes: any two of a class may change places, and nothing else changes."""
    arrays, cluster = instance.arrays, instance.cluster
    cpu = [is_cpu(device, cluster) for device in cluster.devices]
    own = arrays.time_ns, arrays.memory_bytes, arrays.is_host, cpu, cluster.server_numbers[1]
    return interchangeable(equal_columns(*own), arrays.link_class)


def _said(
    instance: Instance, plan: Plan, kind: LineClass
) -> tuple[LayerLine, list[int], list[int], str]:
    """The line of a plan, all GPUs, those of the line, and what sets another order of them."""
    line = line_of(instance, plan)
    gpus, host = gpus_and_host(instance.cluster)
    if kind.has_host and host is not None and (slots_of(instance).slot > 0).all():
        line = line._replace(home=(host, *line.home[1:]))
    line = _renamed(instance, line)
    why = why_not(instance, line, kind)
    if why is not None:
        raise InputError(why)
    used = [gpus.index(k) for k in line.devices if k in gpus]
    is_usual = used == list(range(len(used)))
    is_usual |= any(device.server is not None for device in instance.cluster.devices)
    return line, gpus, used, "" if is_usual else f"{VISIBLE}{','.join(map(str, used))} "


LLAMACPP = LineClass(has_host=True, experts_apart=True)
OLLAMA = LineClass(has_host=True, most_gpus=1)
EXLLAMA = LineClass(fills=True)
# Of vLLM, SGLang, Megatron ("Et*3|(tt|)*29,m|L" in its guide), torchtitan and pipelining.
RANKS = LineClass()


def write_llamacpp(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The options of llama.cpp, in one line."""
    line, gpus, used, order = _said(instance, plan, LLAMACPP)
    counts = [sum(k == gpus[at] for k in line.home[1:]) for at in used]
    is_part = used and (order or len(used) < len(gpus))
    words = ["--device", ",".join(f"CUDA{at}" for at in used)] if is_part else []
    words += ["-ngl", str(sum(counts))]
    if len(used) > 1:
        words += ["-ts", ",".join(map(str, counts))]
    if line.away:
        slots = slots_of(instance)
        with_experts = set((np.unique(slots.slot[slots.expert]) - 1).tolist())
        upto = line.away[-1] + 1
        on_host = {n for n in with_experts if line.home[n + 1] not in gpus}
        if {n for n in with_experts if n < upto} <= {*line.away, *on_host}:
            words += ["--n-cpu-moe", str(upto)]
        else:
            words += ["-ot", f'"blk\\.({"|".join(map(str, line.away))})\\.ffn_.*_exps\\.=CPU"']
    return " ".join(words) + "\n"


def write_ollama(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The line of a Modelfile, and a comment on which of several GPUs is used."""
    line, gpus, used, _ = _said(instance, plan, OLLAMA)
    chosen = f"# ollama serve with {VISIBLE}{used[0]}\n" if used and len(gpus) > 1 else ""
    return f"{chosen}PARAMETER num_gpu {sum(k in gpus for k in line.home[1:])}\n"


def write_exllama(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The GPU split of a plan: GiB of each device."""
    # With as many places as the next slot needs not to fit there as well.
    line, _, _, order = _said(instance, plan, EXLLAMA)
    bytes_, shares, end = filling_bytes(instance).tolist(), list[str](), 0
    for _, own in groupby(line.home):
        begin, end = end, end + len(list(own))
        held = sum(bytes_[begin:end])
        for places in count(2):
            unit = 10**places
            share = ceil_div(held * unit, GIB)
            if end == len(bytes_) or share * GIB < (held + bytes_[end]) * unit:
                break
        shares.append(f"{share // unit}.{share % unit:0{places}d}")
    return f"{order}-gs {','.join(shares)}\n"


def write_partition(tool: str, instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The line that sets ``VLLM_PP_LAYER_PARTITION``, or SGLang's."""
    line, _, _, order = _said(instance, plan, RANKS)
    counts = [line.home[1:-1].count(k) for k in line.devices]
    return f"{order}{tool}_PP_LAYER_PARTITION={','.join(map(str, counts))}\n"
