"""Idle blocks: which blocks without time may join a neighbour, and what becomes of their bytes."""

from itertools import pairwise

import pytest
from draws import draw

from placegap.instances import Edge, Instance, Op
from placegap.instances.problem.blocks import Blocks, Bytes, IdleRule, contract, roomy_devices


def row(*ops: Op, memory: tuple[int | None, ...], kinds: str = "") -> Instance:
    """Ops in a row, on devices of one kind unless `kinds` has a letter for each."""
    edges = tuple(Edge(producer=a.name, consumer=b.name, host_time_ns=1) for a, b in pairwise(ops))
    devices = draw.devices(kinds or "g" * len(memory), lambda k: memory[k])
    return draw.instance_of("row", ops, edges, devices)


def op(name: str, size: int, *, time_ns: int = 0, kinds: str = "g", parameters: int = 0) -> Op:
    return Op(
        name=name,
        time_ns=dict.fromkeys(kinds, time_ns),
        resident_bytes=size,
        parameter_bytes=parameters,
    )


def joined(instance: Instance, bytes: Bytes = "count", *, parameters: bool = False) -> Blocks:
    return contract(instance, rule=IdleRule(bytes, parameters))


WEIGHT, USER = op("w", 3), op("a", 4, time_ns=5)


def test_bytes_move_where_every_device_holds_everything() -> None:
    blocks = joined(row(WEIGHT, USER, memory=(7, 7)))
    assert (blocks.num_blocks, blocks.resident_bytes.tolist(), blocks.exact) == (1, [7], True)


def test_one_byte_less_on_one_device_keeps_them_apart() -> None:
    assert joined(row(WEIGHT, USER, memory=(7, 6))).num_blocks == 2


def test_a_small_device_that_cannot_run_the_neighbour_does_not_matter() -> None:
    weight = op("w", 3, kinds="gh")
    assert joined(row(weight, USER, memory=(7, 1), kinds="gh")).num_blocks == 1
    assert joined(row(weight, USER, memory=(6, 9), kinds="gh")).num_blocks == 2


def test_a_device_need_only_hold_what_it_can_run() -> None:
    other = op("z", 100, time_ns=9, kinds="h")
    instance = row(WEIGHT, USER, other, memory=(7, 200), kinds="gh")
    blocks = contract(instance, merge_idle=False)
    roomy = roomy_devices(instance, blocks.time_ns, blocks.resident_bytes)
    assert roomy.tolist() == [True, True]
    assert joined(instance).num_blocks == 2


def test_dropped_bytes_are_gone_and_moved_ones_are_not() -> None:
    instance = row(WEIGHT, USER, memory=(6, 6))
    dropped, moved = joined(instance, "drop"), joined(instance, "move")
    assert (dropped.resident_bytes.tolist(), moved.resident_bytes.tolist()) == ([4], [7])
    assert (dropped.held.tolist(), moved.held.tolist()) == ([False, True], [True, True])
    assert not dropped.exact
    assert not moved.exact


def test_bytes_are_not_dropped_where_that_makes_no_difference() -> None:
    blocks = joined(row(WEIGHT, USER, memory=(7, 7)), "drop")
    assert (blocks.resident_bytes.tolist(), blocks.exact) == ([7], True)


def test_parameters_keep_a_block_alone_only_with_replicas() -> None:
    instance = row(op("w", 3, parameters=3), USER, memory=(None, None))
    assert joined(instance).num_blocks == 1
    assert joined(instance, parameters=True).num_blocks == 2


def test_devices_that_are_known_to_be_roomy_count_as_such() -> None:
    instance = row(WEIGHT, USER, memory=(6, 6))
    known = roomy_devices(instance, instance.arrays.time_ns, instance.arrays.resident_bytes) | True
    assert contract(instance, rule=IdleRule(roomy=known)).num_blocks == 1


@pytest.mark.parametrize("rule", ["count", "drop", "move"])
def test_weights_without_a_user_join_any_block_where_they_may(rule: Bytes) -> None:
    ops = (op("v", 3), op("w", 3), op("a", 4, time_ns=5))
    for memory, blocks in ((10, 1), (9, 3 if rule == "count" else 1)):
        instance = draw.instance_of("loose", ops, (), draw.devices("g", lambda k, m=memory: m))  # type: ignore[misc]
        assert joined(instance, rule).num_blocks == blocks
