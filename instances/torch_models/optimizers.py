"""What optimizers hold and move, by their states for each weight."""

from __future__ import annotations

from collections.abc import Mapping

from placegap.instances.problem.integers import ceil_div
from placegap.instances.torch_models.options import Optimizer

# Values that an optimizer keeps for each weight.
NUM_STATES: Mapping[Optimizer, int] = {"sgd": 0, "momentum": 1, "adam": 2, "adam8bit": 2, "none": 0}
MASTER_BYTES = 4  # per weight of a master copy, and per value of optimizer state beside it

BLOCK = 2048
SCALE_BYTES = 4


def optimizer_bytes(optimizer: Optimizer, num_weights: int, weight_bytes: int) -> int:
    """Bytes that an optimizer holds besides weights and gradients, master copy included."""
    states = NUM_STATES[optimizer]
    if optimizer == "none":
        return 0
    if optimizer == "adam8bit":
        return states * (num_weights + SCALE_BYTES * ceil_div(num_weights, BLOCK))
    if weight_bytes < MASTER_BYTES:
        return num_weights * MASTER_BYTES * (1 + states)
    return num_weights * weight_bytes * states


def update_bytes(optimizer: Optimizer, num_weights: int, weight_bytes: int) -> int:
    """Bytes that one update reads and writes."""
    # It reads gradients and state, and writes state and weights; without a master copy it reads the
    # weights, too.
    has_master = weight_bytes < MASTER_BYTES and optimizer != "adam8bit"
    weights = num_weights * weight_bytes
    held = optimizer_bytes(optimizer, num_weights, weight_bytes)
    return 2 * held + (2 if has_master else 3) * weights
