"""Optimizers: what they hold and move for a weight."""

from __future__ import annotations

import pytest

from placegap.instances.torch_models.training_model import optimizer_bytes, update_bytes


@pytest.mark.parametrize(
    ("optimizer", "weight_bytes", "held", "moved"),
    [
        # reads w, g; writes w
        ("sgd", 4, 0, 12),
        # reads g, master; writes master, w
        ("sgd", 2, 4, 2 + 4 + 4 + 2),
        ("momentum", 2, 8, 2 + 8 + 8 + 2),
        ("adam", 4, 8, 28),
        ("adam", 2, 12, 2 + 12 + 12 + 2),
    ],
)
def test_bytes_for_one_weight(optimizer: str, weight_bytes: int, held: int, moved: int) -> None:
    assert optimizer_bytes(optimizer, 1, weight_bytes) == held  # type: ignore[arg-type]
    assert update_bytes(optimizer, 1, weight_bytes) == moved  # type: ignore[arg-type]


@pytest.mark.parametrize("weight_bytes", [2, 4])
def test_eight_bit_states_have_a_scale_for_each_block_and_no_master_copy(weight_bytes: int) -> None:
    # 5000 weights are 3 blocks of 2048; two states
    assert optimizer_bytes("adam8bit", 5000, weight_bytes) == 2 * (5000 + 3 * 4)
    moved = 2 * 2 * (5000 + 3 * 4) + 3 * 5000 * weight_bytes
    assert update_bytes("adam8bit", 5000, weight_bytes) == moved
