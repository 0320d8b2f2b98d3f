"""Certificates that the package writes: each is accepted, and none is above an optimum.

Certificates keep their time limit, and what is proven when it is over still holds.
"""

import json
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import FWD_BWD_SEMANTICS, MAKESPAN_SEMANTICS, MAX_LOAD_SEMANTICS, oracle

from placegap.instances import Instance, LatencySubgraphs, Makespan, MaxLoad, Semantics, example
from placegap.instances.certificates import certificate_ideals
from placegap.instances.certificates.certificate_checker import Rejected, check
from placegap.instances.certificates.certificate_file import (
    Certificate,
    Leaf,
    certificate_content,
    check_content,
    plain_document,
)
from placegap.instances.corpus.generate import generate
from placegap.solvers import Task, brute_force
from placegap.solvers.bounds.certificates import write as certificates
from placegap.solvers.bounds.certificates.write import (
    TimedTerms,
    certify,
    checked_parts,
    prove_chain,
)
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core import clock as clock_module
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Params

RULES: tuple[Semantics, ...] = (
    *MAKESPAN_SEMANTICS,
    *(Makespan(channels=channels, memory="peak") for channels in ("free", "link", "port")),
    *MAKESPAN_SEMANTICS,
    *MAX_LOAD_SEMANTICS,
    *FWD_BWD_SEMANTICS,
    MaxLoad(plans="any", replicas=True),
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
    check(document, content)
    assert optimum is None or found.bound_ns <= optimum, (seed, semantics.label)
    content["bound_ns"] += 1  # nothing is left on the table
    with pytest.raises(Rejected, match="it claims"):
        check(document, content)


@pytest.mark.parametrize("seed", range(16))
def test_certificates_are_accepted_and_not_above_the_optimum(seed: int) -> None:
    is_sound(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 4000))
def test_many_certificates_are_accepted_and_not_above_the_optimum(seed: int) -> None:
    is_sound(seed)


def test_the_optimum_of_the_diamond_is_certified() -> None:
    # FD-DPS, figure 3: brute force finds 34 under ports; paths prove 33
    found = certify(example(), Makespan())
    assert (found.bound_ns, quick_bound(example(), Makespan()).value) == (34, 33)


def test_subgraph_latencies_have_no_certificate() -> None:
    assert certify(example(), LatencySubgraphs()) is None


def test_without_time_the_longest_group_is_certified_as_well() -> None:
    # 5 + 60 + 10 + 8 ns of work on two devices: that proves 42, and the op of 60 ns more
    instance = draw.with_ops(example(), time_ns=[{"gpu": time} for time in (5, 60, 10, 8)])
    found = certify(instance, MaxLoad(plans="any"), time_limit_s=0.0)
    assert (found.bound_ns, found.proof.kind) == (60, "longest")


TIMED_RULES: tuple[Semantics, ...] = (
    Makespan(),
    Makespan(channels="port", transfers="per_edge", memory="peak"),
    MaxLoad(plans="any"),
    MaxLoad(plans="chain", load="overlap"),
    MaxLoad(plans="any", replicas=True),
)

CHAIN = MaxLoad(plans="chain")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let each look at a clock take a second; how many there were."""
    numbers, seen = count(), [0]

    def now_s() -> float:
        seen[0] = next(numbers)
        return float(seen[0])

    monkeypatch.setattr(clock_module, "now_s", now_s)
    monkeypatch.setattr(certificates, "S_PER_PART", 0.0)
    monkeypatch.setattr(certificates, "S_PER_MOVE", 0.0)
    return lambda: seen[0]


def holds(instance: Instance, found: Certificate | None) -> bool:
    """Whether the checker accepts it."""
    try:
        check_content(plain_document(instance), certificate_content(found))
    except Rejected:
        return False
    return True


def series_parallel(num_ops: int = 60) -> Instance:
    """Forks and joins on two equal devices."""
    graph = generate("series-parallel", {"ops": num_ops}, seed=1)
    devices = draw.devices(["gpu"] * 2)
    return draw.instance_of("forks", graph.ops, graph.edges, devices, draw.fast_links(devices))


@pytest.mark.parametrize("semantics", TIMED_RULES, ids=lambda semantics: semantics.label)
def test_without_any_time_there_is_a_certificate_that_holds(semantics: Semantics) -> None:
    for seed in range(4):
        instance = tiny_instance(seed, num_ops=5, num_devices=random.Random(seed).choice([2, 3]))
        found = certify(instance, semantics, time_limit_s=0.0)
        check(plain_document(instance), certificate_content(found))


@pytest.mark.parametrize("limit", [10, 300])
def test_each_step_stops_when_the_time_is_over(looks: Callable[[], int], limit: int) -> None:
    instance = series_parallel()
    for semantics in (Makespan(channels="port", transfers="per_edge"), CHAIN):
        before = looks()
        assert holds(instance, certify(instance, semantics, float(limit), target_ns=10**12))
        # on the way out a few more steps see that it is over
        assert looks() - before <= limit + 30


def test_longest_paths_look_at_the_clock() -> None:
    instance = tiny_instance(1)
    problem = TimedTerms(checked_parts(instance), Makespan().model_dump(mode="json"), Clock(0.0))
    with pytest.raises(LimitReached):
        problem.path({})


def test_a_chain_ends_where_its_time_does(looks: Callable[[], int]) -> None:
    instance = series_parallel()
    rules = Makespan().model_dump(mode="json")
    problem = TimedTerms(checked_parts(instance), rules, Clock(None))
    whole = prove_chain(instance, problem, Clock(None))
    one = prove_chain(instance, problem, Clock(3.0))  # over after one of two sections
    both = prove_chain(instance, problem, Clock(12.0))  # over in the midst of an LP
    assert [len(proof.ops) for _, proof in (one, both, whole)] == [2, 3, 3]
    assert one[0] <= both[0] <= whole[0]
    for bound, proof in (one, both, whole):
        content = proof.model_dump(mode="json", exclude_none=True)
        assert problem.chain(content) == bound


def test_a_chain_keeps_the_better_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger tree that the clock cuts short may prove less than the one before."""
    instance = series_parallel()
    problem = TimedTerms(checked_parts(instance), Makespan().model_dump(mode="json"), Clock(None))
    grow_tree = certificates.grow_tree

    def cut_short(*given: Any, most_leaves: int, **options: Any) -> tuple[Any, Any]:
        if most_leaves > certificates.LEAVES[0]:
            return Leaf(), 0
        return grow_tree(*given, most_leaves=most_leaves, **options)

    monkeypatch.setattr(certificates, "grow_tree", cut_short)
    bound, proof = prove_chain(instance, problem, Clock(None))
    assert bound > problem.path({})  # so that the first trees matter
    assert problem.chain(proof.model_dump(mode="json", exclude_none=True)) == bound


def test_where_ideals_are_too_many_less_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, optimum = tiny_instance(1, num_ops=6, num_devices=3), 9
    whole = certify(instance, CHAIN, target_ns=optimum)
    assert (whole.bound_ns, whole.proof.kind) == (optimum, "ideals")
    monkeypatch.setattr(certificate_ideals, "MOST_STAGES", 4)
    found = certify(instance, CHAIN, target_ns=optimum)
    assert (found.bound_ns, found.proof.kind) == (7, "ideals")  # work proves 6
    assert holds(instance, found)


def test_too_many_blocks_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_ideals, "MOST_BLOCKS", 5)
    found = certify(tiny_instance(1, num_ops=6, num_devices=3), CHAIN, target_ns=9)
    assert found.proof.kind != "ideals"
