"""Measured costs of layers: the table's own values, and iterations of Megatron-LM.

Expected values are of an independent program over the same tables (products, all-reduces, parts of
a layer and iterations, in ms), printed to the digits that stand here.
"""

import json

import pytest

from placegap.experiments.research.tables.hybrid import Degrees, MeasuredRun, predicted_ms
from placegap.instances.corpus.layer_chains import ModelShape, shape_layers
from placegap.instances.costing.layer_modes import ModelledOn, Precision, Rates, layer_modes
from placegap.instances.costing.measured_rates import (
    KERNEL_NS,
    KernelRates,
    by_rule,
    measured_table,
    roof_ns,
)
from placegap.instances.reading.input_files import data_path


def a100() -> KernelRates:
    table = measured_table("A100-80GB")
    assert table is not None
    return table


@pytest.mark.parametrize(
    ("sizes", "ms"),
    [
        ((4096, 12288, 4096), 1.6767),
        ((2048, 4608, 12288), 0.9305),
        ((24576, 2048, 128), 0.1399),
        ((24576, 128, 2048), 0.0976),
        ((1024, 384, 1024), 0.0104),
    ],
)
def test_a_product_takes_what_the_table_says_between_its_points(
    sizes: tuple[int, int, int], ms: float
) -> None:
    assert a100().product_ns(*sizes) / 1e6 == pytest.approx(ms, abs=5e-5)


def test_a_point_of_the_grid_is_its_own_row_and_beyond_the_grid_its_edge_holds() -> None:
    table, raw = a100(), json.loads(data_path("measured/a100.json").read_text())
    permille = raw["permille_of_roofline"]
    for at, sizes in ((0, (512, 128, 128)), (len(permille) - 1, (32768, 65536, 65536))):
        roof = roof_ns(*sizes, table.flops_per_s, table.bytes_per_s)
        assert table.product_ns(*sizes) == pytest.approx(roof * permille[at] / 1000, rel=1e-12)
    small = roof_ns(1, 128, 128, table.flops_per_s, table.bytes_per_s)
    assert table.product_ns(1, 128, 128) == pytest.approx(small * permille[0] / 1000, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "count", "ms"),
    [
        (50_331_648, 8, 0.48702),
        (50_331_648, 2, 0.31064),
        (2**20, 4, 0.02978),
        (2**30, 8, 8.4518),  # beyond the table, in proportion to bytes
        (2**30, 1, 0.0),
    ],
)
def test_an_all_reduce_takes_what_the_table_says(size: int, count: int, ms: float) -> None:
    assert a100().all_reduce_ns(size, count) / 1e6 == pytest.approx(ms, abs=5e-5)


@pytest.mark.parametrize(
    ("batch", "hidden", "heads", "t", "parts"),
    [(1, 12288, 96, 8, (5.6217, 11.0710, 0.5213)), (2, 8192, 64, 4, (9.6088, 18.4912, 1.3750))],
)
def test_forward_backward_and_what_selective_repeats(
    batch: int, hidden: int, heads: int, t: int, parts: tuple[float, float, float]
) -> None:
    shape = ModelShape(2, hidden, 4 * hidden, 2, 51_200, 2048, heads, fused=False)
    half = Precision("bfloat16", 2, 2, 12)
    on = ModelledOn({"gpu": Rates(1, 1, 0, a100())}, (t,), half, sequence=False)
    layers = shape_layers(shape, batch)
    ms = {mode.name: mode.time_ns["gpu"] / 1e6 for mode in layer_modes(layers[1], on)}
    forward = ms["full"] - ms["keep"]
    found = forward, ms["keep"] - forward, ms["selective"] - ms["keep"]
    assert found == pytest.approx(parts, abs=6e-5)
    if t == 8:
        ends = [layer_modes(layers[at], on)[0].time_ns["gpu"] / 1e6 for at in (0, -1)]
        assert ends == pytest.approx([1.3197, 5.3512], abs=6e-5)


@pytest.mark.parametrize(
    ("shape", "degrees", "batches", "peak_ms", "ms"),
    [
        ((40, 6144, 48), (8, 1, 32), (8, 1024), 10734.2, 10250.4),
        ((48, 8192, 64), (1, 16, 32), (3, 1536), 30069.6, 20407.1),
        ((96, 12288, 96), (4, 32, 4), (2, 1536), 74194.9, 56127.9),
    ],
)
def test_iterations_are_those_of_the_reference(
    shape: tuple[int, int, int],
    degrees: tuple[int, int, int],
    batches: tuple[int, int],
    peak_ms: float,
    ms: float,
) -> None:
    layers, hidden, heads = shape
    model = ModelShape(layers, hidden, 4 * hidden, 2, 51_200, 2048, heads, fused=False)
    run = MeasuredRun(model, Degrees(*degrees), *batches, milliseconds=1.0)
    for measured, expected in ((False, peak_ms), (True, ms)):
        found = predicted_ms(run, "infiniband-100g", "none", measured=measured)
        assert found == pytest.approx(expected, abs=0.06)


def test_a_device_without_a_table_has_products_at_a_share_of_its_peak() -> None:
    # 2 * 4096^3 FLOPs at 0.79 of 10^14 FLOP/s; 8 * 10^5 bytes at 0.8 of 10^12 bytes/s
    rule = by_rule(10**14, 10**12, 10**11)
    assert rule.product_ns(4096, 4096, 4096) == pytest.approx(2 * 4096**3 / 79e3)
    assert rule.kernel_ns(800_000) == KERNEL_NS + 1000
    # 45 us, and 2 * 7 / 8 of 10^6 bytes at 0.7 of 10^11 bytes/s
    assert rule.all_reduce_ns(10**6, 8) == pytest.approx(45_000 + 1.75e6 / 70)
    assert measured_table("V100-32GB") is None
