"""The ideal DP under loads that it knows nothing of, against all placements there are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import count, islice, product

import numpy as np
import pytest
from draws.chains import chain_instance

from placegap.instances import InputError, Instance, MaxLoad, Plan, evaluate, example
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.referee.rules import check_class
from placegap.solvers import run_method
from placegap.solvers.chains.any_load import StageLoad, chain_under_load

CHAIN = MaxLoad(plans="chain")


def drawn_load(seed: int, draw: Callable[[random.Random, int], float]) -> StageLoad:
    """A load that is drawn anew for every set and kind: nothing follows from one for another."""

    def load(ops: frozenset[str], kind: str) -> float:
        return draw(random.Random(f"{seed} {sorted(ops)} {kind}"), len(ops))

    return load


def anything(rng: random.Random, size: int) -> float:
    return rng.choice([rng.randrange(5), rng.randrange(100), rng.random(), math.inf])


def growing_or_not(rng: random.Random, size: int) -> float:
    return rng.randrange(1, 4) * size if rng.random() < 0.8 else rng.randrange(3)


def best_by_hand(instance: Instance, load: StageLoad) -> float:
    """The least largest load of all placements that keep groups together and form a chain."""
    ops, devices = instance.graph.ops, instance.cluster.devices
    names = [device.name for device in devices]
    best = math.inf
    for placement in product(range(len(devices)), repeat=len(ops)):
        stages = {
            k: frozenset(op.name for op, at in zip(ops, placement, strict=True) if at == k)
            for k in sorted(set(placement))
        }
        able = all(devices[k].kind in op.time_ns for op, k in zip(ops, placement, strict=True))
        groups = {(op.colocation, k) for op, k in zip(ops, placement, strict=True) if op.colocation}
        if not able or len(groups) > len({group for group, _ in groups}):
            continue
        value = max(load(stage, devices[k].kind) for k, stage in stages.items())
        if value < best:
            region = np.array(placement, np.int64)
            if not list(check_class(instance, "chain", region, names, "device")):
                best = value
    return best


def small_instances() -> list[tuple[int, Instance]]:
    """150 draws of at most 5 ops on at most 3 devices: groups, backward ops, ops kinds refuse."""
    drawn = ((seed, chain_instance(seed, most_ops=5)) for seed in count())
    return list(islice(((s, i) for s, i in drawn if i.num_devices <= 3), 150))


@pytest.mark.parametrize("draw", [anything, growing_or_not])
def test_no_placement_has_a_smaller_largest_load(
    draw: Callable[[random.Random, int], float],
) -> None:
    for seed, instance in small_instances():
        load = drawn_load(seed, draw)
        found = chain_under_load(instance, load)
        assert found.value == best_by_hand(instance, load), instance.name
        if found.plan is not None:
            check_stages(instance, load, found.value)


def check_stages(instance: Instance, load: StageLoad, value: float) -> None:
    """The stages are a plan that the referee takes for a chain, and their loads are as said."""
    found = chain_under_load(instance, load)
    assert found.plan is not None
    kind = {device.name: device.kind for device in instance.cluster.devices}
    assert max(load(ops, kind[device]) for device, ops in found.stages) == value
    broken = {violation.rule for violation in evaluate(instance, found.plan, CHAIN).violations}
    assert broken <= {"memory"}  # which is the load's affair


def test_under_max_load_itself_it_is_the_engine_of_ideal_dp() -> None:
    # 66 ops, some of them side by side; the referee tells what a set of ops costs a device
    instance = load_corpus("squeezenet").instance(load_cluster("2xV100-pcie"))
    number = instance.graph.op_index

    def load(ops: frozenset[str], kind: str) -> float:
        inside = {number[name] for name in ops}
        plan = Plan.on([0 if i in inside else 1 for i in range(instance.num_ops)])
        verdict = evaluate(instance, plan, MaxLoad(plans="any"))
        return verdict.uses[0].load_ns

    best = run_method(instance, CHAIN, "ideal-dp")
    assert best.status == "optimal"
    assert chain_under_load(instance, load).value == best.value_ns


def test_a_load_without_any_finite_value_has_no_chain() -> None:
    found = chain_under_load(example(), lambda ops, kind: math.inf)
    assert (found.value, found.stages, found.plan) == (math.inf, (), None)


def test_a_device_without_ops_costs_nothing() -> None:
    # a stage of all ops is free, any smaller one is not: one device takes all
    found = chain_under_load(example(), lambda ops, kind: 0 if len(ops) == 4 else 1)
    assert (found.value, len(found.stages)) == (0, 1)


def test_the_load_is_asked_once_for_each_set_and_kind() -> None:
    asked = []

    def load(ops: frozenset[str], kind: str) -> float:
        asked.append((ops, kind))
        return len(ops)

    chain_under_load(example(), load)
    assert len(asked) == len(set(asked))
    assert frozenset() not in {ops for ops, _ in asked}


@pytest.mark.parametrize("answer", [float("nan"), "12", None])
def test_what_is_no_number_is_one_line(answer: object) -> None:
    with pytest.raises(InputError, match="must be a number, or infinity"):
        chain_under_load(example(), lambda ops, kind: answer)  # type: ignore[arg-type,return-value]


def test_too_many_ideals_are_told_with_the_mend() -> None:
    with pytest.raises(InputError, match=r"more than 3 ideals.*coarsen the graph, or raise"):
        chain_under_load(example(), lambda ops, kind: 0, max_ideals=3)
