"""Certificates that the package writes: each is accepted, and none is above an optimum."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from draws.tiny import tiny_instance
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    oracle,
)

from placegap.instances import Instance, LatencySubgraphs, Makespan, MaxLoad, Semantics, example
from placegap.instances.io.certificate_checker import Rejected, check
from placegap.instances.io.certificate_file import certificate_content, plain_document
from placegap.solvers import Task
from placegap.solvers.bounds.certificates.write import certify
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.brute_force import method as brute_force
from placegap.solvers.core.method import Params

RULES: tuple[Semantics, ...] = (
    *MAKESPAN_SEMANTICS,
    *(Makespan(channels=channels, memory="peak") for channels in ("free", "link", "port")),
    *MAKESPAN_SEMANTICS,
    *MAX_LOAD_SEMANTICS,
    *FWD_BWD_SEMANTICS,
    MaxLoad(replicas=True),
)


def as_read(content: Any) -> Any:
    """What a file holds of it."""
    return json.loads(json.dumps(content))


def is_sound(seed: int) -> None:
    rng = random.Random(seed)
    drawn = partial(
        tiny_instance,
        seed,
        num_ops=rng.choice([3, 4, 5, 6]),
        num_devices=rng.choice([1, 2, 3]),
        hosts=rng.choice([0, 0, 1]),
        backward=rng.random() < 0.4,
    )
    instance, semantics = drawn(), rng.choice(RULES)
    if brute_force.applies(Task(instance, semantics), Params()) is not None:
        # it orders no more transfers than so many; anything else that it refuses is an error still
        instance = drawn(max_edges=brute_force.MOST_TRANSFERS)
    optimum, found = oracle(instance, semantics), certify(instance, semantics)
    if found is None:
        assert optimum is None
        return
    content, document = as_read(certificate_content(found)), as_read(plain_document(instance))
    assert check(document, content) == []
    assert optimum is None or found.bound_ns <= optimum, (seed, semantics.label)
    content["bound_ns"] += 1  # nothing is left on the table
    with pytest.raises(Rejected, match="it claims"):
        check(document, content)


@pytest.mark.parametrize("seed", range(40))
def test_certificates_are_accepted_and_not_above_the_optimum(seed: int) -> None:
    is_sound(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 4000))
def test_many_certificates_are_accepted_and_not_above_the_optimum(seed: int) -> None:
    is_sound(seed)


def test_the_optimum_of_the_diamond_is_certified() -> None:
    # FD-DPS, figure 3: brute force finds 34 under ports; paths prove 33
    found = certify(example(), Makespan())
    assert found is not None
    assert (found.bound_ns, quick_bound(example(), Makespan()).ns) == (34, 33)


def test_no_certificate_is_below_the_paths_and_the_work_that_it_could_state() -> None:
    for seed in range(8):
        instance = tiny_instance(seed, num_ops=6, num_devices=2)
        found = certify(instance, Makespan())
        assert found is None or found.bound_ns >= quick_bound(instance, Makespan()).ns


def test_subgraph_latencies_have_no_certificate() -> None:
    assert certify(example(), LatencySubgraphs()) is None


def test_time_that_is_over_leaves_the_cheapest_certificate() -> None:
    instance: Instance = tiny_instance(3, num_ops=6)
    found = certify(instance, Makespan(), time_limit_s=0.0)
    assert found is not None
    assert found.proof.kind in {"work", "path"}


def test_without_time_the_longest_group_is_certified_as_well() -> None:
    # 5 + 60 + 10 + 8 ns of work on two devices: that proves 42, and the op of 60 ns more
    instance = example()
    ops = [
        op.model_copy(update={"time_ns": {"gpu": 60}}) if at == 1 else op
        for at, op in enumerate(instance.graph.ops)
    ]
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    found = certify(instance.model_copy(update={"graph": graph}), MaxLoad(), time_limit_s=0.0)
    assert found is not None
    assert (found.bound_ns, found.proof.kind) == (60, "longest")
