"""The device catalogue."""

import re

import pytest

from placegap.instances.costing.catalogue import catalogue


@pytest.mark.parametrize(
    ("kind", "tera_flops", "giga_bytes_per_s", "giga_bytes"),
    [  # fp32 outside tensor cores, memory bandwidth and memory of the datasheets named in the file
        ("V100-32GB", 15.7, 900, 32),
        ("T4", 8.1, 320, 16),
        ("A100-80GB", 19.5, 2039, 80),
        ("H100-80GB", 67, 3350, 80),
        ("RTX3090", 2 * 10496 * 1.695 / 1000, 936, 24),  # whitepaper: 35.6
        ("RTX4090", 2 * 16384 * 2.52 / 1000, 1008, 24),  # 82.6
        ("H20", 44, 4000, 96),
        ("RTX4060", 2 * 3072 * 2.46 / 1000, 272, 8),  # 128 bit x 17 Gbit/s
        ("RTX5060Ti-16GB", 2 * 4608 * 2.572 / 1000, 448, 16),  # 128 bit x 28 Gbit/s
        ("RTX5070", 2 * 6144 * 2.512 / 1000, 672, 12),  # 192 bit x 28 Gbit/s
        ("RX7900XT", 84 * 256 * 2.4 / 1000, 800, 20),  # 320 bit x 20 Gbit/s
        ("RTX-A5000", 27.8, 768, 24),
        ("Arc-Pro-B70", 32 * 256 * 2.8 / 1000, 608, 32),  # 256 bit x 19 Gbit/s
        ("Strix-Halo", 40 * 256 * 2.9 / 1000, 256, 128),  # 256 bit x 8 Gbit/s
        ("Gaudi3", 1835, 3700, 128),  # no rate of fp32: that of bfloat16
        ("M1-Max", 10.4, 400, 64),
        # 18 cores x 2.2 GHz x 32 FLOP per cycle; 6 channels x 8 bytes x 2.667e9 = 128.016
        ("Xeon-5220", 18 * 2.2 * 32 / 1000, 128, 1000),
    ],
)
def test_an_entry_states_the_datasheet(
    kind: str, tera_flops: float, giga_bytes_per_s: float, giga_bytes: int
) -> None:
    spec = catalogue()[kind]
    assert spec.peak(None) == pytest.approx(tera_flops * 10**12, rel=5e-4)  # four digits
    assert spec.bandwidth_bytes_per_s == round(giga_bytes_per_s * 10**9)
    # a card has GiB, but for what ECC takes and for memory that is also the host's
    whole = kind not in ("T4", "Strix-Halo", "M1-Max", "Xeon-5220")
    assert spec.memory_bytes == giga_bytes * (2**30 if whole else 10**9)


@pytest.mark.parametrize(
    ("kind", "dtype", "tera_flops"),
    [  # dense tensor-core rates of the same datasheets; sums in fp32
        ("V100-32GB", "float16", 125),
        ("H100-80GB", "float16", 989),
        ("H100-80GB", "float8_e4m3fn", 1979),
        # no unit of its own for the type: the rate of fp32
        ("V100-32GB", "bfloat16", 15.7),
    ],
)
def test_an_entry_states_the_rate_of_a_number_type(
    kind: str, dtype: str, tera_flops: float
) -> None:
    assert catalogue()[kind].peak(dtype) == pytest.approx(tera_flops * 10**12, rel=5e-4)


def test_every_entry_names_its_source() -> None:
    documents = "datasheet|specifications|white ?paper|documentation|brief|user guide|technical"
    for kind, spec in catalogue().items():
        assert spec.source.startswith(("NVIDIA", "Intel", "AMD", "Apple", "Google", "Huawei")), kind
        assert re.search(documents + "|architecture", spec.source), kind


def test_a_rate_that_no_document_states_is_marked_as_a_choice() -> None:
    # Apple states those of the first chips alone; all others are cores of theirs
    chosen = [kind for kind, spec in catalogue().items() if "our choice" in spec.source]
    apple = [kind for kind, spec in catalogue().items() if spec.source.startswith("Apple")]
    assert sorted({*apple} - {*chosen}) == ["M1", "M2"]
    # 32 cores at the rate of 8 of an M1
    assert catalogue()["M1-Max"].peak(None) * 8 == catalogue()["M1"].peak(None) * 32
