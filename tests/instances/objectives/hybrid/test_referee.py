"""hybrid_pipeline: the value of stages, their memory, and every rule that a plan may break."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from draws import draw

from placegap.experiments.running.placing import choose_semantics
from placegap.experiments.running.rules import Rules
from placegap.instances import (
    Device,
    Edge,
    Graph,
    HybridPipeline,
    InputError,
    Instance,
    MaxLoad,
    Mode,
    Op,
    Plan,
    evaluate,
    recheck,
)
from placegap.instances.objectives.hybrid.checks import why_nothing_fits as why_no_degrees

KEEP = Mode(name="keep", time_ns={"gpu": 10}, parameter_bytes=6, state_bytes=8, held_bytes=5)
AGAIN = Mode(name="again", time_ns={"gpu": 14}, parameter_bytes=6, state_bytes=9, held_bytes=1)
WIDE = Mode(
    name="keep", tensor=2, time_ns={"gpu": 7}, state_bytes=4, held_bytes=3, enter_bytes={"a": 2}
)
PLAN = Plan(((0, 1), (2, 3)), stage=(0, 1), tensor=(1, 2), mode=("keep", "keep"))


def two_layers(memory: int | None = None, servers: str = "", **fields: Any) -> Instance:
    """Layers a -> b with 3 bytes between, on four devices at 1 byte/ns."""
    ops = tuple(Op(name=n, time_ns={"gpu": 1}, modes=(KEEP, AGAIN)) for n in "ab")
    ops = (ops[0], ops[1].model_copy(update={"modes": (KEEP, AGAIN, WIDE), **fields}))
    devices = [
        Device(name=f"d{k}", kind="gpu", memory_bytes=memory, server=servers[k : k + 1] or None)
        for k in range(4)
    ]
    edges = (Edge(producer="a", consumer="b", bytes=3),)
    return draw.instance_of("ab", ops, edges, devices, draw.links(4, lambda a, b: (10**9, 0)))


def judged(instance: Instance, plan: Plan, **rules: Any) -> tuple[int | None, set[str]]:
    """Value and broken rules, by both referees."""
    semantics = HybridPipeline(**{"microbatches": 4, "degrees": "free", **rules})
    first, second = (judge(instance, plan, semantics) for judge in (evaluate, recheck))
    found = {violation.rule for violation in first.violations}
    assert (first.value_ns, found) == (
        second.value_ns,
        {violation.rule for violation in second.violations},
    )
    return first.value_ns, found


def test_a_stage_takes_its_share_of_compute_and_borders_and_the_sum_of_gradients() -> None:
    # stage 0, d = 2: 4 / 2 * 10, borders 2 * 2 * 3, gradients 2 * 1 / 2 * 6: 20 + 12 + 6
    # stage 1, d = 1, t = 2: 4 * 7, borders 2 * 4 * (3 + 2): 28 + 40
    assert judged(two_layers(), PLAN) == (68, set())
    narrow = replace(PLAN, placement=((0, 1), (2,)), tensor=(1, 1))
    # stage 1, d = 1: 4 * 10 + 2 * 4 * 3
    assert judged(two_layers(), narrow) == (64, set())


def test_bytes_are_divided_by_the_bandwidth_and_rounded_up_once() -> None:
    alone = Plan(((0, 1, 2),) * 2, stage=(0, 0), tensor=(1,), mode=("keep", "keep"))
    # 3 / 3 * 20 and 2 * 2 / 3 * 12 = 16 bytes for gradients
    assert judged(two_layers(), alone, microbatches=3) == (36, set())


def test_filling_and_draining_take_a_microbatch_through_the_other_stages() -> None:
    # each stage 4 * 10, border 2 * 4 * 3: 64, and a quarter of it for the other one
    row = replace(PLAN, placement=((0,), (1,)), tensor=(1, 1))
    assert judged(two_layers(), row, degrees="one", bubble=True) == (64 + 16, set())
    # stage 0 with 4 * 14 + 24 is longest; stage 1 adds a quarter of 64
    slow = replace(row, mode=("again", "keep"))
    assert judged(two_layers(), slow, degrees="one", bubble=True) == (80 + 16, set())
    # d = 2: 2 * 10 + 2 * 2 * 3 + 2 * 1 / 2 * 6 = 38, and half of it
    twice = replace(PLAN, tensor=(1, 1))
    assert judged(two_layers(), twice, degrees="one", bubble=True) == (38 + 19, set())
    # one microbatch of 10 + 2 * 3 passes two stages, and neither holds two: 5 + 8
    assert judged(two_layers(memory=13), row, degrees="one", bubble=True, microbatches=1) == (
        16 + 16,
        set(),
    )
    assert judged(two_layers(), row, degrees="one", microbatches=1)[1] == {"degrees"}
    # one stage has nothing to fill: 4 * 20
    alone = replace(row, stage=(0, 0), placement=((0,), (0,)), tensor=(1,))
    assert judged(two_layers(), alone, degrees="one", bubble=True) == (80, set())


def test_the_bubble_is_rounded_up() -> None:
    ops = tuple(Op(name=n, time_ns={"gpu": 1}, modes=(KEEP,)) for n in "ab")
    instance = two_layers().with_graph(Graph(name="ab", ops=ops))
    twice = replace(PLAN, tensor=(1, 1))
    # d = 2: 4 * 10 and 2 * 1 / 2 * 6 for gradients; a quarter of 46 is 11.5
    rules = {"degrees": "one", "bubble": True, "microbatches": 8}
    assert judged(instance, twice, **rules) == (46 + 12, set())


def test_earlier_stages_hold_more_microbatches() -> None:
    # a with d = 2 holds ceil((2 + 1) / 2) = 2 of 5 bytes and 8: 18; b with t = 2 one of 3 and 4: 7
    assert judged(two_layers(memory=18), PLAN) == (68, set())
    assert judged(two_layers(memory=17), PLAN) == (68, {"memory"})
    again = replace(PLAN, mode=("again", "keep"))  # 2 * 1 + 9
    assert judged(two_layers(memory=11), again)[1] == set()


def test_workspace_is_shared_and_sharded_state_divided() -> None:
    state = KEEP.model_copy(update={"workspace_bytes": 7, "sharded_bytes": 3, "gradient_bytes": 2})
    alone = Plan(((0, 1),), stage=(0,), tensor=(1,), mode=("keep",))
    # 5 + 8 + 7 = 20; d = 2 leaves 2 of the 3 bytes, or 3 of 3 + 2, on each device
    for sharding, held in (("none", 20), ("optimizer", 19), ("gradients", 18)):
        for memory, broken in ((held, set()), (held - 1, {"memory"})):
            op = Op(name="a", time_ns={"gpu": 1}, modes=(state,))
            instance = two_layers(memory=memory).with_graph(Graph(name="a", ops=(op,)))
            assert judged(instance, alone, sharding=sharding)[1] == broken
    # the workspace of two layers is that of one: 2 * (5 + 8) + 7
    ops = tuple(Op(name=n, time_ns={"gpu": 1}, modes=(state,)) for n in "ab")
    both = Plan(((0,),) * 2, stage=(0, 0), tensor=(1,), mode=("keep", "keep"))
    for memory, broken in ((33, set()), (32, {"memory"})):
        instance = two_layers(memory=memory).with_graph(Graph(name="ab", ops=ops))
        assert judged(instance, both)[1] == broken


ALONE = Plan(((0,), (0,)), stage=(0, 0), tensor=(1,), mode=("again", "keep"))
BROKEN: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"degrees": "one_t"}, "degrees", "--degrees free"),
    ({"tensor": (1, 1), "placement": ((0,), (1, 2))}, {"degrees": "one"}, "degrees", "--degrees"),
    # 2 replicas do not divide 3; 4 replicas of 2
    ({}, {"microbatches": 3}, "degrees", "choose a divisor, or other --microbatches"),
    ({"tensor": (1, 1)}, {"microbatches": 2}, "degrees", "raise --microbatches, or count"),
    ({"stage": (1, 0), "tensor": (1, 1)}, {}, "chain", ""),
    ({"stage": (0, 0), "tensor": (1,)}, {}, "shape", ""),  # on two sets of devices
    ({"placement": ((0, 1), (1, 2))}, {}, "shape", ""),  # device 1 twice
    ({"placement": ((0, 1), (2,))}, {}, "shape", ""),  # one device for t = 2
    ({"mode": ("keep", "again")}, {}, "shape", ""),  # no such mode for t = 2
    ({"mode": None}, {}, "shape", ""),
    ({"call": (0, 0)}, {}, "fields", ""),
    ({"mode": ("again", "keep"), "tensor": (1, 1)}, {"recompute": "all_or_none"}, "recompute", "p"),
    (vars(ALONE), {"recompute": "per_stage"}, "recompute", ""),
]
"""What a plan says in place of `PLAN`, rules, the rule that it breaks, and what mends it."""


@pytest.mark.parametrize(("change", "rules", "broken", "mend"), BROKEN)
def test_broken_rules_are_named_with_what_mends_them(
    change: dict[str, Any], rules: dict[str, Any], broken: str, mend: str
) -> None:
    plan = replace(PLAN, **change)
    assert judged(two_layers(), plan, **rules)[1] == {broken}
    semantics = HybridPipeline(**{"microbatches": 4, "degrees": "free", **rules})
    found = evaluate(two_layers(), plan, semantics).violations
    assert any(mend in violation.message for violation in found), found


def test_layers_that_have_one_mode_follow_any_choice() -> None:
    # b has one mode for t = 2
    again = replace(PLAN, mode=("again", "keep"))
    assert judged(two_layers(), again, recompute="all_or_none")[1] == set()


def test_a_group_of_tensor_parallel_devices_lies_in_one_server() -> None:
    assert judged(two_layers(servers="xxyy"), PLAN)[1] == set()
    assert judged(two_layers(servers="xyxy"), PLAN)[1] == {"tensor"}
    assert judged(two_layers(servers="xyyy"), PLAN)[1] == {"tensor"}  # 2 divides neither


def test_other_objectives_refuse_the_fields_of_hybrid_plans() -> None:
    for judge in (evaluate, recheck):
        verdict = judge(two_layers(), replace(PLAN, placement=((0,), (1,))), MaxLoad(plans="any"))
        assert {violation.rule for violation in verdict.violations} == {"fields"}


def test_ops_without_modes_run_in_one_way_by_their_own_fields() -> None:
    op = Op(name="b", time_ns={"gpu": 9}, resident_bytes=10, parameter_bytes=4)
    instance = two_layers(memory=18)
    graph = Graph(name="b", ops=(op,))
    plan = Plan(((0, 1),), stage=(0,), tensor=(1,), mode=("own",))
    # 4 / 2 * 9, and 2 * 1 / 2 * 4 bytes of gradients
    assert judged(instance.with_graph(graph), plan) == (22, set())


@pytest.mark.parametrize(
    ("tensors", "servers", "degrees", "message"),
    [
        ((1, 4), "aabb", "free", "'b' has modes for 4 devices, and there are servers of 2.*add a"),
        ((1, 8), "", "free", "'b' has modes for 8 devices, and there are 4 in all.*add a mode"),
        ((1, 2), "", "one_t", "'b' has modes for 2 devices, but no such degree.*--degrees free"),
    ],
)
def test_tensor_degrees_that_no_plan_can_have_are_refused(
    tensors: tuple[int, int], servers: str, degrees: str, message: str
) -> None:
    given = two_layers(servers=servers)
    ops = tuple(
        Op(name=op.name, time_ns=op.time_ns, modes=(KEEP.model_copy(update={"tensor": t}),))
        for op, t in zip(given.graph.ops, tensors, strict=True)
    )
    instance = given.with_graph(given.graph.model_copy(update={"ops": ops}))
    semantics = HybridPipeline.model_validate({"degrees": degrees})
    assert re.search(message, why_no_degrees(instance, semantics) or "")
    with pytest.raises(InputError, match=message):
        choose_semantics(Rules(**semantics.model_dump()), instance, None)
