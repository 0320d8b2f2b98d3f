"""serving_flow: the largest flow of tokens, by hand, by both referees and by brute force."""

from __future__ import annotations

import random
from itertools import product

import pytest
from draws import draw
from draws.serving import flow_instance
from references.serving_flows import agree

from placegap.instances import (
    Device,
    Edge,
    InputError,
    Instance,
    Op,
    Plan,
    Provenance,
    ServingFlow,
    evaluate,
    recheck,
)
from placegap.instances.importers.serving import as_document
from placegap.instances.objectives.flow.referee import largest_flow, plan_of, ranges_of
from placegap.instances.problem.flow_problem import (
    MOST_RATE,
    SINK,
    SOURCE,
    FlowProblem,
    Machine,
    Range,
)
from placegap.solvers import run_method

PARTIAL = ServingFlow(partial_inference=True)
MACHINES = (Machine("a", "big"), Machine("b", "small"), Machine("c", "small"))
TABLES = {"big": (90, 60, 40), "small": (50, 20)}
ENDS = {(SOURCE, i): 100 for i in range(3)} | {(i, SINK): 100 for i in range(3)}


def problem(links: dict[tuple[int, int], int], layers: int = 3) -> FlowProblem:
    return FlowProblem(layers, MACHINES, TABLES, ENDS | links)


def instance_of(found: FlowProblem) -> Instance:
    return as_document(found, "three", Provenance(), "three").instance()


def values(instance: Instance, *ranges: tuple[int, int] | None) -> list[int | None]:
    """What both referees say of ranges, without and with partial inference."""
    plan = plan_of(instance, tuple(r and Range(*r) for r in ranges))
    assert plan is not None
    judged = (
        judge(instance, plan, rules)
        for rules in (ServingFlow(), PARTIAL)
        for judge in (evaluate, recheck)
    )
    found = [verdict.value for verdict in judged]
    assert found[::2] == found[1::2]
    return found[::2]


def test_the_slowest_machine_or_link_of_a_row_counts() -> None:
    # a passes 60 with two layers, b 50 with one; the link between them 45, then 55
    assert values(instance_of(problem({(0, 1): 45})), (0, 2), (2, 1), None) == [45, 45]
    assert values(instance_of(problem({(0, 1): 55})), (0, 2), (2, 1), None) == [50, 50]


def test_machines_side_by_side_add_up() -> None:
    # b and c both hold layer 2: a passes 60 of the 50 + 50
    both = instance_of(problem({(0, 1): 45, (0, 2): 45}))
    assert values(both, (0, 2), (2, 1), (2, 1)) == [60, 60]
    # a passes 40 by itself, and b and c have no link, so that they pass nothing more
    assert values(both, (0, 3), (0, 2), (2, 1)) == [40, 40]
    joined = instance_of(problem({(1, 2): 45}))
    assert values(joined, (0, 3), (0, 2), (2, 1)) == [60, 60]  # 40 + min(20, 45, 50)


def test_with_partial_inference_a_token_enters_within_a_range() -> None:
    # b holds layer 0, a layers 0 to 2: after b a token still needs layers 1 and 2
    assert values(instance_of(problem({(1, 0): 70})), (0, 3), (0, 1), None) == [40, 40]
    # a holds layers 1 and 2 behind b with 0 and 1: b ends at 2, within a's range
    overlap = instance_of(problem({(1, 0): 70}))
    assert values(overlap, (1, 2), (0, 2), None) == [0, 20]


def test_a_link_that_is_not_stated_does_not_exist() -> None:
    # a reaches c over b, but no link joins them
    assert values(instance_of(problem({(0, 1): 45, (1, 2): 45})), (0, 2), None, (2, 1)) == [0, 0]


def test_without_a_coordinator_tokens_enter_and_leave_everywhere() -> None:
    free = FlowProblem(2, MACHINES[:2], TABLES, {(0, 1): 70, (1, 0): 70})
    instance = instance_of(free)
    assert [device.name for device in instance.cluster.devices] == ["a", "b"]
    assert instance.flow_problem.links[SOURCE, 0] == MOST_RATE
    assert values(instance, (0, 1), (1, 1)) == [50, 50]


def broken(instance: Instance, plan: Plan) -> str:
    first, second = (judge(instance, plan, ServingFlow()) for judge in (evaluate, recheck))
    assert [one.value for one in (first, second)] == [None, None]
    assert first.violations[0].rule == second.violations[0].rule
    return str(first.violations[0])


