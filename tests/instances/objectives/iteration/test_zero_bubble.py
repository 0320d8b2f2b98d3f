"""Zero-bubble schedules: the order of Qi et al., its time and its memory."""

from __future__ import annotations

from draws.pipelines import split_row

from placegap.instances import Edge, Graph, Instance, PipelineIteration, Plan, evaluate, recheck
from placegap.instances.objectives.iteration.referee import simulate_iteration
from placegap.instances.objectives.iteration.stages import device_orders

RULES = PipelineIteration(schedule="zero_bubble", microbatches=8)
FIGURE_3 = (
    "F1 F2 F3 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 F8 B5 W5 B6 W6 B7 W7 B8 W8",
    "F1 F2 F3 B1 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 F8 B6 W5 B7 W6 B8 W7 W8",
    "F1 F2 B1 F3 B2 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 F8 B7 W5 B8 W6 W7 W8",
    "F1 B1 F2 B2 F3 B3 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 F8 B8 W5 W6 W7 W8",
)
"""Rows of its upper part (ZB-H1), read off with the passes that its colours show."""


def test_the_order_is_that_of_figure_3() -> None:
    rows = (
        " ".join(f"{event.part[0].upper()}{event.microbatch + 1}" for event in order)
        for order in device_orders(RULES, 4, trains=True)
    )
    assert tuple(rows) == FIGURE_3


def test_its_bubble_is_that_of_table_2() -> None:
    # each device works m (F + B + W); the bubble is (p - 1) (F + B - W), 1f1b's (p - 1) (F + B + W)
    for forward, backward, weight in ((1, 1, 1), (4, 5, 3)):
        row = split_row([forward] * 4, [backward] * 4, [weight] * 4)
        plan, work = Plan.on([*range(4)] * 3), 8 * (forward + backward + weight)
        assert evaluate(row, plan, RULES).value_ns == work + 3 * (forward + backward - weight)
        plain = PipelineIteration(microbatches=8)
        assert evaluate(row, plan, plain).value_ns == work + 3 * (forward + backward + weight)


def test_events_wait_for_inputs_gradients_alone() -> None:
    # f = 1, b = 2, w = 3 in both stages, two microbatches:
    # device 0: F0 0-1, F1 1-2,         B0 4-6, W0 6-9, B1 9-11, W1 11-14
    # device 1:         F0 1-2, B0 2-4, F1 4-5, B1 5-7, W0 7-10, W1 10-13
    row = split_row([1, 1], [2, 2], [3, 3])
    rules = PipelineIteration(schedule="zero_bubble", microbatches=2)
    iteration = simulate_iteration(row, Plan.on([0, 1] * 3), rules)
    spans = [[(span.start_ns, span.end_ns) for span in spans] for spans in iteration.events]
    assert spans == [
        [(0, 1), (1, 2), (4, 6), (6, 9), (9, 11), (11, 14)],
        [(1, 2), (2, 4), (4, 5), (5, 7), (7, 10), (10, 13)],
    ]


def test_stages_hold_what_both_later_events_read() -> None:
    # stash 4 + 2 bytes, of which weight gradients read 2, and they read a gradient of 1; stage s of
    # 3 is beside 2 - s stashes and s of those 3 bytes (Qi et al., section 2.3)
    row = split_row([1] * 3, [1] * 3, [1] * 3, stash_bytes=4, read_bytes=2, gradient_bytes=1)
    held = [use.memory_bytes for use in evaluate(row, Plan.on([0, 1, 2] * 3), RULES).uses]
    assert held == [12, 6 + 3, 6]


def test_a_marked_op_exchanges_gradients_with_marked_ops_alone() -> None:
    # w feeds an op of the second layer: that may run forward, so that no microbatch can pass, or
    # backward, so that a gradient leads to a later stage; marked, it waits like w. Then 1f1b runs
    # f f w w on the first device, whose first w waits until 2 for the second device
    row = split_row([1, 1], [1, 1], [1, 1])
    plan, rules = Plan(((0,), (0,), (1,)), stage=(0, 0, 1)), PipelineIteration(microbatches=2)
    ops = {op.name: op for op in row.graph.ops}
    for reader, value_ns in (("f1", None), ("b1", None), ("w1", 4)):
        ends = (("f0", "w0"), ("w0", reader))
        graph = Graph(
            name="g",
            ops=[ops[name] for name in ("f0", "w0", reader)],
            edges=[Edge(producer=a, consumer=b, bytes=10**6) for a, b in ends],
        )
        instance = Instance(name="i", graph=graph, cluster=row.cluster)
        assert evaluate(instance, plan, rules).value_ns == value_ns
        assert recheck(instance, plan, rules).value_ns == value_ns
