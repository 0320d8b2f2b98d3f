"""Measured times of kernels: the rows' own, what lies between and beyond, and tables that are bad.

The tables of the first tests are made here, on a card of 1,000 bytes and 10**6 FLOP a microsecond,
so that small products take their bytes in ns. Others read the extra's own, where it is installed.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from placegap.instances.costing import kernel_tables as module
from placegap.instances.costing.kernel_tables import Attention, KernelTables, kernel_tables
from placegap.instances.problem import DeviceSpec
from placegap.instances.problem.op_kernel import AttentionKernel, ExpertsKernel, MatrixProduct
from placegap.instances.reading.errors import InputError

CARD = DeviceSpec(
    peak_flops_per_s={"bfloat16": 10**12, "float8": 10**12},
    bandwidth_bytes_per_s=10**9,
    memory_bytes=None,
)

Phase = Literal["context", "generation", "encoder"]


def tables(measured: DeviceSpec = CARD, **rows: list[dict[str, Any]]) -> KernelTables:
    """Tables of these rows, measured on one card, of another."""
    found = {
        f"{name}_perf": {
            column: np.array([row[column] for row in of_table]) for column in of_table[0]
        }
        for name, of_table in rows.items()
    }
    return KernelTables("test", CARD, measured, found.get)


def gemm(m: int, n: int, k: int, us: float, dtype: str = "bfloat16") -> dict[str, Any]:
    return {"gemm_dtype": dtype, "m": m, "n": n, "k": k, "latency": us / 1000}


def times(m: int, n: int, k: int, dtype: str = "bfloat16", batch: int = 1) -> MatrixProduct:
    return MatrixProduct(m=m, n=n, k=k, dtype=dtype, batch=batch)


# 2 (m k + k n + m n) bytes: 8,448 at (1, 64, 64), 9,216 at (4, 64, 64), 8,704 at (2, 64, 64),
# 33,408 at (1, 64, 256) and 35,328 at (4, 64, 256): ratios 2, 8, -, 4, (hole: mean of 8 and 4)
GEMMS = [gemm(1, 64, 64, 16.896), gemm(4, 64, 64, 73.728), gemm(1, 64, 256, 133.632)]


def test_a_product_that_a_row_states_takes_its_time() -> None:
    found = tables(gemm=GEMMS)
    assert found.time_ns(times(1, 64, 64)) == pytest.approx(16_896)
    # half precisions are one; in other types nothing was measured
    assert found.time_ns(times(4, 64, 64, "float16")) == pytest.approx(73_728)
    assert found.time_ns(times(1, 64, 64, "float32")) is None
    assert found.time_ns(times(1, 64, 64, "float8_e4m3fn")) is None


def test_between_rows_and_beyond_them_the_ratio_to_the_roofline_is_interpolated_and_held() -> None:
    found = tables(gemm=GEMMS)
    # halfway in the logarithm of m: sqrt(2 x 8) = 4
    assert found.time_ns(times(2, 64, 64)) == pytest.approx(4 * 8_704)
    # beyond m = 4 the ratio is 8: 2 (64 x 64 + 64 x 64 + 64 x 64) = 24,576 bytes
    assert found.time_ns(times(64, 64, 64)) == pytest.approx(8 * 24_576)
    # the hole has the mean of its neighbours' logarithms: sqrt(8 x 4)
    assert found.time_ns(times(4, 64, 256)) == pytest.approx(32**0.5 * 35_328)
    # four products of one row have the ratio of four rows, and four times one's bytes
    assert found.time_ns(times(1, 64, 64, batch=4)) == pytest.approx(8 * 4 * 8_448)


def test_a_product_below_the_table_takes_what_its_least_takes_and_a_batch_of_them_no_time() -> None:
    found = tables(gemm=GEMMS)
    # a tile is computed whole: (1, 64, 64)
    assert found.time_ns(times(1, 8, 2)) == pytest.approx(16_896)
    assert found.time_ns(times(1, 63, 64)) == pytest.approx(16_896)
    # a depthwise convolution runs as something else
    assert found.time_ns(times(1, 1, 9, batch=32)) is None
    assert found.time_ns(times(1, 64, 9, batch=2)) is None


def test_of_rows_that_say_the_same_the_fastest_counts() -> None:
    found = tables(gemm=[*GEMMS, gemm(1, 64, 64, 8.448), gemm(1, 64, 64, 20.0)])
    assert found.time_ns(times(1, 64, 64)) == pytest.approx(8_448)


def test_a_card_like_the_measured_one_differs_by_its_own_roofline() -> None:
    fast = CARD.model_copy(update={"bandwidth_bytes_per_s": 2 * 10**9})
    # measured at twice the bandwidth, so that the ratio is 4
    assert tables(fast, gemm=GEMMS).time_ns(times(1, 64, 64)) == pytest.approx(2 * 16_896)


def attends(phase: Phase, **sizes: Any) -> AttentionKernel:
    chosen = {"batch": 1, "heads": 8, "kv_heads": 2, "head_size": 64, "new_tokens": 1}
    types = {"dtype": "bfloat16", "cache_dtype": "bfloat16"}
    return AttentionKernel(phase=phase, **{**chosen, **types, **sizes})


def attention(
    us: float,
    heads: int = 8,
    batch: int = 1,
    isl: int = 1,
    step: int = 0,
    window: int = 0,
    cache: str = "bfloat16",
) -> dict[str, Any]:
    """A row with four heads to each one of keys."""
    return {
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": cache,
        "batch_size": batch,
        "num_heads": heads,
        "num_key_value_heads": heads // 4,
        "head_dim": 64,
        "isl": isl,
        "step": step,
        "window_size": window,
        "latency": us / 1000,
    }


# with 8 heads a step moves 64 (4 x 8 + 4 x 2 x seen) bytes: 10,240 of 16 tokens, 34,816 of 64
STEPS = [
    attention(20.48, step=15),
    attention(69.632, step=63),
    attention(163.84, step=15, batch=4),
    attention(557.056, step=63, batch=4),
    attention(25.0, step=15, window=8),
    attention(30.0, step=63, window=8),
    attention(18.0, step=63, cache="fp8"),
]


def test_attention_that_a_row_states_takes_its_time() -> None:
    found = tables(generation_attention=STEPS)
    for kernel, ns in (
        (attends("generation", held_tokens=15), 20_480),
        (attends("generation", held_tokens=63, batch=4), 557_056),
        (attends("generation", held_tokens=63, window=8), 30_000),
        (attends("generation", held_tokens=63, cache_dtype="float8_e4m3fn"), 18_000),
    ):
        assert found.time_ns(kernel) == pytest.approx(ns)
    # 32 tokens: 18,432 bytes at the ratio 2 of both neighbours
    assert found.time_ns(attends("generation", held_tokens=31)) == pytest.approx(2 * 18_432)


def test_heads_that_were_not_measured_count_as_sequences() -> None:
    found = tables(generation_attention=STEPS)
    # 32 heads and 8 of keys: four times 8 and 2
    assert found.time_ns(
        attends("generation", heads=32, kv_heads=8, held_tokens=15)
    ) == pytest.approx(163_840)


def test_attention_takes_no_less_than_the_least_row_of_its_shape() -> None:
    found = tables(generation_attention=STEPS)
    # 4 heads and 1 of keys: half of 8 and 2, which take 20.48 us at the least and 69.632 of 64
    small = {"heads": 4, "kv_heads": 1}
    assert found.time_ns(attends("generation", **small, held_tokens=15)) == pytest.approx(20_480)
    assert found.time_ns(attends("generation", **small, held_tokens=63)) == pytest.approx(34_816)


def test_a_window_that_was_not_measured_is_as_much_without_one() -> None:
    found = tables(generation_attention=STEPS)
    assert found.time_ns(attends("generation", held_tokens=63, window=16)) == pytest.approx(20_480)
    # a prompt of 7 tokens that see at most 2: 1 + 6 x 2 = 13 pairs, between those of 4 and 5 tokens
    prompt = [attention(us, isl=isl) for us, isl in ((30.0, 4), (50.0, 5), (90.0, 7))]
    narrow = tables(context_attention=prompt).time_ns(attends("context", new_tokens=7, window=2))
    assert narrow is not None
    # roofline of 7 tokens: 64 x 7 x (4 x 8 + 4 x 2) = 17,920 bytes; of 4: 10,240; of 5: 12,800
    assert 30.0 / 10.240 < narrow / 17_920 < 50.0 / 12.8


def test_attention_that_no_row_is_like_has_no_time() -> None:
    found = tables(generation_attention=STEPS)
    for kernel in (
        attends("generation", held_tokens=15, head_size=128),
        attends("generation", held_tokens=15, dtype="float32"),
        attends("generation", held_tokens=15, cache_dtype="int8"),
        attends("generation", held_tokens=15, new_tokens=4),
        attends("encoder", new_tokens=16),
    ):
        assert found.time_ns(kernel) is None


@pytest.mark.parametrize("phase", ["context", "generation", "encoder"])
def test_pairs_are_those_that_a_loop_counts(phase: str) -> None:
    for new, held, window in product((1, 3, 6), (0, 2, 7), (0, 1, 3, 50)):
        pairs = 0
        for at in range(new):
            seen = new if phase == "encoder" else held + at + 1
            pairs += min(seen, window) if window else seen
        assert Attention(1, 1, 1, 1, new, held, window).pairs(phase) == pairs


def experts(us: float, tokens: int, distribution: str = "balanced") -> dict[str, Any]:
    return {
        "moe_dtype": "bfloat16",
        "distribution": distribution,
        "moe_tp_size": 1,
        "moe_ep_size": 1,
        "num_tokens": tokens,
        "hidden_size": 64,
        "inter_size": 128,
        "topk": 2,
        "num_experts": 8,
        "latency": us / 1000,
    }


def mixture(**sizes: int) -> ExpertsKernel:
    chosen = {"tokens": 1, "hidden": 64, "inner": 128, "chosen": 2, "experts": 8}
    return ExpertsKernel(**{**chosen, **sizes}, dtype="bfloat16")


def test_experts_of_a_row_take_its_time_and_others_that_of_the_next_sizes() -> None:
    uneven = [experts(500.0, tokens, "power_law_1.01") for tokens in (1, 4)]
    found = tables(moe=[*uneven, experts(300.0, 1), experts(900.0, 4)])
    assert found.time_ns(mixture()) == pytest.approx(300_000)
    assert found.time_ns(mixture(tokens=4)) == pytest.approx(900_000)
    # one token: two experts of 2 x 3 x 64 x 128 bytes, and 256 of itself; inner halved
    half = (2 * 6 * 64 * 64 + 256) / (2 * 6 * 64 * 128 + 256)
    assert found.time_ns(mixture(inner=64)) == pytest.approx(300_000 * half)
    # 4 tokens leave (3/4)**4 of the experts aside, 16 tokens (3/4)**16; the ratio of 4 holds
    four, sixteen = (8 * (1 - 0.75**tokens) * 6 * 64 * 128 + 256 * tokens for tokens in (4, 16))
    assert found.time_ns(mixture(tokens=16)) == pytest.approx(900_000 * sixteen / four)
    assert found.time_ns(mixture(inner=63)) is None
    assert found.time_ns(mixture(experts=17)) is None
    # without even choices the least uneven stand for them
    assert tables(moe=uneven).time_ns(mixture()) == pytest.approx(500_000)


def test_rows_of_experts_faster_than_three_matrices_are_of_two() -> None:
    # a token: two experts of 2 x 64 x 128 bytes in each matrix, and 256 of itself: 65,792 ns with
    # two matrices and 98,560 with three, at the card's bandwidth
    plain, gated = mixture(inner=64).model_copy(update={"matrices": 2}), mixture(inner=64)
    halves = {2: 2 * 4 * 64 * 64 + 256, 3: 2 * 6 * 64 * 64 + 256}
    for us, had in ((80.0, 65_792), (120.0, 98_560)):
        found = tables(moe=[experts(us, 1)])
        assert found.time_ns(plain) == pytest.approx(us * 1000 * halves[2] / had)
        assert found.time_ns(gated) == pytest.approx(us * 1000 * halves[3] / had)
    # sizes of the row's own: it has the model's matrices
    own = mixture().model_copy(update={"matrices": 2})
    assert tables(moe=[experts(120.0, 1)]).time_ns(own) == pytest.approx(120_000)


def test_cards_without_tables() -> None:
    for kind in ("T4", "A100-80GB-PCIe", "H100-80GB-PCIe", "M2-Ultra"):
        assert kernel_tables(kind) is None


def test_without_the_extra_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_tables.cache_clear()
    for missing in ("aiconfigurator_core", "pyarrow.parquet"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(InputError, match=r"'placegap\[measured\]'"):
                kernel_tables("H100-80GB")


# the extra's own tables

KINDS = ["A100-80GB", "H100-80GB", "L40S", "Arc-Pro-B60"]


def own(kind: str) -> KernelTables:
    pytest.importorskip("aiconfigurator_core", reason="needs placegap[measured]")
    found = kernel_tables(kind)
    assert found is not None
    return found


def some_rows(found: KernelTables, name: str, **equal: str) -> Iterator[dict[str, Any]]:
    """Ten rows, as Parquet has them."""
    table = found.table(name)
    assert table is not None
    chosen = np.logical_and.reduce([table[column] == text for column, text in equal.items()])
    for row in np.flatnonzero(chosen)[:: chosen.sum() // 10][:10]:
        yield {column: value[row].item() for column, value in table.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_products_on_the_grid_take_the_time_of_their_row_to_the_nanosecond(kind: str) -> None:
    found = own(kind)
    for row in some_rows(found, "gemm_perf", gemm_dtype="bfloat16"):
        taken = found.time_ns(times(int(row["m"]), int(row["n"]), int(row["k"])))
        assert taken is not None
        assert round(taken) == round(row["latency"] * 1e6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", ["context", "generation"])
def test_attention_on_the_grid_takes_the_time_of_its_row_to_the_nanosecond(
    kind: str, phase: Phase
) -> None:
    found = own(kind)
    table = found.table(f"{phase}_attention_perf")
    assert table is not None
    for row in some_rows(found, f"{phase}_attention_perf", kv_cache_dtype="bfloat16"):
        kernel = attends(
            phase,
            batch=int(row["batch_size"]),
            heads=int(row["num_heads"]),
            kv_heads=int(row["num_key_value_heads"]),
            head_size=int(row["head_dim"]),
            new_tokens=int(row["isl"]),
            held_tokens=int(row.get("step", 0)),
            window=int(row["window_size"]) or None,
        )
        alike = np.logical_and.reduce(
            [table[column] == value for column, value in row.items() if column != "latency"]
        )
        # A100 has some prompts twice
        least = table["latency"][alike].min()
        taken = found.time_ns(kernel)
        assert taken is not None
        assert round(taken) == round(least * 1e6)


def test_what_is_larger_in_all_sizes_takes_longer() -> None:
    found = own("H100-80GB")
    for m, n, k in product((1, 48, 300, 5000), (100, 3000), (100, 3000)):
        small, large = found.time_ns(times(m, n, k)), found.time_ns(times(4 * m, 4 * n, 4 * k))
        assert small is not None
        assert large is not None
        assert small < large


def test_a_framework_has_tables_of_its_own_and_a_card_without_them_none() -> None:
    assert own("H100-80GB").source == "aiconfigurator-core 0.12.0, vllm 0.24.0"
    assert own("A100-80GB").source == "aiconfigurator-core 0.12.0, vllm 0.14.0"
    other = kernel_tables("H100-80GB", "trtllm")
    assert other is not None
    assert other.source == "aiconfigurator-core 0.12.0, trtllm 1.3.0rc20"
    assert kernel_tables("Arc-Pro-B60", "trtllm") is None


def test_a_damaged_table_is_one_line_that_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiconfigurator_core", reason="needs placegap[measured]")
    from pyarrow import parquet, table

    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(module, "find_spec", lambda _: package)
    kernel_tables.cache_clear()
    with pytest.raises(InputError, match=r"h100_sxm: .*aiconfigurator-core"):
        kernel_tables("H100-80GB")
    path = tmp_path / "systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    rows = {name: [row[name] for row in GEMMS] for name in GEMMS[0]}
    parquet.write_table(table(rows), path)
    whole = path.read_bytes()
    found = kernel_tables("H100-80GB")
    assert found is not None
    assert found.time_ns(times(1, 64, 64)) == pytest.approx(16_896)
    for damage in (whole[: len(whole) // 2], b"", whole.replace(b"latency", b"latenes")):
        path.write_bytes(damage)
        kernel_tables.cache_clear()
        found = kernel_tables("H100-80GB")
        assert found is not None
        with pytest.raises(InputError, match=r"gemm_perf.parquet: .*anew\Z"):
            found.time_ns(times(1, 64, 64))
    kernel_tables.cache_clear()
