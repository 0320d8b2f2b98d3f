"""Figures of the pages on placers that no time limit decides are those of the methods today."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from placegap.experiments.research.pages import DOCS, doc_rows
from placegap.experiments.running.sources import Source, load_source
from placegap.instances import Instance, Makespan
from placegap.solvers.solving.run_method import run_method

PAGE = (DOCS / "placers.md").read_text()
SEARCHES = (DOCS / "searches.md").read_text()
MEMORY = doc_rows("placers.md", "workload, cluster")
SPLIT = doc_rows("splitting-placers.md", "workload")
MOVED = doc_rows("searches.md", "graph")


def first_now(rows: list[Any], name: Callable[[Any], str]) -> list[Any]:
    """The first row of a table is made in every run of the tests, the other ones in deep runs."""
    deep = pytest.mark.deep
    return [pytest.param(row, id=name(row), marks=[deep] * (n > 0)) for n, row in enumerate(rows)]


def took(instance: Instance, method: str, memory: str, **params: object) -> float:
    """The makespan of a method's plan, in ms."""
    rules = Makespan(memory=memory)  # type: ignore[arg-type]
    value_ns = run_method(instance, rules, method=method, params=params).value_ns
    assert value_ns is not None, f"{method} has no plan"
    return value_ns / 1e6


@pytest.mark.parametrize("row", first_now(MEMORY, lambda row: row["workload, cluster"]))
def test_the_table_of_graphs_that_fit_no_device(row: dict[str, str]) -> None:
    workload, _, cluster = row.pop("workload, cluster").partition(", ")
    instance = load_source(Source(workload, cluster))
    need = sum(op.resident_bytes for op in instance.graph.ops)
    room = sum(device.memory_bytes or 0 for device in instance.cluster.devices)
    found = {"need": f"{need / 1e9:.1f} of {room / 1e9:.0f} GB"}
    for column in list(row)[1:]:
        method, *asked = re.findall(r"`([^`]+)`", column)
        params = dict(one.split("=") for one in asked)
        found[column] = f"{took(instance, method, 'sum', **params):,.1f}"
    assert found == row


@pytest.mark.deep
def test_the_placers_that_place_a_network_which_fits_at_its_peak_alone() -> None:
    (told,) = re.findall(r"But celeritas:inception-v3, .*?\.\n", PAGE, flags=re.DOTALL)
    stated = {
        m: float(ms.replace(",", "")) for m, ms in re.findall(r"`([\w-]+)` \(([\d,]+) ms", told)
    }
    instance = load_source(Source("celeritas:inception-v3", "celeritas-4xV100-pcie"))
    assert list(stated) == ["m-etf", "d-dps", "heft"]
    assert stated == {method: round(took(instance, method, "peak")) for method in stated}


@pytest.mark.parametrize("row", first_now(SPLIT, lambda row: f"{row['workload']}-{row['K']}"))
def test_the_table_of_placers_that_split_ops(row: dict[str, str]) -> None:
    cluster = {"4": "4xP100-pcie", "8": "fd-dps-8xP100"}[row["K"]]
    instance = load_source(Source(row["workload"], cluster))
    for method in ("heft", "celeritas", "d-dps", "mp-dps"):
        assert row[f"`{method}`"] == f"{took(instance, method, 'sum'):,.1f}"
    splitting = ["fd-dps"]
    if row["workload"] == "fd-dps:vgg-16":  # copies of the others take many seconds each
        splitting.append("data-parallel")
    for method in splitting:
        result = run_method(instance, Makespan(), method=method)
        value_ns = result.value_ns
        assert value_ns is not None
        split = re.search(r"(\d+) ops split", result.message)
        count = f" ({split[1] if split else 0})" if method == "fd-dps" else ""
        assert row[f"`{method}`"] == f"{value_ns / 1e6:,.1f}{count}"


@pytest.mark.parametrize("row", first_now(MOVED[:4], lambda row: row["graph"]))
def test_what_interleaved_cuts_finds(row: dict[str, str]) -> None:
    instance = load_source(Source(row["graph"]))
    assert row["interleaved-cuts"] == f"{took(instance, 'interleaved-cuts', 'peak'):,.1f}"


TOLD = [
    ("inception-v3-layers-train", "memory-cuts", "sum", "its plan takes {} ms"),
    ("resnet-50-layers-train", "frontier-paths", "sum", "it finds {} ms"),
    ("resnet-50-layers-train", "interleaved-cuts", "sum", "where interleaved-cuts finds {}"),
    ("bert-base-train", "layer-paths", "peak", "On bert-base-train it finds {} ms"),
    ("bert-large-train", "layer-paths", "peak", "on bert-large-train it finds {} ms"),
    ("swin-large-train", "layer-paths", "peak", "on swin-large-train it finds {} ms"),
]


@pytest.mark.parametrize("told", first_now(TOLD, lambda told: f"{told[0]}-{told[1]}"))
def test_what_a_placer_finds_on_a_training_step(told: tuple[str, str, str, str]) -> None:
    graph, method, memory, sentence = told
    value = f"{took(load_source(Source(graph)), method, memory):,.1f}"
    assert sentence.format(value) in " ".join(SEARCHES.split())
