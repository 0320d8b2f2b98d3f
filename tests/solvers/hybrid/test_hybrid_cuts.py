"""`hybrid-cuts`: the optimum of brute force on tiny instances, and reference values of Piper's."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from draws import draw
from draws.extremes import stretched
from draws.hybrid import hybrid_instance, hybrid_plan, hybrid_semantics, layer_row
from draws.tiny import SHARED, needs_inputs
from references.agreement import few_and_many

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    InputError,
    Instance,
    Mode,
    Op,
    evaluate,
    load_model,
    recheck,
)
from placegap.instances.objectives.staged_plans import best_hybrid
from placegap.instances.problem.links import Group, Links
from placegap.solvers import METHODS, Outcome, Result, Task, run_method
from placegap.solvers.core.registry import why_not
from placegap.solvers.hybrid import hybrid_cuts
from placegap.solvers.hybrid.problem import HybridProblem, build_problem

INPUTS = SHARED / "instances" / "piper"
needs_piper = needs_inputs("piper", "it holds the inputs of github.com/msr-fiddle/piper")


def published(name: str, devices: int, memory_gb: float) -> Instance:
    """An input of the planner with other devices, at its 25 GB/s."""
    made = draw.devices(["accelerator"] * devices, lambda k: int(memory_gb * 10**9))
    return load_model(INPUTS / f"{name}.json").instance(joined(made, 25 * 10**9))


def joined(devices: Sequence[Device], width: int) -> Cluster:
    """All devices joined by links of so many bytes per second."""
    names = tuple(device.name for device in devices)
    links = Links((Group(names, width),)) if len(names) > 1 else ()
    return Cluster(name="joined", devices=tuple(devices), links=links)


def proven(instance: Instance, semantics: HybridPipeline, method: str = "hybrid-cuts") -> Result:
    return run_method(instance, semantics, method, time_limit_s=60)


def beside_brute_force(
    instance: Instance, semantics: HybridPipeline, seed: int
) -> tuple[Outcome, int] | None:
    """What the method finds, and the optimum; None where there is none or it does not apply."""
    method = METHODS["hybrid-cuts"]
    task, params = Task(instance, semantics), method.params()
    if why_not(method, task, params) is not None:
        return None
    outcome, best = method.run(task, params), best_hybrid(instance, semantics)
    if best is None:
        assert outcome.proven_infeasible, seed
        return None
    assert outcome.claim is not None, (seed, outcome.message)
    assert outcome.bound_value is not None, seed
    assert outcome.bound_value <= best[0] <= outcome.claim, seed
    return outcome, best[0]


@few_and_many(200, 20_000)
def test_both_referees_and_brute_force_agree_on_random_layers(seeds: range) -> None:
    several = unfilled = 0
    for seed in seeds:
        rng = random.Random(f"hybrid-{seed}")
        small = bool(seed % 3)
        sizes = {"most_ops": 4 if small else 5, "most_devices": 8 if small else 5}
        instance, semantics = hybrid_instance(rng, **sizes), hybrid_semantics(rng)
        for _ in range(2):
            plan = hybrid_plan(rng, instance)
            first, second = (judge(instance, plan, semantics) for judge in (evaluate, recheck))
            assert first.value_ns == second.value_ns, seed
            rules = [{v.rule for v in verdict.violations} for verdict in (first, second)]
            assert rules[0] == rules[1], seed
        found = beside_brute_force(instance, semantics, seed)
        if found is not None:
            assert found[0].claim == found[0].bound_value == found[1], seed
            assert found[0].plan is not None, seed
            stages = len(tensor := found[0].plan.tensor or ())
            several += stages > 1
            replicas = len(found[0].plan.placement[0]) // tensor[0]
            unfilled += semantics.bubble and stages * replicas > semantics.microbatches
    assert several > len(seeds) // 10
    assert unfilled > 0


@few_and_many(60, 5000)
def test_times_and_bytes_of_any_size_have_their_optimum_where_none_is_rounded(seeds: range) -> None:
    rounded = 0  # to fit 64 bits
    for seed in seeds:
        rng = random.Random(f"large-{seed}")
        instance = stretched(hybrid_instance(rng, most_ops=4, most_devices=6), seed)
        semantics, found = hybrid_semantics(rng), None
        with contextlib.suppress(InputError):  # sums of microbatches are refused
            found = instance and beside_brute_force(instance, semantics, seed)
        if instance is not None and found is not None:
            problem = build_problem(instance, semantics, 100)
            assert isinstance(problem, HybridProblem), seed
            assert problem.rounded or found[0].bound_value == found[0].claim, seed
            rounded += problem.rounded
    assert rounded >= len(seeds) // 10


def row(count: int, layer: Mode, devices: Sequence[Device], sent_bytes: int = 0) -> Instance:
    """Equal layers in a row, on devices joined at 1 byte/ns."""
    ops = tuple(Op(name=f"v{i}", time_ns={"gpu": 1}, modes=(layer,)) for i in range(count))
    edges = tuple(
        Edge(producer=a.name, consumer=b.name, bytes=sent_bytes) for a, b in pairwise(ops)
    )
    graph = Graph(name="row", ops=ops, edges=edges)
    return Instance(name="row", graph=graph, cluster=joined(devices, 10**9))


@pytest.mark.parametrize("method", ["hybrid-cuts", "piper"])
def test_gradients_of_any_size_cost_nothing_without_replicas(method: str) -> None:
    # 4 x 2000 ns on one device; 5 x 1000 + 2 x 5 x 10 ns on two, of which no other d divides 5
    layer = Mode(name="keep", time_ns={"gpu": 1000}, parameter_bytes=10**15)
    for devices, microbatches, expected_ns in ((1, 4, 8000), (2, 5, 5100)):
        instance = row(2, layer, draw.devices(["gpu"] * devices), 10)
        rules = HybridPipeline(microbatches=microbatches, degrees="free")
        assert proven(instance, rules, method).value_ns == expected_ns


def test_each_layer_may_be_a_stage_of_its_own() -> None:
    # 70 layers of 10 ns, a byte of state each, on devices of one byte: 71 microbatches, so
    # 710 ns in each stage; one of them also passes the other 69
    layer = Mode(name="keep", time_ns={"gpu": 10}, state_bytes=1)
    instance = row(70, layer, draw.devices(["gpu"] * 70, lambda k: 1))
    rules = HybridPipeline(microbatches=71, bubble=True)
    assert proven(instance, rules.model_copy(update={"bubble": False})).value_ns == 710
    result = proven(instance, rules)
    assert (result.status, result.value_ns) == ("optimal", 710 + 69 * 10)


def test_fewer_microbatches_than_stages_pass_them_where_filling_counts() -> None:
    # three layers of 10 ns, each with 2 bytes of state and 2 held: a device of 4 bytes has room for
    # one layer and one microbatch, which passes three stages
    layer = Mode(name="keep", time_ns={"gpu": 10}, state_bytes=2, held_bytes=2)
    instance = row(3, layer, draw.devices(["gpu"] * 3, lambda k: 4))
    rules = HybridPipeline(microbatches=1, bubble=True)
    for method in ("hybrid-cuts", "equal-split"):
        result = proven(instance, rules, method)
        assert (result.value_ns, result.plan.stage) == (30, (0, 1, 2)), method
    assert proven(instance, rules.model_copy(update={"bubble": False})).status == "infeasible"


def test_the_bubble_makes_one_stage_that_recomputes_of_two_that_keep_all() -> None:
    rules = HybridPipeline(microbatches=4)
    full = proven(layer_row(memory=50), rules)
    assert (len(full.plan.tensor or ()), set(full.plan.mode or ())) == (2, {"keep"})
    result = proven(layer_row(memory=50), rules.model_copy(update={"bubble": True}))
    # 4 x 2: one microbatch each. State is 8 * 4 bytes, both ends hold one each, so 16 of 50 are
    # left: five layers are selective (3 bytes, 15 ns), one full (1, 20). Ends take 4 + 4, and
    # gradients 2 * 3 / 4 * 16 = 24
    assert result.plan.tensor == (2,)
    assert (result.status, result.value_ns) == ("optimal", 5 * 15 + 20 + 8 + 24)


def test_where_times_of_stages_are_too_many_a_full_pipeline_is_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hybrid_cuts, "MOST_KEPT", 0)
    gaps = 0
    for seed in range(24):
        rng = random.Random(f"bubble-{seed}")
        instance = hybrid_instance(rng, most_ops=4, most_devices=6)
        full = HybridPipeline(microbatches=rng.randrange(1, 9))
        steady = best_hybrid(instance, full)
        found = beside_brute_force(instance, full.model_copy(update={"bubble": True}), seed)
        if found is not None and steady is not None:
            if full.microbatches >= instance.num_devices:
                assert steady[0] <= (found[0].bound_value or 0), seed
            gaps += found[0].bound_value != found[0].claim
    assert gaps > 0


# devices, microbatches, GB, ms per microbatch: shared/reference/hybrid-plans.md, section 4, where
# the planner's own program has the same values
BERT = [
    (8, 1920, 16, 149.495672),
    (64, 128, 8, 21.830986),
    (512, 1920, 8, 2.635244),
    (32, 1920, 2, 78.027773),
]


@needs_piper
@pytest.mark.parametrize(("devices", "microbatches", "memory_gb", "expected_ms"), BERT)
def test_bert_has_the_optimum_that_the_planner_finds(
    devices: int, microbatches: int, memory_gb: int, expected_ms: float
) -> None:
    semantics = HybridPipeline(microbatches=microbatches, degrees="free")
    result = proven(published("bert32a100", devices, memory_gb), semantics)
    assert result.status == "optimal"
    assert result.value_ns / microbatches / 1e6 == pytest.approx(expected_ms, abs=6e-7)


# how much one d and t for all, and then one mode for all, cost above free choice: section 4
@needs_piper
def test_what_restrictions_cost_on_bert() -> None:
    instance = published("bert32a100", 64, 8)
    value = {}
    for rules in ("free per_layer", "one_t per_layer", "one per_layer", "one all_or_none"):
        degrees, recompute = rules.split()
        semantics = HybridPipeline(microbatches=1920, degrees=degrees, recompute=recompute)
        result = proven(instance, semantics)
        assert result.status == "optimal"
        assert result.value_ns is not None
        value[rules] = result.value_ns
    free = value.pop("free per_layer")
    above = [round(100 * (each / free - 1), 1) for each in value.values()]
    assert above == [0.0, 5.0, 22.0]


# ResNet-50 with 7680 microbatches: the optimum, and what the greedy rule of the planner reaches
@needs_piper
def test_resnet_has_a_better_plan_than_the_planner_finds() -> None:
    instance, optimum, planner = published("resnet", 8, 8), 64.673871, 64.800497
    semantics = HybridPipeline(microbatches=7680, degrees="free")
    for method, expected in (("hybrid-cuts", optimum), ("piper", planner)):
        result = proven(instance, semantics, method)
        assert result.value_ns / 7680 / 1e9 == pytest.approx(expected, abs=6e-7)
