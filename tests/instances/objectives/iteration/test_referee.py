"""The clock of pipeline_iteration, its rules, and what devices hold."""

from __future__ import annotations

import random

import pytest
from draws.peak import add_state
from draws.pipelines import (
    iteration_semantics,
    layer_row,
    pipeline_instance,
    shared_weight_row,
    stage_plan,
    zero_bubble,
)

from placegap.instances import (
    Edge,
    InputError,
    Instance,
    Op,
    PipelineIteration,
    Plan,
    Semantics,
    evaluate,
    example,
    recheck,
)
from placegap.instances.objectives.iteration.referee import simulate_iteration
from placegap.instances.objectives.makespan.simulate import PlanError

PLAN = Plan.on([0, 0, 1, 1])


def test_gpipe_without_transfers_is_a_sum_and_the_heaviest_stage_of_each_pass() -> None:
    # sum f + (m - 1) max f + sum b + (m - 1) max b
    for seed in range(20):
        rng = random.Random(f"gpipe-{seed}")
        p, m = rng.randrange(1, 6), rng.randrange(1, 9)
        forward = [rng.randrange(20) for _ in range(p)]
        backward = [rng.randrange(20) for _ in range(p)]
        plan = Plan.on([*range(p), *range(p)])
        semantics = PipelineIteration(schedule="gpipe", microbatches=m)
        value_ns = evaluate(layer_row(forward, backward), plan, semantics).value_ns
        assert value_ns == sum(forward) + sum(backward) + (m - 1) * (max(forward) + max(backward))


def test_1f1b_takes_turns_once_it_is_warm() -> None:
    # f = 1, b = 2 in both stages, two microbatches:
    # device 0: F0 0-1, F1 1-2,           B0 4-6,      B1 7-9
    # device 1:         F0 1-2, B0 2-4, F1 4-5, B1 5-7
    semantics = PipelineIteration(schedule="1f1b", microbatches=2)
    iteration = simulate_iteration(layer_row([1, 1], [2, 2]), Plan.on([0, 1, 0, 1]), semantics)
    spans = [[(span.start_ns, span.end_ns) for span in spans] for spans in iteration.events]
    assert spans == [[(0, 1), (1, 2), (4, 6), (7, 9)], [(1, 2), (2, 4), (4, 5), (5, 7)]]
    assert iteration.value_ns == 9


def with_updates(row: Instance, times_ns: list[int]) -> Instance:
    """The layers of a `layer_row` with an update each, which reads the gradients of its layer."""
    ops = [
        Op(name=f"u{i}", time_ns={"gpu": t}, backward=True, update=True, colocation=f"layer{i}")
        for i, t in enumerate(times_ns)
    ]
    reads = [Edge(producer=f"b{i}", consumer=f"u{i}") for i in range(len(ops))]
    update = {"ops": (*row.graph.ops, *ops), "edges": (*row.graph.edges, *reads)}
    return row.with_graph(row.graph.model_copy(update=update))


@pytest.mark.parametrize(
    ("update_ns", "end_ns"),
    [
        ([3, 0], 9 + 3),  # the first stage is the last to end its gradients
        ([0, 2], 9),  # the second one updates while the first still works
        ([1, 5], 7 + 5),  # the iteration ends with the last update
    ],
)
def test_an_iteration_updates_once_and_ends_with_the_slowest_stage(
    update_ns: list[int], end_ns: int
) -> None:
    # as above: the gradients of stage 0 end at 9, those of stage 1 at 7
    row = with_updates(layer_row([1, 1], [2, 2]), update_ns)
    plan, semantics = Plan.on([0, 1] * 3), PipelineIteration(microbatches=2)
    verdict = evaluate(row, plan, semantics)
    assert verdict.value_ns == recheck(row, plan, semantics).value_ns == end_ns
    assert [use.compute_ns for use in verdict.uses] == [3, 3]  # of a microbatch
    spans = simulate_iteration(row, plan, semantics).events
    updates = [span.event.stage for each in spans for span in each if span.event.update]
    assert updates == [s for s, t in enumerate(update_ns) if t]


