"""Sets as bits, wherever they stand: one word less than full, full, one more, and many words."""

from itertools import pairwise

import numpy as np
import pytest
from draws import draw

from placegap.instances import Instance, MaxLoad, Op, Plan, check
from placegap.solvers import run_method
from placegap.solvers.latency.masks import beyond, count_ideals, has, masks, meets, members

AT_THE_EDGE = pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 1000])


def line(count: int, devices: int = 2) -> Instance:
    """Ops of 1 ns one after the other, without transfers."""
    ops = [Op(name=f"op{i}", time_ns={"gpu": 1}) for i in range(count)]
    edges = draw.edges(pairwise(range(count)), [0] * count, [True] * count, int, "host_time_ns")
    return draw.instance_of("line", ops, edges, draw.devices(["gpu"] * devices))


@AT_THE_EDGE
def test_masks_are_read_back(count: int) -> None:
    rng = np.random.default_rng(count)
    inside = rng.random((3, count)) < 0.5
    inside[:, count - 1] = True
    table = masks(inside)
    assert [members(row, count).tolist() for row in table] == inside.tolist()
    assert all(has(table[0], v) == inside[0, v] for v in range(count))
    last, none = (
        masks(np.arange(count)[None, :] == count - 1)[0],
        np.zeros(table.shape[1], np.int64),
    )
    assert meets(table[0], last)
    assert not meets(table[0], none)
    assert not beyond(last, table[0])
    assert beyond(last, none)
    assert masks(inside, count + 1).shape == (3, count // 64 + 1)


@AT_THE_EDGE
def test_ideals_of_a_line_are_its_beginnings(count: int) -> None:
    before = np.tril(np.ones((count, count), bool), -1)
    assert count_ideals(masks(before), 2000) == count + 1
    assert count_ideals(masks(np.zeros((count, count), bool)), 10) > min(10, count)


@pytest.mark.parametrize("count", [63, 64, 65, 128])
def test_the_ideal_dp_splits_a_line_evenly(count: int) -> None:
    # no transfers: half of the ops, rounded up
    result = run_method(line(count), MaxLoad(plans="chain"), "ideal-dp")
    assert (result.value_ns, result.bound_ns) == (-(-count // 2), -(-count // 2))


@pytest.mark.parametrize("count", [63, 64, 65])
def test_the_referee_tells_many_devices_apart(count: int) -> None:
    # every op on a device of its own is convex; the last one back on the first device is not
    instance, semantics = line(count, count), MaxLoad(plans="convex")
    assert check(instance, Plan.on(range(count)), semantics) == ()
    back = Plan.on([*range(count - 1), 0])
    assert [violation.rule for violation in check(instance, back, semantics)] == ["convex"]
