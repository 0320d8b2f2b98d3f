"""Replicated stages: shares are rounded up, weights are summed, replicas are equal."""

from __future__ import annotations

from draws import draw

from placegap.instances import Edge, Instance, Link, MaxLoad, Op, Plan, evaluate, recheck
from placegap.instances.referee.loads import equal_devices, sync_ns

REPLICAS = MaxLoad(plans="any", replicas=True)


def instance(
    *ops: Op,
    edges: tuple[Edge, ...] = (),
    devices: int = 3,
    memory: int | None = None,
    bandwidth: dict[tuple[int, int], int] | None = None,
) -> Instance:
    """Devices d0, d1, ... of kind gpu; links of 1 byte per ns, or as given per pair, or none."""
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    widths = dict.fromkeys(pairs, 10**9) if bandwidth is None else bandwidth
    links = [
        Link(source=f"d{a}", target=f"d{b}", bandwidth_bytes_per_s=width)
        for (a, b), width in widths.items()
    ]
    gpus = draw.devices(["gpu"] * devices, lambda k: memory)
    return draw.instance_of("replicas", ops, edges, gpus, links)


def op(name: str, time_ns: int, **fields: object) -> Op:
    return Op(name=name, time_ns={"gpu": time_ns}, **fields)  # type: ignore[arg-type]


def loads(on: Instance, *placement: tuple[int, ...], load: str = "add") -> list[int]:
    semantics = REPLICAS.model_copy(update={"load": load})
    verdict = evaluate(on, Plan(placement), semantics)
    assert verdict.feasible, verdict.violations
    assert verdict.value_ns == max(use.load_ns for use in verdict.uses)
    return [use.load_ns for use in verdict.uses]


def broken(on: Instance, *placement: tuple[int, ...]) -> list[tuple[str, str | None, str | None]]:
    verdict = evaluate(on, Plan(placement), REPLICAS)
    return [(v.rule, v.op, v.device) for v in verdict.violations]


def test_replicas_share_the_load_and_sum_the_weights() -> None:
    # ceil((4 + 3) / 2) = 4, and 2 * 1 * (1 + 2) bytes / (2 * 1 byte/ns) = 3
    on = instance(op("a", 4, parameter_bytes=1), op("b", 3, parameter_bytes=2))
    assert loads(on, (0, 1), (0, 1)) == [7, 7, 0]


def test_each_of_the_two_quotients_is_rounded_up() -> None:
    # three replicas: ceil(10 / 3) = 4 and ceil(2 * 2 * 1 / 3) = 2, not ceil(14 / 3) = 5
    assert loads(instance(op("a", 10, parameter_bytes=1)), (0, 1, 2)) == [6, 6, 6]
    assert sync_ns(1, 3, 10**9) == 2


def test_what_crosses_the_stage_is_shared_too() -> None:
    # the stage of a: 4 + 5 out, halved and rounded up; b: 2 + 5 in
    on = instance(op("a", 4), op("b", 2), edges=(Edge(producer="a", consumer="b", bytes=5),))
    assert loads(on, (0, 2), (1,)) == [5, 7, 5]
    # overlapped: max(4, 5) = 5, halved 3; max(2, 5)
    assert loads(on, (0, 2), (1,), load="overlap") == [3, 5, 3]
    # inside of the stage nothing is moved: (4 + 2) / 2
    assert loads(on, (0, 1), (0, 1)) == [3, 3, 0]


def test_the_narrowest_path_between_two_replicas_decides() -> None:
    # d0 -> d1 has half a byte per ns: 2 * 1 * 3 / (2 * 0.5) = 6; between d1 and d2 3
    widths = {(a, b): 10**9 for a in range(3) for b in range(3) if a != b}
    on = instance(op("a", 4, parameter_bytes=3), bandwidth={**widths, (0, 1): 10**9 // 2})
    assert loads(on, (0, 1)) == [8, 8, 0]
    assert loads(on, (1, 2)) == [0, 5, 5]


def test_every_replica_holds_all_bytes() -> None:
    on = instance(op("a", 4, resident_bytes=3), op("b", 4, resident_bytes=2), memory=4)
    assert loads(on, (0, 1), (2,)) == [2, 2, 4]
    assert broken(on, (0, 1), (0, 1)) == [("memory", "a", "d0"), ("memory", "a", "d1")]


def test_replicas_have_equal_times_memory_and_transfers() -> None:
    ops = [Op(name=name, time_ns={"gpu": 4, "other": 5}) for name in "ab"]
    edges = (Edge(producer="a", consumer="b", bytes=4),)
    base = instance(*ops, edges=edges)
    assert equal_devices(base, REPLICAS) == (0, 0, 0)
    for change in ({"kind": "other"}, {"memory_bytes": 9}, {"is_host": True}):
        devices = (*base.cluster.devices[:2], base.cluster.devices[2].model_copy(update=change))
        cluster = base.cluster.model_copy(update={"devices": devices})
        other = base.model_copy(update={"cluster": cluster})
        assert equal_devices(other, REPLICAS) == (0, 0, 1)
        assert broken(other, (0, 2), (0, 2)) == [("replicas", "a", "d2")]
    # the tensor takes 8 ns, but 4 from d0 to d1
    slow = {(a, b): 10**9 // 2 for a in range(3) for b in range(3) if a != b}
    far = instance(*ops, edges=edges, bandwidth={**slow, (0, 1): 10**9})
    assert equal_devices(far, REPLICAS) == (0, 0, 1)


def test_weights_cannot_be_summed_without_a_path() -> None:
    # one way only: no path from d1 to d0; without weights that does not matter
    one_way = {(0, 1): 10**9}
    heavy = instance(op("a", 4, parameter_bytes=1), devices=2, bandwidth=one_way)
    assert broken(heavy, (0, 1)) == [("replicas", "a", "d0")]
    assert loads(instance(op("a", 4), devices=2, bandwidth=one_way), (0, 1)) == [2, 2]


def test_weights_whose_sum_takes_above_2_to_61_ns_break_a_rule_of_both_referees() -> None:
    # two devices send each weight once: at 1 byte/s, 2**61 // 10**9 bytes are within 2**61 ns
    most = 2**61 // 10**9
    slow = {(0, 1): 1, (1, 0): 1}
    for more, expected in ((0, []), (1, [("replicas", "a", "d0")])):
        on = instance(op("a", 4, parameter_bytes=most + more), devices=2, bandwidth=slow)
        assert broken(on, (0, 1)) == expected
        first, second = (judge(on, Plan(((0, 1),)), REPLICAS) for judge in (evaluate, recheck))
        assert [v.rule for v in first.violations] == [v.rule for v in second.violations]
        assert first.value_ns == second.value_ns == (None if more else 2 + most * 10**9)
        assert loads(on, (0,)) == [4, 0]


def test_a_group_is_in_one_stage() -> None:
    on = instance(op("a", 4, colocation="g"), op("b", 4, colocation="g"))
    assert broken(on, (0, 1), (2,)) == [("colocation", "b", "d2")]
    assert loads(on, (0, 1), (0, 1)) == [4, 4, 0]
