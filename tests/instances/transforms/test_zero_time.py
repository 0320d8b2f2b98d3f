"""Zero-time ops: what joins what, what must not, and the same optimum as before."""

import random

import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    oracle,
    scattered_instance,
)

from placegap.instances import Edge, Instance, Makespan, MaxLoad, Op, Plan, Semantics
from placegap.instances.problem import Loads
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.zero_time import join_zero_time

FREE = Makespan(channels="free")
PORT = Makespan(channels="port")
LOAD = MaxLoad(plans="any")


def net(text: str, *, devices: int = 2, **ops: dict[str, object]) -> Instance:
    """Edges "a-b:3 .." of so many bytes and ns; ops in capitals take 1 ns, the others none.

    `ops` are fields of single ops; a tensor that is named ("a-b:3:t a-c:3:t") is shared.
    """
    edges, names = [], {}
    for part in text.split():
        ends, size, *tensor = part.split(":")
        a, b = ends.split("-")
        names.update({a: None, b: None})
        edges.append(Edge(producer=a, consumer=b, bytes=int(size), tensor=(tensor or [None])[0]))
    made = [
        Op(**{"name": name, "time_ns": {"gpu": int(name.isupper())}, **ops.get(name, {})})
        for name in names
    ]
    links = draw.links(devices, lambda a, b: (10**9, 0))
    return draw.instance_of("net", made, edges, draw.devices(["gpu"] * devices), links)


def joined(instance: Instance, semantics: Semantics) -> list[str]:
    """Names of the ops that became one, joined."""
    merge = join_zero_time(instance, semantics)
    groups: dict[int, str] = {}
    for op, c in zip(instance.graph.ops, merge.op.tolist(), strict=True):
        groups[c] = groups.get(c, "") + op.name
    return sorted(name for name in groups.values() if len(name) > 1)


@pytest.mark.parametrize("semantics", [FREE, PORT, LOAD], ids=lambda s: s.label)
def test_an_op_without_inputs_or_outputs_joins_its_only_neighbour(semantics: Semantics) -> None:
    assert joined(net("v-A:3 A-B:3"), semantics) == ["vA"]
    assert joined(net("A-B:3 B-v:3", devices=3), semantics) == ["Bv"]


def test_an_op_that_shrinks_a_tensor_joins_its_producer_one_that_grows_it_its_consumer() -> None:
    # either way the smaller tensor is the one that may cross
    for semantics in (FREE, PORT, LOAD):
        assert joined(net("A-v:5 v-B:3"), semantics) == ["Av"]
        assert joined(net("A-v:3 v-B:5"), semantics) == ["vB"]


def test_a_tensor_with_other_consumers_may_have_to_cross_anyway() -> None:
    # A's tensor goes to v and C. v shrinks it: if v joined A, its output could come on top
    shared = "A-v:5:t A-C:5:t v-B:3"
    assert joined(net(shared), LOAD) == []
    per_tensor = PORT.model_copy(update={"transfers": "per_tensor"})
    assert joined(net(shared), per_tensor) == []
    assert joined(net(shared), PORT) == ["Av"]  # per edge, A-v is a transfer of its own


def test_with_three_devices_a_relay_may_pay_unless_channels_are_free() -> None:
    assert joined(net("A-v:3 v-B:5", devices=3), FREE) == ["vB"]
    assert joined(net("A-v:3 v-B:5", devices=3), PORT) == []
    assert joined(net("A-v:3 v-B:5", devices=3), LOAD) == ["vB"]


def test_two_edges_that_would_become_one_transfer_stay() -> None:
    # A's tensor goes to v and B, which v feeds
    both = "A-v:3:t A-B:3:t v-B:5"
    assert joined(net(both), PORT) == []
    assert joined(net(both), PORT.model_copy(update={"transfers": "per_tensor"})) == ["vB"]


def test_joining_goes_on_until_nothing_is_left() -> None:
    assert joined(net("A-u:5 u-v:4 v-w:3 w-B:2"), PORT) == ["Auvw"]


@pytest.mark.parametrize(
    "fields",
    [{"resident_bytes": 1}, {"colocation": "g"}, {"time_ns": {"gpu": 1}}, {"backward": True}],
    ids=str,
)
def test_what_costs_or_is_tied_stays(fields: dict[str, object]) -> None:
    tied = {"v": fields, "B": {"colocation": "g"}}
    assert joined(net("v-A:3 A-B:3", **tied), PORT) == []


def zeroed(seed: int, base: Instance) -> Instance:
    """The instance with half of its ops without time; most of these hold nothing."""
    rng = random.Random(f"zero-{seed}")
    kinds = sorted({device.kind for device in base.cluster.devices})
    ops = tuple(
        op.model_copy(
            update={
                "time_ns": dict.fromkeys(kinds if rng.random() < 0.7 else op.time_ns, 0),
                "resident_bytes": 0 if rng.random() < 0.9 else 1,
            }
        )
        if rng.random() < 0.5
        else op
        for op in base.graph.ops
    )
    return base.with_graph(base.graph.model_copy(update={"ops": ops}))


def compare(semantics: Semantics, first_seed: int, number: int) -> int:
    """Assert that the optimum stays; how many instances had something to join."""
    merged = 0
    for seed in range(first_seed, first_seed + number):
        if isinstance(semantics, Loads):
            base = tiny_instance(
                seed,
                num_ops=5 + seed % 2,
                num_devices=2 + seed % 3 // 2,
                hosts=seed % 2,
                backward=seed % 4 == 0,
                density=0.3,
            )
        elif seed % 3:  # ops run on few devices, and tensors have to travel
            base = scattered_instance(seed, num_ops=5, num_devices=2 + seed % 2, max_edges=6)
        else:
            base = tiny_instance(seed, num_ops=4 + seed % 2, max_edges=5)
        instance = zeroed(seed, base)
        merge = join_zero_time(instance, semantics)
        if merge.coarse.num_ops == instance.num_ops:
            continue
        merged += 1
        best = oracle(instance, semantics)
        assert oracle(merge.coarse, semantics) == best, (instance.name, semantics.label)
        assert join_zero_time(merge.coarse, semantics).coarse.num_ops == merge.coarse.num_ops
    return merged


ALL = (*MAKESPAN_SEMANTICS, *MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS)


@pytest.mark.parametrize("semantics", ALL[::3], ids=lambda s: s.label.replace(" ", "-"))
def test_the_optimum_stays(semantics: Semantics) -> None:
    assert compare(semantics, 0, 14) >= 3


@pytest.mark.deep
@pytest.mark.parametrize("semantics", ALL, ids=lambda s: s.label.replace(" ", "-"))
def test_the_optimum_stays_on_many_instances(semantics: Semantics) -> None:
    assert compare(semantics, 10_000, 500) >= 100


def test_a_plan_comes_back_at_the_same_value() -> None:
    instance = net("A-v:3 v-B:5 A-C:1")
    merge = join_zero_time(instance, PORT)
    plan = Plan.on([0, 1, 0], [[0, 2], [1]])  # A, vB, C
    before = evaluate(merge.coarse, plan, PORT)
    back = evaluate(instance, expand_plan(merge, plan, PORT), PORT)
    # A 0-1, to B 1-4, B 4-5
    assert (before.value_ns, back.value_ns, back.feasible) == (5, 5, True)