def test_interleaving_shortens_the_way_to_the_last_device() -> None:
    # 4 equal layers forward alone, two devices, 2 microbatches. In a row of two stages of 2 ns the
    # second microbatch ends at 2 + 2 + 2; with two stages of 1 ns on each device at 5
    row = layer_row([1, 1, 1, 1], None, num_devices=2)
    plain = PipelineIteration(microbatches=2)
    rounds = PipelineIteration(schedule="interleaved", stages_per_device=2, microbatches=2)
    assert evaluate(row, Plan.on([0, 0, 1, 1]), plain).value_ns == 6
    interleaved = Plan(((0,), (1,), (0,), (1,)), stage=(0, 1, 2, 3))
    assert evaluate(row, interleaved, rounds).value_ns == 5


def test_a_link_carries_one_message_at_a_time() -> None:
    # stages of 25 and 18 ns, messages of 1 + 20 ns: the last of m = 5 ends at 5 * 25 + 21 + 18;
    # between stages of 5 ns, messages of 30 ns queue: 5 + 5 * 30 + 5
    semantics = PipelineIteration(microbatches=5)
    assert evaluate(example(), PLAN, semantics).value_ns == 164
    slow = layer_row([5, 5], None, bytes_each=30)
    assert evaluate(slow, Plan.on([0, 1]), semantics).value_ns == 160


def test_blocking_devices_pay_as_under_max_load() -> None:
    # op1 -> op3 (20 ns) and op2 -> op4 (1 ns) cross: loads 25 + 21 and 21 + 18
    semantics = PipelineIteration(microbatches=3, sending="blocking")
    assert evaluate(example(), PLAN, semantics).value_ns == 46 + 39 + 2 * 46


def test_stages_hold_what_is_in_flight() -> None:
    # a stash of 4 bytes per layer: 1f1b keeps min(m, S - s), gpipe all 8
    row = layer_row([1, 1, 1], [1, 1, 1], stash_bytes=4, resident_bytes=10)
    plan = Plan.on([0, 1, 2, 0, 1, 2])
    assert held(row, plan, PipelineIteration(schedule="1f1b", microbatches=8)) == [18, 14, 10]
    assert held(row, plan, PipelineIteration(schedule="gpipe", microbatches=8)) == [38, 38, 38]


def held(instance: Instance, plan: Plan, semantics: Semantics) -> list[int]:
    return [use.memory_bytes for use in evaluate(instance, plan, semantics).uses]


def stated(instance: Instance, **sizes: int) -> Instance:
    """The instance whose every op has these sizes."""
    ops = tuple(op.model_copy(update=sizes) for op in instance.graph.ops)
    return instance.model_copy(update={"graph": instance.graph.model_copy(update={"ops": ops})})


def test_at_its_peak_a_stage_of_inference_holds_its_state_and_what_one_op_needs() -> None:
    # four layers of 100 bytes of state, tensors of 10, workspace 1: the sum of resident bytes is
    # 400 on each of two devices. At its peak the first holds 200 of state; its second layer reads
    # 10, writes 10, works with 1. The other reads 10, writes 10 for its last layer
    row = stated(
        layer_row([1] * 4, None, num_devices=2, bytes_each=10, resident_bytes=200),
        state_bytes=100,
        workspace_bytes=1,
    )
    plan = Plan.on([0, 0, 1, 1])
    assert held(row, plan, PipelineIteration()) == [400, 400]
    assert held(row, plan, PipelineIteration(memory="peak")) == [221, 221]


def test_at_its_peak_a_stage_keeps_what_is_in_flight() -> None:
    # a stash of 4 bytes per layer, state of 3 for each of its two ops, workspace 2. While a forward
    # or backward op runs, one microbatch is its stash and the workspace; 1f1b keeps the stashes of
    # min(m, S - s) - 1 others, gpipe those of 7
    row = stated(layer_row([1] * 3, [1] * 3, stash_bytes=4), state_bytes=3, workspace_bytes=2)
    plan = Plan.on([0, 1, 2] * 2)
    for schedule, others in (("1f1b", [2, 1, 0]), ("gpipe", [7, 7, 7])):
        rules = PipelineIteration.model_validate({"schedule": schedule, "memory": "peak"})
        assert held(row, plan, rules) == [6 + 4 + 2 + 4 * each for each in others]


