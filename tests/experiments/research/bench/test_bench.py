"""Benchmarks: what they measure and print. Nothing here looks at how long anything takes."""

import gc
import itertools
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from placegap.experiments.research.bench import __main__ as bench
from placegap.experiments.research.bench import exact, kernel_tables
from placegap.experiments.research.bench import placers as bench_placers
from placegap.experiments.research.bench.measuring import Measured, measure_apart
from placegap.instances.corpus.corpus import load_best_known
from placegap.instances.costing.kernel_tables import KernelTables
from placegap.instances.problem import DeviceSpec
from placegap.solvers import METHODS


@pytest.fixture(autouse=True)
def _without_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for garbage before each call takes a second where a test run has filled the heap."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def test_a_measurement_is_made_in_another_process() -> None:
    found = measure_apart(lambda: str(os.getpid()), lambda: None, 60)
    assert isinstance(found, Measured)
    assert found.remark != str(os.getpid())
    assert found.peak_bytes > 10**6


def test_every_placer_of_the_registry_is_measured() -> None:
    """All heuristics but those that solve a MIP or need more than a graph, under their rules."""
    left_out = {m.name for m in METHODS.values() if m.claim == "heuristic"}
    assert left_out.difference(bench_placers.placers()) == bench_placers.LEFT_OUT
    instance = bench_placers.layered(30, 4)
    for placer in bench_placers.placers():
        name, params = bench_placers.VARIANTS.get(placer, (placer, {}))
        if METHODS[name].missing() is None:
            assert bench_placers.rules_for(instance, name, params)


def test_the_table_is_printed_kept_and_compared_with_the_last(
    tmp_path, capsys, monkeypatch
) -> None:
    others = [
        ("not asked for", lambda: 1 // 0, str),
        ("round-robin 1000 ops 8 again", lambda: 7, str),
    ]
    monkeypatch.setattr(bench, "benches", lambda inputs, *, large: iter(others))
    arguments = ["--out", str(tmp_path), "--only", "round-robin 1000 ops 8"]
    for _ in range(2):
        assert bench.main(arguments) == 0
    rows = json.loads(sorted(tmp_path.glob("*.json"))[-1].read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "round-robin 1000 ops 8 devices",
        "round-robin 1000 ops 8 again",
    ]
    assert rows[1]["remark"] == "7"
    assert {"seconds", "ratio", "remark", "peak_bytes"} <= rows[0].keys()
    first, second = (
        line.split()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("round-robin 1000 ops 8 devices")
    )
    assert first[7] == "-"
    assert float(second[7]) == pytest.approx(float(first[6]), abs=0.01)


def test_a_recorded_bound_that_the_portfolio_beats_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = next(
        entry
        for entry in load_best_known()
        if entry.key == ("squeezenet", "moirai-intra-server", "max_load any add")
    )
    stale = entry.model_copy(update={"bound_ns": 1})
    (case,) = exact.recorded_cases([stale])
    row = exact.run_recorded(case)
    assert row.bound_ns is not None
    assert 1 < row.bound_ns <= (entry.value_ns or 0)
    assert (row.status, "BEHIND: 1 ns" in str(row)) == ("behind", True)
    fresh = entry.model_copy(update={"bound_ns": row.bound_ns})
    assert exact.run_recorded(exact.RecordedCase(fresh)).status == "kept"
    proven = entry.model_copy(update={"bound_ns": entry.value_ns})
    assert list(exact.recorded_cases([proven])) == []
    monkeypatch.setattr(exact, "load_best_known", lambda: [stale])
    assert bench.main(["--only", case.name, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "1 recorded bounds are behind" in out
    assert "record_best --portfolio" in out


def test_rows_held_out_of_a_table_of_even_efficiency_are_found_again() -> None:
    # half of the roofline in all rows, 2 (m k + k n + m n) bytes at 1 GB/s: nothing is off; the
    # roofline and 5 us miss what takes t by (t / 2 - 5) / t
    card = DeviceSpec(
        peak_flops_per_s={"bfloat16": 10**15}, bandwidth_bytes_per_s=10**9, memory_bytes=None
    )
    sizes = np.array(list(itertools.product((1, 4), (64, 128, 256), (64, 128, 256)))).T
    m, n, k = (size.astype(np.float64) for size in sizes)
    roofs = 2 * (m * k + k * n + m * n)
    rows = {"m": m, "n": n, "k": k, "latency": 2 * roofs / 1e6}
    rows["gemm_dtype"] = np.full(len(m), "bfloat16")
    tables = KernelTables("test", card, card, {"gemm_perf": rows}.get)
    held = kernel_tables.HeldOut(tables, "gemm_perf", rows, n == 128, roofs)
    found = held.cells(partial(kernel_tables._product, rows))
    missed = np.median(np.abs((roofs + 5_000) / (2 * roofs) - 1)[n == 128])
    assert found[:2] == ("6", "0.0 % (0 %)")
    assert found[2].startswith(f"{100 * missed:.1f} %")
    assert held.six_nearest() == "0.0 % (0 %)"
