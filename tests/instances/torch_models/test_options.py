"""Names, options and optimizers of traced models; nothing here needs torch."""

from pathlib import Path

import pytest
from doubles.hidden_extras import each_without_extras

from placegap.instances.torch_models.optimizers import optimizer_bytes, update_bytes
from placegap.instances.torch_models.presets import presets


def test_the_families_of_the_papers_are_there() -> None:
    names = set(presets())
    assert {f"gpt3-{size}" for size in ("330m", "1.3b", "2.7b", "13b")} <= names
    assert {f"swin-{size}" for size in ("tiny", "small", "base", "large")} <= names
    assert {"gpt2", "llama-7b", "llama-70b", "mixtral-8x7b", "t5-small"} <= names
    assert {"llava-1.5-7b", "qwen2-vl-7b", "gemma-3-4b", "whisper-small"} <= names


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    line = "placegap: hf:gpt2: needs torch: pip install 'placegap[torch]'\n"
    assert each_without_extras([["convert", "hf:gpt2", "out.json"]], tmp_path) == [(2, "", line)]


@pytest.mark.parametrize(
    ("optimizer", "weight_bytes", "held", "moved"),
    [
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
