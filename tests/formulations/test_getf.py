"""GETF's LP bounds every makespan, and the LP's fractions are rounded as published."""

from __future__ import annotations

import random

import numpy as np
import pyomo.environ as pyo
import pytest
from features.makespan import anywhere, instance, pinned
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.formulations.getf import build, critical_path_ns, extract, round_to_groups
from placegap.formulations.shared.devices import (
    Grouping,
    device_groups,
    related_speeds,
    speed_factor,
)
from placegap.instances import Instance, Makespan, Op
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

FREE = Makespan(channels="free")
GROUPINGS: tuple[Grouping, ...] = ("columns", "auto")


def lp_value(case: Instance, by: Grouping = "columns") -> float | None:
    """The LP's optimum in ns, None if it is infeasible."""
    return value(build(case, FREE, groups=device_groups(case, by)))


def value(model: pyo.ConcreteModel) -> float | None:
    found = solve_model(model, Limits())
    assert found.ending in ("optimal", "infeasible")
    if found.objective is None:
        return None
    return found.objective * float(pyo.value(model.unit_ns))


def known(number: float | None) -> float:
    assert number is not None
    return number


def timed(name: str, *times: int, **fields: object) -> Op:
    """An op and its time on each of the devices of `features.instance`."""
    by_kind = {f"kind{k}": time for k, time in enumerate(times)}
    return Op(name=name, time_ns=by_kind, **fields)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- values by hand

CASES: dict[str, tuple[Instance, float]] = {
    # 12 ns of work on two devices
    "work is shared": (instance("work", [anywhere(op, 4) for op in "abc"], []), 6),
    # a fraction y of each op on the fast device: it works 2 * 2 y, the slow one 2 * 6 (1 - y), and
    # an op takes 2 y + 6 (1 - y): all three are 3 at y = 3/4
    "the slow device takes a quarter": (
        instance("quarter", [timed("a", 2, 6), timed("b", 2, 6)], []),
        3,
    ),
    # a pinned to d0, b to d1: 2 + 4
    "transfers are left out": (
        instance("move", [pinned("a", 0, 2), pinned("b", 1, 4)], [("a", "b", 3)]),
        6,
    ),
    # the group of a and b takes 5 + 5 on d0, 6 + 1 on d1
    "colocated ops share the device": (
        instance("share", [timed("a", 5, 6, colocation="p"), timed("b", 5, 1, colocation="p")], []),
        7,
    ),
    # four ops of 3 bytes in 6 bytes of fast and 12 of slow memory: half of the work is slow. An op
    # takes 1/2 + 10/2, the slow device 2 * 10
    "memory limits the fast group": (
        instance("fast", [timed(op, 1, 10, resident_bytes=3) for op in "abcd"], [], memory_bytes=6),
        20,
    ),
}


@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "-"))
def test_each_rule_has_its_value(name: str) -> None:
    case, lp = CASES[name]
    assert lp_value(case) == pytest.approx(lp)


def test_a_group_of_unequal_speeds_is_as_fast_as_its_fastest_device() -> None:
    # speeds 1 and 2/3 are one group: 2 ops of 2 fill 1 + 2/3 devices for 4 / (5 / 3) = 2.4 ns, and
    # two ops in a row take 2 + 2
    parallel = instance("speeds", [timed("a", 2, 3), timed("b", 2, 3)], [])
    chain = instance("speeds", [timed("a", 2, 3), timed("b", 2, 3)], [("a", "b", 9)])
    assert device_groups(parallel).devices == ((0, 1),)
    assert lp_value(parallel, "auto") == pytest.approx(2.4)
    assert lp_value(chain, "auto") == pytest.approx(4)


def test_a_changed_time_counts_in_all_rows() -> None:
    # of 12 ns of work on two devices, 10 + 4 + 4 are 9 for each, and a alone takes 10
    model = build(CASES["work is shared"][0], FREE)
    assert value(model) == pytest.approx(6)
    model.least_ns["a", "d0+d1"] = 10
    assert value(model) == pytest.approx(10)
    model.least_ns["b", "d0+d1"] = 8
    assert value(model) == pytest.approx((10 + 8 + 4) / 2)
    assert pyo.value(model.makespan_ns) == pytest.approx(11)


def test_less_memory_moves_work_to_the_slow_device() -> None:
    # four ops of 3 bytes: 9 bytes of fast memory leave 3 of 12 to the slow device, a quarter of 40
    # ns; 6 bytes leave half
    ops = [timed(op, 1, 10, resident_bytes=3) for op in "abcd"]
    case = instance("fast", ops, [], memory_bytes=9)
    model = build(case, FREE, groups=device_groups(case, "columns"))
    assert value(model) == pytest.approx(10)
    model.capacity_bytes["d0"] = 6
    assert value(model) == pytest.approx(20)
    with pytest.raises(ValueError, match="capacity_bytes"):
        model.capacity_bytes["d0"] = 10  # shares may be fixed where an op did not fit


# ----------------------------------------------------------------------------------- the claims


def test_it_bounds_every_makespan() -> None:
    feasible = 0
    for case in makespan_draws()[::12]:
        least = oracle(case, FREE)  # channels only delay
        for by in GROUPINGS:
            lp = lp_value(case, by)
            if least is not None:
                assert critical_path_ns(case) <= known(lp) + 1e-6
                assert known(lp) <= least + 1e-6
                feasible += 1
    assert feasible >= 8 * len(GROUPINGS)


