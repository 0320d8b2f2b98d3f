"""Memory at its peak: what is live when, state once, and what the referee says of too much."""

from __future__ import annotations

from typing import Any

from draws import draw

from placegap.instances import (
    Edge,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Semantics,
    evaluate,
    recheck,
)

PASS = Makespan(memory="peak")
LOAD = MaxLoad(plans="any", memory="peak")


def instance(
    ops: dict[str, dict[str, Any]],
    edges: list[tuple[str, str, int]],
    memory_bytes: int | None = None,
    devices: int = 2,
) -> Instance:
    """Ops of 1 ns unless they say otherwise; a byte takes 1 ns from device to device."""
    return draw.instance_of(
        "net",
        (Op(name=name, **{"time_ns": {"x": 1}, **op}) for name, op in ops.items()),
        (Edge(producer=a, consumer=b, bytes=s, tensor=f"out {s}") for a, b, s in edges),
        draw.devices(["x"] * devices, lambda k: memory_bytes),
        draw.links(devices, lambda a, b: (10**9, 0)),
    )


def held(net: Instance, devices: list[int], semantics: Semantics) -> list[int]:
    """Bytes of each device, on which both referees agree."""
    plan = Plan.on(devices)
    verdict = evaluate(net, plan, semantics)
    held = [use.memory_bytes for use in verdict.uses]
    for limit in set(held):
        room = tuple(d.model_copy(update={"memory_bytes": limit}) for d in net.cluster.devices)
        tight = net.model_copy(update={"cluster": net.cluster.model_copy(update={"devices": room})})
        first, second = evaluate(tight, plan, semantics), recheck(tight, plan, semantics)
        assert first.feasible == second.feasible == (limit >= max(held))
    return held


CHAIN = {"a": {}, "b": {"workspace_bytes": 7}, "c": {}}
CHAIN_EDGES = [("a", "b", 10), ("b", "c", 20)]


def test_a_tensor_is_there_while_it_is_written_and_until_it_is_read() -> None:
    net = instance(CHAIN, CHAIN_EDGES)
    # a: 10; b: 10 + 20 + its workspace 7; c: 20
    assert held(net, [0, 0, 0], LOAD) == [37, 0]
    assert held(net, [0, 0, 0], PASS) == [37, 0]


def test_what_is_sent_stays_until_it_is_gone_and_what_is_received_is_there_as_it_comes() -> None:
    net = instance(CHAIN, CHAIN_EDGES)
    # d0: a's 10, while it is sent from 1 to 11 ns; d1: as on one device
    assert held(net, [0, 1, 1], PASS) == [10, 37]
    # d0: from 1 to 2 ns b, as on one device; its 20 are sent from 2 to 22 ns, and are on d1, too
    assert held(net, [0, 0, 1], PASS) == [37, 20]
    # without a schedule: a holds 10 on d0; c the 20 that it reads
    assert held(net, [0, 0, 1], LOAD) == [37, 20]


def test_with_several_transfers_a_tensor_is_there_from_the_first_to_the_last() -> None:
    # a's tensor of 4 goes to b and to c on d1 one after another (per edge): 1 to 5, 5 to 9 ns;
    # b, ready at 5 ns, writes 3 that d needs after c: at 9 ns d1 holds 4 + 3
    ops = {"a": {}, "b": {}, "c": {}, "d": {}}
    net = instance(ops, [("a", "b", 4), ("a", "c", 4), ("b", "d", 3), ("c", "d", 0)])
    assert held(net, [0, 1, 1, 1], PASS) == [4, 7]
    # until its transfer has ended it is on d0, where x (2 ns, ready at once) needs 50 from 1 to 3
    more = instance(
        {**ops, "x": {"workspace_bytes": 50, "time_ns": {"x": 2}}},
        [("a", "b", 4), ("a", "c", 4), ("b", "d", 3), ("c", "d", 0)],
    )
    assert held(more, [0, 1, 1, 1, 0], PASS) == [54, 7]


def test_ends_free_before_starts_take() -> None:
    # two chains of workspace, one after another on one device: never both
    net = instance({"a": {"workspace_bytes": 5}, "b": {"workspace_bytes": 6}}, [("a", "b", 0)])
    assert held(net, [0, 0], PASS) == [6, 0]


def test_what_takes_no_time_holds_nothing_in_a_schedule_but_counts_as_a_step() -> None:
    view = {"a": {}, "view": {"time_ns": {"x": 0}, "workspace_bytes": 9}, "b": {}}
    net = instance(view, [("a", "view", 2), ("view", "b", 3)])
    # a: 2 until 1 ns; view at 1 ns; b: 3 from 1 ns on
    assert held(net, [0, 0, 0], PASS) == [3, 0]
    assert held(net, [0, 0, 0], LOAD) == [2 + 3 + 9, 0]


