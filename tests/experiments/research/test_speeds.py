"""How far predicted speeds are from measured ones."""

from pathlib import Path

import pytest

from placegap.experiments.research.speeds import (
    COMMUNITY,
    Compared,
    community_rows,
    compared_runs,
    shares,
)


def test_each_pair_of_model_and_card_counts_once() -> None:
    # one pair is off by 2 in one of four runs, and right in three; the other by 1.4: the mean of
    # 2^(1/4) and 1.4 is sqrt(1.189 x 1.4) = 1.29, within 1.25 are 3/4 and none
    runs = [Compared("a", "dense", "x", 10, speed) for speed in (20, 10, 10, 10)]
    runs.append(Compared("b", "moe", "y", 14, 10))
    assert shares(runs) == ("2", "5", "1.29", "38 %", "88 %", "2.00")
    rows = list(community_rows(runs))
    assert [row[0] for row in rows] == ["runs", "all", "x", "y", "dense", "moe"]
    assert rows[3][1:] == ("1", "1", "1.40", "0 %", "100 %", "1.40")


@pytest.mark.torch
@pytest.mark.skipif(not COMMUNITY.is_file(), reason="no ../shared/cases beside this checkout")
def test_a_measured_run_is_predicted(tmp_path: Path) -> None:
    # 0.6 billion weights in 4.9 bits on 360 GB/s: a small model, whose kernels count
    head, *rows = COMMUNITY.read_text().splitlines()
    (tmp_path / "community").symlink_to(COMMUNITY.with_suffix(""))
    chosen = next(row for row in rows if row.startswith("qwen3-0.6b,dense,RTX3060,1,"))
    (tmp_path / COMMUNITY.name).write_text(f"{head}\n{chosen}\n")
    (run,) = compared_runs(tmp_path / COMMUNITY.name)
    assert (run.kind, run.card, run.measured) == ("dense", "RTX3060", 323.34)
    assert run.predicted == pytest.approx(run.measured, rel=0.25)