def test_at_its_peak_a_device_with_two_stages_keeps_the_stash_of_the_other() -> None:
    # as above; device 0 has stages 0 and 2 of 4. It holds 12 of state, 4 + 2 of the stage at work,
    # 4 of the other one, and of further microbatches what the rule `sum` counts
    row = stated(layer_row([1] * 4, [1] * 4, num_devices=2, stash_bytes=4), state_bytes=3)
    plan = Plan.on([0, 1] * 4)
    plan = Plan(plan.placement, stage=(0, 1, 2, 3) * 2)
    rules = {"schedule": "interleaved", "stages_per_device": 2, "microbatches": 4}
    further = held(row, plan, PipelineIteration.model_validate(rules))  # no resident bytes
    peak = held(row, plan, PipelineIteration.model_validate({**rules, "memory": "peak"}))
    assert peak == [12 + 8 + each for each in further]


def test_both_referees_count_the_same_peak_to_the_byte() -> None:
    counted = 0
    for seed in range(50):
        rng = random.Random(f"bytes-{seed}")
        weights = rng.random() < 0.3
        instance = add_state(pipeline_instance(seed, weights=weights), seed)
        own = zero_bubble(rng) if weights else iteration_semantics(rng)
        rules = own.model_copy(update={"memory": "peak"})
        plan = stage_plan(instance, rules, rng)
        try:
            uses = held(instance, plan, rules)
        except InputError:
            continue  # zero_bubble of what has no gradients of weights
        for less in (0, 1) if uses else ():
            k = rng.choice([k for k, most in enumerate(uses) if most] or [0])
            devices = tuple(
                device.model_copy(update={"memory_bytes": max(0, most - less * (at == k))})
                for at, (device, most) in enumerate(
                    zip(instance.cluster.devices, uses, strict=True)
                )
            )
            cluster = instance.cluster.model_copy(update={"devices": devices})
            verdict = recheck(instance.model_copy(update={"cluster": cluster}), plan, rules)
            full = [each.device for each in verdict.violations if each.rule == "memory"]
            assert full == [devices[k].name] * (less and uses[k] > 0), (seed, rules.label)
            counted += 1
    assert counted >= 25


def test_gradients_of_a_shared_weight_are_exchanged_after_the_last_microbatch() -> None:
    # the sum of the first layer's weight gradients goes up to the copy in the last layer: that
    # binds no stage, and its 10^6 ns on the link are not counted
    tied = shared_weight_row([1, 1], [2, 2], 10**6)
    plan = Plan.on([0, 1, 0, 1, 0, 1])
    for schedule in ("gpipe", "1f1b"):  # as without it: 1 + 1 + 1 and 2 + 2 + 2
        semantics = PipelineIteration.model_validate({"schedule": schedule, "microbatches": 2})
        assert evaluate(tied, plan, semantics).value_ns == 9
        assert recheck(tied, plan, semantics).value_ns == 9


PLAIN = PipelineIteration()
TWO_EACH = PipelineIteration(schedule="interleaved", stages_per_device=2, microbatches=3)


@pytest.mark.parametrize(
    ("plan", "semantics", "says"),
    [
        (Plan.on([1, 0, 0, 1]), PLAIN, "cycle"),
        (Plan(((0,),) * 4, stage=(0, 0, 0, 1)), PLAIN, "1 on each device"),
        (Plan(PLAN.placement, stage=(0, 0, 2, 2)), PLAIN, "has no op"),
        (Plan(((0,), (1,), (0,), (0,)), stage=(0, 0, 1, 1)), PLAIN, "is on 'gpu0'"),
        (Plan(PLAN.placement, stage=(1, 1, 0, 0)), PLAIN, "later stages"),
        (Plan(PLAN.placement, stage=(0, 0, 1)), PLAIN, "3 entries for 4 ops"),
        (PLAN, TWO_EACH, "states the stage of each op"),
        (Plan(((0,), (1,), (0,), (1,)), stage=(0, 1, 2, 3)), TWO_EACH, "not a multiple of the 2"),
    ],
)
def test_what_is_no_chain_of_stages_is_named(
    plan: Plan, semantics: PipelineIteration, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        simulate_iteration(example(), plan, semantics)
    verdict = evaluate(example(), plan, semantics)
    assert verdict.value_ns is None
    assert [violation.rule for violation in verdict.violations] == ["order"]