def test_state_is_parameters_unless_stated_and_shared_state_counts_once_on_a_device() -> None:
    ops = {
        "a": {"parameter_bytes": 5},
        "b": {"parameter_bytes": 5, "state_bytes": 20, "shared_state": {"tied": 100}},
        "c": {"state_bytes": 0, "parameter_bytes": 8, "shared_state": {"tied": 100, "own": 1}},
    }
    net = instance(ops, [])
    for semantics in (PASS, LOAD):
        assert held(net, [0, 0, 0], semantics) == [5 + 20 + 100 + 1, 0]
        assert held(net, [0, 0, 1], semantics) == [5 + 20 + 100, 101]


def test_forward_ops_take_their_steps_before_backward_ops_where_edges_allow() -> None:
    # topological order: a, a', b, b'; steps: a, b, then a', b'. Each forward op's output waits for
    # its backward op, so that both are there at once, and with them the workspace of a step
    ops = {
        "a": {},
        "b": {},
        "a'": {"backward": True, "workspace_bytes": 1},
        "b'": {"backward": True, "workspace_bytes": 1},
    }
    net = instance({k: ops[k] for k in ("a", "a'", "b", "b'")}, [("a", "a'", 10), ("b", "b'", 20)])
    assert net.memory_arrays.step.tolist() == [0, 2, 1, 3]
    assert held(net, [0, 0, 0, 0], LOAD) == [31, 0]
    # a forward op that waits for a backward one comes after it; one that does not, before
    late = instance({**ops, "after": {}}, [("a'", "after", 1)])
    assert late.memory_arrays.step.tolist() == [0, 1, 2, 3, 4]


def test_every_device_of_a_replicated_stage_holds_all_of_it() -> None:
    ops = {"a": {"state_bytes": 3}, "b": {"state_bytes": 4, "shared_state": {"t": 5}}, "c": {}}
    net = instance(ops, [("a", "b", 10), ("b", "c", 20)], devices=3)
    semantics = LOAD.model_copy(update={"replicas": True})
    plan = Plan(((0, 1), (0, 1), (2,)))
    # 3 + 4 + 5 of state; at b's step 10 + 20
    assert [use.memory_bytes for use in evaluate(net, plan, semantics).uses] == [42, 42, 20]
    assert recheck(net, plan, semantics).feasible


def test_a_device_that_is_too_full_is_named_with_its_bytes_and_its_op() -> None:
    net = instance({**CHAIN, "a": {"state_bytes": 3}}, CHAIN_EDGES, memory_bytes=30)
    (timed,) = evaluate(net, Plan.on([0, 0, 0]), PASS).violations
    assert str(timed) == (
        "memory: device 'd0' holds 40 B at its peak, 10 B more than its 30 B: 3 B of state, and"
        " 37 B of tensors and workspace while 'b' runs at 1 ns"
    )
    assert (timed.op, timed.device, timed.time_ns) == ("b", "d0", 1)
    (steps,) = evaluate(net, Plan.on([0, 0, 0]), LOAD).violations
    assert steps.message.endswith("while 'b' runs")
    assert steps.time_ns is None


def test_a_tensor_that_is_too_large_to_receive_is_named_by_its_producer() -> None:
    # b ends at 2 ns; its 20 bytes arrive on d1 from then on, before c runs there
    net = instance({**CHAIN, "b": {}}, CHAIN_EDGES, memory_bytes=30)
    tight = net.cluster.devices[1].model_copy(update={"memory_bytes": 19})
    cluster = net.cluster.model_copy(update={"devices": (net.cluster.devices[0], tight)})
    (found,) = evaluate(
        net.model_copy(update={"cluster": cluster}), Plan.on([0, 0, 1]), PASS
    ).violations
    assert (found.op, found.device, found.time_ns) == ("b", "d1", 2)
    assert "while it holds the output of 'b' at 2 ns" in found.message


def test_too_much_state_names_the_largest_op() -> None:
    idle = {"time_ns": {"x": 0}}
    net = instance({"a": {"state_bytes": 5, **idle}, "b": {"state_bytes": 9, **idle}}, [], 10)
    (found,) = evaluate(net, Plan.on([0, 0]), PASS).violations
    assert found.op == "b"


def test_the_sum_rule_takes_no_notice_of_state() -> None:
    net = instance({"a": {"resident_bytes": 5, "state_bytes": 99}}, [], memory_bytes=10)
    assert evaluate(net, Plan.on([0]), MaxLoad(plans="any")).feasible
    assert not evaluate(net, Plan.on([0]), LOAD).feasible
