"""FD-DPS: what it splits, and what its value is a value of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import draw
from draws.splittable import splittable_diamond, splittable_instance
from references.brute_force import MAKESPAN_SEMANTICS, oracle
from references.placers import pressed_instance

from placegap.instances import (
    Edge,
    Graph,
    InputError,
    Makespan,
    Op,
    evaluate,
    example,
)
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.oracle.recheck import recheck
from placegap.solvers import Outcome, SolverDisagreement, run_method
from placegap.solvers.core.result import finish

FREE = Makespan(channels="free")
SPLIT_ALL = {"min_share": 0.1, "max_parameters": 10**12}


def test_a_plan_of_the_parts_is_a_plan_of_another_instance() -> None:
    instance = splittable_diamond()
    result = run_method(instance, FREE, "fd-dps", {"min_share": 0.4, "parts": 3})
    assert result.split.coarse is instance
    assert result.instance == result.split.fine.name == f"{instance.name}-split"
    assert result.instance_hash == result.split.fine.content_hash != instance.content_hash
    assert result.message == f"the plan of another instance, {result.instance}: " + (
        "1 op split into 3 parts"
    )
    # the whole ops take 34 at best: op 2 in parts of 7, 7 and 6 ns takes less
    assert (result.value_ns, oracle(instance, FREE)) == (30, 34)
    assert evaluate(result.split.fine, result.plan, FREE).value_ns == 30


def test_without_an_op_to_split_it_is_d_dps() -> None:
    result = run_method(example(), FREE, "fd-dps")
    assert result.split is None
    assert result.instance_hash == example().content_hash
    assert result.plan == run_method(example(), FREE, "d-dps").plan


def test_parts_that_do_not_fit_leave_the_ops_whole() -> None:
    # 20 ops that fill the memory to 10 % of it: copies of parameters and outputs do not fit
    instance = pressed_instance(1, num_ops=20)
    held = [op.resident_bytes for op in instance.graph.ops]
    instance = draw.with_ops(instance, splittable_axes=[("batch",)] * 20, parameter_bytes=held)
    whole = run_method(instance, FREE, "d-dps")
    split = run_method(instance, FREE, "fd-dps", {"min_share": 0, "max_parameters": 10**12})
    assert split.split is None
    assert split.plan == whole.plan is not None
    assert split.message.startswith("ops left whole: memory: ")


def test_axes_and_kinds_can_be_given_as_text() -> None:
    instance = splittable_diamond()
    wanted = {"min_share": "0.1", "axes": "in_channel, batch", "kinds": "op,Conv"}
    result = run_method(instance, FREE, "fd-dps", wanted)
    assert result.options["axes"] == ["in_channel", "batch"]
    assert result.split is not None
    with pytest.raises(InputError, match="axes"):
        run_method(instance, FREE, "fd-dps", {"axes": "depth"})


def test_the_referee_judges_a_claim_on_the_instance_of_the_plan() -> None:
    result = run_method(splittable_diamond(), FREE, "fd-dps", {"min_share": 0.4, "parts": 3})
    outcome = Outcome(result.plan, claim_ns=29, split=result.split)
    with pytest.raises(SolverDisagreement, match=r"-split: claims 29, the referee finds 30"):
        finish(splittable_diamond(), FREE, "fake", outcome, solve_s=0.0)
    whole = replace(outcome, split=None, claim_ns=None)
    rejected = finish(splittable_diamond(), FREE, "fake", whole, solve_s=0.0)
    assert rejected.value_ns is None  # of the whole ops it is no plan at all
    assert rejected.message.startswith("its plan breaks a rule: ")


def compared_with_brute_force(seeds: range) -> int:
    """How many plans of parts were compared with the optimum of the parts."""
    compared = 0
    for seed in seeds:
        instance = splittable_instance(seed, num_ops=2 + seed % 2)
        semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
        for method in ("fd-dps", "fastt"):
            params = SPLIT_ALL if method == "fd-dps" else {}
            result = run_method(instance, semantics, method, params)
            if result.split is None or result.split.fine.num_ops > 6 or result.value_ns is None:
                continue
            best = oracle(result.split.fine, semantics)
            assert result.value_ns >= best, (seed, method)
            compared += 1
    return compared


def test_plans_of_parts_are_no_better_than_the_optimum_of_the_parts() -> None:
    assert compared_with_brute_force(range(12)) >= 3


@pytest.mark.deep
def test_nor_are_they_on_many_instances() -> None:
    assert compared_with_brute_force(range(1000, 3000)) >= 500


def test_a_training_step_is_split_along_its_batch_with_its_update() -> None:
    # two layers of 80 ns on two devices, 60 bytes of parameters each, at 10 bytes/ns
    ops = tuple(
        Op(
            name=name,
            kind="Conv",
            time_ns={"gpu": 80},
            resident_bytes=60,
            parameter_bytes=60,
            splittable_axes=("batch",),
            axis_sizes={"batch": 8},
        )
        for name in ("one", "two")
    )
    edges = (Edge(producer="one", consumer="two", bytes=10),)
    links = draw.links(2, lambda a, b: (10**10, 0))
    graph = mirror_training(Graph(name="net", ops=ops, edges=edges))
    devices = draw.devices(["gpu"] * 2)
    instance = draw.instance_of("net", graph.ops, graph.edges, devices, links)
    result = run_method(instance, Makespan(), "fd-dps", {"max_parameters": 10**12})
    # forward, backward and update op of both layers
    assert result.split.num_split == 6
    fine = result.split.fine
    assert recheck(fine, result.plan, Makespan()).value_ns == result.value_ns
    # one device alone takes 2 x (80 + 160 + 8) = 496
    assert result.value_ns < 496
    # part j of the three is on one device
    home = {op.name: on for op, on in zip(fine.graph.ops, result.plan.placement, strict=True)}
    for name in ("one", "two"):
        for j in (1, 2):
            triple = {home[f"{name}{part}/{j}of2"] for part in ("", "/backward", "/update")}
            assert len(triple) == 1
