"""The ablation: every part that it leaves out is there, is left out, and comes back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple, cast

import pytest

from placegap.experiments.research.ablation import (
    CONFIG,
    PARTS,
    Pair,
    gap_of,
    left_out,
    only,
    table,
    time_ratio,
)
from placegap.experiments.research.bench.latency import training_pairs
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.plan import Cell, Run
from placegap.instances import Makespan, example
from placegap.instances.problem import Instance, LatencySubgraphs, Semantics
from placegap.solvers import METHODS, Limits, Result, Task, run_method
from placegap.solvers.core.starts import cheapest_first
from placegap.solvers.solving.steps import plans, proofs

TRIAL = CONFIG.with_name("trial.yaml")


@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_names_exists_and_comes_back(part: str) -> None:
    without, task = PARTS[part], Task(example(), Makespan(), Limits(60.0))
    assert {*without.placers, *without.methods} <= set(METHODS)
    before = list(cheapest_first(task)), [step.method for step in proofs(task)]
    with left_out(without):  # a function that is not there raises
        asked = {name for name, _ in cheapest_first(task)} | {s.method for s in proofs(task)}
        assert not asked & {*without.placers, *without.methods}
    assert (list(cheapest_first(task)), [step.method for step in proofs(task)]) == before


def test_without_searches_nothing_looks_for_plans() -> None:
    with left_out(PARTS["searches"]):
        assert list(plans(Task(example(), Makespan(), Limits(60.0)), 0)) == []


def test_the_studies_ask_for_parts_that_there_are() -> None:
    tables = [row for file in (CONFIG, TRIAL) for row in load_study(file).tables]
    asked = {method.name for row in tables for method in row.methods}
    assert asked - {"auto"} == {f"auto-without-{part}" for part in PARTS}


class Tiny(NamedTuple):
    """What a part is made of, files or functions, and a small problem that `auto` asks it for."""

    made_of: tuple[str, ...]
    instance: Callable[[], Instance]
    semantics: Semantics


def drawn(family: str, cluster: str, memory: float | None = None, **params: float) -> Instance:
    return load_source(
        Source(family, cluster, None, (tuple(sorted(params.items())), 1), device_memory=memory)
    )


SPAN = Makespan(channels="port", transfers="per_edge")
TINY = {
    "nested-layers": Tiny(
        (
            "bounds/layer_labels.py",
            "bounds/layer_options.py",
            "bounds/layers_bound.py",
            "bounds/nested_layers.py",
            "decomposition/layer_paths.py",
        ),
        lambda: drawn("training", "2xP100-pcie", 0.8, ops=12, width=1),
        Makespan(channels="port", transfers="per_edge", memory="peak"),
    ),
    "layers-in-a-row": Tiny(
        ("bounds/layer_chain.py",),
        lambda: drawn("parallel-chains", "2xP100-pcie", 0.6, chains=1, length=12),
        SPAN,
    ),
    "memory-runs": Tiny(
        ("bounds/memory_runs.py", "bounds/least_runs.py"),
        lambda: drawn("blocks", "2xP100-pcie", 0.6, blocks=3),
        SPAN,
    ),
    "linked-groups": Tiny(
        ("_Search.close_linked",), lambda: training_pairs(8), LatencySubgraphs(subgraphs=2)
    ),
}
LIMIT_S = 3.0


def called(tiny: Tiny, instance: Instance) -> tuple[set[str], Result]:
    """The functions of a part that `auto` calls, in its own process."""
    seen = set[str]()

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_its = code.co_filename.endswith(tiny.made_of) or code.co_qualname in tiny.made_of
        if event == "call" and is_its:
            seen.add(code.co_qualname)

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        found = run_method(instance, tiny.semantics, "auto", {"workers": 1}, time_limit_s=LIMIT_S)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen, found


@pytest.mark.deep
@pytest.mark.parametrize("part", TINY)
def test_auto_calls_a_part_unless_it_is_left_out_and_agrees_with_itself(part: str) -> None:
    tiny = TINY[part]
    instance = tiny.instance()
    seen, whole = called(tiny, instance)
    assert seen
    with left_out(PARTS[part]):
        seen, without = called(tiny, instance)
    assert not seen
    assert whole.status in ("optimal", "feasible")
    assert without.status in ("optimal", "feasible")
    for one, other in ((whole, without), (without, whole)):  # no bound is above a plan's value
        assert one.value_ns is not None
        assert not one.faults
        assert (other.bound_ns or 0) <= one.value_ns


def ended(
    method: str, status: str, value_ns: int, bound_ns: int, solve_s: float, row: str = "a"
) -> GapCell:
    where = Cell("t", Makespan(), row, "c", row, 1, 1, method, method, {}, 0, cast("Run", row))
    return GapCell(where, status, value_ns, bound_ns, build_s=0.0, solve_s=solve_s)


def test_a_gap_is_a_runs_own_and_whole_without_a_bound() -> None:
    assert gap_of(ended("auto", "feasible", 200, 150, 60.0)) == 0.25
    assert gap_of(GapCell(cast("Cell", None), "no_plan", bound_ns=150)) == 1.0
    assert gap_of(GapCell(cast("Cell", None), "feasible", value_ns=200)) == 1.0


def test_times_count_where_both_runs_prove_and_one_takes_long() -> None:
    def pair(status: str, with_s: float, without_s: float) -> Pair:
        other = ended("auto-without-frontier", "optimal", 9, 9, without_s)
        return Pair(ended("auto", status, 9, 9, with_s), other)

    pairs = [pair("optimal", 1.0, 2.0), pair("optimal", 0.2, 0.9), pair("feasible", 60.0, 3.0)]
    assert time_ratio(pairs) == 0.5
    assert time_ratio(pairs[1:]) is None


def test_a_part_stays_for_a_point_and_a_half_or_a_fifth_of_the_time() -> None:
    def verdict(part: str, bound_ns: int, solve_s: float) -> str:
        status = "optimal" if bound_ns == 1000 else "feasible"
        whole = ended("auto", "optimal", 1000, 1000, 8.0)
        without = ended(f"auto-without-{part}", status, 1000, bound_ns, solve_s)
        return table([whole, without]).splitlines()[-1]

    row = "| frontier | 1 | 0.00% | 1.50% | +1.50 | - | 1, 0 | stays |"
    assert verdict("frontier", 985, 60.0) == row
    assert verdict("frontier", 986, 60.0).endswith("| +1.40 | - | 1, 0 | goes |")
    assert verdict("frontier", 1000, 10.0).endswith("| +0.00 | 0.80 | 1, 1 | stays |")
    assert verdict("frontier", 1000, 9.9).endswith("| +0.00 | 0.81 | 1, 1 | goes |")


def test_a_study_of_some_parts_has_their_tables(tmp_path: Path) -> None:
    study = load_study(only(TRIAL, ["linked-groups", "memory-runs"], tmp_path))
    calls = ["linked groups, published", "linked groups, generated"]
    assert [row.name for row in study.tables] == ["memory runs", *calls]


@pytest.mark.parametrize("part", TINY)
def test_a_part_on_trial_has_eight_rows_and_two_seeds(part: str) -> None:
    tables = [
        row
        for row in load_study(TRIAL).tables
        if f"auto-without-{part}" in {method.name for method in row.methods}
    ]
    runs = sum(row.num_runs for row in tables)
    assert runs == 8 * 2 * 2  # rows, seeds, with and without
    assert {row.limits.time_limit_s for row in tables} == {60.0}
