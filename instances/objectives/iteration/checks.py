"""What pipeline_iteration needs of an instance."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem import Instance, PipelineIteration
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_EVENTS


def check_iteration(instance: Instance, semantics: PipelineIteration) -> None:
    """Raise an InputError where all microbatches overflow, or have too many events."""
    arrays, splits = instance.arrays, semantics.schedule == "zero_bubble"
    if splits:
        _check_split(instance)
    passes = 2 + splits if arrays.backward.any() else 1
    stages = min(instance.num_devices * semantics.stages_per_device, arrays.num_groups)
    MAX_EVENTS.check(
        passes * stages * semantics.microbatches,
        f"an iteration of {semantics.microbatches} microbatches in {stages} stages",
        instance.name,
    )
    moves = sum(arrays.transfer_ns.max(axis=1, initial=0).tolist())
    moves += sum(arrays.host_ns.max(axis=1, initial=0).tolist())
    time_ns = sum(arrays.time_ns.max(axis=1).tolist()) + instance.num_devices * moves
    held = 2 * sum(instance.memory_arrays.tensor_bytes.tolist()) * instance.num_devices
    held += sum(arrays.resident_bytes.tolist())
    if semantics.memory == "peak":
        sizes = instance.memory_arrays
        held += sum(sizes.workspace_bytes.tolist()) + sum(sizes.state_bytes.tolist())
        held += sum(sizes.shared_bytes.tolist()) * instance.num_devices
    for total, what in ((time_ns, "take {} ns"), (held, "hold {} bytes")):
        if total * semantics.microbatches > LARGEST_SUM:
            most = what.format(total * semantics.microbatches)
            raise InputError(
                f"{semantics.microbatches} microbatches may {most}, above 2**62; use fewer",
                instance.name,
            )


def _check_split(instance: Instance) -> None:
    """Raise an InputError where a training step does not mark its weight gradients."""
    arrays, index, ops = instance.arrays, instance.arrays.index, instance.graph.ops
    if not arrays.backward.any():
        return
    if not arrays.weight_gradient.any():
        raise InputError(
            "zero_bubble: no backward op is marked weight_gradient, as those that only updates of"
            " weights wait for must be; mark them (placegap convert MODEL OUT --weight-gradients),"
            " or choose --schedule 1f1b",
            instance.name,
        )
    wrong = arrays.weight_gradient[index.producer] & ~arrays.weight_gradient[index.consumer]
    if wrong.any():
        at = int(np.argmax(wrong))
        a, b = (ops[int(ends[at])].name for ends in (index.producer, index.consumer))
        raise InputError(
            f"zero_bubble: op {a!r} is marked weight_gradient and feeds {b!r}, which is not; mark"
            f" both, or {a!r} not",
            instance.name,
        )
