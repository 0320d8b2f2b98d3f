"""Cuts of pipelines on unlike devices: each also says how many devices of each kind lie before it.

So a stage knows its device's kind, and its times and memory are exact.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import PipelineIteration
from placegap.solvers.pipeline.cuts import CutProblem, build_cuts

MOST_PAIRS = 500_000
"""With more pairs of cuts and kinds, devices are taken for as fast as the fastest."""


def device_kinds(instance: Instance) -> list[list[int]]:
    """Devices that are alike, links aside, by their first ones.

    Examples
    --------
    >>> from placegap.instances import example
    >>> device_kinds(example())
    [[0, 1]]
    """
    arrays = instance.arrays
    kinds: dict[bytes, list[int]] = {}
    for k in range(instance.num_devices):
        parts = (
            arrays.time_ns[:, k],
            arrays.host_ns[:, k],
            arrays.memory_bytes[k : k + 1],
            arrays.is_host[k : k + 1].astype(np.int64),
        )
        kinds.setdefault(np.concatenate(parts).tobytes(), []).append(k)
    return list(kinds.values())


def with_kinds(
    instance: Instance, semantics: PipelineIteration, base: CutProblem
) -> CutProblem | None:
    """The problem with a cut for each number of devices of each kind before it.

    None where devices are of one kind, where stages share devices, or where there are too many
    pairs.
    """
    kinds = device_kinds(instance)
    if len(kinds) == 1 or semantics.stages_per_device > 1:
        return None
    vectors = list(product(*(range(len(devices) + 1) for devices in kinds)))
    if len(base.tail) * len(vectors) * len(kinds) > MOST_PAIRS:
        return None
    number = {vector: at for at, vector in enumerate(vectors)}
    count, last = len(vectors), base.num_cuts - 1
    parts: list[tuple[Ints, ...]] = []
    for d, devices in enumerate(kinds):
        own = build_cuts(instance, semantics, base.block, base.num_cuts, device=devices[0])
        steps = [
            (at, number[(*vector[:d], vector[d] + 1, *vector[d + 1 :])])
            for at, vector in enumerate(vectors)
            if vector[d] < len(devices)
        ]
        for before, after in steps:
            parts.append(
                (
                    own.tail * count + before,
                    np.where(own.head == last, last * count, own.head * count + after),
                    own.forward_ns,
                    own.backward_ns,
                    own.weight_ns,
                    own.stash_bytes,
                    own.kept_bytes,
                    own.resident_bytes,
                    own.room,
                    np.full(len(own.tail), d),
                )
            )
    tail, head, forward, backward, weight, stash, kept, resident, room, kind = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    used = np.array([sum(vector) for vector in vectors], np.int64)
    return CutProblem(
        block=base.block,
        members=np.vstack([np.repeat(base.members[:-1], count, axis=0), base.members[-1:]]),
        tail=tail,
        head=head,
        forward_ns=forward,
        backward_ns=backward,
        weight_ns=weight,
        stash_bytes=stash,
        kept_bytes=kept,
        resident_bytes=resident,
        forth_ns=np.append(np.repeat(base.forth_ns[:-1], count), base.forth_ns[-1:]),
        back_ns=np.append(np.repeat(base.back_ns[:-1], count), base.back_ns[-1:]),
        room=room,
        used=np.append(np.tile(used, last), -1),
        kind=kind,
        kinds=tuple(tuple(devices) for devices in kinds),
        passes=base.passes,
        complete=base.complete,
        plain=False,
    )
