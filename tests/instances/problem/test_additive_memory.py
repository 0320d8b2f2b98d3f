"""Between two sums: no device holds less than its floor at its peak, nor more than its ceiling."""

import random
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from draws import draw
from draws.peak import add_state, with_peak
from draws.plans import every_instance, instances, random_plan, semantics_for

from placegap.instances import Edge, Instance, Makespan, MaxLoad, Op, Plan, Semantics, evaluate
from placegap.instances.problem.additive_memory import (
    ceiling_bytes,
    floor_bytes,
    group_live_bytes,
    relax_memory,
    with_resident,
)

LOAD = MaxLoad(plans="any", memory="peak")
PASS = Makespan(memory="peak")


def compare(seed: int, number: int) -> Counter[str]:
    """Judge random plans; how many of each objective, and how many hold no more than their floor.

    The floor and the ceiling are bytes of ops, which the sum rule adds up: for iterations with the
    microbatches in flight.
    """
    rng = random.Random(f"additive-{seed}")
    judged = Counter[str]()
    for plain in every_instance(seed):
        instance = add_state(plain, rng.randrange(10**9))
        sum_ = semantics_for(instance, rng, iterations=True)
        if sum_.objective == "latency_subgraphs":
            continue
        semantics = with_peak(sum_)
        floor, ceiling = floor_bytes(instance, semantics), ceiling_bytes(instance)
        # op by op they may differ: a tensor counts for one op of a group, here and there another
        group = instance.arrays.group
        assert (np.bincount(group, floor) <= np.bincount(group, ceiling)).all()
        low, high = with_resident(instance, floor), with_resident(instance, ceiling)
        for _ in range(4):
            plan = random_plan(instance, semantics, rng)
            verdict = evaluate(instance, plan, semantics)
            if any(v.rule == "colocation" for v in verdict.violations) or not verdict.uses:
                continue
            least, held, most = (
                np.array([use.memory_bytes for use in evaluate(of, plan, rules).uses])
                for of, rules in ((low, sum_), (instance, semantics), (high, sum_))
            )
            assert (least <= held).all(), (instance.name, semantics.label, plan)
            assert (held <= most).all(), (instance.name, semantics.label, plan)
            judged.update({semantics.objective: 1, "reached": int((least == held).all())})
        if judged.total() - judged["reached"] >= number:
            return judged
    raise AssertionError


def test_every_peak_is_between_the_floor_and_the_ceiling() -> None:
    judged = compare(1, 120)
    assert judged["reached"] >= 8
    assert min(judged["makespan"], judged["max_load"], judged["pipeline_iteration"]) >= 10


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 8))
def test_every_peak_of_many_plans_is_between_the_floor_and_the_ceiling(seed: int) -> None:
    compare(seed, 4000)


def training(**loss: object) -> Instance:
    """Two layers, each with its backward op in one group, and a loss between the passes."""
    names = ("f1", "f2", "loss", "b2", "b1")
    group = {"f1": "1", "b1": "1", "f2": "2", "b2": "2"}
    ops = tuple(
        Op(
            name=name,
            state_bytes=100,
            colocation=group.get(name),
            backward=name.startswith("b"),
            **{"time_ns": {"x": 1}, **(loss if name == "loss" else {})},
        )
        for name in names
    )
    # x1 is written by f1, and read by f2 and b2 (and b1); x2 by loss and b2
    edges = [
        ("f1", "f2", 10),
        ("f1", "b2", 10),
        ("f1", "b1", 10),
        ("f2", "loss", 20),
        ("f2", "b2", 20),
        ("loss", "b2", 3),
        ("b2", "b1", 4),
    ]
    arcs = (Edge(producer=a, consumer=b, bytes=s, tensor="out") for a, b, s in edges)
    return draw.instance_of("training", ops, arcs, draw.devices(["x"]))


@pytest.mark.parametrize("semantics", [LOAD, PASS], ids=["max_load", "makespan"])
def test_activations_held_for_the_backward_pass_count_at_their_layers(semantics: Semantics) -> None:
    # at the loss x1 waits for f1's group, x2 for f2's; the loss reads x2 (it counts once), writes 3
    # and needs 9; later, at b2, 10 + 20 + 3 + 4 would be 37: less
    net = training(workspace_bytes=9)
    assert floor_bytes(net, semantics).tolist() == [110, 120, 112, 100, 100]
    assert evaluate(net, Plan.on([0] * 5), semantics).uses[0].memory_bytes == 542


def test_what_is_live_in_a_group_is_that_of_its_fullest_op() -> None:
    # b1 reads x1 and 4 bytes; b2 reads x1, x2 and 3 bytes, and writes 4; the loss as above
    net = training(workspace_bytes=9)
    assert group_live_bytes(net, np.arange(3)).tolist() == [10 + 4, 10 + 20 + 3 + 4, 20 + 3 + 9]
    idle = training(workspace_bytes=9, time_ns={"x": 0})  # what takes no time holds nothing
    assert group_live_bytes(idle, np.arange(3)).tolist() == [14, 37, 0]


def test_a_moment_of_a_makespan_must_take_time() -> None:
    # the loss takes no time now: then the first op that does, and is comparable with all others,
    # and at which the most is live, is b2: x1 for f1's group, x2, 3, 4
    # x1 is f1's group's; x2 the group's of f2, which b2 is in, and so are 3 and 4
    idle = training(workspace_bytes=9, time_ns={"x": 0})
    assert floor_bytes(idle, PASS).sum() == 500 + 10 + 20 + 3 + 4


def test_shared_state_counts_once_in_the_floor_and_once_per_group_in_the_ceiling() -> None:
    ops = tuple(
        Op(name=name, time_ns={"x": 1}, shared_state={"tied": 7}, colocation=group)
        for name, group in (("a", None), ("b", "g"), ("c", "g"))
    )
    net = draw.instance_of("tied", ops, (), draw.devices(["x"]))
    assert floor_bytes(net, LOAD).tolist() == [7, 0, 0]
    assert ceiling_bytes(net).tolist() == [7, 7, 0]


def test_the_sum_rule_is_left_alone() -> None:
    plain = MaxLoad(plans="any")
    net = next(islice(instances(3), 1))
    assert relax_memory(net, plain) == (net, plain)
    other = with_resident(net, np.arange(net.num_ops))
    assert other.arrays.resident_bytes.tolist() == list(range(net.num_ops))
    assert other.arrays.time_ns.tolist() == net.arrays.time_ns.tolist()
