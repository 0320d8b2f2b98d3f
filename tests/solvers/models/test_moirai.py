"""Moirai's MILP as a method: equal to brute force, honest about every ending."""

from __future__ import annotations

import pytest
from draws.tiny import SHARED, needs_moirai
from draws.twins import CLUSTERS, twin_instance
from references.brute_force import makespan_draws, oracle

from placegap.formulations.moirai import count_rows
from placegap.instances import Makespan, example
from placegap.instances.importers.reader import read_model
from placegap.instances.problem import Channels
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method

PORT = Makespan()


@pytest.mark.deep
@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
def test_it_equals_brute_force_on_many_instances(channels: Channels) -> None:
    semantics = Makespan(channels=channels)
    twins = tuple(
        twin_instance(seed, num_ops=4 + seed % 2, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        for seed in range(200)
    )
    for instance in makespan_draws() + twins:
        for symmetry in (True, False):
            result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
            optimum = oracle(instance, semantics)
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


def test_identical_devices_change_no_optimum() -> None:
    for seed in range(4):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        semantics = Makespan(channels=("port", "link")[seed % 2])
        optimum = oracle(instance, semantics)
        for symmetry in (True, False):
            result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@needs_moirai
def test_moirais_example_1_takes_30_ms() -> None:
    # the published optimum, proven from CP-SAT's plan; the published form takes the solver too long
    instance = read_model(SHARED / "instances/moirai/example-1.xls").instance()
    known = run_method(instance, PORT, "cp-sat", {"workers": 1})
    result = run_method(instance, PORT, "moirai", incumbent=known.plan)
    assert result.status == "optimal"
    assert result.value_ns == result.bound_ns == 30_000_000
    published = run_method(instance, PORT, "moirai", {"form": "as_published"}, time_limit_s=0.0)
    # 14 ops, 19 edges, 3 devices, memory rows included; a horizon only makes the strengthened less
    assert (published.details["rows"], published.details["columns"]) == (1760, 362)
    assert int(result.details["rows"]) <= 883
    assert int(result.details["columns"]) <= 451


@needs_moirai
def test_googlenet_has_fewer_rows_than_the_target() -> None:
    # a tenth of the 257,113 rows of the program that Moirai's authors published
    instance = read_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    for channels in ("port", "link"):
        semantics = Makespan(channels=channels)
        assert count_rows(instance, "strengthened", semantics) <= 25_711


def test_other_channels_than_the_papers_need_the_strengthened_form() -> None:
    with pytest.raises(InputError, match="port per_edge as published, not makespan free"):
        run_method(example(), Makespan(channels="free"), "moirai", {"form": "as_published"})
