"""Random instances whose ops can be split."""

import random

from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import scattered_instance

from placegap.instances import Instance, example
from placegap.instances.transforms.split_rule import AXES


def splittable_diamond() -> Instance:
    """FD-DPS' figure 3, its ops splittable along the batch."""
    axes = {"splittable_axes": ("batch",)}
    return draw.changed(example(), ops=[op.model_copy(update=axes) for op in example().graph.ops])


def splittable_instance(seed: int, num_ops: int = 4) -> Instance:
    """Ops with random axes of random sizes; memory, support and colocation as they come."""
    rng = random.Random(f"splittable-{seed}")
    make = tiny_instance if seed % 2 else scattered_instance
    base = make(seed, num_ops=num_ops, num_devices=2, max_edges=num_ops)
    ops = tuple(
        op.model_copy(
            update={
                "splittable_axes": tuple(axis for axis in AXES if rng.random() < 0.7),
                "axis_sizes": {axis: rng.randint(2, 5) for axis in AXES if rng.random() < 0.5},
                "parameter_bytes": rng.randint(0, op.resident_bytes),
            }
        )
        for op in base.graph.ops
    )
    return draw.changed(base, ops=ops)