def test_no_rule_of_communication_is_faster_than_free_channels() -> None:
    # what lets the test above look at free channels alone: per tensor may be faster than per edge
    # only where channels are busy
    for case in makespan_draws()[::12]:
        values = [oracle(case, semantics) for semantics in MAKESPAN_SEMANTICS]
        least = oracle(case, FREE)
        assert least is None or least == min(v for v in values if v is not None)


def test_related_speeds_bound_too() -> None:
    rng = random.Random(3)
    for number in range(6):
        speeds = sorted(rng.choice([1, 2, 3, 4, 7, 8]) for _ in range(3))
        sizes = [rng.randrange(1, 9) * 168 for _ in range(4)]  # 168: all quotients are whole
        ops = [timed(f"o{i}", *(size // s for s in speeds)) for i, size in enumerate(sizes)]
        edges = [(f"o{a}", f"o{b}", 40) for a, b in ((0, 1), (0, 2), (1, 3)) if rng.random() < 0.7]
        case = instance(f"related-{number}", ops, edges, devices=3)
        assert device_groups(case).related
        fine = known(lp_value(case))
        assert known(lp_value(case, "speeds")) <= fine + 1e-6
        assert fine <= known(oracle(case, FREE)) + 1e-6


# ------------------------------------------------------------------------------ groups, rounding


def test_equal_devices_are_a_group() -> None:
    kinds = {"kind0": 3, "kind1": 3, "kind2": 4}
    case = instance("kinds", [Op(name="a", time_ns=kinds), timed("b", 5, 5, 1)], [], devices=3)
    assert device_groups(case).devices == ((0, 1), (2,))
    assert not device_groups(case).related
    with pytest.raises(ValueError, match="devices with speeds"):
        device_groups(case, "speeds")


def test_speeds_are_grouped_by_powers_of_the_factor() -> None:
    # times 1 : 2 : 3 : 4 : 9 are speeds 1, 1/2, 1/3, 1/4, 1/9; with factor 2, [1, 2) [2, 4) ...
    assert speed_factor(5) == 2
    times = np.array([[10, 20, 30, 40, 90], [7, 14, 21, 28, 63]])
    speeds = related_speeds(times)
    assert speeds is not None
    assert speeds.tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 9])
    kinds = [{f"kind{k}": int(time) for k, time in enumerate(row)} for row in times]
    ops = [Op(name=f"o{i}", time_ns=kind) for i, kind in enumerate(kinds)]
    case = instance("powers", ops, [], devices=5)
    assert device_groups(case).devices == ((4,), (3,), (1, 2), (0,))


@pytest.mark.parametrize(
    ("times", "related"),
    [
        ([[1000, 3000], [333, 1000]], True),  # a third, rounded
        ([[1000, 3000], [333, 1100]], False),
        ([[1000, 3000], [-1, 1000]], False),  # not supported everywhere
        ([[0, 0], [0, 0]], False),  # no op to tell the speeds
        ([[5, 7]], True),
    ],
)
def test_speeds_must_explain_all_times(times: list[list[int]], related: bool) -> None:
    assert (related_speeds(np.array(times, np.int64)) is not None) == related


def test_rounding_by_hand() -> None:
    # Three groups of speed 1, 2, 4 with 8, 2 and 1 devices: capacities 8, 4, 4; an op of size 4
    # takes 4, 2, 1. From the fastest on, at least half: (.2 .2 .6) the fastest alone;
    # (.2 .4 .4) the two fastest, of equal capacity, the lower number; (.6 .2 .2) all, the first.
    share = np.array([[0.2, 0.2, 0.6], [0.2, 0.4, 0.4], [0.6, 0.2, 0.2]])
    time, capacity = np.array([[4.0, 2.0, 1.0]] * 3), np.array([[8.0, 4.0, 4.0]] * 3)
    assert round_to_groups(share, time, capacity) == [2, 1, 0]


def test_rounding_at_most_doubles_time_and_load() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        share = rng.dirichlet(np.ones(4), size=6)
        time, capacity = rng.integers(1, 20, (6, 4)) * 1.0, rng.integers(1, 9, (6, 4)) * 1.0
        chosen = round_to_groups(share, time, capacity)
        for b, g in enumerate(chosen):
            assert time[b, g] <= 2 * (share[b] * time[b]).sum() + 1e-9
            assert 1 / capacity[b, g] <= 2 * (share[b] / capacity[b]).sum() + 1e-9


def test_the_lp_is_rounded_to_groups() -> None:
    # three quarters of each op are on the fast device (see CASES): both are rounded to it. In
    # the other case only d1 can run b, and a is with it
    case, _ = CASES["the slow device takes a quarter"]
    together = instance(
        "with", [timed("a", 1, 9, colocation="p"), pinned("b", 1, 1, colocation="p")], []
    )
    for each, expected in ((case, [0, 0]), (together, [1, 1])):
        groups = device_groups(each, "columns")
        model = build(each, FREE, groups=groups)
        solve_model(model, Limits())
        rounded = extract(model, each)
        assert [groups.devices[g] for g in rounded] == [(k,) for k in expected]
