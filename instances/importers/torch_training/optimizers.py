"""What optimizers hold and move for each parameter.

Weights of 16 bits are trained with a master copy in float32, and optimizer state is float32 then
(Micikevicius et al. 2018; the 16 bytes per parameter of Adam are those of Rajbhandari et al. 2020,
section 3.1). ``adam8bit`` keeps its two states in 8 bits, with a float32 scale for each block of
2048 values, and updates the weights in their own type (Dettmers et al. 2022).
"""

from __future__ import annotations

from collections.abc import Mapping

from placegap.instances.problem.integers import ceil_div
from placegap.instances.torch_models.options import Optimizer

NUM_STATES: Mapping[Optimizer, int] = {
    "sgd": 0,
    "momentum": 1,
    "adam": 2,
    "adam8bit": 2,
    "none": 0,
}
"""Values that an optimizer keeps for each weight."""

MASTER_BYTES = 4
"""Per weight of a master copy, and per value of optimizer state beside it."""

BLOCK = 2048
SCALE_BYTES = 4


def optimizer_bytes(optimizer: Optimizer, num_weights: int, weight_bytes: int) -> int:
    """Bytes that an optimizer holds besides weights and gradients, master copy included.

    Parameters
    ----------
    optimizer : {"sgd", "momentum", "adam", "adam8bit", "none"}
    num_weights : int
    weight_bytes : int
        Of one weight.

    Examples
    --------
    >>> [optimizer_bytes("adam", 2048, size) for size in (4, 2)]  # m, v; master, m, v
    [16384, 24576]
    >>> optimizer_bytes("adam8bit", 2048, 4)  # m and v, each with one scale
    4104
    """
    states = NUM_STATES[optimizer]
    if optimizer == "none":
        return 0
    if optimizer == "adam8bit":
        return states * (num_weights + SCALE_BYTES * ceil_div(num_weights, BLOCK))
    if weight_bytes < MASTER_BYTES:
        return num_weights * MASTER_BYTES * (1 + states)
    return num_weights * weight_bytes * states


def update_bytes(optimizer: Optimizer, num_weights: int, weight_bytes: int) -> int:
    """Bytes that one update reads and writes.

    It reads gradients and state, and writes state and weights; without a master copy it reads the
    weights, too.

    Examples
    --------
    >>> update_bytes("adam", 1, 4)  # reads w, g, m, v; writes w, m, v
    28
    >>> update_bytes("adam", 1, 2)  # reads g, master, m, v; writes master, m, v, w
    28
    """
    has_master = weight_bytes < MASTER_BYTES and optimizer != "adam8bit"
    weights = num_weights * weight_bytes
    held = optimizer_bytes(optimizer, num_weights, weight_bytes)
    return 2 * held + (2 if has_master else 3) * weights