def test_every_rule_that_a_plan_may_break() -> None:
    instance = instance_of(problem({(0, 1): 45}))
    assert "'b' holds 3 layers, of at most 2" in broken(instance, Plan(((1,), (1,), (1,))))
    assert "do not follow each other" in broken(instance, Plan(((0,), (1,), (0,))))
    assert "cannot run on 'coordinator'" in broken(instance, Plan(((0,), (0,), (3,))))
    assert "on 0 devices" in broken(instance, Plan(((0,), (), (0,))))
    assert "not in ascending order" in broken(instance, Plan(((1, 0), (0,), (0,))))
    assert "does not exist" in broken(instance, Plan(((4,), (0,), (0,))))
    assert "has 2 ops" in broken(instance, Plan(((0,), (0,))))
    assert "stage is not defined" in broken(instance, Plan(((0,),) * 3, stage=(0, 0, 0)))


def two_layers(**cluster: object) -> Instance:
    """Ops a, b and c of 2, 3 and 5 ns; b and c are one layer; two cards with 4 bytes."""
    ops = [
        Op(name=n, time_ns={"gpu": t}, resident_bytes=2, colocation="end" * (n != "a") or None)
        for n, t in zip("abc", (2, 3, 5), strict=True)
    ]
    edges = [
        Edge(producer="a", consumer="b", bytes=3, tensor="t"),
        Edge(producer="a", consumer="c", bytes=3, tensor="t"),
        Edge(producer="b", consumer="c", bytes=9),
    ]
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=4) for k in range(2)]
    return draw.instance_of("two", ops, edges, devices, draw.fast_links(devices))


def test_without_a_table_the_slowest_layers_in_a_row_count() -> None:
    found = two_layers().flow_problem
    # one layer takes at most 3 + 5 ns, 10^9 / 8 tokens/s; both need 6 bytes, and there are 4
    assert found.tables == {"gpu": (10**15 // 8,)}
    assert found.num_layers == 2
    # 10^9 bytes/s over the 3 of the tensor that crosses, once
    assert found.links[0, 1] == 10**15 // 3
    plan = Plan(((0,), (1,), (1,)))
    assert {judge(two_layers(), plan, ServingFlow()).value for judge in (evaluate, recheck)} == {
        10**15 // 8
    }
    assert "of one layer" in broken(two_layers(), Plan(((0,), (1,), (0,))))


def test_layers_have_to_run_in_a_row() -> None:
    ops = [Op(name=n, time_ns={"gpu": 1}) for n in "abc"]
    fork = [Edge(producer="a", consumer=n) for n in "bc"]
    devices = [Device(name="g", kind="gpu")]
    with pytest.raises(InputError, match="nothing leads from the layer of op 'b' to that of 'c'"):
        evaluate(draw.instance_of("fork", ops, fork, devices), Plan.on([0] * 3), ServingFlow())
    ops = [op.model_copy(update={"colocation": "ac" if op.name in "ac" else "b"}) for op in ops]
    back = [Edge(producer="a", consumer="b"), Edge(producer="b", consumer="c")]
    with pytest.raises(InputError, match="feed each other"):
        evaluate(draw.instance_of("back", ops, back, devices), Plan.on([0] * 3), ServingFlow())


def test_both_referees_agree_on_random_plans() -> None:
    compared, flowing = agree(1, 3000)
    assert compared >= 3000
    assert flowing > 900


def best_by_python(found: FlowProblem) -> int:
    """The largest flow of all plans that leave some machines out or not."""
    choices = [
        [
            None,
            *(
                Range(s, h)
                for h in range(1, found.most_layers(i) + 1)
                for s in range(found.num_layers - h + 1)
            ),
        ]
        for i in range(found.num_machines)
    ]
    return max(largest_flow(found, ranges).value for ranges in product(*choices))


@pytest.mark.parametrize("seed", range(30))
def test_brute_force_finds_the_best_of_all_plans(seed: int) -> None:
    instance = flow_instance(random.Random(f"brute-{seed}"), most_machines=3, most_layers=3)
    for partial in (False, True):
        rules = ServingFlow(partial_inference=partial)
        result = run_method(instance, rules, "brute-force")
        best = best_by_python(FlowProblem(**{**vars_of(instance), "partial": partial}))
        assert (result.value or 0) == best
        if result.plan is not None:
            assert len(ranges_of(instance, result.plan)) == instance.flow_problem.num_machines


def vars_of(instance: Instance) -> dict[str, object]:
    found = instance.flow_problem
    names = ("num_layers", "machines", "tables", "links")
    return {name: getattr(found, name) for name in names}
